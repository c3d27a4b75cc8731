/* The model's shape: its properties (shape.def), and the architectures that have names for them in
 * files (archs.def). */
#ifndef GPT_TRAIN_BASE_SHAPE_H
#define GPT_TRAIN_BASE_SHAPE_H

#include "base/bits.h"
#include "base/rope_angles.h"

/* enum norm_kind, position_kind, mlp_kind, qk_norm_kind */
#define SHAPE_LIST(...) __VA_ARGS__
#define SHAPE_ENUM(tag, enumerators) enum tag { SHAPE_LIST enumerators };
#include "base/shape.def"

/* If all but the sizes is zero, the shape is GPT-2's.  A size of 0 stands for the value that
 * shape_sizes_fill() gives it. */
struct shape {
#define SHAPE_FIELD(type, name) type name;
#include "base/shape.def"
    struct rope_config rope;
};

/* SHAPE_n_layer and so on, by the names of the keys. */
enum shape_property {
#define SHAPE_ROW(name) SHAPE_##name,
#include "base/shape.def"
    SHAPE_PROPERTIES
};

/* The family whose names a file has for fields and layers.  GPT-2's linear layers have weights [in,
 * out], Llama's [out, in]. */
enum arch_family { FAMILY_GPT2, FAMILY_LLAMA, ARCH_FAMILIES };

enum shape_type { SHAPE_TYPE_INT, SHAPE_TYPE_REAL, SHAPE_TYPE_BOOL, SHAPE_TYPE_WORD };

#define SHAPE_WORDS_MAX 4

struct shape_row {
    const char *name; /* of the key */
    enum shape_type type;
    size_t offset; /* in struct shape */
    bool inverse;  /* a bool: the struct's field is the opposite of the key and of files' fields */
    const char *const *words; /* of a choice; NULL comes last */
    const char *hf[ARCH_FAMILIES],
        *gguf[ARCH_FAMILIES]; /* fields of config.json, keys of GGUF; NULL: there is none */
    const char *hf_words[SHAPE_WORDS_MAX]; /* of a choice's field; of several, with '|' between
                                              them, the first is written; NULL: no such word */
    double least, most;                    /* of a real's field, which is in [least, most) */
    bool optional;                         /* files may lack the field */
    /* The only architectures that have the field, with '|' between them; 0 is no value of it.
     * NULL: all of the family. */
    const char *only;
};

const struct shape_row *shape_row_get(enum shape_property property);
/* Read and write any property as a number: a bool is 0 or 1, a word its enumerator. */
double shape_get(const struct shape *shape, enum shape_property property);
void shape_set(struct shape *shape, enum shape_property property, double value);
/* Writes the value with its name, "norm='rmsnorm'", for messages.  Returns `text`. */
#define SHAPE_TEXT_MAX 64
char *shape_text(char text[static SHAPE_TEXT_MAX], const struct shape *shape,
                 enum shape_property property);
#define SHAPE_TEXT(shape, property) shape_text((char[SHAPE_TEXT_MAX]){0}, shape, property)

/* Returns how many tokens a token attends to in a layer, itself included; 0 means all up to itself.
 */
int32_t shape_window(const struct shape *shape, int32_t layer);
/* Replaces sizes of 0: n_kv_head by n_head, head_dim by n_embd / n_head, n_inner by 4 n_embd (GELU)
 * or 8/3 n_embd rounded up to a multiple of 64, query_pre_attn_scalar by head_dim. */
void shape_sizes_fill(struct shape *shape);
/* Returns true if a layer, counted from 0, has a gated delta net instead of attention. */
bool shape_is_linear(const struct shape *shape, int32_t layer);
/* Returns how many of the layers before `layer` have attention. */
int32_t shape_full_before(const struct shape *shape, int32_t layer);
/* Returns true if a layer, counted from 0, rotates queries and keys. */
bool shape_rotates(const struct shape *shape, int32_t layer);

/* ---- architectures ---- */

enum arch_kind {
#define ARCH(name, ...) ARCH_##name,
#include "base/archs.def"
    ARCH_KINDS
};

struct arch {
    const char *name;
    const char *class_name;       /* of transformers; NULL: our own */
    const char *model_type;       /* of config.json; NULL: the name */
    const char *activation_field; /* of mlp, if its field has another name than in the family */
    enum arch_family family;
    struct shape shape;  /* as we train one; properties without fields in the family have these
                            values in all models */
    struct shape silent; /* values of the properties with fields, in a file that lacks the fields */
    /* How files say that a model has biases: not at all, in a field of our own, in attention_bias
     * and mlp_bias. */
    enum { BIASES_NONE, BIASES_OWN, BIASES_FIELDS } biases;
    /* Which layers have a window of attention.  NEVER: no layer.  ALWAYS: all layers or none.
     * GIVEN: all layers if a field gives a window, else none.  ON_REQUEST: the layers that fields
     * name, if a flag is set.  BY_LAYER: the layers that fields name. */
    enum { WINDOW_NEVER, WINDOW_ALWAYS, WINDOW_GIVEN, WINDOW_ON_REQUEST, WINDOW_BY_LAYER } window;
    struct {
        const char *file, *gguf;
    } norms[4]; /* names of the norms of attention and of the MLP, then, if there are four, of those
                   after them */
    /* Which versions of llama.cpp need an output layer in the file even if it is the embedding:
     * none, old ones, all. */
    enum { GGUF_OUTPUT_FREE, GGUF_OUTPUT_ONCE, GGUF_OUTPUT_NEEDED } gguf_output;
    const char *gguf;      /* GGUF's architecture; NULL: the name */
    bool gguf_neighbours;  /* llama.cpp rotates pairs of neighbours in a head, so queries and keys
                              have another order there */
    bool gguf_divisors;    /* llama.cpp knows rope_scaling llama3 */
    bool gguf_whole_heads; /* llama.cpp needs head_dim = n_embd / n_head */
};

const struct arch *arch_get(enum arch_kind kind);
/* Return the architecture's model_type, and its name in GGUF. */
const char *arch_model_type(const struct arch *arch);
const char *arch_gguf_name(const struct arch *arch);
/* Return the field of config.json, and the key of GGUF, that an architecture has for a property, or
 * NULL. */
const char *arch_field(const struct arch *arch, enum shape_property property);
const char *arch_gguf_key(const struct arch *arch, enum shape_property property);
/* Returns true if a file of the architecture can express a property's value. */
bool arch_says(const struct arch *arch, enum shape_property property, double value);
/* Returns the first architecture whose class can express the whole shape, or else our own.  Files
 * have the names of its row. */
const struct arch *arch_of(const struct shape *shape);
/* Returns the architecture, of those that are words of the key `arch`, whose models have most in
 * common with this one.  Sets *differs to the first property that its class cannot express, or to
 * SHAPE_PROPERTIES. */
const struct arch *arch_nearest(const struct shape *shape, enum shape_property *differs);

#endif
