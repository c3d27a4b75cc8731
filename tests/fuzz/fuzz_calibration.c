/* Fuzzes the cache of calibrations.
 *
 * A wrong list of ops, schema or key makes the reader reject a file before it reads the rest.  So the input is tried
 * again with these corrected.  Accepted rates must give every op a finite time; they can be stored next to the file's
 * entries for other shapes, and load as the same values.
 */
#include <inttypes.h>
#include <math.h>

#include "base/json.h"
#include "plan/calibrate.h"
#include "tests/fuzz/fuzz_folder.h"

#define DEVICE "a device; of a driver"
#define KEY DEVICE " | channels 64"
#define OTHER_KEY DEVICE " | channels 128"

static char path[FILE_PATH_MAX];

static void open_cache(void)
{
    char name[64];
    if (path[0] != '\0')
        return;
    fuzz_cache_make("gpt-train");
    snprintf(name, sizeof name, "calibration-%08" PRIx32 ".json", file_crc32c(0, DEVICE, strlen(DEVICE)));
    fuzz_path(path, name);
}

static void check_rates(const struct plan_rates *rates)
{
    FUZZ_CHECK(rates->ramp_rows >= 0.0 && rates->ramp_rows <= 1e9 && rates->ramp_elements == 0.0);
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        FUZZ_CHECK(rates->bytes_per_s[kind] >= 1.0 && rates->bytes_per_s[kind] <= 1e21);
        for (int dtype = 0; dtype < PLAN_MATRIX_DTYPES; dtype++) {
            const double rate = rates->flops_per_s[kind][dtype];
            FUZZ_CHECK(rate == 0.0 || (rate >= 1.0 && rate <= 1e21));
        }
    }
}

static void check_same(const char *key, const struct plan_rates *rates)
{
    struct plan_rates again;
    FUZZ_CHECK(calibrate_load(key, &again) && memcmp(&again, rates, sizeof again) == 0);
}

/* If the file is accepted, stores the rates of one more shape and checks that both can be loaded. */
static void use(const void *data, size_t size)
{
    struct plan_rates rates;
    fuzz_file_put(path, data, size);
    const bool loaded = calibrate_load(KEY, &rates);
    if (loaded) {
        check_rates(&rates);
        calibrate_store(OTHER_KEY, &rates);
        check_same(OTHER_KEY, &rates);
        calibrate_store(KEY, &rates);
        check_same(KEY, &rates);
        check_same(OTHER_KEY, &rates);
    }
    fuzz_folder_check();
}

/* Adds the ops that the entry lacks; an input need not contain them all. */
static void complete_ops(json_t *ops)
{
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        const char *name = op_declaration((enum op_kind)kind)->name;
        if (json_object_get(ops, name) == NULL)
            json_object_set_new(ops, name,
                                json_pack("{s:f, s:[f, f, f]}", "bytes_per_s", 1e9, "flops_per_s", 1e9, 0.0, 2e9));
    }
}

static void complete(json_t *root)
{
    json_t *entries = json_object_get(root, "entries");
    json_object_set_new(root, "schema", json_integer(2));
    json_object_set_new(root, "device", json_string(DEVICE));
    for (size_t i = 0; i < json_array_size(entries); i++)
        complete_ops(json_object_get(json_array_get(entries, i), "ops"));
    json_t *first = json_array_get(entries, 0);
    if (json_is_object(first))
        json_object_set_new(first, "key", json_string(KEY));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *root = NULL;
    log_sink_set(fuzz_silence, NULL);
    open_cache();
    use(data, size);
    if (json_parse((const char *)data, size, "input", &root) == GT_OK && json_is_object(root)) {
        complete(root);
        char *text = json_dumps(root, JSON_COMPACT);
        FUZZ_CHECK(text != NULL);
        use(text, strlen(text));
        free(text);
    }
    json_decref(root);
    return 0;
}
