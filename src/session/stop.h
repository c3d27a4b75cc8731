/* Stops on request.  SIGINT, SIGTERM and SIGHUP make the loop save and end; a second one ends the
 * process at once. */
#ifndef GPT_TRAIN_SESSION_STOP_H
#define GPT_TRAIN_SESSION_STOP_H

#include <stdatomic.h>

/* Ignores SIGPIPE and SIGXFSZ, so that a closed pipe or a file that may not grow shows up as a
 * failed write.  To be called at the start of a program. */
void stop_ignore_writes(void);
/* Installs the handlers.  To be called once there is something to save; until then a signal ends
 * the process as usual. Signals that the parent ignores stay ignored, as nohup expects. */
void stop_install(void);
/* Returns the signal that was received, or 0. */
int stop_requested(void);
/* For ranks, which all stop after the same update.  From stop_share() on, handlers write the signal
 * to *where, and stop_requested() returns the number last passed to stop_agree(). */
void stop_share(atomic_int *where);
void stop_agree(int number);

#endif
