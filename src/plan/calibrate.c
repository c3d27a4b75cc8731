/* Times the ops of a small model.
 *
 * The model has one block of each kind, of the run's width, and a small vocabulary.  Its programs
 * are planned into the existing arena. Their weights are filled with small numbers and everything
 * else with zeros, and they run op by op with a wait after each.  Two row counts separate a
 * product's rate from the cost of starting one.  The learning rate is 0, so that the values do not
 * change.
 *
 * The user's cache has one file of rates per key, that is per device, build, width and dtype.
 * user_cache.c reads, checks and bounds the files.  A cache that cannot be read or written is no
 * error: the device is timed again.
 */
#include "plan/calibrate.h"

#include <config.h>
#include <math.h>

#include "backend/backend_call.h"
#include "base/clock.h"
#include "base/thread.h"
#include "base/user_cache.h"
#include "model/model_create.h"
#include "plan/plan_create.h"

#define ROWS_FEW 64
#define ROWS_LEAST 256
#define ROWS_MORE 4096
#define VOCAB_MAX 4096
#define PASSES 5
#define PASSES_MAX 40 /* as long as some op has had no undisturbed run */
#define FILL_BYTES ((size_t)1 << 20)
#define PATTERN_STEP 256
#define RAMP_ROWS_MAX 4096.0
#define ATTEMPTS_MAX 4
#define AGREEMENT 0.1 /* of the fastest passes of two attempts */
/* A timing counts as disturbed if its average pass takes this share longer than an undisturbed one.
 */
#define DISTURBED 0.3
#define CONTENTION_MIN 0.02 /* a smaller share is the operating system's own work */

/* One op of the small model.  Its time is that of its least disturbed run, without the time that
 * its threads waited for processors which other programs used. */
struct timed_op {
    struct op_call call;
    double seconds;
    double disturbed; /* share of that run */
};

struct bench {
    const struct calibrate_request *request;
    struct model *model;
    struct plan *plan;
    struct timed_op *ops; /* of the training program, then of the update */
    void *zeros;          /* [FILL_BYTES] */
    int32_t count;
    int processors;    /* that this process may use */
    bool is_disturbed; /* some op has had no undisturbed run so far */
    double slowest_s;  /* the longest pass, disturbances included */
    double all_s;      /* the sum of all passes, disturbances included */
    int32_t passes;
};

static enum gt_status model_make(struct bench *bench, int32_t rows)
{
    struct model_options options = *bench->request->options;
    struct model_config *config = &options.config;
    config->n_layer = 1;
    if (config->full_attention_interval > 1)
        config->n_layer = config->full_attention_interval = 2;
    config->block_size = config->block_size < rows ? config->block_size : rows;
    config->vocab_size = config->vocab_size < VOCAB_MAX ? config->vocab_size : VOCAB_MAX;
    config->padded_vocab_size = config->vocab_size;
    options.train = true;
    options.evaluate = options.generate = false;
    options.choice.micro_batch = rows / config->block_size;
    options.micro_steps = 2; /* with 1, its programs would also add parts */
    options.choice.remainder_batch = 0;
    options.choice.loss_chunk_rows = options.choice.micro_batch * config->block_size;
    options.choice.recompute = (struct recompute_mix){{0}};
    options.choice.offload = (struct offload_mix){.quarters = {0}};
    options.correction_rows = 1;
    return model_create(bench, &options, &bench->model);
}

static void ops_bind(struct bench *bench, int32_t program)
{
    for (int32_t i = 0; i < bench->model->graph->programs[program].count; i++)
        plan_call(bench->plan, program, i, &bench->ops[bench->count++].call);
}

static enum gt_status bench_open(struct bench *bench, int32_t rows)
{
    const struct plan *arena = bench->request->plan;
    TRY(model_make(bench, rows));
    TRY(plan_create(bench, bench->model->graph, &arena->options, &bench->plan));
    for (int32_t i = 0; i < bench->plan->segment_count; i++)
        if (i >= arena->device_segments ||
            bench->plan->segment[i].size_bytes > arena->segment[i].size_bytes)
            return GT_NO_FIT;
    const struct program *programs = bench->model->graph->programs;
    int32_t train = bench->model->train_first.program, update = bench->model->update.program;
    TRY(HOSTMEM_NEW(bench, (size_t)(programs[train].count + programs[update].count), "timed ops",
                    &bench->ops));
    TRY(hostmem_alloc(bench, 1, FILL_BYTES, "calibration zeros", &bench->zeros));
    ops_bind(bench, train);
    ops_bind(bench, update);
    return GT_OK;
}

