/* What may move to host memory: the names, the texts of mixes, and the lists that the key offload
 * holds.
 */
#include "base/offload.h"

static const char *const names[] = {
    [OFFLOAD_STATES] = "states", [OFFLOAD_GRADIENTS] = "gradients", [OFFLOAD_WEIGHTS] = "weights"};

int32_t offload_quarters(const struct offload_mix *mix)
{
    int32_t sum = 0;
    for (size_t i = 0; i < OFFLOAD_CLASSES; i++)
        sum += mix->quarters[i];
    return sum;
}

bool offload_equal(const struct offload_mix *a, const struct offload_mix *b)
{
    return memcmp(a->quarters, b->quarters, sizeof a->quarters) == 0;
}

char *offload_text(char text[static OFFLOAD_TEXT_MAX], const struct offload_mix *mix, bool lora)
{
    static const char *const shares[OFFLOAD_ALL + 1] = {"", "1/4 of ", "1/2 of ", "3/4 of ", ""};
    size_t used = 0;
    snprintf(text, OFFLOAD_TEXT_MAX, "none");
    for (size_t i = 0; i < OFFLOAD_CLASSES; i++)
        if (mix->quarters[i] > 0)
            used += (size_t)snprintf(text + used, OFFLOAD_TEXT_MAX - used, "%s%s%s%s",
                                     used > 0 ? ", " : "", shares[mix->quarters[i]],
                                     lora ? "frozen " : "", names[i]);
    return text;
}

static bool word_is(const char *word, size_t length, const char *name)
{
    return strlen(name) == length && strncmp(word, name, length) == 0;
}

/* Adds what a word of the list names.  Returns false if it names nothing that can move. */
static bool word_add(const char *word, size_t length, struct offload_list *out)
{
    if (word_is(word, length, "residuals"))
        return out->residuals = true;
    for (size_t i = 0; i < OFFLOAD_CLASSES; i++)
        if (word_is(word, length, names[i]))
            return out->moves[i] = true;
    return false;
}

bool offload_read(const char *text, struct offload_list *out, const char **bad)
{
    *out = (struct offload_list){.is_auto = strcmp(text, "auto") == 0,
                                 .all = strcmp(text, "all") == 0};
    if (out->is_auto || strcmp(text, "none") == 0)
        return true;
    if (out->all) {
        out->residuals = true;
        for (size_t i = 0; i < OFFLOAD_CLASSES; i++)
            out->moves[i] = true;
        return true;
    }
    for (*bad = text;; (*bad)++) {
        const size_t length = strcspn(*bad, ",");
        if (!word_add(*bad, length, out))
            return false;
        *bad += length;
        if (**bad == '\0')
            return true;
    }
}
