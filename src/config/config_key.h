/* The table of keys as data, and the one way in which a value reaches a field. */
#ifndef GPT_TRAIN_CONFIG_CONFIG_KEY_H
#define GPT_TRAIN_CONFIG_CONFIG_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "config/config.h"
#include "config/config_value.h"

enum config_type { CONFIG_TYPE_INT, CONFIG_TYPE_REAL, CONFIG_TYPE_BOOL, CONFIG_TYPE_STRING, CONFIG_TYPE_CHOICE };

enum config_group {
#define CONFIG_GROUP(id, title) id,
#include "config/keys.def"
    CONFIG_GROUP_COUNT
};

struct config_key_info {
    const char *name;
    const char *help;
    const char *const *words; /* choice: ends with NULL */
    enum config_type type;
    enum config_group group;
    unsigned programs; /* enum config_program */
    unsigned flags;    /* enum config_flag */
    size_t offset;     /* of the field in struct config */
    size_t capacity;   /* string: bytes of the field */
    int64_t int_min, int_max;
    double real_min, real_max;
};

/* Longest text of a value that a message shows. */
#define CONFIG_VALUE_TEXT_MAX 80

const struct config_key_info *config_key_info_get(enum config_key key);
const char *config_group_title(enum config_group group);
/* "gpt-train" or "gpt-sample". */
const char *config_program_name(enum config_program program);

/* The key of that name, `-` and `_` being the same; CONFIG_KEY_COUNT when there is none. */
enum config_key config_key_find(const char *name, size_t length);
/* The key of `program` whose name is fewest edits away (insertion, deletion, change, neighbours swapped), or
 * CONFIG_KEY_COUNT when none is near enough to be meant. */
enum config_key config_key_nearest(const char *name, size_t length, enum config_program program);
/* What two names that are typed differ by, in these edits, `-` and `_` being the same; INT_MAX where one is long.  And what a
 * name of that length must differ by less than to be meant. */
int config_name_distance(const char *name, size_t length, const char *known);
int config_name_limit(size_t length);
/* " (did you mean n_layer?)", or what another program's name is called here, into `out`; returns it. */
#define CONFIG_HINT_MAX 128
char *config_key_hint(char out[static CONFIG_HINT_MAX], const char *name, size_t length, enum config_program program);

/* The value that the key has now.  A string points into `config`, a word into the table. */
struct config_value config_key_value(const struct config *config, enum config_key key);
/* As a Python literal, for --help and messages. */
char *config_key_text(char out[static CONFIG_VALUE_TEXT_MAX], const struct config *config, enum config_key key);

/* Checks type and range and writes field and origin; an int is welcome where a float is wanted, and nowhere else is
 * anything converted.  Errors: GT_USAGE, logged with the place that `origin` names. */
enum gt_status config_key_assign(struct config *config, enum config_key key, const struct config_value *value,
                                 const struct config_origin *origin);

/* Where a value comes from: "FILE:LINE:COLUMN", "--key=value", or "the default"; cut at `size`.  Returns `out`. */
char *config_origin_text(char *out, size_t size, const struct config_origin *origin);
#define CONFIG_ORIGIN_TEXT_MAX (FILE_PATH_MAX + 32)

#endif