/* Writes `bytes` bytes from `at` on, repeating the pattern. */
static enum gt_status bytes_fill(const struct bench *bench, struct address at, uint64_t bytes,
                                 const void *pattern)
{
    struct backend *device = bench->request->device;
    for (uint64_t done = 0; done < bytes; done += FILL_BYTES) {
        size_t part = bytes - done < FILL_BYTES ? (size_t)(bytes - done) : FILL_BYTES;
        TRY(backend_upload(device, at, pattern, part));
        at.offset_bytes += part;
    }
    return GT_OK;
}

/* Fills the pattern with numbers within 0.03 of 0, as weights are, in the dtype that the ops read.
 */
static void pattern_make(char pattern[static FILL_BYTES], enum dtype dtype)
{
    uint32_t state = 1;
    float some[PATTERN_STEP];
    for (size_t done = 0; done < FILL_BYTES; done += PATTERN_STEP * dtype_size_bytes(dtype)) {
        for (int i = 0; i < PATTERN_STEP; i++) {
            state = state * 1664525u + 1013904223u;
            some[i] = 0.03f * ((float)(state >> 8) / 8388608.0f - 1.0f);
        }
        dtype_convert(pattern + done, dtype, some, DTYPE_F32, PATTERN_STEP);
    }
}

/* Fills the arena: weights, ones as Adam's corrections, scalars for gradients that are not 0, and
 * zeros elsewhere. */
static enum gt_status values_fill(struct bench *bench, char pattern[static FILL_BYTES])
{
    const struct model *model = bench->model;
    const struct graph *graph = model->graph;
    struct backend *device = bench->request->device;
    static const float ones[2] = {1.0f, 1.0f};
    static const union scalar_word scalars[SCALAR_WORDS] = {
        [SCALAR_LOSS_GRADIENT] = {.f = 1.0f / ROWS_FEW}, [SCALAR_UNSCALE] = {.f = 1.0f}};
    for (int32_t i = 0; i < bench->plan->segment_count; i++) {
        struct address at = {.space = (uint8_t)bench->plan->segment[i].space,
                             .segment = (uint8_t)i};
        TRY(bytes_fill(bench, at, bench->plan->segment[i].size_bytes, bench->zeros));
    }
    TRY(backend_upload(device, bench->plan->tensor[model->corrections], ones, sizeof ones));
    TRY(backend_upload(device, bench->plan->tensor[model->scalars], scalars, sizeof scalars));
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const int32_t tensors[2] = {model->parameters.at[i].tensor, model->parameters.at[i].master};
        for (int k = 0; k < 2 && tensors[k] != TENSOR_NONE; k++) {
            pattern_make(pattern, graph->tensors[tensors[k]].dtype);
            TRY(bytes_fill(bench, bench->plan->tensor[tensors[k]],
                           graph_tensor_bytes(graph, tensors[k]), pattern));
        }
    }
    return GT_OK;
}

/* Writes the tensors that the host writes before each step.  Each pass needs this, because later
 * ops have reused those bytes, and an invalid id would index beyond the embedding. */
static enum gt_status inputs_write(const struct bench *bench)
{
    const struct graph *graph = bench->model->graph;
    for (int32_t i = TENSOR_FIRST; i < graph->tensor_count; i++) {
        const struct tensor *tensor = &graph->tensors[i];
        bool written =
            tensor->input && tensor->base == TENSOR_NONE && tensor->lifetime != LIFETIME_RUN;
        if (written && bench->plan->tensor[i].offset_bytes != UINT64_MAX)
            TRY(bytes_fill(bench, bench->plan->tensor[i], graph_tensor_bytes(graph, i),
                           bench->zeros));
    }
    return GT_OK;
}

/* Runs the op and keeps its time if no earlier run was disturbed less.  Adds the time that it took
 * to *pass_s. */
