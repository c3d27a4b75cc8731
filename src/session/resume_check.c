/* Compares a resumed run with the run that wrote its checkpoint.
 *
 * The record of the checkpoint is compared with the one that this run would write.  recompute is
 * left out because it changes no bit.  The optimizer and the format of its states are left out
 * because restore.c has checked them.
 *
 * Of algorithms only identities are stored, 16 digits each, so that a file cannot make a backend
 * run anything that it does not offer itself.
 */
#include "session/resume_check.h"

#include "backend/backend_call.h"
#include "config/config_json.h"
#include "data/tokens.h"
#include "io/checkpoint_record.h"

#define DIFFERENCES_TEXT_MAX 1024
#define DIGITS 16
#define CHOICES_MAX 4096

/* Reads exactly DIGITS hexadecimal digits in lower case, not all 0. */
static bool identity_read(const char *text, uint64_t *out)
{
    if (text == NULL || strlen(text) != DIGITS || strspn(text, "0123456789abcdef") != DIGITS)
        return false;
    *out = strtoull(text, NULL, 16);
    return *out != 0;
}

enum gt_status resume_algorithms_choose(struct session *session,
                                        const struct checkpoint *checkpoint)
{
    struct backend *device = session->device.backend;
    struct backend_info info;
    json_t *object = json_object_get(checkpoint->record.state.plan, "algorithms"), *value;
    const char *key, *source = checkpoint->source;
    if (object == NULL || device->ops->choose == NULL)
        return GT_OK;
    if (!json_is_object(object) || json_object_size(object) > CHOICES_MAX)
        return FAIL(GT_DATA, "%s: field \"algorithms\": not an object of at most %d members",
                    source, CHOICES_MAX);
    json_object_foreach(object, key, value)
    {
        struct backend_algorithm choice;
        if (!identity_read(key, &choice.call) ||
            !identity_read(json_string_value(value), &choice.algorithm))
            return FAIL(
                GT_DATA,
                "%s: field \"algorithms\": \"%.32s\" and its value are not two numbers of %d digits",
                source, key, DIGITS);
        TRY(backend_choose(device, &choice, 1));
    }
    TRY(backend_info(device, &info));
    memcpy(session->device.info.detail, info.detail, sizeof info.detail);
    return GT_OK;
}

json_t *resume_plan_object(const struct session *session)
{
    const struct model_options *options = &session->model->options;
    size_t count = 0;
    const struct backend_algorithm *used = backend_algorithms(session->device.backend, &count);
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:s}", "dtype", dtype_name(options->dtype), "state_format",
        state_format_name(options->states), "optimizer", options->muon ? "muon" : "adamw",
        "backend", session->device.backend->ops->name, "kernels", session->device.info.detail);
    json_t *algorithms = json_object(); /* {"CALL": "ALGORITHM", ...} */
    int failures = 0;
    for (size_t i = 0; used != NULL && i < count; i++)
        failures |=
            json_object_set_new(algorithms, TEXT(DIGITS + 1, "%016" PRIx64, used[i].call),
                                json_string(TEXT(DIGITS + 1, "%016" PRIx64, used[i].algorithm)));
    if (json_object_size(algorithms) > 0)
        failures |= json_object_set(object, "algorithms", algorithms);
    json_decref(algorithms);
    if (object != NULL && !plan_choice_write(object, &options->choice, options->config.n_layer))
        failures = -1;
    return json_whole(object, failures);
}

/* Returns true if a field of the record differs, unless it is left out (see above).  Algorithms
 * differ when a call that occurs in both runs has different ones; calls that only one of the runs
 * has do not count. */
static bool is_difference(const char *key, const json_t *before, json_t *now)
{
    const char *call;
    json_t *value;
    if (strcmp(key, "recompute") == 0 || strcmp(key, "state_format") == 0 ||
        strcmp(key, "optimizer") == 0)
        return false;
    if (strcmp(key, "algorithms") != 0)
        return before == NULL || !json_equal(before, now);
    json_object_foreach(now, call, value)
    {
        const json_t *old = json_object_get(before, call);
        if (old != NULL && !json_equal(old, value))
            return true;
    }
    return false;
}

/* Appends "KEY was WAS, is IS", truncated to the buffer. */
static void difference_add(char text[static DIFFERENCES_TEXT_MAX], const char *key, const char *was,
                           const char *is)
{
    const size_t used = strlen(text);
    snprintf(text + used, DIFFERENCES_TEXT_MAX - used, "%s%s was %.100s, is %.100s",
             used > 0 ? "; " : "", key, was, is);
}

/* Refuses the differences with `refused`, or warns with `warned`.  Returns GT_OK if there are none.
 */
static enum gt_status differences_judge(const struct config *config,
                                        const struct restore_source *source,
                                        const char *differences, const char *refused,
                                        const char *warned)
{
    if (differences[0] == '\0')
        return GT_OK;
    if (config->strict_resume)
        return FAIL(GT_USAGE, "%s: strict_resume: %s: %s", source->checkpoint->source, refused,
                    differences);
    log_warning("%s: %s: %s", source->checkpoint->source, warned, differences);
    return GT_OK;
}

enum gt_status resume_check_bits(const struct session *session, const struct restore_source *source)
{
    const json_t *before = source->resume ? source->checkpoint->record.state.plan : NULL;
    json_t *now = before ? resume_plan_object(session) : NULL, *value;
    char text[DIFFERENCES_TEXT_MAX] = "";
    const char *key;
    if (before && !now)
        return FAIL(GT_NO_MEMORY, "out of memory");
    json_object_foreach(now, key, value)
    {
        const json_t *old = json_object_get(before, key);
        if (!is_difference(key, old, value))
            continue;
        char *was = old != NULL ? json_dumps(old, JSON_ENCODE_ANY) : NULL,
             *is = json_dumps(value, JSON_ENCODE_ANY);
        difference_add(text, key, was != NULL ? was : "not known", is != NULL ? is : "?");
        free(was);
        free(is);
    }
    json_decref(now);
    if (text[0] == '\0' || session->config->strict_resume)
        return differences_judge(
            session->config, source, text,
            "results would differ in their last bits from an uninterrupted run's", "");
    log_note(
        "%s: results will differ in their last bits from an uninterrupted run's (%s); --strict_resume=True "
        "would refuse to resume",
        source->checkpoint->source, text);
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

bool resume_has_other_val(const struct restore_source *source, const struct data_digests *data)
{
    const json_t *before = source->resume ? source->checkpoint->record.state.data : NULL;
    const char *was = json_string_value(json_object_get(before, token_split_name(TOKEN_VAL)));
    return was != NULL && strcmp(was, data->text[TOKEN_VAL]) != 0;
}

enum gt_status resume_check_data(const struct config *config, const struct restore_source *source,
                                 const struct data_digests *data)
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
