/* The rates that a session's times are modelled with: of the device profile, timed on the device, or from one product. */
#ifndef GPT_TRAIN_TRAIN_SESSION_RATES_H
#define GPT_TRAIN_TRAIN_SESSION_RATES_H

#include "train/session.h"

/* What candidates of a plan are compared at: the profile's rates, or those of a nominal cpu.  Never a timing, so that two
 * fresh runs of a configuration plan alike. */
struct plan_rates session_rates_nominal(const struct session *session);

/* Before session_start(): the rates of an earlier run, or a guess of what the processor can do.  False where neither is to be
 * had: on a card that was never timed. */
bool session_rates_guess(struct session *session);
/* Times the device's ops in the arena, whose content is lost, unless the cache has their times; in under two seconds.
 * Between session_start() and the first upload.  Errors: GT_NO_MEMORY, GT_DEVICE. */
enum gt_status session_rates_calibrate(struct session *session);
/* Where the backend has timed calls to choose between algorithms, now or in earlier runs, the rates become those; said in one
 * line. */
void session_rates_tuned(struct session *session);
/* Takes the times of an earlier run from the cache, if it has them. */
void session_rates_recall(struct session *session);

/* Measures the device's matrix rate (in 20 to 60 ms).  Before session_start() it takes a small arena for that, after
 * which session_start() is no longer possible; after it, it uses the arena, whose content is lost.  The rate of an arena that
 * holds not even a small product is not known. */
enum gt_status session_peak_measure(struct session *session);

#endif
