/* Repeats updates to explain them: finds the first bad value, and names the samples of a spike.
 *
 * An update is a function of weights, seed and iteration, so its micro-steps can be run again at any time after it.
 * They see the original weights if the update was skipped, and the current ones otherwise.  Values are read through the
 * session's staging buffer.
 */
#include "train/run.h"

#include <float.h>
#include <math.h>

#include "base/size.h"
#include "train/stop.h"

#define DIAGNOSES_MAX 3
#define DEVIATIONS 6.0
#define LOSS_RISE 1.1
#define NORM_RISE 3.0
#define WORST 3
#define TEXT_TOKENS 16
#define TEXT_BYTES 48

/* ---- running the micro-steps again ---- */

/* All pointers are borrowed. */
struct replay {
    struct session *session;
    struct feed *feed;
    const struct step_result *result; /* of the update; no later one is in flight */
    exec_look_fn *look;
    void *context;
    int32_t micro_step; /* the one that is running, or ran last */
    bool enough;        /* set by `look` to skip the remaining micro-steps */
};

/* Runs all micro-steps of an update, those of other ranks included, but not the update program.  A signal ends the
 * replay early.  The scalars that came back with the update's results are the ones that it ran with, so they are sent
 * to the device again.  Weights, moments and the host's scalars stay unchanged; gradients do not.  Nothing is
 * allocated.  Errors: the device's, those of `look`. */
static enum gt_status replay_run(struct replay *replay)
{
    struct session *session = replay->session, alone = *session;
    alone.dist = NULL;
    memcpy(alone.scalars, replay->result->scalars, sizeof alone.scalars);
    exec_dist_set(session->exec, NULL, NULL);
    exec_look_set(session->exec, replay->look, replay->context);
    const int32_t count = model_micro_steps(&session->model->options);
    enum gt_status status = GT_OK;
    for (int32_t k = 0; k < count && status == GT_OK && !replay->enough && !stop_requested(); k++) {
        replay->micro_step = k;
        status = feed_micro_step(replay->feed, &alone, replay->result->iter, k);
    }
    exec_look_set(session->exec, NULL, NULL);
    exec_dist_set(session->exec, session->dist, session->staging);
    TRY(status);
    return session_scalars_set(session);
}

/* ---- the first bad value ----
 *
 * The micro-steps run op by op.  The first output with an infinity or a NaN ends the search.  An input that is not
 * finite can then only be a weight, because everything else was an output before.  If all outputs are finite, the
 * squares of the gradients are added up as the update does. */

/* The result of scanning a tensor's values. */
struct scan {
    int32_t tensor;
    int64_t bad; /* the first element that is not finite, -1 = none */
    float value; /* its value */
    float largest;
    double squares;
};

struct search {
    struct replay replay;
    const struct op *op; /* the first op with an output that is not finite, or NULL */
    struct scan output;  /* of `op`; while there is none, the last output scanned */
    struct scan input;   /* an input of `op`: one that is not finite, else the largest */
};

static enum gt_status tensor_scan(struct session *session, int32_t tensor, struct scan *out)
{
    const struct graph *graph = session->model->graph;
    const enum dtype dtype = graph->tensors[tensor].dtype;
    const bool scalars = tensor == session->model->scalars; /* only one of its words is a float that ops add to */
    int64_t first = scalars ? SCALAR_LOSS_SUM : 0;
    const int64_t end = scalars ? first + 1 : graph_tensor_elements(graph, tensor);
    *out = (struct scan){.tensor = tensor, .bad = -1};
    while (first < end && (dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16)) {
        const int64_t count = min_i64(end - first, SESSION_STAGING_FLOATS);
        TRY(values_download(session->exec, graph, tensor, first, session->staging, count));
        for (int64_t i = 0; i < count; i++) {
            const float value = session->staging[i];
            if (!isfinite(value)) {
                out->bad = first + i;
                out->value = value;
                return GT_OK;
            }
            out->largest = fmaxf(out->largest, fabsf(value));
            out->squares += (double)value * (double)value;
        }
        first += count;
    }
    return GT_OK;
}

/* Returns true when the op has left the operand unchanged: no operand that it writes shares the storage. */
static bool is_kept(const struct graph *graph, const struct op *op, int32_t slot)
{
    bool kept = op->operand[slot] != TENSOR_NONE;
    for (int32_t s = 0; s < op_declaration(op->kind)->operands && kept; s++)
        kept = op->operand[s] == TENSOR_NONE || op_direction(op->kind, &op->attrs, s) == OPERAND_IN ||
               graph_storage(graph, op->operand[s]) != graph_storage(graph, op->operand[slot]);
    return kept;
}

