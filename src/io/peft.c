/* Reads and writes adapter_config.json.
 *
 * A field that is not known here may change the mathematics, and is therefore refused unless its
 * value says that it is not used.  Patterns are Python's; PCRE2 understands them, with a limit on
 * its steps.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "io/peft.h"

#include <math.h>
#include <pcre2.h>
#include <strings.h>

#include "io/checkpoint.h"
#include "io/peft_targets.h"
#include "model/parameters.h"

#define RANK_MAX 4096 /* as in keys.def */
#define MATCH_STEPS_MAX 100000
/* What to do with an adapter that cannot be read. */
#define MERGE                                                                             \
    "; PEFT merges it into its base, which --init_from reads: python3 -c 'from peft "     \
    "import AutoPeftModelForCausalLM as A; A.from_pretrained(\"IN\").merge_and_unload()." \
    "save_pretrained(\"OUT\")'"

enum gt_status peft_config_make(const struct model_config *config, const char *base, json_t **out)
{
    json_t *targets = json_array();
    int failures = 0;
    for (int i = 0; model_lora_words[i] != NULL; i++)
        if ((config->lora.targets >> i & 1u) != 0)
            failures += json_array_append_new(targets, json_string(model_lora_words[i])) != 0;
    *out =
        json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:o, s:s, s:b, s:b, s:b}", "peft_type", "LORA",
                  "task_type", "CAUSAL_LM", "base_model_name_or_path", base, "r",
                  (int)config->lora.rank, "lora_alpha", config->lora.alpha, "lora_dropout", 0.0,
                  "target_modules", json_whole(targets, failures), "bias", "none", "fan_in_fan_out",
                  (int)model_is_gpt2(config), "init_lora_weights", 1, "inference_mode", 1);
    return *out != NULL ? GT_OK : FAIL(GT_NO_MEMORY, "out of memory: " PEFT_CONFIG_NAME);
}

/* ---- the fields ---- */

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* Returns true for a value that turns a field off. */
static bool is_off(const json_t *value)
{
    return !json_is_true(value) && !json_is_number(value) &&
           json_array_size(value) + json_object_size(value) + json_string_length(value) == 0;
}

/* Refuses an unknown field whose value is not null, false, or an empty text, list or object. */
static enum gt_status fields_check(const json_t *root, const char *source)
{
    /* This file reads some of them; the others do not change what a trained adapter computes. */
    static const char *const known[] = {"peft_type",
                                        "task_type",
                                        "base_model_name_or_path",
                                        "r",
                                        "lora_alpha",
                                        "lora_dropout",
                                        "target_modules",
                                        "exclude_modules",
                                        "fan_in_fan_out",
                                        "use_rslora",
                                        "init_lora_weights",
                                        "layers_to_transform",
                                        "layers_pattern",
                                        "bias",
                                        "rank_pattern",
                                        "alpha_pattern",
                                        "inference_mode",
                                        "auto_mapping",
                                        "revision",
                                        "peft_version",
                                        "megatron_core",
                                        "loftq_config",
                                        "eva_config",
                                        "corda_config",
                                        "qalora_group_size",
                                        "runtime_config",
                                        "ensure_weight_tying",
                                        CHECKPOINT_BASE_CRC};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)root, name, value)
    {
        bool fine = is_off(value);
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            fine = fine || strcmp(name, known[i]) == 0;
        if (!fine)
            return FAIL(GT_UNSUPPORTED,
                        "%s: field \"%.64s\": %s: adapters with it are not supported" MERGE, source,
                        name, JSON_SHORT_TEXT(value));
    }
    return GT_OK;
}

/* Refuses initialisations that also change the weights of the base. */
static enum gt_status init_check(const json_t *root, const char *source)
{
    static const char *const kept[] = {"gaussian", "eva", "orthogonal"};
    const char *init = json_string_value(json_object_get(root, "init_lora_weights"));
    bool fine = init == NULL;
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        fine = fine || strcmp(init, kept[i]) == 0;
    if (fine)
        return GT_OK;
    return FAIL(
        GT_UNSUPPORTED,
        "%s: field \"init_lora_weights\": \"%.32s\" is not supported, since the base that belongs to the adapter is "
        "not the one that it names; PEFT's path_initial_model_for_weight_conversion saves an adapter for that",
        source, init);
}

