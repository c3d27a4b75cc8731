/* The acceptance rule for every op, backend and dtype; bounds.md has the derivations and the
 * complete formulas.
 *
 *   1. NaN and infinities appear exactly where the oracle has them.  Near the end of the dtype's
 *     range, where the error of a correct computation decides, infinity and the largest value are
 *     both right.
 *   2. For every element |y - y*| <= e + half the distance of the dtype's values at |y*| + e, with
 *     e = 8 2^-24 term + the roundings to 16 bits that bounds.md permits on the way.
 *   3. RMS error <= 1.25 times the reference, and |mean error| <= 8 references / sqrt(n) + that of
 *     ideal rounding, both for the signed error and for the error away from zero.  The reference is
 *     the larger of 2^-24 term and of ideal rounding of the output; n is the number of independent
 *     errors.  With n < 16 the rule does not apply.
 *   4. With integer inputs of sums of products, and where the oracle marks an element exact, values
 *   are equal.
 *   5. Guard bands and inputs are unchanged.  A case with less than 10 % of non-zero results is
 *     trivial: it is not counted, and suite.c fails an op with more than one trivial case for every
 *     twenty others.
 *   6. Where an op is defined to the bit, the bits are equal.
 * Comparisons are positive, so that a NaN fails.  There are no other tolerances.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

#define U32 0x1p-24
#define FACTOR_SUM (8.0 * U32)
#define FACTOR_RMS 1.25
#define FACTOR_SIGMA 8.0
/* Independent errors that rule 3 needs: with fewer, the RMS is no estimate. */
#define ERRORS_LEAST 16.0
#define NONZERO_SHARE 0.10
#define FLUSHED 0x1p-126 /* a device may flush subnormal fp32 values to zero */

static bool is_half(enum dtype dtype)
{
    return dtype_size_bytes(dtype) == 2;
}

double judge_row(const struct op_call *call, int32_t slot)
{
    return is_half(call->operand[slot].dtype) ? 1.0 : (double)op_columns(call, slot);
}

/* Returns the number of elements of an output that share one error (that of their row's statistics
 * or probabilities). */
static double shared_by(const struct op_call *call, int32_t slot)
{
    return op_test(call->kind)->shared_by != NULL ? op_test(call->kind)->shared_by(call, slot)
                                                  : 1.0;
}

/* Returns the number of distinct errors.  An op with one input and one output value rounds equal
 * significands equally: a 16-bit dtype has 1/(2 u) of them, and small integers have four sizes. */
static double inputs_distinct(const struct check_case *check, enum dtype dtype)
{
    if (!op_test(check->call.kind)->has_few_inputs)
        return (double)INFINITY;
    return check->inputs == INPUTS_INTEGER ? 4.0 : 0.5 / dtype_unit_roundoff(dtype);
}

/* Returns the distance between neighbours of a dtype at `magnitude`; it is constant below the
 * smallest normal value. */
static double spacing(enum dtype dtype, double magnitude)
{
    int exponent =
        0; /* 2^(exponent - 1) <= magnitude < 2^exponent, where the distance is u 2^exponent */
    (void)frexp(fmax(magnitude, dtype == DTYPE_F16 ? 0x1p-14 : 0x1p-126), &exponent);
    return ldexp(dtype_unit_roundoff(dtype), exponent);
}

static bool same_class(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return a == b;
}

bool judge_fail(const struct check_case *check, int32_t slot, int64_t i, const char *what,
                double found, double expected, struct verdict *out)
{
    out->passed = false;
    snprintf(out->reason, sizeof out->reason, "%s[%lld] is %.9g, expected %.9g: %s",
             op_operand_name(check->call.kind, slot), (long long)i, found, expected, what);
    return false;
}

/* Sums over the elements of one output, for rule 3. */
struct moments {
    double count, squares, term_squares, spacing_squares, ideal_squares, half_squares,
        drift_squares;
    double signed_sum, outward_sum, ideal_signed_sum, ideal_outward_sum, systematic;
};

static void moments_add(struct moments *moments, const struct case_data *data, int32_t slot,
                        int64_t i, enum dtype dtype, double error, double rounding)
{
    double exact = data->ref.value[slot][i], distance = spacing(dtype, fabs(exact)),
           drift = data->ref.drift[slot][i];
    double outward = exact < 0.0 ? -1.0 : 1.0, term = U32 * data->ref.term[slot][i];
    moments->count += 1.0;
    moments->squares += error * error;
    moments->term_squares += term * term;
    moments->spacing_squares += distance * distance / 12.0;
    moments->ideal_squares += rounding * rounding;
    moments->half_squares += data->ref.half_square[slot][i];
    moments->drift_squares += drift * drift;
    moments->signed_sum += error;
    moments->outward_sum += outward * error;
    moments->ideal_signed_sum += rounding;
    moments->ideal_outward_sum += outward * rounding;
    moments->systematic += term;
}

