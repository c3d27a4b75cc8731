/* gpt-sample: writes text with a trained model.
 *
 * The samples go to standard output, each followed by nanoGPT's line of dashes.  Several are
 * computed at once, because reading the weights dominates the time per token.  The first sample of
 * a group is printed as it is generated, the others after it.  The tokenizer is the one that
 * gpt-train copied into the checkpoint's folder, else that of the data set that the checkpoint
 * names, as in nanoGPT's sample.py.
 *
 * With --chat, each line of standard input is what the user says: sample_chat.c.
 */
#include "base/clock.h"
#include "base/hostmem.h"
#include "base/size.h"
#include "cli/program.h"
#include "cli/program_start.h"
#include "cli/restart.h"
#include "cli/sample_chat.h"
#include "config/config_key.h"
#include "data/chat.h"
#include "data/hf_hub.h"
#include "data/mixture.h"
#include "data/stop_text.h"
#include "data/text_mark.h"
#include "data/tokenizer.h"
#include "data/tokenizer_encoder.h"
#include "data/tokenizer_import.h"
#include "io/checkpoint.h"
#include "io/checkpoint_open.h"
#include "io/gguf_tokenizer.h"
#include "io/hf_cache.h"
#include "io/nanogpt.h"
#include "model/model_create.h"
#include "model/parameters.h"
#include "sample/generate.h"
#include "session/restore.h"
#include "session/restore_weights.h"
#include "session/session_open.h"
#include "session/session_start.h"
#include "session/stop.h"

#define DASHES "\n---------------\n" /* nanoGPT's */
#define PROMPT_BYTES_MAX ((size_t)16 << 20)
#define BATCH_MAX 8       /* unless sample_batch asks for more */
#define GPT2_TOKENS 50257 /* nanoGPT uses GPT-2's vocabulary if the data set has no meta.pkl */

/* The state of one sample's text. */
struct sample_text {
    struct tokenizer_stream stream;
    struct stop_text stop;
    int64_t token_count; /* generated */
};

struct sample {
    struct hostmem *mem;
    const struct config *config;
    char model[FILE_PATH_MAX];      /* where the weights are */
    char vocabulary[FILE_PATH_MAX]; /* path of the tokenizer, or its name */
    struct restore_source source;
    struct session session;
    struct tokenizer *tokenizer;
    struct generator *generator;
    int32_t *prompt;
    size_t prompt_count;
    struct stop_texts stops;
    int64_t batch;             /* samples computed at once */
    struct sample_text *texts; /* [batch] */
    int32_t *drawn;            /* [batch] */
    int64_t tokens_written;
    struct sample_chat *chat; /* of --chat */
};

static enum gt_status sample_run(struct sample *sample);

int main(int argc, char **argv)
{
    static struct config config; /* 30 KiB of paths */
    struct sample sample = {.config = &config};
    bool answered;
    program_spin_limit(argv);
    enum gt_status status =
        program_start(&config, CONFIG_SAMPLE, "gpt-sample", argc, argv, &answered);
    if (status == GT_OK && !answered)
        status = hostmem_create(&sample.mem);
    if (status == GT_OK && !answered)
        status = sample_run(&sample);
    hostmem_destroy(sample.mem);
    return program_exit_status(status);
}

/* Sets *out_found if `place` has a tokenizer.  If a folder has only a meta.pkl, `place` becomes its
 * path. */
static enum gt_status vocabulary_probe(char place[static FILE_PATH_MAX], bool *out_found)
{
    TRY(tokenizer_import_folder(place, out_found));
    if (*out_found)
        return GT_OK;
    const char *pickle = FILE_IN(place, TOKENIZER_PICKLE_NAME);
    TRY(file_stat_exists(pickle, out_found));
    if (*out_found)
        memcpy(place, pickle, FILE_PATH_MAX);
    return GT_OK;
}

/* Sets sample->vocabulary: the key `tokenizer`, else the model's folder, else those of the data
 * sets that the checkpoint names; *out_found is set if a tokenizer is there.  GPT-2's is the
 * fallback where nanoGPT's sample.py uses it, and for a downloaded GPT-2. */
