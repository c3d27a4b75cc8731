/* Users' device profiles.
 *
 * A file is one JSON object of at most 64 KiB.  A missing, unknown, mistyped, impossible or
 * duplicate field is refused by name.  An unknown figure is written as 0 where doc/devices.md
 * allows it; doc/devices.md says what may be omitted.
 */
#include "plan/device_profile_file.h"

#include <math.h>

#include "base/json.h"

#define FILE_BYTES_MAX 65536
#define SCHEMA 1
#define MEMORY_MIN ((int64_t)1 << 26)
#define MEMORY_MAX ((int64_t)1 << 50)
#define RATE_MAX 1e21
/* A smaller value is a mistaken unit, and would make times that no clock can show. */
#define RATE_MIN 1e6
#define SHARE_MIN 0.001

struct reader {
    const char *path;
    const json_t *root;
};

static enum gt_status impossible(const struct reader *reader, const char *name, const char *why)
{
    return FAIL(GT_DATA, "%s: field \"%s\": %s", reader->path, name, why);
}

static enum gt_status text_read(const struct reader *reader, const char *name, char *out,
                                size_t size, bool needed)
{
    const char *text;
    TRY(json_get_string(reader->root, reader->path, name, &text));
    if (strlen(text) >= size)
        return impossible(reader, name, "this text is too long");
    if (needed && *text == '\0')
        return impossible(reader, name, "is empty");
    snprintf(out, size, "%s", text);
    return GT_OK;
}

/* Whether a rate must be known, may be 0 for unknown, or may also be omitted. */
enum rate_rule { RATE_NEEDED, RATE_OR_0, RATE_OPTIONAL };

static enum gt_status rate_read(const struct reader *reader, const json_t *object, const char *name,
                                enum rate_rule rule, double *out)
{
    double rate;
    if (rule == RATE_OPTIONAL && json_object_get(object, name) == NULL)
        return GT_OK;
    TRY(json_get_real(object, reader->path, name, &rate));
    if (rule == RATE_NEEDED && rate == 0.0)
        return impossible(reader, name, "must be above 0");
    if (rate != 0.0 && !(isfinite(rate) && rate >= RATE_MIN && rate <= RATE_MAX))
        return impossible(reader, name,
                          "expected a rate per second from 1e6 to 1e21, or 0 for not known");
    *out = rate;
    return GT_OK;
}

static enum gt_status bytes_read(const struct reader *reader, const char *name, int64_t min,
                                 uint64_t max, uint64_t *out)
{
    int64_t value;
    TRY(json_get_int(reader->root, reader->path, name, min, (int64_t)max, &value));
    *out = (uint64_t)value;
    return GT_OK;
}

/* Reads the sizes.  If context_bytes is omitted, it is the known size of such a card's context,
 * limited to the memory that is not usable. */
static enum gt_status memory_read(const struct reader *reader, struct device_profile *out)
{
    uint64_t alignment, units;
    TRY(bytes_read(reader, "memory_bytes", MEMORY_MIN, MEMORY_MAX, &out->memory_bytes));
    TRY(bytes_read(reader, "usable_bytes", 1, out->memory_bytes, &out->usable_bytes));
    TRY(bytes_read(reader, "largest_allocation_bytes", 1, out->memory_bytes,
                   &out->largest_allocation_bytes));
    TRY(bytes_read(reader, "alignment_bytes", 16, 65536, &alignment));
    if ((alignment & (alignment - 1)) != 0)
        return impossible(reader, "alignment_bytes", "is not a power of two");
    TRY(bytes_read(reader, "units", 0, 1000000, &units));
    out->units = (int32_t)units;
    const uint64_t most = out->memory_bytes - out->usable_bytes;
    if (!device_profile_backend_set(out))
        return impossible(reader, "backend", "expected cuda or opencl");
    out->alignment_bytes = (uint32_t)alignment;
    if (out->context_bytes > most)
        out->context_bytes = most;
    const bool omitted = json_object_get(reader->root, "context_bytes") == NULL;
    return omitted ? GT_OK : bytes_read(reader, "context_bytes", 0, most, &out->context_bytes);
}

/* Reads the dtypes that ops may store: ["float32", "bfloat16"]. */
static enum gt_status dtypes_read(const struct reader *reader, struct device_profile *out)
{
    const json_t *array = json_object_get(reader->root, "dtypes");
    if (!json_is_array(array))
        return impossible(reader, "dtypes",
                          "expected an array such as [\"float32\", \"bfloat16\"]");
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *word = json_string_value(json_array_get(array, i));
        enum dtype dtype;
        if (!word || !dtype_from_name(word, &dtype) || strcmp(word, dtype_name(dtype)) != 0 ||
            dtype > DTYPE_F16)
            return impossible(reader, "dtypes",
                              "expected the words float32, bfloat16 and float16 only");
        if (out->dtypes >> dtype & 1u)
            return impossible(reader, "dtypes", "names a dtype twice");
        out->dtypes |= 1u << dtype;
    }
    if (!(out->dtypes & 1u << DTYPE_F32))
        return impossible(reader, "dtypes", "float32 is missing, which every device has");
    return GT_OK;
}