/* Applies rules 1, 2 and 4 to one element, and adds it to the moments. */
static bool judge_element(const struct check_case *check, const struct case_data *data,
                          const uint8_t *after, int32_t slot, int64_t i, struct moments *moments,
                          struct verdict *out)
{
    enum dtype dtype = image_dtype(check, slot, i);
    double exact = data->ref.value[slot][i], term = data->ref.term[slot][i], size = fabs(exact);
    double found = image_decode(check, slot, i, after), stored = image_rounded(dtype, exact);
    bool must_equal = term == REF_EXACT || (check->inputs == INPUTS_INTEGER &&
                                            op_test(check->call.kind)->is_sum_of_products &&
                                            data->ref.half_square[slot][i] == 0.0);
    if (term == REF_UNSPECIFIED)
        return true;
    if (!isfinite(exact) || must_equal)
        return same_class(found, stored) ||
               judge_fail(check, slot, i, "must be exact", found, stored, out);
    double computed =
        FACTOR_SUM * term + data->ref.half_bound[slot][i] + (is_half(dtype) ? U32 * size : 0.0);
    if (isinf(image_rounded(dtype,
                            size + computed))) { /* may overflow; must when no error avoids it */
        if (isinf(found) && (found < 0.0) == (exact < 0.0))
            return true;
        if (size > computed && isinf(image_rounded(dtype, size - computed)))
            return judge_fail(check, slot, i, "must overflow", found, stored, out);
    }
    double error = found - exact,
           bound = 0.5 * spacing(dtype, size + computed) + computed + FLUSHED;
    double ratio = fabs(error) / bound;
    if (!(ratio <= out->worst_ratio))
        out->worst_ratio = ratio;
    if (!(fabs(error) <= bound))
        return judge_fail(check, slot, i, "beyond the bound", found, exact, out);
    moments_add(moments, data, slot, i, dtype, error, stored - exact);
    return true;
}

/* Applies rule 3 to one output. */
static bool judge_moments(const struct check_case *check, int32_t slot, const struct moments *m,
                          struct verdict *out)
{
    const char *name = op_operand_name(check->call.kind, slot);
    double n = fmin(m->count / shared_by(&check->call, slot),
                    inputs_distinct(check, image_dtype(check, slot, 0)));
    if (n < ERRORS_LEAST)
        return true;
    double squares =
        fmax(m->term_squares, fmax(m->spacing_squares, m->ideal_squares)) + m->half_squares;
    double noise = FACTOR_SIGMA / sqrt(n), reference = sqrt(squares / m->count),
           drift = sqrt(m->drift_squares / m->count);
    double systematic =
        (op_test(check->call.kind)->is_sum_of_products ? 0.0 : m->systematic / m->count) + drift;
    double rms = sqrt(m->squares / m->count),
           rms_max = FACTOR_RMS * (1.0 + noise) * reference + systematic;
    double mean = fabs(m->signed_sum) / m->count, outward = fabs(m->outward_sum) / m->count;
    double mean_max = noise * reference + systematic + fabs(m->ideal_signed_sum) / m->count;
    double outward_max = noise * reference + systematic + fabs(m->ideal_outward_sum) / m->count;
    if (!(rms <= rms_max)) {
        out->passed = false;
        snprintf(out->reason, sizeof out->reason,
                 "%s: RMS error %.4g, at most %.4g (reference %.4g)", name, rms, rms_max,
                 reference);
    } else if (!(mean <= mean_max) || !(outward <= outward_max)) {
        out->passed = false;
        snprintf(out->reason, sizeof out->reason,
                 "%s: bias %.4g (outward %.4g), at most %.4g (%.4g) over %.0f independent errors",
                 name, mean, outward, mean_max, outward_max, n);
    }
    return out->passed;
}

static bool judge_output(const struct check_case *check, const struct case_data *data,
                         const uint8_t *after, int32_t slot, struct verdict *out)
{
    struct moments moments = {.count = 0.0};
    for (int64_t i = 0, count = operand_elements(&check->call.operand[slot]); i < count; i++) {
        if (!judge_element(check, data, after, slot, i, &moments, out))
            return false;
    }
    return judge_moments(check, slot, &moments, out);
}

/* Applies rule 6 to one output; any NaN equals any other. */
static bool judge_bits(const struct check_case *check, const struct case_data *data,
                       const uint8_t *after, int32_t slot, struct verdict *out)
{
    const struct operand *operand = &check->call.operand[slot];
    size_t size = dtype_size_bytes(operand->dtype);
    for (int64_t i = 0, count = operand_elements(operand); i < count; i++) {
        size_t at = operand->at.offset_bytes + (size_t)i * size;
        double found = image_decode(check, slot, i, after),
               exact = image_decode(check, slot, i, data->ideal);
        if (memcmp(after + at, data->ideal + at, size) != 0 && !(isnan(found) && isnan(exact)))
            return judge_fail(check, slot, i, "must have the same bits", found, exact, out);
    }
    return true;
}

/* Rule 5: returns true for a case that shows nothing because most results are zero (one channel,
 * one column, everything dropped). */
static bool judge_trivial(const struct check_case *check, const struct case_data *data)
{
    double nonzero = 0.0, all = 0.0;
    for (int32_t slot = 0; slot < op_declaration(check->call.kind)->operands; slot++) {
        if (!case_is_output(check, slot))
            continue;
        for (int64_t i = 0, count = operand_elements(&check->call.operand[slot]); i < count; i++) {
            nonzero += data->ref.value[slot][i] != 0.0 ? 1.0 : 0.0;
            all += 1.0;
        }
    }
    return !(nonzero >= NONZERO_SHARE * all);
}

void judge(const struct check_case *check, const struct case_data *data, const uint8_t *after,
           struct verdict *out)
{
    *out = (struct verdict){.passed = true};
    if (!image_bands_check(check, data->before, after, out->reason)) {
        out->passed = false;
        return;
    }
    out->trivial = judge_trivial(check, data);
    for (int32_t slot = 0; slot < op_declaration(check->call.kind)->operands; slot++) {
        if (!case_is_output(check, slot))
            continue;
        if (exact_defined(&check->call) && !judge_bits(check, data, after, slot, out))
            return;
        if (!judge_output(check, data, after, slot, out))
            return;
    }
    if (op_test(check->call.kind)->judge != NULL)
        op_test(check->call.kind)->judge(check, after, out);
}
