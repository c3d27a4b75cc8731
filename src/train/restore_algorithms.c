/* Reads and writes the algorithms in a checkpoint's plan.
 *
 * Only identities are stored, so that a file cannot make a backend run anything that it does not offer itself.  A
 * resumed run may have calls that the earlier one lacked, and vice versa; those do not count as differences.
 */
#include "train/restore_algorithms.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend_call.h"
#include "base/log.h"

#define DIGITS 16
#define CHOICES_MAX 4096

bool restore_algorithms_object(struct backend *device, json_t **out)
{
    size_t count = 0;
    *out = NULL;
    const struct backend_choice *choices = backend_choices(device, &count);
    json_t *object = choices != NULL && count > 0 ? json_object() : NULL;
    for (size_t i = 0; choices != NULL && i < count; i++) {
        char call[DIGITS + 1], algorithm[DIGITS + 1];
        snprintf(call, sizeof call, "%016" PRIx64, choices[i].call);
        snprintf(algorithm, sizeof algorithm, "%016" PRIx64, choices[i].algorithm);
        if (json_object_set_new(object, call, json_string(algorithm)) != 0) {
            json_decref(object);
            return false;
        }
    }
    *out = object;
    return true;
}

/* Reads exactly DIGITS hexadecimal digits in lower case, not all 0. */
static bool identity_read(const char *text, uint64_t *out)
{
    if (text == NULL || strlen(text) != DIGITS || strspn(text, "0123456789abcdef") != DIGITS)
        return false;
    *out = strtoull(text, NULL, 16);
    return *out != 0;
}

enum gt_status restore_algorithms_choose(struct backend *device, const json_t *plan, const char *source)
{
    json_t *object = plan != NULL ? json_object_get(plan, "algorithms") : NULL, *value;
    const char *key;
    if (object == NULL || device->ops->choose == NULL)
        return GT_OK;
    if (!json_is_object(object) || json_object_size(object) > CHOICES_MAX) {
        log_error("%s: field \"algorithms\": not an object of at most %d members", source, CHOICES_MAX);
        return GT_DATA;
    }
    json_object_foreach(object, key, value)
    {
        struct backend_choice choice;
        if (!identity_read(key, &choice.call) || !identity_read(json_string_value(value), &choice.algorithm)) {
            log_error("%s: field \"algorithms\": \"%.32s\" and its value are not two numbers of %d digits", source, key,
                      DIGITS);
            return GT_DATA;
        }
        TRY(backend_choose(device, &choice, 1));
    }
    return GT_OK;
}

bool restore_algorithms_differ(const json_t *before, const json_t *now)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)now, key, value)
    {
        const json_t *old = json_object_get(before, key);
        if (old != NULL && !json_equal(old, value))
            return true;
    }
    return false;
}
