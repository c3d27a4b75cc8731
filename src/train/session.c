/* A session: from a configuration to a bound plan on a device.
 *
 * The order is model, device, plan, and only then memory: everything that can be refused is refused before the arena is
 * asked for.  Initial weights are made here too, because they only need the parameters and the staging buffer.
 */
#include "train/session.h"

#include <assert.h>
#include <config.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "base/size.h"

/* Logits of one loss chunk hold at most this many bytes, unless loss_chunk says otherwise.  On a CPU a chunk of some
 * hundred rows runs its GEMMs at full rate already; what more rows would save is one pass over the embedding's gradient. */
#define LOSS_CHUNK_BYTES ((int64_t)64 << 20)
#define LOSS_CHUNK_ROWS_STEP 64
#define LOSS_CHUNKS_MAX 512
#define ADAM_EPSILON 1e-8f
#define LAYERNORM_EPSILON 1e-5f
/* The matrix rate that candidates are compared at: a constant, so that two fresh runs of a configuration plan alike. */
#define NOMINAL_PEAK_FLOPS 200e9
/* Left to others where no memory_budget is given: a twentieth of what is free, at least 256 MiB. */
#define BUDGET_MARGIN_PART 20
#define BUDGET_MARGIN_BYTES ((uint64_t)256 << 20)
#define PEAK_SECONDS 0.06
#define PEAK_SECONDS_PLAN 0.02 /* a plan is to be printed at once */
/* A build with --enable-debug runs with dead bytes poisoned and a guard band behind every tensor. */
#ifdef GT_DEBUG
#define DEBUG_RUN true
#define DEBUG_GUARD_BYTES 64
#else
#define DEBUG_RUN false
#define DEBUG_GUARD_BYTES 0
#endif
#define PEAK_SCRATCH_BYTES ((uint64_t)16 << 20)

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void session_model_config(const struct config *config, int64_t vocab_size, struct model_config *out)
{
    int64_t vocab = config->vocab_size > 0 ? config->vocab_size : vocab_size;
    *out = (struct model_config){
        .n_layer = (int32_t)config->n_layer,
        .n_head = (int32_t)config->n_head,
        .n_kv_head = (int32_t)(config->n_kv_head > 0 ? config->n_kv_head : config->n_head),
        .n_embd = (int32_t)config->n_embd,
        .block_size = (int32_t)config->block_size,
        .vocab_size = (int32_t)vocab,
        .padded_vocab_size = (int32_t)vocab,
        .bias = config->bias,
        .dropout = (float)config->dropout,
        .gelu = config->gelu == CONFIG_GELU_TANH ? GELU_TANH : GELU_ERF,
        .norm = NORM_LAYERNORM,
        .position = POSITION_LEARNED,
        .mlp = MLP_GELU,
        .layernorm_epsilon = LAYERNORM_EPSILON,
    };
}

/* Rows per loss chunk: as many as the byte limit allows, evenly over the rows of a micro-step. */
static int64_t loss_chunk_rows(const struct config *config, const struct model_config *model, int64_t rows)
{
    int64_t most = config->loss_chunk;
    if (most <= 0) {
        most = LOSS_CHUNK_BYTES / ((int64_t)sizeof(float) * model->padded_vocab_size);
        most = most < LOSS_CHUNK_ROWS_STEP ? LOSS_CHUNK_ROWS_STEP : most;
    }
    most = min_i64(most, rows);
    int64_t chunks = size_ceil_div(rows, most);
    return min_i64(most, size_ceil_div(size_ceil_div(rows, chunks), LOSS_CHUNK_ROWS_STEP) * LOSS_CHUNK_ROWS_STEP);
}

/* No more loss chunks than make sense in a program, unless the user asked for that. */
static int64_t chunk_cap(const struct config *config, int64_t chunk, int64_t rows)
{
    int64_t least = size_ceil_div(rows, LOSS_CHUNKS_MAX);
    return config->loss_chunk > 0 || chunk >= least ? chunk : least;
}

/* The first of the three that is set. */
static int64_t first_set(int64_t key, int64_t choice, int64_t otherwise)
{
    if (key > 0)
        return key;
    return choice > 0 ? choice : otherwise;
}

