/* nanoGPT's meta.pkl: the characters of a data set.
 *
 * A pickle of { vocab_size, itos, stoi } that data/NAME/prepare.py writes.  It is parsed as data (pickle.h), never
 * executed.  Source: nanoGPT (commit 3adf61e) data/shakespeare_char/prepare.py and sample.py.
 */
#ifndef GPT_TRAIN_IO_NANOGPT_META_H
#define GPT_TRAIN_IO_NANOGPT_META_H

#include <stddef.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "data/tokenizer.h"

/* Makes a tokenizer of kind chars with the ids of "itos".  Errors: GT_IO, GT_NO_MEMORY, GT_UNSUPPORTED (a pickle that
 * needs to run code), GT_DATA (other content; ids that are not in the order of the characters, as prepare.py's are). */
enum gt_status nanogpt_meta_open(struct hostmem *mem, const char *path, struct tokenizer **out);
/* As above, for the file's content in memory. */
enum gt_status nanogpt_meta_read(struct hostmem *mem, const unsigned char *bytes, size_t count, const char *path,
                                 struct tokenizer **out);

#endif
