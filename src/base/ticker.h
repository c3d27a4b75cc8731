/* A thread that calls a function periodically. */
#ifndef GPT_TRAIN_BASE_TICKER_H
#define GPT_TRAIN_BASE_TICKER_H

#include "base/hostmem.h"
#include "base/status.h"

struct ticker;

/* Called on the ticker's thread, never twice at the same time. */
typedef void ticker_fn(void *context);

/* Starts a thread that calls tick(context) about every `seconds`.  `mem` and `context` must outlive the ticker.
 * Errors: GT_NO_MEMORY, GT_FAILURE (the system refuses a thread). */
enum gt_status ticker_start(struct hostmem *mem, double seconds, ticker_fn *tick, void *context, struct ticker **out);
/* Stops the thread and waits for it, for at most the duration of one tick.  Accepts NULL. */
void ticker_stop(struct ticker *ticker);

#endif
