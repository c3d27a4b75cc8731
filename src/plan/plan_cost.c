/* The cost model.
 *
 * Rates come from three places: the constants here, for a cpu on which only one product was timed;
 * a device profile; or calibrate.c, which times every kind of op.  Timings that a backend made to
 * choose between algorithms replace those. They are better because they ran back to back at the
 * shapes of real runs, while calibration waits after each op of a small model.  The order of
 * candidates needs little more than the FLOPs that recompute adds.  A profile's share of its peaks
 * scales all its times alike and so changes no choice.  Copies run during computing, in queues of
 * their own.  Not modelled: caches, other overlap, the host's work between ops.
 */
#include "plan/plan_cost.h"

#include <math.h>

/* Measured with --profile at 124M on two cores with AVX-512: products reach 0.72 of the timed peak
 * at 256 rows and 0.9 at 1,024; elementwise ops and AdamW move 10 to 50 GB/s. */
#define CPU_MATRIX_SHARE 0.9
#define CPU_BANDWIDTH 20e9
#define CPU_RAMP_ROWS 64.0
/* The uncertainty, as a factor, where one product was timed and the rest follows from the constants
 * above: bandwidths differ from CPU_BANDWIDTH by as much. */
#define PEAKS_UNCERTAINTY 2.0
/* A product on a card is divided into tiles that its units share; on average half a round of them
 * is lost at the end.  Long sums are divided as well, so that a round is no longer than that of
 * ROUND_DEPTH terms.  The pipeline of a tile is filled and drained once, which takes the time of
 * RAMP_DEPTH terms. */
#define TILE_ELEMENTS (128.0 * 128.0)
#define WIDE_BACKWARD (5.0 / 8.0) /* of wide heads: three passes make 8 products instead of 5 */
/* For heads of more columns than this, the backward has registers for fp16 sums in two of its five
 * products. */
#define HALF_SUMS_COLUMNS 96
#define HALF_SUMS_BACKWARD (2.0 / 5.0)
#define ROUND_LOST 0.5
#define ROUND_DEPTH 2048.0
#define RAMP_DEPTH 64.0
/* From the end of one op of a graph to the start of the next: 1.7 ms for 300 ops on an H100, its
 * short ops included (bench/results/2026-11-23-h100.md). */
#define CARD_OP_SECONDS 4e-6
/* On a card gated_delta reads both factors of a product from memory: a warp needs two loads for 32
 * terms.  A multiprocessor starts one load in the time of four such groups of terms, so it reaches
 * an eighth of its peak.  Half of the time its work-items wait for each other.  Not measured. */
#define PLAIN_SHARE (1.0 / 16.0)
/* More copies than a program has in flight at once. */
#define COPIES_LAST 64
/* From this size on all units of a card are busy, and the start and end of a product hardly matter.
 */
#define GEMM_FLOPS_LARGE 17179869184.0

struct plan_rates plan_rates_of_peaks(double product_flops, double other_flops)
{
    struct plan_rates rates = {.ramp_rows = CPU_RAMP_ROWS, .uncertainty = PEAKS_UNCERTAINTY};
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        rates.bytes_per_s[kind] = CPU_BANDWIDTH;
        for (int dtype = 0; dtype < PLAN_MATRIX_DTYPES; dtype++)
            rates.flops_per_s[kind][dtype] =
                CPU_MATRIX_SHARE * (kind == OP_GEMM ? product_flops : other_flops);
    }
    return rates;
}

static bool is_delta(enum op_kind kind)
{
    return kind == OP_GATED_DELTA_FORWARD || kind == OP_GATED_DELTA_BACKWARD ||
           kind == OP_GATED_DELTA_CACHED;
}

/* Returns the FLOP/s that a profile's ops of a kind reach in a dtype. */
static double profile_flops(const struct device_profile *profile, enum op_kind kind, int dtype,
                            bool half_sums)
{
    if (!op_declaration(kind)->multiplies)
        return profile->reached.bytes * profile->vector_flops_per_s;
    if (is_delta(kind))
        return PLAIN_SHARE * profile->reached.attention * profile->vector_flops_per_s;
    double peak = profile->matrix_flops_per_s[dtype];
    if (kind == OP_GEMM && dtype == DTYPE_F16 && half_sums && profile->half_sums_flops_per_s > 0.0)
        peak = profile->half_sums_flops_per_s;
    const double share = kind == OP_GEMM ? profile->reached.products : profile->reached.attention;
    return share * (peak > 0.0 ? peak : profile->vector_flops_per_s);
}

