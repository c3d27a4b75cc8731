/* Shared code of the targets that read configurations: the messages are counted, and what is
 * accepted can be stored in a checkpoint, of which a later run makes the same configuration.
 */
#ifndef GPT_TRAIN_FUZZ_CONFIG_H
#define GPT_TRAIN_FUZZ_CONFIG_H

#include <string.h>

#include "base/json.h"
#include "base/recompute.h"
#include "base/status.h"
#include "config/config.h"
#include "config/config_check.h"
#include "config/config_json.h"
#include "config/config_key.h"
#include "config/config_text.h"
#include "tests/fuzz/fuzz_common.h"

struct fuzz_said {
    size_t errors;
    const char *input; /* what an error names */
    bool names_input;
};

static inline void fuzz_config_listen(void *context, enum log_level level, const char *line)
{
    struct fuzz_said *said = context;
    FUZZ_CHECK(strchr(line, '\n') == NULL);
    said->errors += level == LOG_ERROR;
    said->names_input = said->names_input || strstr(line, said->input) != NULL;
}

static inline void fuzz_config_stored(const struct config *config)
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

/* Checks the reader's status, what it said, and the configuration. */
static inline void fuzz_config_check(struct config *config, enum gt_status status,
                                     const struct fuzz_said *said)
{
    struct recompute_mix mix;
    const char *why = NULL;
    uint64_t bytes = 0;
    FUZZ_CHECK(status == GT_OK ? said->errors == 0
                               : status == GT_USAGE && said->errors > 0 && said->names_input);
    FUZZ_CHECK(config->n_layer >= 1 && config->n_layer <= 4096);
    FUZZ_CHECK(config->learning_rate >= 0.0 && config->learning_rate <= 1e3);
    if (status != GT_OK || config_check(config) != GT_OK)
        return;
    config_notes(config);
    (void)config_memory_budget(config, UINT64_C(12) << 30, &bytes);
    FUZZ_CHECK(recompute_read(config->recompute, config->n_layer, &mix, &why) || why != NULL);
    fuzz_config_stored(config);
}

#endif
