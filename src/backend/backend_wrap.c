/* A wrapper around a backend, which counts calls and bytes, reports the call in progress, and fails on demand.
 *
 * Its functions forward every call to the inner backend, which does not know the wrapper.
 */
#include "backend/backend.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/log.h"

struct wrapper {
    struct backend base; /* must be first */
    struct backend *inner;
    struct backend_ops ops;
    struct backend_counters counters;
    uint64_t fail_in[BACKEND_CALL_COUNT]; /* 1 = the next call fails; 0 = off */
    enum gt_status fail_status[BACKEND_CALL_COUNT];
    uint64_t free_limit; /* 0 = none */
    int holders;         /* reference count: the user until close(), and any watcher */
    /* The call in progress, for a watching thread. */
    atomic_uint_fast64_t waiting_number;
    atomic_int waiting_call; /* an enum backend_call, or NOTHING */
    atomic_int waiting_op;   /* an enum op_kind, or NOTHING */
};

#define NOTHING (-1)

static const char *const call_names[BACKEND_CALL_COUNT] = {
    "info", "arena", "upload", "download", "run", "sync", "bind", "choose", "close", "holders", "choices", "timings"};

static struct wrapper *wrapper_of(struct backend *backend)
{
    return (struct wrapper *)(void *)backend;
}

static const struct wrapper *wrapper_of_const(const struct backend *backend)
{
    return (const struct wrapper *)(const void *)backend;
}

/* Returns the injected status if this call is the one to fail, else GT_OK. */
static enum gt_status fault(struct wrapper *wrapper, enum backend_call call)
{
    if (wrapper->fail_in[call] == 0 || --wrapper->fail_in[call] > 0)
        return GT_OK;
    log_error("%s: injected fault in %s: %s", wrapper->ops.name, call_names[call],
              status_name(wrapper->fail_status[call]));
    return wrapper->fail_status[call];
}

/* Records that a call begins; `op` is an enum op_kind, or NOTHING. */
static void begun(struct wrapper *wrapper, enum backend_call call, int op)
{
    atomic_store(&wrapper->waiting_op, op);
    atomic_fetch_add(&wrapper->waiting_number, 1);
    atomic_store(&wrapper->waiting_call, (int)call);
}

static enum gt_status ended(struct wrapper *wrapper, enum gt_status status)
{
    atomic_store(&wrapper->waiting_call, NOTHING);
    return status;
}

static bool wrap_supports(const struct backend *backend, const struct op_call *call)
{
    const struct backend *inner = wrapper_of_const(backend)->inner;
    return inner->ops->supports(inner, call);
}

static size_t wrap_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    const struct backend *inner = wrapper_of_const(backend)->inner;
    return inner->ops->workspace_bytes(inner, call);
}

static void wrap_devices(bool automatic, struct backend_devices *out)
{
    (void)automatic;
    *out = (struct backend_devices){.first = -1, .reason = "a wrapped backend is made by backend_wrap(), not found"};
}

static enum gt_status wrap_open(const struct backend_open_options *options, struct backend **out)
{
    (void)options;
    (void)out;
    log_error("a wrapped backend is made by backend_wrap(), not opened");
    return GT_UNSUPPORTED;
}

static void wrap_close(struct backend *backend)
{
    if (backend == NULL)
        return;
    struct wrapper *wrapper = wrapper_of(backend);
    begun(wrapper, BACKEND_CALL_CLOSE, NOTHING);
    wrapper->inner->ops->close(wrapper->inner);
    (void)ended(wrapper, GT_OK);
    backend_wrap_drop(backend);
}

static enum gt_status wrap_info(struct backend *backend, struct backend_info *out)
{
    struct wrapper *wrapper = wrapper_of(backend);
    TRY(fault(wrapper, BACKEND_CALL_INFO));
    begun(wrapper, BACKEND_CALL_INFO, NOTHING);
    TRY(ended(wrapper, wrapper->inner->ops->info(wrapper->inner, out)));
    if (wrapper->free_limit > 0 && out->free_bytes > wrapper->free_limit)
        out->free_bytes = wrapper->free_limit;
    return GT_OK;
}

