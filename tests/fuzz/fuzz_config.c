/* Fuzzes configuration files in nanoGPT's syntax.
 *
 * An accepted configuration that passes config_check() can be stored in a checkpoint, and a later run must accept the
 * stored text as the same configuration.
 */
#include "base/recompute.h"
#include "config/config.h"
#include "tests/fuzz/fuzz_common.h"

static void check_stored(const struct config *config)
{
    struct config later;
    json_t *stored = NULL, *again = NULL;
    FUZZ_CHECK(config_to_json(config, &stored) == GT_OK);
    config_defaults(&later, CONFIG_TRAIN);
    FUZZ_CHECK(config_from_json(&later, stored, "stored") == GT_OK);
    FUZZ_CHECK(config_to_json(&later, &again) == GT_OK);
    FUZZ_CHECK(json_equal(stored, again));
    json_decref(again);
    json_decref(stored);
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    (void)mem;
    struct config config;
    config_defaults(&config, CONFIG_TRAIN);
    config.wall_s = 1; /* time.time() returns this, so that equal inputs give equal results */
    if (config_parse_text(&config, "input", (const char *)data, size) == GT_OK && config_check(&config) == GT_OK) {
        struct recompute_mix mix;
        const char *why = NULL;
        uint64_t bytes = 0;
        config_notes(&config);
        (void)config_memory_budget(&config, UINT64_C(12) << 30, &bytes);
        FUZZ_CHECK(recompute_read(config.recompute, config.n_layer, &mix, &why) || why != NULL);
        check_stored(&config);
    }
}
