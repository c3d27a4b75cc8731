/* Repeats updates to explain them: finds the first bad value, and names the samples of a spike.
 *
 * An update is a function of weights, seed and iteration, so its micro-steps can be run again at
 * any time after it. They see the original weights if the update was skipped, and the current ones
 * otherwise.  Values are read through the session's staging buffer.
 */
#include "train/diagnose.h"

#include <float.h>
#include <math.h>

#include "base/size.h"
#include "session/bad_value.h"
#include "session/stop.h"

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
    exec_callback_fn *look;
    void *context;
    int32_t micro_step; /* the one that is running, or ran last */
    bool enough;        /* set by `look` to skip the remaining micro-steps */
};

/* Runs all micro-steps of an update, those of other ranks included, but not the update program.  A
 * signal ends the replay early.  The scalars that came back with the update's results are the ones
 * that it ran with, so they are sent to the device again.  Weights, moments and the host's scalars
 * stay unchanged; gradients do not.  Nothing is allocated.  Errors: the device's, those of `look`.
 */
static enum gt_status replay_run(struct replay *replay)
{
    struct session *session = replay->session, alone = *session;
    alone.dist = NULL;
    memcpy(alone.scalars, replay->result->scalars, sizeof alone.scalars);
    exec_dist_set(session->exec, NULL, NULL);
    exec_callback_set(session->exec, replay->look, replay->context);
    const int32_t count = model_micro_steps(&session->model->options);
    enum gt_status status = GT_OK;
    for (int32_t k = 0; k < count && status == GT_OK && !replay->enough && !stop_requested(); k++) {
        replay->micro_step = k;
        status = feed_micro_step(replay->feed, &alone, replay->result->iter, k);
    }
    exec_callback_set(session->exec, NULL, NULL);
    exec_dist_set(session->exec, session->dist, session->staging);
    TRY(status);
    return session_scalars_set(session);
}

/* ---- the first bad value ----
 *
 * The micro-steps run op by op.  If all outputs are finite, the squares of the gradients are added
 * up as the update does. */

/* Scans the gradients after the last micro-step: adds up their squares, as the update does in fp32,
 * and finds the largest. */
static enum gt_status norm_log(struct session *session, int64_t iter, int32_t moved)
{
    const struct parameter_list *parameters = &session->model->parameters;
    const bool in_step = model_adds_in_step(&session->model->options);
    struct value_scan scan, largest = {.largest = -1.0f};
    double squares = 0.0;
    for (int32_t i = 0; i < parameters->count; i++) {
        const struct parameter *parameter = &parameters->at[i];
        /* With several ranks, scans the last part's gradient, since this rank does not have all
         * sums; if it is gone, the sums that it has. */
        const int32_t gradient =
            session->dist != NULL && !in_step ? parameter->part_gradient : parameter->gradient;
        if (gradient == TENSOR_NONE)
            continue;
        TRY(value_scan(session, gradient, &scan));
        squares += scan.squares;
        if (scan.largest > largest.largest)
            largest = scan;
    }
    if (squares > (double)FLT_MAX)
        log_warning("iter %" PRId64
                    ": every value is finite, but the gradient is too large for its norm: %g in %s",
                    iter, (double)largest.largest,
                    session->model->graph->tensors[largest.tensor].name);
    else if (moved > 0)
        log_warning("iter %" PRId64 ": computed again with the weights of %" PRId32
                    " update%s later, every value is "
                    "finite; log_interval=1 would check before they change",
                    iter, moved, moved == 1 ? "" : "s");
    else
        log_warning(
            "iter %" PRId64
            ": computed again from the same weights and samples, every value is finite: the "
            "memory or the processor of %s is faulty",
            iter, session->device.info.device);
    return GT_OK;
}

