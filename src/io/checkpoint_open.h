/* Recognises and opens a checkpoint. */
#ifndef GPT_TRAIN_IO_CHECKPOINT_OPEN_H
#define GPT_TRAIN_IO_CHECKPOINT_OPEN_H

#include "io/checkpoint.h"

/* Detects the kind of checkpoint at `path`: a folder by its file names (such as ckpt.pt), a file by
 * its first bytes.  A missing path is CHECKPOINT_NONE.  Errors: GT_UNSUPPORTED when there are only
 * pickled weights (pytorch_model.bin) or a pickle outside of a zip archive; the message says what
 * to do.  GT_DATA when it is another file. */
enum gt_status checkpoint_probe(const char *path, enum checkpoint_kind *out);

/* Opens the checkpoint at `path` and checks everything except the content of the arrays: the
 * record, sizes, headers, names and shapes.  An lm_head.weight where config.json ties the output
 * layer is compared with the token embedding. Adapters are opened together with their base.
 * `with_optimizer` requires a checkpoint of ours or of nanoGPT. Errors: GT_IO, GT_NO_MEMORY,
 * GT_DATA (including when nothing is there), GT_UNSUPPORTED; one line naming file and field or
 * tensor. */
enum gt_status checkpoint_open(const void *owner, const char *path, bool with_optimizer,
                               struct checkpoint **out);

/* Logs a note if the file has quantised tensors, which become numbers as they are loaded. */
void checkpoint_blocks_log(const struct checkpoint *checkpoint);

/* Rejects a tokenizer other than the one that the checkpoint was trained with, whose hash the
 * record contains.  The hash is of the tokenizer's behaviour, not of its file.  `what` names it in
 * the message.  Succeeds when the record has no hash or either argument is NULL.  Errors: GT_DATA.
 */
enum gt_status checkpoint_tokenizer_check(const struct checkpoint *checkpoint,
                                          const struct tokenizer *tokenizer, const char *what);

#endif
