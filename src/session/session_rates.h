/* The rates with which the times of a session's plan are modelled. */
#ifndef GPT_TRAIN_SESSION_SESSION_RATES_H
#define GPT_TRAIN_SESSION_SESSION_RATES_H

#include "session/session.h"

/* Sets rates before session_start(): those of an earlier run, or a guess from the number of
 * threads.  Returns false for a card that no run has timed: the guess from threads means nothing
 * for it. */
bool session_rates_guess(struct session *session);
/* Times the device's ops in the arena, whose content is lost, unless the cache has their times.
 * Takes a second or two, or up to four if other programs disturb it.  Call it between
 * session_start() and the first upload. Errors: GT_NO_MEMORY, GT_DEVICE. */
enum gt_status session_rates_calibrate(struct session *session);
/* Corrects timed rates, here and in the cache, if a step takes at most half of its modelled
 * seconds, or at least twice as many. */
void session_rates_correct(struct session *session, double modelled, double measured);

/* Measures the device's matrix rates (in 20 to 60 ms for each dtype on a cpu, 50 to 150 ms on a
 * card).  Called before session_start(), it allocates a small arena of its own, and session_start()
 * must not be called any more.  Called after session_start(), it uses the session's arena, whose
 * content is lost.  The rates stay unknown if the arena is too small even for a small product. */
enum gt_status session_peak_measure(struct session *session);

#endif