void session_train_options(const struct config *config, const struct session_choices *choices,
                           const struct model_config *model, struct model_options *out)
{
    static const struct session_choices none = {0};
    int64_t samples = config->batch_size * config->gradient_accumulation_steps;
    if (config_key_was_set(config, CONFIG_KEY_batch_size) || config_key_was_set(config, CONFIG_KEY_block_size))
        choices = &none; /* they belonged to another batch */
    int64_t micro = min_i64(first_set(config->micro_batch, choices->micro_batch, config->batch_size), samples);
    int64_t rows = micro * config->block_size;
    bool chunk_chosen = config->loss_chunk == 0 && choices->loss_chunk_rows > 0;
    int64_t chunk = chunk_chosen ? choices->loss_chunk_rows : loss_chunk_rows(config, model, rows);
    int64_t evaluate = first_set(config->eval_batch_size, choices->evaluate_batch, micro);
    if (config->eval_iters > 0)
        evaluate = min_i64(evaluate, config->eval_iters * config->batch_size);
    chunk = chunk_cap(config, chunk, (evaluate > micro ? evaluate : micro) * config->block_size);
    struct recompute_mix recompute = choices->recompute;
    if (config_key_was_set(config, CONFIG_KEY_recompute))
        recompute = (struct recompute_mix){.rest = (enum recompute_level)config->recompute};
    *out = (struct model_options){
        .config = *model,
        .train = true,
        .evaluate = true,
        .generate = config->sample_tokens > 0,
        .generate_batch = 1,
        .loss_chunk_rows = (int32_t)min_i64(chunk, rows),
        .evaluate_batch = (int32_t)evaluate,
        .recompute = recompute,
        .prefill_time = (int32_t)min_i64(config->block_size, SESSION_PREFILL_TIME_MAX),
        .beta1 = (float)config->beta1,
        .beta2 = (float)config->beta2,
        .weight_decay = (float)config->weight_decay,
        .grad_clip = (float)config->grad_clip,
        .adam_epsilon = ADAM_EPSILON,
        .correction_rows = model_correction_rows((float)config->beta1, (float)config->beta2, config->max_iters + 1),
    };
    search_micro_batch_set(out, samples, micro);
}

/* The first backend of the build, or the one that the configuration names. */
static enum gt_status device_open(struct session *session)
{
    const struct backend_ops *ops =
        session->config->backend == CONFIG_BACKEND_CPU ? backend_find("cpu") : backend_registry()[0];
    if (!ops) {
        log_error("this build has no backend of that name");
        return GT_UNSUPPORTED;
    }
    struct backend_open_options options = {.threads = (int32_t)session->config->threads};
    struct backend *inner;
    TRY(ops->open(&options, &inner));
    enum gt_status status = backend_wrap(inner, &session->device);
    if (status != GT_OK) {
        inner->ops->close(inner);
        return status;
    }
    return session->device->ops->info(session->device, &session->info);
}

/* What the arena may take of the budget. */
static uint64_t arena_budget(const struct session *session)
{
    uint64_t beside = session->info.context_bytes + SESSION_HEADROOM_BYTES;
    return session->budget_bytes > beside ? session->budget_bytes - beside : 0;
}

/* Says what is short, by how much, and the least that would do. */
static enum gt_status fits_refuse(const struct session *session, uint64_t arena_bytes, const char *least)
{
    char needed[24], have[24], lacking[24];
    double have_bytes = (double)arena_budget(session);
    log_error(
        "does not fit: %s%s is needed, the budget of %s leaves %s for it, %s short; a smaller block_size or model "
        "needs less (--plan shows where it goes)",
        log_bytes(needed, (double)arena_bytes), least, session->info.device, log_bytes(have, have_bytes),
        log_bytes(lacking, (double)arena_bytes - have_bytes));
    return GT_NO_FIT;
}

static enum gt_status budget_set(struct session *session)
{
    TRY(config_memory_budget(session->config, session->info.total_bytes, &session->budget_bytes));
    if (session->budget_bytes > 0)
        return GT_OK;
    uint64_t free_bytes = session->info.free_bytes, margin = free_bytes / BUDGET_MARGIN_PART;
    margin = margin > BUDGET_MARGIN_BYTES ? margin : BUDGET_MARGIN_BYTES;
    session->budget_bytes = free_bytes > margin ? free_bytes - margin : free_bytes;
    if (free_bytes == 0)
        session->budget_bytes = UINT64_MAX; /* the system does not say */
    return GT_OK;
}

