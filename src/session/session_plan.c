/* The plan of a session: the options that follow from the configuration and a checkpoint, the
 * fastest plan with them that fits the budget, and what could be done instead if none does.
 *
 * Everything that can be refused is refused here, before the arena is allocated.  The arena gets
 * the budget less the needs of the backend itself and, if the device's memory is the host's, of the
 * process.
 */
#include "session/session_plan.h"
#include "io/peft_targets.h"

#include <config.h>

#include "base/size.h"
#include "config/config_key.h"
#include "config/config_text.h"
#include "model/model_create.h"
#include "plan/plan_alternatives.h"
#include "plan/plan_create.h"
#include "plan/plan_search.h"
#include "plan/plan_verify.h"
#include "session/session_budget.h"
#include "session/session_device.h"

/* Maximum size of the logits of one loss chunk, unless loss_chunk is set.  On a CPU a chunk of some
 * hundred rows already runs its GEMMs at full rate; more rows would save one pass over the
 * embedding's gradient. */
#define LOSS_CHUNK_BYTES ((int64_t)64 << 20)
/* A card needs larger products, and each chunk passes once over the fp32 gradient of the embedding.
 */
#define LOSS_CHUNK_BYTES_CARD ((int64_t)512 << 20)
#define LOSS_CHUNK_ROWS_MIN 64
/* The most tokens of a micro-batch above batch_size, which the plan may choose on a card: more
 * would fill the card for a gain of 1 %. */
#define MICRO_TOKENS_MAX 65536
#define ROWS_MAX (INT32_MAX - 2) /* of a micro-step */
#define PARTS_FINE 8 /* evaluation batches: divisors up to this grow by one, then by an eighth */
#define CHUNK_ROWS_LEAST 64
/* The host_budget of a device profile whose card alone is too small: half of 32 GiB, because with a
 * real card the default is half of what is free. */
#define PROFILE_HOST_BYTES ((uint64_t)16 << 30)

/* A build with --enable-debug puts a guard band after every tensor. */
#ifdef GT_DEBUG
#define DEBUG_GUARD_BYTES 64
#else
#define DEBUG_GUARD_BYTES 0
#endif

void session_model_resolve(struct config *config, int64_t vocab_size, struct model_config *out)
{
    int64_t vocab = config->vocab_size > 0 ? config->vocab_size : vocab_size;
    config_arch_resolve(config);
    config->vocab_size = vocab;
    *out = (struct model_config){
        .shape = config_shape(config),
        .block_size = (int32_t)config->block_size,
        .padded_vocab_size = (int32_t)vocab,
        .dropout = (float)config->dropout,
    };
}

/* Returns the sizes that are decided already: those that ranks have agreed on, else those that keys
 * set.  0: the plan chooses them. */
static struct plan_choice decided(const struct session *session)
{
    const struct config *config = session->config;
    if (session->agreed.micro_batch > 0)
        return session->agreed;
    return (struct plan_choice){.micro_batch = (int32_t)config->micro_batch,
                                .evaluate_batch = (int32_t)config->eval_batch_size,
                                .loss_chunk_rows = (int32_t)min_i64(config->loss_chunk, INT32_MAX)};
}

/* Returns the most rows per loss chunk: as decided, or as many as the byte limit allows. */
static int64_t loss_chunk_most(const struct session *session, const struct model_config *model)
{
    const int64_t rows = decided(session).loss_chunk_rows;
    if (rows > 0)
        return rows;
    const int64_t bytes =
        session->device.info.host_memory ? LOSS_CHUNK_BYTES : LOSS_CHUNK_BYTES_CARD;
    return max_i64(
        bytes / ((int64_t)dtype_size_bytes(session->device.dtype) * model->padded_vocab_size),
        LOSS_CHUNK_ROWS_MIN);
}

/* Returns the rows per loss chunk: those that a checkpoint's plan chose, else evenly over the rows
 * of a micro-step. */
static int64_t loss_chunk_rows(const struct session *session, const struct model_config *model,
                               int64_t chosen, int64_t rows)
{
    if (decided(session).loss_chunk_rows == 0 && chosen > 0)
        return chosen;
    return search_chunk_even(rows, loss_chunk_most(session, model));
}