static enum gt_status vocabulary_find(struct sample *sample, bool *out_found)
{
    const struct config *config = sample->config;
    const struct checkpoint *checkpoint = sample->source.checkpoint;
    const bool named = config->tokenizer[0] != '\0',
               downloaded = hf_cache_is_name(config->init_from);
    const bool is_word =
        strcmp(config->tokenizer, "bytes") == 0 || strcmp(config->tokenizer, "gpt2") == 0;
    const bool of_nanogpt =
        checkpoint->kind == CHECKPOINT_NANOGPT && checkpoint->config.vocab_size >= GPT2_TOKENS;
    const char *dataset =
        json_string_value(json_object_get(checkpoint->record.state.configuration, "dataset"));
    *out_found = false;
    snprintf(sample->vocabulary, sizeof sample->vocabulary, "%s",
             named ? config->tokenizer : sample->model);
    if (!is_word)
        TRY(vocabulary_probe(sample->vocabulary, out_found));
    if (*out_found || named)
        return GT_OK;
    struct mixture mixture = {0};
    if (dataset != NULL)
        TRY(mixture_parse(dataset, &mixture));
    for (int i = 0; i < mixture.count && !*out_found; i++) {
        memcpy(sample->vocabulary, mixture.parts[i].folder, FILE_PATH_MAX);
        TRY(vocabulary_probe(sample->vocabulary, out_found));
    }
    if (!*out_found && !of_nanogpt && !downloaded)
        return FAIL(GT_DATA,
                    "%s: the model has no tokenizer; name one with --tokenizer=PATH, gpt2 or bytes",
                    sample->model);
    if (!*out_found)
        snprintf(sample->vocabulary, sizeof sample->vocabulary, "gpt2");
    log_note("%s has no tokenizer; using %s", sample->model, sample->vocabulary);
    return GT_OK;
}

static enum gt_status tokenizer_open(struct sample *sample)
{
    bool found;
    if (sample->source.checkpoint->kind == CHECKPOINT_GGUF &&
        sample->config->tokenizer[0] == '\0') {
        snprintf(sample->vocabulary, sizeof sample->vocabulary, "%s", sample->model);
        TRY(gguf_tokenizer_open(sample->mem, sample->model, &sample->tokenizer));
        if (sample->tokenizer != NULL)
            return GT_OK;
    }
    TRY(vocabulary_find(sample, &found));
    const char *place = sample->vocabulary, *suffix = strrchr(place, '.');
    if (suffix != NULL && suffix > place && strcmp(suffix, ".pkl") == 0)
        return nanogpt_meta_open(sample->mem, place, &sample->tokenizer);
    if (found)
        return tokenizer_import(sample->mem, place, &sample->tokenizer);
    if (strcmp(place, "bytes") == 0)
        return tokenizer_create_bytes(sample->mem, &sample->tokenizer);
    return tokenizer_find(sample->mem, place, &sample->tokenizer);
}

/* Returns the file that contains the prompt, or NULL if the prompt is the text of `start`. */
static const char *prompt_path(const struct config *config)
{
    static const char prefix[] = "FILE:";
    if (config->prompt_file[0] != '\0')
        return config->prompt_file;
    return strncmp(config->start, prefix, sizeof prefix - 1) == 0
               ? config->start + sizeof prefix - 1
               : NULL;
}

/* Drops a byte-order mark and turns line ends into "\n", as gpt-prepare does. */
static enum gt_status prompt_text_convert(const char *path, char *text, size_t *count)
{
    char word[FILE_PATH_MAX];
    size_t mark, to = 0;
    const char *encoding = text_mark_of((const unsigned char *)text, *count, &mark);
    if (encoding != NULL && strcmp(encoding, "UTF-8") != 0)
        return FAIL(
            GT_USAGE,
            "%s: this text is %s, not UTF-8; iconv -f %s -t UTF-8 %s > prompt.txt converts it",
            path, encoding, encoding, file_shell_quote(word, sizeof word, path));
    for (size_t at = mark; at < *count; at++)
        if (text[at] != '\r')
            text[to++] = text[at];
        else if (at + 1 == *count || text[at + 1] != '\n')
            text[to++] = '\n';
    *count = to;
    return GT_OK;
}

