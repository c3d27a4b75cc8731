/* The table of keys as data, and the only function that assigns a value to a field.
 *
 * Values are those of the configuration language: Python's None, bool, int, float and str, and their arithmetic.
 * Integers have 64 bits.  Overflow is an error, and so is a float that is not finite.
 */
#ifndef GPT_TRAIN_CONFIG_CONFIG_KEY_H
#define GPT_TRAIN_CONFIG_CONFIG_KEY_H

#include "config/config.h"

enum config_value_type {
    CONFIG_VALUE_NONE,
    CONFIG_VALUE_BOOL,
    CONFIG_VALUE_INT,
    CONFIG_VALUE_REAL,
    CONFIG_VALUE_STRING,
};

struct config_value {
    enum config_value_type type;
    int64_t integer;  /* int, and 0 or 1 for bool */
    double real;      /* float */
    const char *text; /* str: borrowed, zero-terminated, no zero byte inside */
};

enum config_operator {
    CONFIG_OPERATOR_ADD,
    CONFIG_OPERATOR_SUBTRACT,
    CONFIG_OPERATOR_MULTIPLY,
    CONFIG_OPERATOR_DIVIDE,
    CONFIG_OPERATOR_FLOOR_DIVIDE,
    CONFIG_OPERATOR_MODULO,
    CONFIG_OPERATOR_POWER,
};

/* Returns Python's name of the type, for messages: "None", "bool", "int", "float" or "str". */
const char *config_value_type_name(enum config_value_type type);

/* Computes out = left OP right for numbers, with Python's rules: bool counts as int, `/` gives a float, `//` rounds
 * down, `%` takes the divisor's sign, int ** negative int is a float.  `out` may be one of the operands.  Returns NULL,
 * or what is wrong, for the caller's message. */
const char *config_value_binary(enum config_operator op, const struct config_value *left,
                                const struct config_value *right, struct config_value *out);
/* Computes unary plus (ADD) and minus (SUBTRACT), with the same errors. */
const char *config_value_unary(enum config_operator op, const struct config_value *in, struct config_value *out);

/* Writes Python's repr() of a finite float: the shortest digits that parse back to it ("6e-05", "600.0"). */
#define CONFIG_REAL_TEXT_MAX 40
char *config_real_text(char text[static CONFIG_REAL_TEXT_MAX], double value);
#define CONFIG_REAL_TEXT(value) config_real_text((char[CONFIG_REAL_TEXT_MAX]){0}, value)

/* Writes a value as a Python literal, cut with "...'".  Returns `out`. */
#define CONFIG_VALUE_TEXT_MAX 80
char *config_value_text(char out[static CONFIG_VALUE_TEXT_MAX], const struct config_value *value);
#define CONFIG_VALUE_TEXT(value) config_value_text((char[CONFIG_VALUE_TEXT_MAX]){0}, value)

/* ---- keys ---- */

enum config_type { CONFIG_TYPE_INT, CONFIG_TYPE_REAL, CONFIG_TYPE_BOOL, CONFIG_TYPE_STRING, CONFIG_TYPE_CHOICE };

struct config_key_info {
    const char *name;
    const char *help;
    const char *const *words; /* choice: ends with NULL */
    enum config_type type;
    unsigned programs; /* enum config_program */
    unsigned flags;    /* enum config_flag */
    size_t offset;     /* of the field in struct config */
    size_t capacity;   /* string: bytes of the field */
    int64_t int_min, int_max;
    double real_min, real_max;
};

const struct config_key_info *config_key_info_get(enum config_key key);
/* Returns "gpt-train" or "gpt-sample". */
const char *config_program_name(enum config_program program);

/* Finds a key by name; `-` equals `_`.  Returns CONFIG_KEY_COUNT if there is none. */
enum config_key config_key_find(const char *name, size_t length);
/* The search for the known name that is nearest to a mistyped one; `-` equals `_`. */
struct config_nearest {
    const char *name; /* as typed, `length` bytes */
    size_t length;
    const char *known; /* NULL: none is close enough to be a likely typo */
    int distance;      /* number of edits */
};
void config_nearest_try(struct config_nearest *nearest, const char *known);
/* Returns the key of `program` whose name a mistyped one most likely meant; CONFIG_KEY_COUNT if none is close. */
enum config_key config_key_nearest(const char *name, size_t length, enum config_program program);
/* Returns true if the name as typed is `known`; `-` equals `_`. */
bool config_name_is(const char *name, size_t length, const char *known);
/* Returns true if the name is one of Weights & Biases' settings, which have no effect. */
bool config_name_is_wandb(const char *name, size_t length);
/* Writes " (did you mean n_layer?)", or our name for a key of another program, to `out`.  Returns `out`. */
#define CONFIG_HINT_MAX 128
char *config_key_hint(char out[static CONFIG_HINT_MAX], const char *name, size_t length, enum config_program program);

