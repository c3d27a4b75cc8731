/* Compares a resumed run with the run that wrote its checkpoint.
 *
 * The record of the checkpoint is compared with the one that this run would write.  recompute is left out because it
 * changes no bit.  The optimizer and the format of its states are left out because restore.c has checked them.
 */
#include "train/resume_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/tokens.h"
#include "train/restore_algorithms.h"

#define DIFFERENCES_TEXT_MAX 1024

json_t *resume_plan_object(const struct session *session)
{
    const struct model_options *options = &session->model->options;
    json_t *algorithms;
    if (!restore_algorithms_object(session->device.backend, &algorithms))
        return NULL;
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:o*}", "dtype", dtype_name(options->dtype), "state_format",
                  state_format_name(options->states), "optimizer", options->muon ? "muon" : "adamw", "backend",
                  session->device.backend->ops->name, "kernels", session->device.info.detail, "algorithms", algorithms);
    if (object && plan_choice_write(object, &options->choice, options->config.n_layer))
        return object;
    json_decref(object);
    return NULL;
}

/* Ignores recompute, which changes no bit, and the optimizer and its state format, which restore.c has checked. */
static bool is_difference(const char *key, const json_t *before, const json_t *now)
{
    if (strcmp(key, "recompute") == 0 || strcmp(key, "state_format") == 0 || strcmp(key, "optimizer") == 0)
        return false;
    if (strcmp(key, "algorithms") == 0)
        return restore_algorithms_differ(before, now);
    return before == NULL || !json_equal(before, now);
}

/* Appends "KEY was WAS, is IS", truncated to the buffer. */
static void difference_add(char text[static DIFFERENCES_TEXT_MAX], const char *key, const char *was, const char *is)
{
    const size_t used = strlen(text);
    snprintf(text + used, DIFFERENCES_TEXT_MAX - used, "%s%s was %.100s, is %.100s", used > 0 ? "; " : "", key, was,
             is);
}

static void value_difference_add(char text[static DIFFERENCES_TEXT_MAX], const char *key, const json_t *before,
                                 const json_t *now)
{
    char *was = before != NULL ? json_dumps(before, JSON_ENCODE_ANY) : NULL, *is = json_dumps(now, JSON_ENCODE_ANY);
    difference_add(text, key, was != NULL ? was : "not known", is != NULL ? is : "?");
    free(was);
    free(is);
}

enum gt_status resume_check_bits(const struct session *session, const struct restore_source *source)
{
    const json_t *before = source->resume ? source->checkpoint->record.state.plan : NULL;
    json_t *now = before ? resume_plan_object(session) : NULL, *value;
    char text[DIFFERENCES_TEXT_MAX] = "";
    const char *key;
    if (before && !now) {
        log_error("out of memory");
        return GT_NO_MEMORY;
    }
    json_object_foreach(now, key, value)
    {
        const json_t *old = json_object_get(before, key);
        if (is_difference(key, old, value))
            value_difference_add(text, key, old, value);
    }
    json_decref(now);
    if (text[0] == '\0')
        return GT_OK;
    if (session->config->strict_resume) {
        log_error("%s: strict_resume: results would differ in their last bits from an uninterrupted run's: %s",
                  source->checkpoint->source, text);
        return GT_USAGE;
    }
    log_note("%s: results will differ in their last bits from an uninterrupted run's (%s); --strict_resume=True "
             "would refuse to resume",
             source->checkpoint->source, text);
    return GT_OK;
}

/* Refuses the differences with `refused`, or warns with `warned`.  Returns GT_OK if there are none. */
static enum gt_status differences_judge(const struct config *config, const struct restore_source *source,
                                        const char *differences, const char *refused, const char *warned)
{
    if (differences[0] == '\0')
        return GT_OK;
    if (config->strict_resume) {
        log_error("%s: strict_resume: %s: %s", source->checkpoint->source, refused, differences);
        return GT_USAGE;
    }
    log_warning("%s: %s: %s", source->checkpoint->source, warned, differences);
    return GT_OK;
}

enum gt_status resume_check_keys(const struct config *config, const struct restore_source *source)
{
    const json_t *before = source->resume ? source->checkpoint->record.state.configuration : NULL;
    struct config_change change;
    char text[DIFFERENCES_TEXT_MAX] = "";
    for (int key = 0; key < CONFIG_KEY_COUNT && before; key++)
        if (config_key_change(config, (enum config_key)key, before, &change))
            difference_add(text, change.name, change.was, change.is);
    return differences_judge(config, source, text, "these keys were changed",
                             "these keys were changed, so the run continues differently");
}

enum gt_status resume_check_data(const struct config *config, const struct restore_source *source,
                                 const struct run_data *data)
{
    const json_t *before = source->resume ? source->checkpoint->record.state.data : NULL;
    char text[DIFFERENCES_TEXT_MAX] = "";
    for (int split = TOKEN_TRAIN; split <= TOKEN_VAL; split++) {
        const char *name = token_split_name((enum token_split)split), *now = data->text[split];
        const char *was = json_string_value(json_object_get(before, name));
        if (was != NULL && strcmp(was, now) != 0)
            difference_add(text, name, was, now);
    }
    return differences_judge(
        config, source, text, "the data have changed since the run began",
        "the data have changed since the run began, so batches differ from an uninterrupted run's");
}
