/* Reads the tokenizer of a GGUF file, by way of the tokenizer.json that its keys stand for. */
#ifndef GPT_TRAIN_IO_GGUF_TOKENIZER_H
#define GPT_TRAIN_IO_GGUF_TOKENIZER_H

#include "io/gguf_model.h"

/* How tokens are chosen: fields of generation_config.json, and the keys that llama.cpp reads. */
struct gguf_sampling {
    const char *field, *key;
    enum gguf_value type;
};
#define GGUF_SAMPLING_KEYS 5
extern const struct gguf_sampling gguf_sampling[GGUF_SAMPLING_KEYS];

/* Opens the tokenizer of a GGUF file; sets NULL if it has none that is read here, with a note.
 * Errors: GT_IO, GT_NO_MEMORY; GT_DATA and GT_UNSUPPORTED with one line that names the key. */
enum gt_status gguf_tokenizer_open(const void *owner, const char *path, struct tokenizer **out);

#endif
