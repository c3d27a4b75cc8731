/* Finds alternatives that fit when the requested configuration does not.
 *
 * The same search runs again with other keys pinned: only the micro-batch free, only recompute
 * free, everything free. Leaner states are suggested if only they fit, or if they save much of the
 * time, and the user has not decided about them.  If nothing fits with the user's pins, a shorter
 * block, fewer layers or fewer heads follow, each as large as fits, found by bisection.  A model
 * whose weights come from files has a given shape: adapters are suggested instead.  All these train
 * something else, and their kind says so.  Every alternative is planned for real before it is
 * listed.
 */
#include "plan/plan_alternatives.h"

#include "base/size.h"
#include "model/parameters.h"
#include "plan/plan_search.h"

/* Smaller models have layers and heads reduced in steps of this fraction. */
#define MODEL_SHRINK_STEPS 16
/* The most host memory that an alternative may ask for: as much as a desktop's mainboard takes. */
#define HOST_OFFERED_MAX ((uint64_t)256 << 30)
#define BLOCK_STEP 64 /* shorter blocks are multiples of this, if the requested one is above it */

struct chooser {
    struct hostmem *mem;
    struct search_request *request;
    double fastest; /* seconds of the plan if it fits and nothing is pinned, else 0 */
    struct search_alternative *out; /* [SEARCH_ALTERNATIVES_MAX] */
    int32_t count;
};

const char *search_alternative_name(enum alternative_kind kind)
{
    static const char *const names[ALTERNATIVE_KINDS] = {
        "search",    "micro_batch", "recompute", "host_budget", "states",
        "lora_rank", "block_size",  "n_layer",   "n_head",      "model"};
    assert(kind >= 0 && kind < ALTERNATIVE_KINDS);
    return names[kind];
}

char *search_options_text(char text[static SEARCH_OPTIONS_TEXT_MAX],
                          const struct model_options *options)
{
    char choice[PLAN_CHOICE_TEXT_MAX];
    bool lean = state_format_is_lean(options->states);
    snprintf(text, SEARCH_OPTIONS_TEXT_MAX, "%s%s%s",
             plan_choice_text(choice, &options->choice, options->config.n_layer,
                              options->config.lora.rank > 0),
             lean ? ", states " : "", lean ? state_format_name(options->states) : "");
    return text;
}

char *search_budget_text(char text[static 24], uint64_t bytes)
{
    const uint64_t mib = (uint64_t)1 << 20;
    uint64_t whole =
        bytes / mib + 1; /* at least a byte more than needed, for a reader that rounds down */
    uint64_t hundredths = whole / 1024 * 100 + whole % 1024 * 100 / 1024 + 1;
    if (whole < 1024)
        snprintf(text, 24, "%" PRIu64 "MiB", whole);
    else
        snprintf(text, 24, "%" PRIu64 ".%02" PRIu64 "GiB", hundredths / 100, hundredths % 100);
    return text;
}

char *search_request_text(char text[static SEARCH_REQUEST_TEXT_MAX],
                          const struct search_result *result)
{
    if (result->bytes_request == MEASURE_NEVER)
        snprintf(text, SEARCH_REQUEST_TEXT_MAX, "a tensor above the card's largest allocation");
    else
        snprintf(text, SEARCH_REQUEST_TEXT_MAX, "%s%s",
                 result->bytes_request_least ? "at least " : "", LOG_BYTES(result->bytes_request));
    return text;
}

char *search_time_text(char text[static SEARCH_TIME_TEXT_MAX], const struct search_result *result)
{
    const double percent = 100.0 * (result->found.seconds / result->seconds_request - 1.0);
    const bool free = !result->request_fits && percent < 0.05;
    if (!(result->seconds_request > 0.0))
        return strcpy(text, "no time to compare with");
    snprintf(text, SEARCH_TIME_TEXT_MAX,
             free ? "no more time (estimated)" : "%+.1f %% time (estimated)", percent);
    return text;
}

/* Appends "name word", after a comma if the text is not empty. */
static void word_add(char text[static SEARCH_CHANGES_MAX], const char *name, const char *word)
{
    size_t used = strlen(text);
    snprintf(text + used, SEARCH_CHANGES_MAX - used, "%s%s %s", used > 0 ? ", " : "", name, word);
}

/* The same for a number, unless it is the requested one. */
static void change_add(char text[static SEARCH_CHANGES_MAX], const char *name, int64_t value,
                       int64_t requested)
{
    if (value != requested)
        word_add(text, name, TEXT(24, "%" PRId64, value));
}

