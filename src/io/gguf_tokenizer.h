/* Reads the tokenizer of a GGUF file, by way of the tokenizer.json that its keys stand for. */
#ifndef GPT_TRAIN_IO_GGUF_TOKENIZER_H
#define GPT_TRAIN_IO_GGUF_TOKENIZER_H

#include "io/gguf_model.h"

/* Opens the tokenizer of a GGUF file; sets NULL if it has none that is read here, with a note.  Errors: GT_IO,
 * GT_NO_MEMORY; GT_DATA and GT_UNSUPPORTED with one line that names the key. */
enum gt_status gguf_tokenizer_open(const void *owner, const char *path, struct tokenizer **out);

#endif
