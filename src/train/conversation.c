/* Conversations while a run trains: one of the training data before the first step, with what is
 * learnt marked, and at each evaluation the model's answer to a prompt of the validation data.
 *
 * Both are read from the rows of packed conversations: a conversation ends at the end-of-text
 * token, and its mask says which tokens count.  They are read into the feed's tensors, so that
 * nothing is allocated but the prompt.
 */
#include "train/conversation.h"

#include "base/size.h"
#include "data/chat.h"

#define SHOWN_BYTES 1200

/* A text of limited length. */
struct shown {
    char *text;
    size_t size, used;
    bool cut;
};

static void shown_add(struct shown *shown, const char *text, size_t count)
{
    if (shown->cut || shown->used + count + 4 > shown->size) {
        if (!shown->cut)
            snprintf(shown->text + shown->used, 4, "...");
        shown->cut = true;
        return;
    }
    memcpy(shown->text + shown->used, text, count);
    shown->used += count;
    shown->text[shown->used] = '\0';
}

/* Reads the row at `position` into the feed's tensors.  Sets *out to the number of tokens of its
 * first conversation, without the end-of-text token after it. */
static enum gt_status first_read(struct feed *feed, struct token_source *source, int64_t position,
                                 int64_t *out)
{
    const struct batch_tensors *row = &feed->tensors;
    int64_t count = 0;
    TRY(batch_sample_read(feed->builder, source, position, feed->block_size, 0, row));
    while (count < feed->block_size &&
           (row->ids[count] != row->end ||
            (row->ends_twice && (count == 0 || row->ids[count - 1] != row->end))))
        count++;
    *out = count;
    return GT_OK;
}

/* Returns true if token `i` of the row that was read is one that the model learns to write. */
static bool is_learnt(const struct feed *feed, int64_t i)
{
    return i > 0 && feed->tensors.targets[i - 1] != BATCH_TARGET_IGNORED;
}

/* Writes the first `count` tokens of the row that was read, with marks around what is learnt,
 * unless `plain`. */
static void tokens_show(const struct feed *feed, const struct tokenizer *tokenizer, int64_t count,
                        bool plain, struct shown *shown)
{
    struct tokenizer_stream stream = {0};
    char text[TOKENIZER_TEXT_MAX];
    bool inside = false;
    for (int64_t i = 0; i <= count && !shown->cut; i++) {
        const bool learnt = i < count && !plain && is_learnt(feed, i);
        if (learnt != inside)
            shown_add(shown, learnt ? "[[" : "]]", 2);
        inside = learnt;
        if (i < count)
            shown_add(shown, text,
                      tokenizer_stream_push(tokenizer, &stream, feed->tensors.ids[i], text));
    }
    shown_add(shown, text, tokenizer_stream_end(&stream, text));
}

bool conversation_is_data(const struct feed *feed, const struct tokenizer *tokenizer)
{
    return feed->parts[0].source[TOKEN_TRAIN]->row > 0 && tokenizer != NULL &&
           tokenizer_eot(tokenizer) >= 0;
}

enum gt_status conversation_log(struct feed *feed, const struct tokenizer *tokenizer, int64_t iter)
{
    char text[SHOWN_BYTES] = "", *at = text;
    struct shown shown = {.text = text, .size = sizeof text};
    int64_t position, count, learnt = 0, tokens = 0;
    for (int i = 0; i < feed->mixture->count; i++) {
        const struct token_source *source = feed->parts[i].source[TOKEN_TRAIN];
        learnt += token_source_mask(source, 0, source->length, NULL);
        tokens += source->length;
    }
    struct token_source *source = feed_sample(feed, iter, 0, &position);
    if (source->row == 0)
        return GT_OK;
    TRY(first_read(feed, source, position, &count));
    tokens_show(feed, tokenizer, count, false, &shown);
    log_result("%" PRId64 " of %" PRId64
               " tokens (%.0f %%) are trained on: the answers; losses count only these",
               learnt, tokens, 100.0 * (double)learnt / (double)tokens);
    log_result(
        "a conversation as the model sees it; what it learns to write stands between [[ and ]]:");
    for (const char *line; (line = strsep(&at, "\n")) != NULL;)
        if (line[0] != '\0' || at != NULL)
            log_result("  %s", line);
    return GT_OK;
}

enum gt_status conversation_prompt_find(struct feed *feed, const struct tokenizer *tokenizer,
                                        struct conversation_prompt *out)
{
    struct token_source *source = feed->parts[0].source[TOKEN_VAL];
    struct shown shown = {.text = out->text, .size = sizeof out->text};
    int64_t count, prompt = 1;
    TRY(first_read(feed, source, 0, &count));
    while (prompt < count && !is_learnt(feed, prompt))
        prompt++;
    if (prompt >= count)
        return GT_OK; /* no answer follows: samples begin with a newline */
    TRY(HOSTMEM_NEW(feed->mem, (size_t)prompt, "a prompt", &out->tokens));
    memcpy(out->tokens, feed->tensors.ids, (size_t)prompt * sizeof *out->tokens);
    out->count = prompt;
    tokens_show(feed, tokenizer, prompt, true, &shown);
    return GT_OK;
}

bool conversation_ends(const struct tokenizer *tokenizer, int32_t token)
{
    return token == chat_end(tokenizer) || token == tokenizer_eot(tokenizer);
}
