/* A thread that looks at something from time to time. */
#ifndef GPT_TRAIN_BASE_TICKER_H
#define GPT_TRAIN_BASE_TICKER_H

#include "base/hostmem.h"
#include "base/status.h"

struct ticker;

/* Called on the ticker's thread, never twice at the same time. */
typedef void ticker_fn(void *context);

/* From now on calls tick(context) about every `seconds`.  `mem` and `context` outlive the ticker.
 * Errors: GT_NO_MEMORY, GT_FAILURE (the system refuses a thread). */
enum gt_status ticker_start(struct hostmem *mem, double seconds, ticker_fn *tick, void *context, struct ticker **out);
/* Ends the thread and waits for it, which takes no longer than a tick does.  Accepts NULL. */
void ticker_stop(struct ticker *ticker);

#endif
