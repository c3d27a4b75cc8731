/* The table of op tests, and the functions that the oracles of all families share.
 *
 * The oracle stores and sums everything in double, in rising index order; nothing here is meant to
 * be fast.
 */
#include "tests/ops/op_test.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OP(KIND, name, operands) [OP_##KIND] = &test_##name,
static const struct op_test *const tests[OP_KIND_COUNT] = {
#include "ops/ops.def"
};
#undef OP

const struct op_test *op_test(enum op_kind kind)
{
    assert((unsigned)kind < OP_KIND_COUNT);
    return tests[kind];
}

/* ---- the oracle ---- */

/* The judge compares exact ops bit by bit, so that they need no condition. */
static void unspecified(const struct op_call *call, const struct ref_tensors *t)
{
    for (int32_t slot = 0; slot < op_declaration(call->kind)->operands; slot++) {
        for (int64_t i = 0; t->value[slot] != NULL && i < op_elements(call, slot); i++)
            t->term[slot][i] = REF_UNSPECIFIED;
    }
}

void ref_run(const struct op_call *call, const struct ref_tensors *tensors)
{
    if (op_test(call->kind)->ref != NULL) {
        op_test(call->kind)->ref(call, tensors);
        return;
    }
    op_test(call->kind)->exact(call, tensors->value);
    unspecified(call, tensors);
}

double ref_dropout_factor(const double *scalars, float p, int32_t site, int64_t sample,
                          int64_t element)
{
    uint32_t threshold = (uint32_t)floor((double)p * 65536.0 + 0.5);
    if (threshold == 0)
        return 1.0; /* every pattern is kept */
    uint64_t seed = (uint64_t)scalars[SCALAR_SEED_HI] << 32 | (uint64_t)scalars[SCALAR_SEED_LO];
    struct philox_block counter;
    counter.word[0] = (uint32_t)(element / 8);
    counter.word[1] = (uint32_t)site;
    counter.word[2] = (uint32_t)((int64_t)scalars[SCALAR_SAMPLE_BASE] + sample);
    counter.word[3] = (uint32_t)(int32_t)scalars[SCALAR_STEP];
    struct philox_block block = philox4x32_10(philox_key_make(seed, RNG_DROPOUT), counter);
    uint32_t within = (uint32_t)(element & 7);
    uint32_t word = block.word[within >> 1];
    uint32_t bits = (within & 1) != 0 ? word >> 16 : word & 0xffffu;
    return bits >= threshold ? 65536.0 / (65536.0 - (double)threshold) : 0.0;
}

double ref_rounded(enum dtype dtype, double value)
{
    float single = (float)value;
    if (dtype == DTYPE_BF16)
        return (double)bf16_to_f32(bf16_from_f32(single));
    return (double)(dtype == DTYPE_F16 ? f16_to_f32(f16_from_f32(single)) : single);
}

double ref_half_floor(enum dtype dtype)
{
    return dtype == DTYPE_F16 ? 0x1p-25 : dtype == DTYPE_BF16 ? 0x1p-134 : 0.0;
}

double ref_before(const struct op_call *call, const struct ref_tensors *t, int32_t slot, int64_t i)
{
    return op_accumulates(call, slot) ? t->value[slot][i] : 0.0;
}

/* ---- the bits ---- */

uint32_t exact_bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

float exact_float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

uint32_t exact_random_of(const struct op_call *call, const double *scalars, int64_t i,
                         uint32_t stream)
{
    uint64_t seed = (uint64_t)scalars[SCALAR_SEED_HI] << 32 | (uint64_t)scalars[SCALAR_SEED_LO];
    uint64_t index = (uint64_t)i + (uint64_t)call->attrs.index_base;
    uint32_t step = (uint32_t)scalars[SCALAR_STEP];
    struct philox_block counter = {{(uint32_t)(index >> 3), (uint32_t)(index >> 35), step, stream}};
    struct philox_block block = philox4x32_10(philox_key_make(seed, RNG_STATES), counter);
    uint32_t word = block.word[(index & 7u) >> 1];
    return (index & 1u) != 0 ? word >> 16 : word & 0xffffu;
}

float exact_rounded(enum dtype dtype, float value)
{
    return (float)ref_rounded(dtype, (double)value);
}

float exact_bf16(float x, uint32_t random)
{
    uint32_t bits = exact_bits_of(x);
    if (isnan(x))
        return exact_float_of((bits | 0x400000u) & 0xffff0000u);
    return isinf(x) ? x : exact_float_of((bits + random) & 0xffff0000u);
}

bool scalar_is_float(int64_t slot)
{
    static const bool is_float[SCALAR_WORDS] = {
        [SCALAR_LEARNING_RATE] = true, [SCALAR_LOSS_GRADIENT] = true, [SCALAR_UNSCALE] = true,
        [SCALAR_LOSS_SUM] = true,      [SCALAR_CLIP] = true,          [SCALAR_GRAD_NORM] = true,
        [SCALAR_MUON_MOMENTUM] = true};
    return is_float[slot];
}

bool exact_defined(const struct op_call *call)
{
    const struct op_test *test = op_test(call->kind);
    return test->ref == NULL || (test->is_exact_copy && call->attrs.accumulate == 0);
}

/* ---- documents ---- */

void case_documents(struct maker *maker, int32_t slot, int64_t rows)
{
    if (maker->index % 5 < 2)
        case_tensor(maker, slot, DTYPE_I32, rows, 0);
}

void inputs_documents(const struct check_case *check, double *first, struct random *random)
{
    const int64_t time = check->call.attrs.time,
                  rows = first != NULL ? case_operand(check, 0)->dims[0] : 0;
    int64_t period = 1;
    for (int64_t n = 0; n < rows; n++) {
        if (n % time == 0)
            period = INT64_C(1) << random_below(random, 8);
        bool begins = n % time == 0 || random_below(random, period) == 0;
        first[n] = begins ? (double)(n % time) : first[n - 1];
    }
}
