/* Sampling.
 *
 * A prompt goes through the prefill program in runs of its fixed length, the last of which may overlap the one before
 * (the same keys and values are written again) or, with a short prompt, reach beyond it (what is written there is
 * overwritten before anything attends to it).  The last token goes through the decode program, whose logits are drawn
 * from.  Once a sequence is longer than the context, positions shift with every token, so its cache is made anew.
 */
#include "train/generate.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"

struct generator {
    struct hostmem *mem;
    struct session *session;
    struct generate_options options;
    int32_t *tokens; /* [tokens_max] of the sequence so far */
    int64_t count, capacity;
    int64_t sequence;
    int64_t cached; /* tokens whose keys and values are in the cache, from the window's start */
    int64_t window; /* index of the token at position 0 */
    float *logits;  /* [Vp] */
    float *scratch; /* [Vp] */
    int32_t *ids;   /* [prefill_time] */
};

enum gt_status generator_create(struct hostmem *mem, struct session *session, const struct generate_options *options,
                                int64_t tokens_max, struct generator **out)
{
    void *pointer, *tokens = NULL, *logits = NULL, *scratch = NULL, *ids = NULL;
    size_t width = (size_t)session->model->options.config.padded_vocab_size;
    TRY(hostmem_alloc(mem, 1, sizeof(struct generator), "generator", &pointer));
    struct generator *generator = pointer;
    enum gt_status status = hostmem_alloc(mem, (size_t)tokens_max, sizeof(int32_t), "generated tokens", &tokens);
    if (status == GT_OK)
        status = hostmem_alloc(mem, width, sizeof(float), "logits", &logits);
    if (status == GT_OK)
        status = hostmem_alloc(mem, width, sizeof(float), "sorted logits", &scratch);
    if (status == GT_OK)
        status = hostmem_alloc(mem, (size_t)session->model->prefill.time, sizeof(int32_t), "prefill ids", &ids);
    *generator = (struct generator){.mem = mem,
                                    .session = session,
                                    .options = *options,
                                    .tokens = tokens,
                                    .capacity = tokens_max,
                                    .logits = logits,
                                    .scratch = scratch,
                                    .ids = ids};
    if (status != GT_OK) {
        generator_destroy(generator);
        return status;
    }
    *out = generator;
    return GT_OK;
}

void generator_destroy(struct generator *generator)
{
    if (!generator)
        return;
    struct hostmem *mem = generator->mem;
    hostmem_free(mem, generator->ids);
    hostmem_free(mem, generator->scratch);
    hostmem_free(mem, generator->logits);
    hostmem_free(mem, generator->tokens);
    hostmem_free(mem, generator);
}

/* The k-th largest of values[count] (k >= 1), by selection in place (Hoare's algorithm 65). */
static float nth_largest(float *values, int64_t count, int64_t k)
{
    int64_t low = 0, high = count - 1, wanted = k - 1;
    while (low < high) {
        float pivot = values[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (values[i] > pivot)
                i++;
            while (values[j] < pivot)
                j--;
            if (i <= j) {
                float held = values[i];
                values[i++] = values[j];
                values[j--] = held;
            }
        }
        if (wanted <= j)
            high = j;
        else if (wanted >= i)
            low = i;
        else
            break;
    }
    return values[wanted];
}

int32_t generate_draw(const float *logits, int64_t count, double temperature, int64_t top_k, double uniform,
                      float *scratch)
{
    float edge = -INFINITY, largest = -INFINITY;
    if (top_k > 0 && top_k < count) {
        memcpy(scratch, logits, (size_t)count * sizeof(float));
        edge = nth_largest(scratch, count, top_k);
    }
    for (int64_t i = 0; i < count; i++)
        largest = logits[i] > largest ? logits[i] : largest;
    double sum = 0.0, reached = 0.0;
    for (int64_t i = 0; i < count; i++)
        sum += logits[i] >= edge ? exp(((double)logits[i] - (double)largest) / temperature) : 0.0;
    int32_t last = 0;
    for (int64_t i = 0; i < count; i++) {
        if (logits[i] < edge)
            continue;
        last = (int32_t)i;
        reached += exp(((double)logits[i] - (double)largest) / temperature);
        if (reached > uniform * sum)
            break;
    }
    return last;
}

static enum gt_status program_run(struct generator *generator, const struct program_io *io, int64_t position,
                                  const int32_t *ids)
{
    struct session *session = generator->session;
    session->scalars[SCALAR_POSITION].i = (int32_t)position;
    TRY(session_scalars_upload(session));
    TRY(exec_upload(session->exec, io->ids, 0, ids, io->time));
    return exec_run(session->exec, io->program);
}

/* Keys and values of window positions [cached, count) into the cache. */
static enum gt_status prefill(struct generator *generator, int64_t count)
{
    const struct program_io *io = &generator->session->model->prefill;
    while (generator->cached < count) {
        int64_t first = generator->cached;
        int64_t block = generator->session->model->options.config.block_size;
        first = first + io->time > block ? block - io->time : first;
        int64_t used = count - first < io->time ? count - first : io->time;
        memset(generator->ids, 0, (size_t)io->time * sizeof(int32_t));
        memcpy(generator->ids, generator->tokens + generator->window + first, (size_t)used * sizeof(int32_t));
        TRY(program_run(generator, io, first, generator->ids));
        generator->cached = first + used;
    }
    return GT_OK;
}

enum gt_status generator_begin(struct generator *generator, int64_t sequence, const int32_t *prompt, int64_t count)
{
    assert(count >= 1 && count < generator->capacity);
    memcpy(generator->tokens, prompt, (size_t)count * sizeof(int32_t));
    generator->count = count;
    generator->sequence = sequence;
    generator->cached = 0;
    generator->window = 0;
    return GT_OK;
}

/* The logits after the last token. */
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
    TRY(program_run(generator, io, length - 1, generator->tokens + generator->count - 1));
    generator->cached = length;
    int64_t width = generator->session->model->options.config.padded_vocab_size;
    return exec_download(generator->session->exec, io->logits, 0, generator->logits, width);
}

enum gt_status generator_next(struct generator *generator, int32_t *out)
{
    assert(generator->count < generator->capacity);
    TRY(logits_compute(generator));
    struct philox_key key = philox_key_make(generator->options.seed, RNG_GENERATE);
    struct philox_block counter = {{(uint32_t)generator->count, (uint32_t)generator->sequence, 0, 0}};
    struct philox_block bits = philox4x32_10(key, counter);
    int32_t token = generate_draw(generator->logits, generator->session->model->options.config.vocab_size,
                                  generator->options.temperature, generator->options.top_k,
                                  philox_uniform(bits.word[0], bits.word[1]), generator->scratch);
    generator->tokens[generator->count++] = token;
    *out = token;
    return GT_OK;
}
