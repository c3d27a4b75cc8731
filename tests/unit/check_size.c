/* Tests of base/size: results at the limits of size_t, refusals that leave the output unchanged, rounding. */
#include "base/size.h"

#include "tests/unit/unit_main.h"

enum { UNTOUCHED = 77 };

TEST(mul)
{
    size_t out = UNTOUCHED;
    ck_assert(size_mul(6, 7, &out));
    ck_assert_uint_eq(out, 42);
    ck_assert(size_mul(0, SIZE_MAX, &out));
    ck_assert_uint_eq(out, 0);
    ck_assert(size_mul(SIZE_MAX, 0, &out));
    ck_assert_uint_eq(out, 0);
    ck_assert(size_mul(SIZE_MAX, 1, &out));
    ck_assert_uint_eq(out, SIZE_MAX);
    ck_assert(size_mul(SIZE_MAX / 3, 3, &out)); /* 2^64 - 1 is a multiple of 3 */
    ck_assert_uint_eq(out, SIZE_MAX);
    out = UNTOUCHED;
    ck_assert(!size_mul(SIZE_MAX / 3 + 1, 3, &out));
    ck_assert(!size_mul(SIZE_MAX / 2 + 1, 2, &out));
    ck_assert(!size_mul(2, SIZE_MAX / 2 + 1, &out));
    ck_assert(!size_mul(SIZE_MAX, SIZE_MAX, &out));
    ck_assert_uint_eq(out, UNTOUCHED);
}

TEST(add)
{
    size_t out = UNTOUCHED;
    ck_assert(!size_add(SIZE_MAX, 1, &out));
    ck_assert(!size_add(1, SIZE_MAX, &out));
    ck_assert(!size_add(SIZE_MAX / 2 + 1, SIZE_MAX / 2 + 1, &out));
    ck_assert_uint_eq(out, UNTOUCHED);
    ck_assert(size_add(SIZE_MAX - 1, 1, &out));
    ck_assert_uint_eq(out, SIZE_MAX);
    ck_assert(size_add(0, 0, &out));
    ck_assert_uint_eq(out, 0);
}

TEST(product)
{
    const int64_t logits[] = {64, 1024, 50304, 2};
    const int64_t large[] = {INT64_C(1) << 31, INT64_C(1) << 31, 4}, negative[] = {0, -1};
    const int64_t large_by_zero[] = {INT64_C(1) << 31, INT64_C(1) << 31, 4, 0};
    size_t out = UNTOUCHED;
    ck_assert(!size_product(large, 3, &out));
    ck_assert(!size_product(negative, 2, &out));
    ck_assert_uint_eq(out, UNTOUCHED);
    ck_assert(size_product(logits, 4, &out));
    ck_assert_uint_eq(out, 6593445888u);
    ck_assert(size_product(large, 2, &out));
    ck_assert_uint_eq(out, (size_t)1 << 62);
    ck_assert(size_product(large_by_zero, 4, &out));
    ck_assert_uint_eq(out, 0);
    ck_assert(size_product(NULL, 0, &out));
    ck_assert_uint_eq(out, 1);
}

TEST(inline_roundings)
{
    ck_assert_uint_eq(size_round_up(10, 3), 12); /* any multiple, not only powers of two */
    ck_assert_uint_eq(size_round_up(12, 3), 12);
    ck_assert_int_eq(size_ceil_div(0, 5), 0);
    ck_assert_int_eq(size_ceil_div(1, 5), 1);
    ck_assert_int_eq(size_ceil_div(5, 5), 1);
    ck_assert_int_eq(size_ceil_div(6, 5), 2);
}
