/* Tests of device_profile.c: the table against published figures, and the links of cards.
 * device_profiles.py has the names and the files. */
#include <ctype.h>
#include <math.h>

#include "plan/device_profile.h"
#include "plan/device_profile_file.h"
#include "tests/unit/unit_main.h"

static struct device_profile card(const char *id)
{
    struct device_profile profile;
    ck_assert_int_eq(device_profile_find(id, &profile), GT_OK);
    return profile;
}

TEST(all_cards_are_sane)
{
    int32_t count = device_profile_count();
    ck_assert_int_ge(count, 60);
    for (int32_t i = 0; i < count; i++) {
        struct device_profile p, again;
        device_profile_get(i, &p);
        for (const char *c = p.id; *c; c++)
            ck_assert_msg(islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '-',
                          "%s", p.id);
        ck_assert_int_eq(device_profile_find(p.id, &again), GT_OK);
        ck_assert_str_eq(again.name, p.name); /* so that ids are unique */
        bool cuda = strcmp(p.backend, "cuda") == 0;
        ck_assert_msg(cuda || strcmp(p.backend, "opencl") == 0, "%s", p.id);
        ck_assert_msg((double)p.usable_bytes > 0.75 * (double)p.memory_bytes, "%s", p.id);
        ck_assert_uint_lt(p.usable_bytes, p.memory_bytes);
        ck_assert_uint_le(p.largest_allocation_bytes, p.memory_bytes);
        ck_assert_uint_ge(p.largest_allocation_bytes * 16, p.usable_bytes);
        ck_assert_uint_eq(p.alignment_bytes & (p.alignment_bytes - 1), 0);
        ck_assert_int_gt(p.units, 0);
        ck_assert_double_gt(p.bytes_per_s, 5e10);
        ck_assert_double_lt(p.bytes_per_s, 1e13);
        ck_assert_double_gt(p.vector_flops_per_s, 1e12);
        ck_assert(p.dtypes & 1u << DTYPE_F32);
        bool bf16 = (p.dtypes & 1u << DTYPE_BF16) != 0;
        ck_assert_msg(!cuda || bf16 == (p.matrix_flops_per_s[DTYPE_BF16] > 0.0), "%s", p.id);
        ck_assert(p.reached.products > 0.0 && p.reached.products <= 1.0 &&
                  p.share_source[0] == '\0');
    }
}

/* Published figures of the vendors, in TFLOP/s and GB/s: products of 16-bit numbers with fp32 sums,
 * dense; 0 = not compared. */
TEST(rates_are_the_published_ones)
{
    static const struct {
        const char *id;
        double half, single, bandwidth;
    } published[] = {
        {"rtx2080-ti-11g", 53.8, 13.4, 616},
        {"rtx3060-12g", 25.5, 12.7, 360},
        {"rtx3080-10g", 59.5, 29.8, 760},
        {"rtx3090-24g", 71.2, 35.6, 936},
        {"rtx4070-12g", 58.3, 29.1, 504},
        {"rtx4080-16g", 97.5, 48.7, 717},
        {"rtx4090-24g", 165.2, 82.6, 1008},
        {"rtx5090-32g", 209.5, 104.8, 1792},
        {"t4-16g", 65, 8.1, 320},
        {"a10-24g", 125, 31.2, 600},
        {"a100-40g", 312, 19.5, 1555},
        {"a100-80g-sxm", 312, 19.5, 2039},
        {"l4-24g", 121, 30.3, 300},
        {"l40s-48g", 366, 91.6, 864},
        {"h100-80g-sxm", 989.4, 0, 3350},
        {"h100-80g-pcie", 756, 0, 2000},
        {"h200-141g", 989.4, 0, 4800},
        {"rx7900-xtx-24g", 0, 61.4, 960},
        {"rx6700-xt-12g", 0, 13.2, 384},
        {"arc-a770-16g", 0, 19.7, 512},
    };
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        struct device_profile p = card(published[i].id);
        double half = published[i].half * 1e12, single = published[i].single * 1e12;
        ck_assert_msg(fabs(p.matrix_flops_per_s[DTYPE_F16] - half) <= 0.01 * half, "%s: %g", p.id,
                      p.matrix_flops_per_s[DTYPE_F16]);
        ck_assert_msg(single == 0.0 || fabs(p.vector_flops_per_s - single) <= 0.01 * single,
                      "%s: %g", p.id, p.vector_flops_per_s);
        ck_assert_msg(fabs(p.bytes_per_s - 1e9 * published[i].bandwidth) <= 0.002 * p.bytes_per_s,
                      "%s", p.id);
    }
    ck_assert(card("gtx1660-6g").matrix_flops_per_s[DTYPE_F16] ==
              card("gtx1660-6g").vector_flops_per_s);
}

TEST(a_driver_s_name_finds_the_link)
{
    ck_assert_double_eq(device_profile_link("NVIDIA GeForce RTX 3060, capability 8.6"), 18.6e9);
    ck_assert_double_eq(device_profile_link("NVIDIA GeForce RTX 4060 Ti"), 11.2e9);
    ck_assert_double_eq(device_profile_link("NVIDIA GeForce RTX 5060"), 18.6e9);
    ck_assert_double_eq(device_profile_link("AMD Radeon RX 6600"), 11.2e9);
    ck_assert_double_eq(device_profile_link("NVIDIA H100 80GB HBM3"), 37.2e9);
    ck_assert_double_eq(device_profile_link("NVIDIA A100-SXM4-80GB"), 18.6e9);
    ck_assert_double_eq(device_profile_link("a card of nobody, of 3060 MiB"), 0.0);
}
