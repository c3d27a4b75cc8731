/* Fuzzes the cuda backend's list of algorithms, a file in the user's cache.
 *
 * Ops are identified by hashes that no mutation finds, so the input is tried again with a valid hash in each line.  An
 * accepted list is written as the same text, and the rates that a forecast derives from it are finite.
 */
#include <math.h>
#include <string.h>

#include "backends/cuda/cuda_choices.h"
#include "base/hash.h"
#include "plan/plan_cost.h"
#include "tests/fuzz/fuzz_common.h"

#define LINES_MAX 64
#define OP_AT 34 /* after two numbers of 16 digits */
#define OP_DIGITS 16

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

static void use(const char *text, size_t size)
{
    static char again[LINES_MAX * CUDA_CHOICE_LINE_BYTES + 1];
    if (!cuda_choices_parse(text, size, &choices, timing)) {
        FUZZ_CHECK(choices.count == 0);
        return;
    }
    for (int32_t i = 0; i < choices.count; i++) {
        FUZZ_CHECK(cuda_timing_valid(&timing[i]) && (unsigned)timing[i].dtype < DTYPE_COUNT);
        FUZZ_CHECK((unsigned)timing[i].kind < OP_KIND_COUNT);
        FUZZ_CHECK(cuda_choices_find(&choices, choices.at[i].call) == choices.at[i].algorithm);
    }
    cuda_choices_write(&choices, timing, again);
    FUZZ_CHECK(strlen(again) == size && memcmp(again, text, size) == 0);
    check_rates();
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    (void)mem;
    char text[LINES_MAX * CUDA_CHOICE_LINE_BYTES], digits[OP_DIGITS + 1];
    if (size > sizeof text)
        return;
    use((const char *)data, size);
    memcpy(text, data, size);
    for (size_t at = 0; at + CUDA_CHOICE_LINE_BYTES <= size; at += CUDA_CHOICE_LINE_BYTES) {
        const char *name = op_declaration((enum op_kind)((unsigned char)text[at + OP_AT] % OP_KIND_COUNT))->name;
        snprintf(digits, sizeof digits, "%016llx", (unsigned long long)hash_identity(hash_fnv1a(name, strlen(name))));
        memcpy(text + at + OP_AT, digits, OP_DIGITS);
    }
    use(text, size);
}
