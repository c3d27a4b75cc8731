/* Finds a ready-made vocabulary by name, or by the path of a file or folder in a format of tokenizer_import.h. */
#ifndef GPT_TRAIN_DATA_TOKENIZER_FIND_H
#define GPT_TRAIN_DATA_TOKENIZER_FIND_H

#include "base/hostmem.h"
#include "data/tokenizer.h"

/* `name` is "gpt2", a path, or OWNER/NAME, a model in Hugging Face's cache.  "gpt2" is searched for in
 * $GPT_TRAIN_TOKENIZER_DIR, the Hugging Face cache, the XDG data folders' gpt-train/gpt2 and /usr/share/gpt-train/gpt2;
 * nothing is ever downloaded.  Errors: GT_USAGE when there is none (one line names the places and the command that
 * fetches it), and those of tokenizer_import(). */
enum gt_status tokenizer_find(struct hostmem *mem, const char *name, struct tokenizer **out);

#endif