_Static_assert(CONFIG_STATES_MASTER - 1 == (int)STATE_MASTER &&
                   CONFIG_STATES_SR_8BIT_FULL - 1 == (int)STATE_SR_8BIT_FULL,
               "the words of state_format are auto and the formats, in their order");

enum state_format session_state_format(const struct config *config)
{
    assert(config->state_format != CONFIG_STATES_AUTO);
    return (enum state_format)(config->state_format - 1);
}

/* Returns the factor from the scheduled learning rate to a group's; 1 where the group has none of
 * its own, 0 when learning_rate is 0. */
static float rate_of(const struct config *config, double rate)
{
    if (config->learning_rate <= 0.0)
        return 0.0f;
    return rate > 0.0 ? (float)(rate / config->learning_rate) : 1.0f;
}

static int64_t first_set(int64_t key, int64_t choice, int64_t otherwise)
{
    if (key > 0)
        return key;
    return choice > 0 ? choice : otherwise;
}

/* Returns the number of sequences that are evaluated at once: at most batch_size, unless it is
 * decided. */
static int64_t evaluate_batch(const struct session *session, const struct session_saved *saved,
                              int64_t micro)
{
    const struct config *config = session->config;
    const int64_t most = min_i64(micro, config->batch_size);
    const int64_t batch =
        first_set(decided(session).evaluate_batch, min_i64(saved->plan.evaluate_batch, most), most);
    return config->eval_iters > 0 ? min_i64(batch, config->eval_iters * config->batch_size) : batch;
}

static struct offload_list offload_of(const struct config *config)
{
    struct offload_list list;
    const char *bad;
    const bool good = offload_read(config->offload, &list, &bad);
    assert(good); /* config_check() has accepted the key */
    (void)good;
    return list;
}

/* Returns what blocks recompute: what the key sets, else `planned`.  The key of offload may change
 * it. */
static struct recompute_mix recompute_choose(const struct config *config,
                                             const struct recompute_mix *planned, int32_t n_layer)
{
    struct recompute_mix recompute = *planned;
    const bool was_set = config_key_was_set(config, CONFIG_KEY_recompute);
    const char *why;
    const bool good =
        !was_set || recompute_read(config->recompute, config->n_layer, &recompute, &why);
    assert(good); /* config_check() has accepted the key */
    (void)good;
    if (offload_of(config).residuals) {
        if (!was_set)
            recompute = recompute_uniform(RECOMPUTE_FULL, n_layer);
        recompute_swap(&recompute, RECOMPUTE_FULL, RECOMPUTE_OFFLOAD, INT32_MAX);
    }
    return recompute;
}

/* Returns the classes that `offload` moves to host memory: with adapters only frozen weights. */
static struct offload_mix offload_choose(const struct config *config)
{
    const struct offload_list list = offload_of(config);
    const bool lora = config->lora_rank > 0;
    struct offload_mix mix = {.quarters = {0}};
    if (config->eval_only)
        return mix;
    for (size_t class = 0; class < OFFLOAD_CLASSES && !lora; class ++)
        mix.quarters[class] = list.moves[class] ? OFFLOAD_ALL : 0;
    if (lora && (list.moves[OFFLOAD_STATES] || list.moves[OFFLOAD_WEIGHTS]))
        mix.quarters[OFFLOAD_WEIGHTS] = OFFLOAD_ALL;
    return mix;
}

