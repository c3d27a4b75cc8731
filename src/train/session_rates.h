/* The rates with which a session models times: from the device profile, timed on the device, or derived from one
 * product. */
#ifndef GPT_TRAIN_TRAIN_SESSION_RATES_H
#define GPT_TRAIN_TRAIN_SESSION_RATES_H

#include "train/session.h"

/* Returns the rates at which candidates of a plan are compared: the profile's, or those of a nominal cpu.  They are
 * never timings, so that two fresh runs of a configuration get the same plan. */
struct plan_rates session_rates_nominal(const struct session *session);

/* Sets rates before session_start(): those of an earlier run, or a guess from the number of threads.  Returns false for
 * a card that was never timed, for which that guess means nothing. */
bool session_rates_guess(struct session *session);
/* Times the device's ops in the arena, whose content is lost, unless the cache has their times.  Takes less than two
 * seconds.  To be called between session_start() and the first upload.  Errors: GT_NO_MEMORY, GT_DEVICE. */
enum gt_status session_rates_calibrate(struct session *session);

/* Measures the device's matrix rate (in 20 to 60 ms on a cpu, 50 to 150 ms on a card).  Before session_start() it takes
 * a small arena for that, which makes session_start() impossible.  After session_start() it uses the session's arena,
 * whose content is lost.  The rate stays unknown if the arena is too small even for a small product. */
enum gt_status session_peak_measure(struct session *session);

#endif
