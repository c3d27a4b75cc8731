/* Draws a token from logits: temperature, top-k, top-p, in this order.
 *
 * Both limits become one edge: the smallest logit that may be drawn.  Selection finds it, as the k-th largest logit or
 * the one at which the probabilities, from the largest down, reach p.  The vocabulary is never sorted.
 */
#include "train/generate.h"

#include <math.h>
#include <string.h>

/* Result of a partition of values[low .. high]: values[low .. j] >= pivot >= values[i .. high]; the elements between
 * equal the pivot. */
struct parts {
    int64_t i, j;
    float pivot;
};

/* Hoare's algorithm 63. */
static struct parts partition(float *values, int64_t low, int64_t high)
{
    struct parts at = {low, high, values[low + (high - low) / 2]};
    while (at.i <= at.j) {
        while (values[at.i] > at.pivot)
            at.i++;
        while (values[at.j] < at.pivot)
            at.j--;
        if (at.i <= at.j) {
            const float held = values[at.i];
            values[at.i++] = values[at.j];
            values[at.j--] = held;
        }
    }
    return at;
}

/* Returns the k-th largest of values[count] (k >= 1), by selection in place (Hoare's algorithm 65). */
static float nth_largest(float *values, int64_t count, int64_t k)
{
    int64_t low = 0, high = count - 1, wanted = k - 1;
    while (low < high) {
        const struct parts at = partition(values, low, high);
        if (wanted <= at.j)
            high = at.j;
        else if (wanted >= at.i)
            low = at.i;
        else
            break;
    }
    return values[wanted];
}

struct scale {
    double largest, temperature;
};

static double weight(const struct scale *scale, float logit)
{
    return exp(((double)logit - scale->largest) / scale->temperature);
}

static double weight_sum(const struct scale *scale, const float *values, int64_t first, int64_t end)
{
    double sum = 0.0;
    for (int64_t i = first; i < end; i++)
        sum += weight(scale, values[i]);
    return sum;
}

/* Returns the largest value at which the weights of values[count], summed from the largest value down, reach
 * `wanted`. */
static float weight_edge(const struct scale *scale, float *values, int64_t count, double wanted)
{
    int64_t low = 0, high = count - 1;
    while (low < high) {
        const struct parts at = partition(values, low, high);
        const double above = weight_sum(scale, values, low, at.j + 1);
        if (above >= wanted) {
            high = at.j;
            continue;
        }
        const double middle = weight_sum(scale, values, at.j + 1, at.i);
        if (above + middle >= wanted || at.i > high) /* the latter if rounding lost the rest */
            return at.pivot;
        wanted -= above + middle;
        low = at.i;
    }
    return values[low];
}

static float largest_of(const float *logits, int64_t count)
{
    float largest = -INFINITY;
    for (int64_t i = 0; i < count; i++)
        largest = logits[i] > largest ? logits[i] : largest;
    return largest;
}

static float edge_find(const struct generate_options *how, const struct scale *scale, const float *logits,
                       int64_t count, float *scratch)
{
    float edge = -INFINITY;
    if (how->top_k > 0 && how->top_k < count) {
        memcpy(scratch, logits, (size_t)count * sizeof(float));
        edge = nth_largest(scratch, count, how->top_k);
    }
    if (!(how->top_p > 0.0 && how->top_p < 1.0))
        return edge;
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        if (logits[i] >= edge && logits[i] > -INFINITY)
            scratch[kept++] = logits[i];
    const double wanted = how->top_p * weight_sum(scale, scratch, 0, kept);
    return kept > 0 ? weight_edge(scale, scratch, kept, wanted) : edge;
}

int32_t generate_draw(const struct generate_options *how, const float *logits, int64_t count, double uniform,
                      float *scratch)
{
    const struct scale scale = {(double)largest_of(logits, count), how->temperature};
    const float edge = edge_find(how, &scale, logits, count, scratch);
    double sum = 0.0, reached = 0.0;
    for (int64_t i = 0; i < count; i++)
        sum += logits[i] >= edge ? weight(&scale, logits[i]) : 0.0;
    int32_t last = 0;
    for (int64_t i = 0; i < count; i++) {
        if (logits[i] < edge)
            continue;
        last = (int32_t)i;
        reached += weight(&scale, logits[i]);
        if (reached > uniform * sum)
            break;
    }
    return last;
}
