/* Reads and writes adapter_config.json.
 *
 * A field that is not known here may change the mathematics, and is therefore refused unless its value says that it is
 * not used.
 */
#include "io/peft.h"

#include "io/checkpoint.h"

#define RANK_MAX 4096 /* as in keys.def */

static char *words_write(char text[static PEFT_TARGETS_TEXT_MAX], uint32_t targets)
{
    size_t used = 0;
    for (int i = 0; model_lora_words[i] != NULL; i++)
        if ((targets >> i & 1u) != 0)
            used += (size_t)snprintf(text + used, PEFT_TARGETS_TEXT_MAX - used, "%s%s", used > 0 ? "," : "",
                                     model_lora_words[i]);
    return text;
}

char *peft_targets_text(char text[static PEFT_TARGETS_TEXT_MAX], const struct model_config *config)
{
    if (config->lora.targets != parameters_lora_targets(config))
        return words_write(text, config->lora.targets);
    (void)snprintf(text, PEFT_TARGETS_TEXT_MAX, "all-linear");
    return text;
}

/* Returns the bit of the target that `text` names up to its first comma, or 0 if no target has that name. */
static uint32_t target_find(const char *text)
{
    for (int i = 0; model_lora_words[i] != NULL; i++)
        if (strlen(model_lora_words[i]) == strcspn(text, ",") &&
            strncmp(text, model_lora_words[i], strcspn(text, ",")) == 0)
            return 1u << i;
    return 0;
}

enum gt_status peft_targets_read(const char *text, const struct model_config *config, uint32_t *out)
{
    const uint32_t has = parameters_lora_targets(config);
    char known[PEFT_TARGETS_TEXT_MAX];
    *out = has;
    if (strcmp(text, "all-linear") == 0)
        return GT_OK;
    *out = 0;
    for (const char *name = text; name != NULL; name = strchr(name, ',') ? strchr(name, ',') + 1 : NULL) {
        if ((target_find(name) & has) == 0)
            return FAIL(GT_USAGE, "lora_targets = '%s': this model has no '%.*s'; it has %s", text,
                        (int)strcspn(name, ","), name, words_write(known, has));
        *out |= target_find(name);
    }
    return GT_OK;
}

enum gt_status peft_config_make(const struct model_config *config, const char *base, json_t **out)
{
    json_t *targets = json_array();
    int failures = 0;
    for (int i = 0; model_lora_words[i] != NULL; i++)
        if ((config->lora.targets >> i & 1u) != 0)
            failures += json_array_append_new(targets, json_string(model_lora_words[i])) != 0;
    *out = json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:o, s:s, s:b, s:b, s:b}", "peft_type", "LORA", "task_type",
                     "CAUSAL_LM", "base_model_name_or_path", base, "r", (int)config->lora.rank, "lora_alpha",
                     config->lora.alpha, "lora_dropout", 0.0, "target_modules", json_whole(targets, failures), "bias",
                     "none", "fan_in_fan_out", (int)model_is_gpt2(config), "init_lora_weights", 1, "inference_mode", 1);
    return *out != NULL ? GT_OK : FAIL(GT_NO_MEMORY, "out of memory: " PEFT_CONFIG_NAME);
}

/* Refuses a field that is not known here and is set: to anything but null, false, or an empty text, list or object. */
static enum gt_status fields_check(const json_t *root, const char *source)
{
    /* peft_config_parse() reads some of them; the others do not change what a trained adapter computes. */
    static const char *const known[] = {
        "peft_type",         "task_type",         "base_model_name_or_path", "r",
        "lora_alpha",        "lora_dropout",      "target_modules",          "bias",
        "fan_in_fan_out",    "init_lora_weights", "inference_mode",          "auto_mapping",
        "revision",          "peft_version",      "megatron_core",           "loftq_config",
        "qalora_group_size", "runtime_config",    CHECKPOINT_BASE_CRC};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)root, name, value)
    {
        bool fine = !json_is_true(value) && !json_is_number(value) &&
                    json_array_size(value) + json_object_size(value) + json_string_length(value) == 0;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            fine = fine || strcmp(name, known[i]) == 0;
        if (!fine)
            return FAIL(GT_UNSUPPORTED, "%s: field \"%.64s\" is set; adapters with it are not supported", source, name);
    }
    return GT_OK;
}

enum gt_status peft_config_parse(const json_t *root, const char *source, struct lora_config *out, const char **base)
{
    const json_t *init = json_object_get(root, "init_lora_weights"), *targets = json_object_get(root, "target_modules");
    const char *type, *bias;
    int64_t rank;
    *out = (struct lora_config){.rank = 0};
    TRY(json_get_string(root, source, "peft_type", &type));
    TRY(json_get_string(root, source, "bias", &bias));
    TRY(json_get_string(root, source, "base_model_name_or_path", base));
    TRY(json_get_int(root, source, "r", 1, RANK_MAX, &rank));
    TRY(json_get_real(root, source, "lora_alpha", &out->alpha));
    TRY(fields_check(root, source));
    if (strcmp(type, "LORA") != 0 || strcmp(bias, "none") != 0)
        return FAIL(GT_UNSUPPORTED, "%s: only adapters of peft_type LORA with bias none are supported", source);
    if (json_is_string(init) && strcmp(json_string_value(init), "gaussian") != 0) /* the others change the base */
        return FAIL(GT_UNSUPPORTED, "%s: field \"init_lora_weights\": \"%.32s\" is not supported", source,
                    json_string_value(init));
    for (size_t i = 0; i < json_array_size(targets); i++) {
        const char *name = json_string_value(json_array_get(targets, i));
        if (name == NULL || target_find(name) == 0)
            return FAIL(GT_UNSUPPORTED, "%s: field \"target_modules\": \"%.64s\" is no linear layer of a block", source,
                        name != NULL ? name : "?");
        out->targets |= target_find(name);
    }
    out->rank = (int32_t)rank;
    return out->targets != 0 ? GT_OK
                             : FAIL(GT_UNSUPPORTED, "%s: field \"target_modules\": expected a list of names", source);
}
