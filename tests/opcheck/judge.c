/* The rule of every op, backend and dtype; derivations are in bounds.md.
 *
 *   1. NaN and infinities stand exactly where the oracle has them.
 *   2. Every element: |y - y*| <= u |y*| (1 + 2^-8) + 8 2^-24 term + floor, the smallest subnormal of the dtype.
 *   3. RMS error <= 1.25 times that of the naive reference, and |mean error| <= 8 RMS / sqrt(n), both as signed and
 *      towards or away from zero.  Ideal rounding of the output counts as a floor; n is the number of independent errors.
 *   4. Integer inputs of sums of products, and whatever the oracle marks exact: equal bits.
 *   5. Guard bands and inputs are untouched.  A case with less than 10 % of non-zero results is trivial: it counts for
 *      nothing, and opcheck.c fails an op with more than one trivial case in twenty.
 * Comparisons are positive, so that a NaN fails.  There is no tolerance here that is not one of these formulas.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

#define FACTOR_SUM (8.0 * 0x1p-24)
#define FACTOR_RMS 1.25
#define FACTOR_SIGMA 8.0
#define NONZERO_SHARE 0.10

/* Sums over the elements of one output that rule 3 looks at. */
struct moments {
    double count, squares, naive_squares, ideal_squares, signed_sum, outward_sum, systematic;
};

/* Sums of products without rounded constants: rule 4 applies, and rule 3 has no systematic part. */
static bool is_sum_of_products(enum op_kind kind)
{
    switch (kind) {
    case OP_EMBED_FORWARD:
    case OP_EMBED_BACKWARD:
    case OP_GEMM:
    case OP_BIAS_BACKWARD:
    case OP_RESIDUAL:
    case OP_LOSS_SUM:
    case OP_SUM_OF_SQUARES:
    case OP_FILL:
    case OP_COPY:
        return true;
    default:
        return false;
    }
}

/* How many elements of an output share one error (of their row's statistics or probabilities). */
static double shared_by(const struct op_call *call, int32_t slot)
{
    const struct operand *operand = &call->operand[slot];
    double row = (double)operand->dims[operand->rank - 1];
    switch (call->kind) {
    case OP_LAYERNORM_FORWARD:
        return slot == LAYERNORM_FORWARD_Y ? row : 1.0;
    case OP_LAYERNORM_BACKWARD:
        return slot == LAYERNORM_BACKWARD_DX ? row : 1.0;
    case OP_CROSS_ENTROPY:
        return slot == CROSS_ENTROPY_LOGITS ? row : 1.0;
    case OP_ATTENTION_FORWARD:
    case OP_ATTENTION_CACHED:
        return operand->rank == 2 ? row / (double)call->attrs.heads : 1.0;
    case OP_ATTENTION_BACKWARD:
        return row / (double)(call->attrs.heads + 2 * call->attrs.kv_heads);
    default:
        return 1.0;
    }
}

/* An op of one value in, one out rounds equal significands equally: there are 1/(2 u) of them in a 16-bit dtype, and
 * four sizes of small integers. */
static double inputs_distinct(const struct check_case *check, enum dtype dtype)
{
    if (check->call.kind != OP_GELU_FORWARD && check->call.kind != OP_DROPOUT)
        return (double)INFINITY;
    return check->inputs == INPUTS_INTEGER ? 4.0 : 0.5 / dtype_unit_roundoff(dtype);
}

static double smallest(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? 0x1p-149 : dtype == DTYPE_BF16 ? 0x1p-133 : 0x1p-24;
}

static bool same_class(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return a == b;
}

static bool fail(const struct check_case *check, int32_t slot, int64_t i, const char *what, double found,
                 double expected, struct verdict *out)
{
    out->passed = false;
    snprintf(out->reason, sizeof out->reason, "%s[%lld] is %.9g, expected %.9g: %s",
             op_declaration(check->call.kind)->operand[slot].name, (long long)i, found, expected, what);
    return false;
}