void session_train_options(const struct session *session, const struct session_saved *saved,
                           const struct model_config *model, struct model_options *out)
{
    const struct config *config = session->config;
    enum state_format states =
        saved->states; /* to begin with; the search may choose a leaner one */
    if (!saved->states_chosen)
        states = config->state_format == CONFIG_STATES_AUTO ? STATE_MASTER
                                                            : session_state_format(config);
    int64_t samples = config->batch_size * config->gradient_accumulation_steps / config->parts;
    int64_t chosen = min_i64(saved->plan.micro_batch,
                             ROWS_MAX / config->block_size); /* a checkpoint may have any number */
    const struct plan_choice set = decided(session);
    int64_t micro = min_i64(first_set(set.micro_batch, chosen, config->batch_size), samples);
    int64_t rows = micro * config->block_size;
    int64_t chunk = loss_chunk_rows(session, model, saved->plan.loss_chunk_rows, rows);
    int64_t evaluate = evaluate_batch(session, saved, micro);
    if (set.loss_chunk_rows == 0)
        chunk = max_i64(
            chunk, size_ceil_div(max_i64(evaluate, micro) * config->block_size, SEARCH_CHUNKS_MAX));
    *out = (struct model_options){
        .config = *model,
        .dtype = session->device.dtype,
        .states = states,
        .muon = config->optimizer == CONFIG_OPTIMIZER_MUON,
        .init = config->init == CONFIG_INIT_ZERO ? MODEL_INIT_ZERO : MODEL_INIT_GPT2,
        .rates = {[GROUP_MATRIX] = 1.0f,
                  [GROUP_MUON] = config->muon_learning_rate > 0.0
                                     ? rate_of(config, config->muon_learning_rate)
                                     : 0.0f,
                  [GROUP_EMBEDDING] = rate_of(config, config->embedding_learning_rate),
                  [GROUP_HEAD] = rate_of(config, config->head_learning_rate),
                  [GROUP_VECTOR] = rate_of(config, config->scalar_learning_rate)},
        /* Newton-Schulz needs no more than 16 bits, and its numbers are within the range of
           float16. */
        .muon_dtype = session_device_dtype(&session->device, DTYPE_BF16),
        .train = !config->eval_only,
        .evaluate = true,
        .generate = config->sample_tokens > 0,
        .document_mask = config->document_mask,
        .parts = (int32_t)config->parts,
        .reduce_dtype = config->reduce_dtype == CONFIG_REDUCE_BFLOAT16 ? DTYPE_BF16 : DTYPE_F32,
        .ranks = (int32_t)config->ranks,
        .rank = session->dist != NULL ? session->dist->rank : 0,
        .generate_batch = 1,
        .choice.loss_chunk_rows = (int32_t)min_i64(chunk, rows),
        .choice.evaluate_batch = (int32_t)evaluate,
        .evaluate_time = (int32_t)config->eval_block_size,
        .choice.recompute = recompute_choose(config, &saved->plan.recompute, model->n_layer),
        .choice.offload = offload_choose(config),
        .prefill_time = (int32_t)min_i64(config->block_size, SESSION_PREFILL_TIME_MAX),
        .beta1 = (float)config->beta1,
        .beta2 = (float)config->beta2,
        .weight_decay = (float)config->weight_decay,
        .muon_weight_decay = (float)(config->muon_weight_decay < 0.0 ? config->weight_decay
                                                                     : config->muon_weight_decay),
        .grad_clip = (float)config->grad_clip,
        .adam_epsilon = (float)config->adam_epsilon,
        .correction_rows = config->eval_only
                               ? 0
                               : model_correction_rows((float)config->beta1, (float)config->beta2,
                                                       config->max_iters + 1),
    };
    measure_micro_batch_set(out, samples, micro);
}

/* Returns the options with which plans for this session's device are made. */
static struct plan_options plan_options_of(const struct session *session)
{
    const struct backend_info *info = &session->device.info;
    return (struct plan_options){
        .device = session->device.backend,
        .info = info,
        .alignment_bytes = info->alignment_bytes,
        .largest_segment_bytes = info->largest_allocation_bytes,
        .guard_bytes = (uint32_t)size_round_up(DEBUG_GUARD_BYTES, info->alignment_bytes),
    };
}

/* ---- training ---- */

