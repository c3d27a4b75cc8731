/* The backend of exec's tests; see the header. */
#include "tests/unit/backend_fixture.h"

#include <stdlib.h>
#include <string.h>

static struct fixture_backend *own(struct backend *backend)
{
    return (struct fixture_backend *)backend;
}

/* Returns the host pointer for an address.  Copies and kernels both use it, so that no access
 * leaves the arena. */
static unsigned char *resolve(struct fixture_backend *backend, struct address at, size_t bytes)
{
    if (at.segment >= backend->segment_count ||
        at.offset_bytes > backend->segment_bytes[at.segment] ||
        bytes > backend->segment_bytes[at.segment] - at.offset_bytes)
        abort();
    return backend->segment[at.segment] + at.offset_bytes;
}

static float *operand_data(struct backend *backend, const struct op_call *call, int32_t slot)
{
    return (float *)(void *)resolve(own(backend), call->operand[slot].at,
                                    operand_bytes(&call->operand[slot]));
}

static void workspace_scribble(struct backend *backend, const struct op_call *call, size_t more)
{
    if (call->workspace_bytes > 0)
        memset(resolve(own(backend), call->workspace, call->workspace_bytes + more), 0xee,
               call->workspace_bytes + more);
}

/* Spoils what nothing reads after the op. */
static void last_scribble(struct backend *backend, const struct op_call *call)
{
    for (int32_t s = 0; s < OP_OPERANDS_MAX; s++) {
        if (!call->operand[s].last || !own(backend)->spoils)
            continue;
        own(backend)->lasts++;
        memset(operand_data(backend, call, s), 0xee, operand_bytes(&call->operand[s]));
    }
}

static bool supports_f32(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    for (int32_t s = 0; s < OP_OPERANDS_MAX; s++) {
        if (call->operand[s].present && call->operand[s].dtype != DTYPE_F32)
            return false;
    }
    return true;
}

static size_t workspace_odd(const struct backend *backend, const struct op_call *call)
{
    const struct fixture_backend *fixture = (const struct fixture_backend *)backend;
    size_t elements = (size_t)operand_elements(&call->operand[0]);
    return fixture->workspaces ? elements % 5 * 37 : 0;
}

static enum gt_status fill_run(struct backend *backend, const struct op_call *call)
{
    workspace_scribble(backend, call, 0);
    float *y = operand_data(backend, call, FILL_Y);
    for (int64_t i = 0; i < operand_elements(&call->operand[FILL_Y]); i++)
        y[i] = call->attrs.value;
    return GT_OK;
}

static enum gt_status copy_run(struct backend *backend, const struct op_call *call)
{
    workspace_scribble(backend, call, 0);
    const float *x = operand_data(backend, call, COPY_X);
    float *y = operand_data(backend, call, COPY_Y);
    bool accumulate = (call->attrs.accumulate >> COPY_Y & 1u) != 0;
    for (int64_t i = 0; i < operand_elements(&call->operand[COPY_Y]); i++)
        y[i] = accumulate ? y[i] + x[i] : x[i];
    return GT_OK;
}

static enum gt_status residual_run(struct backend *backend, const struct op_call *call)
{
    struct fixture_backend *fixture = own(backend);
    workspace_scribble(backend, call, fixture->defect == DEFECT_WORKSPACE_OVERFLOW ? 1 : 0);
    const float *x = operand_data(backend, call, RESIDUAL_X);
    size_t bytes = operand_bytes(&call->operand[RESIDUAL_X]);
    if (fixture->defect == DEFECT_STALE_READ)
        x = (const float *)(const void *)resolve(fixture, fixture->first_written, bytes);
    const float *y = operand_data(backend, call, RESIDUAL_Y);
    float *r = operand_data(backend, call, RESIDUAL_R);
    int64_t elements = operand_elements(&call->operand[RESIDUAL_R]);
    for (int64_t i = 0; i < elements; i++)
        r[i] = x[i] + y[i];
    if (fixture->defect == DEFECT_OVERFLOW)
        *(float *)(void *)(resolve(fixture, call->operand[RESIDUAL_R].at, bytes + sizeof(float)) +
                           bytes) = 1.0f;
    return GT_OK;
}

static enum gt_status info(struct backend *backend, struct backend_info *out)
{
    memset(out, 0, sizeof *out);
    strcpy(out->device, "fixture");
    out->alignment_bytes = own(backend)->alignment_bytes;
    out->dtypes = 1u << DTYPE_F32;
    return GT_OK;
}

static enum gt_status arena(struct backend *backend, const struct backend_segment *segments,
                            int32_t count)
{
    struct fixture_backend *fixture = own(backend);
    if (fixture->arenas++ > 0)
        return GT_DEVICE;
    for (int32_t k = 0; k < count; k++) {
        fixture->segment[k] = malloc((size_t)segments[k].size_bytes);
        if (!fixture->segment[k])
            return GT_NO_MEMORY;
        memset(fixture->segment[k], 0, (size_t)segments[k].size_bytes);
        fixture->segment_bytes[k] = (size_t)segments[k].size_bytes;
        fixture->segment_count = k + 1;
    }
    return GT_OK;
}

static enum gt_status upload(struct backend *backend, struct address to, const void *from,
                             size_t bytes)
{
    own(backend)->uploads++;
    memcpy(resolve(own(backend), to, bytes), from, bytes);
    return GT_OK;
}

static enum gt_status download(struct backend *backend, void *to, struct address from, size_t bytes)
{
    own(backend)->downloads++;
    memcpy(to, resolve(own(backend), from, bytes), bytes);
    return GT_OK;
}

static const struct op_impl table[OP_KIND_COUNT] = {
    [OP_FILL] = {.supports = supports_f32, .run = fill_run},
    [OP_COPY] = {.supports = supports_f32, .workspace_bytes = workspace_odd, .run = copy_run},
    [OP_RESIDUAL] = {.supports = supports_f32,
                     .workspace_bytes = workspace_odd,
                     .run = residual_run},
};

static enum gt_status run(struct backend *backend, const struct op_call *calls, size_t count)
{
    struct fixture_backend *fixture = own(backend);
    fixture->runs++;
    for (size_t i = 0; i < count; i++) {
        enum gt_status status = table[calls[i].kind].run(backend, &calls[i]);
        if (status != GT_OK)
            return status;
        last_scribble(backend, &calls[i]);
        fixture->ops++;
        if (!fixture->first_seen)
            fixture->first_written =
                calls[i].operand[calls[i].kind == OP_FILL ? FILL_Y : COPY_Y].at;
        fixture->first_seen = true;
    }
    return GT_OK;
}

static enum gt_status sync_queue(struct backend *backend)
{
    own(backend)->syncs++;
    return GT_OK;
}

static bool supports(const struct backend *backend, const struct op_call *call)
{
    return op_impl_supports(&table[call->kind], backend, call);
}

static size_t workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    return op_impl_workspace_bytes(&table[call->kind], backend, call);
}

const struct backend_ops fixture_backend_ops = {
    .name = "fixture",
    .info = info,
    .arena = arena,
    .upload = upload,
    .download = download,
    .run = run,
    .sync = sync_queue,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
};

void fixture_backend_init(struct fixture_backend *backend)
{
    memset(backend, 0, sizeof *backend);
    backend->base.ops = &fixture_backend_ops;
    backend->alignment_bytes = 64;
    backend->workspaces = backend->spoils = true;
}

void fixture_backend_release(struct fixture_backend *backend)
{
    for (int32_t k = 0; k < backend->segment_count; k++)
        free(backend->segment[k]);
    backend->segment_count = 0;
}
