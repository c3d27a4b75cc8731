/* recompute: one level for all blocks, or a level for the first blocks and another for the others.
 *
 * "full" is one level; "full:6,none" the first six blocks and the others; "full x6 + none x6" the same as the reports print
 * it.  Counts must add up to the model's layers where both are given.  More than two groups are refused: neither the search
 * nor a checkpoint has them.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"

#define GROUPS_MAX 2
#define LAYERS_MAX 1000000

static const char not_understood[] =
    "is no level of recompute: expected none, gelu, layernorm, mlp or full, or two of them with a number of blocks, such "
    "as full:6,none";

/* A level, and how many blocks have it; 0 where that is not said. */
struct group {
    int level;
    int64_t blocks;
};

static const char *blanks_skip(const char *text)
{
    while (*text == ' ')
        text++;
    return text;
}

static bool level_read(const char **text, int *out)
{
    static const char *const words[] = {"none", "gelu", "layernorm", "mlp", "full"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t length = strlen(words[i]);
        if (strncmp(*text, words[i], length) == 0 && !isalpha((unsigned char)(*text)[length])) {
            *text += length;
            *out = (int)i;
            return true;
        }
    }
    return false;
}

/* ":6" or " x6"; nothing is 0. */
static bool blocks_read(const char **text, int64_t *out)
{
    const char *at = blanks_skip(*text);
    char *end;
    *out = 0;
    if (*at != ':' && *at != 'x')
        return true;
    at = blanks_skip(at + 1);
    if (!isdigit((unsigned char)*at))
        return false;
    long long number = strtoll(at, &end, 10);
    if (number < 1 || number > LAYERS_MAX)
        return false;
    *text = end;
    *out = number;
    return true;
}

/* Groups between commas or plus signs; their number, or 0 where the text is something else. */
static int groups_read(const char *text, struct group out[static GROUPS_MAX])
{
    for (int count = 0; count < GROUPS_MAX; count++) {
        text = blanks_skip(text);
        if (!level_read(&text, &out[count].level) || !blocks_read(&text, &out[count].blocks))
            return 0;
        text = blanks_skip(text);
        if (*text == '\0')
            return count + 1;
        if (*text != ',' && *text != '+')
            return 0;
        text++;
    }
    return 0;
}

bool config_recompute(const char *text, int64_t layers, struct config_recompute_mix *out, const char **why)
{
    struct group groups[GROUPS_MAX] = {{0, 0}, {0, 0}};
    int count = groups_read(text, groups);
    *why = not_understood;
    if (count == 0 || (count == GROUPS_MAX && groups[0].blocks == 0))
        return false;
    *why = "covers another number of blocks than n_layer";
    int64_t first = groups[0].blocks, rest = groups[count - 1].blocks;
    if (count == 1 && first != 0 && layers > 0 && first != layers)
        return false;
    if (count == GROUPS_MAX && layers > 0 && (first > layers || (rest != 0 && first + rest != layers)))
        return false;
    *out = (struct config_recompute_mix){.rest = groups[count - 1].level};
    if (count == GROUPS_MAX && groups[0].level != groups[1].level) {
        out->first_layers = first;
        out->first = groups[0].level;
    }
    return true;
}