/* Reads the file into `out`, which the caller must free().  An unreadable file is a bad value. */
static enum gt_status prompt_file_read(const char *path, char **out, size_t *out_count)
{
    bool exists;
    enum gt_status status = file_stat_exists(path, &exists);
    if (status == GT_OK && !exists)
        return FAIL(GT_USAGE, "%s: no such file", path);
    THEN(status, file_read_all(path, PROMPT_BYTES_MAX, out, out_count));
    THEN(status, prompt_text_convert(path, *out, out_count));
    return status == GT_IO ? GT_USAGE : status;
}

static enum gt_status prompt_read(struct sample *sample)
{
    const struct config *config = sample->config;
    const char *path = prompt_path(config), *name = path != NULL ? path : "--start";
    size_t count = strlen(config->start);
    char *text = NULL;
    enum gt_status status = GT_OK;
    if (config->prompt_file[0] != '\0' && config_key_was_set(config, CONFIG_KEY_start))
        return FAIL(GT_USAGE,
                    "--start and --prompt_file both give the text to begin with; use one of them");
    if (path != NULL)
        status = prompt_file_read(path, &text, &count);
    if (status == GT_OK && count == 0)
        status = FAIL(GT_USAGE, "%s is empty; a sample needs at least one character to begin with",
                      name);
    THEN(status, HOSTMEM_NEW(sample->mem, count * tokenizer_pipeline(sample->tokenizer)->growth + 1,
                             "prompt", &sample->prompt));
    THEN(status, tokenizer_encode_prompt(sample->tokenizer, path != NULL ? text : config->start,
                                         count, name, sample->prompt, &sample->prompt_count));
    free(text);
    return status;
}

/* Returns how many tokens a prefill processes. */
static int32_t prefill_time(const struct model_config *config)
{
    return config->block_size < SESSION_PREFILL_TIME_MAX ? config->block_size
                                                         : SESSION_PREFILL_TIME_MAX;
}

/* Returns the bytes of one sequence's key-value cache. */
static uint64_t cache_bytes(const struct model_config *config, enum dtype dtype)
{
    const uint64_t width = (uint64_t)model_head_dim(config) * (uint64_t)config->n_kv_head;
    uint64_t rows = 0;
    for (int32_t layer = 0; layer < config->n_layer; layer++)
        rows += (uint64_t)model_cache_rows(config, prefill_time(config), layer);
    return 2 * rows * width * dtype_size_bytes(dtype);
}

/* Returns the number of samples to compute at once: at most sample_batch, else at most BATCH_MAX
 * and as many as have room for their caches in an eighth of the budget.  All groups have about the
 * same size. */
static int64_t batch_choose(const struct sample *sample, const struct model_config *config)
{
    const int64_t samples = sample->config->chat ? 1 : sample->config->num_samples;
    int64_t most = sample->config->sample_batch;
    if (most == 0) {
        const uint64_t fit = sample->session.device.machine_budget_bytes / 8 /
                             cache_bytes(config, sample->session.device.dtype);
        most = fit < BATCH_MAX ? (int64_t)fit : BATCH_MAX;
    }
    most = most < 1 ? 1 : most;
    return size_ceil_div(samples, size_ceil_div(samples, most));
}

/* Looks for the model before anything else, because without it no other error matters. */
static enum gt_status checkpoint_find(struct sample *sample)
{
    const struct config *config = sample->config;
    const bool resumes = strcmp(config->init_from, "resume") == 0;
    if (resumes)
        snprintf(sample->model, sizeof sample->model, "%s", config->out_dir);
    else
        TRY(hf_cache_model_find(config->init_from, sample->model));
    TRY(program_model_check(sample->model));
    TRY(restore_open_weights(sample->mem, sample->config, &sample->source));
    checkpoint_blocks_log(sample->source.checkpoint);
    return GT_OK;
}

