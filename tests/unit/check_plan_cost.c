/* Tests of plan_cost.c: times follow from rates, dtypes and shapes; a profile's shares scale its
 * peaks. */
#include "plan/plan_cost.h"

#include <math.h>

#include "plan/device_profile_file.h"
#include "tests/unit/unit_main.h"

static struct op_call gemm_call(int64_t m, int64_t n, int64_t k, enum dtype dtype)
{
    struct op_call call = {.kind = OP_GEMM};
    call.operand[GEMM_A] =
        (struct operand){.present = true, .dtype = dtype, .rank = 2, .dims = {m, k}};
    call.operand[GEMM_B] =
        (struct operand){.present = true, .dtype = dtype, .rank = 2, .dims = {k, n}};
    call.operand[GEMM_D] =
        (struct operand){.present = true, .dtype = dtype, .rank = 2, .dims = {m, n}};
    return call;
}

static struct op_call residual_call(int64_t rows, enum dtype dtype)
{
    struct op_call call = {.kind = OP_RESIDUAL};
    for (int slot = RESIDUAL_X; slot <= RESIDUAL_R; slot++)
        call.operand[slot] =
            (struct operand){.present = true, .dtype = dtype, .rank = 2, .dims = {rows, 768}};
    return call;
}

static struct plan_rates rates_of(const char *id, double share)
{
    struct device_profile profile;
    ck_assert_int_eq(device_profile_find(id, &profile), GT_OK);
    if (share > 0.0)
        profile.reached = (struct device_reached){share, share, share, 0.2};
    return plan_rates_of_profile(&profile, false);
}

TEST(products_run_at_the_rate_of_their_dtype)
{
    struct plan_rates rates = rates_of("a100-80g-sxm", 1.0);
    struct op_call single = gemm_call(8192, 3072, 768, DTYPE_F32),
                   half = gemm_call(8192, 3072, 768, DTYPE_BF16);
    const double flops = 2.0 * 8192 * 3072 * (768 + 64) + 2.0 * 0.5 * 128 * 128 * 108 * 768;
    rates.op_seconds = 0.0;
    ck_assert_double_eq_tol(plan_cost_op(&single, &rates), flops / 19.4918e12,
                            1e-4 * flops / 19.5e12);
    ck_assert_double_eq_tol(plan_cost_op(&half, &rates) * 16.0, plan_cost_op(&single, &rates),
                            1e-9);
}

TEST(other_ops_move_bytes)
{
    struct plan_rates rates = rates_of("rtx3060-12g", 0.5);
    rates.op_seconds = 0.0;
    struct op_call single = residual_call(4096, DTYPE_F32), half = residual_call(4096, DTYPE_F16);
    double seconds = 3.0 * 4096 * 768 * 4 / (0.5 * 360e9);
    ck_assert_double_eq_tol(plan_cost_op(&single, &rates), seconds, 1e-9 * seconds);
    ck_assert_double_eq_tol(plan_cost_op(&half, &rates), seconds / 2.0, 1e-9 * seconds);
}

TEST(an_unknown_rate_is_the_vector_rate)
{
    struct plan_rates rates = rates_of("rx6800-xt-16g", 1.0);
    struct op_call single = gemm_call(8192, 3072, 3072, DTYPE_F32),
                   half = gemm_call(8192, 3072, 3072, DTYPE_F16);
    ck_assert_double_eq_tol(plan_cost_op(&half, &rates), plan_cost_op(&single, &rates), 1e-12);
}

/* The gradient of a weight has few elements and a long sum, which is divided among the units of a
 * card. */
TEST(a_long_sum_fills_the_card)
{
    struct plan_rates rates = rates_of("rtx4090-24g", 1.0);
    const struct op_call gradient = gemm_call(896, 896, 16384, DTYPE_BF16);
    const double least = op_flops(&gradient) / rates.flops_per_s[OP_GEMM][DTYPE_BF16];
    ck_assert_double_gt(plan_cost_op(&gradient, &rates), 1.05 * least);
    ck_assert_double_lt(plan_cost_op(&gradient, &rates), 1.35 * least);
}

