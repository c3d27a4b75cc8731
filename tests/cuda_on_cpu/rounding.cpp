/* Emulates how a card rounds where that differs from the host: sums inside tensor cores, and the
 * functions of CUDA's library.
 *
 * With GT_CUDA_ON_CPU_ROUNDING=card a matrix product adds four products at a time to its sum.  All
 * five are truncated at the last bit of the largest, and the result is truncated again, always
 * towards zero.  This is the least precision that Fasi, Higham, Mikaitis and Pranesh (2021) found
 * in any card; others keep bits beyond the last, or add eight at a time.  fp16 sums are rounded to
 * fp16 after every four products, to nearest, or towards zero with `card`.  In addition expf, exp2f
 * and logf are occasionally one or two units off, as CUDA's programming guide allows
 * ("Mathematical Functions", maximum errors of 2, 2 and 1); the argument alone determines which
 * results are off.  This does not match any one card to the bit, and shows nothing about speed.
 */
#include "emulator.h"

#include <climits>
#include <cstdio>
#include <cstdlib>

#include <unistd.h>

#include "emulator_run.h"

#define FRACTION_BITS 23
#define EXPONENT_BIAS 1023
/* Of 256 arguments, how many are one unit off in each direction, and how many are two units off. */
#define OFF_BY_ONE 40
#define OFF_BY_TWO 5

static bool rounding_read(void)
{
    const char *text = getenv("GT_CUDA_ON_CPU_ROUNDING");
    if (!text || !*text || strcmp(text, "host") == 0)
        return false;
    if (strcmp(text, "card") == 0)
        return true;
    fprintf(stderr, "emulator: GT_CUDA_ON_CPU_ROUNDING=%s is not host or card\n", text);
    _exit(EMULATOR_EXIT);
}

bool emulator_card_rounding = rounding_read();

/* Returns by how many units the function is off at x. */
static int units_off(float x, int most)
{
    const unsigned hash = emulator_bits<unsigned>(x) * 0x9e3779b9u >> 24;
    const int sign = hash % 2 != 0 ? 1 : -1;
    if (hash / 2 < OFF_BY_TWO && most > 1)
        return 2 * sign;
    return hash / 2 < OFF_BY_TWO + OFF_BY_ONE ? sign : 0;
}

float emulator_moved(float x, float y, int most)
{
    if (x == 0.0f || y == 0.0f || !std::isfinite(y))
        return y;
    const int off = units_off(x, most);
    for (int i = 0; i < abs(off); i++)
        y = nextafterf(y, off > 0 ? INFINITY : -INFINITY);
    return y;
}

/* The exponent of a normal number. */
static int exponent_of(double value)
{
    return (int)(emulator_bits<uint64_t>(value) >> 52 & 0x7ff) - EXPONENT_BIAS;
}

static double power_of_two(int exponent)
{
    return emulator_bits<double>((uint64_t)(exponent + EXPONENT_BIAS) << 52);
}

float emulator_sum_truncated(float sum, const double *products, int count)
{
    double plain = sum;
    int top = sum != 0.0f ? exponent_of(sum) : INT_MIN;
    for (int i = 0; i < count; i++) {
        plain += products[i];
        if (products[i] != 0.0)
            top = std::max(top, exponent_of(products[i]));
    }
    if (top == INT_MIN || !std::isfinite(plain))
        return (float)plain;
    const double unit = power_of_two(top - FRACTION_BITS),
                 units = power_of_two(FRACTION_BITS - top);
    double total = trunc(sum * units);
    for (int i = 0; i < count; i++)
        total += trunc(products[i] * units);
    const float result = (float)(total * unit);
    return std::isfinite(result) && fabs(result) > fabs(total * unit) ? nextafterf(result, 0.0f)
                                                                      : result;
}

/* Rounds to nearest, or cuts off under card rounding. */
float emulator_sum_half(float sum, const double *products, int count)
{
    double exact = sum;
    for (int i = 0; i < count; i++)
        exact += products[i];
    const float total = (float)exact;
    __half half = __float2half_rn(total);
    if (!emulator_card_rounding || !(fabsf(__half2float(half)) > fabsf(total)))
        return __half2float(half);
    uint16_t bits = emulator_bits<uint16_t>(half);
    bits--;
    return __half2float(emulator_bits<__half>(bits));
}