/* Lean states need bfloat16, which the configuration or the device may lack. */
static enum gt_status states_check(const struct session *session,
                                   const struct model_options *options)
{
    if (state_format_is_lean(options->states) && options->dtype != DTYPE_BF16)
        return FAIL(GT_USAGE,
                    "state_format='%s' needs bfloat16, but weights are stored as %s on %s; %s",
                    state_format_name(options->states), dtype_name(options->dtype),
                    session->device.info.device,
                    session_device_dtype(&session->device, DTYPE_BF16) == DTYPE_BF16
                        ? "add --dtype=bfloat16"
                        : "only state_format='master' works without bfloat16");
    if (options->muon &&
        state_format_dtypes(options->states, options->dtype, false).moment == DTYPE_U8)
        return FAIL(
            GT_USAGE,
            "optimizer='muon' has no 8-bit momentum; use state_format='sr_bf16' instead of '%s'",
            state_format_name(options->states));
    return GT_OK;
}

/* Logs a note for each key that has no effect. */
static void ignored_log(const struct session *session, const struct model_options *options)
{
    const struct config *config = session->config;
    if (config->allow_lean_states && options->dtype != DTYPE_BF16)
        log_note("allow_lean_states=True is ignored with %s: lean states need bfloat16",
                 dtype_name(options->dtype));
    const struct offload_list offload = offload_of(config);
    if (session->device.info.host_memory && offload.is_auto &&
        (config_key_was_set(config, CONFIG_KEY_offload) ||
         config_key_was_set(config, CONFIG_KEY_host_budget)))
        log_note("offload='auto' moves nothing: the memory of %s is the host's",
                 session->device.info.device);
    if (config->lora_rank > 0 && offload.moves[OFFLOAD_GRADIENTS] && !offload.all)
        log_note("offload='%s' moves no gradients: with lora_rank only weights move",
                 config->offload);
    if (offload.residuals && options->choice.recompute.blocks[RECOMPUTE_OFFLOAD] == 0)
        log_note("offload='%s' moves no block's input: recompute='%s' recomputes no block in full",
                 config->offload, config->recompute);
}

/* Searches again with the host memory that a computer with such a card is assumed to have, if a
 * profile's card alone is too small for every plan, or the user has set what is in host memory;
 * keeps the refusal if that is not enough either. */
static enum gt_status host_assume(struct session *session)
{
    struct search_request request = session->search.request;
    struct search_result result;
    const struct plan_choice *set = &request.options.choice;
    const bool moves = request.pin_offload && (offload_quarters(&set->offload) > 0 ||
                                               set->recompute.blocks[RECOMPUTE_OFFLOAD] > 0);
    if (!session->device.has_profile || (request.pin_offload && !moves) ||
        session->search.result.unplaceable ||
        config_key_was_set(session->config, CONFIG_KEY_host_budget))
        return GT_NO_FIT;
    request.share.host_bytes = PROFILE_HOST_BYTES / (uint64_t)session->config->local_ranks;
    TRY(plan_search(session->mem, &request, &result));
    session->search.request = request;
    session->search.result = result;
    session->device.host_share_bytes = request.share.host_bytes;
    log_note("%sthis plan assumes that up to %s of host memory may be used (--host_budget)",
             moves ? "" : "the card alone is too small; ", LOG_BYTES(PROFILE_HOST_BYTES));
    return GT_OK;
}

#define LORA_RANK_OFFERED 16

/* Sets *out to the adapters that a refusal suggests to a user who tunes all weights of a model. */
static enum gt_status lora_offer(const struct config *config, const struct model_options *options,
                                 struct lora_config *out)
{
    *out = (struct lora_config){.rank = 0};
    if (strcmp(config->init_from, "scratch") == 0 || strcmp(config->init_from, "resume") == 0 ||
        options->config.lora.rank > 0)
        return GT_OK;
    *out = (struct lora_config){.rank = LORA_RANK_OFFERED, .alpha = 2.0 * LORA_RANK_OFFERED};
    return peft_targets_read(config->lora_targets, &options->config, &out->targets);
}

/* Finds the fastest plan that fits; with --plan, when nothing fits, the smallest one, for the
 * report. */
