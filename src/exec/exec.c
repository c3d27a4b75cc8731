/* Runs programs.
 *
 *   graph: op, tensors --+
 *   graph: shapes      --+-- plan_call() --> op_call: kind, attributes, --> backend_run():
 *   plan: addresses    --+                   shapes, dtypes, addresses      segment + offset
 *                            (once, in exec_create())                       is a pointer (each run)
 *
 * exec_create() turns each op into an op_call with addresses, in one array per program, and
 * allocates the arena on the device; nothing is allocated after that.  A plain run passes a whole
 * program to the backend; exec_start() does not wait for it.  Poison, the callback, waits and
 * timing pass ops one by one, but a device that can time a program itself gets it whole.
 *
 * Exec itself runs exchanges between ranks, as moves of src/dist, unless the device can.  The
 * device then runs the ops between them.
 */
#include "exec/exec.h"

#include "backend/backend_call.h"
#include "backend/backend_peak.h"
#include "base/clock.h"
#include "base/size.h"
#include "dist/dist.h"
#include "exec/exec_poison.h"
#include "plan/plan_create.h"

enum { ZEROS_BYTES = 65536 };

struct exec {
    struct backend *device;
    const struct plan *plan;
    const struct graph *graph;
    struct op_call *calls[GRAPH_PROGRAMS_MAX]; /* [ops of the program] */
    struct exec_poison *poison;                /* NULL when off */
    bool waits, timing_on;
    int32_t untimed; /* a program, or -1 */
    struct exec_timing timing;
    double *seconds;                        /* [ops of the longest program] */
    int64_t timed[GRAPH_PROGRAMS_MAX];      /* runs of each program while timing is on */
    double ops_seconds[GRAPH_PROGRAMS_MAX]; /* of the last run that was timed op by op */
    exec_callback_fn *look;                 /* NULL when off */
    void *callback_context;
    struct dist *dist; /* NULL: no other ranks */
    char *staging;     /* [EXEC_STAGING_BYTES] */
    uint64_t *moves; /* [ops of the longest program]: the move after the last one of an exchange */
};

/* Sets shapes and addresses of a program's ops, and marks the tensors that each of them is the last
 * to use.  `ranges` is [tensor_count]. */
static void calls_fill(struct exec *exec, int32_t program, struct tensor_range *ranges)
{
    const struct graph *graph = exec->graph;
    graph_ranges(graph, program, ranges);
    for (int32_t i = 0; i < graph->programs[program].count; i++) {
        struct op_call *call = &exec->calls[program][i];
        assert(graph->programs[program].ops[i].left_out == 0); /* else it is only measured */
        plan_call(exec->plan, program, i, call);
        for (int32_t s = 0; s < OP_OPERANDS_MAX; s++) {
            const int32_t t = graph->programs[program].ops[i].operand[s];
            call->operand[s].last =
                t != TENSOR_NONE && ranges[t].last == i &&
                graph->tensors[graph_storage(graph, t)].lifetime == LIFETIME_PROGRAM;
        }
    }
}

static enum gt_status programs_bind(struct exec *exec)
{
    int32_t most = 0;
    struct tensor_range *ranges;
    TRY(HOSTMEM_NEW(exec, (size_t)exec->graph->tensor_count, "ranges of tensors", &ranges));
    for (int32_t p = 0; p < exec->graph->program_count; p++) {
        int32_t count = exec->graph->programs[p].count;
        most = count > most ? count : most;
        TRY(HOSTMEM_NEW(exec, (size_t)count, "bound ops", &exec->calls[p]));
        calls_fill(exec, p, ranges);
    }
    hostmem_free(ranges);
    TRY(HOSTMEM_NEW(exec, (size_t)most, "moves of ops", &exec->moves));
    return HOSTMEM_NEW(exec, (size_t)most, "times of ops", &exec->seconds);
}

/* Returns true for exchanges and for the waits for them, unless the device runs them. */
static bool is_exchange(const struct exec *exec, const struct op_call *call)
{
    return (call->kind == OP_EXCHANGE || call->attrs.exchanged) && !backend_exchanges(exec->device);
}

/* Returns the number of calls before the next exchange, or wait for one. */
static int32_t device_calls(const struct exec *exec, const struct op_call *calls, int32_t count)
{
    int32_t i = 0;
    while (i < count && !is_exchange(exec, &calls[i]))
        i++;
    return i;
}

static enum gt_status program_bind(struct exec *exec, int32_t program)
{
    const int32_t count = exec->graph->programs[program].count;
    for (int32_t i = 0, some; i < count; i += some + 1) {
        some = device_calls(exec, &exec->calls[program][i], count - i);
        if (some > 0)
            TRY(backend_bind(exec->device, &exec->calls[program][i], (size_t)some));
    }
    return GT_OK;
}

