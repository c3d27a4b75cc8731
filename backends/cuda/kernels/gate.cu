/* gate_forward and gate_backward: a warp for each head of a row.  The backward with gains keeps r
 * of each head in the workspace; then a thread for each gain and part of the rows sums its
 * gradient, and another kernel adds the parts in order.
 */
#include "backends/cuda/cuda_floats.h"
#include "backends/gelu.h"

/* Of a head of a row: its number, its first elements in x and z. */
struct gate_head {
    int64_t n, at, z;
    int32_t head, size;
};

DEVICE struct gate_head head_of(const struct cuda_args &args, int64_t index)
{
    const int32_t heads = args.attrs.heads, size = (int32_t)args.columns / heads;
    const int64_t n = index / heads, row = args.strip_floats;
    const int32_t head = (int32_t)(index % heads);
    const struct gate_head of = {
        n, index * size, n * row + (int64_t)(row == args.columns ? head : 2 * head + 1) * size,
        head, size};
    return of;
}

DEVICE float gain_of(const struct cuda_args &args, int32_t i)
{
    const struct cuda_floats &gain = args.operand[GATE_FORWARD_GAIN];
    return gain.memory != NULL ? cuda_read_one(gain, i) : 1.0f;
}

/* Returns r; 1 without gains. */
DEVICE float head_r(const struct cuda_args &args, const struct gate_head &head)
{
    float square = 0.0f;
    if (args.operand[GATE_FORWARD_GAIN].memory == NULL)
        return 1.0f;
    for (int32_t i = cuda_lane(); i < head.size; i += WARP_LANES) {
        const float x = cuda_read_one(args.operand[GATE_FORWARD_X], head.at + i);
        square += x * x;
    }
    return 1.0f / sqrtf(warp_sum(square) / (float)head.size + args.attrs.epsilon);
}

static __global__ void __launch_bounds__(CUDA_ROW_WARPS *WARP_LANES, 2)
    gate_forward(const struct cuda_args args)
{
    const int64_t heads = args.rows * args.attrs.heads, stride = gridDim.x * CUDA_ROW_WARPS;
    for (int64_t index = blockIdx.x * CUDA_ROW_WARPS + cuda_warp(); index < heads;
         index += stride) {
        const struct gate_head head = head_of(args, index);
        const float r = head_r(args, head);
        for (int32_t i = cuda_lane(); i < head.size; i += WARP_LANES) {
            const float u =
                cuda_read_one(args.operand[GATE_FORWARD_X], head.at + i) * r * gain_of(args, i);
            const float z = cuda_read_one(args.operand[GATE_FORWARD_Z], head.z + i);
            cuda_write_one(args.operand[GATE_FORWARD_Y], head.at + i,
                           u * gate_of(z, args.attrs.gate));
        }
    }
}

/* Sets what belongs to no gate in a row of dz to 0. */
DEVICE void rest_clear(const struct cuda_args &args, const struct gate_head &head)
{
    const struct cuda_floats &dz = args.operand[GATE_BACKWARD_DZ];
    const int64_t row = args.strip_floats, first = head.n * row;
    for (int32_t i = cuda_lane(); i < head.size; i += WARP_LANES)
        cuda_write_one(dz, head.z - head.size + i, 0.0f);
    for (int64_t i = 2 * args.columns + cuda_lane(); head.head == 0 && i < row; i += WARP_LANES)
        cuda_write_one(dz, first + i, 0.0f);
}

DEVICE void head_backward(const struct cuda_args &args, const struct gate_head &head, float r,
                          float mean)
{
    const bool adds = CUDA_ACCUMULATES(GATE_BACKWARD_DZ);
    const struct cuda_floats &dz = args.operand[GATE_BACKWARD_DZ];
    for (int32_t i = cuda_lane(); i < head.size; i += WARP_LANES) {
        const float normal = cuda_read_one(args.operand[GATE_BACKWARD_X], head.at + i) * r,
                    z = cuda_read_one(args.operand[GATE_BACKWARD_Z], head.z + i),
                    dy = cuda_read_one(args.operand[GATE_BACKWARD_DY], head.at + i),
                    g = gain_of(args, i),
                    slope = dy * (normal * g) * gate_slope(z, args.attrs.gate);
        cuda_write_one(dz, head.z + i, adds ? cuda_read_one(dz, head.z + i) + slope : slope);
        cuda_write_one(args.operand[GATE_BACKWARD_DX], head.at + i,
                       r * (dy * gate_of(z, args.attrs.gate) * g - normal * mean));
    }
    if (!adds && args.strip_floats != args.columns)
        rest_clear(args, head);
}

static __global__ void __launch_bounds__(CUDA_ROW_WARPS *WARP_LANES, 2)
    gate_backward(const struct cuda_args args)
{
    const int64_t heads = args.rows * args.attrs.heads, stride = gridDim.x * CUDA_ROW_WARPS;
    const bool has_gain = args.operand[GATE_BACKWARD_GAIN].memory != NULL;
    for (int64_t index = blockIdx.x * CUDA_ROW_WARPS + cuda_warp(); index < heads;
         index += stride) {
        const struct gate_head head = head_of(args, index);
        const float r = head_r(args, head);
        float product = 0.0f;
        for (int32_t i = cuda_lane(); has_gain && i < head.size; i += WARP_LANES) {
            const float z = cuda_read_one(args.operand[GATE_BACKWARD_Z], head.z + i);
            product += cuda_read_one(args.operand[GATE_BACKWARD_DY], head.at + i) *
                       gate_of(z, args.attrs.gate) * gain_of(args, i) *
                       cuda_read_one(args.operand[GATE_BACKWARD_X], head.at + i);
        }
        const float mean = r * warp_sum(product) / (float)head.size;
        head_backward(args, head, r, mean);
        if (has_gain && cuda_lane() == 0)
            args.workspace[index] = r;
    }
}

/* A block takes a part of the rows, a thread a gain. */
static __global__ void __launch_bounds__(CUDA_WALK_THREADS, 2)
    gate_gain(const struct cuda_args args)
{
    const struct cuda_part rows = cuda_part_of(args.rows, args.parts, blockIdx.x);
    const int32_t heads = args.attrs.heads, size = (int32_t)args.columns / heads;
    for (int32_t i = (int32_t)threadIdx.x; i < size; i += CUDA_WALK_THREADS) {
        float sum = 0.0f;
        for (int64_t index = rows.begin * heads; index < rows.end * heads; index++) {
            const struct gate_head head = head_of(args, index);
            const float z = cuda_read_one(args.operand[GATE_BACKWARD_Z], head.z + i);
            sum +=
                cuda_read_one(args.operand[GATE_BACKWARD_DY], head.at + i) *
                gate_of(z, args.attrs.gate) *
                (cuda_read_one(args.operand[GATE_BACKWARD_X], head.at + i) * args.workspace[index]);
        }
        args.workspace[args.rows * heads + blockIdx.x * size + i] = sum;
    }
}

CUDA_LAUNCHER(gate_forward, gate_forward, dim3((unsigned)args.walk.blocks),
              dim3(CUDA_ROW_WARPS *WARP_LANES))
CUDA_LAUNCHER(gate_backward, gate_backward, dim3((unsigned)args.walk.blocks),
              dim3(CUDA_ROW_WARPS *WARP_LANES))
CUDA_LAUNCHER(gate_gain, gate_gain, dim3((unsigned)args.parts), dim3(CUDA_WALK_THREADS))