static enum gt_status op_run(const struct bench *bench, struct timed_op *op, double *pass_s)
{
    struct contention before, after;
    contention_read(&before);
    TRY(backend_run(bench->request->device, &op->call, 1));
    TRY(backend_sync(bench->request->device));
    const double seconds = (double)(clock_monotonic_ns() - before.at_ns + 1) * 1e-9;
    *pass_s += seconds;
    contention_read(&after);
    const double share = contention_share(&before, &after, bench->processors);
    const double disturbed = share < CONTENTION_MIN ? 0.0 : share,
                 alone = seconds * (1.0 - disturbed);
    if (op->seconds > 0.0 &&
        (op->disturbed < disturbed || (op->disturbed == disturbed && op->seconds < alone)))
        return GT_OK;
    op->seconds = alone;
    op->disturbed = disturbed;
    return GT_OK;
}

static enum gt_status pass_run(struct bench *bench)
{
    TRY(inputs_write(bench));
    double pass_s = 0.0;
    bench->is_disturbed = false;
    for (int32_t i = 0; i < bench->count; i++) {
        TRY(op_run(bench, &bench->ops[i], &pass_s));
        bench->is_disturbed = bench->is_disturbed || bench->ops[i].disturbed > 0.0;
    }
    bench->slowest_s = fmax(bench->slowest_s, pass_s);
    bench->all_s += pass_s;
    bench->passes++;
    return GT_OK;
}

/* Runs one pass whose times do not count, because some drivers compile a kernel when it first runs.
 * Then runs one pass that counts, and as many more as `seconds` allow. */
static enum gt_status bench_run(struct bench *bench, double seconds)
{
    int64_t end_ns = clock_monotonic_ns() + (int64_t)(seconds * 1e9);
    char *pattern;
    TRY(hostmem_alloc(bench, 1, FILL_BYTES, "calibration weights", &pattern));
    TRY(values_fill(bench, pattern));
    hostmem_free(pattern);
    TRY(pass_run(bench));
    for (int32_t i = 0; i < bench->count; i++)
        bench->ops[i].seconds = 0.0;
    bench->slowest_s = bench->all_s = 0.0;
    bench->passes = 0;
    for (int pass = 1; pass < PASSES || (pass < PASSES_MAX && bench->is_disturbed); pass++) {
        const int64_t start_ns = clock_monotonic_ns();
        TRY(pass_run(bench));
        if (2 * clock_monotonic_ns() - start_ns > end_ns)
            return GT_OK;
    }
    return GT_OK;
}

/* Sums over the ops of one kind and dtype. */
struct work {
    double seconds, flops, bytes;
    double flops_per_row; /* of products: sum of FLOPs / rows */
};

struct sums {
    struct work work[OP_KIND_COUNT][PLAN_MATRIX_DTYPES];
    double pass_seconds; /* of a pass over all ops that nothing disturbs */
    double slowest_s;    /* of the longest pass */
    double mean_s;       /* of an average pass */
    int32_t rows;
};

static void sums_make(const struct bench *bench, int32_t rows, struct sums *out)
{
    *out = (struct sums){
        .rows = rows, .slowest_s = bench->slowest_s, .mean_s = bench->all_s / bench->passes};
    for (int32_t i = 0; i < bench->count; i++) {
        const struct timed_op *op = &bench->ops[i];
        struct work *work = &out->work[op->call.kind][plan_cost_dtype(&op->call)];
        const double flops = op_flops(&op->call);
        work->seconds += op->seconds;
        work->flops += flops;
        work->bytes += op_bytes(&op->call);
        if (op->call.kind == OP_GEMM)
            work->flops_per_row += flops / plan_cost_gemm_rows(&op->call);
        out->pass_seconds += op->seconds;
    }
}

/* Returns the cost of starting a product, in rows: the ramp in seconds rate = flops + ramp
 * flops_per_row, from two row counts. */
static double ramp_solve(const struct work *few, const struct work *more)
{
    double above = more->flops * few->seconds - few->flops * more->seconds;
    double below = few->flops_per_row * more->seconds - more->flops_per_row * few->seconds;
    double ramp = below > 0.0 ? above / below : 0.0;
    return fmin(fmax(ramp, 0.0), RAMP_ROWS_MAX);
}

/* Sets the rates of a kind.  Those of products and attention count FLOPs in each dtype, or over all
 * dtypes where the model has no such op; those of all other ops count bytes. */