/* Rules 1, 2 and 4 for one element; adds to the moments. */
static bool judge_element(const struct check_case *check, const struct case_data *data, const uint8_t *after,
                          int32_t slot, int64_t i, struct moments *moments, struct verdict *out)
{
    enum dtype dtype = image_dtype(check, slot, i);
    double exact = data->ref.value[slot][i], term = data->ref.term[slot][i], u = dtype_unit_roundoff(dtype);
    double found = image_decode(check, slot, i, after), stored = image_rounded(dtype, exact);
    bool must_equal = term == REF_EXACT || (check->inputs == INPUTS_INTEGER && is_sum_of_products(check->call.kind));
    if (term == REF_UNSPECIFIED)
        return true;
    if (!isfinite(stored) || must_equal)
        return same_class(found, stored) || fail(check, slot, i, "must be exact", found, stored, out);
    double error = found - exact;
    double bound = u * fabs(exact) * (1.0 + 0x1p-8) + FACTOR_SUM * term + smallest(dtype);
    double ratio = fabs(error) / bound;
    if (!(ratio <= out->worst_ratio))
        out->worst_ratio = ratio;
    if (!(fabs(error) <= bound))
        return fail(check, slot, i, "beyond the bound", found, exact, out);
    double naive = image_decode(check, slot, i, data->naive_image) - exact;
    moments->count += 1.0;
    moments->squares += error * error;
    moments->naive_squares += naive * naive;
    moments->ideal_squares += (u * exact) * (u * exact) / 3.0 + smallest(dtype) * smallest(dtype);
    moments->signed_sum += error;
    moments->outward_sum += exact < 0.0 ? -error : error;
    moments->systematic += 0x1p-24 * term;
    return true;
}

/* Rule 3 for one output. */
static bool judge_moments(const struct check_case *check, int32_t slot, const struct moments *m, struct verdict *out)
{
    double n = m->count / shared_by(&check->call, slot);
    const char *name = op_declaration(check->call.kind)->operand[slot].name;
    if (m->count < 1.0)
        return true;
    n = fmin(n, inputs_distinct(check, image_dtype(check, slot, 0)));
    n = n < 1.0 ? 1.0 : n;
    double noise = FACTOR_SIGMA / sqrt(n), reference = sqrt((m->naive_squares + m->ideal_squares) / m->count);
    double rms = sqrt(m->squares / m->count), rms_max = FACTOR_RMS * (1.0 + noise) * reference;
    double systematic = is_sum_of_products(check->call.kind) ? 0.0 : m->systematic / m->count;
    double mean = fabs(m->signed_sum) / m->count, outward = fabs(m->outward_sum) / m->count;
    double mean_max = noise * reference + systematic;
    if (!(rms <= rms_max + systematic)) {
        out->passed = false;
        snprintf(out->reason, sizeof out->reason, "%s: RMS error %.4g, at most %.4g (naive with ideal rounding %.4g)",
                 name, rms, rms_max + systematic, reference);
    } else if (!(mean <= mean_max) || !(outward <= mean_max)) {
        out->passed = false;
        snprintf(out->reason, sizeof out->reason, "%s: bias %.4g (outward %.4g), at most %.4g over %.0f errors", name,
                 mean, outward, mean_max, n);
    }
    return out->passed;
}

static bool judge_output(const struct check_case *check, const struct case_data *data, const uint8_t *after,
                         int32_t slot, struct verdict *out)
{
    struct moments moments = {.count = 0.0};
    for (int64_t i = 0; i < operand_elements(&check->call.operand[slot]); i++) {
        if (!judge_element(check, data, after, slot, i, &moments, out))
            return false;
    }
    return judge_moments(check, slot, &moments, out);
}

/* Rule 5: a case whose results are mostly zero shows nothing (one channel, one column, everything dropped). */
static bool judge_trivial(const struct check_case *check, const struct case_data *data)
{
    double nonzero = 0.0, count = 0.0;
    for (int32_t slot = 0; slot < op_declaration(check->call.kind)->operands; slot++) {
        if (data->ref.value[slot] == NULL || op_direction(check->call.kind, &check->call.attrs, slot) == OPERAND_IN)
            continue;
        for (int64_t i = 0; i < operand_elements(&check->call.operand[slot]); i++) {
            nonzero += data->ref.value[slot][i] != 0.0 ? 1.0 : 0.0;
            count += 1.0;
        }
    }
    return !(nonzero >= NONZERO_SHARE * count);
}

void judge(const struct check_case *check, const struct case_data *data, const uint8_t *after, struct verdict *out)
{
    *out = (struct verdict){.passed = true};
    if (!image_bands_check(check, data->before, after, out->reason)) {
        out->passed = false;
        return;
    }
    out->trivial = judge_trivial(check, data);
    for (int32_t slot = 0; slot < op_declaration(check->call.kind)->operands; slot++) {
        bool output = op_direction(check->call.kind, &check->call.attrs, slot) != OPERAND_IN;
        if (check->call.operand[slot].present && output && !judge_output(check, data, after, slot, out))
            return;
    }
}
