/* expected_losses: the validation losses that a configuration file predicts for its own run.
 *
 * The text is parsed on each query, once per evaluation.  A band applies only to the settings of the file that states
 * it, so a run that changes a setting that affects results is not compared.  Nothing here checks that the data are the
 * same.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/config_key.h"

#define POINT_FORMAT "%" SCNd64 ":%lf-%lf%n"

/* Parses one point.  Returns the number of characters read, or 0 if `text` does not begin with a valid point. */
static int point_read(const char *text, int64_t *iter, struct config_band *band)
{
    int length = 0;
    if (sscanf(text, POINT_FORMAT, iter, &band->low, &band->high, &length) != 3 || length == 0 ||
        !(band->low > 0.0 && band->low < band->high) || (text[length] != '\0' && text[length] != ' '))
        return 0;
    return length + (text[length] == ' ');
}

bool config_expected_losses(const struct config *config, int64_t iter, struct config_band *out)
{
    const char *text = config->expected_losses;
    bool found = false;
    while (*text != '\0') {
        int64_t at;
        struct config_band band;
        const int length = point_read(text, &at, &band);
        if (length == 0)
            return false;
        if (at == iter) {
            *out = band;
            found = true;
        }
        text += length;
    }
    return iter < 0 || found;
}

/* Returns true if the key cannot invalidate the losses: it has its default, or the file that states them set it. */
static bool is_expected(const struct config *config, const struct config *defaults, enum config_key key)
{
    char now[CONFIG_VALUE_TEXT_MAX], before[CONFIG_VALUE_TEXT_MAX];
    const struct config_origin *origin = &config->origin[key];
    if ((config_key_info_get(key)->flags & (CONFIG_RESULTS | CONFIG_FIXED)) == 0 || origin->source == NULL ||
        key == CONFIG_KEY_seed ||
        key == CONFIG_KEY_vocab_size) /* seeds give similar losses; the vocabulary depends on the data */
        return true;
    if (!origin->checkpoint)
        return strcmp(origin->source, config->origin[CONFIG_KEY_expected_losses].source) == 0;
    return strcmp(config_key_text(now, config, key), config_key_text(before, defaults, key)) == 0;
}

const char *config_expected_source(const struct config *config)
{
    const struct config_origin *origin = &config->origin[CONFIG_KEY_expected_losses];
    struct config defaults;
    if (origin->source == NULL || origin->line == 0)
        return origin->source; /* from the command line, hence meant for this run */
    config_defaults(&defaults, CONFIG_TRAIN);
    for (int key = 0; key < CONFIG_KEY_COUNT; key++) {
        if (!is_expected(config, &defaults, (enum config_key)key))
            return NULL;
    }
    return origin->source;
}