static void found_log(const struct bad_value *found, const struct replay *replay, int32_t moved,
                      bool updated)
{
    const struct session *session = found->session;
    char text[BAD_VALUE_TEXT_MAX], place[96] = "";
    if (model_micro_steps(&session->model->options) > 1)
        snprintf(place + strlen(place), sizeof place - strlen(place),
                 ", micro-step %" PRId32 " of %" PRId32, replay->micro_step + 1,
                 model_micro_steps(&session->model->options));
    if (moved > 0)
        snprintf(place + strlen(place), sizeof place - strlen(place),
                 ", with weights of %" PRId32 " update%s later", moved, moved == 1 ? "" : "s");
    log_warning("iter %" PRId64 ": %s", replay->result->iter,
                bad_value_text(text, found, place,
                               updated ? "an earlier update made it so" : "the run began with it"));
}

/* `moved`: number of updates that have changed the weights since. */
static enum gt_status bad_log(struct diagnosis *diagnosis, const struct step_result *result,
                              int32_t moved)
{
    struct bad_value found = bad_value_none(diagnosis->session);
    struct replay replay = {
        diagnosis->session, diagnosis->feed, result, bad_value_probe, &found, 0, false};
    found.enough = &replay.enough;
    TRY(replay_run(&replay));
    if (found.op)
        found_log(&found, &replay, moved, result->iter > diagnosis->first_iter);
    else if (!stop_requested())
        TRY(norm_log(diagnosis->session, result->iter, moved));
    return GT_OK;
}

/* ---- spikes ----
 *
 * Mean and deviation are those of the window before the update.  The update joins the window, spike
 * or not, so that a new level soon becomes the usual one.  Losses per sample are read after
 * loss_sum, when those of the whole micro-step are complete. */

/* Adds a value to the window and sets *usual.  Returns true when the value stood out of the window.
 * The window's values are logarithms, because norms, and losses of a memorized text, vary by
 * factors. */
static bool stands_out(float window[static SPIKES_WINDOW], int64_t at, double value, double rise,
                       double *usual)
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
static enum gt_status losses_probe(void *context, int32_t program, int32_t index)
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
            TRY(exec_download(session->exec, op->operand[LOSS_SUM_LOSSES], s * time + done,
                              session->staging, part));
            for (int64_t i = 0; i < part; i++)
                sum += (double)session->staging[i];
        }
        worst_insert(
            worst,
            worst->replay->micro_step * (int64_t)session->model->options.choice.micro_batch + s,
            sum / (double)time);
    }
    return GT_OK;
}

/* Returns the beginning of the sample's text, in quotes after a colon; empty when it is unknown. */
static const char *text_begin(struct token_source *source, const struct tokenizer *tokenizer,
                              int64_t position, int64_t block_size,
                              char text[static TEXT_BYTES + 8])
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
    log_note("iter %" PRId64 ": sample %" PRId64 ", loss %.4g: %s, tokens %" PRId64 " to %" PRId64
             "%s",
             iter, sample, worst->at[place].loss, source->shards[shard].path, first,
             first + feed->block_size - 1,
             text_begin(source, tokenizer, position, feed->block_size, text));
}

/* Adds the update to the window.  If it is a spike, logs one line for it and one for each of the
 * three samples with the highest losses under the current weights. */
static enum gt_status spike_check(struct diagnosis *diagnosis, const struct step_result *result,
                                  double loss)
{
    struct spike spike;
    struct replay replay = {.session = diagnosis->session,
                            .feed = diagnosis->feed,
                            .result = result,
                            .look = losses_probe};
    struct worst worst = {.replay = &replay};
    replay.context = &worst;
    if (!spikes_add(&diagnosis->spikes, result->iter, loss,
                    (double)result->scalars[SCALAR_GRAD_NORM].f, &spike))
        return GT_OK;
    progress_clear(diagnosis->progress);
    log_warning("iter %" PRId64
                ": a spike: loss %.4g (usually %.4g), gradient norm %.3g (usually %.3g)",
                result->iter, spike.loss, spike.usual_loss, spike.norm, spike.usual_norm);
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
