/* Evaluates a run on both splits of its data. */
#ifndef GPT_TRAIN_TRAIN_EVALUATE_H
#define GPT_TRAIN_TRAIN_EVALUATE_H

#include "train/runner.h"

struct evaluation_losses {
    double train, val;               /* of the mixture */
    double val_of_part[MIXTURE_MAX]; /* by data set */
};

/* Evaluates the model of the next iteration and logs its losses.  With `must_be_finite` a loss
 * that is not finite is an error.  Errors: those of evaluation_split_sum(). */
enum gt_status evaluate(struct runner *runner, bool must_be_finite, struct evaluation_losses *out);
/* Warns when the loss is outside the band that the configuration expects.  Returns true if it is.
 */
bool evaluate_is_off_course(const struct run *run, double val_loss);

#endif
