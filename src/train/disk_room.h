/* Whether the disk has room for what the run will save. */
#ifndef GPT_TRAIN_TRAIN_DISK_ROOM_H
#define GPT_TRAIN_TRAIN_DISK_ROOM_H

#include <stdbool.h>

#include "base/status.h"
#include "train/session.h"

/* To be asked once the session has a plan, before the first step.  A save writes the new checkpoint beside those that stay: warns
 * where that may become too much.  `own`: out_dir holds checkpoints of this run already.  Errors: GT_IO where not even the
 * first save has room. */
enum gt_status disk_room_check(const struct session *session, bool own);

#endif
