/* Spikes: detects them and names their samples.
 *
 * Mean and deviation are those of the window before the update.  The update joins the window, spike or not, so that a
 * new level soon becomes the usual one.  Losses per sample are read after loss_sum, when those of the whole micro-step
 * are complete.
 */
#include "train/spikes.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

#define DEVIATIONS 6.0
#define LOSS_RISE 1.1
#define NORM_RISE 3.0
#define WORST 3
#define TEXT_TOKENS 16
#define TEXT_BYTES 48

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
    } at[WORST];
};

static void worst_insert(struct worst *worst, int64_t sample, double loss)
{
    int32_t place = worst->count < WORST ? worst->count++ : WORST;
    while (place > 0 && worst->at[place - 1].loss < loss) {
        if (place < WORST)
            worst->at[place] = worst->at[place - 1];
        place--;
    }
    if (place < WORST) {
        worst->at[place].sample = sample;
        worst->at[place].loss = loss;
    }
}

/* Called after each op.  The inputs of loss_sum contain all losses of the micro-step. */
static enum gt_status look(void *context, int32_t program, int32_t index)
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
            const int64_t part = time - done < SESSION_STAGING_FLOATS ? time - done : SESSION_STAGING_FLOATS;
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
    const int64_t count = block_size < TEXT_TOKENS ? block_size : TEXT_TOKENS;
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
    struct token_source *source = feed->source[TOKEN_TRAIN];
    const int64_t iter = worst->replay->result->iter, sample = worst->at[place].sample;
    const int64_t position = sampler_position(feed->sampler[TOKEN_TRAIN], iter, sample);
    size_t shard = token_source_shard_count(source) - 1;
    char text[TEXT_BYTES + 8];
    while (shard > 0 && token_source_shard_first(source, shard) > position)
        shard--;
    const int64_t first = position - token_source_shard_first(source, shard);
    log_note("iter %" PRId64 ": sample %" PRId64 ", loss %.4g: %s, tokens %" PRId64 " to %" PRId64 "%s", iter, sample,
             worst->at[place].loss, token_source_shard_path(source, shard), first, first + feed->block_size - 1,
             text_begin(source, tokenizer, position, feed->block_size, text));
}

enum gt_status spike_log(const struct spike *spike, struct replay *replay, const struct tokenizer *tokenizer)
{
    struct worst worst = {.replay = replay};
    replay->look = look;
    replay->context = &worst;
    log_warning("iter %" PRId64 ": a spike: loss %.4g (usually %.4g), gradient norm %.3g (usually %.3g)",
                replay->result->iter, spike->loss, spike->usual_loss, spike->norm, spike->usual_norm);
    TRY(replay_run(replay));
    for (int32_t i = 0; i < worst.count; i++)
        sample_log(&worst, i, tokenizer);
    return GT_OK;
}
