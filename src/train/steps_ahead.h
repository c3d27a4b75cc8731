/* Updates in flight.
 *
 * If the device runs ahead (exec_runs_ahead), an update ends for the host when it is enqueued.  Its
 * loss, its norm and whether it was skipped are read when they are logged or needed, several
 * updates at a time and in order.  Otherwise they are read after each update. */
#ifndef GPT_TRAIN_TRAIN_STEPS_AHEAD_H
#define GPT_TRAIN_TRAIN_STEPS_AHEAD_H

#include "base/hostmem.h"
#include "ops/op.h"

/* Maximum number of updates in flight: their results fit the backend's slots, and a signal is
 * noticed in time. */
#define STEPS_AHEAD_MAX 16

/* One update: the values it was started with, and room for its results. */
struct step_result {
    int64_t iter;
    int64_t tokens; /* seen by the run, this update included */
    double learning_rate, loss_scale;
    double targets;                          /* that count: the loss is their mean */
    float *loss_sums;                        /* [micro_steps]: one sum per micro-step */
    union scalar_word scalars[SCALAR_WORDS]; /* after the update */
};

struct steps_ahead {
    int32_t micro_steps, count;
    int64_t since_ns; /* when the first of these updates began */
    struct step_result step[STEPS_AHEAD_MAX];
};

/* Errors: GT_NO_MEMORY. */
enum gt_status steps_ahead_create(struct hostmem *mem, int32_t micro_steps,
                                  struct steps_ahead *out);
/* Returns the place for the next update, and starts the clock at the first one.  The caller raises
 * `count` once the update is in flight. */
struct step_result *steps_ahead_next(struct steps_ahead *ahead);
/* Returns the average seconds per update until now.  There must be at least one. */
double steps_ahead_seconds(const struct steps_ahead *ahead);
/* Returns the sum of the losses of all micro-steps, in fp64. */
double steps_ahead_loss_sum(const struct steps_ahead *ahead, const struct step_result *result);

#endif