char *search_changes_text(char text[static SEARCH_CHANGES_MAX], const struct model_options *options,
                          const struct model_options *requested)
{
    char recompute[RECOMPUTE_TEXT_MAX];
    text[0] = '\0';
    change_add(text, "lora_rank", options->config.lora.rank, requested->config.lora.rank);
    change_add(text, "block_size", options->config.block_size, requested->config.block_size);
    change_add(text, "n_layer", options->config.n_layer, requested->config.n_layer);
    change_add(text, "n_head", options->config.n_head, requested->config.n_head);
    change_add(text, "n_embd", options->config.n_embd, requested->config.n_embd);
    if (!model_is_gpt2(&requested->config)) {
        change_add(text, "n_kv_head", options->config.n_kv_head, requested->config.n_kv_head);
        change_add(text, "n_inner", options->config.n_inner, requested->config.n_inner);
    }
    change_add(text, "micro_batch", options->choice.micro_batch, requested->choice.micro_batch);
    if (!recompute_equal(&options->choice.recompute, &requested->choice.recompute))
        word_add(text, "recompute",
                 recompute_text(recompute, &options->choice.recompute, options->config.n_layer,
                                " x", " + "));
    /* A chunk that became smaller only because the micro-batch did is no change. */
    int64_t rows = (int64_t)options->choice.micro_batch * options->config.block_size;
    if (options->choice.loss_chunk_rows != rows || requested->choice.loss_chunk_rows < rows)
        change_add(text, "loss_chunk", options->choice.loss_chunk_rows,
                   requested->choice.loss_chunk_rows);
    if (options->choice.evaluate_batch != options->choice.micro_batch &&
        options->choice.evaluate_batch != requested->choice.evaluate_batch)
        change_add(text, "eval_batch_size", options->choice.evaluate_batch,
                   requested->choice.evaluate_batch);
    if (!offload_equal(&options->choice.offload, &requested->choice.offload)) {
        char offload[OFFLOAD_TEXT_MAX];
        word_add(text, "offload",
                 offload_text(offload, &options->choice.offload, options->config.lora.rank > 0));
    }
    if (options->states != requested->states)
        word_add(text, "state_format", state_format_name(options->states));
    if (text[0] == '\0')
        snprintf(text, SEARCH_CHANGES_MAX, "as configured");
    return text;
}

char *search_alternative_text(char text[static SEARCH_CHANGES_MAX],
                              const struct search_alternative *choice,
                              const struct model_options *requested)
{
    char budget[24];
    search_changes_text(text, &choice->options, requested);
    size_t used = strlen(text);
    if (choice->by_allowing)
        snprintf(text + used, SEARCH_CHANGES_MAX - used, ", with --allow_lean_states=True");
    else if (choice->by_host_budget)
        snprintf(text + used, SEARCH_CHANGES_MAX - used, ", with --host_budget=%s",
                 search_budget_text(budget, choice->host_bytes));
    return text;
}

/* Adds the result of the search for `request`, if it fits, unless the list has an equal choice.
 * Choices that change no result but the order of sums are sorted by modelled time.  A choice with a
 * key pinned need not be in the grid of the search without pins, and may be faster than its result
 * by a millionth. */
static enum gt_status alternative_try(struct chooser *chooser, const struct search_request *request,
                                      enum alternative_kind kind)
{
    struct search_result result;
    if (chooser->count == SEARCH_ALTERNATIVES_MAX)
        return GT_OK;
    enum gt_status status = plan_search(chooser->mem, request, &result);
    if (status == GT_NO_FIT)
        return GT_OK;
    TRY(status);
    assert(plan_share_fits(&request->share, result.found.arena_bytes, result.found.host_bytes));
    if (result.found.seconds < chooser->fastest)
        return GT_OK;
    for (int32_t i = 0; i < chooser->count; i++) {
        const struct model_options *other = &chooser->out[i].options,
                                   *options = &result.found.options;
        if (plan_choice_equal(&other->choice, &options->choice) &&
            other->states == options->states &&
            other->config.block_size == options->config.block_size &&
            other->config.n_layer == options->config.n_layer &&
            other->config.n_head == options->config.n_head &&
            other->config.lora.rank == options->config.lora.rank)
            return GT_OK;
    }
    int32_t at = chooser->count++;
    for (; search_alternative_equivalent(kind) && at > 0 &&
           chooser->out[at - 1].seconds > result.found.seconds;
         at--)
        chooser->out[at] = chooser->out[at - 1];
    chooser->out[at] = result.found;
    chooser->out[at].kind = kind;
    chooser->out[at].by_host_budget =
        request->share.host_bytes > chooser->request->share.host_bytes;
    return GT_OK;
}

static uint64_t host_offered(const struct plan_share *share)
{
    return share->host_bytes > HOST_OFFERED_MAX ? share->host_bytes : HOST_OFFERED_MAX;
}

