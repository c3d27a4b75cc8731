/* Calls of a backend, each recorded for as long as it takes, for a thread that watches.
 *
 * Each function marks the call in the backend's record, makes it, and clears the mark.
 */
#include "backend/backend_call.h"

#include "backend/backend_holders.h"

#define NO_OP (-1)

/* Records that a call begins; `op` is an enum op_kind, or NO_OP. */
static struct backend_record *begun(const struct backend *backend, const char *call, int op)
{
    struct backend_record *record = backend->record;
    if (record != NULL) {
        atomic_store(&record->op, op);
        atomic_fetch_add(&record->number, 1);
        atomic_store(&record->call, call);
    }
    return record;
}

static void ended(struct backend_record *record)
{
    if (record != NULL)
        atomic_store(&record->call, NULL);
}

/* Returns the op kind that all calls share, or NO_OP. */
static int kind_of(const struct op_call *calls, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (calls[i].kind != calls[0].kind)
            return NO_OP;
    return count > 0 ? (int)calls[0].kind : NO_OP;
}

/* Defines `function`, which calls the backend's function `name` and records the call as `mark`.  If
 * the backend lacks it, `function` returns `otherwise`. */
#define RECORDED(type, function, name, mark, op, otherwise, parameters, arguments) \
    type function parameters                                                       \
    {                                                                              \
        if (backend->ops->name == NULL)                                            \
            return otherwise;                                                      \
        struct backend_record *record = begun(backend, mark, op);                  \
        type result = backend->ops->name arguments;                                \
        ended(record);                                                             \
        return result;                                                             \
    }
#define CALLED(function, name, mark, op, parameters, arguments) \
    RECORDED(enum gt_status, function, name, mark, op, GT_OK, parameters, arguments)

CALLED(backend_info, info, "info", NO_OP, (struct backend * backend, struct backend_info *out),
       (backend, out))
CALLED(backend_join, join, "join", NO_OP, (struct backend * backend, struct dist *dist),
       (backend, dist))
CALLED(backend_pass, pass, "pass", NO_OP,
       (struct backend * backend, const struct backend_pass *pass, double *seconds),
       (backend, pass, seconds))
CALLED(backend_upload, upload, "upload", NO_OP,
       (struct backend * backend, struct address to, const void *from, size_t bytes),
       (backend, to, from, bytes))
CALLED(backend_download, download, "download", NO_OP,
       (struct backend * backend, void *to, struct address from, size_t bytes),
       (backend, to, from, bytes))
CALLED(backend_download_later, download_later, "download", NO_OP,
       (struct backend * backend, void *to, struct address from, size_t bytes),
       (backend, to, from, bytes))
CALLED(backend_bind, bind, "bind", NO_OP,
       (struct backend * backend, const struct op_call *calls, size_t count),
       (backend, calls, count))
CALLED(backend_run, run, "run", kind_of(calls, count),
       (struct backend * backend, const struct op_call *calls, size_t count),
       (backend, calls, count))
CALLED(backend_run_timed, run_timed, "run", kind_of(calls, count),
       (struct backend * backend, const struct op_call *calls, size_t count, bool whole,
        double *seconds),
       (backend, calls, count, whole, seconds))
CALLED(backend_sync, sync, "sync",
       backend->record != NULL ? atomic_load(&backend->record->op) : NO_OP,
       (struct backend * backend), (backend))
CALLED(backend_choose, choose, "choose", NO_OP,
       (struct backend * backend, const struct backend_algorithm *algorithms, size_t count),
       (backend, algorithms, count))
RECORDED(const struct backend_algorithm *, backend_algorithms, algorithms, "algorithms", NO_OP,
         (*count = 0, NULL), (struct backend * backend, size_t *count), (backend, count))
RECORDED(const struct backend_timing *, backend_timings, timings, "timings", NO_OP,
         (*count = 0, NULL), (struct backend * backend, size_t *count), (backend, count))

bool backend_exchanges(const struct backend *backend)
{
    return backend->ops->supports(backend, &(struct op_call){.kind = OP_EXCHANGE});
}

enum gt_status backend_arena(struct backend *backend, const struct backend_segment *segments,
                             int32_t count)
{
    struct backend_record *record = begun(backend, "arena", NO_OP);
    for (int32_t i = 0; i < count && record != NULL; i++)
        record->arena_bytes += segments[i].size_bytes;
    enum gt_status status = backend->ops->arena(backend, segments, count);
    ended(record);
    return status;
}

char *backend_holders_read(char text[static BACKEND_HOLDERS_TEXT_MAX], struct backend *backend)
{
    struct backend_holders holders = {.count = 0};
    struct backend_record *record = begun(backend, "holders", NO_OP);
    if (backend->ops->holders != NULL)
        backend->ops->holders(backend, &holders);
    ended(record);
    return backend_holders_text(text, &holders);
}

const char *backend_holders_known(char text[static BACKEND_HOLDERS_TEXT_MAX],
                                  struct backend *backend)
{
    return backend_holders_read(text, backend)[0] != '\0' ? text : "not known";
}

void backend_close(struct backend *backend)
{
    if (backend == NULL)
        return;
    struct backend_record *record = begun(backend, "close", NO_OP);
    backend->ops->close(backend);
    ended(record);
}
