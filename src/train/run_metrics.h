/* The start lines of metrics.jsonl, and report.html. */
#ifndef GPT_TRAIN_TRAIN_RUN_METRICS_H
#define GPT_TRAIN_TRAIN_RUN_METRICS_H

#include "train/trainer.h"

/* Writes the start lines of metrics.jsonl, and opens the report if one is requested.  Errors:
 * GT_NO_MEMORY. */
enum gt_status run_metrics_start(struct trainer *t);
/* Writes report.html again, if it is requested.  A failure is logged, and the run goes on. */
void run_metrics_report(struct trainer *t, bool goes_on);

#endif
