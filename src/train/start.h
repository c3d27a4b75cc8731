/* The start of a run that computes: its plan, its data, its device, its weights.
 *
 * The functions are called in their order; between them, a run that trains checks what only it
 * needs. */
#ifndef GPT_TRAIN_TRAIN_START_H
#define GPT_TRAIN_TRAIN_START_H

#include "session/restore_weights.h"
#include "session/resume_check.h"
#include "train/runner.h"

/* Decides where the run begins, opens the device and plans.  `dist` is NULL, or this process is one
 * of its ranks: all but the first wait here until the first has found nothing to refuse.  `runner`
 * was zeroed; the caller closes it with start_close(), whatever the result.  Errors: GT_USAGE,
 * GT_DATA, GT_NO_FIT, and others as they come. */
enum gt_status start_plan(struct runner *runner, struct hostmem *mem, struct config *config,
                          struct dist *dist);
/* Opens the data and checks that they belong to the model.  Errors: those of feed_open() and the
 * tokenizers. */
enum gt_status start_data(struct runner *runner);
/* Meets the other ranks, logs what is known before the start, starts the device, and logs how long
 * the run should take.  `digests` are those of the data, or empty.  Errors: those of
 * ranks_handshake(), session_start() and session_peak_measure(). */
enum gt_status start_device(struct runner *runner, const struct data_digests *digests);
/* Puts the weights on the device.  Errors: those of restore_weights(). */
enum gt_status start_weights(struct runner *runner);
/* From now on, signals stop the run, and nothing is allocated until start_end(). */
void start_work(struct runner *runner);
/* Allows allocations again.  Logs what `profile` and `verbose` request; `status` is that of the
 * run. */
void start_end(struct runner *runner, enum gt_status status);
/* Reports a failure, and closes what is open. */
void start_close(struct runner *runner, enum gt_status status);

#endif