static enum gt_status training_search(struct session *session, const struct model_options *options)
{
    const struct config *config = session->config;
    const struct plan_choice set = decided(session);
    const bool is_auto = config->state_format == CONFIG_STATES_AUTO;
    /* Never for a resumed run, whose states already exist. */
    const bool may_be_lean =
        options->dtype == DTYPE_BF16 && strcmp(config->init_from, "resume") != 0;
    struct lora_config lora;
    TRY(states_check(session, options));
    TRY(lora_offer(config, options, &lora));
    if (session->search.request.samples == 0) /* the session's first plan */
        ignored_log(session, options);
    session->search.request = (struct search_request){
        .options = *options,
        .samples = config->batch_size * config->gradient_accumulation_steps / config->parts,
        .micro_batch_most =
            session->device.info.host_memory
                ? config->batch_size
                : max_i64(config->batch_size, MICRO_TOKENS_MAX / config->block_size),
        .loss_chunk_most = loss_chunk_most(session, &options->config),
        .pin_micro_batch = set.micro_batch > 0,
        .pin_recompute =
            config_key_was_set(config, CONFIG_KEY_recompute) || offload_of(config).residuals,
        .pin_loss_chunk = set.loss_chunk_rows > 0,
        .pin_evaluate_batch = set.evaluate_batch > 0,
        /* A device that shares the host's memory would gain nothing. */
        .pin_offload = !offload_of(config).is_auto || session->device.info.host_memory,
        .resumed = strcmp(config->init_from, "resume") == 0,
        .lean_states = may_be_lean && (is_auto ? config->allow_lean_states
                                               : config->state_format == CONFIG_STATES_SR_8BIT),
        /* A refusal suggests them only to a user who has not decided about them. */
        .lean_offered =
            may_be_lean && is_auto && !config_key_was_set(config, CONFIG_KEY_allow_lean_states),
        .has_weights = strcmp(config->init_from, "scratch") != 0,
        .lora_offered = lora,
        .rates = session_rates_nominal(session),
        .share = session_share(session),
        .memo = &session->search.memo,
        .plan = plan_options_of(session),
    };
    if (options->muon && options->ranks > 1) /* Muon's matrices stay whole, so that ranks differ */
        TRY(measure_rank_set(session->mem, &session->search.request.options));
    enum gt_status status =
        plan_search(session->mem, &session->search.request, &session->search.result);
    if (status == GT_NO_FIT)
        status = host_assume(session);
    bool answers = config->plan != CONFIG_PLAN_OFF || config->print_program;
    /* plan_create() names a tensor that cannot be placed. */
    return status == GT_NO_FIT && (answers || session->search.result.unplaceable) ? GT_OK : status;
}

/* Lets the search choose what a key would set. */
static void pin_clear(struct search_request *request, enum config_key key)
{
    struct plan_choice *choice = &request->options.choice;
    if (key == CONFIG_KEY_micro_batch)
        request->pin_micro_batch = false;
    else if (key == CONFIG_KEY_recompute)
        request->pin_recompute = false;
    else if (key == CONFIG_KEY_loss_chunk)
        request->pin_loss_chunk = false;
    else if (key == CONFIG_KEY_eval_batch_size)
        request->pin_evaluate_batch = false;
    else {
        request->pin_offload = false;
        choice->offload = (struct offload_mix){.quarters = {0}};
        recompute_swap(&choice->recompute, RECOMPUTE_OFFLOAD, RECOMPUTE_FULL, INT32_MAX);
    }
}

/* Gives the bytes of the smallest plan for a request; MEASURE_NEVER: no budget would do. */
static enum gt_status smallest_bytes(const struct session *session,
                                     const struct search_request *request, uint64_t *out)
{
    struct search_request none = *request;
    struct search_result smallest;
    none.share.device_bytes = 0;
    none.lean_states = none.fit_only = false;
    none.options.states = session->search.result.found.options.states;
    const enum gt_status status = plan_search(session->mem, &none, &smallest);
    *out = smallest.unplaceable ? MEASURE_NEVER : smallest.found.arena_bytes;
    return status == GT_NO_FIT ? GT_OK : status;
}

