/* Stopping on request: SIGINT, SIGTERM and SIGHUP ask the loop to save and end; a second one ends the process at once. */
#ifndef GPT_TRAIN_TRAIN_STOP_H
#define GPT_TRAIN_TRAIN_STOP_H

/* Installs the handlers and ignores SIGPIPE (a closed pipe then shows as a failed write).  Signals that the parent
 * ignores stay ignored, as nohup expects. */
void stop_install(void);
/* The signal that asked, or 0. */
int stop_requested(void);

#endif
