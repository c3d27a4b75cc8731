/* Calls of a backend, each recorded for as long as it takes, for a thread that watches.
 *
 * Each function marks the call in the backend's record, makes it, and clears the mark.
 */
#include "backend/backend_call.h"

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
    for (size_t i = 1; i < count; i++) {
        if (calls[i].kind != calls[0].kind)
            return NO_OP;
    }
    return count > 0 ? (int)calls[0].kind : NO_OP;
}

/* Defines the function `name`, which records the call of the backend's function of that name. */
#define RECORDED(name, op, parameters, arguments)                   \
    enum gt_status backend_##name parameters                        \
    {                                                               \
        struct backend_record *record = begun(backend, #name, op);  \
        const enum gt_status status = backend->ops->name arguments; \
        ended(record);                                              \
        return status;                                              \
    }

RECORDED(info, NO_OP, (struct backend * backend, struct backend_info *out), (backend, out))
RECORDED(upload, NO_OP, (struct backend * backend, int32_t queue, struct address to, const void *from, size_t bytes),
         (backend, queue, to, from, bytes))
RECORDED(download, NO_OP, (struct backend * backend, int32_t queue, void *to, struct address from, size_t bytes),
         (backend, queue, to, from, bytes))
RECORDED(run, kind_of(calls, count),
         (struct backend * backend, int32_t queue, const struct op_call *calls, size_t count),
         (backend, queue, calls, count))
RECORDED(sync, backend->record != NULL ? atomic_load(&backend->record->op) : NO_OP,
         (struct backend * backend, int32_t queue), (backend, queue))

enum gt_status backend_arena(struct backend *backend, const struct backend_segment *segments, int32_t count)
{
    struct backend_record *record = begun(backend, "arena", NO_OP);
    for (int32_t i = 0; i < count && record != NULL; i++)
        record->arena_bytes += segments[i].size_bytes;
    enum gt_status status = backend->ops->arena(backend, segments, count);
    ended(record);
    return status;
}

enum gt_status backend_choose(struct backend *backend, const struct backend_choice *choices, size_t count)
{
    if (backend->ops->choose == NULL)
        return GT_OK;
    struct backend_record *record = begun(backend, "choose", NO_OP);
    enum gt_status status = backend->ops->choose(backend, choices, count);
    ended(record);
    return status;
}

enum gt_status backend_bind(struct backend *backend, const struct op_call *calls, size_t count)
{
    if (backend->ops->bind == NULL)
        return GT_OK;
    struct backend_record *record = begun(backend, "bind", NO_OP);
    enum gt_status status = backend->ops->bind(backend, calls, count);
    ended(record);
    return status;
}

enum gt_status backend_run_timed(struct backend *backend, int32_t queue, const struct op_call *calls, size_t count,
                                 bool whole, double *seconds)
{
    struct backend_record *record = begun(backend, "run", kind_of(calls, count));
    const enum gt_status status = backend->ops->run_timed(backend, queue, calls, count, whole, seconds);
    ended(record);
    return status;
}

enum gt_status backend_download_later(struct backend *backend, int32_t queue, void *to, struct address from,
                                      size_t bytes)
{
    struct backend_record *record = begun(backend, "download", NO_OP);
    enum gt_status status = backend->ops->download_later(backend, queue, to, from, bytes);
    ended(record);
    return status;
}

const struct backend_choice *backend_choices(struct backend *backend, size_t *count)
{
    *count = 0;
    if (backend->ops->choices == NULL)
        return NULL;
    struct backend_record *record = begun(backend, "choices", NO_OP);
    const struct backend_choice *choices = backend->ops->choices(backend, count);
    ended(record);
    return choices;
}

const struct backend_timing *backend_timings(struct backend *backend, size_t *count)
{
    *count = 0;
    if (backend->ops->timings == NULL)
        return NULL;
    struct backend_record *record = begun(backend, "timings", NO_OP);
    const struct backend_timing *timings = backend->ops->timings(backend, count);
    ended(record);
    return timings;
}

void backend_holders(struct backend *backend, struct backend_holders *out)
{
    if (backend->ops->holders == NULL)
        return;
    struct backend_record *record = begun(backend, "holders", NO_OP);
    backend->ops->holders(backend, out);
    ended(record);
}

void backend_close(struct backend *backend)
{
    if (backend == NULL)
        return;
    struct backend_record *record = begun(backend, "close", NO_OP);
    backend->ops->close(backend);
    ended(record);
}