/* Refuses a rank or an alpha of single layers that differs from that of all layers. */
static enum gt_status pattern_check(const json_t *root, const char *source, const char *name,
                                    double all)
{
    const char *layer;
    json_t *value;
    json_object_foreach(json_object_get(root, name), layer, value)
    {
        if (!json_is_number(value) || json_number_value(value) != all)
            return FAIL(
                GT_UNSUPPORTED,
                "%s: field \"%s\": \"%.64s\": %s is not supported; only %g, as for the rest, is" MERGE,
                source, name, layer, JSON_SHORT_TEXT(value), all);
    }
    return GT_OK;
}

static enum gt_status base_name_read(const json_t *root, const char *source, const char **out)
{
    *out = json_string_value(json_object_get(root, "base_model_name_or_path"));
    if (*out != NULL && (*out)[0] != '\0')
        return GT_OK;
    return FAIL(
        GT_DATA,
        "%s: field \"base_model_name_or_path\": names no model; write the folder of the base there, or its OWNER/NAME",
        source);
}

enum gt_status peft_config_parse(const json_t *root, const char *source, struct lora_config *out,
                                 const char **base)
{
    const json_t *bias = json_object_get(root, "bias");
    const char *type;
    int64_t rank;
    bool stable = false;
    *out = (struct lora_config){.rank = 0};
    TRY(json_get_string(root, source, "peft_type", &type));
    if (strcmp(type, "LORA") != 0)
        return FAIL(GT_UNSUPPORTED,
                    "%s: field \"peft_type\": \"%.32s\" is not supported; only LORA is" MERGE,
                    source, type);
    if (bias != NULL && !is_text(bias, "none"))
        return FAIL(GT_UNSUPPORTED,
                    "%s: field \"bias\": %s is not supported; only \"none\" is" MERGE, source,
                    JSON_SHORT_TEXT(bias));
    TRY(base_name_read(root, source, base));
    TRY(json_get_int(root, source, "r", 1, RANK_MAX, &rank));
    TRY(json_get_real(root, source, "lora_alpha", &out->alpha));
    TRY(fields_check(root, source));
    TRY(init_check(root, source));
    TRY(pattern_check(root, source, "rank_pattern", (double)rank));
    TRY(pattern_check(root, source, "alpha_pattern", out->alpha));
    if (json_object_get(root, "use_rslora") != NULL)
        TRY(json_get_bool(root, source, "use_rslora", &stable));
    if (stable) /* alpha / sqrt(rank) instead of alpha / rank */
        out->alpha *= sqrt((double)rank);
    out->rank = (int32_t)rank;
    return GT_OK;
}

/* ---- which layers have adapters ----
 *
 * PEFT chooses modules of the whole model by name.  Here a kind of layer has adapters in every
 * block or in none, so each choice is tried with the names of all layers of that kind. */

/* The choice of modules that a file describes. */
struct choice {
    const json_t *root;
    const char *source;
    bool gpt2;
};

/* Sets *out to what Python's re.fullmatch(pattern, name) gives. */
static enum gt_status pattern_match(const struct choice *choice, const char *field,
                                    const char *pattern, const char *name, bool *out)
{
    int error = 0;
    PCRE2_SIZE at = 0;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &at, NULL);
    if (code == NULL)
        return FAIL(GT_DATA,
                    "%s: field \"%s\": \"%.100s\" is not a regular expression: character %zu",
                    choice->source, field, pattern, (size_t)at);
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    int found = PCRE2_ERROR_NOMEMORY;
    if (match != NULL && context != NULL) {
        (void)pcre2_set_match_limit(context, MATCH_STEPS_MAX);
        found = pcre2_match(code, (PCRE2_SPTR)name, strlen(name), 0, 0, match, context);
    }
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    *out = found >= 0;
    if (found >= 0 || found == PCRE2_ERROR_NOMATCH)
        return GT_OK;
    return FAIL(GT_UNSUPPORTED, "%s: field \"%s\": \"%.100s\" is too much to match with %s",
                choice->source, field, pattern, name);
}

/* Sets *out if a field names the module: as a regular expression, or in a list of names or ends of
 * names. */