enum gt_status session_pins_text(const struct session *session,
                                 char text[static SESSION_PINS_TEXT_MAX])
{
    static const enum config_key keys[] = {CONFIG_KEY_micro_batch, CONFIG_KEY_recompute,
                                           CONFIG_KEY_loss_chunk, CONFIG_KEY_eval_batch_size,
                                           CONFIG_KEY_offload};
    const int last = session->device.info.host_memory ? 4 : 5; /* offload is of no use there */
    const uint64_t least = session->search.result.found.arena_bytes;
    struct search_request all = session->search.request;
    uint64_t bytes;
    char budget[24];
    size_t used = 0;
    int named = 0;
    text[0] = '\0';
    for (int i = 0; i < last; i++) {
        struct search_request free = session->search.request;
        if (!config_key_was_set(session->config, keys[i]))
            continue;
        pin_clear(&free, keys[i]);
        pin_clear(&all, keys[i]);
        TRY(smallest_bytes(session, &free, &bytes));
        if (bytes >= least)
            continue;
        used += (size_t)snprintf(
            text + used, SESSION_PINS_TEXT_MAX - used, "%s%s without %s=%s",
            named++ > 0 ? ", " : "", search_budget_text(budget, session_budget_of(session, bytes)),
            config_key_info_get(keys[i])->name, CONFIG_KEY_TEXT(session->config, keys[i]));
        assert(used < SESSION_PINS_TEXT_MAX);
    }
    if (named < 2)
        return GT_OK;
    TRY(smallest_bytes(session, &all, &bytes));
    snprintf(text + used, SESSION_PINS_TEXT_MAX - used, ", %s without all of these",
             search_budget_text(budget, session_budget_of(session, bytes)));
    return GT_OK;
}

enum gt_status session_plan_make(struct session *session, const struct model_options *options)
{
    session->search.result.found.options = *options;
    if (options->train)
        TRY(training_search(session, options));
    session->search.result.found.options.rank = options->rank;
    if (session->config->plan == CONFIG_PLAN_OFF)
        search_memo_close(&session->search.memo); /* an answer about a plan goes on searching */
    const struct plan_options plan = plan_options_of(session);
    TRY(model_create(session->mem, &session->search.result.found.options, &session->model));
    TRY(plan_create(session->mem, session->model->graph, &plan, &session->plan));
    if (!plan_verify(session->plan))
        return GT_FAILURE;
    return HOSTMEM_NEW(session->mem, SESSION_STAGING_FLOATS, "staging buffer", &session->staging);
}

/* ---- evaluation ---- */

/* Plans the options and sets *out to true when the plan fits. */
static enum gt_status evaluation_fits(const struct session *session,
                                      const struct model_options *options, bool *out)
{
    const struct plan_options plan = plan_options_of(session);
    const struct plan_share share = session_share(session);
    struct measurement measured;
    TRY(measure_options(session->mem, &plan, options, &measured));
    *out = plan_share_fits(&share, measured.bytes, measured.host_bytes);
    return GT_OK;
}

enum gt_status session_plan_evaluation(struct session *session, const struct model_options *options)
{
    const struct plan_choice *requested = &options->choice;
    struct model_options fitted = *options;
    struct plan_choice *choice = &fitted.choice;
    bool fits;
    TRY(evaluation_fits(session, &fitted, &fits));
    /* If the batch does not fit, takes the largest one that does, or 1 if none does. */
    const bool is_free = decided(session).evaluate_batch == 0;
    for (int64_t k = 2; is_free && !fits && choice->evaluate_batch > 1; k += 1 + k / PARTS_FINE) {
        choice->evaluate_batch = (int32_t)size_ceil_div(requested->evaluate_batch, k);
        TRY(evaluation_fits(session, &fitted, &fits));
    }
    while (!fits && decided(session).loss_chunk_rows == 0 &&
           choice->loss_chunk_rows / 4 >= CHUNK_ROWS_LEAST) {
        choice->loss_chunk_rows /= 4;
        TRY(evaluation_fits(session, &fitted, &fits));
    }
    if (choice->evaluate_batch != requested->evaluate_batch ||
        choice->loss_chunk_rows != requested->loss_chunk_rows)
        log_note("evaluating %" PRId32 " sequences at once does not fit; evaluating %" PRId32
                 " at once, with the loss in chunks of %" PRId32 " rows; the samples are the same",
                 requested->evaluate_batch, choice->evaluate_batch, choice->loss_chunk_rows);
    return session_plan_make(session, &fitted);
}