static enum gt_status inputs_scan(struct search *search)
{
    const struct model *model = search->replay.session->model;
    const struct op *op = search->op;
    for (int32_t s = 0; s < op_declaration(op->kind)->operands; s++) {
        struct scan scan;
        if (!is_kept(model->graph, op, s) || op->operand[s] == model->scalars)
            continue;
        TRY(tensor_scan(search->replay.session, op->operand[s], &scan));
        if (search->input.bad < 0 && (scan.bad >= 0 || scan.largest > search->input.largest))
            search->input = scan;
    }
    return GT_OK;
}

/* Called after each op: finds the first output that is not finite, and scans the inputs of its op. */
static enum gt_status bad_look(void *context, int32_t program, int32_t index)
{
    struct search *search = context;
    const struct op *op = &search->replay.session->model->graph->programs[program].ops[index];
    for (int32_t s = 0; s < op_declaration(op->kind)->operands && search->op == NULL; s++) {
        if (op->operand[s] == TENSOR_NONE || op_direction(op->kind, &op->attrs, s) == OPERAND_IN)
            continue;
        TRY(tensor_scan(search->replay.session, op->operand[s], &search->output));
        if (search->output.bad < 0)
            continue;
        search->op = op;
        search->replay.enough = true;
        TRY(inputs_scan(search));
    }
    return GT_OK;
}

/* Writes "h.3.attn.y[12, 17] = inf". */
static const char *value_text(const struct session *session, const struct scan *scan, char text[static 192])
{
    const struct tensor *tensor = &session->model->graph->tensors[scan->tensor];
    int used = snprintf(text, 192, "%s", tensor->name);
    int64_t stride = graph_tensor_elements(session->model->graph, scan->tensor), rest = scan->bad;
    for (int32_t d = 0; d < tensor->rank; d++) {
        stride /= tensor->dims[d];
        used += snprintf(text + used, (size_t)(192 - used), "%s%" PRId64, d == 0 ? "[" : ", ", rest / stride);
        rest %= stride;
    }
    snprintf(text + used, (size_t)(192 - used), "] = %g", (double)scan->value);
    return text;
}

/* Scans the gradients after the last micro-step: adds up their squares, as the update does in fp32, and finds the
 * largest. */
static enum gt_status norm_log(struct session *session, int64_t iter, int32_t moved)
{
    const struct parameter_list *parameters = &session->model->parameters;
    const bool in_step = model_adds_in_step(&session->model->options);
    struct scan scan, largest = {.largest = -1.0f};
    double squares = 0.0;
    for (int32_t i = 0; i < parameters->count; i++) {
        const struct parameter *parameter = &parameters->at[i];
        /* Of several ranks, the last part's, since this rank does not have all sums; if it is gone, the sums it has. */
        const int32_t gradient = session->dist != NULL && !in_step ? parameter->part_gradient : parameter->gradient;
        if (gradient == TENSOR_NONE)
            continue;
        TRY(tensor_scan(session, gradient, &scan));
        squares += scan.squares;
        if (scan.largest > largest.largest)
            largest = scan;
    }
    if (squares > (double)FLT_MAX)
        log_warning("iter %" PRId64 ": every value is finite, but the gradient is too large for its norm: %g in %s",
                    iter, (double)largest.largest, session->model->graph->tensors[largest.tensor].name);
    else if (moved > 0)
        log_warning("iter %" PRId64 ": computed again with the weights of %" PRId32 " update%s later, every value is "
                    "finite; log_interval=1 would look before they change",
                    iter, moved, moved == 1 ? "" : "s");
    else
        log_warning("iter %" PRId64 ": computed again from the same weights and samples, every value is finite: the "
                    "memory or the processor of %s makes mistakes",
                    iter, session->device.info.device);
    return GT_OK;
}

