/* PEFT's files of an adapter: adapter_config.json, with adapter_model.safetensors in the same
 * folder.
 *
 * Source: peft, tuners/lora/config.py (LoraConfig), utils/save_and_load.py.
 */
#ifndef GPT_TRAIN_IO_PEFT_H
#define GPT_TRAIN_IO_PEFT_H

#include "base/json.h"
#include "model/parameters.h"

#define PEFT_CONFIG_NAME "adapter_config.json"
#define PEFT_MODEL_NAME "adapter_model.safetensors"

/* Makes the content of adapter_config.json for the adapters of `config`, made for the model that
 * `base` names.  Release it with json_decref().  Errors: GT_NO_MEMORY. */
enum gt_status peft_config_make(const struct model_config *config, const char *base, json_t **out);
/* Reads such a file's content except the targets.  *base, which is not empty, is borrowed from
 * `root`.  With use_rslora, out->alpha is set to the value that gives the same scale.  Errors:
 * GT_DATA; GT_UNSUPPORTED, naming a field that changes the model in a way that is not supported
 * here. */
enum gt_status peft_config_parse(const json_t *root, const char *source, struct lora_config *out,
                                 const char **base);
/* Finds the layers of the model `config` that target_modules, exclude_modules and
 * layers_to_transform choose, as PEFT does.  Errors: GT_DATA; GT_UNSUPPORTED when there are none,
 * or some layers of a kind only.  Source: peft, tuners/tuners_utils.py,
 * check_target_module_exists(). */
enum gt_status peft_config_targets(const json_t *root, const char *source,
                                   const struct model_config *config, uint32_t *out);

#endif
