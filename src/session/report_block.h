/* The report that a failed program prints. */
#ifndef GPT_TRAIN_SESSION_REPORT_BLOCK_H
#define GPT_TRAIN_SESSION_REPORT_BLOCK_H

#include "session/session.h"

/* If the program or the device failed (GT_FAILURE, GT_DEVICE, GT_NO_MEMORY), prints a report to
 * standard error, between two marker lines.  Users paste it where they ask for help.  Otherwise
 * prints nothing: a bad key or path, a full disk, a model that does not fit or has diverged need
 * the error line only.  `session` may be NULL, or may have failed at any point of its opening, but
 * session_close() must not have been called. */
void report_block_print(const struct config *config, const struct session *session,
                        enum gt_status status);

#endif
