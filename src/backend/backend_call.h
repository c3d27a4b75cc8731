/* Calls of a backend, each recorded for as long as it takes, for a thread that watches.
 *
 * src/ calls a device through these functions, which need no record.  A function that the backend
 * lacks does nothing.
 */
#ifndef GPT_TRAIN_BACKEND_BACKEND_CALL_H
#define GPT_TRAIN_BACKEND_BACKEND_CALL_H

#include <stdatomic.h>

#include "backend/backend_holders.h"

/* Set backend.record to a zeroed one after open().  It must outlive the backend: closing is
 * recorded too. */
struct backend_record {
    atomic_uint_fast64_t number; /* of calls so far */
    _Atomic(const char *) call;  /* the call in progress, "sync"; NULL: none */
    uint64_t arena_bytes;        /* requested from arena(), over all calls */
    atomic_int
        op; /* enum op_kind of what run() executes or sync() waits for; -1: none, or several */
};

enum gt_status backend_info(struct backend *backend, struct backend_info *out);
/* Returns true if exchanges between ranks are ops of the device. */
bool backend_exchanges(const struct backend *backend);
enum gt_status backend_join(struct backend *backend, struct dist *dist);
enum gt_status backend_pass(struct backend *backend, const struct backend_pass *pass,
                            double *seconds);
enum gt_status backend_arena(struct backend *backend, const struct backend_segment *segments,
                             int32_t count);
enum gt_status backend_choose(struct backend *backend, const struct backend_algorithm *algorithms,
                              size_t count);
enum gt_status backend_bind(struct backend *backend, const struct op_call *calls, size_t count);
enum gt_status backend_upload(struct backend *backend, struct address to, const void *from,
                              size_t bytes);
enum gt_status backend_download(struct backend *backend, void *to, struct address from,
                                size_t bytes);
/* The backend must have download_later(). */
enum gt_status backend_download_later(struct backend *backend, void *to, struct address from,
                                      size_t bytes);
enum gt_status backend_run(struct backend *backend, const struct op_call *calls, size_t count);
/* The backend must have run_timed(). */
enum gt_status backend_run_timed(struct backend *backend, const struct op_call *calls, size_t count,
                                 bool whole, double *seconds);
enum gt_status backend_sync(struct backend *backend);
/* These two return NULL, and 0 in `count`, when the backend lacks the function. */
const struct backend_algorithm *backend_algorithms(struct backend *backend, size_t *count);
const struct backend_timing *backend_timings(struct backend *backend, size_t *count);
void backend_close(struct backend *backend); /* accepts NULL */

/* Asks the backend for its holders, which may scan every process of the machine, and writes them to
 * `text`. */
char *backend_holders_read(char text[static BACKEND_HOLDERS_TEXT_MAX], struct backend *backend);
/* As backend_holders_read(), but returns "not known" when it finds none. */
const char *backend_holders_known(char text[static BACKEND_HOLDERS_TEXT_MAX],
                                  struct backend *backend);
#define BACKEND_HOLDERS_KNOWN(backend) \
    backend_holders_known((char[BACKEND_HOLDERS_TEXT_MAX]){0}, backend)

#endif
