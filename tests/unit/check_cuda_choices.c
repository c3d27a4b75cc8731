/* Tests of cuda_choices.c: the list of choices and the bytes that store it; only valid lists are read.  Needs no card. */
#include "backends/cuda/cuda_choices.h"

#include <math.h>
#include <string.h>

#include "plan/plan_cost.h"
#include "tests/unit/unit_main.h"

static struct cuda_choices choices, again;
static struct backend_timing timing[CUDA_CHOICES_MAX], timing_again[CUDA_CHOICES_MAX];
static char bytes[(CUDA_CHOICES_MAX + 1) * CUDA_CHOICE_BYTES];

static const struct backend_timing usual = {
    .kind = OP_GEMM, .dtype = DTYPE_BF16, .transpose_b = true, .flops = 2e10, .bytes = 6e6, .seconds = 1e-4};

static void add(uint64_t call, const struct backend_timing *of)
{
    const int32_t at = cuda_choices_put(&choices, call, call + 1000);
    ck_assert_int_ge(at, 0);
    timing[at] = *of;
}

static bool is_read(void)
{
    cuda_choices_write(&choices, timing, bytes);
    return cuda_choices_read(bytes, (size_t)choices.count * CUDA_CHOICE_BYTES, &again, timing_again);
}

/* Returns true when a list of one choice with this timing is accepted. */
static bool is_read_with(struct backend_timing of)
{
    choices.count = 0;
    add(7, &of);
    return is_read();
}

TEST(what_is_written_is_read)
{
    struct backend_timing forward = usual;
    forward.kind = OP_ATTENTION_FORWARD;
    forward.flops = 0.0;
    choices.count = 0;
    ck_assert(is_read() && again.count == 0);
    add(7, &usual);
    add(UINT64_MAX - 1000, &forward);
    ck_assert(is_read());
    ck_assert_int_eq(again.count, 2);
    ck_assert_uint_eq(cuda_choices_find(&again, 7), 1007);
    ck_assert_uint_eq(cuda_choices_find(&again, 8), 0);
    ck_assert_int_eq(timing_again[0].dtype, DTYPE_BF16);
    ck_assert(!timing_again[0].transpose_a && timing_again[0].transpose_b && timing_again[0].seconds == 1e-4);
    ck_assert_int_eq(timing_again[1].kind, OP_ATTENTION_FORWARD);
}

TEST(a_full_list_is_read_and_a_fuller_one_is_not)
{
    choices.count = 0;
    for (uint64_t i = 0; i < CUDA_CHOICES_MAX; i++)
        add(i + 1, &usual);
    ck_assert_int_eq(cuda_choices_put(&choices, 5000, 1), -1);
    ck_assert(is_read());
    ck_assert_int_eq(again.count, CUDA_CHOICES_MAX);
    ck_assert(!cuda_choices_read(bytes, sizeof bytes, &again, timing_again));
    ck_assert_int_eq(again.count, 0);
}

TEST(anything_else_is_refused)
{
    struct backend_timing of = usual;
    ck_assert(is_read_with(usual));
    ck_assert(!cuda_choices_read(bytes, CUDA_CHOICE_BYTES - 1, &again, timing_again));
    for (size_t at = 0; at < 16; at += sizeof(uint64_t)) { /* no call, no algorithm */
        ck_assert(is_read_with(usual));
        memset(bytes + at, 0, sizeof(uint64_t));
        ck_assert(!cuda_choices_read(bytes, CUDA_CHOICE_BYTES, &again, timing_again));
        ck_assert_int_eq(again.count, 0);
    }
    ck_assert(is_read_with(usual));
    memset(bytes + 16 + 7, 1, 1); /* beyond the transposes */
    ck_assert(!cuda_choices_read(bytes, CUDA_CHOICE_BYTES, &again, timing_again));
    of.kind = OP_KIND_COUNT;
    ck_assert(!is_read_with(of));
    of = usual;
    of.dtype = DTYPE_COUNT;
    ck_assert(!is_read_with(of));
    add(8, &usual);
    timing[0] = usual;
    choices.at[1].call = 7; /* the same call twice */
    ck_assert(!is_read());
}

/* Sums of such timings gave rates of 0 and of infinity, and a forecast of zero or infinite time. */
TEST(timings_give_finite_rates)
{
    static const double impossible[] = {-1.0, 5e-324, 0.5, 1e25, 1e308, INFINITY, NAN};
    static const double seconds[] = {-1.0, 0.0, 5e-324, 1e-10, 2e4, INFINITY, NAN};
    struct backend_timing of = usual;
    for (size_t i = 0; i < sizeof impossible / sizeof impossible[0]; i++) {
        of.flops = impossible[i];
        ck_assert_msg(!is_read_with(of), "%zu", i);
        of = usual;
        of.bytes = impossible[i];
        ck_assert_msg(!is_read_with(of), "%zu", i);
        of = usual;
        of.seconds = seconds[i];
        ck_assert_msg(!is_read_with(of), "%zu", i);
        of = usual;
    }
    of.flops = of.bytes = 1e24;
    of.seconds = 1e-9;
    ck_assert(is_read_with(of));
    struct plan_rates rates = plan_rates_of_peaks(1e9, 1e9);
    plan_rates_time(&rates, timing_again, 1);
    ck_assert_double_le(rates.gemm_flops_per_s[3][DTYPE_BF16], 1e34);
}
