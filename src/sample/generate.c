/* Sampling.
 *
 * The prefill program processes the prompt in pieces of its fixed length.  The last piece may
 * overlap the one before (the same keys and values are written again), or extend beyond a short
 * prompt (the excess is overwritten before anything attends to it).  A model with a gated delta net
 * must read each token once, so the rest of a prompt, which is shorter than a piece, goes through
 * the decode program token by token.  The decode program processes the last token, and its logits
 * are sampled.  Once a sequence is longer than the context, positions shift with every token, so
 * its cache is rebuilt.  The sequences of a batch share one prompt and one length, so they advance
 * together.
 */
#include "sample/generate.h"

#include <math.h>

#include "base/size.h"
#include "base/system_memory.h"
#include "session/bad_value.h"
#include "session/values.h"

struct generator {
    struct session *session;
    struct generate_options options;
    int32_t *tokens; /* [batch, capacity]: the sequences so far */
    int64_t batch, count, capacity;
    int64_t sequence; /* the number of the first sequence */
    int64_t cached;   /* tokens whose keys and values are in the cache, from the window's start */
    int64_t window;   /* index of the token at position 0 */
    float *logits;    /* [batch, Vp] */
    float *scratch;   /* [Vp] */
    int32_t *ids;     /* [batch, prefill_time] */
};

/* No plan includes the memory for the tokens, and the system may promise memory that it does not
 * have. */
static enum gt_status tokens_check(size_t batch, int64_t tokens_max, size_t *out_count)
{
    uint64_t total_bytes, free_bytes = SIZE_MAX;
    size_t bytes;
    if (!size_mul(batch, (size_t)tokens_max, out_count) ||
        !size_mul(*out_count, sizeof(int32_t), &bytes))
        return FAIL(GT_NO_FIT,
                    "%zu samples of %" PRId64 " tokens need more memory than 64 bits can count",
                    batch, tokens_max);
    if (!system_memory_read(&total_bytes, &free_bytes) || bytes <= free_bytes)
        return GT_OK;
    return FAIL(GT_NO_FIT,
                "%zu samples of up to %" PRId64
                " tokens need %s of memory, and %s is free; lower --max_new_tokens",
                batch, tokens_max, LOG_BYTES(bytes), LOG_BYTES(free_bytes));
}

enum gt_status generator_create(struct hostmem *mem, struct session *session,
                                const struct generate_options *options, int64_t tokens_max,
                                struct generator **out)
{
    const size_t width = (size_t)session->model->options.config.padded_vocab_size;
    const size_t batch = (size_t)session->model->decode.batch;
    struct generator *generator;
    size_t all_tokens;
    TRY(tokens_check(batch, tokens_max, &all_tokens));
    TRY(HOSTMEM_NEW(mem, 1, "generator", &generator));
    *generator = (struct generator){
        .session = session, .options = *options, .batch = (int64_t)batch, .capacity = tokens_max};
    enum gt_status status =
        HOSTMEM_NEW(generator, all_tokens, "generated tokens", &generator->tokens);
    THEN(status, HOSTMEM_NEW(generator, batch * width, "logits", &generator->logits));
    THEN(status, HOSTMEM_NEW(generator, width, "sorted logits", &generator->scratch));
    THEN(status, HOSTMEM_NEW(generator, batch * (size_t)session->model->prefill.time, "prefill ids",
                             &generator->ids));
    return FINISH(status, out, generator, hostmem_free);
}

static enum gt_status program_run(struct generator *generator, const struct program_io *io,
                                  int64_t position, const int32_t *ids)
{
    struct session *session = generator->session;
    session->scalars[SCALAR_POSITION].i = (int32_t)position;
    TRY(session_scalars_upload(session));
    TRY(exec_upload(session->exec, io->ids, 0, ids, (int64_t)io->batch * io->time));
    return exec_run(session->exec, io->program);
}

/* Computes the keys and values of window positions [cached, count) and stores them in the cache. */
static enum gt_status prefill(struct generator *generator, int64_t count)
{
    const struct program_io *io = &generator->session->model->prefill;
    const bool recurrent = generator->session->model->options.config.full_attention_interval > 0;
    while (generator->cached < count && !(recurrent && generator->cached + io->time > count)) {
        int64_t first = generator->cached;
        int64_t block = generator->session->model->options.config.block_size;
        first = first + io->time > block ? block - io->time : first;
        int64_t used = count - first < io->time ? count - first : io->time;
        memset(generator->ids, 0, (size_t)(generator->batch * io->time) * sizeof(int32_t));
        for (int64_t b = 0; b < generator->batch; b++)
            memcpy(generator->ids + b * io->time,
                   generator->tokens + b * generator->capacity + generator->window + first,
                   (size_t)used * sizeof(int32_t));
        TRY(program_run(generator, io, first, generator->ids));
        generator->cached = first + used;
    }
    return GT_OK;
}

