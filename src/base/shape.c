/* The tables of the model's shape and of the architectures as data, and the queries that code of
 * several folders makes.
 *
 * Only this file accesses the properties by offset.  The architecture of a model is not stored: it
 * follows from the shape, so that a model has the names of a class in files exactly if that class
 * can express all of it.
 */
#include "base/shape.h"

#define SHAPE_WORDS(name, texts)                                        \
    static const char *const words_##name[] = {SHAPE_LIST texts, NULL}; \
    _Static_assert(sizeof words_##name / sizeof words_##name[0] <= SHAPE_WORDS_MAX, "");
#include "base/shape.def"

/* clang-format off */
static const struct shape_row rows[SHAPE_PROPERTIES] = {
#define ROW(id, kind, place) .name = #id, .type = kind, .offset = offsetof(struct shape, place)
#define SHAPE_INT(id, value, min, max, flags, help, ...) {ROW(id, SHAPE_TYPE_INT, id), __VA_ARGS__},
#define SHAPE_REAL(id, value, min, max, flags, help, ...) {ROW(id, SHAPE_TYPE_REAL, id), __VA_ARGS__},
#define SHAPE_NESTED(id, place, value, min, max, flags, help, ...) {ROW(id, SHAPE_TYPE_REAL, place), __VA_ARGS__},
#define SHAPE_BOOL(id, value, flags, help, ...) {ROW(id, SHAPE_TYPE_BOOL, id), __VA_ARGS__},
#define SHAPE_UNLESS(id, field, value, flags, help, ...) \
    {ROW(id, SHAPE_TYPE_BOOL, field), .inverse = true, __VA_ARGS__},
#define SHAPE_WORD(id, tag, flags, help, ...) {ROW(id, SHAPE_TYPE_WORD, id), .words = words_##id, __VA_ARGS__},
#include "base/shape.def"
};

static const struct arch archs[ARCH_KINDS] = {
#define ARCH(id, ...) {.name = #id, __VA_ARGS__},
#include "base/archs.def"
};

enum {
    ARCH_KEY_WORDS = 0
#define ARCH(id, ...) +1
#define ARCH_OF_FILES(id, ...)
#include "base/archs.def"
};
/* clang-format on */

const struct shape_row *shape_row_get(enum shape_property property)
{
    assert((size_t)property < SHAPE_PROPERTIES);
    return &rows[property];
}

double shape_get(const struct shape *shape, enum shape_property property)
{
    const struct shape_row *row = shape_row_get(property);
    const void *at = (const char *)shape + row->offset;
    switch (row->type) {
    case SHAPE_TYPE_INT:
        return *(const int32_t *)at;
    case SHAPE_TYPE_REAL:
        return *(const double *)at;
    case SHAPE_TYPE_BOOL:
        return *(const bool *)at ? 1.0 : 0.0;
    default:
        return *(const int *)at; /* an enum */
    }
}

void shape_set(struct shape *shape, enum shape_property property, double value)
{
    const struct shape_row *row = shape_row_get(property);
    void *at = (char *)shape + row->offset;
    if (row->type == SHAPE_TYPE_INT)
        *(int32_t *)at = (int32_t)value;
    else if (row->type == SHAPE_TYPE_REAL)
        *(double *)at = value;
    else if (row->type == SHAPE_TYPE_BOOL)
        *(bool *)at = value != 0.0;
    else
        *(int *)at = (int)value;
}

char *shape_text(char text[static SHAPE_TEXT_MAX], const struct shape *shape,
                 enum shape_property property)
{
    const struct shape_row *row = shape_row_get(property);
    const double value = shape_get(shape, property);
    if (row->type == SHAPE_TYPE_WORD)
        (void)snprintf(text, SHAPE_TEXT_MAX, "%s='%s'", row->name, row->words[(int)value]);
    else if (row->type == SHAPE_TYPE_BOOL)
        (void)snprintf(text, SHAPE_TEXT_MAX, "%s=%s", row->name,
                       (value != 0.0) != row->inverse ? "True" : "False");
    else
        (void)snprintf(text, SHAPE_TEXT_MAX, "%s=%.15g", row->name, value);
    return text;
}

/* The width of a gated MLP by default: 8/3 of the model's, so that its three matrices have about as
 * many weights as the two of GPT-2's, and a multiple of this. */
#define INNER_MULTIPLE 64

/* Returns the size for which 0 stands, or 0 if it stands for none. */
static int32_t size_meant(const struct shape *shape, enum shape_property property)
{
    const bool divides = shape->n_head > 0 && shape->n_embd % shape->n_head == 0;
    switch (property) {
    case SHAPE_n_kv_head:
        return shape->n_head;
    case SHAPE_head_dim:
        return divides ? shape->n_embd / shape->n_head : 0;
    case SHAPE_n_inner:
        return shape->mlp == MLP_GELU ? 4 * shape->n_embd
                                      : (8 * shape->n_embd + 3 * INNER_MULTIPLE - 1) /
                                            (3 * INNER_MULTIPLE) * INNER_MULTIPLE;
    case SHAPE_query_pre_attn_scalar:
        return shape->head_dim > 0 ? shape->head_dim : size_meant(shape, SHAPE_head_dim);
    default:
        return 0;
    }
}

void shape_sizes_fill(struct shape *shape)
{
    for (int p = 0; p < SHAPE_PROPERTIES; p++)
        if (rows[p].type == SHAPE_TYPE_INT && shape_get(shape, (enum shape_property)p) == 0.0)
            shape_set(shape, (enum shape_property)p, size_meant(shape, (enum shape_property)p));
}

bool shape_is_linear(const struct shape *shape, int32_t layer)
{
    const int32_t interval = shape->full_attention_interval;
    return interval > 0 && (layer + 1) % interval != 0;
}

int32_t shape_full_before(const struct shape *shape, int32_t layer)
{
    const int32_t interval = shape->full_attention_interval;
    return interval > 0 ? layer / interval : layer;
}

bool shape_rotates(const struct shape *shape, int32_t layer)
{
    const int32_t interval = shape->no_rope_layer_interval;
    return shape->position == POSITION_ROPE && (interval == 0 || (layer + 1) % interval != 0);
}

int32_t shape_window(const struct shape *shape, int32_t layer)
{
    const int32_t pattern = shape->sliding_window_pattern;
    const bool whole =
        layer < shape->max_window_layers || (pattern > 0 && (layer + 1) % pattern == 0);
    return whole ? 0 : shape->sliding_window;
}

/* ---- architectures ---- */

const struct arch *arch_get(enum arch_kind kind)
{
    assert((size_t)kind < ARCH_KINDS);
    return &archs[kind];
}

const char *arch_model_type(const struct arch *arch)
{
    return arch->model_type != NULL ? arch->model_type : arch->name;
}

const char *arch_gguf_name(const struct arch *arch)
{
    return arch->gguf != NULL ? arch->gguf : arch->name;
}

static bool has_fields(const struct arch *arch, const struct shape_row *row)
{
    const size_t length = strlen(arch->name);
    for (const char *name = row->only; name != NULL; name = strchr(name, '|')) {
        name += *name == '|';
        if (strncmp(name, arch->name, length) == 0 && (name[length] == '|' || name[length] == '\0'))
            return true;
    }
    return row->only == NULL;
}

const char *arch_field(const struct arch *arch, enum shape_property property)
{
    const struct shape_row *row = shape_row_get(property);
    if (property == SHAPE_mlp && arch->activation_field != NULL)
        return arch->activation_field;
    return has_fields(arch, row) ? row->hf[arch->family] : NULL;
}

const char *arch_gguf_key(const struct arch *arch, enum shape_property property)
{
    const struct shape_row *row = shape_row_get(property);
    return has_fields(arch, row) ? row->gguf[arch->family] : NULL;
}

bool arch_says(const struct arch *arch, enum shape_property property, double value)
{
    const struct shape_row *row = shape_row_get(property);
    return arch_field(arch, property) != NULL &&
           (row->type != SHAPE_TYPE_WORD || row->hf_words[(int)value] != NULL) &&
           (row->only == NULL || value != 0.0);
}

static bool is_of_windows(enum shape_property property)
{
    return property == SHAPE_sliding_window || property == SHAPE_sliding_window_pattern ||
           property == SHAPE_max_window_layers;
}

/* Returns true if the class can express which layers have a window. */
static bool window_is_said(const struct arch *arch, const struct shape *shape)
{
    const bool all = shape->sliding_window_pattern == 0 && shape->max_window_layers == 0;
    if (arch->window == WINDOW_BY_LAYER)
        return shape->sliding_window > 0 && shape->sliding_window_pattern > 0 &&
               shape->max_window_layers == 0;
    return arch->window == WINDOW_ON_REQUEST || (arch->window != WINDOW_NEVER && all);
}

/* Returns true if a property has no effect in a model, or in those of an architecture. */
static bool is_idle(const struct arch *arch, const struct shape *shape,
                    enum shape_property property)
{
    return (property == SHAPE_gelu && (shape->mlp != MLP_GELU || arch->shape.mlp != MLP_GELU)) ||
           (property == SHAPE_qkv_bias && shape->bias) ||
           ((is_of_windows(property) || property == SHAPE_rope_local_theta) &&
            shape->sliding_window == 0 && arch->window != WINDOW_BY_LAYER) ||
           (property == SHAPE_rope_theta && shape->position != POSITION_ROPE);
}

/* Returns true if the class of an architecture cannot express a property of a model and has another
 * value. */
static bool is_other(const struct arch *arch, const struct shape *shape,
                     enum shape_property property)
{
    const double value = shape_get(shape, property);
    if (property == SHAPE_bias && arch->biases != BIASES_NONE)
        return false;
    if (is_of_windows(property) && window_is_said(arch, shape))
        return false;
    /* The convolutions of a delta net have the field's activation in transformers, silu here. */
    if (property == SHAPE_mlp && arch->shape.linear_num_key_heads > 0)
        return value != MLP_SWIGLU;
    if (value == shape_get(&arch->shape, property) || arch_says(arch, property, value))
        return false;
    return !is_idle(arch, shape, property) &&
           !(rows[property].type == SHAPE_TYPE_INT && value == size_meant(shape, property));
}

/* Returns how many properties of a model the class cannot express, and the first of them. */
static int others_count(const struct arch *arch, const struct shape *shape,
                        enum shape_property *first)
{
    int count = 0;
    *first = SHAPE_PROPERTIES;
    for (int p = SHAPE_PROPERTIES - 1; p >= 0; p--) {
        if (!is_other(arch, shape, (enum shape_property)p))
            continue;
        *first = (enum shape_property)p;
        count++;
    }
    return count;
}

/* Returns true if the class can express the whole shape.  Planning calls it often, so the common
 * answer for each property needs no call: the architecture's own value, or a field that is no
 * choice of words. */
static bool is_said(const struct arch *arch, const struct shape *shape)
{
#define SAID(name, field)                                                           \
    if (shape->field != arch->shape.field &&                                        \
        (rows[SHAPE_##name].hf[arch->family] == NULL || rows[SHAPE_##name].words || \
         rows[SHAPE_##name].only) &&                                                \
        is_other(arch, shape, SHAPE_##name))                                        \
        return false;
#define SHAPE_INT(name, ...) SAID(name, name)
#define SHAPE_REAL(name, ...) SAID(name, name)
#define SHAPE_NESTED(name, place, ...) SAID(name, place)
#define SHAPE_BOOL(name, ...) SAID(name, name)
#define SHAPE_UNLESS(name, field, ...) SAID(name, field)
#define SHAPE_WORD(name, ...) SAID(name, name)
#include "base/shape.def"
    return true;
}

const struct arch *arch_of(const struct shape *shape)
{
    const struct arch *arch = archs;
    while (arch->class_name != NULL && !is_said(arch, shape))
        arch++;
    return arch;
}

const struct arch *arch_nearest(const struct shape *shape, enum shape_property *differs)
{
    const struct arch *nearest = archs;
    int least = others_count(nearest, shape, differs);
    for (const struct arch *arch = archs + 1; arch < archs + ARCH_KEY_WORDS; arch++) {
        enum shape_property first;
        const int count = others_count(arch, shape, &first);
        if (count >= least)
            continue;
        nearest = arch;
        least = count;
        *differs = first;
    }
    return nearest;
}
