/* Fields of config.json.  A value that is absent or null leaves the default, as in transformers; any other is checked
 * for its type and range, and refused with a line that names the file and the field. */
#include "io/hf_config_fields.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"

double hf_shortest_double(float value)
{
    char text[32];
    for (int digits = 1; digits < 9; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            return strtod(text, NULL);
    }
    return (double)value;
}

json_t *hf_token_json(int32_t token)
{
    return token < 0 ? json_null() : json_integer(token);
}

bool hf_has(const json_t *root, const char *name)
{
    const json_t *value = json_object_get(root, name);
    return value != NULL && !json_is_null(value);
}

enum gt_status hf_flag_expect(const json_t *root, const char *source, const char *name, bool expected)
{
    bool value = expected;
    if (hf_has(root, name))
        TRY(json_get_bool(root, source, name, &value));
    if (value == expected)
        return GT_OK;
    log_error("%s: field \"%s\": %s is not supported; only %s is", source, name, value ? "true" : "false",
              expected ? "true" : "false");
    return GT_UNSUPPORTED;
}

enum gt_status hf_size_field(const json_t *root, const char *source, const char *name, int32_t *out)
{
    int64_t value;
    TRY(json_get_int(root, source, name, 1, HF_SIZE_MAX, &value));
    *out = (int32_t)value;
    return GT_OK;
}

enum gt_status hf_real_field(const json_t *root, const char *source, const char *name, double min, double max,
                             double *value)
{
    double number;
    if (!hf_has(root, name))
        return GT_OK;
    TRY(json_get_real(root, source, name, &number));
    if (!(number >= min && number < max)) {
        log_error("%s: field \"%s\": %g is not in [%g, %g)", source, name, number, min, max);
        return GT_DATA;
    }
    *value = number;
    return GT_OK;
}

enum gt_status hf_token_field(const json_t *root, const char *source, const char *name, int32_t *out)
{
    const json_t *value = json_object_get(root, name);
    const json_t *token = json_array_size(value) > 0 ? json_array_get(value, 0) : value;
    *out = -1;
    if (token == NULL || json_is_null(token))
        return GT_OK;
    if (!json_is_integer(token) || json_integer_value(token) < 0 || json_integer_value(token) > INT32_MAX) {
        log_error("%s: field \"%s\": expected a token's id, or a list of them", source, name);
        return GT_DATA;
    }
    *out = (int32_t)json_integer_value(token);
    return GT_OK;
}
