/* Size arithmetic that cannot wrap.
 *
 * Each function tests before it computes, with a division or subtraction that cannot itself overflow, so no compiler
 * built-in is needed.  Nothing is logged here: only the caller knows which field is too large.
 */
#include "base/size.h"

#include <assert.h>

bool size_mul(size_t a, size_t b, size_t *out)
{
    if (b != 0 && a > SIZE_MAX / b)
        return false;
    *out = a * b;
    return true;
}

bool size_add(size_t a, size_t b, size_t *out)
{
    if (a > SIZE_MAX - b)
        return false;
    *out = a + b;
    return true;
}

bool size_product(const int64_t *sizes, size_t count, size_t *out)
{
    bool fits = true, zero = false; /* any zero makes the product zero, even if the sizes before it overflow */
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

bool size_align(size_t value, size_t alignment, size_t *out)
{
    assert(alignment != 0 && (alignment & (alignment - 1)) == 0);
    size_t raised;
    if (!size_add(value, alignment - 1, &raised))
        return false;
    *out = raised & ~(alignment - 1);
    assert(*out >= value);
    return true;
}