static void plan_options_set(const struct session *session, struct plan_options *out)
{
    *out = (struct plan_options){
        .backend = session->device->ops,
        .device = session->device,
        .alignment_bytes = session->info.alignment_bytes,
        .largest_segment_bytes = session->info.largest_allocation_bytes,
        .guard_bytes = DEBUG_RUN ? (uint32_t)size_round_up(DEBUG_GUARD_BYTES, session->info.alignment_bytes) : 0,
    };
}

/* The fastest plan that fits; with --plan, where nothing does, the smallest, for its report. */
static enum gt_status session_search(struct session *session, const struct model_options *options)
{
    const struct config *config = session->config;
    struct search_request request = {
        .options = *options,
        .samples = config->batch_size * config->gradient_accumulation_steps,
        .pin_micro_batch = config->micro_batch > 0,
        .pin_recompute = config_key_was_set(config, CONFIG_KEY_recompute),
        .pin_loss_chunk = config->loss_chunk > 0,
        .pin_evaluate_batch = config->eval_batch_size > 0,
        .rates = plan_rates_of_peak(NOMINAL_PEAK_FLOPS),
        .budget_bytes = arena_budget(session),
    };
    plan_options_set(session, &request.plan);
    enum gt_status status = plan_search(session->mem, &request, &session->search);
    if (status == GT_NO_FIT && config->plan == CONFIG_PLAN_OFF && !config->print_program)
        return fits_refuse(session, session->search.arena_bytes, " at least");
    return status == GT_NO_FIT ? GT_OK : status;
}

static enum gt_status session_plan(struct session *session)
{
    struct plan_options options;
    plan_options_set(session, &options);
    return plan_create(session->mem, session->model->graph, &options, &session->plan);
}

enum gt_status session_open(struct hostmem *mem, const struct config *config, const struct model_options *options,
                            struct session *out)
{
    *out = (struct session){.mem = mem, .config = config};
    void *array;
    enum gt_status status;
    TRY_GOTO(status, fail, device_open(out));
    TRY_GOTO(status, fail, budget_set(out));
    out->search.options = *options;
    if (options->train)
        TRY_GOTO(status, fail, session_search(out, options));
    TRY_GOTO(status, fail, model_create(mem, &out->search.options, &out->model));
    TRY_GOTO(status, fail, session_plan(out));
    if (!plan_verify(out->plan)) {
        status = GT_FAILURE;
        goto fail;
    }
    TRY_GOTO(status, fail, hostmem_alloc(mem, SESSION_STAGING_FLOATS, sizeof(float), "staging buffer", &array));
    out->staging = array;
    return GT_OK;
fail:
    session_close(out);
    return status;
}

enum gt_status session_fits(const struct session *session)
{
    if (session->plan->arena_bytes <= arena_budget(session))
        return GT_OK;
    return fits_refuse(session, session->plan->arena_bytes, "");
}

enum gt_status session_start(struct session *session)
{
    struct exec_options options = {.poison = DEBUG_RUN};
    TRY(session_fits(session));
    uint64_t need = session->plan->arena_bytes + session->info.context_bytes + SESSION_HEADROOM_BYTES;
    if (session->info.free_bytes > 0 && need > session->info.free_bytes) {
        char needed[24], have[24];
        log_error(
            "%s of memory is needed and %s is free on %s now: other programs hold the rest; a smaller memory_budget "
            "makes a plan for less",
            log_bytes(needed, (double)need), log_bytes(have, (double)session->info.free_bytes), session->info.device);
        return GT_NO_FIT;
    }
    return exec_create(session->mem, session->device, session->plan, &options, &session->exec);
}

void session_close(struct session *session)
{
    exec_destroy(session->exec);
    plan_destroy(session->plan);
    if (session->device)
        session->device->ops->close(session->device);
    model_destroy(session->model);
    hostmem_free(session->mem, session->staging);
    session->exec = NULL;
    session->plan = NULL;
    session->device = NULL;
    session->model = NULL;
    session->staging = NULL;
}

