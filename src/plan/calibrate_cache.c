/* The cache of calibrated rates: one small JSON file per device, in the user's cache folder, with the last few shapes.
 *
 * The file's name is a checksum of the device part of the key.  The file contains the whole keys, so that another
 * device's rates are never used.  It is checked like any foreign file: owner and mode of the folder, schema, keys,
 * every rate.  Nothing here is an error: without a cache the device is timed again.  Entries of an earlier release are
 * ignored silently until they are replaced.  A damaged file is logged and removed, so that it is logged only once.
 */
#include <config.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/user_cache.h"
#include "plan/calibrate.h"

#define CACHE_SCHEMA 2
#define CACHE_BYTES_MAX 131072
#define CACHE_ENTRIES_MAX 8
#define KEY_DEVICE_END " | " /* between the device part and the shape part of a key */
#define CACHE_RATE_MAX 1e21
#define CACHE_RAMP_MAX 1e9

char *calibrate_key(char key[static CALIBRATE_KEY_MAX], const struct backend_info *info,
                    const struct model_options *options)
{
    const struct model_config *config = &options->config;
    snprintf(key, CALIBRATE_KEY_MAX,
             "%s; %s" KEY_DEVICE_END "%s " PACKAGE_VERSION "%s; channels %" PRId32 ", heads %" PRId32 ", block %" PRId32
             ", vocabulary %" PRId32 ", bias %d, dropout %d, gelu %d, %s",
             info->device, info->detail, PACKAGE_NAME,
#ifdef GT_DEBUG
             " debug",
#else
             "",
#endif
             config->n_embd, config->n_head, config->block_size, config->vocab_size, (int)config->bias,
             config->dropout > 0.0f, (int)config->gelu, dtype_name(options->dtype));
    return key;
}

/* Returns the length of the device part of the key. */
static size_t device_length(const char *key)
{
    const char *end = strstr(key, KEY_DEVICE_END);
    return end ? (size_t)(end - key) : strlen(key);
}

static bool file_name(char path[static FILE_PATH_MAX], const char *folder, const char *key)
{
    char name[64];
    snprintf(name, sizeof name, "calibration-%08" PRIx32 ".json", file_crc32c(0, key, device_length(key)));
    return file_join(path, folder, name) == GT_OK;
}

