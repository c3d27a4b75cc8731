/* gate_forward and gate_backward: one group per head of a row.  The backward pass keeps r of each
 * head in the workspace, for the sums over rows.
 */
#include "backends/gelu.h"

#define GATE_VALUES int gate, long heads, long size, long z_row, float epsilon
#define GATE_GAIN(i) (gain_dtype >= 0 ? GT_LOAD(gain, i) : 1.0f)

/* Returns the first element of z of a head of row n.  Rows of z are like those of x, or have each
 * head's z after its query. */
static long gt_gate_z(long n, long head, long heads, long size, long z_row)
{
    return n * z_row + (z_row == heads * size ? head : 2 * head + 1) * size;
}

GT_KERNEL(GT_GROUP)
gt_gate_forward(GT_TENSOR(x), GT_TENSOR(z), GT_TENSOR(gain), GT_TENSOR(y), GATE_VALUES)
{
    __local float scratch[GT_GROUP];
    const long index = gt_group_index(0), at = index * size,
               z_at_ = gt_gate_z(index / heads, index % heads, heads, size, z_row);
    float square = 0.0f;
    for (long i = (long)get_local_id(0); gain_dtype >= 0 && i < size; i += GT_GROUP)
        square = gt_fma(GT_LOAD(x, at + i), GT_LOAD(x, at + i), square);
    const float all = gt_group_sum(square, scratch),
                r = gain_dtype >= 0 ? 1.0f / sqrt(all / (float)size + epsilon) : 1.0f;
    for (long i = (long)get_local_id(0); i < size; i += GT_GROUP)
        GT_STORE(y, at + i,
                 GT_LOAD(x, at + i) * r * GATE_GAIN(i) * gate_of(GT_LOAD(z, z_at_ + i), gate));
}

GT_KERNEL(GT_GROUP)
gt_gate_backward(GT_TENSOR(x), GT_TENSOR(z), GT_TENSOR(gain), GT_TENSOR(dy), GT_TENSOR(dx),
                 GT_TENSOR(dz), GT_ARRAY(float, statistics), GATE_VALUES, int accumulate)
{
    __local float scratch[GT_GROUP];
    const long index = gt_group_index(0), n = index / heads, head = index % heads,
               at = index * size, z_at_ = gt_gate_z(n, head, heads, size, z_row);
    float square = 0.0f, product = 0.0f;
    for (long i = (long)get_local_id(0); gain_dtype >= 0 && i < size; i += GT_GROUP) {
        const float value = GT_LOAD(x, at + i);
        square = gt_fma(value, value, square);
        product = gt_fma(GT_LOAD(dy, at + i) * gate_of(GT_LOAD(z, z_at_ + i), gate) * GATE_GAIN(i),
                         value, product);
    }
    const float all = gt_group_sum(square, scratch), both = gt_group_sum(product, scratch),
                r = gain_dtype >= 0 ? 1.0f / sqrt(all / (float)size + epsilon) : 1.0f,
                mean = gain_dtype >= 0 ? r * both / (float)size : 0.0f;
    if (gain_dtype >= 0 && get_local_id(0) == 0)
        GT_AT(statistics, index) = r;
    for (long i = (long)get_local_id(0); i < size; i += GT_GROUP) {
        const float normal = GT_LOAD(x, at + i) * r, of_z = GT_LOAD(z, z_at_ + i),
                    of_y = GT_LOAD(dy, at + i), du = of_y * gate_of(of_z, gate) * GATE_GAIN(i),
                    slope = of_y * (normal * GATE_GAIN(i)) * gate_slope(of_z, gate);
        GT_STORE(dz, z_at_ + i, accumulate ? GT_LOAD(dz, z_at_ + i) + slope : slope);
        GT_STORE(dx, at + i, r * (du - normal * mean));
    }
    const bool clears = !accumulate && z_row != heads * size;
    for (long i = (long)get_local_id(0); clears && i < size; i += GT_GROUP)
        GT_STORE(dz, z_at_ - size + i, 0.0f);
    for (long i = 2 * heads * size + (long)get_local_id(0); clears && head == 0 && i < z_row;
         i += GT_GROUP)
        GT_STORE(dz, n * z_row + i, 0.0f);
}

/* statistics[first + part, i]: the contribution of the part's heads to dgain[i]. */
__kernel void gt_gate_gain_partial(GT_TENSOR(x), GT_TENSOR(z), GT_TENSOR(gain), GT_TENSOR(dy),
                                   GT_ARRAY(float, statistics), GATE_VALUES, long rows,
                                   long part_rows)
{
    long part;
    const long i = gt_column(size, &part), end = min((part + 1) * part_rows, rows) * heads;
    if (i >= size)
        return;
    float sum = 0.0f;
    for (long index = part * part_rows * heads; index < end; index++) {
        const long z_at_ = gt_gate_z(index / heads, index % heads, heads, size, z_row);
        const float du = GT_LOAD(dy, index * size + i) * gate_of(GT_LOAD(z, z_at_ + i), gate);
        sum = gt_fma(du, GT_LOAD(x, index * size + i) * GT_AT(statistics, index), sum);
    }
    GT_AT(statistics, rows * heads + part * size + i) = sum;
}