static enum gt_status modules_match(const struct choice *choice, const char *field,
                                    const char *name, bool *out)
{
    const json_t *value = json_object_get(choice->root, field);
    const size_t length = strlen(name);
    *out = false;
    if (json_is_string(value))
        return pattern_match(choice, field, json_string_value(value), name, out);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const char *end = json_string_value(json_array_get(value, i));
        const size_t count = end != NULL ? strlen(end) : 0;
        if (end == NULL)
            return FAIL(GT_DATA, "%s: field \"%s\": item %zu is not a string", choice->source,
                        field, i);
        *out = *out || (count <= length && strcmp(name + length - count, end) == 0 &&
                        (count == length || name[length - count - 1] == '.'));
    }
    return GT_OK;
}

/* Returns true if layers_to_transform, where it is set, has the number of a block.  layers_pattern
 * is the name of the list of blocks. */
static bool block_chosen(const struct choice *choice, int block)
{
    const json_t *blocks = json_object_get(choice->root, "layers_to_transform");
    const json_t *names = json_object_get(choice->root, "layers_pattern");
    const char *list = choice->gpt2 ? "h" : "layers";
    bool chosen = json_is_integer(blocks) && json_integer_value(blocks) == block;
    bool listed = is_off(names) || is_text(names, list);
    for (size_t i = 0; i < json_array_size(blocks); i++)
        chosen = chosen || json_integer_value(json_array_get(blocks, i)) == block;
    for (size_t i = 0; i < json_array_size(names); i++)
        listed = listed || is_text(json_array_get(names, i), list);
    return is_off(blocks) || (chosen && listed);
}

static enum gt_status layer_match(const struct choice *choice, const struct parameter_shape *layer,
                                  bool *out)
{
    const char *whole = TEXT(2 * PARAMETER_NAME_MAX, "%s%s", layer->prefix, layer->name);
    const char *name =
        TEXT(2 * PARAMETER_NAME_MAX, "%.*s", (int)(strrchr(whole, '.') - whole), whole);
    const json_t *targets = json_object_get(choice->root, "target_modules");
    int block = -1;
    bool excluded;
    TRY(modules_match(choice, "exclude_modules", name, &excluded));
    *out = json_is_string(targets) && strcasecmp(json_string_value(targets), "all-linear") == 0;
    if (!*out)
        TRY(modules_match(choice, "target_modules", name, out));
    (void)sscanf(layer->name, choice->gpt2 ? "h.%d." : "model.layers.%d.", &block);
    *out = *out && !excluded && block_chosen(choice, block);
    return GT_OK;
}

enum gt_status peft_config_targets(const json_t *root, const char *source,
                                   const struct model_config *config, uint32_t *out)
{
    const struct choice choice = {root, source, model_is_gpt2(config)};
    struct model_config base = *config;
    struct parameter_shape layer;
    uint32_t chosen = 0, left = 0;
    base.lora.rank = 0;
    for (size_t i = 0; i < parameters_file_count(&base); i++) {
        bool matches;
        parameters_file_shape(&base, i, &layer);
        if (!layer.linear)
            continue;
        TRY(layer_match(&choice, &layer, &matches));
        const char *end = strrchr(layer.name, '.'), *kind = end;
        while (kind[-1] != '.')
            kind--;
        *(matches ? &chosen : &left) |=
            peft_target_find(TEXT(PARAMETER_NAME_MAX, "%.*s", (int)(end - kind), kind));
    }
    char words[PEFT_TARGETS_TEXT_MAX];
    if (chosen == 0)
        return FAIL(
            GT_UNSUPPORTED,
            "%s: field \"target_modules\": %s names no linear layer of the base's blocks, which are %s",
            source, JSON_SHORT_TEXT(json_object_get(root, "target_modules")),
            peft_targets_words(words, left));
    if ((chosen & left) != 0)
        return FAIL(
            GT_UNSUPPORTED,
            "%s: fields \"target_modules\", \"exclude_modules\" and \"layers_to_transform\": they choose %s in some "
            "blocks or places only; supported are adapters of all layers of a kind" MERGE,
            source, peft_targets_words(words, chosen & left));
    *out = chosen;
    return GT_OK;
}
