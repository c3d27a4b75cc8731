/* Fuzzes the cuda backend's list of algorithms, a file in the user's cache.
 *
 * An accepted list is written as the same bytes, and the rates that a forecast derives from it are finite.
 */
#include <math.h>
#include <string.h>

#include "backends/cuda/cuda_choices.h"
#include "plan/plan_cost.h"
#include "tests/fuzz/fuzz_common.h"

#define CHOICES_MAX 64

static struct cuda_choices choices;
static struct backend_timing timing[CUDA_CHOICES_MAX];

static void check_rate(double rate)
{
    FUZZ_CHECK(rate == 0.0 || (rate > 1e-30 && rate < 1e40));
}

static void check_rates(void)
{
    struct plan_rates rates = plan_rates_of_peaks(1e9, 1e9);
    const struct plan_timed timed = plan_rates_time(&rates, timing, (size_t)choices.count);
    FUZZ_CHECK(timed.gemm_classes <= PLAN_GEMM_CLASSES && timed.kinds <= OP_KIND_COUNT);
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        FUZZ_CHECK(rates.bytes_per_s[kind] > 0.0);
        check_rate(rates.bytes_per_s[kind]);
        for (int dtype = 0; dtype < PLAN_MATRIX_DTYPES; dtype++)
            check_rate(rates.flops_per_s[kind][dtype]);
    }
    for (int class = 0; class < PLAN_GEMM_CLASSES; class ++)
        for (int dtype = 0; dtype < PLAN_MATRIX_DTYPES; dtype++)
            check_rate(rates.gemm_flops_per_s[class][dtype]);
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    static char again[CHOICES_MAX * CUDA_CHOICE_BYTES];
    (void)mem;
    if (size > sizeof again)
        return;
    if (!cuda_choices_read((const char *)data, size, &choices, timing)) {
        FUZZ_CHECK(choices.count == 0);
        return;
    }
    for (int32_t i = 0; i < choices.count; i++) {
        FUZZ_CHECK(cuda_timing_valid(&timing[i]));
        FUZZ_CHECK(cuda_choices_find(&choices, choices.at[i].call) == choices.at[i].algorithm);
    }
    cuda_choices_write(&choices, timing, again);
    FUZZ_CHECK(memcmp(again, data, size) == 0);
    check_rates();
}