TEST(each_op_costs_its_start)
{
    struct plan_rates rates = rates_of("rtx4090-24g", 0.0);
    const struct op_call tiny = residual_call(1, DTYPE_BF16);
    ck_assert_double_gt(rates.op_seconds, 1e-6);
    ck_assert_double_eq_tol(plan_cost_op(&tiny, &rates), rates.op_seconds, 0.01 * rates.op_seconds);
}

TEST(a_share_scales_everything)
{
    struct op_call calls[2] = {gemm_call(640, 768, 768, DTYPE_BF16),
                               residual_call(640, DTYPE_BF16)};
    struct plan_rates whole = rates_of("rtx4090-24g", 1.0), quarter = rates_of("rtx4090-24g", 0.25);
    struct plan_rates table = rates_of("rtx4090-24g", 0.0);
    whole.op_seconds = quarter.op_seconds = table.op_seconds = 0.0;
    for (int i = 0; i < 2; i++) {
        double seconds = plan_cost_op(&calls[i], &whole);
        ck_assert_double_eq_tol(plan_cost_op(&calls[i], &quarter), 4.0 * seconds, 1e-12 * seconds);
        ck_assert_double_gt(plan_cost_op(&calls[i], &table), seconds);
        ck_assert_double_lt(plan_cost_op(&calls[i], &table), 2.0 * seconds);
    }
}

/* Returns attention in fp16 of 4,096 rows with so many heads in 256 columns. */
static struct op_call attention_call(enum op_kind kind, int32_t heads)
{
    const bool forward = kind == OP_ATTENTION_FORWARD;
    struct op_call call = {.kind = kind,
                           .attrs = {.time = 4096, .heads = heads, .kv_heads = heads}};
    call.operand[forward ? (int)ATTENTION_FORWARD_QKV : (int)ATTENTION_BACKWARD_QKV] =
        (struct operand){.present = true, .dtype = DTYPE_F16, .rank = 2, .dims = {4096, 3 * 256}};
    call.operand[forward ? (int)ATTENTION_FORWARD_Y : (int)ATTENTION_BACKWARD_Y] =
        (struct operand){.present = true, .dtype = DTYPE_F16, .rank = 2, .dims = {4096, 256}};
    return call;
}

/* A card of 7.5 computes heads above 128 columns in fp32; the backward of any card makes 8 products
 * instead of 5. */
