/* rope_forward and rope_backward: a team of lanes takes the heads of a row that share a mean; without gains, one head.
 *
 * A lane takes eight pairs at a time: the same eight columns of both halves of a head.  A warp holds as many teams as
 * fit, so that small heads keep its lanes busy.  With gains the team first sums the squares, and in the backward the
 * products of the gradient, in fp32; then it reads its pairs once more, from the cache.  dgain takes another kernel,
 * which reads the r that the first one left in the workspace: a thread sums one gain over a part of the rows.
 */
#include "backends/cuda/cuda_reduce.h"

struct rope_args {
    struct cuda_floats in, gain, out, x; /* in: x, or dy; x: backward with gains */
    const float *table;
    const union scalar_word *scalars;
    float *r; /* [rows, means]: backward with gains, else NULL */
    int64_t rows, time;
    int32_t size, heads, kv_heads, means, lanes; /* means: of a row; 2 are over all heads; 0 without gains */
    float epsilon;
    bool is_backward;
    bool aligned; /* every group of every half of a head is, in every operand */
};

/* The heads of row n that a team takes. */
struct team {
    int64_t n, position;
    int32_t first, heads, mean;
    bool turns;
};

DEVICE struct team team_of(const struct rope_args &args, int64_t at)
{
    const int32_t groups = args.means == 2 ? 3 : args.heads + 2 * args.kv_heads, group = (int32_t)(at % groups);
    struct team team;
    team.n = at / groups;
    team.position = args.scalars[SCALAR_POSITION].i + team.n % args.time;
    team.mean = group;
    team.first = args.means != 2 ? group : group == 0 ? 0 : args.heads + (group - 1) * args.kv_heads;
    team.heads = args.means != 2 ? 1 : group == 0 ? args.heads : args.kv_heads;
    team.turns = team.first < args.heads + args.kv_heads;
    return team;
}

/* Eight pairs: their spans in the row, and in gains and table; their values. */
struct pairs {
    struct cuda_span first, second;
    int64_t gain;
    int column;
    float a[CUDA_GROUP], b[CUDA_GROUP];
};

DEVICE void pairs_place(const struct rope_args &args, const struct team &team, int32_t item, struct pairs *p)
{
    const int32_t half = args.size / 2, tiles = (half + CUDA_GROUP - 1) / CUDA_GROUP;
    const int32_t head = team.first + item / tiles;
    const int64_t row = team.n * (args.heads + 2 * args.kv_heads) * args.size + (int64_t)head * args.size;
    p->column = item % tiles * CUDA_GROUP;
    p->gain = args.means == 2 ? (int64_t)head * args.size : head < args.heads ? 0 : args.size;
    p->first = cuda_span_make(row + p->column, row + half, args.aligned);
    p->second = cuda_span_make(row + half + p->column, row + args.size, args.aligned);
}

/* Reads the same eight columns of both halves of a vector of the head's size. */
DEVICE void halves_read(const struct rope_args &args, const struct cuda_floats &from, int64_t first, int column,
                        float (&low)[CUDA_GROUP], float (&high)[CUDA_GROUP])
{
    const int32_t half = args.size / 2;
    cuda_read(from, cuda_span_make(first + column, first + half, args.aligned), low);
    cuda_read(from, cuda_span_make(first + half + column, first + args.size, args.aligned), high);
}

DEVICE void pairs_turn(const struct rope_args &args, const struct team &team, float sign, struct pairs *p)
{
    const struct cuda_floats table = {(void *)args.table, DTYPE_F32};
    float cosine[CUDA_GROUP], sine[CUDA_GROUP];
    halves_read(args, table, team.position * args.size, p->column, cosine, sine);
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++) {
        const float turned = p->a[k] * cosine[k] - p->b[k] * (sign * sine[k]);
        p->b[k] = p->b[k] * cosine[k] + p->a[k] * (sign * sine[k]);
        p->a[k] = turned;
    }
}

/* Reads pairs of the input, which the backward turns back. */
DEVICE void pairs_read(const struct rope_args &args, const struct team &team, int32_t item, struct pairs *p)
{
    pairs_place(args, team, item, p);
    const struct cuda_group from_a = cuda_fetch(args.in, p->first), from_b = cuda_fetch(args.in, p->second);
    cuda_unpack(from_a, args.in.dtype, p->a);
    cuda_unpack(from_b, args.in.dtype, p->b);
    if (args.is_backward && team.turns)
        pairs_turn(args, team, -1.0f, p);
}

