/* A session: from a configuration to a bound plan on a device.
 *
 * The order is model, device, plan, and only then memory: everything that can be refused is refused before the arena is
 * asked for.  Initial weights are made in session_weights.c.
 */
#include "train/session.h"

#include <assert.h>
#include <config.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "base/system_memory.h"
#include "plan/profile_device.h"
#include "train/session_choices.h"
#include "train/session_rates.h"
#include "train/values.h"

/* Logits of one loss chunk hold at most this many bytes, unless loss_chunk says otherwise.  On a CPU a chunk of some
 * hundred rows runs its GEMMs at full rate already; what more rows would save is one pass over the embedding's gradient. */
#define LOSS_CHUNK_BYTES ((int64_t)64 << 20)
/* A card wants larger products, and each chunk passes once over the fp32 gradient of the embedding. */
#define LOSS_CHUNK_BYTES_CARD ((int64_t)512 << 20)
#define LOSS_CHUNK_ROWS_STEP 64
#define LOSS_CHUNKS_MAX 512
#define ADAM_EPSILON 1e-8f
#define LAYERNORM_EPSILON 1e-5f
/* Left to others where no memory_budget is given: a twentieth of what is free, at least 256 MiB. */
#define BUDGET_MARGIN_PART 20
#define BUDGET_MARGIN_BYTES ((uint64_t)256 << 20)
#define BUDGET_MARGIN_PART_MOST 2 /* of little memory, so that less of it is never more to plan with */
/* A build with --enable-debug runs with dead bytes poisoned and a guard band behind every tensor. */
#ifdef GT_DEBUG
#define DEBUG_RUN true
#define DEBUG_GUARD_BYTES 64
#else
#define DEBUG_RUN false
#define DEBUG_GUARD_BYTES 0
#endif
#define SCRATCH_BYTES_MIN ((uint64_t)40 << 20) /* the largest workspace of a product, and its matrices */

/* How long, and in what, the rate of products is measured: in a run and for a plan, which is to be printed at once, with small
 * products, so that two of them take no longer than said; on a card with products that fill it. */
struct peak_limits {
    double seconds;
    uint64_t bytes;
};