static enum gt_status tokenizer_check(const struct sample *sample)
{
    const int64_t tokens = sample->tokenizer->vocab_size;
    const int32_t vocab_size = sample->source.checkpoint->config.vocab_size;
    TRY(checkpoint_tokenizer_check(sample->source.checkpoint, sample->tokenizer,
                                   sample->vocabulary));
    if (tokens <= vocab_size)
        return GT_OK;
    return FAIL(GT_DATA,
                "%s: this tokenizer has %" PRId64 " tokens, the model only %" PRId32
                "; name the model's own with --tokenizer",
                sample->vocabulary, tokens, vocab_size);
}

/* Notes the limits of block_size; see generator_next(). */
static void context_report(const struct sample *sample)
{
    const struct checkpoint *checkpoint = sample->source.checkpoint;
    const int32_t block = checkpoint->config.block_size;
    const int64_t prompt = (int64_t)sample->prompt_count;
    if (prompt > block)
        log_note("the prompt has %" PRId64 " tokens; the model sees the last %" PRId32
                 " (block_size)",
                 prompt, block);
    if (prompt + sample->config->max_new_tokens - 1 > block)
        log_note("text beyond block_size=%" PRId32
                 " tokens is slower: each token recomputes the context",
                 block);
}

/* Returns the maximum number of tokens of a sequence: for a conversation, the whole context. */
static int64_t tokens_most(const struct sample *sample)
{
    if (sample->config->chat)
        return sample->source.checkpoint->config.block_size;
    return (int64_t)sample->prompt_count + sample->config->max_new_tokens;
}

static enum gt_status model_open(struct sample *sample)
{
    struct model_config config = sample->source.checkpoint->config;
    const int64_t tokens = tokens_most(sample);
    if (config.position == POSITION_ROPE && tokens < config.block_size)
        config.block_size =
            (int32_t)tokens; /* the table of angles needs no row that is never used */
    TRY(session_open(sample->mem, sample->config, &sample->session));
    sample->batch = batch_choose(sample, &config);
    struct model_options options = {
        .config = config,
        .dtype = sample->session.device.dtype,
        .generate = true,
        .generate_batch = (int32_t)sample->batch,
        .prefill_time = prefill_time(&config),
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

/* Adds a token and passes the text that can be printed to `show`. */
static void text_push(const struct sample *sample, struct sample_text *text, int32_t token,
                      stop_text_fn *show)
{
    char bytes[TOKENIZER_TEXT_MAX];
    size_t count = tokenizer_stream_push(sample->tokenizer, &text->stream, token, bytes);
    text->token_count++;
    (void)stop_text_push(&text->stop, &sample->stops, bytes, count, show, NULL);
}

/* Shows the prompt without the beginning-of-text token.  The prompt is not searched for stop texts.
 */
static void text_begin(const struct sample *sample, struct sample_text *text, stop_text_fn *show)
{
    char bytes[TOKENIZER_TEXT_MAX];
    const bool has_bos = sample->prompt[0] == tokenizer_pipeline(sample->tokenizer)->bos;
    *text = (struct sample_text){0};
    for (size_t i = has_bos ? 1 : 0; i < sample->prompt_count; i++)
        show(NULL, bytes,
             tokenizer_stream_push(sample->tokenizer, &text->stream, sample->prompt[i], bytes));
}

/* Shows the rest of a text, then `after`. */
static void text_end(struct sample *sample, struct sample_text *text, const char *after)
{
    char bytes[TOKENIZER_TEXT_MAX];
    if (!text->stop.found) {
        size_t count = tokenizer_stream_end(&text->stream, bytes);
        (void)stop_text_push(&text->stop, &sample->stops, bytes, count, text_show, NULL);
        stop_text_end(&text->stop, text_show, NULL);
    }
    sample->tokens_written += text->token_count;
    fputs(after, stdout);
}

/* Draws a token for every sample of the group.  Sets *out_all_ended if all of them have ended. */
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
    return fflush(stdout) == 0
               ? GT_OK
               : GT_IO; /* the reader is gone or the disk is full; main() reports it */
}

/* Prints a sample that was computed along with the first one. */
static void sample_replay(struct sample *sample, int64_t index)
{
    struct sample_text text;
    const int32_t *tokens = generator_sequence(sample->generator, index) + sample->prompt_count;
    text_begin(sample, &text, text_show);
    for (int64_t i = 0; i < sample->texts[index].token_count; i++)
        text_push(sample, &text, tokens[i], text_show);
    text_end(sample, &text, DASHES);
}

/* Generates and prints samples `first` to first+count-1. */
static enum gt_status group_write(struct sample *sample, int64_t first, int64_t count)
{
    bool all_ended = false;
    generator_begin(sample->generator, first, sample->prompt, (int64_t)sample->prompt_count);
    for (int64_t b = 0; b < count; b++)
        text_begin(sample, &sample->texts[b], b == 0 ? text_show : text_drop);
    for (int64_t i = 0; i < sample->config->max_new_tokens && !all_ended && !stop_requested(); i++)
        TRY(group_step(sample, count, &all_ended));
    text_end(sample, &sample->texts[0], DASHES);
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
        .min_p = config->min_p,
        .repetition = config->repetition_penalty,
        .must_be_finite = true,
    };
    TRY(HOSTMEM_NEW(sample->mem, (size_t)sample->batch, "texts of samples", &sample->texts));
    TRY(HOSTMEM_NEW(sample->mem, (size_t)sample->batch, "drawn tokens", &sample->drawn));
    return generator_create(sample->mem, &sample->session, &options, tokens_most(sample) + 1,
                            &sample->generator);
}

