/* Size arithmetic that cannot wrap.  Every product or sum of values from a user or a file goes
 * through here.  Each function tests before it computes.  Nothing is logged here: only the caller
 * knows which field is too large. */
#ifndef GPT_TRAIN_BASE_SIZE_H
#define GPT_TRAIN_BASE_SIZE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *out = a * b.  Returns false, with *out unchanged, when the product does not fit. */
static inline bool size_mul(size_t a, size_t b, size_t *out)
{
    if (b != 0 && a > SIZE_MAX / b)
        return false;
    *out = a * b;
    return true;
}

/* *out = a + b.  Returns false, with *out unchanged, when the sum does not fit. */
static inline bool size_add(size_t a, size_t b, size_t *out)
{
    if (a > SIZE_MAX - b)
        return false;
    *out = a + b;
    return true;
}

/* *out = the product of `count` sizes; 1 for count 0.  Returns false when it does not fit, or a
 * size is negative. */
static inline bool size_product(const int64_t *sizes, size_t count, size_t *out)
{
    bool fits = true,
         zero = false; /* any zero makes the product zero, even if the sizes before it overflow */
    size_t product = 1;
    for (size_t i = 0; i < count; i++) {
        if (sizes[i] < 0)
            return false;
        zero = zero || sizes[i] == 0;
        fits = fits && size_mul(product, (size_t)sizes[i], &product);
    }
    if (!fits && !zero)
        return false;
    *out = zero ? 0 : product;
    return true;
}

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