/* Refuses members of the object that `names`, such as " schema name ", does not contain. */
static enum gt_status names_check(const struct reader *reader, const json_t *object,
                                  const char *names)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        char word[DEVICE_PROFILE_NAME_MAX];
        snprintf(word, sizeof word, " %s ", key);
        if (strchr(key, ' ') != NULL || strstr(names, word) == NULL)
            return impossible(reader, key, "is not known");
    }
    return GT_OK;
}

static enum gt_status rates_read(const struct reader *reader, struct device_profile *out)
{
    const json_t *flops;
    double unused;
    TRY(rate_read(reader, reader->root, "bandwidth_bytes_per_s", RATE_NEEDED, &out->bytes_per_s));
    TRY(rate_read(reader, reader->root, "link_bytes_per_s", RATE_OPTIONAL, &out->link_bytes_per_s));
    int64_t engines = out->copy_engines;
    if (json_object_get(reader->root, "copy_engines") != NULL)
        TRY(json_get_int(reader->root, reader->path, "copy_engines", 0, 2, &engines));
    out->copy_engines = (int32_t)engines;
    TRY(json_get_object(reader->root, reader->path, "flops_per_s", &flops));
    TRY(names_check(reader, flops, " float32 float16 bfloat16 tf32 half_sums "));
    TRY(rate_read(reader, flops, "float32", RATE_NEEDED, &out->vector_flops_per_s));
    TRY(rate_read(reader, flops, "float16", RATE_OR_0, &out->matrix_flops_per_s[DTYPE_F16]));
    TRY(rate_read(reader, flops, "bfloat16", RATE_OR_0, &out->matrix_flops_per_s[DTYPE_BF16]));
    TRY(rate_read(reader, flops, "tf32", RATE_OR_0, &unused));
    TRY(rate_read(reader, flops, "half_sums", RATE_OPTIONAL, &out->half_sums_flops_per_s));
    out->matrix_flops_per_s[DTYPE_F32] = out->vector_flops_per_s;
    return GT_OK;
}

/* Reads the share.  Refuses a share without a source, because it would be a guess. */
static enum gt_status share_read(const struct reader *reader, struct device_profile *out)
{
    double share = 0.0;
    TRY(json_get_real(reader->root, reader->path, "share", &share));
    if (share != 0.0 && !(share >= SHARE_MIN && share <= 1.0))
        return impossible(reader, "share", "expected 0 (not known) or a number from 0.001 to 1");
    out->reached = device_reached_of(out->backend);
    if (share > 0.0)
        out->reached = (struct device_reached){share, share, share, PLAN_TIMED_UNCERTAINTY};
    return text_read(reader, "share_source", out->share_source, sizeof out->share_source,
                     share > 0.0);
}

static enum gt_status profile_fill(const struct reader *reader, struct device_profile *out)
{
    static const char names[] =
        " schema name backend memory_bytes usable_bytes units dtypes share source alignment_bytes "
        "flops_per_s share_source context_bytes largest_allocation_bytes "
        "bandwidth_bytes_per_s link_bytes_per_s copy_engines ";
    char unused[DEVICE_PROFILE_SOURCE_MAX];
    int64_t schema;
    if (!json_is_object(reader->root))
        return FAIL(GT_DATA, "%s: a device profile is one JSON object", reader->path);
    TRY(names_check(reader, reader->root, names));
    TRY(json_get_int(reader->root, reader->path, "schema", SCHEMA, SCHEMA, &schema));
    TRY(text_read(reader, "name", out->name, sizeof out->name, true));
    TRY(text_read(reader, "backend", out->backend, sizeof out->backend, true));
    TRY(memory_read(reader, out));
    TRY(dtypes_read(reader, out));
    TRY(rates_read(reader, out));
    TRY(share_read(reader, out));
    return text_read(reader, "source", unused, sizeof unused, false);
}

enum gt_status device_profile_find(const char *text, struct device_profile *out)
{
    const size_t length = strlen(text);
    json_t *root;
    if (!strchr(text, '/') && (length <= 5 || strcmp(text + length - 5, ".json") != 0))
        return device_profile_named(text, out);
    enum gt_status status = json_parse_file(text, FILE_BYTES_MAX, &root);
    if (status != GT_OK)
        return status == GT_IO ? GT_USAGE : status; /* a missing file is a bad value of the key */
    struct device_profile profile = {.units = 0};
    snprintf(profile.id, sizeof profile.id, "%s", text);
    status = profile_fill(&(struct reader){text, root}, &profile);
    json_decref(root);
    if (status == GT_OK)
        *out = profile;
    return status;
}
