/* Reads and writes --lora_targets.
 *
 * It is separate from peft.c, so that the planner, which needs only the names, builds without
 * jansson.
 */
#include "io/peft_targets.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

#define LIST_MARKS " []'\"" /* around the names of a list, as other programs write it */

char *peft_targets_words(char text[static PEFT_TARGETS_TEXT_MAX], uint32_t targets)
{
    size_t used = 0;
    for (int i = 0; model_lora_words[i] != NULL; i++)
        if ((targets >> i & 1u) != 0)
            used += (size_t)snprintf(text + used, PEFT_TARGETS_TEXT_MAX - used, "%s%s",
                                     used > 0 ? "," : "", model_lora_words[i]);
    return text;
}

char *peft_targets_text(char text[static PEFT_TARGETS_TEXT_MAX], const struct model_config *config)
{
    if (config->lora.targets != parameters_lora_targets(config))
        return peft_targets_words(text, config->lora.targets);
    (void)snprintf(text, PEFT_TARGETS_TEXT_MAX, "all-linear");
    return text;
}

uint32_t peft_target_find(const char *text)
{
    const size_t count = strcspn(text, "," LIST_MARKS);
    for (int i = 0; model_lora_words[i] != NULL; i++)
        if (strlen(model_lora_words[i]) == count && strncmp(text, model_lora_words[i], count) == 0)
            return 1u << i;
    return 0;
}

enum gt_status peft_targets_read(const char *text, const struct model_config *config, uint32_t *out)
{
    const uint32_t has = parameters_lora_targets(config);
    char known[PEFT_TARGETS_TEXT_MAX];
    *out = has;
    if (strcmp(text, "all-linear") == 0 || strcmp(text, "all") == 0) /* LLaMA-Factory's word */
        return GT_OK;
    *out = 0;
    for (const char *name = text; name != NULL;
         name = strchr(name, ',') ? strchr(name, ',') + 1 : NULL) {
        name += strspn(name, LIST_MARKS);
        if ((peft_target_find(name) & has) == 0)
            return FAIL(GT_USAGE, "lora_targets = '%s': this model has no '%.*s'; it has %s", text,
                        (int)strcspn(name, "," LIST_MARKS), name, peft_targets_words(known, has));
        *out |= peft_target_find(name);
    }
    return GT_OK;
}
