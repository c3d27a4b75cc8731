/* What a run used. */
#ifndef GPT_TRAIN_TRAIN_USE_LOG_H
#define GPT_TRAIN_TRAIN_USE_LOG_H

#include "session/session.h"

/* Logs the time of each kind of op. */
void use_log_ops(const struct session *session);
/* Logs the arena at its peak, by category; the device's free memory, and the processes that use
 * most of the rest. */
void use_log_memory(const struct session *session);

#endif
