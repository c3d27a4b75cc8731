/* Stopping on request: SIGINT, SIGTERM and SIGHUP ask the loop to save and end; a second one ends the process at once. */
#ifndef GPT_TRAIN_TRAIN_STOP_H
#define GPT_TRAIN_TRAIN_STOP_H

/* Ignores SIGPIPE and SIGXFSZ, so that a closed pipe or a file that may not grow shows as a failed write.  For the start
 * of a program. */
void stop_ignore_writes(void);
/* Installs the handlers, once there is something to save: before, a signal ends the process as usual.  Signals that the
 * parent ignores stay ignored, as nohup expects. */
void stop_install(void);
/* The signal that asked, or 0. */
int stop_requested(void);

#endif
