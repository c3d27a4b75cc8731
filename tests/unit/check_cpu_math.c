/* Tests cpu_half.h against the C library in double, in ulp over the whole range. */
#include <check.h>
#include <math.h>
#include <stdio.h>

#include "backends/cpu/cpu_half.h"
#include "tests/unit/unit_main.h"

/* Returns |found - expected| in units of the last place of `expected` as fp32, at least the
 * smallest subnormal. */
static double ulps(float found, double expected)
{
    int exponent = 0;
    frexp(expected, &exponent);
    const double unit = ldexp(1.0, exponent - 24 < -149 ? -149 : exponent - 24);
    return fabs((double)found - expected) / unit;
}

TEST(exp_is_accurate)
{
    double worst = 0.0;
    for (double x = -110.0; x < 88.72; x += 1e-4) {
        const double error = ulps(cpu_exp((float)x), exp((double)(float)x));
        ck_assert_msg(error <= 1.1, "exp(%.9g): %g ulp", x, error);
        worst = error > worst ? error : worst;
    }
    printf("exp: worst %.3f ulp\n", worst);
}

TEST(exp_has_edges)
{
    ck_assert(cpu_exp(0.0f) == 1.0f && cpu_exp(-0.0f) == 1.0f);
    ck_assert(cpu_exp(-INFINITY) == 0.0f && cpu_exp(-104.0f) == 0.0f && cpu_exp(-1e30f) == 0.0f);
    ck_assert(isinf(cpu_exp(INFINITY)) && isinf(cpu_exp(88.73f)) && isinf(cpu_exp(1e30f)));
    ck_assert(isfinite(cpu_exp(88.72f)));
    ck_assert(isnan(cpu_exp(NAN)));
    ck_assert(cpu_exp(-103.0f) > 0.0f);
}

TEST(normal_is_accurate)
{
    double worst_cdf = 0.0, worst_kernel = 0.0;
    for (double x = -14.6; x < 14.6; x += 1e-4) {
        float cdf, kernel;
        normal_of((float)x, &cdf, &kernel);
        const double point = (double)(float)x;
        const double of_cdf = ulps(cdf, 0.5 * erfc(-point * sqrt(0.5))),
                     of_kernel = ulps(kernel, exp(-0.5 * point * point));
        ck_assert_msg(of_cdf <= 6.0, "cdf(%.9g): %g ulp", x, of_cdf);
        ck_assert_msg(of_kernel <= 1.6, "kernel(%.9g): %g ulp", x, of_kernel);
        worst_cdf = of_cdf > worst_cdf ? of_cdf : worst_cdf;
        worst_kernel = of_kernel > worst_kernel ? of_kernel : worst_kernel;
    }
    printf("normal cdf: worst %.3f ulp, kernel: worst %.3f ulp\n", worst_cdf, worst_kernel);
}

TEST(normal_has_edges)
{
    float cdf, kernel;
    normal_of(0.0f, &cdf, &kernel);
    ck_assert(fabsf(cdf - 0.5f) <= 0x1p-23f && kernel == 1.0f);
    normal_of(INFINITY, &cdf, &kernel);
    ck_assert(cdf == 1.0f && kernel == 0.0f);
    normal_of(-INFINITY, &cdf, &kernel);
    ck_assert(cdf == 0.0f && kernel == 0.0f);
    normal_of(NAN, &cdf, &kernel);
    ck_assert(isnan(cdf) && isnan(kernel));
}
