/* The other processes that use a device's memory: the largest few, their names, and a line of text
 * about them. */
#ifndef GPT_TRAIN_BACKEND_BACKEND_HOLDERS_H
#define GPT_TRAIN_BACKEND_BACKEND_HOLDERS_H

#include "backend/backend.h"

/* Adds a process, still without a name.  Keeps the largest, sorted, each process once. */
void backend_holders_insert(struct backend_holders *holders, int64_t pid, uint64_t bytes);
/* Sets the name, cut to fit.  A process chooses its own name, so bytes outside printable ASCII
 * become '?'; "" becomes
 * "?". */
void backend_holder_name(struct backend_holder *holder, const char *name);
/* Returns the bytes of a device's memory that process `pid` uses, as far as the files below `proc`
 * say; else 0. */
typedef uint64_t backend_usage_fn(const void *context, const char *proc, int64_t pid);
/* Writes to `out` the processes below `proc` ("/proc") that use most, except `own_pid`, with their
 * names. */
void backend_holders_scan(struct backend_holders *out, const char *proc, int64_t own_pid,
                          backend_usage_fn *usage, const void *context);
/* Writes "firefox (4711) 2.10 GiB, make (12) 3.1 MiB"; empty without holders.  Returns `text`. */
#define BACKEND_HOLDERS_TEXT_MAX 320
char *backend_holders_text(char text[static BACKEND_HOLDERS_TEXT_MAX],
                           const struct backend_holders *holders);

#endif