struct plan_rates plan_rates_of_profile(const struct device_profile *profile, bool half_sums)
{
    struct plan_rates rates = {.op_seconds = CARD_OP_SECONDS,
                               .ramp_elements = ROUND_LOST * TILE_ELEMENTS * (double)profile->units,
                               .ramp_depth = RAMP_DEPTH,
                               .units = (double)profile->units,
                               .uncertainty = profile->reached.uncertainty};
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        rates.bytes_per_s[kind] = profile->reached.bytes * profile->bytes_per_s;
        for (int dtype = 0; dtype < PLAN_MATRIX_DTYPES; dtype++)
            rates.flops_per_s[kind][dtype] =
                profile_flops(profile, (enum op_kind)kind, dtype, half_sums);
    }
    /* A card without bf16 computes wide heads in fp32. */
    const double half = profile->matrix_flops_per_s[DTYPE_F16],
                 vector = profile->vector_flops_per_s;
    const double wide =
        profile->matrix_flops_per_s[DTYPE_BF16] <= 0.0 && half > vector ? vector / half : 1.0;
    rates.wide_heads[0] = wide;
    rates.wide_heads[1] = fmin(wide, WIDE_BACKWARD);
    /* fp16 sums shorten only the part of attention's time in which tensor cores work. */
    if (half_sums && half > 0.0 && profile->half_sums_flops_per_s > half)
        rates.half_sums =
            profile->reached.attention * (1.0 - half / profile->half_sums_flops_per_s);
    plan_rates_link_set(
        &rates, profile->link_bytes_per_s > 0.0 ? profile->link_bytes_per_s : PLAN_LINK_BYTES_PER_S,
        profile->copy_engines);
    return rates;
}

void plan_rates_link_set(struct plan_rates *rates, double bytes_per_s, int32_t copy_engines)
{
    rates->copy_engines = copy_engines;
    /* An op's bytes count what it reads and what it writes. */
    rates->bytes_per_s[OP_FETCH] = rates->bytes_per_s[OP_STORE] = 2.0 * bytes_per_s;
}

char *plan_rates_basis(char text[static 512], const struct device_profile *profile)
{
    const char *source = profile->share_source;
    snprintf(text, 512, "times are estimates: %.0f %% of this card's peak rate for products, %s%s",
             100.0 * profile->reached.products,
             source[0] != '\0' ? "as " : "by the model of doc/devices.md", source);
    return text;
}

char *plan_uncertainty_text(char text[static PLAN_UNCERTAINTY_MAX], double uncertainty,
                            bool disturbed)
{
    const bool factor = uncertainty >= 1.0;
    const int used =
        snprintf(text, PLAN_UNCERTAINTY_MAX, factor ? "within a factor of %.0f" : "+-%.0f %%",
                 factor ? ceil(uncertainty) : 100.0 * uncertainty);
    snprintf(text + used, PLAN_UNCERTAINTY_MAX - (size_t)used, "%s",
             disturbed ? ", as other programs use this machine" : "");
    return text;
}

double plan_uncertainty_of(double factor)
{
    return factor < 2.0 ? factor - 1.0 : factor;
}

/* The rows of d, or of a if d is a weight's gradient. */
double plan_cost_gemm_rows(const struct op_call *call)
{
    return (double)call->operand[call->attrs.transpose_a ? GEMM_A : GEMM_D].dims[0];
}

static int gemm_class(bool transpose_a, bool transpose_b, double flops)
{
    return 4 * transpose_a + 2 * transpose_b + (flops >= GEMM_FLOPS_LARGE);
}

/* Sums of timings. */
struct work {
    double flops, bytes, seconds;
};

static void work_add(struct work *sum, double flops, double bytes, double seconds)
{
    sum->flops += flops;
    sum->bytes += bytes;
    sum->seconds += seconds;
}

/* Sets the rates of products by class and dtype, of attention by its FLOPs in each dtype, and of
 * every other op by its bytes over all dtypes. */