/* ---- names that other programs have for keys (names.def) ---- */

enum config_other_kind {
    CONFIG_OTHER_SAME,     /* another name of `key` */
    CONFIG_OTHER_UPDATES,  /* a number of updates, one more than `key` */
    CONFIG_OTHER_TRUE,     /* True sets `key` to `text` */
    CONFIG_OTHER_NEEDLESS, /* ignored with the answer `text` */
    CONFIG_OTHER_LACKING,  /* refused with the answer `text` */
    CONFIG_OTHER_HINT      /* an unknown key; `text` is the hint */
};

struct config_other {
    const char *name;
    enum config_other_kind kind;
    unsigned programs;
    enum config_key key; /* CONFIG_KEY_COUNT: none */
    const char *text;
};

/* Returns the row of a name that other programs have and that is no key here, or NULL. */
const struct config_other *config_other_find(const char *name, size_t length, enum config_program program);
/* Does what a name that is not just another name of a key asks for, as its row says.  Errors: GT_USAGE, logged. */
enum gt_status config_other_set(struct config *config, const struct config_other *other,
                                const struct config_value *value, const struct config_origin *origin);

/* ---- values as text: of the command line, and of files in YAML and JSON (config_names.c) ---- */

/* Returns 0 or 1, or -1 for a word that is not a boolean. */
int config_boolean_word(const char *text);
/* Converts `text` to a value of the key's type and assigns it.  Errors: GT_USAGE, logged. */
enum gt_status config_text_assign(struct config *config, enum config_key key, const char *text,
                                  const struct config_origin *origin);
/* The same for config_other_set(). */
enum gt_status config_other_text_set(struct config *config, const struct config_other *other, const char *text,
                                     const struct config_origin *origin);
/* Reads a configuration file of any form: by the end of its name YAML or JSON (config_flat.c), else nanoGPT's.  `path`
 * must outlive `config`.  Errors: GT_USAGE, logged. */
enum gt_status config_read_file(struct config *config, const char *path);

/* Returns the current value.  A string points into `config`, a word of a choice into the table. */
struct config_value config_key_value(const struct config *config, enum config_key key);
/* Writes the value as a Python literal, for --help and messages.  Returns `out`; the macro's lives as long as the
 * enclosing block, as those of the macros below do. */
char *config_key_text(char out[static CONFIG_VALUE_TEXT_MAX], const struct config *config, enum config_key key);
#define CONFIG_KEY_TEXT(config, key) config_key_text((char[CONFIG_VALUE_TEXT_MAX]){0}, config, key)

/* Checks type and range, then sets field and origin.  The only conversions are from int to float and, for keys with
 * CONFIG_WHOLE, from a float without fraction to int.
 * Errors: GT_USAGE, logged with the place that `origin` names. */
enum gt_status config_key_assign(struct config *config, enum config_key key, const struct config_value *value,
                                 const struct config_origin *origin);

/* Writes the origin of a value: "FILE:LINE:COLUMN", "--key=value", or "the default", cut at `size`.  Returns `out`. */
char *config_origin_text(char *out, size_t size, const struct config_origin *origin);
#define CONFIG_ORIGIN_TEXT_MAX (FILE_PATH_MAX + 32)
#define CONFIG_ORIGIN_TEXT(origin) config_origin_text((char[CONFIG_ORIGIN_TEXT_MAX]){0}, CONFIG_ORIGIN_TEXT_MAX, origin)
/* Writes "n_embd=100 (x.py:3:1)".  Returns `out`. */
char *config_key_described(char out[static CONFIG_ORIGIN_TEXT_MAX], const struct config *config, enum config_key key);
#define CONFIG_KEY_DESCRIBED(config, key) config_key_described((char[CONFIG_ORIGIN_TEXT_MAX]){0}, config, key)

#endif