static void wrap_holders(struct backend *backend, struct backend_holders *out)
{
    struct wrapper *wrapper = wrapper_of(backend);
    struct backend *inner = wrapper->inner;
    if (inner->ops->holders == NULL)
        return;
    begun(wrapper, BACKEND_CALL_HOLDERS, NOTHING);
    inner->ops->holders(inner, out);
    (void)ended(wrapper, GT_OK);
}

static enum gt_status wrap_arena(struct backend *backend, const struct backend_segment *segments, int32_t count)
{
    struct wrapper *wrapper = wrapper_of(backend);
    wrapper->counters.arena_calls++;
    for (int32_t i = 0; i < count; i++)
        wrapper->counters.arena_bytes += segments[i].size_bytes;
    TRY(fault(wrapper, BACKEND_CALL_ARENA));
    begun(wrapper, BACKEND_CALL_ARENA, NOTHING);
    return ended(wrapper, wrapper->inner->ops->arena(wrapper->inner, segments, count));
}

static enum gt_status wrap_choose(struct backend *backend, const struct backend_choice *choices, size_t count)
{
    struct wrapper *wrapper = wrapper_of(backend);
    struct backend *inner = wrapper->inner;
    TRY(fault(wrapper, BACKEND_CALL_CHOOSE));
    if (inner->ops->choose == NULL)
        return GT_OK;
    begun(wrapper, BACKEND_CALL_CHOOSE, NOTHING);
    return ended(wrapper, inner->ops->choose(inner, choices, count));
}

static const struct backend_choice *wrap_choices(struct backend *backend, size_t *count)
{
    struct wrapper *wrapper = wrapper_of(backend);
    struct backend *inner = wrapper->inner;
    *count = 0;
    if (inner->ops->choices == NULL)
        return NULL;
    begun(wrapper, BACKEND_CALL_CHOICES, NOTHING);
    const struct backend_choice *choices = inner->ops->choices(inner, count);
    (void)ended(wrapper, GT_OK);
    return choices;
}

static const struct backend_timing *wrap_timings(struct backend *backend, size_t *count)
{
    struct wrapper *wrapper = wrapper_of(backend);
    struct backend *inner = wrapper->inner;
    *count = 0;
    if (inner->ops->timings == NULL)
        return NULL;
    begun(wrapper, BACKEND_CALL_TIMINGS, NOTHING);
    const struct backend_timing *timings = inner->ops->timings(inner, count);
    (void)ended(wrapper, GT_OK);
    return timings;
}

static enum gt_status wrap_bind(struct backend *backend, const struct op_call *calls, size_t count)
{
    struct wrapper *wrapper = wrapper_of(backend);
    struct backend *inner = wrapper->inner;
    TRY(fault(wrapper, BACKEND_CALL_BIND));
    if (inner->ops->bind == NULL)
        return GT_OK;
    begun(wrapper, BACKEND_CALL_BIND, NOTHING);
    return ended(wrapper, inner->ops->bind(inner, calls, count));
}

static enum gt_status wrap_upload(struct backend *backend, int32_t queue, struct address to, const void *from,
                                  size_t bytes)
{
    struct wrapper *wrapper = wrapper_of(backend);
    wrapper->counters.upload_calls++;
    wrapper->counters.upload_bytes += bytes;
    TRY(fault(wrapper, BACKEND_CALL_UPLOAD));
    begun(wrapper, BACKEND_CALL_UPLOAD, NOTHING);
    return ended(wrapper, wrapper->inner->ops->upload(wrapper->inner, queue, to, from, bytes));
}

static enum gt_status wrap_download(struct backend *backend, int32_t queue, void *to, struct address from, size_t bytes)
{
    struct wrapper *wrapper = wrapper_of(backend);
    wrapper->counters.download_calls++;
    wrapper->counters.download_bytes += bytes;
    TRY(fault(wrapper, BACKEND_CALL_DOWNLOAD));
    begun(wrapper, BACKEND_CALL_DOWNLOAD, NOTHING);
    return ended(wrapper, wrapper->inner->ops->download(wrapper->inner, queue, to, from, bytes));
}

static enum gt_status wrap_download_later(struct backend *backend, int32_t queue, void *to, struct address from,
                                          size_t bytes)
{
    struct wrapper *wrapper = wrapper_of(backend);
    wrapper->counters.download_calls++;
    wrapper->counters.download_bytes += bytes;
    TRY(fault(wrapper, BACKEND_CALL_DOWNLOAD));
    begun(wrapper, BACKEND_CALL_DOWNLOAD, NOTHING);
    return ended(wrapper, wrapper->inner->ops->download_later(wrapper->inner, queue, to, from, bytes));
}

