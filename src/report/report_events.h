/* Writes TensorBoard's event file, which W&B, aim and trackio import as well. */
#ifndef GPT_TRAIN_REPORT_REPORT_EVENTS_H
#define GPT_TRAIN_REPORT_REPORT_EVENTS_H

#include "base/status.h"

/* Writes the run in `run` as a file of TensorBoard's events in the folder `path`, which it makes.
 * Every number of every record becomes a scalar under its name in metrics.jsonl; a null becomes
 * NaN.  Errors: GT_DATA, GT_IO, GT_NO_MEMORY. */
enum gt_status report_events_write(const char *run, const char *path);

#endif
