/* Size arithmetic that cannot wrap.  Every product or sum of values from a user or a file goes through here. */
#ifndef GPT_TRAIN_BASE_SIZE_H
#define GPT_TRAIN_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *out = a * b.  Returns false, with *out unchanged, when the product does not fit. */
bool size_mul(size_t a, size_t b, size_t *out);
/* *out = a + b.  Returns false, with *out unchanged, when the sum does not fit. */
bool size_add(size_t a, size_t b, size_t *out);
/* *out = the product of `count` sizes; 1 for count 0.  Returns false when it does not fit, or a size is negative. */
bool size_product(const int64_t *sizes, size_t count, size_t *out);
/* *out = `value` rounded up to a multiple of `alignment` (a power of two).  Returns false when that does not fit. */
bool size_align(size_t value, size_t alignment, size_t *out);

static inline size_t size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Unchecked, for values already known to be small (plan offsets after their check). */
static inline size_t size_round_up(size_t value, size_t alignment)
{
    return (value + alignment - 1) / alignment * alignment;
}

static inline int64_t size_ceil_div(int64_t value, int64_t divisor)
{
    return (value + divisor - 1) / divisor;
}

#endif