/* Returns the op kind that all calls share, or NOTHING. */
static int kind_of(const struct op_call *calls, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (calls[i].kind != calls[0].kind)
            return NOTHING;
    }
    return count > 0 ? (int)calls[0].kind : NOTHING;
}

static enum gt_status wrap_run(struct backend *backend, int32_t queue, const struct op_call *calls, size_t count)
{
    struct wrapper *wrapper = wrapper_of(backend);
    wrapper->counters.run_calls++;
    wrapper->counters.ops += count;
    TRY(fault(wrapper, BACKEND_CALL_RUN));
    begun(wrapper, BACKEND_CALL_RUN, kind_of(calls, count));
    return ended(wrapper, wrapper->inner->ops->run(wrapper->inner, queue, calls, count));
}

static enum gt_status wrap_sync(struct backend *backend, int32_t queue)
{
    struct wrapper *wrapper = wrapper_of(backend);
    wrapper->counters.sync_calls++;
    TRY(fault(wrapper, BACKEND_CALL_SYNC));
    begun(wrapper, BACKEND_CALL_SYNC, atomic_load(&wrapper->waiting_op));
    return ended(wrapper, wrapper->inner->ops->sync(wrapper->inner, queue));
}

enum gt_status backend_wrap(struct backend *inner, struct backend **out)
{
    struct wrapper *wrapper = calloc(1, sizeof *wrapper);
    if (wrapper == NULL) {
        log_error("%s: no memory for a wrapper of %zu B", inner->ops->name, sizeof *wrapper);
        return GT_NO_MEMORY;
    }
    wrapper->inner = inner;
    wrapper->holders = 1;
    wrapper->ops = (struct backend_ops){
        .name = inner->ops->name,
        .devices = wrap_devices,
        .open = wrap_open,
        .close = wrap_close,
        .info = wrap_info,
        .holders = wrap_holders,
        .arena = wrap_arena,
        .choose = wrap_choose,
        .choices = wrap_choices,
        .timings = wrap_timings,
        .bind = wrap_bind,
        .upload = wrap_upload,
        .download = wrap_download,
        .download_later = inner->ops->download_later != NULL ? wrap_download_later : NULL,
        .run = wrap_run,
        .sync = wrap_sync,
        .supports = wrap_supports,
        .workspace_bytes = wrap_workspace_bytes,
    };
    atomic_init(&wrapper->waiting_number, 0);
    atomic_init(&wrapper->waiting_call, NOTHING);
    atomic_init(&wrapper->waiting_op, NOTHING);
    wrapper->base.ops = &wrapper->ops;
    *out = &wrapper->base;
    return GT_OK;
}

void backend_wrap_counters(const struct backend *wrapper, struct backend_counters *out)
{
    *out = wrapper_of_const(wrapper)->counters;
}

void backend_wrap_free_limit(struct backend *wrapper, uint64_t free_bytes)
{
    wrapper_of(wrapper)->free_limit = free_bytes;
}

void backend_wrap_fail_at(struct backend *wrapper, enum backend_call call, uint64_t n, enum gt_status status)
{
    assert((unsigned)call < BACKEND_CALL_CLOSE && status != GT_OK);
    wrapper_of(wrapper)->fail_in[call] = n;
    wrapper_of(wrapper)->fail_status[call] = status;
}

bool backend_wrap_waiting(const struct backend *wrapper, struct backend_waiting *out)
{
    const struct wrapper *self = wrapper_of_const(wrapper);
    const int call = atomic_load(&self->waiting_call), op = atomic_load(&self->waiting_op);
    if (call == NOTHING)
        return false;
    *out = (struct backend_waiting){.call = call_names[call],
                                    .op = op != NOTHING ? op_declaration((enum op_kind)op)->name : NULL,
                                    .number = atomic_load(&self->waiting_number)};
    return true;
}

void backend_wrap_hold(struct backend *wrapper)
{
    wrapper_of(wrapper)->holders++;
}

void backend_wrap_drop(struct backend *wrapper)
{
    if (--wrapper_of(wrapper)->holders == 0)
        free(wrapper_of(wrapper));
}
