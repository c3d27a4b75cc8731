/* gpt-sample: writes text with a trained model.
 *
 * The samples go to standard output, each followed by nanoGPT's line of dashes.  Several are computed at once, since the
 * time of a token is that of reading the weights: the first of them is shown while it is made, the others after it.  The
 * tokenizer is the one that gpt-train copied beside the checkpoint.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hostmem.h"
#include "base/log.h"
#include "base/size.h"
#include "cli/exit_status.h"
#include "cli/program.h"
#include "data/stop_text.h"
#include "data/tokenizer.h"
#include "data/tokenizer_find.h"
#include "data/tokenizer_import.h"
#include "io/hf_cache.h"
#include "train/generate.h"
#include "train/restore.h"
#include "train/stop.h"

#define PROMPT_BYTES_MAX ((size_t)16 << 20)
#define BATCH_MAX 8 /* unless sample_batch asks for more */

/* How far the text of one sample has come. */
struct sample_text {
    struct tokenizer_stream stream;
    struct stop_text stop;
    int64_t token_count; /* generated */
};

struct sample {
    struct hostmem *mem;
    const struct config *config;
    struct restore_source source;
    struct session session;
    struct tokenizer *tokenizer;
    struct generator *generator;
    int32_t *prompt;
    size_t prompt_count;
    struct stop_texts stops;
    int64_t batch;             /* samples at once */
    struct sample_text *texts; /* [batch] */
    int32_t *drawn;            /* [batch] */
    int64_t tokens_written;
};

static enum gt_status sample_run(struct sample *sample);

int main(int argc, char **argv)
{
    static struct config config; /* 30 KiB of paths */
    struct sample sample = {.config = &config};
    bool answered;
    program_spin_limit(argv);
    enum gt_status status = program_start(&config, CONFIG_SAMPLE, "gpt-sample", argc, argv, &answered);
    if (status == GT_OK && !answered)
        status = hostmem_create(&sample.mem);
    if (status == GT_OK && !answered)
        status = sample_run(&sample);
    hostmem_destroy(sample.mem);
    return program_exit_status(status);
}

/* The model's folder: out_dir, or what init_from names. */
static const char *model_folder(const struct config *config)
{
    return strcmp(config->init_from, "resume") == 0 ? config->out_dir : config->init_from;
}

/* The tokenizer beside the weights; of a downloaded GPT-2 that came without one, GPT-2's from where gpt-prepare finds it. */
static enum gt_status tokenizer_open(struct sample *sample)
{
    char path[FILE_PATH_MAX], cached[FILE_PATH_MAX];
    const char *folder = model_folder(sample->config);
    const bool downloaded = folder == sample->config->init_from && hf_cache_is_name(folder);
    if (downloaded) {
        TRY(hf_cache_find(folder, cached));
        folder = cached;
    }
    TRY(file_join(path, folder, TOKENIZER_FILE_NAME));
    bool exists;
    TRY(file_look(path, &exists));
    if (exists)
        return tokenizer_open_file(sample->mem, path, &sample->tokenizer);
    TRY(tokenizer_import_folder(folder, &exists));
    if (exists) /* Hugging Face's vocabulary beside its weights */
        return tokenizer_import(sample->mem, folder, &sample->tokenizer);
    if (downloaded)
        return tokenizer_find(sample->mem, "gpt2", &sample->tokenizer);
    log_error(
        "%s: no such file, so text cannot be turned into tokens; gpt-train puts it there when the dataset has one "
        "(gpt-prepare makes it)",
        path);
    return GT_DATA;
}

/* The prompt's text, in memory to free(). */
static enum gt_status start_text(const struct config *config, char **out, size_t *out_count)
{
    static const char prefix[] = "FILE:";
    if (config->prompt_file[0] != '\0')
        return file_read_all(config->prompt_file, PROMPT_BYTES_MAX, out, out_count);
    if (strncmp(config->start, prefix, sizeof prefix - 1) == 0)
        return file_read_all(config->start + sizeof prefix - 1, PROMPT_BYTES_MAX, out, out_count);
    *out_count = strlen(config->start);
    *out = malloc(*out_count + 1);
    if (!*out) {
        log_error("out of memory");
        return GT_NO_MEMORY;
    }
    memcpy(*out, config->start, *out_count + 1);
    return GT_OK;
}

