/* Names that other programs have for keys (names.def), and values as text. */
#ifndef GPT_TRAIN_CONFIG_CONFIG_NAMES_H
#define GPT_TRAIN_CONFIG_CONFIG_NAMES_H

#include "config/config_key.h"
#include "config/config_value.h"

enum config_other_kind {
    CONFIG_OTHER_SAME,     /* another name of `key` */
    CONFIG_OTHER_UPDATES,  /* a number of updates, one more than `key` */
    CONFIG_OTHER_SHARE,    /* a number below 1 sets the key `text`, another one `key` */
    CONFIG_OTHER_TRUE,     /* True sets `key` to `text` */
    CONFIG_OTHER_IMPLIES,  /* one of the words of adapters sets `key` to `text`, unless it is set */
    CONFIG_OTHER_NEEDLESS, /* ignored with the answer `text` */
    CONFIG_OTHER_FIXED,    /* the same, even if it is off */
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

/* Returns the row of a name of other programs that is not a key here, or NULL. */
const struct config_other *config_other_find(const char *name, size_t length,
                                             enum config_program program);
/* Does what the row of a name asks for, unless it is CONFIG_OTHER_SAME.  Errors: GT_USAGE, logged.
 */
enum gt_status config_other_set(struct config *config, const struct config_other *other,
                                const struct config_value *value,
                                const struct config_origin *origin);

/* ---- values as text: of the command line, and of files in YAML and JSON ---- */

/* Returns 0 or 1, or -1 for a word that is not a boolean. */
int config_boolean_word(const char *text);
/* Converts `text` to a value of the key's type and assigns it.  Errors: GT_USAGE, logged. */
enum gt_status config_text_assign(struct config *config, enum config_key key, const char *text,
                                  const struct config_origin *origin);
/* The same for config_other_set(). */
enum gt_status config_other_text_set(struct config *config, const struct config_other *other,
                                     const char *text, const struct config_origin *origin);

/* Writes " (did you mean n_layer?)", or our name for a key of another program, to `out`.  Returns
 * `out`. */
#define CONFIG_HINT_MAX 128
char *config_key_hint(char out[static CONFIG_HINT_MAX], const char *name, size_t length,
                      enum config_program program);

#endif