struct plan_timed plan_rates_time(struct plan_rates *rates, const struct backend_timing *timings,
                                  size_t count)
{
    struct plan_timed timed = {.kinds = 0};
    struct work gemm[PLAN_GEMM_CLASSES][PLAN_MATRIX_DTYPES] = {{{.flops = 0.0}}};
    struct work other[OP_KIND_COUNT][PLAN_MATRIX_DTYPES] = {{{.flops = 0.0}}};
    for (size_t i = 0; i < count; i++) {
        const struct backend_timing *t = &timings[i];
        if ((unsigned)t->dtype >= PLAN_MATRIX_DTYPES || (unsigned)t->kind >= OP_KIND_COUNT)
            continue;
        struct work *row = t->kind == OP_GEMM
                               ? gemm[gemm_class(t->transpose_a, t->transpose_b, t->flops)]
                               : other[t->kind];
        work_add(&row[t->dtype], t->flops, t->bytes, t->seconds);
    }
    for (int class = 0; class < PLAN_GEMM_CLASSES; class ++) {
        bool any = false;
        for (int dtype = 0; dtype < PLAN_MATRIX_DTYPES; dtype++) {
            const struct work *product = &gemm[class][dtype];
            rates->gemm_flops_per_s[class][dtype] =
                product->seconds > 0.0 ? product->flops / product->seconds : 0.0;
            any = any || product->seconds > 0.0;
        }
        timed.gemm_classes += any;
    }
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        struct work all = {.flops = 0.0};
        for (int dtype = 0; dtype < PLAN_MATRIX_DTYPES; dtype++) {
            const struct work *work = &other[kind][dtype];
            if (work->seconds > 0.0 && op_declaration((enum op_kind)kind)->multiplies)
                rates->flops_per_s[kind][dtype] = work->flops / work->seconds;
            work_add(&all, work->flops, work->bytes, work->seconds);
        }
        if (all.seconds > 0.0 && all.bytes > 0.0)
            rates->bytes_per_s[kind] = all.bytes / all.seconds;
        timed.kinds += all.seconds > 0.0;
        if (all.seconds > 0.0 && is_delta((enum op_kind)kind))
            rates->units = 0.0;
        if (all.seconds > 0.0 && (kind == OP_ATTENTION_FORWARD || kind == OP_ATTENTION_BACKWARD))
            rates->wide_heads[kind == OP_ATTENTION_BACKWARD] =
                0.0; /* it was timed with the run's heads */
        if (all.seconds > 0.0 && kind == OP_ATTENTION_FORWARD)
            rates->half_sums = 0.0;
    }
    return timed;
}

int plan_cost_dtype(const struct op_call *call)
{
    for (int slot = 0; slot < OP_OPERANDS_MAX; slot++)
        if (call->operand[slot].present && call->operand[slot].dtype < PLAN_MATRIX_DTYPES)
            return (int)call->operand[slot].dtype;
    return DTYPE_F32;
}

/* Returns the share of its rate that attention reaches with the call's heads; 1 for other ops and
 * in fp32. */
static double heads_share(const struct op_call *call, const struct plan_rates *rates)
{
    const bool forward = call->kind == OP_ATTENTION_FORWARD,
               backward = call->kind == OP_ATTENTION_BACKWARD;
    const int dtype = plan_cost_dtype(call);
    if ((!forward && !backward) || dtype == DTYPE_F32)
        return 1.0;
    const int32_t qkv = forward ? (int32_t)ATTENTION_FORWARD_QKV : (int32_t)ATTENTION_BACKWARD_QKV;
    const int64_t columns = op_columns(call, qkv) / (call->attrs.heads + 2 * call->attrs.kv_heads);
    if (columns > PLAN_HEAD_COLUMNS)
        return rates->wide_heads[backward] > 0.0 ? rates->wide_heads[backward] : 1.0;
    const double products = backward && columns > HALF_SUMS_COLUMNS ? HALF_SUMS_BACKWARD : 1.0;
    return dtype == DTYPE_F16 ? 1.0 / (1.0 - products * rates->half_sums) : 1.0;
}

/* Returns the share of a card's units that gated_delta keeps busy.  It has a group for each head of
 * a sample, or in the backward for each key head. */
static double delta_share(const struct op_call *call, const struct plan_rates *rates)
{
    if (!is_delta(call->kind) || rates->units <= 0.0)
        return 1.0;
    const double samples = (double)op_rows(call, GATED_DELTA_FORWARD_X) / call->attrs.time,
                 groups = samples * (call->kind == OP_GATED_DELTA_BACKWARD ? call->attrs.kv_heads
                                                                           : call->attrs.heads);
    return groups / (rates->units * ceil(groups / rates->units));
}

/* Adds to a product's FLOPs those that its start and its end cost. */
static double gemm_flops_ramped(const struct op_call *call, const struct plan_rates *rates,
                                double flops)
{
    const double depth = (double)call->operand[GEMM_A].dims[call->attrs.transpose_a ? 0 : 1];
    flops *= 1.0 + rates->ramp_rows / plan_cost_gemm_rows(call) + rates->ramp_depth / depth;
    return flops + 2.0 * rates->ramp_elements * fmin(depth, ROUND_DEPTH);
}

double plan_cost_op(const struct op_call *call, const struct plan_rates *rates)
{
    const int dtype = plan_cost_dtype(call);
    const double rate =
        rates->flops_per_s[call->kind][dtype] * heads_share(call, rates) * delta_share(call, rates);
    double flops = op_flops(call);
    if (call->kind == OP_GEMM) {
        const int class = gemm_class(call->attrs.transpose_a, call->attrs.transpose_b, flops);
        if (rates->gemm_flops_per_s[class][dtype] > 0.0) /* it was timed */
            return flops / rates->gemm_flops_per_s[class][dtype];
        flops = gemm_flops_ramped(call, rates, flops);
    }
    double compute = rate > 0.0 ? flops / rate : 0.0;
    double memory = op_bytes(call) / rates->bytes_per_s[call->kind];
    return rates->op_seconds + (compute > memory ? compute : memory);
}

