/* Shared by the files judge*.c: a loaded model, and room for one batch. */
#ifndef GPT_TRAIN_TRAIN_JUDGE_INTERNAL_H
#define GPT_TRAIN_TRAIN_JUDGE_INTERNAL_H

#include "base/file.h"
#include "base/progress.h"
#include "train/judge.h"
#include "train/restore.h"
#include "train/session.h"
#include "train/watchdog.h"

struct judge {
    struct hostmem *mem;
    const struct config *config;
    struct restore_source source;
    struct session session;
    struct watchdog watchdog;
    struct progress progress;
    char folder[FILE_PATH_MAX]; /* of the model's tokenizer */
    int64_t batch, time;        /* B and T of the evaluation program */
    int32_t *ids, *targets;     /* [B * T] */
};

/* Uploads ids and targets, runs the program and adds its sum of losses to *sum. */
enum gt_status judge_batch_add(struct judge *judge, double *sum);

/* Prints loss, perplexity and bits per byte of all tokens of eval_data. */
enum gt_status judge_text(struct judge *judge);
/* Prints how many questions of the file the model answers correctly. */
enum gt_status judge_choices(struct judge *judge);

#endif