static enum gt_status prompt_read(struct sample *sample)
{
    char *text;
    size_t count;
    void *array = NULL;
    if (sample->config->prompt_file[0] != '\0' && config_key_was_set(sample->config, CONFIG_KEY_start)) {
        log_error("start and prompt_file both say what the samples begin with: give one of them");
        return GT_USAGE;
    }
    TRY(start_text(sample->config, &text, &count));
    enum gt_status status = GT_OK;
    if (count == 0) {
        log_error("%s is empty: a sample needs at least one token to begin with",
                  sample->config->prompt_file[0] != '\0' ? sample->config->prompt_file : "start");
        status = GT_USAGE;
    }
    if (status == GT_OK)
        status = hostmem_alloc(sample->mem, count, sizeof(int32_t), "prompt", &array);
    sample->prompt = array;
    if (status == GT_OK)
        status =
            tokenizer_encode_prompt(sample->tokenizer, text, count, "start", sample->prompt, &sample->prompt_count);
    free(text);
    return status;
}

/* The bytes of a sequence's keys and values. */
static uint64_t cache_bytes(const struct model_config *config, enum dtype dtype)
{
    const uint64_t width = (uint64_t)config->n_embd / (uint64_t)config->n_head * (uint64_t)config->n_kv_head;
    return 2 * (uint64_t)config->n_layer * (uint64_t)config->block_size * width * dtype_size_bytes(dtype);
}

/* How many samples are computed at once: as sample_batch says, else as many as an eighth of the budget holds the caches
 * of; in groups of equal size. */
static int64_t batch_choose(const struct sample *sample, const struct model_config *config)
{
    const int64_t samples = sample->config->num_samples;
    int64_t most = sample->config->sample_batch;
    if (most == 0) {
        const uint64_t fit = sample->session.budget_bytes / 8 / cache_bytes(config, sample->session.dtype);
        most = fit < BATCH_MAX ? (int64_t)fit : BATCH_MAX;
    }
    most = most < 1 ? 1 : most;
    return size_ceil_div(samples, size_ceil_div(samples, most));
}

static enum gt_status model_open(struct sample *sample)
{
    TRY(restore_open_weights(sample->mem, sample->config, &sample->source));
    TRY(restore_tokenizer_check(&sample->source, sample->tokenizer, TOKENIZER_FILE_NAME));
    const struct model_config *config = &sample->source.checkpoint->config;
    int64_t vocab = tokenizer_vocab_size(sample->tokenizer);
    if (vocab > config->vocab_size) {
        log_error("%s: vocabulary of %" PRId64 ", the model's is %" PRId32, TOKENIZER_FILE_NAME, vocab,
                  config->vocab_size);
        return GT_DATA;
    }
    TRY(session_open(sample->mem, sample->config, &sample->session));
    sample->batch = batch_choose(sample, config);
    struct model_options options = {
        .config = *config,
        .dtype = sample->session.dtype,
        .generate = true,
        .generate_batch = (int32_t)sample->batch,
        .prefill_time = config->block_size < SESSION_PREFILL_TIME_MAX ? config->block_size : SESSION_PREFILL_TIME_MAX,
    };
    TRY(session_plan(&sample->session, &options));
    TRY(session_start(&sample->session));
    return restore_weights(&sample->session, &sample->source, 0);
}

static void text_show(void *context, const char *text, size_t count)
{
    (void)context;
    fwrite(text, 1, count, stdout);
}

static void text_drop(void *context, const char *text, size_t count)
{
    (void)context, (void)text, (void)count;
}

/* Takes a token in; what may be shown of the text goes to `show`. */
static void text_push(const struct sample *sample, struct sample_text *text, int32_t token, stop_text_fn *show)
{
    char bytes[TOKENIZER_TEXT_MAX];
    size_t count = tokenizer_stream_push(sample->tokenizer, &text->stream, token, bytes);
    text->token_count++;
    (void)stop_text_push(&text->stop, &sample->stops, bytes, count, show, NULL);
}

/* The prompt is shown as it is: it is not searched for what ends a sample. */
static void text_begin(const struct sample *sample, struct sample_text *text, stop_text_fn *show)
{
    char bytes[TOKENIZER_TEXT_MAX];
    *text = (struct sample_text){0};
    for (size_t i = 0; i < sample->prompt_count; i++)
        show(NULL, bytes, tokenizer_stream_push(sample->tokenizer, &text->stream, sample->prompt[i], bytes));
}

static void text_end(struct sample *sample, struct sample_text *text)
{
    char bytes[TOKENIZER_TEXT_MAX];
    if (!text->stop.found) {
        size_t count = tokenizer_stream_end(&text->stream, bytes);
        (void)stop_text_push(&text->stop, &sample->stops, bytes, count, text_show, NULL);
        stop_text_end(&text->stop, text_show, NULL);
    }
    sample->tokens_written += text->token_count;
    fputs("\n---------------\n", stdout);
}

