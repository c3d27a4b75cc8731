/* Fuzzes configuration files in nanoGPT's syntax.
 *
 * A file is accepted in silence, or refused with error lines that name it; values stay in range.  An accepted
 * configuration that passes config_check() can be stored in a checkpoint, and a later run must accept the stored text as
 * the same configuration.
 */
#include <string.h>

#include "base/json.h"
#include "base/recompute.h"
#include "base/status.h"
#include "config/config.h"
#include "config/config_check.h"
#include "config/config_file.h"
#include "config/config_json.h"
#include "config/config_key.h"
#include "config/config_text.h"
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

struct said {
    size_t errors;
    bool names_input;
};

static void listen(void *context, enum log_level level, const char *line)
{
    struct said *said = context;
    FUZZ_CHECK(strchr(line, '\n') == NULL);
    said->errors += level == LOG_ERROR;
    said->names_input = said->names_input || strstr(line, "input:") != NULL;
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct config config;
    struct said said = {0};
    struct recompute_mix mix;
    const char *why = NULL;
    uint64_t bytes = 0;
    (void)mem;
    log_sink_set(listen, &said);
    config_defaults(&config, CONFIG_TRAIN);
    config.wall_s = 1; /* time.time() returns this, so that equal inputs give equal results */
    const enum gt_status status = config_parse_text(&config, "input", (const char *)data, size);
    FUZZ_CHECK(status == GT_OK ? said.errors == 0 : status == GT_USAGE && said.errors > 0 && said.names_input);
    FUZZ_CHECK(config.n_layer >= 1 && config.n_layer <= 4096);
    FUZZ_CHECK(config.learning_rate >= 0.0 && config.learning_rate <= 1e3);
    if (status != GT_OK || config_check(&config) != GT_OK)
        return;
    config_notes(&config);
    (void)config_memory_budget(&config, UINT64_C(12) << 30, &bytes);
    FUZZ_CHECK(recompute_read(config.recompute, config.n_layer, &mix, &why) || why != NULL);
    check_stored(&config);
}