/* Adds alternatives that change no result but the order of sums.  Single changes come first, so
 * that the free search adds only results that differ from them. */
static enum gt_status equivalents_add(struct chooser *chooser, bool fill)
{
    struct search_request request = *chooser->request;
    request.pin_micro_batch = false;
    request.pin_recompute = request.pin_loss_chunk = true;
    TRY(alternative_try(chooser, &request, ALTERNATIVE_MICRO_BATCH));
    request.pin_micro_batch = true;
    request.pin_recompute = request.pin_loss_chunk = false;
    TRY(alternative_try(chooser, &request, ALTERNATIVE_RECOMPUTE));
    request.pin_micro_batch = request.pin_evaluate_batch = false;
    TRY(alternative_try(chooser, &request, ALTERNATIVE_SEARCHED));
    /* Plans for a part of the budget leave memory for other uses. */
    for (uint64_t quarters = 3; fill && quarters >= 1 && chooser->count > 0; quarters--) {
        request.share.device_bytes = chooser->request->share.device_bytes / 4 * quarters;
        TRY(alternative_try(chooser, &request, ALTERNATIVE_SEARCHED));
    }
    /* Suggests the host_budget of the fewest offload classes that will do, with the leanest states
     * that are allowed. */
    request.share.host_bytes = host_offered(&request.share);
    for (enum state_format next = request.options.states;
         request.lean_states && next != STATE_FORMATS; next = search_states_next(&request.options))
        request.options.states = next;
    for (request.offload_classes_most = 1; request.offload_classes_most <= OFFLOAD_CLASSES &&
                                           !request.pin_offload && chooser->count == 0;
         request.offload_classes_most++)
        TRY(alternative_try(chooser, &request, ALTERNATIVE_HOST));
    return GT_OK;
}

/* Adds the widest of the leaner state formats that fits, if nothing else fits or everything else is
 * much slower.  It replaces the last choice if the list is full. */
static enum gt_status states_add(struct chooser *chooser, const struct search_result *pinned)
{
    struct search_request request = *chooser->request;
    struct search_result result;
    /* Leaner states only save the time that the tight budget costs, since no plan is much faster
     * than the requested one. */
    const bool other = chooser->count > 0 && chooser->out[0].kind != ALTERNATIVE_HOST;
    bool hopeless = other && SEARCH_LEAN_SHARE * chooser->out[0].seconds < pinned->seconds_request;
    bool offered = request.lean_offered && !request.lean_states && !hopeless;
    request.options.states = search_states_next(&request.options);
    request.lean_states = true;
    if (!offered || request.options.states == STATE_FORMATS)
        return GT_OK;
    enum gt_status status = plan_search(chooser->mem, &request, &result);
    if (status == GT_NO_FIT)
        return GT_OK;
    TRY(status);
    if (other && result.found.seconds > SEARCH_LEAN_SHARE * chooser->out[0].seconds)
        return GT_OK;
    chooser->count -= chooser->count == SEARCH_ALTERNATIVES_MAX;
    result.found.kind = ALTERNATIVE_STATES;
    result.found.by_allowing = !pinned->fits;
    chooser->out[chooser->count++] = result.found;
    return GT_OK;
}

/* Adds adapters on the given weights, if they fit with the requested block, possibly with more host
 * memory. */
static enum gt_status lora_add(struct chooser *chooser)
{
    struct search_request request = *chooser->request;
    const int32_t before = chooser->count;
    if (request.lora_offered.rank == 0)
        return GT_OK;
    request.options.config.lora = request.lora_offered;
    request.options.muon = false;
    request.options.states = STATE_MASTER;
    request.lean_states = false;
    request.memo = NULL;
    TRY(alternative_try(chooser, &request, ALTERNATIVE_LORA));
    request.share.host_bytes = host_offered(&request.share);
    return chooser->count > before || request.pin_offload
               ? GT_OK
               : alternative_try(chooser, &request, ALTERNATIVE_LORA);
}

/* Shrinks the dimension of the kind to `units`.  Returns false when the result is no valid model.
 */
