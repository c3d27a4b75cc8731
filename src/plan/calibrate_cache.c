/* The cache of calibrated rates: one file of the user's cache per key, that is per device, build, width and dtype.
 *
 * user_cache.c reads, checks and bounds the files.  Nothing here is an error: without a cache the device is timed
 * again.
 */
#include <config.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/user_cache.h"
#include "plan/calibrate.h"

/* Some thirty calibrations; the oldest go first. */
static const struct user_cache calibrations = {
    .folder = "calibration",
    .magic = "GTRATES1",
    .suffix = ".rates",
    .otherwise = "the device is timed again",
    .bytes_max = (uint64_t)64 << 10,
    .file_bytes_max = (uint64_t)16 << 10,
};

char *calibrate_key(char key[static CALIBRATE_KEY_MAX], const struct backend_info *info,
                    const struct model_options *options)
{
    const struct model_config *config = &options->config;
    snprintf(key, CALIBRATE_KEY_MAX,
             "%s; %s | %s " PACKAGE_VERSION "%s; channels %" PRId32 ", heads %" PRId32 ", block %" PRId32
             ", vocabulary %" PRId32 ", bias %d, dropout %d, gelu %d, %s, %s%s",
             info->device, info->detail, PACKAGE_NAME,
#ifdef GT_DEBUG
             " debug",
#else
             "",
#endif
             config->n_embd, config->n_head, config->block_size, config->vocab_size, (int)config->bias,
             config->dropout > 0.0f, (int)config->gelu, dtype_name(options->dtype), state_format_name(options->states),
             options->muon ? ", muon" : "");
    return key;
}

bool calibrate_load(const char *key, struct plan_rates *out)
{
    void *data = NULL;
    size_t bytes = 0;
    const bool good =
        user_cache_load(&calibrations, key, key, &data, &bytes) == USER_CACHE_READ && bytes == sizeof *out;
    if (good)
        memcpy(out, data, bytes);
    free(data);
    return good;
}

void calibrate_scale(struct plan_rates *rates, double ratio)
{
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        rates->bytes_per_s[kind] *= ratio;
        for (int dtype = 0; dtype < PLAN_MATRIX_DTYPES; dtype++)
            rates->flops_per_s[kind][dtype] *= ratio;
    }
}

void calibrate_store(const char *key, const struct plan_rates *rates)
{
    if (!user_cache_store(&calibrations, key, key, rates, sizeof *rates))
        log_note("the user's cache cannot be written; timings of this device are not kept");
}
