/* The configuration in a checkpoint: one flat JSON object of all keys that are not
 * CONFIG_INVOCATION. */
#ifndef GPT_TRAIN_CONFIG_CONFIG_JSON_H
#define GPT_TRAIN_CONFIG_CONFIG_JSON_H

#include "config/config.h"

/* Returns the configuration without CONFIG_INVOCATION keys as one flat object, in table order,
 * owned by the caller. Errors: GT_NO_MEMORY. */
enum gt_status config_to_json(const struct config *config, struct json_t **out);
/* Fills in the keys that this invocation did not set from `object`.  `source` (the checkpoint's
 * path) must outlive `config`.  Absent keys keep their value: an older release may have written the
 * checkpoint. Errors: GT_DATA for an unknown key, a wrong type or a value out of range; GT_USAGE
 * when this invocation set a key of the model's shape to something else.  All are logged. */
enum gt_status config_from_json(struct config *config, const struct json_t *object,
                                const char *source);

/* A changed key: its old and its new value as Python literals. */
struct config_change {
    const char *name;
    char was[80], is[80];
};
/* Returns true if `key` affects training results and this invocation set it to another value than
 * `object` has. `object` must have passed config_from_json(). */
bool config_key_change(const struct config *config, enum config_key key,
                       const struct json_t *object, struct config_change *out);

#endif