static enum gt_status exec_fill(struct exec *exec, bool poison)
{
    const struct plan *plan = exec->plan;
    TRY(programs_bind(exec));
    if (poison)
        TRY(exec_poison_create(exec, exec->device, plan, &exec->poison));
    if (plan->segment_count > 0)
        TRY(backend_arena(exec->device, plan->segment, plan->segment_count));
    for (int32_t p = 0; p < exec->graph->program_count; p++)
        TRY(program_bind(exec, p));
    return exec->poison ? exec_poison_arena(exec->poison) : GT_OK;
}

enum gt_status exec_create(const void *owner, struct backend *device, const struct plan *plan,
                           bool poison, struct exec **out)
{
    struct exec *exec;
    TRY(HOSTMEM_NEW(owner, 1, "exec", &exec));
    exec->device = device;
    exec->plan = plan;
    exec->graph = plan->graph;
    enum gt_status status = exec_fill(exec, poison);
    return FINISH(status, out, exec, hostmem_free);
}

/* Returns the address of element `first` of a tensor.  Asserts that `count` elements from there lie
 * inside. */
static struct address element_address(const struct exec *exec, int32_t tensor, int64_t first,
                                      int64_t count)
{
    assert(tensor >= 0 && tensor < exec->plan->tensor_count);
    int64_t elements = graph_tensor_elements(exec->graph, tensor);
    assert(first >= 0 && count >= 0);
    assert(first <= elements && count <= elements - first);
    (void)count;
    (void)elements;
    struct address at = exec->plan->tensor[tensor];
    assert(at.offset_bytes != UINT64_MAX);
    at.offset_bytes += (uint64_t)first * dtype_size_bytes(exec->graph->tensors[tensor].dtype);
    return at;
}

static size_t element_bytes(const struct exec *exec, int32_t tensor, int64_t count)
{
    return (size_t)count * dtype_size_bytes(exec->graph->tensors[tensor].dtype);
}

enum gt_status exec_upload(struct exec *exec, int32_t tensor, int64_t first, const void *from,
                           int64_t count)
{
    struct address at = element_address(exec, tensor, first, count);
    const struct tensor *storage = &exec->graph->tensors[graph_storage(exec->graph, tensor)];
    if (exec->poison && storage->lifetime != LIFETIME_RUN)
        TRY(exec_poison_phase(exec->poison, storage->phase));
    return backend_upload(exec->device, at, from, element_bytes(exec, tensor, count));
}

static const char zeros[ZEROS_BYTES];

enum gt_status exec_zero(struct exec *exec, int32_t tensor)
{
    const int64_t elements = graph_tensor_elements(exec->graph, tensor);
    const int64_t bytes = (int64_t)element_bytes(exec, tensor, 1);
    const int64_t in_a_float = (int64_t)sizeof(float) / bytes, most = ZEROS_BYTES / bytes;
    const int64_t floats =
        exec->graph->tensors[tensor].home == SPACE_HOST ? 0 : elements / in_a_float;
    struct op_call fill = {
        .kind = OP_FILL}; /* clears whole floats on the device; uploads clear the rest */
    fill.operand[FILL_Y] = (struct operand){.at = element_address(exec, tensor, 0, elements),
                                            .present = true,
                                            .dtype = DTYPE_F32,
                                            .rank = 1,
                                            .dims = {floats}};
    if (floats > 0) {
        TRY(backend_run(exec->device, &fill, 1));
        TRY(backend_sync(exec->device));
    }
    for (int64_t done = floats * in_a_float; done < elements; done += most)
        TRY(exec_upload(exec, tensor, done, zeros, min_i64(most, elements - done)));
    return GT_OK;
}

enum gt_status exec_download(struct exec *exec, int32_t tensor, int64_t first, void *to,
                             int64_t count)
{
    struct address at = element_address(exec, tensor, first, count);
    return backend_download(exec->device, to, at, element_bytes(exec, tensor, count));
}

static bool is_timed(const struct exec *exec, int32_t program)
{
    return exec->timing_on && program != exec->untimed;
}

static void timing_add(struct exec_timing *timing, const struct op_call *call, double seconds)
{
    timing->seconds[call->kind] += seconds;
    timing->flops[call->kind] += op_flops(call);
    timing->bytes[call->kind] += op_bytes(call);
    timing->runs[call->kind]++;
}