/* Runs the decode program for each sequence's token at a position. */
static enum gt_status decode(struct generator *generator, int64_t position)
{
    for (int64_t b = 0; b < generator->batch; b++)
        generator->ids[b] =
            generator->tokens[b * generator->capacity + generator->window + position];
    TRY(program_run(generator, &generator->session->model->decode, position, generator->ids));
    generator->cached = position + 1;
    return GT_OK;
}

void generator_begin(struct generator *generator, int64_t sequence, const int32_t *prompt,
                     int64_t count)
{
    assert(count >= 1 && count < generator->capacity);
    generator->count = 0;
    generator->sequence = sequence;
    generator->cached = 0;
    generator->window = 0;
    generator_extend(generator, prompt, count);
}

void generator_extend(struct generator *generator, const int32_t *tokens, int64_t count)
{
    assert(generator->count + count < generator->capacity);
    for (int64_t b = 0; b < generator->batch; b++)
        memcpy(generator->tokens + b * generator->capacity + generator->count, tokens,
               (size_t)count * sizeof(int32_t));
    generator->count += count;
}

/* Computes the logits after the last token. */
static enum gt_status logits_compute(struct generator *generator)
{
    const struct program_io *io = &generator->session->model->decode;
    int64_t block = generator->session->model->options.config.block_size;
    if (generator->count - generator->window > block) {
        generator->window = generator->count - block;
        generator->cached = 0;
    }
    int64_t length = generator->count - generator->window;
    if (length - 1 - generator->cached > 0)
        TRY(prefill(generator, length - 1));
    while (generator->cached < length - 1) /* what prefill left */
        TRY(decode(generator, generator->cached));
    TRY(decode(generator, length - 1));
    int64_t width = generator->session->model->options.config.padded_vocab_size;
    return values_download(generator->session->exec, generator->session->model->graph, io->logits,
                           0, generator->logits, generator->batch * width);
}

/* A bad_value_again_fn; the context is the generator.  Also rebuilds the cache. */
static enum gt_status logits_again(void *context)
{
    struct generator *generator = context;
    generator->cached = 0;
    return logits_compute(generator);
}

/* Refuses logits that are not finite.  Those of the padding are never drawn. */
static enum gt_status logits_check(struct generator *generator)
{
    const struct model_config *config = &generator->session->model->options.config;
    bool finite = true;
    for (int64_t b = 0; b < generator->batch && generator->options.must_be_finite; b++)
        for (int64_t i = 0; i < config->vocab_size; i++)
            finite = finite && isfinite(generator->logits[b * config->padded_vocab_size + i]);
    if (finite)
        return GT_OK;
    return bad_value_explain(generator->session, "the probability of the next token", logits_again,
                             generator);
}

/* Changes each logit once, however often its token occurs. */
static void repetition_penalize(const struct generator *generator, const int32_t *tokens,
                                float *logits)
{
    const float penalty = (float)generator->options.repetition;
    if (penalty <= 0.0f || penalty == 1.0f)
        return;
    memcpy(generator->scratch, logits,
           (size_t)generator->session->model->options.config.padded_vocab_size * sizeof(float));
    for (int64_t i = generator->window; i < generator->count; i++) {
        const float logit = generator->scratch[tokens[i]];
        logits[tokens[i]] = logit > 0.0f ? logit / penalty : logit * penalty;
    }
}

enum gt_status generator_next(struct generator *generator, int32_t *out)
{
    assert(generator->count < generator->capacity);
    TRY(logits_compute(generator));
    TRY(logits_check(generator));
    const struct model_config *config = &generator->session->model->options.config;
    struct philox_key key = philox_key_make(generator->options.seed, RNG_GENERATE);
    for (int64_t b = 0; b < generator->batch; b++) {
        struct philox_block counter = {
            {(uint32_t)generator->count, (uint32_t)(generator->sequence + b), 0, 0}};
        struct philox_block bits = philox4x32_10(key, counter);
        float *logits = generator->logits + b * config->padded_vocab_size;
        int32_t *tokens = generator->tokens + b * generator->capacity;
        repetition_penalize(generator, tokens, logits);
        out[b] = generate_draw(&generator->options, logits, config->vocab_size,
                               philox_uniform(bits.word[0], bits.word[1]), generator->scratch);
        tokens[generator->count] = out[b];
    }
    generator->count++;
    return GT_OK;
}

