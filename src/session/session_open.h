/* Opens a session on a device of this machine. */
#ifndef GPT_TRAIN_SESSION_SESSION_OPEN_H
#define GPT_TRAIN_SESSION_SESSION_OPEN_H

#include "session/session.h"

/* Opens the device that the configuration names, and sets the budget and the dtype.  On failure
 * there is nothing to close.  Errors: GT_USAGE, GT_UNSUPPORTED, GT_DEVICE, GT_NO_MEMORY. */
enum gt_status session_open(struct hostmem *mem, const struct config *config, struct session *out);

#endif
