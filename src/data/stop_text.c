/* Finds stop texts in a stream.
 *
 * The held bytes are always the beginning of some stop text, so they are shorter than the longest.
 * Each new byte is appended; then bytes leave at the front until the rest is such a beginning
 * again.  The cost per byte is proportional to the length of the stop texts, which is negligible
 * compared with computing a token.
 */
#include "data/stop_text.h"

/* Returns the byte that the escape \C stands for, or 0. */
static char escaped(char c)
{
    static const char letters[] = "nt,\\", bytes[] = "\n\t,\\";
    return bytes[strcspn(letters, (char[2]){c, '\0'})];
}

static enum gt_status refuse(const char *what, const char *list, const char *why)
{
    return FAIL(GT_USAGE, "%s=%s: %s", what, list, why);
}

enum gt_status stop_texts_parse(const char *list, const char *what, struct stop_texts *out)
{
    *out = (struct stop_texts){.count = list[0] != '\0'};
    for (const char *at = list; *at != '\0'; at++) {
        char byte = *at;
        if (byte == ',') {
            if (out->count == STOP_TEXT_MAX)
                return refuse(what, list, "more than 16 texts");
            out->count++;
            continue;
        }
        if (byte == '\\') {
            byte = escaped(at[1]);
            at += byte != '\0';
        }
        if (byte == '\0')
            return refuse(what, list, "a backslash goes before a comma, n, t or another backslash");
        size_t *count = &out->at[out->count - 1].count;
        if (*count == STOP_TEXT_BYTES_MAX)
            return refuse(what, list, "a text of more than 256 bytes");
        out->at[out->count - 1].bytes[(*count)++] = byte;
    }
    for (size_t i = 0; i < out->count; i++)
        if (out->at[i].count == 0)
            return refuse(what, list, "an empty text would end every sample");
    return GT_OK;
}

/* Returns true when bytes[count] is a proper beginning of a text, or with `whole` when it is a
 * text. */
static bool matches(const struct stop_texts *texts, const char *bytes, size_t count, bool whole)
{
    for (size_t i = 0; i < texts->count; i++) {
        const size_t length = texts->at[i].count;
        if ((whole ? length == count : length > count) &&
            memcmp(texts->at[i].bytes, bytes, count) == 0)
            return true;
    }
    return false;
}

/* Returns the start of the longest suffix of bytes[count] that matches, or `count`. */
static size_t first_match(const struct stop_texts *texts, const char *bytes, size_t count,
                          bool whole)
{
    size_t first = 0;
    while (first < count && !matches(texts, bytes + first, count - first, whole))
        first++;
    return first;
}

static void byte_push(struct stop_text *state, const struct stop_texts *texts, char byte,
                      stop_text_fn *show, void *context)
{
    char bytes[STOP_TEXT_BYTES_MAX + 1];
    const size_t count = state->held_count + 1;
    memcpy(bytes, state->held, state->held_count);
    bytes[count - 1] = byte;
    size_t first = first_match(texts, bytes, count, true);
    state->found = first < count;
    if (!state->found)
        first = first_match(texts, bytes, count, false);
    if (first > 0)
        show(context, bytes, first);
    state->held_count = state->found ? 0 : count - first;
    assert(state->held_count < STOP_TEXT_BYTES_MAX);
    memcpy(state->held, bytes + first, state->held_count);
}

bool stop_text_push(struct stop_text *state, const struct stop_texts *texts, const char *text,
                    size_t count, stop_text_fn *show, void *context)
{
    if (texts->count == 0 && count > 0)
        show(context, text, count);
    for (size_t i = 0; texts->count > 0 && i < count && !state->found; i++)
        byte_push(state, texts, text[i], show, context);
    return state->found;
}

void stop_text_end(struct stop_text *state, stop_text_fn *show, void *context)
{
    if (state->held_count > 0)
        show(context, state->held, state->held_count);
    state->held_count = 0;
}
