/* The tokenizer that a checkpoint was trained with: the record contains its hash. */
#ifndef GPT_TRAIN_IO_CHECKPOINT_TOKENIZER_H
#define GPT_TRAIN_IO_CHECKPOINT_TOKENIZER_H

#include "base/status.h"
#include "data/tokenizer.h"
#include "io/checkpoint.h"

#define CHECKPOINT_TOKENIZER_HASH_MAX 32
/* Writes the hash, such as "crc32c:89abcdef", to `text`.  Returns `text`. */
const char *checkpoint_tokenizer_hash(char text[static CHECKPOINT_TOKENIZER_HASH_MAX],
                                      const struct tokenizer *tokenizer);
/* Rejects a tokenizer other than the checkpoint's; `what` names it in the message.  Succeeds when the record has no
 * hash or either argument is NULL.  Errors: GT_DATA. */
enum gt_status checkpoint_tokenizer_check(const struct checkpoint *checkpoint, const struct tokenizer *tokenizer,
                                          const char *what);

#endif
