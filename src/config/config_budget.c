/* memory_budget: a number of bytes as people write it.
 *
 * GB is 10^9 bytes and GiB is 2^30, because the memory of cards is sold in one unit and reported in the other.  A
 * percentage refers to the device's total memory, not to its free memory.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "config/config.h"

#define BUDGET_BARE_MIN 1048576.0              /* a smaller number probably lacks its unit */
#define BUDGET_BYTES_MAX 1152921504606846976.0 /* 2^60 */

/* Returns the factor of the unit, or 0 if it is unknown. */
static double unit_factor(const char *unit, uint64_t total_bytes)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {
        {"", 1},     {"b", 1},       {"kb", 1e3},       {"mb", 1e6},
        {"gb", 1e9}, {"kib", 1024},  {"mib", 1048576},  {"gib", 1073741824},
        {"k", 1024}, {"m", 1048576}, {"g", 1073741824},
    };
    if (strcmp(unit, "%") == 0)
        return (double)total_bytes / 100.0;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcasecmp(unit, units[i].name) == 0)
            return units[i].factor;
    }
    return 0.0;
}

enum gt_status config_memory_budget(const struct config *config, uint64_t total_bytes, uint64_t *out)
{
    const char *text = config->memory_budget;
    char *end;
    if (*text == '\0') {
        *out = 0;
        return GT_OK;
    }
    const double number = strtod(text, &end);
    const char *unit = end + strspn(end, " ");
    const double bytes = end == text ? 0.0 : number * unit_factor(unit, total_bytes);
    const bool beyond = strcmp(unit, "%") == 0 && number > 100.0;
    if (beyond || !(bytes >= 1.0 && bytes <= BUDGET_BYTES_MAX)) {
        log_error("invalid memory_budget '%s'; examples: 11.4GiB, 500MiB, 80%%", text);
        return GT_USAGE;
    }
    if (*unit == '\0' && bytes < BUDGET_BARE_MIN) {
        log_error("memory_budget '%s' means %.0f bytes; did you mean %.*sGiB?", text, floor(bytes), (int)(end - text),
                  text);
        return GT_USAGE;
    }
    *out = (uint64_t)bytes;
    return GT_OK;
}