/* The last copies that a program began: what they write, and when they end. */
struct copies {
    int32_t target[COPIES_LAST];
    double end[COPIES_LAST];
    int32_t count;
};

static void wait_add(const struct copies *copies, int32_t target, double *now)
{
    for (int32_t i = copies->count - 1; i >= 0 && i > copies->count - 1 - COPIES_LAST; i--)
        if (copies->target[i % COPIES_LAST] == target) {
            *now = fmax(*now, copies->end[i % COPIES_LAST]);
            return;
        }
}

/* Returns the times of a program whose copies run during computing, as its waits allow; all 0 for
 * program -1. */
static struct plan_queues plan_cost_queues(const struct graph *graph, int32_t program,
                                           const struct plan_rates *rates)
{
    struct plan_queues out = {.makespan = 0.0};
    double now[QUEUE_COUNT] = {0.0};
    struct copies copies = {.count = 0};
    for (int32_t i = 0; program >= 0 && i < graph->programs[program].count; i++) {
        const struct op *op = &graph->programs[program].ops[i];
        struct op_call call;
        graph_call(graph, op, &call);
        const enum op_queue queue = op_declaration(op->kind)->queue;
        const double seconds = plan_cost_op(&call, rates);
        if (op->kind == OP_WAIT)
            wait_add(&copies, op->operand[WAIT_Y], &now[QUEUE_COMPUTE]);
        now[queue] = fmax(now[queue], now[QUEUE_COMPUTE]) + seconds;
        out.busy[queue] += seconds;
        if (!op_is_async_copy(op->kind))
            continue;
        copies.target[copies.count % COPIES_LAST] = op->operand[FETCH_Y];
        copies.end[copies.count++ % COPIES_LAST] = now[queue];
        if (rates->copy_engines == 0)
            now[QUEUE_COMPUTE] = now[queue];
        if (rates->copy_engines == 1)
            now[QUEUE_IN] = now[QUEUE_OUT] = now[queue];
    }
    out.makespan = now[QUEUE_COMPUTE];
    return out;
}

/* Returns the time of the queue that is busy longest. */
static double plan_queues_longest(const struct plan_queues *queues, const struct plan_rates *rates)
{
    const double in = queues->busy[QUEUE_IN], out = queues->busy[QUEUE_OUT];
    if (rates->copy_engines == 0)
        return queues->busy[QUEUE_COMPUTE] + in + out;
    return fmax(queues->busy[QUEUE_COMPUTE], rates->copy_engines == 1 ? in + out : fmax(in, out));
}

double plan_cost_seconds(const struct graph *graph, int32_t program, const struct plan_rates *rates)
{
    return plan_cost_queues(graph, program, rates).makespan;
}

/* Returns the time of a pass.  Outside the blocks, copies hardly overlap computing, so that the
 * times add up.  An update's slices count as blocks. */
static double pass_seconds(const struct plan_queues *queues, const struct plan_rates *rates,
                           bool outside)
{
    return outside ? queues->busy[QUEUE_COMPUTE] + queues->busy[QUEUE_IN] + queues->busy[QUEUE_OUT]
                   : plan_queues_longest(queues, rates);
}

double plan_cost_blocks(const struct graph *graph, int32_t program, const struct plan_rates *rates)
{
    struct plan_queues now = {.makespan = 0.0},
                       next = now; /* of a pass through a block, and of the next one's copies */
    double seconds = 0.0;
    bool outside = program >= 0 && graph->programs[program].count > 0 &&
                   graph->programs[program].ops[0].pass != PASS_UPDATE;
    int32_t layer = -1, left_out = 0;
    for (int32_t i = 0; program >= 0 && i < graph->programs[program].count; i++) {
        const struct op *op = &graph->programs[program].ops[i];
        const enum op_queue queue = op_declaration(op->kind)->queue;
        struct op_call call;
        graph_call(graph, op, &call);
        if (queue == QUEUE_COMPUTE && (op->layer != layer || op->left_out != left_out)) {
            seconds += (1.0 + left_out) * pass_seconds(&now, rates, outside);
            now = next;
            next = (struct plan_queues){.makespan = 0.0};
            layer = op->layer;
            left_out = op->left_out;
            outside = layer < 0 && op->pass != PASS_UPDATE;
        }
        (op->layer == layer ? &now : &next)->busy[queue] += plan_cost_op(&call, rates);
    }
    return seconds + (1.0 + left_out) * pass_seconds(&now, rates, outside);
}

_Static_assert(DTYPE_F32 < PLAN_MATRIX_DTYPES && DTYPE_BF16 < PLAN_MATRIX_DTYPES &&
                   DTYPE_F16 < PLAN_MATRIX_DTYPES,
               "the matrix dtypes come first");
