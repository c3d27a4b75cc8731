/* Updates that the device has been given and whose results the host has not looked at yet.
 *
 * Where the device runs ahead (exec_runs_ahead), an update ends for the host when it is enqueued; its loss, norm and whether it
 * was skipped are looked at when they are logged or needed, a few updates together and in their order.  Elsewhere that is
 * after each update.
 */
#ifndef GPT_TRAIN_TRAIN_STEPS_AHEAD_H
#define GPT_TRAIN_TRAIN_STEPS_AHEAD_H

#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "ops/op.h"

/* So many updates may be under way: results of all of them fit the backend's slots, and a signal is seen in time. */
#define STEPS_AHEAD_MAX 16

/* One update: what it was begun with, and where its results arrive. */
struct step_result {
    int64_t iter;
    double learning_rate, loss_scale;
    float *loss_sums;                        /* [micro_steps], each that of one micro-step */
    union scalar_word scalars[SCALAR_WORDS]; /* after the update */
};

struct steps_ahead {
    struct hostmem *mem;
    float *loss_sums; /* of all steps */
    int32_t micro_steps, count;
    int64_t since_ns; /* when the first of them began */
    struct step_result step[STEPS_AHEAD_MAX];
};

/* Errors: GT_NO_MEMORY. */
enum gt_status steps_ahead_create(struct hostmem *mem, int32_t micro_steps, struct steps_ahead *out);
void steps_ahead_destroy(struct steps_ahead *ahead);
/* The place of the next update, which becomes one of them by steps_ahead_add(); the clock of the first one starts. */
struct step_result *steps_ahead_next(struct steps_ahead *ahead);
void steps_ahead_add(struct steps_ahead *ahead);
/* Seconds of each, on average until now.  There is one. */
double steps_ahead_seconds(const struct steps_ahead *ahead);
/* The sum of the losses of all micro-steps, in fp64. */
double steps_ahead_loss_sum(const struct steps_ahead *ahead, const struct step_result *result);

#endif
