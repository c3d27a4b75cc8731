/* gpt-sample: writes text with a trained model.
 *
 * The samples go to standard output, each followed by nanoGPT's line of dashes.  The tokenizer is the one that gpt-train
 * copied beside the checkpoint.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hostmem.h"
#include "base/log.h"
#include "cli/program.h"
#include "data/tokenizer.h"
#include "train/generate.h"
#include "train/restore.h"
#include "train/stop.h"

#define PROMPT_BYTES_MAX ((size_t)16 << 20)

struct sample {
    struct hostmem *mem;
    const struct config *config;
    struct restore_source source;
    struct session session;
    struct tokenizer *tokenizer;
    struct generator *generator;
    int32_t *prompt;
    size_t prompt_count;
};

static enum gt_status sample_run(struct sample *sample);

int main(int argc, char **argv)
{
    static struct config config; /* 30 KiB of paths */
    struct sample sample = {.config = &config};
    bool answered;
    enum gt_status status = program_start(&config, CONFIG_SAMPLE, "gpt-sample", argc, argv, &answered);
    if (status == GT_OK && !answered)
        program_spin_limit(argv);
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

static enum gt_status tokenizer_find(struct sample *sample)
{
    char path[FILE_PATH_MAX];
    TRY(file_join(path, model_folder(sample->config), TOKENIZER_FILE_NAME));
    if (file_exists(path))
        return tokenizer_open_file(sample->mem, path, &sample->tokenizer);
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
    TRY(start_text(sample->config, &text, &count));
    enum gt_status status = GT_OK;
    if (count == 0) {
        log_error("start is empty: a sample needs at least one token to begin with");
        status = GT_USAGE;
    }
    if (status == GT_OK)
        status = hostmem_alloc(sample->mem, count, sizeof(int32_t), "prompt", &array);
    sample->prompt = array;
    if (status == GT_OK)
        status = tokenizer_encode(sample->tokenizer, text, count, "start", sample->prompt, &sample->prompt_count);
    free(text);
    return status;
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
    struct model_options options = {
        .config = *config,
        .generate = true,
        .generate_batch = 1,
        .prefill_time = config->block_size < SESSION_PREFILL_TIME_MAX ? config->block_size : SESSION_PREFILL_TIME_MAX,
    };
    TRY(session_open(sample->mem, sample->config, &options, &sample->session));
    TRY(session_start(&sample->session));
    return restore_weights(&sample->session, &sample->source, 0);
}

static void write_text(const char *text, size_t count)
{
    fwrite(text, 1, count, stdout);
}

static enum gt_status sample_write(struct sample *sample, int64_t number)
{
    struct tokenizer_stream stream = {0};
    char text[TOKENIZER_TEXT_MAX];
    TRY(generator_begin(sample->generator, number, sample->prompt, (int64_t)sample->prompt_count));
    for (size_t i = 0; i < sample->prompt_count; i++)
        write_text(text, tokenizer_stream_push(sample->tokenizer, &stream, sample->prompt[i], text));
    for (int64_t i = 0; i < sample->config->max_new_tokens && !stop_requested(); i++) {
        int32_t token;
        TRY(generator_next(sample->generator, &token));
        write_text(text, tokenizer_stream_push(sample->tokenizer, &stream, token, text));
        if (fflush(stdout) != 0)
            return GT_IO; /* nobody reads on, or the disk is full: program_exit_status() says so */
    }
    write_text(text, tokenizer_stream_end(&stream, text));
    fputs("\n---------------\n", stdout);
    return stop_requested() ? GT_STOPPED : GT_OK;
}

static enum gt_status samples_write(struct sample *sample)
{
    struct generate_options options = {
        .seed = (uint64_t)sample->config->seed,
        .temperature = sample->config->temperature,
        .top_k = sample->config->top_k,
    };
    TRY(tokenizer_find(sample));
    TRY(prompt_read(sample));
    TRY(model_open(sample));
    int64_t tokens_max = (int64_t)sample->prompt_count + sample->config->max_new_tokens + 1;
    TRY(generator_create(sample->mem, &sample->session, &options, tokens_max, &sample->generator));
    stop_install();
    hostmem_phase_set(sample->mem, HOSTMEM_RUN);
    int64_t start_ns = clock_monotonic_ns();
    enum gt_status status = GT_OK;
    for (int64_t i = 0; i < sample->config->num_samples && status == GT_OK; i++)
        status = sample_write(sample, i);
    double seconds = (double)(clock_monotonic_ns() - start_ns) / 1e9;
    fflush(stdout);
    double tokens = (double)(sample->config->num_samples * sample->config->max_new_tokens);
    if (status == GT_OK)
        log_note("%.0f tokens in %.2f s, %.0f tokens/s", tokens, seconds, tokens / seconds);
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
    hostmem_free(sample->mem, sample->prompt);
    tokenizer_destroy(sample->tokenizer);
    return status;
}
