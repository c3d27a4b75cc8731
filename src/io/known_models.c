/* The table of known models (known_models.def): finds a model by its name, and names similar to a
 * mistyped one.
 *
 * Names are compared with their case, since the Hub's folders in the cache have that spelling too.
 * A name that differs only in case is similar.
 */
#include "io/known_models.h"

#include <math.h>
#include <strings.h>

#include "config/config_key.h"
#include "model/parameters.h"

struct known_shape {
    enum arch_kind arch;
    int32_t layers, heads, kv_heads, head_dim, channels, inner, vocabulary;
    bool tied;
    double epsilon, theta;
    const char *scaling, *source;
    struct shape more; /* its fields that are not 0 replace those of the architecture */
};

enum shape_key {
#define MODEL_SHAPE(key, ...) KNOWN_##key,
#define KNOWN_MODEL(name, key, positions, chat)
#include "io/known_models.def"
};

static const struct known_shape shapes[] = {
#define MODEL_SHAPE(key, type, ...) [KNOWN_##key] = {ARCH_##type, __VA_ARGS__},
#define KNOWN_MODEL(name, key, positions, chat)
#include "io/known_models.def"
};

static const struct row {
    const char *name;
    enum shape_key shape;
    int32_t positions;
    bool chat;
} rows[] = {
#define MODEL_SHAPE(...)
#define KNOWN_MODEL(name, key, positions, chat) {name, KNOWN_##key, positions, chat},
#include "io/known_models.def"
};

#define ROWS (sizeof rows / sizeof rows[0])

static struct model_config config_of(const struct row *row)
{
    const struct known_shape *shape = &shapes[row->shape];
    const struct arch *arch = arch_get(shape->arch);
    struct model_config config = {.shape = arch->shape, .block_size = row->positions};
    config.n_layer = shape->layers;
    config.n_head = shape->heads;
    config.n_kv_head = shape->kv_heads;
    config.n_embd = shape->channels;
    config.vocab_size = config.padded_vocab_size = shape->vocabulary;
    config.untied = !shape->tied;
    config.norm_epsilon = shape->epsilon;
    if (arch->family == FAMILY_GPT2) {
        config.bias = true;
        config.gelu = GELU_TANH;
        return config;
    }
    config.head_dim = shape->head_dim;
    config.n_inner = shape->inner;
    config.max_positions = row->positions;
    config.rope.theta = shape->theta;
    for (enum shape_property p = 0; p < SHAPE_PROPERTIES; p++)
        if (shape_get(&shape->more, p) != 0.0)
            shape_set(&config.shape, p, shape_get(&shape->more, p));
    const bool good = rope_scaling_read(shape->scaling, &config.rope);
    assert(good); /* a unit test reads the whole table */
    (void)good;
    return config;
}

bool known_model_find(const char *name, struct known_model *out)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (strcmp(rows[i].name, name) != 0)
            continue;
        *out = (struct known_model){
            .name = rows[i].name, .chat = rows[i].chat, .config = config_of(&rows[i])};
        return true;
    }
    return false;
}

/* Returns the name without its owner. */
static const char *name_alone(const char *name)
{
    const char *slash = strchr(name, '/');
    return slash != NULL ? slash + 1 : name;
}

/* Returns the number of edits between the names, without their owners; INT32_MAX if they are not
 * similar. */
static int32_t distance_to(const char *name, const char *known)
{
    struct config_nearest nearest = {.name = name_alone(name), .length = strlen(name_alone(name))};
    if (strcasecmp(name_alone(name), name_alone(known)) == 0)
        return 0;
    config_nearest_try(&nearest, name_alone(known));
    return nearest.known != NULL ? nearest.distance : INT32_MAX;
}

#define NEAR_MAX 3

char *known_models_near(char text[static KNOWN_MODELS_TEXT_MAX], const char *name)
{
    int32_t least = INT32_MAX;
    int count = 0;
    text[0] = '\0';
    for (size_t i = 0; i < ROWS; i++)
        least = distance_to(name, rows[i].name) < least ? distance_to(name, rows[i].name) : least;
    for (size_t i = 0; i < ROWS && least < INT32_MAX; i++) {
        const size_t used = strlen(text);
        if (distance_to(name, rows[i].name) == least && count++ < NEAR_MAX)
            snprintf(text + used, KNOWN_MODELS_TEXT_MAX - used, "%s%s", used > 0 ? ", " : "",
                     rows[i].name);
    }
    return text;
}

const char *known_model_of_size(double parameters)
{
    const struct row *best = NULL;
    double least = INFINITY;
    for (size_t i = 0; i < ROWS; i++) {
        const struct model_config config = config_of(&rows[i]);
        const double apart =
            fabs(log((double)model_parameter_count(&config) / fmax(parameters, 1.0)));
        if (!rows[i].chat || apart >= least)
            continue;
        best = &rows[i];
        least = apart;
    }
    return best->name;
}