TEST(wide_heads_have_their_price)
{
    static const struct {
        const char *card;
        enum op_kind kind;
        double most, least; /* of the seconds for each FLOP, against those of other heads */
    } cases[] = {{"rtx4090-24g", OP_ATTENTION_FORWARD, 1.0, 1.0},
                 {"rtx4090-24g", OP_ATTENTION_BACKWARD, 1.6, 1.6},
                 {"rtx2060-6g", OP_ATTENTION_FORWARD, 8.0, 2.0},
                 {"rtx2060-6g", OP_ATTENTION_BACKWARD, 8.0, 2.0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct plan_rates rates = rates_of(cases[i].card, 1.0);
        rates.op_seconds = 0.0;
        double seconds[2];
        for (int wide = 0; wide < 2; wide++) {
            const struct op_call call = attention_call(cases[i].kind, wide ? 1 : 2);
            seconds[wide] = plan_cost_op(&call, &rates);
        }
        ck_assert_double_ge(seconds[1], cases[i].least * seconds[0] * 0.999);
        ck_assert_double_le(seconds[1], cases[i].most * seconds[0] * 1.001);
    }
}

/* Of 0.68 of attention's time half is saved where all products have fp16 sums; of that of backward
 * with heads of 128 columns two fifths. */
TEST(fp16_sums_shorten_attention)
{
    static const double shares[][2] = {{0.66, 0.66}, {0.66, 0.864}, {1.0, 1.0}}; /* 64, 128, 256 */
    struct device_profile profile;
    ck_assert_int_eq(device_profile_find("rtx4090-24g", &profile), GT_OK);
    for (int i = 0; i < 6; i++) {
        const struct op_call call =
            attention_call(i % 2 == 0 ? OP_ATTENTION_FORWARD : OP_ATTENTION_BACKWARD, 4 >> i / 2);
        double seconds[2];
        for (int half = 0; half < 2; half++) {
            struct plan_rates rates = plan_rates_of_profile(&profile, half == 1);
            rates.op_seconds = 0.0;
            seconds[half] = plan_cost_op(&call, &rates);
        }
        ck_assert_double_eq_tol(seconds[1] / seconds[0], shares[i / 2][i % 2], 1e-9);
    }
}

/* The delta rule runs at a sixteenth of the vector rate, in as many rounds as its groups need:
 * heads of samples, of the backward key heads. */
TEST(the_delta_rule_has_the_price_of_a_plain_kernel)
{
    static const struct {
        enum op_kind kind;
        int64_t samples;
        double busy; /* of 28 units, with 16 heads and 8 key heads */
    } cases[] = {{OP_GATED_DELTA_FORWARD, 1, 16.0 / 28.0},
                 {OP_GATED_DELTA_FORWARD, 7, 112.0 / 112.0},
                 {OP_GATED_DELTA_CACHED, 2, 32.0 / 56.0},
                 {OP_GATED_DELTA_BACKWARD, 4, 32.0 / 56.0}};
    struct plan_rates rates = rates_of("rtx3060-12g", 0.5);
    rates.op_seconds = 0.0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct op_call call = {.kind = cases[i].kind,
                               .attrs = {.time = 128, .heads = 16, .kv_heads = 8}};
        const struct operand x = {.present = true,
                                  .dtype = DTYPE_BF16,
                                  .rank = 2,
                                  .dims = {128 * cases[i].samples, 32 * 128 + 32}};
        call.operand[GATED_DELTA_FORWARD_X] = x; /* of the others too */
        const double rate = cases[i].busy * 0.5 / 16.0 * 12.74e12;
        ck_assert_double_eq_tol(plan_cost_op(&call, &rates) * rate / op_flops(&call), 1.0, 2e-3);
    }
}

TEST(what_times_rest_on_is_said)
{
    char text[512];
    struct device_profile profile;
    ck_assert_int_eq(device_profile_find("rtx3060-12g", &profile), GT_OK);
    ck_assert_ptr_nonnull(strstr(plan_rates_basis(text, &profile),
                                 "85 % of this card's peak rate for products, by the model"));
    snprintf(profile.share_source, sizeof profile.share_source, "a friend measured");
    ck_assert_ptr_nonnull(
        strstr(plan_rates_basis(text, &profile), "products, as a friend measured"));
}

TEST(few_rows_cost_a_ramp)
{
    struct plan_rates rates = plan_rates_of_peaks(1e11, 1e11);
    struct op_call few = gemm_call(64, 768, 768, DTYPE_F32),
                   many = gemm_call(6400, 768, 768, DTYPE_F32);
    double ratio = plan_cost_op(&many, &rates) / plan_cost_op(&few, &rates);
    ck_assert_double_eq_tol(ratio, 100.0 * (1.0 + 0.01) / 2.0, 1e-6);
    struct plan_rates two = plan_rates_of_peaks(8e11, 1e11);
    for (int kind = 0; kind < OP_KIND_COUNT; kind++)
        ck_assert_double_eq_tol(two.flops_per_s[kind][DTYPE_BF16],
                                (kind == OP_GEMM ? 8.0 : 1.0) * rates.flops_per_s[kind][DTYPE_BF16],
                                1.0);
    rates = plan_rates_of_peaks(0.0, 0.0);
    ck_assert_double_eq_tol(plan_cost_op(&many, &rates), op_bytes(&many) / 20e9, 1e-9);
    ck_assert_double_eq(plan_cost_gemm_rows(&few), 64.0);
    few.attrs.transpose_a = true; /* a weight's gradient: a is [K, M] */
    few.operand[GEMM_A].dims[0] = 4096;
    ck_assert_double_eq(plan_cost_gemm_rows(&few), 4096.0);
}