/* The sum over the team's lanes, in all of them.  The teams of a warp call it together. */
DEVICE float team_sum(float value, int32_t lanes)
{
    for (int32_t distance = 1; distance < lanes; distance *= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

/* Returns r, and sets *product to mean(dz g xh) in the backward. */
DEVICE float team_r(const struct rope_args &args, const struct team &team, int32_t items, float *product)
{
    float square = 0.0f, sum = 0.0f;
    for (int32_t item = cuda_lane() % args.lanes; item < items; item += args.lanes) {
        struct pairs p;
        float low[CUDA_GROUP], high[CUDA_GROUP];
        pairs_read(args, team, item, &p);
        if (args.is_backward) {
            float x_low[CUDA_GROUP], x_high[CUDA_GROUP];
            halves_read(args, args.gain, p.gain, p.column, low, high);
            cuda_read(args.x, p.first, x_low);
            cuda_read(args.x, p.second, x_high);
#pragma unroll
            for (int k = 0; k < CUDA_GROUP; k++) {
                sum += p.a[k] * low[k] * x_low[k] + p.b[k] * high[k] * x_high[k];
                p.a[k] = x_low[k];
                p.b[k] = x_high[k];
            }
        }
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++)
            square += p.a[k] * p.a[k] + p.b[k] * p.b[k]; /* zeros beyond the count */
    }
    const float count = (float)(team.heads * args.size);
    const float r = 1.0f / sqrtf(team_sum(square, args.lanes) / count + args.epsilon);
    *product = args.is_backward ? r * team_sum(sum, args.lanes) / count : 0.0f;
    return r;
}

/* Replaces values by x r g, or in the backward by r (dz g - x r product). */
DEVICE void pairs_norm(const struct rope_args &args, float r, float product, struct pairs *p)
{
    float low[CUDA_GROUP], high[CUDA_GROUP], x_low[CUDA_GROUP], x_high[CUDA_GROUP];
    halves_read(args, args.gain, p->gain, p->column, low, high);
    if (!args.is_backward) {
#pragma unroll
        for (int k = 0; k < CUDA_GROUP; k++) {
            p->a[k] = p->a[k] * r * low[k];
            p->b[k] = p->b[k] * r * high[k];
        }
        return;
    }
    cuda_read(args.x, p->first, x_low);
    cuda_read(args.x, p->second, x_high);
#pragma unroll
    for (int k = 0; k < CUDA_GROUP; k++) {
        p->a[k] = r * (p->a[k] * low[k] - x_low[k] * r * product);
        p->b[k] = r * (p->b[k] * high[k] - x_high[k] * r * product);
    }
}

static __global__ void __launch_bounds__(CUDA_ROW_WARPS *WARP_LANES) rope(struct rope_args args)
{
    const int32_t teams = WARP_LANES / args.lanes, tiles = (args.size / 2 + CUDA_GROUP - 1) / CUDA_GROUP;
    const int64_t end = args.rows * (args.means == 2 ? 3 : args.heads + 2 * args.kv_heads);
    const int64_t stride = (int64_t)gridDim.x * CUDA_ROW_WARPS * teams;
    for (int64_t of_warp = ((int64_t)blockIdx.x * CUDA_ROW_WARPS + cuda_warp()) * teams; of_warp < end;
         of_warp += stride) {
        const int64_t at = of_warp + cuda_lane() / args.lanes;
        const struct team team = team_of(args, at < end ? at : end - 1);
        const int32_t items = at < end ? team.heads * tiles : 0;
        float product = 0.0f, r = 1.0f;
        if (args.means > 0)
            r = team_r(args, team, team.turns ? items : 0, &product);
        if (args.r != NULL && team.turns && at < end && cuda_lane() % args.lanes == 0)
            args.r[team.n * args.means + team.mean] = r;
        for (int32_t item = cuda_lane() % args.lanes; item < items; item += args.lanes) {
            struct pairs p;
            pairs_read(args, team, item, &p);
            if (team.turns && args.means > 0)
                pairs_norm(args, r, product, &p);
            if (team.turns && !args.is_backward)
                pairs_turn(args, team, 1.0f, &p);
            cuda_write(args.out, p.first, p.a);
            cuda_write(args.out, p.second, p.b);
        }
    }
}

/* ---- dgain ---- */

struct rope_gain_args {
    struct cuda_floats dy, x;
    const float *table, *r;
    const union scalar_word *scalars;
    float *strips; /* [parts] */
    int64_t rows, time, gains, parts, strip_floats;
    int32_t size, heads, kv_heads, means;
};

static __global__ void __launch_bounds__(CUDA_TILE_COLUMNS, 4) rope_gain(struct rope_gain_args args)
{
    const int32_t lane = (int32_t)threadIdx.x, size = args.size, half = size / 2;
    const int64_t tile = (int64_t)blockIdx.y * CUDA_TILE_COLUMNS, column = tile + lane,
                  position = args.scalars[SCALAR_POSITION].i;
    if (column >= args.gains)
        return;
    const int32_t own = (int32_t)(column / size), i = (int32_t)(column % size), pair = i % half;
    const int32_t first = args.means == 2 ? own : own * args.heads;
    const int32_t end = args.means == 2 ? own + 1 : own == 0 ? args.heads : args.heads + args.kv_heads;
    const struct cuda_part part = cuda_part_of(args.rows, args.parts, blockIdx.x);
    float sum = 0.0f;
    for (int64_t n = part.begin; n < part.end; n++) {
        const float *angle = args.table + (position + n % args.time) * size;
        const float cosine = angle[pair], sine = i < half ? angle[half + pair] : -angle[half + pair];
        for (int32_t head = first; head < end; head++) {
            const int64_t at = (n * (args.heads + 2 * args.kv_heads) + head) * size;
            const float dz =
                cuda_read_one(args.dy, at + i) * cosine + cuda_read_one(args.dy, at + (i + half) % size) * sine;
            const int32_t mean = args.means != 2 ? head : head < args.heads ? 0 : 1;
            sum += dz * (cuda_read_one(args.x, at + i) * args.r[n * args.means + mean]);
        }
    }
    const int64_t place = tile + lane % CUDA_GROUP * WARP_LANES + lane / CUDA_GROUP;
    args.strips[blockIdx.x * args.strip_floats + place] = sum;
}

static cudaError_t rope_launch(cudaStream_t stream, const struct cuda_args *args, bool is_backward)
{
    const struct cuda_floats none = {NULL, DTYPE_F32};
    const struct rope_args own = {args->operand[ROPE_FORWARD_X],
                                  args->operand[ROPE_FORWARD_GAIN],
                                  args->operand[ROPE_FORWARD_Y],
                                  is_backward ? args->operand[ROPE_BACKWARD_X] : none,
                                  CUDA_POINTER(const float, ROPE_FORWARD_TABLE),
                                  CUDA_POINTER(const union scalar_word, ROPE_FORWARD_SCALARS),
                                  is_backward ? args->workspace : NULL,
                                  args->rows,
                                  args->attrs.time,
                                  (int32_t)args->columns,
                                  args->attrs.heads,
                                  args->attrs.kv_heads,
                                  args->strips,
                                  args->threads,
                                  args->attrs.epsilon,
                                  is_backward,
                                  args->walk.aligned};
    return LAUNCH(rope, dim3((unsigned)args->walk.blocks), dim3(CUDA_ROW_WARPS * WARP_LANES), 0, stream, own);
}

extern "C" cudaError_t cuda_launch_rope_forward(cudaStream_t stream, const struct cuda_args *args)
{
    return rope_launch(stream, args, false);
}

extern "C" cudaError_t cuda_launch_rope_backward(cudaStream_t stream, const struct cuda_args *args)
{
    return rope_launch(stream, args, true);
}

CUDA_LAUNCHER(rope_gain, rope_gain_args,
              dim3((unsigned)args->parts, (unsigned)(args->strip_floats / CUDA_TILE_COLUMNS)), dim3(CUDA_TILE_COLUMNS),
              args->operand[ROPE_BACKWARD_DY], args->operand[ROPE_BACKWARD_X],
              CUDA_POINTER(const float, ROPE_BACKWARD_TABLE), args->workspace,
              CUDA_POINTER(const union scalar_word, ROPE_BACKWARD_SCALARS), args->workspace + args->rows * args->strips,
              args->rows, args->attrs.time, args->walk.elements, args->parts, args->strip_floats,
              (int32_t)args->columns, args->attrs.heads, args->attrs.kv_heads, args->strips)