static bool shrink(struct model_options *options, enum alternative_kind kind, int64_t units)
{
    struct model_config *config = &options->config;
    int64_t heads = config->n_head, layers = config->n_layer, width = config->n_embd;
    const int64_t group = config->n_head / config->n_kv_head;
    if (kind == ALTERNATIVE_BLOCK_SIZE) {
        config->block_size =
            (int32_t)(config->block_size > BLOCK_STEP ? units * BLOCK_STEP : units);
        if (options->prefill_time > config->block_size)
            options->prefill_time = config->block_size;
        return true;
    }
    if (kind == ALTERNATIVE_LAYERS || kind == ALTERNATIVE_MODEL)
        layers =
            kind == ALTERNATIVE_LAYERS ? units : size_ceil_div(layers * units, MODEL_SHRINK_STEPS);
    if (kind == ALTERNATIVE_WIDTH || kind == ALTERNATIVE_MODEL)
        heads =
            kind == ALTERNATIVE_WIDTH ? units : size_ceil_div(heads * units, MODEL_SHRINK_STEPS);
    config->n_inner = (int32_t)(config->n_inner * heads / config->n_head);
    config->n_embd = (int32_t)(width * heads / config->n_head);
    config->n_layer = (int32_t)layers;
    config->n_head = (int32_t)heads;
    config->n_kv_head = (int32_t)(heads / group);
    recompute_shrink(&options->choice.recompute, config->n_layer);
    return heads % group == 0;
}

/* Bisects for the most units that fit, by a lower bound of the smallest plan, and adds the fastest
 * choice with them. */
static enum gt_status shrunk_add(struct chooser *chooser, enum alternative_kind kind)
{
    const struct model_config *config = &chooser->request->options.config;
    const int64_t whole[ALTERNATIVE_KINDS] = {
        [ALTERNATIVE_BLOCK_SIZE] = config->block_size > BLOCK_STEP
                                       ? size_ceil_div(config->block_size, BLOCK_STEP)
                                       : config->block_size,
        [ALTERNATIVE_LAYERS] = config->n_layer,
        [ALTERNATIVE_WIDTH] = config->n_head,
        [ALTERNATIVE_MODEL] = MODEL_SHRINK_STEPS,
    };
    int64_t low = 0, high = whole[kind]; /* low fits, high does not */
    const int32_t before = chooser->count;
    struct search_request request;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        uint64_t bytes = MEASURE_NEVER;
        request = *chooser->request;
        request.memo = NULL;
        if (shrink(&request.options, kind, middle))
            TRY(search_bytes_least(chooser->mem, &request, &bytes));
        *(plan_share_fits(&request.share, bytes, 0) ? &low : &high) = middle;
    }
    for (; low > 0 && chooser->count == before && before < SEARCH_ALTERNATIVES_MAX; low--) {
        request = *chooser->request;
        request.memo = NULL;
        if (shrink(&request.options, kind, low))
            TRY(alternative_try(chooser, &request, kind));
    }
    return GT_OK;
}

static enum gt_status alternatives_find(struct chooser *chooser)
{
    struct search_result pinned;
    struct search_request *request = chooser->request;
    enum gt_status status = plan_search(chooser->mem, request, &pinned);
    if (status != GT_OK && status != GT_NO_FIT)
        return status;
    if (status == GT_NO_FIT && pinned.found.host_bytes > request->share.host_bytes) {
        request->options.choice.offload = (struct offload_mix){.quarters = {0}};
        recompute_swap(&request->options.choice.recompute, RECOMPUTE_OFFLOAD, RECOMPUTE_FULL,
                       INT32_MAX);
    }
    if (status == GT_OK && !request->pin_micro_batch && !request->pin_recompute &&
        !request->pin_loss_chunk && !request->pin_evaluate_batch)
        chooser->fastest = pinned.found.seconds;
    TRY(equivalents_add(chooser, status == GT_OK));
    TRY(states_add(chooser, &pinned));
    if (status == GT_NO_FIT && chooser->count == SEARCH_ALTERNATIVES_MAX &&
        search_alternative_equivalent(chooser->out[SEARCH_ALTERNATIVES_MAX - 1].kind))
        chooser->count--; /* makes room for one that is not equivalent */
    if (status == GT_NO_FIT)
        TRY(lora_add(chooser));
    const int end = request->has_weights ? ALTERNATIVE_BLOCK_SIZE + 1 : ALTERNATIVE_KINDS;
    for (int kind = ALTERNATIVE_BLOCK_SIZE; status == GT_NO_FIT && kind < end; kind++)
        TRY(shrunk_add(chooser, (enum alternative_kind)kind));
    return GT_OK;
}

enum gt_status search_alternatives(struct hostmem *mem, const struct search_request *request,
                                   struct search_alternative out[static SEARCH_ALTERNATIVES_MAX],
                                   int32_t *count)
{
    struct search_memo memo = {0};
    struct search_request fit_request = *request;
    struct chooser chooser = {.mem = mem, .request = &fit_request, .out = out};
    fit_request.memo = request->memo ? request->memo : &memo;
    fit_request.fit_only = true;
    enum gt_status status = alternatives_find(&chooser);
    search_memo_close(&memo);
    *count = chooser.count;
    return status;
}
