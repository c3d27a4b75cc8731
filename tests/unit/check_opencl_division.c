/* Compares division and square root of common.clh, for devices whose own are not correctly rounded, with the
 * processor's, bit by bit: special values in all pairs, random bits, quotients that are subnormal or nearly so, roots
 * of squares and of their neighbours.  A kernel of this test calls them on device 0; without a device the tests are
 * skipped.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/opencl/opencl_launch.h"
#include "base/status.h"
#include "tests/unit/unit_main.h"

#define PAIRS ((size_t)1 << 19)
#define ITEMS 64

static const char kernel_text[] =
    "__kernel void gt_check_division(GT_ARRAY(const uint, a), GT_ARRAY(const uint, b), GT_ARRAY(uint, quotient),\n"
    "                                GT_ARRAY(uint, root))\n"
    "{\n"
    "    const ulong i = (ulong)get_global_id(0);\n"
    "    const float dividend = as_float(GT_AT(a, i)), divisor = as_float(GT_AT(b, i));\n"
    "    GT_AT(quotient, i) = as_uint(EXACT_DIV(dividend, divisor));\n"
    "    GT_AT(root, i) = as_uint(EXACT_ROOT(dividend));\n"
    "}\n";
static const struct opencl_source source = {"check_division", kernel_text, sizeof kernel_text - 1};

struct pairs {
    uint32_t a[PAIRS], b[PAIRS], quotient[PAIRS], root[PAIRS];
};

static void sink_silent(void *context, enum log_level level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* xorshift64*, Vigna 2016. */
static uint32_t random_bits(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (uint32_t)(*state * UINT64_C(2685821657736338717) >> 32);
}

/* Returns a random significand and sign, with one of `count` exponents from `first` on. */
static uint32_t random_near(uint64_t *state, uint32_t first, uint32_t count)
{
    return (random_bits(state) & 0x807fffffu) | (first + random_bits(state) % count) << 23;
}

static void pairs_fill(struct pairs *pairs)
{
    static const uint32_t special[] = {
        0,          1,          2,          3,          0x400000,   0x7ffffe,   0x7fffff,   0x800000,
        0x800001,   0x1000000,  0x33800000, 0x34000000, 0x3effffff, 0x3f000000, 0x3f7fffff, 0x3f800000,
        0x3f800001, 0x3fffffff, 0x40000000, 0x40400000, 0x40490fdb, 0x4b7fffff, 0x4b800000, 0x7e800000,
        0x7effffff, 0x7f000000, 0x7f7ffffe, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff};
    const size_t specials = sizeof special / sizeof special[0], all = 4 * specials * specials;
    uint64_t state = unit_seed() * 2 + 1;
    for (size_t i = 0; i < PAIRS; i++) {
        uint32_t a = random_bits(&state), b = random_bits(&state);
        if (i < all) {
            a = special[i / 4 % specials] | (uint32_t)(i & 1) << 31;
            b = special[i / 4 / specials] | (uint32_t)(i & 2) << 30;
        } else if (i % 4 == 0) { /* quotients from half the smallest subnormal to the smallest normal ones */
            a = random_near(&state, 1, 30);
            b = random_near(&state, 127, 24);
        } else if (i % 4 == 1) { /* squares and their neighbours */
            const float root = float_of((random_bits(&state) & 0x7ffff000u) % 0x5f000000u);
            a = bits_of(root * root) + random_bits(&state) % 3 - 1;
        } else if (i % 4 == 2) { /* exact quotients and their neighbours */
            b = random_near(&state, 110, 20) & 0xfffff000u;
            a = bits_of(float_of(b) * float_of(random_near(&state, 110, 20) & 0xfffff000u)) + random_bits(&state) % 3 -
                1;
        }
        pairs->a[i] = a;
        pairs->b[i] = b;
    }
}

static void device_compute(struct backend *backend, struct pairs *pairs, const char *options)
{
    struct opencl_launch launch;
    struct opencl_backend *cl = opencl_own(backend);
    const struct address at = {.space = SPACE_DEVICE};
    cl_mem memory = cl->segment[0].memory;
    ck_assert_int_eq(backend->ops->upload(backend, at, pairs, sizeof *pairs), GT_OK);
    opencl_launch_begin(&launch, cl, &source, options, "gt_check_division");
    for (uint64_t array = 0; array < 4; array++)
        opencl_arg_memory(&launch, memory, array * PAIRS);
    ck_assert_int_eq(opencl_launch_run(&launch, PAIRS / ITEMS, ITEMS, 0.0), GT_OK);
    ck_assert_int_eq(backend->ops->sync(backend), GT_OK);
    ck_assert_int_eq(backend->ops->download(backend, pairs, at, sizeof *pairs), GT_OK);
}

/* Any NaN equals any other. */
static bool same(uint32_t found, float expected)
{
    return isnan(expected) ? isnan(float_of(found)) : found == bits_of(expected);
}

static void pairs_check(const struct pairs *pairs)
{
    for (size_t i = 0; i < PAIRS; i++) {
        const float a = float_of(pairs->a[i]), b = float_of(pairs->b[i]), quotient = a / b, root = sqrtf(a);
        if (!same(pairs->quotient[i], quotient))
            ck_abort_msg("%08x / %08x: %08x, expected %08x", pairs->a[i], pairs->b[i], pairs->quotient[i],
                         bits_of(quotient));
        if (!same(pairs->root[i], root))
            ck_abort_msg("sqrt %08x: %08x, expected %08x", pairs->a[i], pairs->root[i], bits_of(root));
    }
}

static void test_with(const char *options, bool needs_exact)
{
    const struct backend_open_options open_options = {.device = 0};
    struct backend *backend = NULL;
    struct backend_devices devices;
    log_sink_set(sink_silent, NULL);
    opencl_backend_ops.devices(false, &devices);
    if (devices.count == 0) {
        unit_skip("opencl_device", "no OpenCL device here (Debian: pocl-opencl-icd)");
        return;
    }
    struct pairs *pairs = calloc(1, sizeof *pairs);
    ck_assert_ptr_nonnull(pairs);
    ck_assert_int_eq(opencl_backend_ops.open(&open_options, &backend), GT_OK);
    const struct backend_segment segment = {.space = SPACE_DEVICE, .size_bytes = sizeof *pairs};
    ck_assert_int_eq(backend->ops->arena(backend, &segment, 1), GT_OK);
    if (!needs_exact || opencl_own(backend)->device.has_exact_division) {
        pairs_fill(pairs);
        device_compute(backend, pairs, options);
        pairs_check(pairs);
    }
    backend->ops->close(backend);
    free(pairs);
}

TEST_LIMIT(180)

TEST(software_is_correctly_rounded)
{
    test_with("", false);
}

/* The device's own division is as exact as it reports.  The pairs are the same, so that the test would detect a
 * difference. */
TEST(device_is_correctly_rounded_where_it_says_so)
{
    test_with("-DGT_EXACT_DIVISION -cl-fp32-correctly-rounded-divide-sqrt", true);
}