/* Draws a token for every sample of the group; true when all of them have ended. */
static enum gt_status group_step(struct sample *sample, int64_t count, bool *out_all_ended)
{
    bool all_ended = true;
    TRY(generator_next(sample->generator, sample->drawn));
    for (int64_t b = 0; b < count; b++) {
        struct sample_text *text = &sample->texts[b];
        if (text->stop.found)
            continue;
        text_push(sample, text, sample->drawn[b], b == 0 ? text_show : text_drop);
        all_ended = all_ended && text->stop.found;
    }
    *out_all_ended = all_ended;
    return fflush(stdout) == 0 ? GT_OK : GT_IO; /* nobody reads on, or the disk is full: main() says so */
}

/* Shows a sample that was computed beside the first one. */
static void sample_replay(struct sample *sample, int64_t index)
{
    struct sample_text text;
    const int32_t *tokens = generator_sequence(sample->generator, index) + sample->prompt_count;
    text_begin(sample, &text, text_show);
    for (int64_t i = 0; i < sample->texts[index].token_count; i++)
        text_push(sample, &text, tokens[i], text_show);
    text_end(sample, &text);
}

/* Samples number `first` to first+count-1. */
static enum gt_status group_write(struct sample *sample, int64_t first, int64_t count)
{
    bool all_ended = false;
    TRY(generator_begin(sample->generator, first, sample->prompt, (int64_t)sample->prompt_count));
    for (int64_t b = 0; b < count; b++)
        text_begin(sample, &sample->texts[b], b == 0 ? text_show : text_drop);
    for (int64_t i = 0; i < sample->config->max_new_tokens && !all_ended && !stop_requested(); i++)
        TRY(group_step(sample, count, &all_ended));
    text_end(sample, &sample->texts[0]);
    for (int64_t b = 1; b < count; b++)
        sample_replay(sample, b);
    return stop_requested() ? GT_STOPPED : GT_OK;
}

static enum gt_status generator_open(struct sample *sample)
{
    const struct config *config = sample->config;
    struct generate_options options = {
        .seed = (uint64_t)config->seed,
        .temperature = config->temperature,
        .top_k = config->top_k,
        .top_p = config->top_p,
    };
    void *texts = NULL, *drawn = NULL;
    TRY(hostmem_alloc(sample->mem, (size_t)sample->batch, sizeof(struct sample_text), "texts of samples", &texts));
    sample->texts = texts;
    TRY(hostmem_alloc(sample->mem, (size_t)sample->batch, sizeof(int32_t), "drawn tokens", &drawn));
    sample->drawn = drawn;
    int64_t tokens_max = (int64_t)sample->prompt_count + config->max_new_tokens + 1;
    return generator_create(sample->mem, &sample->session, &options, tokens_max, &sample->generator);
}

static enum gt_status samples_write(struct sample *sample)
{
    const int64_t samples = sample->config->num_samples;
    TRY(stop_texts_parse(sample->config->stop, "stop", &sample->stops));
    TRY(tokenizer_open(sample));
    TRY(prompt_read(sample));
    TRY(model_open(sample));
    TRY(generator_open(sample));
    stop_install();
    hostmem_phase_set(sample->mem, HOSTMEM_RUN);
    int64_t start_ns = clock_monotonic_ns();
    enum gt_status status = GT_OK;
    for (int64_t i = 0; i < samples && status == GT_OK; i += sample->batch)
        status = group_write(sample, i, samples - i < sample->batch ? samples - i : sample->batch);
    double seconds = (double)(clock_monotonic_ns() - start_ns) / 1e9;
    fflush(stdout);
    if (status == GT_OK)
        log_note("%" PRId64 " tokens in %.2f s, %.1f tokens/s, %" PRId64 " samples at once", sample->tokens_written,
                 seconds, (double)sample->tokens_written / seconds, sample->batch);
    return status;
}

static enum gt_status sample_run(struct sample *sample)
{
    enum gt_status status = samples_write(sample);
    hostmem_phase_set(sample->mem, HOSTMEM_CLOSE);
    generator_destroy(sample->generator);
    if (sample->session.mem)
        session_close(&sample->session);
    restore_close(&sample->source);
    hostmem_free(sample->mem, sample->drawn);
    hostmem_free(sample->mem, sample->texts);
    hostmem_free(sample->mem, sample->prompt);
    tokenizer_destroy(sample->tokenizer);
    return status;
}