/* A class or a kind that has timings gets their rate, replacing any other; the rest stay. */
TEST(what_was_timed_replaces_what_was_modelled)
{
    struct op_call large = gemm_call(22528, 2304, 768, DTYPE_BF16), other = large,
                   small = gemm_call(512, 768, 768, DTYPE_BF16);
    struct op_call single = gemm_call(22528, 2304, 768, DTYPE_F32),
                   residual = residual_call(4096, DTYPE_BF16);
    struct plan_rates rates = plan_rates_of_peaks(40e12, 10e12), before = rates;
    const double flops = op_flops(&large);
    struct backend_timing timings[] = {
        {.kind = OP_GEMM,
         .dtype = DTYPE_BF16,
         .flops = flops,
         .bytes = 1e8,
         .seconds = flops / 20e12},
        {.kind = OP_GEMM,
         .dtype = DTYPE_BF16,
         .flops = 3.0 * flops,
         .bytes = 1e8,
         .seconds = flops / 20e12},
        {.kind = OP_RESIDUAL, .dtype = DTYPE_BF16, .flops = 1.0, .bytes = 3e8, .seconds = 1e-3},
        {.kind = OP_ATTENTION_FORWARD,
         .dtype = DTYPE_BF16,
         .flops = 5e9,
         .bytes = 1e7,
         .seconds = 1e-3},
    };
    other.attrs.transpose_b = true;
    struct plan_timed none = plan_rates_time(&rates, timings, 0);
    ck_assert_int_eq(none.gemm_classes + none.kinds, 0);
    ck_assert_mem_eq(&rates, &before, sizeof rates);
    struct plan_timed timed = plan_rates_time(&rates, timings, sizeof timings / sizeof timings[0]);
    ck_assert_int_eq(timed.gemm_classes, 1);
    ck_assert_int_eq(timed.kinds, 2);
    ck_assert_double_eq_tol(plan_cost_op(&large, &rates), flops / 40e12, 1e-9 * flops / 40e12);
    const struct op_call *untimed[] = {&other, &small, &single};
    for (size_t i = 0; i < 3; i++)
        ck_assert_double_eq(plan_cost_op(untimed[i], &rates), plan_cost_op(untimed[i], &before));
    ck_assert_double_eq_tol(plan_cost_op(&residual, &rates), op_bytes(&residual) / 3e11, 1e-12);
    ck_assert_double_eq_tol(rates.flops_per_s[OP_ATTENTION_FORWARD][DTYPE_BF16], 5e12, 1.0);
    ck_assert_double_eq(rates.flops_per_s[OP_ATTENTION_FORWARD][DTYPE_F32],
                        before.flops_per_s[OP_ATTENTION_FORWARD][DTYPE_F32]);
}

/* Timings of a dtype or an op that this release lacks, or of no work, are ignored. */
TEST(a_timing_of_nothing_known_is_passed_over)
{
    struct plan_rates rates = plan_rates_of_peaks(1e11, 1e11), before = rates;
    struct backend_timing timings[] = {
        {.kind = OP_KIND_COUNT, .dtype = DTYPE_F32, .flops = 1e9, .bytes = 1e9, .seconds = 1.0},
        {.kind = OP_RESIDUAL, .dtype = (enum dtype)200, .flops = 1e9, .bytes = 1e9, .seconds = 1.0},
    };
    struct plan_timed timed = plan_rates_time(&rates, timings, 2);
    ck_assert_int_eq(timed.gemm_classes + timed.kinds, 0);
    ck_assert_mem_eq(&rates, &before, sizeof rates);
}