static void found_log(const struct search *search, int32_t moved)
{
    const int64_t iter = search->replay.result->iter;
    const struct session *session = search->replay.session;
    const struct op *op = search->op;
    char text[192], place[96] = "";
    if (op->layer >= 0)
        snprintf(place, sizeof place, " of layer %" PRId32, op->layer);
    if (model_micro_steps(&session->model->options) > 1)
        snprintf(place + strlen(place), sizeof place - strlen(place), ", micro-step %" PRId32 " of %" PRId32,
                 search->replay.micro_step + 1, model_micro_steps(&session->model->options));
    if (moved > 0)
        snprintf(place + strlen(place), sizeof place - strlen(place), ", with weights of %" PRId32 " update%s later",
                 moved, moved == 1 ? "" : "s");
    if (search->input.bad >= 0)
        log_warning("iter %" PRId64 ": a weight is not finite: %s, read by %s%s; an earlier update made it so", iter,
                    value_text(session, &search->input, text), op_declaration(op->kind)->name, place);
    else
        log_warning("iter %" PRId64 ": the first value that is not finite: %s, made by %s%s, from inputs up to %.3g",
                    iter, value_text(session, &search->output, text), op_declaration(op->kind)->name, place,
                    (double)search->input.largest);
}

/* `moved`: number of updates that have changed the weights since. */
static enum gt_status bad_log(struct diagnosis *diagnosis, const struct step_result *result, int32_t moved)
{
    struct search search = {
        .replay = {diagnosis->session, diagnosis->feed, result, bad_look, &search, 0, false},
        .output = {.bad = -1},
        .input = {.bad = -1},
    };
    TRY(replay_run(&search.replay));
    if (search.op)
        found_log(&search, moved);
    else if (!stop_requested())
        TRY(norm_log(diagnosis->session, result->iter, moved));
    return GT_OK;
}

/* ---- spikes ----
 *
 * Mean and deviation are those of the window before the update.  The update joins the window, spike or not, so that a
 * new level soon becomes the usual one.  Losses per sample are read after loss_sum, when those of the whole micro-step
 * are complete. */

/* Adds a value to the window and sets *usual.  Returns true when the value stood out of the window.  The window's
 * values are logarithms, because norms, and losses of a memorized text, vary by factors. */
static bool stands_out(float window[static SPIKES_WINDOW], int64_t at, double value, double rise, double *usual)
{
    double sum = 0.0, squares = 0.0;
    const double logarithm = log(value > DBL_MIN ? value : DBL_MIN);
    for (int i = 0; i < SPIKES_WINDOW; i++)
        sum += (double)window[i];
    const double mean = sum / SPIKES_WINDOW;
    for (int i = 0; i < SPIKES_WINDOW; i++)
        squares += ((double)window[i] - mean) * ((double)window[i] - mean);
    window[at] = (float)logarithm;
    *usual = exp(mean);
    return logarithm > mean + DEVIATIONS * sqrt(squares / SPIKES_WINDOW) && value > rise * *usual;
}

bool spikes_add(struct spikes *spikes, int64_t iter, double loss, double norm, struct spike *out)
{
    struct spike spike = {.loss = loss, .norm = norm};
    const int64_t at = spikes->count++ % SPIKES_WINDOW;
    const bool high_loss = stands_out(spikes->loss, at, loss, LOSS_RISE, &spike.usual_loss);
    const bool high_norm = stands_out(spikes->norm, at, norm, NORM_RISE, &spike.usual_norm);
    if (spikes->count <= SPIKES_WINDOW || iter < spikes->quiet_till || !(high_loss || high_norm))
        return false;
    spikes->quiet_till = iter + SPIKES_WINDOW;
    *out = spike;
    return true;
}

/* The samples with the highest losses, highest first. */
struct worst {
    struct replay *replay;
    int32_t count;
    struct {
        int64_t sample; /* its index in the update */
        double loss;
    } at[WORST + 1]; /* the last one is spare */
};

static void worst_insert(struct worst *worst, int64_t sample, double loss)
{
    int32_t place = worst->count;
    for (; place > 0 && worst->at[place - 1].loss < loss; place--)
        worst->at[place] = worst->at[place - 1];
    worst->at[place].sample = sample;
    worst->at[place].loss = loss;
    worst->count += worst->count < WORST;
}

/* Called after each op.  The inputs of loss_sum contain all losses of the micro-step. */
static enum gt_status losses_look(void *context, int32_t program, int32_t index)
{
    struct worst *worst = context;
    struct session *session = worst->replay->session;
    const struct graph *graph = session->model->graph;
    const struct op *op = &graph->programs[program].ops[index];
    const int64_t time = worst->replay->feed->block_size;
    if (op->kind != OP_LOSS_SUM)
        return GT_OK;
    const int64_t samples = graph_tensor_elements(graph, op->operand[LOSS_SUM_LOSSES]) / time;
    for (int64_t s = 0; s < samples; s++) {
        double sum = 0.0;
        for (int64_t done = 0; done < time; done += SESSION_STAGING_FLOATS) {
            const int64_t part = min_i64(time - done, SESSION_STAGING_FLOATS);
            TRY(exec_download(session->exec, op->operand[LOSS_SUM_LOSSES], s * time + done, session->staging, part));
            for (int64_t i = 0; i < part; i++)
                sum += (double)session->staging[i];
        }
        worst_insert(worst, worst->replay->micro_step * (int64_t)session->model->options.choice.micro_batch + s,
                     sum / (double)time);
    }
    return GT_OK;
}

