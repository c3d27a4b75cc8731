/* Samples of a model that trains.
 *
 * They use the defaults of nanoGPT's sample.py.  Text goes to standard output as it is drawn; its
 * beginning is kept for metrics.jsonl.
 */
#include "train/samples.h"

#include "base/size.h"
#include "session/stop.h"

#define SAMPLE_TEMPERATURE 0.8
#define SAMPLE_TOP_K 200

enum gt_status samples_open(struct samples *samples, struct session *session, struct feed *feed,
                            const struct tokenizer *tokenizer)
{
    const struct config *config = session->config;
    struct generate_options options = {
        .seed = (uint64_t)config->seed, .temperature = SAMPLE_TEMPERATURE, .top_k = SAMPLE_TOP_K};
    *samples = (struct samples){.tokenizer = tokenizer, .tokens = config->sample_tokens};
    if (samples->tokens == 0)
        return GT_OK;
    if (conversation_is_data(feed, tokenizer))
        TRY(conversation_prompt_find(feed, tokenizer, &samples->prompt));
    if (samples->prompt.count > 0)
        options.temperature = 0.0; /* an answer changes only with the model */
    if (tokenizer != NULL)
        return generator_create(session->mem, session, &options,
                                samples->prompt.count + samples->tokens + 2, &samples->generator);
    log_note("sample_tokens has no effect: %s has no %s", feed->mixture->parts[0].folder,
             TOKENIZER_FILE_NAME);
    return GT_OK;
}

static void text_put(struct samples *samples, const char *text, size_t count)
{
    const size_t used = strlen(samples->last);
    fwrite(text, 1, count, stdout);
    snprintf(samples->last + used, sizeof samples->last - used, "%.*s", (int)count, text);
}

/* Begins with the prompt, or a newline, or token 0 if the vocabulary has no newline. */
static void sample_begin(struct samples *samples, int64_t iter)
{
    const struct conversation_prompt *prompt = &samples->prompt;
    const int32_t newline = tokenizer_id_of(samples->tokenizer, '\n'),
                  first = newline < 0 ? 0 : newline;
    samples->last[0] = '\0';
    if (prompt->count > 0)
        log_result("--- answer after %" PRId64 " iterations to: %s", iter, prompt->text);
    else
        log_result("--- sample after %" PRId64 " iterations", iter);
    generator_begin(samples->generator, iter, prompt->count > 0 ? prompt->tokens : &first,
                    max_i64(prompt->count, 1));
}

enum gt_status samples_print(struct samples *samples, int64_t iter)
{
    struct tokenizer_stream stream = {0};
    char text[TOKENIZER_TEXT_MAX];
    sample_begin(samples, iter);
    for (int64_t i = 0; i < samples->tokens && !stop_requested(); i++) {
        int32_t token;
        TRY(generator_next(samples->generator, &token));
        if (samples->prompt.count > 0 && conversation_ends(samples->tokenizer, token))
            break;
        text_put(samples, text, tokenizer_stream_push(samples->tokenizer, &stream, token, text));
    }
    text_put(samples, text, tokenizer_stream_end(&stream, text));
    printf("\n---\n");
    fflush(stdout);
    return GT_OK;
}