enum gt_status session_peak_measure(struct session *session)
{
    struct backend *device = session->device;
    struct backend_segment segment = {.space = SPACE_DEVICE, .size_bytes = PEAK_SCRATCH_BYTES};
    struct address scratch = {.space = SPACE_DEVICE};
    if (session->exec)
        return exec_peak_flops(session->exec, PEAK_SCRATCH_BYTES, PEAK_SECONDS, &session->peak_flops);
    TRY(device->ops->arena(device, &segment, 1));
    return device->ops->peak_flops(device, scratch, PEAK_SCRATCH_BYTES, PEAK_SECONDS_PLAN, &session->peak_flops);
}

enum gt_status session_scalars_upload(struct session *session)
{
    return exec_upload(session->exec, session->model->scalars, 0, session->scalars, SCALAR_WORDS);
}

enum gt_status session_scalars_download(struct session *session)
{
    return exec_download(session->exec, session->model->scalars, 0, session->scalars, SCALAR_WORDS);
}

enum gt_status session_tensor_zero(struct session *session, int32_t tensor)
{
    int64_t count = graph_tensor_elements(session->model->graph, tensor);
    memset(session->staging, 0, (size_t)min_i64(count, SESSION_STAGING_FLOATS) * sizeof(float));
    for (int64_t first = 0; first < count; first += SESSION_STAGING_FLOATS) {
        int64_t part = min_i64(count - first, SESSION_STAGING_FLOATS);
        TRY(exec_upload(session->exec, tensor, first, session->staging, part));
    }
    return GT_OK;
}

/* out[count] = initial values of elements first .. of parameter number `index`; first is a multiple of 4. */
static void initial_values(const struct parameter *parameter, struct philox_key key, uint32_t index, int64_t first,
                           int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i += 4) {
        float normal[4] = {0};
        uint64_t block = (uint64_t)(first + i) / 4;
        struct philox_block counter = {{(uint32_t)block, (uint32_t)(block >> 32), index, 0}};
        if (parameter->init == INIT_NORMAL)
            philox_normal4(philox4x32_10(key, counter), normal);
        for (int64_t k = 0; k < 4 && i + k < count; k++)
            out[i + k] = parameter->init == INIT_ONE ? 1.0f : parameter->init_std * normal[k];
    }
}

static enum gt_status parameter_init(struct session *session, uint32_t index, struct philox_key key)
{
    const struct parameter *parameter = &session->model->parameters.at[index];
    const struct graph *graph = session->model->graph;
    int64_t total = graph_tensor_elements(graph, parameter->tensor);
    int64_t count = total / graph->tensors[parameter->tensor].dims[0] * parameter->saved_rows;
    TRY(session_tensor_zero(session, parameter->tensor));
    for (int64_t first = 0; first < count; first += SESSION_STAGING_FLOATS) {
        int64_t part = min_i64(count - first, SESSION_STAGING_FLOATS);
        initial_values(parameter, key, index, first, part, session->staging);
        TRY(exec_upload(session->exec, parameter->tensor, first, session->staging, part));
    }
    return GT_OK;
}

enum gt_status session_weights_init(struct session *session, uint64_t seed)
{
    struct philox_key key = philox_key_make(seed, RNG_INIT);
    for (int32_t i = 0; i < session->model->parameters.count; i++) {
        const struct parameter *parameter = &session->model->parameters.at[i];
        TRY(parameter_init(session, (uint32_t)i, key));
        if (parameter->m != TENSOR_NONE)
            TRY(session_tensor_zero(session, parameter->m));
        if (parameter->v != TENSOR_NONE)
            TRY(session_tensor_zero(session, parameter->v));
    }
    return GT_OK;
}

enum gt_status session_corrections_upload(struct session *session)
{
    const struct model_options *options = &session->model->options;
    for (int32_t row = 0; row < options->correction_rows; row++) {
        float pair[2] = {(float)(1.0 - pow((double)options->beta1, row + 1)),
                         (float)(1.0 - pow((double)options->beta2, row + 1))};
        TRY(exec_upload(session->exec, session->model->corrections, 2 * (int64_t)row, pair, 2));
    }
    return GT_OK;
}
