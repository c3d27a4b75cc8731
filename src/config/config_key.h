/* The table of keys as data, and the only function that assigns a value to a field. */
#ifndef GPT_TRAIN_CONFIG_CONFIG_KEY_H
#define GPT_TRAIN_CONFIG_CONFIG_KEY_H

#include "config/config.h"
#include "config/config_value.h"

enum config_type {
    CONFIG_TYPE_INT,
    CONFIG_TYPE_REAL,
    CONFIG_TYPE_BOOL,
    CONFIG_TYPE_STRING,
    CONFIG_TYPE_WORD
};

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
/* Returns true if the path ends like that of a flat list of keys and values, in YAML or JSON. */
bool config_path_is_flat(const char *path);

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
/* Returns the key of `program` whose name a mistyped one most likely meant; CONFIG_KEY_COUNT if
 * none is close. */
enum config_key config_key_nearest(const char *name, size_t length, enum config_program program);
/* Returns true if the name as typed is `known`; `-` equals `_`. */
bool config_name_is(const char *name, size_t length, const char *known);
/* Returns true if the name is one of Weights & Biases' settings, which have no effect. */
bool config_name_is_wandb(const char *name, size_t length);

/* Returns the current value.  A string points into `config`, a word of a choice into the table. */
struct config_value config_key_value(const struct config *config, enum config_key key);
/* Writes the value as a Python literal, for --help and messages.  Returns `out`; the macro's lives
 * as long as the enclosing block, as those of the macros below do. */
char *config_key_text(char out[static CONFIG_VALUE_TEXT_MAX], const struct config *config,
                      enum config_key key);
#define CONFIG_KEY_TEXT(config, key) config_key_text((char[CONFIG_VALUE_TEXT_MAX]){0}, config, key)

/* Checks type and range, then sets field and origin.  The only conversions are from int to float
 * and, for keys with CONFIG_WHOLE, from a float without fraction to int. Errors: GT_USAGE, logged
 * with the place that `origin` names. */
enum gt_status config_key_assign(struct config *config, enum config_key key,
                                 const struct config_value *value,
                                 const struct config_origin *origin);

/* Writes the origin of a value: "FILE:LINE:COLUMN", "--key=value", or "the default", cut at `size`.
 * Returns `out`. */
char *config_origin_text(char *out, size_t size, const struct config_origin *origin);
#define CONFIG_ORIGIN_TEXT_MAX (FILE_PATH_MAX + 32)
#define CONFIG_ORIGIN_TEXT(origin) \
    config_origin_text((char[CONFIG_ORIGIN_TEXT_MAX]){0}, CONFIG_ORIGIN_TEXT_MAX, origin)
/* Writes "n_embd=100 (x.py:3:1)".  Returns `out`. */
char *config_key_described(char out[static CONFIG_ORIGIN_TEXT_MAX], const struct config *config,
                           enum config_key key);
#define CONFIG_KEY_DESCRIBED(config, key) \
    config_key_described((char[CONFIG_ORIGIN_TEXT_MAX]){0}, config, key)

/* Sets every key to `program`'s default, and clears the origins. */
void config_defaults(struct config *config, enum config_program program);

/* Records that this build includes the backend `name`.  Call it for each backend before the
 * arguments are parsed. Names that are not words of the key `backend` are ignored. */
void config_backend_add(struct config *config, const char *name);

/* Returns true if a file or a flag of this invocation set the key. */
bool config_key_was_set(const struct config *config, enum config_key key);
/* Returns true if a flag of this invocation set the key, and no file after it. */
bool config_key_is_typed(const struct config *config, enum config_key key);

#endif