static void kind_rates_make(const struct work work[PLAN_MATRIX_DTYPES], int kind,
                            double elementwise, struct plan_rates *out)
{
    struct work all = {.seconds = 0.0};
    double rate[PLAN_MATRIX_DTYPES] = {0.0};
    for (int dtype = 0; dtype < PLAN_MATRIX_DTYPES; dtype++) {
        const double flops = work[dtype].flops + out->ramp_rows * work[dtype].flops_per_row;
        rate[dtype] = work[dtype].seconds > 0.0 ? flops / work[dtype].seconds : 0.0;
        all.flops += flops;
        all.bytes += work[dtype].bytes;
        all.seconds += work[dtype].seconds;
    }
    out->bytes_per_s[kind] = elementwise;
    if (!op_declaration((enum op_kind)kind)->multiplies) {
        if (all.seconds > 0.0 && all.bytes > 0.0)
            out->bytes_per_s[kind] = all.bytes / all.seconds;
        return;
    }
    for (int dtype = 0; all.seconds > 0.0 && dtype < PLAN_MATRIX_DTYPES; dtype++)
        out->flops_per_s[kind][dtype] = rate[dtype] > 0.0 ? rate[dtype] : all.flops / all.seconds;
}

static void rates_make(const struct sums *sums, double ramp_rows, enum dtype dtype,
                       struct plan_rates *out)
{
    *out = (struct plan_rates){.ramp_rows = ramp_rows};
    const struct work *residual = &sums->work[OP_RESIDUAL][dtype];
    const double elementwise = residual->bytes / residual->seconds;
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        /* A training program has no ops with a cache. */
        const int like = kind == OP_ATTENTION_CACHED     ? OP_ATTENTION_FORWARD
                         : kind == OP_GATED_DELTA_CACHED ? OP_GATED_DELTA_FORWARD
                                                         : kind;
        kind_rates_make(sums->work[like], kind, elementwise, out);
    }
    /* The small model's ids are all 0, so its embedding behaves unlike a run's. */
    out->bytes_per_s[OP_EMBED_FORWARD] = out->bytes_per_s[OP_EMBED_BACKWARD] = elementwise;
}

/* Returns a number of rows, a power of two, for which a pass takes about a quarter of the time: at
 * least ROWS_LEAST, at which rates are near those of many rows, but no more than a micro-batch of
 * the run has. */
static int32_t rows_choose(const struct calibrate_request *request, double few_seconds,
                           double seconds)
{
    const int32_t block = request->options->config.block_size,
                  batch = request->options->choice.micro_batch;
    int32_t rows = ROWS_FEW;
    while (rows < ROWS_MORE && 2 * (int64_t)rows <= (int64_t)batch * block &&
           (rows < ROWS_LEAST || few_seconds * (double)(2 * rows) / ROWS_FEW < seconds / 4.0))
        rows *= 2;
    return rows;
}

/* Times a model of `rows` rows.  Halves the rows until the model fits. */
static enum gt_status rows_measure(struct hostmem *mem, const struct calibrate_request *request,
                                   int32_t rows, double seconds, struct sums *out)
{
    struct bench *bench;
    enum gt_status status = GT_NO_FIT;
    for (; status == GT_NO_FIT && rows >= ROWS_FEW; rows /= 2) {
        TRY(HOSTMEM_NEW(mem, 1, "calibration", &bench));
        *bench = (struct bench){.request = request, .processors = thread_count_available()};
        status = bench_open(bench, rows);
        THEN(status, bench_run(bench, seconds));
        if (status == GT_OK)
            sums_make(bench, rows, out);
        hostmem_free(bench);
    }
    return status;
}

/* Times the small and the larger model once.  The larger one has *rows rows; if that is 0, the
 * function chooses it.  Leaves that model's sums in *out. */
