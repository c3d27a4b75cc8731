/* The tokenizer that a checkpoint was trained with: its record has a hash of it. */
#ifndef GPT_TRAIN_IO_CHECKPOINT_TOKENIZER_H
#define GPT_TRAIN_IO_CHECKPOINT_TOKENIZER_H

#include "base/status.h"
#include "data/tokenizer.h"
#include "io/checkpoint.h"

#define CHECKPOINT_TOKENIZER_HASH_MAX 32
/* "crc32c:89abcdef" into `text`.  Returns `text`. */
const char *checkpoint_tokenizer_hash(char text[static CHECKPOINT_TOKENIZER_HASH_MAX],
                                      const struct tokenizer *tokenizer);
/* Refuses a tokenizer other than the checkpoint's; `what` names it in the message.  Passes where the record has no hash, or
 * either argument is NULL.  Errors: GT_DATA. */
enum gt_status checkpoint_tokenizer_check(const struct checkpoint *checkpoint, const struct tokenizer *tokenizer,
                                          const char *what);

#endif
