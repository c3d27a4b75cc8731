/* Fuzzes device profiles: the planner can plan for any accepted device. */
#include <math.h>
#include <string.h>

#include "plan/device_profile.h"
#include "plan/device_profile_file.h"
#include "tests/fuzz/fuzz_common.h"

static void check_rate(double rate, bool may_be_unknown)
{
    FUZZ_CHECK(isfinite(rate) && (rate >= 1e6 || (may_be_unknown && rate == 0.0)));
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    (void)mem;
    struct device_profile profile;
    if (device_profile_find(fuzz_file(data, size), &profile) != GT_OK)
        return;
    FUZZ_CHECK(profile.usable_bytes > 0 && profile.usable_bytes <= profile.memory_bytes);
    FUZZ_CHECK(profile.context_bytes <= profile.memory_bytes - profile.usable_bytes);
    FUZZ_CHECK(profile.largest_allocation_bytes > 0 &&
               profile.largest_allocation_bytes <= profile.memory_bytes);
    FUZZ_CHECK(profile.alignment_bytes >= 16 &&
               (profile.alignment_bytes & (profile.alignment_bytes - 1)) == 0);
    FUZZ_CHECK(profile.units >= 0 && (profile.dtypes >> DTYPE_F32 & 1u) == 1);
    FUZZ_CHECK(profile.reached.products > 0.0 && profile.reached.products <= 1.0);
    check_rate(profile.bytes_per_s, false);
    check_rate(profile.vector_flops_per_s, false);
    check_rate(profile.matrix_flops_per_s[DTYPE_BF16], true);
    check_rate(profile.matrix_flops_per_s[DTYPE_F16], true);
    FUZZ_CHECK(memchr(profile.name, '\0', sizeof profile.name) != NULL);
}