/* Has the device time the program: op by op, and at the next run as a whole. */
static enum gt_status program_run_timed(struct exec *exec, int32_t program)
{
    const struct op_call *calls = exec->calls[program];
    const int32_t count = exec->graph->programs[program].count;
    const bool whole = exec->timed[program]++ % 2 != 0;
    double sum = 0.0;
    TRY(backend_run_timed(exec->device, calls, (size_t)count, whole, exec->seconds));
    if (whole) {
        exec->timing.whole_seconds += exec->seconds[0];
        exec->timing.ops_seconds += exec->ops_seconds[program];
        return GT_OK;
    }
    for (int32_t i = 0; i < count; i++) {
        timing_add(&exec->timing, &calls[i], exec->seconds[i]);
        sum += exec->seconds[i];
    }
    exec->ops_seconds[program] = sum;
    return GT_OK;
}

/* ---- exchanges between ranks ---- */

void exec_dist_set(struct exec *exec, struct dist *dist, void *staging)
{
    exec->dist = dist;
    exec->staging = staging;
}

/* Both ends cut their bytes into moves of half of the staging buffer. */
#define MOVE_BYTES (EXEC_STAGING_BYTES / 2)

/* Begins the moves of an exchange, between memory that the host can access. */
static void exchange_begin(const struct exec *exec, const struct op_call *call)
{
    struct backend *device = exec->device;
    const struct operand *x = &call->operand[EXCHANGE_X], *y = &call->operand[EXCHANGE_Y];
    const size_t sent = operand_bytes(x), received = operand_bytes(y);
    for (size_t at = 0; at < sent; at += MOVE_BYTES)
        dist_send(exec->dist, call->attrs.to, (char *)device->ops->memory(device, x->at, sent) + at,
                  size_min(MOVE_BYTES, sent - at));
    for (size_t at = 0; at < received; at += MOVE_BYTES)
        dist_receive(exec->dist, call->attrs.from,
                     (char *)device->ops->memory(device, y->at, received) + at,
                     size_min(MOVE_BYTES, received - at));
}

/* Exchanges the bytes through the staging buffer. */
static enum gt_status exchange_staged(const struct exec *exec, const struct op_call *call)
{
    struct address x = call->operand[EXCHANGE_X].at, y = call->operand[EXCHANGE_Y].at;
    size_t sent = operand_bytes(&call->operand[EXCHANGE_X]),
           received = operand_bytes(&call->operand[EXCHANGE_Y]);
    while (sent > 0 || received > 0) {
        const size_t out = size_min(MOVE_BYTES, sent), in = size_min(MOVE_BYTES, received);
        if (out > 0) {
            TRY(backend_download(exec->device, exec->staging, x, out));
            dist_send(exec->dist, call->attrs.to, exec->staging, out);
        }
        if (in > 0)
            dist_receive(exec->dist, call->attrs.from, exec->staging + MOVE_BYTES, in);
        dist_wait(exec->dist, exec->dist->started);
        if (in > 0)
            TRY(backend_upload(exec->device, y, exec->staging + MOVE_BYTES, in));
        x.offset_bytes += out;
        y.offset_bytes += in;
        sent -= out;
        received -= in;
    }
    return GT_OK;
}

/* Begins an exchange, or waits for one.  With poison, and where the host cannot access the device's
 * memory, the whole exchange happens at the wait. */
static enum gt_status exchange_run(struct exec *exec, int32_t program, int32_t index)
{
    const struct op_call *calls = exec->calls[program];
    const bool staged = exec->device->ops->memory == NULL;
    int32_t i = index;
    assert(exec->dist != NULL);
    while (calls[index].kind == OP_WAIT && !op_waits_for(&calls[index], &calls[i]))
        i--;
    dist_sign(exec->dist, op_declaration(OP_EXCHANGE)->name);
    if (i < index && staged)
        return exchange_staged(exec, &calls[i]);
    if (!staged && (i < index) == (exec->poison != NULL)) {
        exchange_begin(exec, &calls[i]);
        exec->moves[i] = exec->dist->started;
    }
    if (i < index)
        dist_wait(exec->dist, exec->moves[i]);
    return GT_OK;
}

/* Runs a program's ops in order.  The device runs those between exchanges. */
static enum gt_status calls_run(struct exec *exec, int32_t program)
{
    const struct op_call *calls = exec->calls[program];
    const int32_t count = exec->graph->programs[program].count;
    for (int32_t i = 0, some; i < count; i += some) {
        some = device_calls(exec, &calls[i], count - i);
        if (some > 0)
            TRY(backend_run(exec->device, &calls[i], (size_t)some));
        else
            TRY(exchange_run(exec, program, i));
        some += some == 0;
    }
    return GT_OK;
}

/* Runs an op and waits for it.  With poison, an asynchronous copy happens at its wait, so that an
 * op in between which reads its result finds poison, and one that overwrites its source spoils it.
 */
