/* Parses the keys whose text has a form of its own, memory_budget and expected_losses.  Derives the
 * model's shape from the keys.
 *
 * GB is 10^9 bytes and GiB is 2^30, because the memory of cards is sold in one unit and reported in
 * the other.  A percentage refers to the device's total memory, not to its free memory.
 *
 * Expected losses are parsed on each query, once per evaluation.  A band applies only to the
 * settings of the file that states it, so a run that changes a setting that affects results is not
 * compared.  Nothing here checks that the data are the same.
 */
#include "config/config_text.h"

#include <math.h>
#include <strings.h>

#include "config/config_key.h"

#define BUDGET_BARE_MIN 1048576.0              /* a smaller number probably lacks its unit */
#define BUDGET_BYTES_MAX 1152921504606846976.0 /* 2^60 */
#define POINT_FORMAT "%" SCNd64 ":%lf-%lf%n"

/* Returns the factor of the unit, or 0 if it is unknown. */
static double unit_factor(const char *unit, uint64_t total_bytes)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {
        {"", 1},     {"b", 1},       {"kb", 1e3},       {"mb", 1e6},
        {"gb", 1e9}, {"kib", 1024},  {"mib", 1048576},  {"gib", 1073741824},
        {"k", 1024}, {"m", 1048576}, {"g", 1073741824},
    };
    if (strcmp(unit, "%") == 0)
        return (double)total_bytes / 100.0;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcasecmp(unit, units[i].name) == 0)
            return units[i].factor;
    return 0.0;
}

/* Converts the amount of key `name`. */
static enum gt_status amount_read(const char *name, const char *text, uint64_t total_bytes,
                                  uint64_t *out)
{
    char *end;
    if (*text == '\0') {
        *out = 0;
        return GT_OK;
    }
    const double number = strtod(text, &end);
    const char *unit = end + strspn(end, " ");
    const double bytes = end == text ? 0.0 : number * unit_factor(unit, total_bytes);
    const bool beyond = strcmp(unit, "%") == 0 && number > 100.0;
    if (beyond || !(bytes >= 1.0 && bytes <= BUDGET_BYTES_MAX))
        return FAIL(GT_USAGE, "invalid %s '%s'; examples: 11.4GiB, 500MiB, 80%%", name, text);
    if (*unit == '\0' && bytes < BUDGET_BARE_MIN)
        return FAIL(GT_USAGE, "%s '%s' means %.0f bytes; did you mean %.*sGiB?", name, text,
                    floor(bytes), (int)(end - text), text);
    *out = (uint64_t)bytes;
    return GT_OK;
}

enum gt_status config_memory_budget(const struct config *config, uint64_t total_bytes,
                                    uint64_t *out)
{
    return amount_read("memory_budget", config->memory_budget, total_bytes, out);
}

enum gt_status config_host_budget(const struct config *config, uint64_t total_bytes, uint64_t *out)
{
    const char *text = config->host_budget;
    return amount_read("host_budget", strcmp(text, "0") == 0 ? "" : text, total_bytes, out);
}

bool config_expected_losses(const struct config *config, int64_t iter, struct config_band *out)
{
    const char *text = config->expected_losses;
    bool found = false;
    while (*text != '\0') {
        int64_t at;
        int length = 0;
        struct config_band band;
        if (sscanf(text, POINT_FORMAT, &at, &band.low, &band.high, &length) != 3 || length == 0 ||
            !(band.low > 0.0 && band.low < band.high) ||
            (text[length] != '\0' && text[length] != ' '))
            return false;
        if (at == iter) {
            *out = band;
            found = true;
        }
        text += length + (text[length] == ' ');
    }
    return iter < 0 || found;
}

/* Returns true if the key cannot invalidate the losses: it has its default, or the file that states
 * them set it. */
static bool is_expected(const struct config *config, const struct config *defaults,
                        enum config_key key)
{
    const struct config_origin *origin = &config->origin[key];
    if ((config_key_info_get(key)->flags & (CONFIG_RESULTS | CONFIG_FIXED)) == 0 ||
        origin->source == NULL || key == CONFIG_KEY_seed ||
        key == CONFIG_KEY_vocab_size) /* seeds give similar losses; the vocabulary depends on the
                                         data */
        return true;
    if (!origin->checkpoint)
        return strcmp(origin->source, config->origin[CONFIG_KEY_expected_losses].source) == 0;
    return strcmp(CONFIG_KEY_TEXT(config, key), CONFIG_KEY_TEXT(defaults, key)) == 0;
}

const char *config_expected_source(const struct config *config)
{
    const struct config_origin *origin = &config->origin[CONFIG_KEY_expected_losses];
    struct config defaults;
    if (origin->source == NULL || origin->line == 0)
        return origin->source; /* from the command line, hence meant for this run */
    config_defaults(&defaults, CONFIG_TRAIN);
    for (int key = 0; key < CONFIG_KEY_COUNT; key++)
        if (!is_expected(config, &defaults, (enum config_key)key))
            return NULL;
    return origin->source;
}

/* ---- the model's shape ---- */

static bool is_unset(const struct config *config, enum config_key key)
{
    return config->origin[key].source == NULL;
}

/* Sets the sizes that follow from others. */
static void sizes_resolve(struct config *config)
{
    struct shape shape = {.mlp = (enum mlp_kind)(config->mlp - 1)};
#define SHAPE_INT(name, ...) shape.name = (int32_t)config->name;
#include "base/shape.def"
    shape_sizes_fill(&shape);
#define SHAPE_INT(name, ...) config->name = shape.name;
#include "base/shape.def"
}

void config_arch_resolve(struct config *config)
{
    config->arch = config->arch == 0 ? 1 + ARCH_gpt2 : config->arch;
    const struct shape *shape = &arch_get((enum arch_kind)(config->arch - 1))->shape;
#define SHAPE_INT(name, ...) config->name = config->name == 0 ? shape->name : config->name;
#define SHAPE_REAL(name, ...) config->name = config->name == 0.0 ? shape->name : config->name;
#define SHAPE_NESTED(name, place, ...) \
    config->name = config->name == 0.0 ? shape->place : config->name;
#define SHAPE_BOOL(name, ...) \
    config->name = is_unset(config, CONFIG_KEY_##name) ? shape->name : config->name;
#define SHAPE_UNLESS(name, field, ...) \
    config->name = is_unset(config, CONFIG_KEY_##name) ? !shape->field : config->name;
#define SHAPE_WORD(name, ...) \
    config->name = config->name == 0 ? 1 + (int)shape->name : config->name;
#include "base/shape.def"
    sizes_resolve(config);
}

struct shape config_shape(const struct config *config)
{
    struct shape shape = {.n_layer = 0};
#define SHAPE_INT(name, ...) shape.name = (int32_t)config->name;
#define SHAPE_REAL(name, ...) shape.name = config->name;
#define SHAPE_NESTED(name, place, ...) shape.place = config->name;
#define SHAPE_BOOL(name, ...) shape.name = config->name;
#define SHAPE_UNLESS(name, field, ...) shape.field = !config->name;
#define SHAPE_WORD(name, tag, ...) shape.name = (enum tag)(config->name - 1);
#include "base/shape.def"
    const bool good = rope_scaling_read(config->rope_scaling, &shape.rope);
    assert(good); /* config_check() has accepted the key */
    (void)good;
    return shape;
}
