/* The nearest valid pairs of n_embd and n_head.
 *
 * The multiples are found by division, the divisors by a linear search from n_head, bounded by
 * n_embd.  The parameter count is GPT-2's formula; a test compares it with the model's own count.
 */
#include "base/heads.h"

#define STATE_BYTES 16.0 /* weight, gradient, two moments */

static double heads_parameter_count(const struct heads_shape *shape)
{
    double c = (double)shape->n_embd, bias = shape->bias ? 1.0 : 0.0;
    double block = 12.0 * c * c + (2.0 + 2.0 * bias) * c + bias * 9.0 * c;
    return (double)shape->vocab_size * c + (double)shape->n_layer * block + (1.0 + bias) * c;
}

/* "444 (50.1M parameters, 765.2 MiB)" */
static char *width_text(char text[static 96], const struct heads_shape *shape, int64_t n_embd)
{
    struct heads_shape other = *shape;
    other.n_embd = n_embd;
    double count = heads_parameter_count(&other);
    snprintf(text, 96, "%" PRId64 " (%.1fM parameters, %s)", n_embd, count / 1e6,
             LOG_BYTES(STATE_BYTES * count));
    return text;
}

/* Returns the divisor of n_embd nearest to n_head in one direction (1 or -1), n_head excluded; 0
 * when there is none. */
static int64_t divisor_next(const struct heads_shape *shape, int64_t direction)
{
    for (int64_t heads = shape->n_head + direction; heads >= 1 && heads <= shape->n_embd;
         heads += direction)
        if (shape->n_embd % heads == 0)
            return heads;
    return 0;
}

char *heads_nearest_text(char text[static HEADS_TEXT_MAX], const struct heads_shape *shape)
{
    char below[96], above[96];
    assert(shape->n_head >= 1 && shape->n_embd >= 1);
    int64_t low = shape->n_embd / shape->n_head * shape->n_head;
    int64_t fewer = divisor_next(shape, -1), more = divisor_next(shape, 1);
    const char *heads = fewer > 0 && more > 0
                            ? TEXT(64, "%" PRId64 " or %" PRId64, fewer, more)
                            : TEXT(64, "%" PRId64, fewer > 0 ? fewer : shape->n_embd);
    snprintf(text, HEADS_TEXT_MAX,
             "with %" PRId64 " heads the nearest n_embd is %s%s%s; n_embd %s goes with %s heads",
             shape->n_head, low > 0 ? width_text(below, shape, low) : "", low > 0 ? " or " : "",
             width_text(above, shape, low + shape->n_head),
             width_text((char[96]){""}, shape, shape->n_embd), heads);
    return text;
}