static enum gt_status call_start(struct exec *exec, int32_t program, int32_t index)
{
    const struct op_call *call = &exec->calls[program][index];
    const bool late = exec->poison != NULL;
    if (is_exchange(exec, call))
        return exchange_run(exec, program, index);
    if (late && op_is_async_copy(call->kind))
        return GT_OK;
    for (int32_t i = index - 1; late && call->kind == OP_WAIT; i--) {
        assert(i >= 0);
        if (!op_waits_for(call, &exec->calls[program][i]))
            continue;
        TRY(backend_run(exec->device, &exec->calls[program][i], 1));
        break;
    }
    TRY(backend_run(exec->device, call, 1));
    return backend_sync(exec->device);
}

/* Returns true if an op needs other ranks: it exchanges parts, or adds them. */
static bool needs_ranks(const struct op_call *call)
{
    return call->kind == OP_EXCHANGE || call->attrs.exchanged ||
           (call->kind == OP_SUM_PARTS && call->operand[SUM_PARTS_OTHERS].present);
}

static enum gt_status call_run(struct exec *exec, int32_t program, int32_t index)
{
    const struct op_call *call = &exec->calls[program][index];
    if (exec->dist == NULL && needs_ranks(call))
        return GT_OK;
    if (exec->poison)
        TRY(exec_poison_op(exec->poison, program, index, true));
    const int64_t start_ns = clock_monotonic_ns();
    TRY(call_start(exec, program, index));
    if (is_timed(exec, program))
        timing_add(&exec->timing, call, (double)(clock_monotonic_ns() - start_ns) * 1e-9);
    if (exec->look && !op_is_async_copy(call->kind))
        TRY(exec->look(exec->callback_context, program, index));
    return exec->poison ? exec_poison_op(exec->poison, program, index, false) : GT_OK;
}

static bool op_by_op(const struct exec *exec)
{
    return exec->poison || exec->waits || exec->timing_on || exec->look;
}

bool exec_runs_ahead(const struct exec *exec)
{
    return exec->device->ops->download_later != NULL && !op_by_op(exec);
}

enum gt_status exec_download_later(struct exec *exec, int32_t tensor, int64_t first, void *to,
                                   int64_t count)
{
    if (!exec_runs_ahead(exec))
        return exec_download(exec, tensor, first, to, count);
    struct address at = element_address(exec, tensor, first, count);
    return backend_download_later(exec->device, to, at, element_bytes(exec, tensor, count));
}

enum gt_status exec_wait(struct exec *exec)
{
    return exec_runs_ahead(exec) ? backend_sync(exec->device) : GT_OK;
}

enum gt_status exec_start(struct exec *exec, int32_t program)
{
    assert(program >= 0 && program < exec->graph->program_count);
    return exec_runs_ahead(exec) ? calls_run(exec, program) : exec_run(exec, program);
}

enum gt_status exec_run(struct exec *exec, int32_t program)
{
    assert(program >= 0 && program < exec->graph->program_count);
    int32_t count = exec->graph->programs[program].count;
    if (!op_by_op(exec)) {
        TRY(calls_run(exec, program));
        return backend_sync(exec->device);
    }
    if (exec->device->ops->run_timed != NULL && is_timed(exec, program) && !exec->poison &&
        !exec->waits && !exec->look && device_calls(exec, exec->calls[program], count) == count)
        return program_run_timed(exec, program);
    if (exec->poison)
        TRY(exec_poison_program_begin(exec->poison, program));
    for (int32_t i = 0; i < count; i++)
        TRY(call_run(exec, program, i));
    return exec->poison ? exec_poison_program_end(exec->poison, program) : GT_OK;
}

enum gt_status exec_peak_flops(struct exec *exec, enum dtype dtype, uint64_t bytes, double seconds,
                               double *out)
{
    struct address scratch = {.space = (uint8_t)exec->plan->segment[0].space};
    uint64_t most = exec->plan->segment[0].size_bytes;
    TRY(backend_peak_flops(exec->device, dtype, scratch, (size_t)(bytes < most ? bytes : most),
                           seconds, out));
    return exec->poison ? exec_poison_arena(exec->poison) : GT_OK;
}

void exec_timing_set(struct exec *exec, bool on, int32_t except)
{
    exec->timing_on = on;
    exec->untimed = except;
}

void exec_waits_set(struct exec *exec, bool on)
{
    exec->waits = on;
}

void exec_timing_get(const struct exec *exec, struct exec_timing *out)
{
    *out = exec->timing;
}

void exec_callback_set(struct exec *exec, exec_callback_fn *look, void *context)
{
    exec->look = look;
    exec->callback_context = context;
}