static struct peak_limits peak_limits(const struct session *session, bool is_plan)
{
    if (session->info.host_memory)
        return is_plan ? (struct peak_limits){0.02, (uint64_t)4 << 20} : (struct peak_limits){0.06, (uint64_t)16 << 20};
    return is_plan ? (struct peak_limits){0.05, (uint64_t)128 << 20} : (struct peak_limits){0.15, (uint64_t)512 << 20};
}

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
static int64_t loss_chunk_rows(const struct session *session, const struct model_config *model, int64_t rows)
{
    int64_t most = session->config->loss_chunk;
    if (most <= 0) {
        most = (session->info.host_memory ? LOSS_CHUNK_BYTES : LOSS_CHUNK_BYTES_CARD) /
               ((int64_t)dtype_size_bytes(session->dtype) * model->padded_vocab_size);
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

_Static_assert(CONFIG_STATES_MASTER - 1 == (int)STATE_MASTER &&
                   CONFIG_STATES_SR_8BIT_FULL - 1 == (int)STATE_SR_8BIT_FULL,
               "the words of state_format are auto and the formats, in their order");

enum state_format session_state_format(const struct config *config)
{
    assert(config->state_format != CONFIG_STATES_AUTO);
    return (enum state_format)(config->state_format - 1);
}

/* What the run begins with; the search may choose a leaner one. */
static enum state_format states_first(const struct config *config, const struct session_choices *choices)
{
    if (choices->states_chosen)
        return choices->states;
    return config->state_format == CONFIG_STATES_AUTO ? STATE_MASTER : session_state_format(config);
}

static bool has_dtype(const struct session *session, enum dtype dtype)
{
    return (session->info.dtypes >> dtype & 1u) != 0;
}

/* Muon's learning rate follows the schedule at this factor; a schedule of zero has none. */
static float muon_rate(const struct config *config)
{
    return config->learning_rate > 0.0 ? (float)(config->muon_learning_rate / config->learning_rate) : 0.0f;
}

/* Newton-Schulz needs no more than 16 bits; its numbers are within those of float16, where a device has no bfloat16. */
static enum dtype muon_dtype(const struct session *session)
{
    if (has_dtype(session, DTYPE_BF16))
        return DTYPE_BF16;
    return has_dtype(session, DTYPE_F16) ? DTYPE_F16 : DTYPE_F32;
}

/* What the key says; config_check() has read it before. */
static struct recompute_mix recompute_of(const struct config *config)
{
    struct recompute_mix mix;
    const char *why;
    bool good = recompute_read(config->recompute, config->n_layer, &mix, &why);
    assert(good);
    (void)good;
    return mix;
}

/* The first of the three that is set. */
static int64_t first_set(int64_t key, int64_t choice, int64_t otherwise)
{
    if (key > 0)
        return key;
    return choice > 0 ? choice : otherwise;
}

void session_train_options(const struct session *session, const struct session_choices *choices,
                           const struct model_config *model, struct model_options *out)
{
    const struct config *config = session->config;
    const enum state_format states = states_first(config, choices);
    int64_t samples = config->batch_size * config->gradient_accumulation_steps;
    /* No more than a run of this configuration chooses, whatever a checkpoint says. */
    int64_t chosen = min_i64(choices->plan.micro_batch, config->batch_size);
    int64_t micro = min_i64(first_set(config->micro_batch, chosen, config->batch_size), samples);
    int64_t rows = micro * config->block_size;
    bool chunk_chosen = config->loss_chunk == 0 && choices->plan.loss_chunk_rows > 0;
    int64_t chunk = chunk_chosen ? choices->plan.loss_chunk_rows : loss_chunk_rows(session, model, rows);
    int64_t evaluate = first_set(config->eval_batch_size, min_i64(choices->plan.evaluate_batch, micro), micro);
    if (config->eval_iters > 0)
        evaluate = min_i64(evaluate, config->eval_iters * config->batch_size);
    chunk = chunk_cap(config, chunk, (evaluate > micro ? evaluate : micro) * config->block_size);
    struct recompute_mix recompute = choices->plan.recompute;
    if (config_key_was_set(config, CONFIG_KEY_recompute))
        recompute = recompute_of(config);
    *out = (struct model_options){
        .config = *model,
        .dtype = session->dtype,
        .states = states,
        .muon = config->optimizer == CONFIG_OPTIMIZER_MUON,
        .muon_momentum = (float)config->muon_momentum,
        .muon_rate = muon_rate(config),
        .muon_dtype = muon_dtype(session),
        .train = !config->eval_only,
        .evaluate = true,
        .generate = config->sample_tokens > 0,
        .generate_batch = 1,
        .choice.loss_chunk_rows = (int32_t)min_i64(chunk, rows),
        .choice.evaluate_batch = (int32_t)evaluate,
        .evaluate_time = (int32_t)config->eval_block_size,
        .choice.recompute = recompute,
        .prefill_time = (int32_t)min_i64(config->block_size, SESSION_PREFILL_TIME_MAX),
        .beta1 = (float)config->beta1,
        .beta2 = (float)config->beta2,
        .weight_decay = (float)config->weight_decay,
        .grad_clip = (float)config->grad_clip,
        .adam_epsilon = ADAM_EPSILON,
        .correction_rows = config->eval_only ? 0
                                             : model_correction_rows((float)config->beta1, (float)config->beta2,
                                                                     config->max_iters + 1),
    };
    search_micro_batch_set(out, samples, micro);
}

static const char *const backend_words[] = {[CONFIG_BACKEND_AUTO] = "auto",
                                            [CONFIG_BACKEND_CPU] = "cpu",
                                            [CONFIG_BACKEND_CUDA] = "cuda",
                                            [CONFIG_BACKEND_OPENCL] = "opencl"};

/* The device that a profile describes. */
static enum gt_status profile_open(struct session *session, struct backend **out)
{
    struct device_profile *profile = &session->profile;
    const char *wanted = backend_words[session->config->backend];
    TRY(device_profile_find(session->config->device_profile, profile));
    session->has_profile = true;
    if (session->config->backend != CONFIG_BACKEND_AUTO && strcmp(wanted, profile->backend) != 0) {
        log_error("device_profile '%s' is a %s device; leave --backend=%s out", profile->id, profile->backend, wanted);
        return GT_USAGE;
    }
    return profile_device_open(profile, out);
}

/* The first backend of the build that has a device which it would take; what the others lack is said. */
static const struct backend_ops *backend_choose(void)
{
    for (const struct backend_ops *const *ops = backend_registry(); *ops; ops++) {
        struct backend_devices devices;
        (*ops)->devices(true, &devices);
        if (devices.first >= 0)
            return *ops;
        if (devices.reason[0] != '\0')
            log_note("not using %s: %s", (*ops)->name, devices.reason);
    }
    return NULL;
}

/* The backend that the configuration names, or GPT_TRAIN_BACKEND in the environment, or the first that has a device; of its
 * devices the one that is named, or the one that it would take. */
static enum gt_status backend_open(const struct session *session, struct backend **out)
{
    const struct config *config = session->config;
    const bool is_auto = config->backend == CONFIG_BACKEND_AUTO;
    const char *wanted = is_auto ? getenv("GPT_TRAIN_BACKEND") : backend_words[config->backend];
    const bool is_named = wanted && wanted[0] != '\0';
    const struct backend_ops *ops = is_named ? backend_find(wanted) : backend_choose();
    if (!ops) {
        log_error("%s'%s': this build has no such backend",
                  is_auto ? "GPT_TRAIN_BACKEND=" : "backend = ", is_named ? wanted : "");
        return GT_UNSUPPORTED;
    }
    struct backend_devices devices;
    ops->devices(!is_named, &devices);
    int32_t index = config_device_index(config);
    if (index >= devices.count && devices.count > 0) {
        log_error("device = '%s': %s has %" PRId32 " device%s, numbered from 0 (--list_devices shows them)",
                  config->device, ops->name, devices.count, devices.count == 1 ? "" : "s");
        return GT_USAGE;
    }
    struct backend_open_options options = {.name = config_device_name(config),
                                           .device = index >= 0          ? index
                                                     : devices.first > 0 ? devices.first
                                                                         : 0,
                                           .threads = (int32_t)config->threads,
                                           .tf32 = config->tf32,
                                           .no_graphs = config->cuda_graphs == CONFIG_CUDA_GRAPHS_OFF,
                                           .tune = config->tune};
    return ops->open(&options, out);
}

static enum gt_status device_open(struct session *session)
{
    struct backend *inner;
    char limit[24];
    TRY(session->config->device_profile[0] != '\0' ? profile_open(session, &inner) : backend_open(session, &inner));
    enum gt_status status = backend_wrap(inner, &session->device);
    if (status != GT_OK) {
        inner->ops->close(inner);
        return status;
    }
    TRY(session->device->ops->info(session->device, &session->info));
    if (session->info.host_memory && system_memory_space_is_limit())
        log_note("ulimit -v limits the memory of this process to %s",
                 log_bytes(limit, (double)session->info.total_bytes));
    return GT_OK;
}

/* What weights and activations are stored as: what the configuration says, or the nearest that the device has, which is
 * said.  auto is float32 on a cpu, elsewhere bfloat16, or float16 (with loss scaling) where the device lacks that. */
static void dtype_choose(struct session *session)
{
    static const enum dtype wanted[] = {
        [CONFIG_DTYPE_FLOAT32] = DTYPE_F32, [CONFIG_DTYPE_BFLOAT16] = DTYPE_BF16, [CONFIG_DTYPE_FLOAT16] = DTYPE_F16};
    bool is_auto = session->config->dtype == CONFIG_DTYPE_AUTO;
    enum dtype dtype = is_auto ? (session->info.host_memory ? DTYPE_F32 : DTYPE_BF16) : wanted[session->config->dtype];
    session->dtype = dtype;
    if (!has_dtype(session, session->dtype))
        session->dtype = dtype == DTYPE_BF16 && has_dtype(session, DTYPE_F16) ? DTYPE_F16 : DTYPE_F32;
    if (session->dtype != dtype)
        log_note("%s has no %s; using %s%s", session->info.device, dtype_name(dtype), dtype_name(session->dtype),
                 session->dtype == DTYPE_F16 ? ", with loss scaling" : "");
}

uint64_t session_headroom_bytes(const struct session *session)
{
    return session->info.host_memory ? SESSION_HEADROOM_BYTES : 0;
}

/* What the arena may not take of the budget. */
static uint64_t beside_bytes(const struct session *session)
{
    return session->info.context_bytes + session_headroom_bytes(session);
}

uint64_t session_budget_of(const struct session *session, uint64_t arena_bytes)
{
    return arena_bytes + beside_bytes(session);
}

/* What the arena may take of the budget. */
uint64_t session_arena_budget(const struct session *session)
{
    uint64_t beside = beside_bytes(session);
    return session->budget_bytes > beside ? session->budget_bytes - beside : 0;
}

/* Says what would do and what there is; where what is free is the limit, who else holds memory. */
static enum gt_status fits_refuse(const struct session *session, uint64_t arena_bytes)
{
    char least[24], have[24], holders[BACKEND_HOLDERS_TEXT_MAX];
    const char *needed = search_budget_text(least, session_budget_of(session, arena_bytes));
    const char *unit = needed + strspn(needed, "0123456789.");
    const int digits = (int)(unit - needed);
    log_bytes(have, (double)session->budget_bytes);
    if (session->config->memory_budget[0] != '\0') {
        log_error("not enough memory: this run needs at least %.*s %s, memory_budget allows %s", digits, needed, unit,
                  have);
        return GT_NO_FIT;
    }
    backend_holders_read(holders, session->device);
    log_error("not enough memory: this run needs at least %.*s %s, %s has %s available%s%s", digits, needed, unit,
              session->info.device, have, holders[0] != '\0' ? "; others hold most: " : "", holders);
    return GT_NO_FIT;
}

static uint64_t budget_of_free(uint64_t free_bytes)
{
    const uint64_t part = free_bytes / BUDGET_MARGIN_PART, most = free_bytes / BUDGET_MARGIN_PART_MOST;
    const uint64_t least = most < BUDGET_MARGIN_BYTES ? most : BUDGET_MARGIN_BYTES;
    return free_bytes - (part > least ? part : least);
}

/* What memory_budget says, else what is free.  A profile's card has a little less than its nominal memory to give. */
static enum gt_status budget_set(struct session *session)
{
    char total[24];
    const struct config *config = session->config;
    const uint64_t most = session->has_profile ? session->profile.memory_bytes : session->info.total_bytes;
    TRY(config_memory_budget(config, session->info.total_bytes, &session->budget_bytes));
    if (config_key_was_set(config, CONFIG_KEY_memory_budget) && most > 0 && session->budget_bytes > most) {
        log_error("memory_budget '%s' is more than %s has: %s", config->memory_budget, session->info.device,
                  log_bytes(total, (double)most));
        return GT_USAGE;
    }
    if (session->budget_bytes > 0)
        return GT_OK;
    uint64_t free_bytes = session->info.free_bytes;
    session->budget_bytes = budget_of_free(free_bytes);
    if (session->has_profile)
        session->budget_bytes = free_bytes; /* what others take is in the profile's usable memory */
    if (free_bytes == 0)
        session->budget_bytes = UINT64_MAX; /* the system does not say */
    return GT_OK;
}

void session_plan_options(const struct session *session, struct plan_options *out)
{
    *out = (struct plan_options){
        .device = session->device,
        .info = &session->info,
        .alignment_bytes = session->info.alignment_bytes,
        .largest_segment_bytes = session->info.largest_allocation_bytes,
        .guard_bytes = DEBUG_RUN ? (uint32_t)size_round_up(DEBUG_GUARD_BYTES, session->info.alignment_bytes) : 0,
    };
}

/* Lean states need bfloat16, which the configuration or the device may not have. */
static enum gt_status states_check(const struct session *session, const struct model_options *options)
{
    if (state_format_is_lean(options->states) && options->dtype != DTYPE_BF16) {
        log_error("state_format='%s' needs bfloat16, but weights are stored as %s on %s; %s",
                  state_format_name(options->states), dtype_name(options->dtype), session->info.device,
                  has_dtype(session, DTYPE_BF16) ? "add --dtype=bfloat16"
                                                 : "only state_format='master' works without bfloat16");
        return GT_USAGE;
    }
    if (options->muon && state_format_dtypes(options->states, options->dtype, false).moment == DTYPE_U8) {
        log_error("optimizer='muon' has no 8-bit momentum; use state_format='sr_bf16' instead of '%s'",
                  state_format_name(options->states));
        return GT_USAGE;
    }
    if (session->config->allow_lean_states && options->dtype != DTYPE_BF16)
        log_note("allow_lean_states=True is ignored with %s: lean states need bfloat16", dtype_name(options->dtype));
    return GT_OK;
}

/* Whether the search may go on to leaner states: never at a resume, whose states are what they are. */
static bool states_may_change(const struct session *session, const struct model_options *options)
{
    const struct config *config = session->config;
    bool resumes = strcmp(config->init_from, "resume") == 0;
    bool free = config->state_format == CONFIG_STATES_AUTO && config->allow_lean_states;
    return !resumes && options->dtype == DTYPE_BF16 && (free || config->state_format == CONFIG_STATES_SR_8BIT);
}

/* Whether a refusal may name them: where they would work, and the user has not decided about them. */
static bool states_may_be_offered(const struct session *session, const struct model_options *options)
{
    const struct config *config = session->config;
    bool decided = config_key_was_set(config, CONFIG_KEY_allow_lean_states);
    bool resumes = strcmp(config->init_from, "resume") == 0;
    return !resumes && !decided && options->dtype == DTYPE_BF16 && config->state_format == CONFIG_STATES_AUTO;
}

/* The fastest plan that fits; with --plan, where nothing does, the smallest, for its report. */
static enum gt_status session_search(struct session *session, const struct model_options *options)
{
    const struct config *config = session->config;
    TRY(states_check(session, options));
    session->request = (struct search_request){
        .options = *options,
        .samples = config->batch_size * config->gradient_accumulation_steps,
        .pin_micro_batch = config->micro_batch > 0,
        .pin_recompute = config_key_was_set(config, CONFIG_KEY_recompute),
        .pin_loss_chunk = config->loss_chunk > 0,
        .pin_evaluate_batch = config->eval_batch_size > 0,
        .lean_states = states_may_change(session, options),
        .lean_offered = states_may_be_offered(session, options),
        .rates = session_rates_nominal(session),
        .budget_bytes = session_arena_budget(session),
        .memo = &session->memo,
    };
    session_plan_options(session, &session->request.plan);
    enum gt_status status = plan_search(session->mem, &session->request, &session->search);
    bool refuse = config->plan == CONFIG_PLAN_OFF && !config->print_program;
    if (status == GT_NO_FIT && refuse && !session->search.unplaceable) { /* else plan_create() names the tensor */
        (void)fits_refuse(session, session->search.arena_bytes);
        session_choices_log(session);
    }
    if (status == GT_NO_FIT && refuse && !session->search.unplaceable)
        return status;
    return status == GT_NO_FIT ? GT_OK : status;
}

enum gt_status session_open(struct hostmem *mem, const struct config *config, struct session *out)
{
    *out = (struct session){.mem = mem, .config = config};
    enum gt_status status;
    TRY_GOTO(status, fail, device_open(out));
    TRY_GOTO(status, fail, budget_set(out));
    dtype_choose(out);
    return GT_OK;
fail:
    session_close(out);
    return status;
}

enum gt_status session_plan(struct session *session, const struct model_options *options)
{
    void *array;
    struct plan_options plan;
    session->search.options = *options;
    if (options->train)
        TRY(session_search(session, options));
    TRY(model_create(session->mem, &session->search.options, &session->model));
    session_plan_options(session, &plan);
    TRY(plan_create(session->mem, session->model->graph, &plan, &session->plan));
    if (!plan_verify(session->plan))
        return GT_FAILURE;
    TRY(hostmem_alloc(session->mem, SESSION_STAGING_FLOATS, sizeof(float), "staging buffer", &array));
    session->staging = array;
    return GT_OK;
}

enum gt_status session_plan_evaluation(struct session *session, const struct model_options *options)
{
    struct model_options fitted = *options;
    TRY(session_evaluation_fit(session, &fitted));
    return session_plan(session, &fitted);
}

enum gt_status session_fits(const struct session *session)
{
    if (session->plan->arena_bytes <= session_arena_budget(session))
        return GT_OK;
    return fits_refuse(session, session->plan->arena_bytes);
}

/* What is free on the device must do for the plan, whatever the budget says. */
static uint64_t bytes_lacking(const struct session *session)
{
    uint64_t need = session->plan->arena_bytes + session->info.context_bytes + session_headroom_bytes(session);
    uint64_t free_bytes = session->info.free_bytes;
    return free_bytes > 0 && need > free_bytes ? need - free_bytes : 0;
}

/* Other programs have taken memory since the plan was made: another plan, for what is left. */
static enum gt_status plan_again(struct session *session)
{
    char lacking[24], have[24], holders[BACKEND_HOLDERS_TEXT_MAX];
    const struct model_options options = session->request.options;
    log_note("%s are free on %s now, %s less than the plan needs (other processes: %s); planning again",
             log_bytes(have, (double)session->info.free_bytes), session->info.device,
             log_bytes(lacking, (double)bytes_lacking(session)), backend_holders_known(holders, session->device));
    session->budget_bytes = budget_of_free(session->info.free_bytes);
    plan_destroy(session->plan);
    model_destroy(session->model);
    hostmem_free(session->mem, session->staging);
    session->plan = NULL;
    session->model = NULL;
    session->staging = NULL;
    TRY(session_plan(session, &options));
    return session_fits(session);
}

enum gt_status session_start(struct session *session)
{
    struct exec_options options = {.poison = DEBUG_RUN};
    TRY(session_fits(session));
    TRY(session->device->ops->info(session->device, &session->info));
    if (bytes_lacking(session) > 0 && session->model->options.train)
        TRY(plan_again(session));
    if (bytes_lacking(session) > 0) {
        char needed[24], have[24], holders[BACKEND_HOLDERS_TEXT_MAX];
        uint64_t free_bytes = session->info.free_bytes;
        log_error("not enough memory: this run needs %s, and %s are free on %s now (other processes: %s)",
                  log_bytes(needed, (double)(free_bytes + bytes_lacking(session))), log_bytes(have, (double)free_bytes),
                  session->info.device, backend_holders_known(holders, session->device));
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

/* Of what a plan's products are timed in: on a card that others use, half of what is free at most. */
static uint64_t scratch_bytes(const struct session *session)
{
    const uint64_t most = peak_limits(session, true).bytes, free_bytes = session->info.free_bytes;
    return session->info.host_memory || free_bytes == 0 || free_bytes / 2 > most ? most : free_bytes / 2;
}

static enum gt_status peak_measure(struct session *session, enum dtype dtype, double *out)
{
    struct backend *device = session->device;
    struct address scratch = {.space = SPACE_DEVICE};
    const struct peak_limits limits = peak_limits(session, !session->exec);
    const enum gt_status status =
        session->exec ? exec_peak_flops(session->exec, dtype, limits.bytes, limits.seconds, out)
                      : backend_peak_flops(device, dtype, scratch, (size_t)scratch_bytes(session), limits.seconds, out);
    if (status == GT_NO_FIT)
        *out = 0.0; /* the arena is too small: forecasts and mfu do without */
    return status == GT_NO_FIT ? GT_OK : status;
}

/* For a plan.  Where there is no room for products, a plan is told all the same, with the times of what is known. */
static enum gt_status scratch_take(struct session *session, bool *out)
{
    const struct backend_segment segment = {.space = SPACE_DEVICE, .size_bytes = scratch_bytes(session)};
    char have[24];
    *out = session->info.host_memory || segment.size_bytes >= SCRATCH_BYTES_MIN;
    if (*out)
        return session->device->ops->arena(session->device, &segment, 1);
    log_note("%s are free on %s, too little to time products; estimates use earlier timings or a nominal device",
             log_bytes(have, (double)session->info.free_bytes), session->info.device);
    return GT_OK;
}

/* The rate of products in the run's dtype, which MFU refers to; and while no op was timed, that of fp32 arithmetic, which
 * everything but products is done in. */
static enum gt_status peaks_measure(struct session *session)
{
    bool has_room = true;
    if (!session->exec)
        TRY(scratch_take(session, &has_room));
    if (has_room)
        TRY(peak_measure(session, session->dtype, &session->peak_flops));
    session_rates_recall(session);
    double other = session->peak_flops;
    if (session->rates_timed)
        return GT_OK;
    if (has_room && session->dtype != DTYPE_F32)
        TRY(peak_measure(session, DTYPE_F32, &other));
    const bool known = session->peak_flops > 0.0 && other > 0.0;
    session->rates = known ? plan_rates_of_peaks(session->peak_flops, other) : session_rates_nominal(session);
    return GT_OK;
}

enum gt_status session_peak_measure(struct session *session)
{
    if (session->has_profile) {
        char basis[512];
        log_note("%s", plan_rates_basis(basis, &session->profile));
        session->peak_flops = session->profile.vector_flops_per_s;
        session->rates = plan_rates_of_profile(&session->profile);
        return GT_OK;
    }
    TRY(peaks_measure(session));
    session_rates_tuned(session);
    return GT_OK;
}

enum gt_status session_scalars_upload(struct session *session)
{
    return exec_upload(session->exec, session->model->scalars, 0, session->scalars, SCALAR_WORDS);
}

enum gt_status session_scalars_download(struct session *session)
{
    return exec_download(session->exec, session->model->scalars, 0, session->scalars, SCALAR_WORDS);
}

_Static_assert(SCALAR_UNSCALE - SCALAR_LEARNING_RATE == 2 && SCALAR_COUNT - SCALAR_STEP == 6,
               "between them are the words that clip_factor writes, and the sum of losses");

enum gt_status session_scalars_set(struct session *session)
{
    static const struct {
        int32_t first, count;
    } parts[] = {{SCALAR_LEARNING_RATE, 3}, {SCALAR_LOSS_SUM, 1}, {SCALAR_STEP, SCALAR_COUNT - SCALAR_STEP}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        TRY(exec_upload(session->exec, session->model->scalars, parts[i].first, &session->scalars[parts[i].first],
                        parts[i].count));
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
