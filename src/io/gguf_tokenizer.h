/* Reads the tokenizer of a GGUF file. */
#ifndef GPT_TRAIN_IO_GGUF_TOKENIZER_H
#define GPT_TRAIN_IO_GGUF_TOKENIZER_H

#include "io/gguf_model.h"

#define GGUF_KEY_TEMPLATE "tokenizer.chat_template"
/* Further tokens that end a text: the end of a turn, and of a message that a tool answers. */
#define GGUF_KEY_EOT "tokenizer.ggml.eot_token_id"
#define GGUF_KEY_EOM "tokenizer.ggml.eom_token_id"

/* Sampling settings: fields of generation_config.json, and the keys that llama.cpp reads. */
struct gguf_sampling {
    const char *field, *key;
    enum gguf_value type;
};
#define GGUF_SAMPLING_KEYS 5
extern const struct gguf_sampling gguf_sampling[GGUF_SAMPLING_KEYS];

/* No key says that a token removes the white space after it. llama.cpp assumes this for all but
 * three special tokens of a file whose general.name contains "phi3" or "phi-3".  It does not open
 * such a file if the file lacks these three or "</s>".  Source: its llama-vocab.cpp, "set
 * attributes by model/tokenizer". */
bool gguf_is_phi3(const char *name, size_t count);
bool gguf_phi3_eats(const char *token, size_t count);
/* Returns true if the vocabulary has these three, and a "</s>" that removes white space. */
bool gguf_has_phi3(const struct bpe *bpe);

/* Opens the tokenizer of a GGUF file.  Sets *out to NULL, with a note, if the file has no supported
 * tokenizer.  Errors: GT_IO, GT_NO_MEMORY; GT_DATA and GT_UNSUPPORTED with one line that names the
 * key. */
enum gt_status gguf_tokenizer_open(const void *owner, const char *path, struct tokenizer **out);
/* Do for a GGUF file what tokenizer_template_read() and tokenizer_folder_has_template() do for a
 * folder.  Errors: GT_IO, GT_NO_MEMORY, GT_DATA, GT_UNSUPPORTED. */
enum gt_status gguf_template_read(const char *path, struct tokenizer *tokenizer);
enum gt_status gguf_has_template(const void *owner, const char *path, bool *out);

#endif
