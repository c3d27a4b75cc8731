/* nanoGPT's meta.pkl: the characters of a data set.
 *
 * A pickle of { vocab_size, itos, stoi } that data/NAME/prepare.py writes.  It is read as data (pickle.h), never run.
 * Source: nanoGPT (commit 3adf61e) data/shakespeare_char/prepare.py and sample.py.
 */
#ifndef GPT_TRAIN_IO_NANOGPT_META_H
#define GPT_TRAIN_IO_NANOGPT_META_H

#include <stddef.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "data/tokenizer.h"

/* A tokenizer of kind chars with the ids of "itos".  Errors: GT_IO, GT_NO_MEMORY, GT_UNSUPPORTED (a pickle that needs to
 * run), GT_DATA (another content; ids that do not follow the characters' order, as prepare.py's do). */
enum gt_status nanogpt_meta_open(struct hostmem *mem, const char *path, struct tokenizer **out);
/* The same of what the file holds. */
enum gt_status nanogpt_meta_read(struct hostmem *mem, const unsigned char *bytes, size_t count, const char *path,
                                 struct tokenizer **out);

#endif
