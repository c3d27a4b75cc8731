/* The plan of a session: the options that follow from the configuration and a checkpoint, and the fastest plan with
 * them that fits.
 *
 * Everything that can be refused is refused here, before the arena is allocated.
 */
#include "train/session_plan.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "train/session_budget.h"
#include "train/session_choices.h"
#include "train/session_rates.h"

/* Maximum size of the logits of one loss chunk, unless loss_chunk is set.  On a CPU a chunk of some hundred rows
 * already runs its GEMMs at full rate; more rows would save one pass over the embedding's gradient. */
#define LOSS_CHUNK_BYTES ((int64_t)64 << 20)
/* A card needs larger products, and each chunk passes once over the fp32 gradient of the embedding. */
#define LOSS_CHUNK_BYTES_CARD ((int64_t)512 << 20)
#define LOSS_CHUNK_ROWS_STEP 64
#define LOSS_CHUNKS_MAX 512
#define ADAM_EPSILON 1e-8f
#define LAYERNORM_EPSILON 1e-5f

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

/* Returns the rows per loss chunk: as many as the byte limit allows, evenly over the rows of a micro-step. */
static int64_t loss_chunk_rows(const struct session *session, const struct model_config *model, int64_t rows)
{
    int64_t most = session->config->loss_chunk;
    if (most <= 0) {
        most = (session->device.info.host_memory ? LOSS_CHUNK_BYTES : LOSS_CHUNK_BYTES_CARD) /
               ((int64_t)dtype_size_bytes(session->device.dtype) * model->padded_vocab_size);
        most = most < LOSS_CHUNK_ROWS_STEP ? LOSS_CHUNK_ROWS_STEP : most;
    }
    most = min_i64(most, rows);
    int64_t chunks = size_ceil_div(rows, most);
    return min_i64(most, size_ceil_div(size_ceil_div(rows, chunks), LOSS_CHUNK_ROWS_STEP) * LOSS_CHUNK_ROWS_STEP);
}

/* Limits the number of loss chunks in a program to LOSS_CHUNKS_MAX, unless the user set loss_chunk. */
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

/* Returns the state format that the run starts with; the search may choose a leaner one. */
static enum state_format states_first(const struct config *config, const struct session_choices *choices)
{
    if (choices->states_chosen)
        return choices->states;
    return config->state_format == CONFIG_STATES_AUTO ? STATE_MASTER : session_state_format(config);
}

/* Returns the factor from the scheduled learning rate to Muon's; 0 when learning_rate is 0. */
static float muon_rate(const struct config *config)
{
    return config->learning_rate > 0.0 ? (float)(config->muon_learning_rate / config->learning_rate) : 0.0f;
}

/* Newton-Schulz needs no more than 16 bits.  Its numbers are within the range of float16, which is used on a device
 * without bfloat16. */
static enum dtype muon_dtype(const struct session *session)
{
    if (session_device_has(&session->device, DTYPE_BF16))
        return DTYPE_BF16;
    return session_device_has(&session->device, DTYPE_F16) ? DTYPE_F16 : DTYPE_F32;
}

/* Parses the recompute key, which config_check() has already accepted. */
static struct recompute_mix recompute_of(const struct config *config)
{
    struct recompute_mix mix;
    const char *why;
    bool good = recompute_read(config->recompute, config->n_layer, &mix, &why);
    assert(good);
    (void)good;
    return mix;
}

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
    /* At most what a run of this configuration chooses, whatever the checkpoint contains. */
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
        .dtype = session->device.dtype,
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

/* Lean states need bfloat16, which the configuration or the device may lack. */
static enum gt_status states_check(const struct session *session, const struct model_options *options)
{
    if (state_format_is_lean(options->states) && options->dtype != DTYPE_BF16) {
        log_error("state_format='%s' needs bfloat16, but weights are stored as %s on %s; %s",
                  state_format_name(options->states), dtype_name(options->dtype), session->device.info.device,
                  session_device_has(&session->device, DTYPE_BF16)
                      ? "add --dtype=bfloat16"
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

/* Returns true when the search may use leaner states.  Never at a resume, whose states already exist. */
static bool states_may_change(const struct session *session, const struct model_options *options)
{
    const struct config *config = session->config;
    bool resumes = strcmp(config->init_from, "resume") == 0;
    bool free = config->state_format == CONFIG_STATES_AUTO && config->allow_lean_states;
    return !resumes && options->dtype == DTYPE_BF16 && (free || config->state_format == CONFIG_STATES_SR_8BIT);
}

/* Returns true when a refusal may suggest leaner states: they would work, and the user has not decided about them. */
static bool states_may_be_offered(const struct session *session, const struct model_options *options)
{
    const struct config *config = session->config;
    bool decided = config_key_was_set(config, CONFIG_KEY_allow_lean_states);
    bool resumes = strcmp(config->init_from, "resume") == 0;
    return !resumes && !decided && options->dtype == DTYPE_BF16 && config->state_format == CONFIG_STATES_AUTO;
}

/* Finds the fastest plan that fits; with --plan, when nothing fits, the smallest one, for the report. */
static enum gt_status session_search(struct session *session, const struct model_options *options)
{
    const struct config *config = session->config;
    TRY(states_check(session, options));
    session->search.request = (struct search_request){
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
        .memo = &session->search.memo,
    };
    session_plan_options(session, &session->search.request.plan);
    enum gt_status status = plan_search(session->mem, &session->search.request, &session->search.result);
    bool answers = config->plan != CONFIG_PLAN_OFF || config->print_program;
    if (status != GT_NO_FIT)
        return status;
    if (answers || session->search.result.unplaceable) /* plan_create() names a tensor that cannot be placed */
        return GT_OK;
    status = session_refuse(session, session->search.result.arena_bytes);
    session_choices_log(session);
    return status;
}

enum gt_status session_plan(struct session *session, const struct model_options *options)
{
    void *array;
    struct plan_options plan;
    session->search.result.options = *options;
    if (options->train)
        TRY(session_search(session, options));
    TRY(model_create(session->mem, &session->search.result.options, &session->model));
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