/* Opens the conversation of --chat. */
static enum gt_status chat_open(struct sample *sample)
{
    const struct sample_chat_spec spec = {.config = sample->config,
                                          .tokenizer = sample->tokenizer,
                                          .model = sample->model,
                                          .vocabulary = sample->vocabulary,
                                          .stops = &sample->stops,
                                          .block = sample->source.checkpoint->config.block_size};
    return sample_chat_open(sample->mem, &spec, &sample->chat);
}

/* Suggests --chat for a model that was trained on conversations. */
static void chat_note(const struct sample *sample)
{
    if (!sample->config->chat && chat_kind_learnt(sample->tokenizer) != CHAT_NONE &&
        !config_key_was_set(sample->config, CONFIG_KEY_start) &&
        !config_key_was_set(sample->config, CONFIG_KEY_prompt_file))
        log_note("this model has a chat template: add --chat to get answers; without it, the text "
                 "continues beyond the end of an answer");
}

static enum gt_status samples_write(struct sample *sample)
{
    const int64_t samples = sample->config->num_samples;
    const bool chat = sample->config->chat;
    TRY(stop_texts_parse(sample->config->stop, "stop", &sample->stops));
    TRY(checkpoint_find(sample));
    TRY(tokenizer_open(sample));
    TRY(tokenizer_check(sample));
    TRY(chat ? chat_open(sample) : prompt_read(sample));
    chat_note(sample);
    TRY(model_open(sample));
    if (!chat)
        context_report(sample);
    TRY(generator_open(sample));
    if (!chat) /* in a chat, a signal ends the program at once: it may wait for the user */
        stop_install();
    hostmem_phase_set(sample->mem, HOSTMEM_RUN);
    int64_t start_ns = clock_monotonic_ns();
    enum gt_status status = chat ? sample_chat_run(sample->chat, sample->generator) : GT_OK;
    for (int64_t i = 0; !chat && i < samples && status == GT_OK; i += sample->batch)
        status = group_write(sample, i, samples - i < sample->batch ? samples - i : sample->batch);
    double seconds = (double)(clock_monotonic_ns() - start_ns) / 1e9;
    fflush(stdout);
    if (status == GT_OK && !chat) /* the user's time is not the model's */
        log_note("%" PRId64 " tokens in %.2f s, %.1f tokens/s, %" PRId64 " sample%s at a time",
                 sample->tokens_written, seconds, (double)sample->tokens_written / seconds,
                 sample->batch, sample->batch == 1 ? "" : "s");
    return status;
}

static enum gt_status sample_run(struct sample *sample)
{
    enum gt_status status = samples_write(sample);
    hostmem_phase_set(sample->mem, HOSTMEM_CLOSE);
    session_close(&sample->session);
    return status;
}