const int32_t *generator_sequence(const struct generator *generator, int64_t index)
{
    assert(index >= 0 && index < generator->batch);
    return generator->tokens + index * generator->capacity;
}

/* ---- drawing a token: temperature, top-k, top-p, min-p, in this order ----
 *
 * The limits become one edge: the smallest logit that may be drawn.  Selection finds it, as the
 * k-th largest logit or the one at which the probabilities, from the largest down, reach p.  The
 * vocabulary is never sorted. */

/* Result of a partition of values[low .. high]: values[low .. j] >= pivot >= values[i .. high]; the
 * elements between equal the pivot. */
struct parts {
    int64_t i, j;
    float pivot;
};

/* Hoare's algorithm 63. */
static struct parts partition(float *values, int64_t low, int64_t high)
{
    struct parts at = {low, high, values[low + (high - low) / 2]};
    while (at.i <= at.j) {
        while (values[at.i] > at.pivot)
            at.i++;
        while (values[at.j] < at.pivot)
            at.j--;
        if (at.i <= at.j) {
            const float held = values[at.i];
            values[at.i++] = values[at.j];
            values[at.j--] = held;
        }
    }
    return at;
}

/* If the temperature is infinite, every logit has the weight 1. */
struct scale {
    double largest, temperature;
};

static double weight(const struct scale *scale, float logit)
{
    if (isinf(scale->temperature))
        return 1.0;
    return exp(((double)logit - scale->largest) / scale->temperature);
}

static double weight_sum(const struct scale *scale, const float *values, int64_t first, int64_t end)
{
    double sum = 0.0;
    for (int64_t i = first; i < end; i++)
        sum += weight(scale, values[i]);
    return sum;
}

/* Returns the largest value at which the weights of values[count], summed from the largest value
 * down, reach `wanted`.  It selects in place (Hoare's algorithm 65). */
static float weight_edge(const struct scale *scale, float *values, int64_t count, double wanted)
{
    int64_t low = 0, high = count - 1;
    while (low < high) {
        const struct parts at = partition(values, low, high);
        const double above = weight_sum(scale, values, low, at.j + 1);
        if (above >= wanted) {
            high = at.j;
            continue;
        }
        const double middle = weight_sum(scale, values, at.j + 1, at.i);
        if (above + middle >= wanted || at.i > high) /* the latter if rounding lost the rest */
            return at.pivot;
        wanted -= above + middle;
        low = at.i;
    }
    return values[low];
}

/* The edge of top-k and top-p. */
static float edge_find(const struct generate_options *how, const struct scale *scale,
                       const float *logits, int64_t count, float *scratch)
{
    float edge = -INFINITY;
    if (how->top_k > 0 && how->top_k < count) {
        memcpy(scratch, logits, (size_t)count * sizeof(float));
        edge = weight_edge(&(struct scale){0.0, INFINITY}, scratch, count, (double)how->top_k);
    }
    if (!(how->top_p > 0.0 && how->top_p < 1.0))
        return edge;
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        if (logits[i] >= edge && logits[i] > -INFINITY)
            scratch[kept++] = logits[i];
    const double wanted = how->top_p * weight_sum(scale, scratch, 0, kept);
    return kept > 0 ? weight_edge(scale, scratch, kept, wanted) : edge;
}

int32_t generate_draw(const struct generate_options *how, const float *logits, int64_t count,
                      double uniform, float *scratch)
{
    float largest = -INFINITY;
    int32_t last = 0;
    for (int64_t i = 0; i < count; i++) {
        last = logits[i] > largest ? (int32_t)i : last;
        largest = logits[i] > largest ? logits[i] : largest;
    }
    const struct scale scale = {(double)largest, how->temperature};
    if (how->temperature == 0.0)
        return last;
    float edge = edge_find(how, &scale, logits, count, scratch);
    if (how->min_p > 0.0)
        edge = fmaxf(edge, (float)(scale.largest + how->temperature * log(how->min_p)));
    double sum = 0.0, reached = 0.0;
    for (int64_t i = 0; i < count; i++)
        sum += logits[i] >= edge ? weight(&scale, logits[i]) : 0.0;
    for (int64_t i = 0; i < count; i++) {
        if (logits[i] < edge)
            continue;
        last = (int32_t)i;
        reached += weight(&scale, logits[i]);
        if (reached > uniform * sum)
            break;
    }
    return last;
}