static enum gt_status attempt_measure(struct hostmem *mem, const struct calibrate_request *request,
                                      double seconds, int32_t *rows, struct sums *out,
                                      struct plan_rates *rates)
{
    const enum dtype dtype = request->options->dtype;
    int64_t start_ns = clock_monotonic_ns();
    TRY(rows_measure(mem, request, ROWS_FEW, seconds / 4.0, out));
    double left = seconds - (double)(clock_monotonic_ns() - start_ns) * 1e-9;
    if (*rows == 0)
        *rows = rows_choose(request, out->pass_seconds, left);
    const int32_t few_rows = out->rows;
    const struct work few = out->work[OP_GEMM][dtype];
    if (*rows > few_rows)
        TRY(rows_measure(mem, request, *rows, left, out));
    const double ramp = out->rows > few_rows ? ramp_solve(&few, &out->work[OP_GEMM][dtype]) : 0.0;
    rates_make(out, ramp, dtype, rates);
    return GT_OK;
}

/* Other programs only ever slow a timing down, and rarely by the same amount twice. */
enum gt_status calibrate_measure(struct hostmem *mem, const struct calibrate_request *request,
                                 struct plan_rates *out, bool *is_steady)
{
    struct sums sums;
    struct plan_rates rates;
    int32_t rows = 0; /* to be chosen */
    double best = INFINITY, slowest = 0.0, mean = 0.0;
    assert(request->seconds > 0.0 && request->plan->segment_count > 0);
    *is_steady = false;
    for (int i = 0; i < ATTEMPTS_MAX && !*is_steady; i++) {
        TRY(attempt_measure(mem, request, request->seconds / 2.0, &rows, &sums, &rates));
        *is_steady = fabs(sums.pass_seconds - best) <= AGREEMENT * best && i > 0;
        if (sums.pass_seconds < best)
            *out = rates;
        best = sums.pass_seconds < best ? sums.pass_seconds : best;
        slowest = fmax(slowest, sums.slowest_s);
        mean = fmax(mean, sums.mean_s);
    }
    /* If the other programs go on, the run's steps will be as slow as the slowest pass here. */
    out->disturbed = !*is_steady || mean > (1.0 + DISTURBED) * best;
    out->uncertainty = out->disturbed
                           ? plan_uncertainty_of((1.0 + PLAN_TIMED_UNCERTAINTY) * slowest / best)
                           : PLAN_TIMED_UNCERTAINTY;
    return GT_OK;
}

/* ---- the cache ---- */

/* Holds some thirty calibrations; the oldest are deleted first. */
static const struct user_cache calibrations = {
    .folder = "calibration",
    .magic = "GTRATES1",
    .suffix = ".rates",
    .otherwise = "the device is timed again",
    .bytes_max = (uint64_t)64 << 10,
    .file_bytes_max = (uint64_t)16 << 10,
};

char *calibrate_key(char key[static CALIBRATE_KEY_MAX], const struct backend_info *info,
                    const struct model_options *options)
{
    const struct model_config *config = &options->config;
    snprintf(key, CALIBRATE_KEY_MAX,
             "%s; %s | %s " PACKAGE_VERSION "%s; channels %" PRId32 ", heads %" PRId32
             ", block %" PRId32 ", vocabulary %" PRId32
             ", bias %d, dropout %d, gelu %d, %s, %s%s%s",
             info->device, info->detail, PACKAGE_NAME,
#ifdef GT_DEBUG
             " debug",
#else
             "",
#endif
             config->n_embd, config->n_head, config->block_size, config->vocab_size,
             (int)config->bias, config->dropout > 0.0f, (int)config->gelu,
             dtype_name(options->dtype), state_format_name(options->states),
             options->muon ? ", muon" : "", config->full_attention_interval > 1 ? ", delta" : "");
    return key;
}

bool calibrate_load(const char *key, struct plan_rates *out)
{
    void *data = NULL;
    size_t bytes = 0;
    const bool good = user_cache_load(&calibrations, key, key, &data, &bytes) == USER_CACHE_READ &&
                      bytes == sizeof *out;
    if (good)
        memcpy(out, data, bytes);
    free(data);
    return good;
}

void calibrate_scale(struct plan_rates *rates, double ratio)
{
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        rates->bytes_per_s[kind] *= ratio;
        for (int dtype = 0; dtype < PLAN_MATRIX_DTYPES; dtype++)
            rates->flops_per_s[kind][dtype] *= ratio;
    }
}

void calibrate_store(const char *key, const struct plan_rates *rates)
{
    if (!user_cache_store(&calibrations, key, key, rates, sizeof *rates))
        log_note("the user's cache cannot be written; timings of this device are not kept");
}
