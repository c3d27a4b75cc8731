/* Judges an exported model: opens it again and compares weights and loss with those of the model it
 * was made from. */
#ifndef GPT_TRAIN_JUDGE_EXPORT_CHECK_H
#define GPT_TRAIN_JUDGE_EXPORT_CHECK_H

#include "io/export.h"
#include "io/export_options.h"

struct export_check {
    const struct export_options *options; /* of the finished export */
    const char *model;                    /* where the checkpoint is, as for init_from */
    int64_t tokens;                       /* at most */
};

/* Compares the tensors (export_compare()).  Then prints both losses: on the run's validation data
 * where they are there, else on a text of our own.  Logs why if they cannot be known: adapters
 * alone, no tokenizer, not enough memory for the weights in float32.  Memory is that of one of the
 * models at a time; the number of tokens is such that it takes about 10 s.  Errors: GT_FAILURE when
 * the export's loss differs by more than its type explains; those of judge_ids(). */
enum gt_status export_check_run(const struct export_check *check);

#endif
