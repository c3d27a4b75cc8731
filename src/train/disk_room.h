/* Checks that the disk has room for the checkpoints of a run. */
#ifndef GPT_TRAIN_TRAIN_DISK_ROOM_H
#define GPT_TRAIN_TRAIN_DISK_ROOM_H

#include <stdbool.h>

#include "base/status.h"
#include "train/session.h"

/* To be called before the first step, once the session has a plan.  A save writes the new checkpoint next to the ones
 * that are kept.  Warns when the disk may become too full for that.  `own`: out_dir already contains checkpoints of
 * this run.  Errors: GT_IO when there is no room even for the first save. */
enum gt_status disk_room_check(const struct session *session, bool own);

#endif