/* Returns the beginning of the sample's text, in quotes after a colon; empty when it is unknown. */
static const char *text_begin(struct token_source *source, const struct tokenizer *tokenizer, int64_t position,
                              int64_t block_size, char text[static TEXT_BYTES + 8])
{
    struct tokenizer_stream stream = {0};
    int32_t ids[TEXT_TOKENS];
    char part[TOKENIZER_TEXT_MAX];
    const int64_t count = min_i64(block_size, TEXT_TOKENS);
    size_t used = 3;
    text[0] = '\0';
    if (!tokenizer || token_source_read(source, position, count, ids) != GT_OK)
        return text;
    memcpy(text, ": \"", used);
    for (int64_t i = 0; i < count; i++) {
        const size_t length = tokenizer_stream_push(tokenizer, &stream, ids[i], part);
        if (used + length > TEXT_BYTES)
            break;
        memcpy(text + used, part, length);
        used += length;
    }
    memcpy(text + used, "\"", 2);
    return text;
}

static void sample_log(const struct worst *worst, int32_t place, const struct tokenizer *tokenizer)
{
    struct feed *feed = worst->replay->feed;
    const int64_t iter = worst->replay->result->iter, sample = worst->at[place].sample;
    int64_t position;
    struct token_source *source = feed_sample(feed, iter, sample, &position);
    size_t shard = source->shard_count - 1;
    char text[TEXT_BYTES + 8];
    while (shard > 0 && source->shards[shard].first > position)
        shard--;
    const int64_t first = position - source->shards[shard].first;
    log_note("iter %" PRId64 ": sample %" PRId64 ", loss %.4g: %s, tokens %" PRId64 " to %" PRId64 "%s", iter, sample,
             worst->at[place].loss, source->shards[shard].path, first, first + feed->block_size - 1,
             text_begin(source, tokenizer, position, feed->block_size, text));
}

/* Adds the update to the window.  If it is a spike, logs one line for it and one for each of the three samples with the
 * highest losses under the current weights. */
static enum gt_status spike_check(struct diagnosis *diagnosis, const struct step_result *result, double loss)
{
    struct spike spike;
    struct replay replay = {
        .session = diagnosis->session, .feed = diagnosis->feed, .result = result, .look = losses_look};
    struct worst worst = {.replay = &replay};
    replay.context = &worst;
    if (!spikes_add(&diagnosis->spikes, result->iter, loss, (double)result->scalars[SCALAR_GRAD_NORM].f, &spike))
        return GT_OK;
    progress_clear(diagnosis->progress);
    log_warning("iter %" PRId64 ": a spike: loss %.4g (usually %.4g), gradient norm %.3g (usually %.3g)", result->iter,
                spike.loss, spike.usual_loss, spike.norm, spike.usual_norm);
    TRY(replay_run(&replay));
    for (int32_t i = 0; i < worst.count; i++)
        sample_log(&worst, i, diagnosis->tokenizer);
    return GT_OK;
}

enum gt_status diagnose_step(struct diagnosis *diagnosis, int32_t index, int32_t count, double loss)
{
    const struct step_result *result = &diagnosis->ahead->step[index];
    const bool skipped = result->scalars[SCALAR_FOUND_INF].i != 0;
    const bool bad = (skipped && result->loss_scale <= 1.0) || !isfinite(loss);
    const bool due = bad && !diagnosis->was_bad && diagnosis->done < DIAGNOSES_MAX;
    int32_t moved = 0;
    diagnosis->was_bad = bad;
    if (!bad && !skipped)
        return spike_check(diagnosis, result, loss);
    if (!due)
        return GT_OK;
    diagnosis->done++;
    for (int32_t i = index; i < count; i++)
        moved += diagnosis->ahead->step[i].scalars[SCALAR_FOUND_INF].i == 0;
    progress_clear(diagnosis->progress);
    return bad_log(diagnosis, result, moved);
}