/* Returns true when only this user owns the folder and can write to it; other folders are not trusted. */
static bool is_own(const char *folder)
{
    struct stat status;
    return lstat(folder, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Reads a number from `min` to `max`. */
static bool number_read(const json_t *value, double min, double max, double *out)
{
    double number = json_is_number(value) ? json_number_value(value) : -1.0;
    if (!(isfinite(number) && number >= min && number <= max))
        return false;
    *out = number;
    return true;
}

/* A timed rate is at least 1 per second, since less would mean endless times; 0 means not timed. */
static bool flops_read(const json_t *value, double *out)
{
    return number_read(value, 0.0, 0.0, out) || number_read(value, 1.0, CACHE_RATE_MAX, out);
}

static bool kind_read(const json_t *op, int kind, struct plan_rates *out)
{
    const json_t *flops = json_object_get(op, "flops_per_s");
    if (!number_read(json_object_get(op, "bytes_per_s"), 1.0, CACHE_RATE_MAX, &out->bytes_per_s[kind]))
        return false;
    for (size_t dtype = 0; dtype < PLAN_MATRIX_DTYPES; dtype++) {
        if (!flops_read(json_array_get(flops, dtype), &out->flops_per_s[kind][dtype]))
            return false;
    }
    return json_array_size(flops) == PLAN_MATRIX_DTYPES;
}

/* The result of reading the cache. */
enum found {
    FOUND_NOTHING, /* no file, a file of an earlier release, no entry for this shape, or an untrusted file */
    FOUND_RATES,
    FOUND_DAMAGE, /* the content is invalid */
    FOUND_UNREAD  /* unreadable, but perhaps undamaged */
};

/* Reads an entry.  One that lacks an op of this release is from an earlier release. */
static enum found entry_read(const json_t *entry, struct plan_rates *out)
{
    const json_t *ops = json_object_get(entry, "ops");
    *out = (struct plan_rates){.ramp_elements = 0.0};
    if (!json_is_object(ops) || !number_read(json_object_get(entry, "ramp_rows"), 0.0, CACHE_RAMP_MAX, &out->ramp_rows))
        return FOUND_DAMAGE;
    enum found found = FOUND_RATES;
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        const json_t *op = json_object_get(ops, op_declaration((enum op_kind)kind)->name);
        if (op && !kind_read(op, kind, out))
            return FOUND_DAMAGE;
        found = op ? found : FOUND_NOTHING;
    }
    return found;
}

/* Returns the entries of a file of this device; NULL, and the reason in *out, when there are none. */
static const json_t *entries_of(const json_t *root, const char *key, enum found *out)
{
    const char *device = json_string_value(json_object_get(root, "device"));
    const json_t *entries = json_object_get(root, "entries");
    json_int_t schema = json_integer_value(json_object_get(root, "schema"));
    *out = schema > 0 && schema < CACHE_SCHEMA ? FOUND_NOTHING : FOUND_DAMAGE;
    if (schema != CACHE_SCHEMA || !device || !json_is_array(entries))
        return NULL;
    bool same = strlen(device) == device_length(key) && strncmp(device, key, device_length(key)) == 0;
    return same ? entries : NULL;
}

static bool entry_is(const json_t *entry, const char *key)
{
    const char *stored = json_string_value(json_object_get(entry, "key"));
    return stored && strcmp(stored, key) == 0;
}

static enum found root_read(const json_t *root, const char *key, struct plan_rates *out)
{
    enum found found;
    const json_t *entries = entries_of(root, key, &found);
    if (!entries)
        return found;
    for (size_t i = 0; i < json_array_size(entries); i++) {
        if (entry_is(json_array_get(entries, i), key))
            return entry_read(json_array_get(entries, i), out);
    }
    return FOUND_NOTHING;
}

/* Loads the file.  On failure returns NULL and sets *out; logs the reason unless the file is damaged. */
static json_t *root_load(const char *path, enum found *out)
{
    void *text;
    size_t count;
    json_error_t error;
    const char *why;
    const enum user_cache_file file = user_cache_read(path, CACHE_BYTES_MAX, &text, &count, &why);
    *out = file == USER_CACHE_UNREAD ? FOUND_UNREAD : FOUND_NOTHING;
    if (file == USER_CACHE_UNREAD || file == USER_CACHE_REFUSED)
        log_note("ignoring cached timings in %s: %s", path, why);
    if (file != USER_CACHE_READ)
        return NULL;
    json_t *root = NULL;
    *out = json_load(text, count, JSON_REJECT_DUPLICATES, &error, &root) == GT_DATA ? FOUND_DAMAGE : FOUND_UNREAD;
    free(text);
    return root;
}

bool calibrate_load(const char *key, struct plan_rates *out)
{
    char parent[FILE_PATH_MAX], folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    if (!user_cache_root(parent, folder) || !file_name(path, folder, key) || access(folder, F_OK) != 0)
        return false;
    if (!is_own(folder)) /* logged only here, because a store always follows a load */
        log_note("ignoring cached timings in %s, which is not a folder that only you can write to", folder);
    if (!is_own(folder) || access(path, F_OK) != 0)
        return false;
    struct plan_rates rates;
    enum found found;
    json_t *root = root_load(path, &found);
    if (root)
        found = root_read(root, key, &rates);
    json_decref(root);
    if (found == FOUND_RATES)
        *out = rates;
    if (found == FOUND_DAMAGE) {
        log_note("%s: these cached timings are damaged; removed them, the next run times again", path);
        (void)unlink(path);
    }
    return found == FOUND_RATES;
}

static json_t *kind_value(const struct plan_rates *rates, int kind)
{
    const double *flops = rates->flops_per_s[kind];
    return json_pack("{s:f, s:[f, f, f]}", "bytes_per_s", rates->bytes_per_s[kind], "flops_per_s", flops[0], flops[1],
                     flops[2]);
}

static json_t *entry_value(const char *key, const struct plan_rates *rates)
{
    json_t *ops = json_object();
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        if (json_object_set_new(ops, op_declaration((enum op_kind)kind)->name, kind_value(rates, kind)) != 0) {
            json_decref(ops);
            return NULL;
        }
    }
    return json_pack("{s:s, s:f, s:o}", "key", key, "ramp_rows", rates->ramp_rows, "ops", ops);
}

/* Returns the new entry and the last few entries of other shapes in the file; NULL when these cannot be read. */
static json_t *root_value(const char *path, const char *key, const struct plan_rates *rates)
{
    enum found found;
    json_t *before = root_load(path, &found);
    if (!before && found == FOUND_UNREAD)
        return NULL;
    json_t *entries = json_array();
    bool good = json_array_append_new(entries, entry_value(key, rates)) == 0;
    const json_t *kept = before ? entries_of(before, key, &found) : NULL;
    for (size_t i = 0; kept && i < json_array_size(kept) && json_array_size(entries) < CACHE_ENTRIES_MAX; i++) {
        json_t *entry = json_array_get(kept, i);
        struct plan_rates unused;
        if (!entry_is(entry, key) && entry_read(entry, &unused) == FOUND_RATES)
            good = good && json_array_append(entries, entry) == 0;
    }
    json_decref(before);
    if (good)
        return json_pack("{s:i, s:s%, s:o}", "schema", CACHE_SCHEMA, "device", key, device_length(key), "entries",
                         entries);
    json_decref(entries);
    return NULL;
}

void calibrate_store(const char *key, const struct plan_rates *rates)
{
    char parent[FILE_PATH_MAX], folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    if (!user_cache_root(parent, folder) || !file_name(path, folder, key))
        return;
    /* An unwritable cache is no error, so this is checked before anything could log one. */
    bool made = mkdir(parent, 0700) == 0 || errno == EEXIST;
    made = made && (mkdir(folder, 0700) == 0 || errno == EEXIST);
    if (!made || access(folder, W_OK) != 0) {
        log_note("%s: %s; timings of this device are not kept", folder, strerror(errno));
        return;
    }
    if (!is_own(folder))
        return;
    file_remove_dead_leftovers(folder);
    json_t *root = root_value(path, key, rates);
    if (root)
        (void)json_replace_file_mode(path, root, 1, &user_cache_file_mode);
    json_decref(root);
}

_Static_assert(PLAN_MATRIX_DTYPES == 3, "kind_value() packs three rates");
