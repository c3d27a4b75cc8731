/* rope_forward and rope_backward: a team of lanes takes the heads of a row that share a mean;
 * without gains, one head.
 *
 * A lane takes eight pairs at a time: the same eight columns of both halves of what turns of a
 * head, or, unless it turns in place, of both halves of the rest.  A warp holds as many teams as
 * fit, so that small heads keep its lanes busy.  With gains the team first sums the squares, and in
 * the backward the products of the gradient, in fp32; then it reads its pairs once more, from the
 * cache.  The backward with gains (GAINS) takes a part of the rows in each block: each team adds up
 * its share of dgain in its own strip, and at the end the strips are added in order into the
 * workspace.
 */
#include "backends/cuda/cuda_floats.h"

struct rope_args {
    struct cuda_floats in, gain, out, x; /* in: x or dy, or out; x: backward with gains */
    const float *table;
    const union scalar_word *scalars;
    float *strips; /* GAINS: [parts] */
    int64_t rows, time, parts, strip_floats;
    int32_t size, turned, heads, kv_heads, lanes; /* turned: of a head's size */
    int32_t means;  /* of a row; 2 are over all heads; 0 without gains */
    int32_t groups; /* of heads in a row, each of a team */
    float epsilon, gain_offset;
    bool is_backward;
    bool in_place; /* in is out, and only what turns is touched */
    bool gated; /* rows of x and dx have a gate behind each head of the queries; dx accumulates */
    bool is_shared; /* GAINS: each team sums in shared memory; else the block's one team sums in
                       `strips` */
    bool aligned;   /* every group of every half of a head is, in every operand */
};

/* The heads of row n that a team takes. */
struct team {
    int64_t n, position;
    int32_t first, heads;
    bool turns;
};

DEVICE struct team team_of(const struct rope_args &args, int64_t at)
{
    const int32_t group = (int32_t)(at % args.groups);
    struct team team;
    team.n = at / args.groups;
    team.position = args.scalars[SCALAR_POSITION].i + team.n % args.time;
    team.first = args.means != 2 ? group
                 : group == 0    ? 0
                                 : args.heads + (group - 1) * args.kv_heads;
    team.heads = args.means != 2 ? 1 : group == 0 ? args.heads : args.kv_heads;
    team.turns = team.first < args.heads + args.kv_heads;
    return team;
}

/* Eight pairs: their spans in the row, their columns in the head, and so in gains and table; their
 * values. */
struct pairs {
    struct cuda_span first, second;
    int64_t gain, to; /* to: from the input's span to the output's */
    int low, high;
    bool turns;
    float a[CUDA_GROUP], b[CUDA_GROUP];
};

DEVICE int32_t tiles_of(int32_t columns)
{
    return (columns + CUDA_GROUP - 1) / CUDA_GROUP;
}

/* The groups of pairs of a head that a team takes. */
DEVICE int32_t head_tiles(const struct rope_args &args)
{
    return tiles_of(args.turned / 2) +
           (args.in_place ? 0 : tiles_of((args.size - args.turned) / 2));
}

DEVICE void pairs_place(const struct rope_args &args, const struct team &team, int32_t item,
                        struct pairs *p)
{
    const int32_t tiles = head_tiles(args), turning = tiles_of(args.turned / 2);
    const int32_t head = team.first + item / tiles, tile = item % tiles;
    const int64_t gates = args.gated ? args.heads : 0, before = head < gates ? head : gates;
    const int64_t plain = (team.n * (args.heads + 2 * args.kv_heads) + head) * args.size,
                  wide = (team.n * (args.heads + gates + 2 * args.kv_heads) + head + before) *
                         args.size,
                  row = args.is_backward ? plain : wide;
    p->to = args.is_backward ? wide - plain : plain - wide;
    p->turns = tile < turning;
    const int32_t half = (p->turns ? args.turned : args.size - args.turned) / 2,
                  begin = p->turns ? 0 : args.turned;
    p->low = begin + (p->turns ? tile : tile - turning) * CUDA_GROUP;
    p->high = p->low + half;
    p->gain = args.means == 2 ? (int64_t)head * args.size : head < args.heads ? 0 : args.size;
    p->first = cuda_span_make(row + p->low, row + begin + half, args.aligned);
    p->second = cuda_span_make(row + p->high, row + begin + 2 * half, args.aligned);
}

/* Moves a span. */
DEVICE struct cuda_span span_at(struct cuda_span span, int64_t by)
{
    span.first += by;
    return span;
}

/* Reads the columns of the pairs from a vector. */
DEVICE void halves_read(const struct pairs &p, const struct cuda_floats &from, int64_t first,
                        float (&low)[CUDA_GROUP], float (&high)[CUDA_GROUP])
{
    struct cuda_span span = p.first;
    span.first = first + p.low;
    cuda_read(from, span, low);
    span.first = first + p.high;
    cuda_read(from, span, high);
}

DEVICE void gains_read(const struct rope_args &args, const struct pairs &p,
                       float (&low)[CUDA_GROUP], float (&high)[CUDA_GROUP])
{
    halves_read(p, args.gain, p.gain, low, high);
    UNROLLED(k, CUDA_GROUP) {
        low[k] += args.gain_offset;
        high[k] += args.gain_offset;
    }
}

DEVICE void pairs_turn(const struct rope_args &args, const struct team &team, float sign,
                       struct pairs *p)
{
    const struct cuda_floats table = {(void *)args.table, DTYPE_F32};
    float cosine[CUDA_GROUP], sine[CUDA_GROUP];
    halves_read(*p, table, team.position * args.turned, cosine, sine);
    UNROLLED(k, CUDA_GROUP) {
        const float turned = p->a[k] * cosine[k] - p->b[k] * (sign * sine[k]);
        p->b[k] = p->b[k] * cosine[k] + p->a[k] * (sign * sine[k]);
        p->a[k] = turned;
    }
}

/* Reads pairs of the input, which the backward turns back. */
DEVICE void pairs_read(const struct rope_args &args, const struct team &team, int32_t item,
                       struct pairs *p)
{
    pairs_place(args, team, item, p);
    cuda_read(args.in, p->first, p->a, args.in, p->second, p->b);
    if (args.is_backward && team.turns && p->turns)
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
template <bool GAINS>
DEVICE float team_r(const struct rope_args &args, const struct team &team, int32_t items,
                    float *product)
{
    float square = 0.0f, sum = 0.0f;
    for (int32_t item = cuda_lane() % args.lanes; item < items; item += args.lanes) {
        struct pairs p;
        float low[CUDA_GROUP], high[CUDA_GROUP];
        pairs_read(args, team, item, &p);
        if (GAINS) {
            float x_low[CUDA_GROUP], x_high[CUDA_GROUP];
            gains_read(args, p, low, high);
            const struct cuda_span first = span_at(p.first, p.to), second = span_at(p.second, p.to);
            cuda_read(args.x, first, x_low, args.x, second, x_high);
            UNROLLED(k, CUDA_GROUP) {
                sum += p.a[k] * low[k] * x_low[k] + p.b[k] * high[k] * x_high[k];
                p.a[k] = x_low[k];
                p.b[k] = x_high[k];
            }
        }
        UNROLLED(k, CUDA_GROUP)
            square += p.a[k] * p.a[k] + p.b[k] * p.b[k]; /* zeros beyond the count */
    }
    const float count = (float)(team.heads * args.size);
    const float r = 1.0f / sqrtf(team_sum(square, args.lanes) / count + args.epsilon);
    *product = GAINS ? r * team_sum(sum, args.lanes) / count : 0.0f;
    return r;
}

/* Adds dz x r to the strip, from gain `first` on. */
DEVICE void gains_add(float *strip, int64_t first, int count, const float (&dz)[CUDA_GROUP],
                      const float (&x)[CUDA_GROUP], float r)
{
    UNROLLED(k, CUDA_GROUP) {
        const int column = (int)(first + k), lane = column % CUDA_TILE_COLUMNS / CUDA_GROUP;
        if (k < count)
            strip[column - column % CUDA_TILE_COLUMNS + column % CUDA_GROUP * WARP_LANES + lane] +=
                dz[k] * (x[k] * r);
    }
}

/* Replaces values by x r g, or in the backward by r (dz g - x r product). */
template <bool GAINS>
DEVICE void pairs_norm(const struct rope_args &args, float r, float product, struct pairs *p,
                       float *strip)
{
    float low[CUDA_GROUP], high[CUDA_GROUP], x_low[CUDA_GROUP], x_high[CUDA_GROUP];
    gains_read(args, *p, low, high);
    if (!GAINS) {
        UNROLLED(k, CUDA_GROUP) {
            p->a[k] = p->a[k] * r * low[k];
            p->b[k] = p->b[k] * r * high[k];
        }
        return;
    }
    const struct cuda_span first = span_at(p->first, p->to), second = span_at(p->second, p->to);
    cuda_read(args.x, first, x_low, args.x, second, x_high);
    gains_add(strip, p->gain + p->low, p->first.count, p->a, x_low, r);
    gains_add(strip, p->gain + p->high, p->second.count, p->b, x_high, r);
    UNROLLED(k, CUDA_GROUP) {
        p->a[k] = r * (p->a[k] * low[k] - x_low[k] * r * product);
        p->b[k] = r * (p->b[k] * high[k] - x_high[k] * r * product);
    }
}

/* Takes the groups of heads from `first` on; `end` is that of the rows' groups. */
template <bool GAINS>
DEVICE void groups_walk(const struct rope_args &args, int64_t first, int64_t stride, int64_t end,
                        float *strip)
{
    const int32_t tiles = head_tiles(args);
    for (int64_t of_warp = first; of_warp < end; of_warp += stride) {
        const int64_t at = of_warp + cuda_lane() / args.lanes;
        const struct team team = team_of(args, at < end ? at : end - 1);
        const int32_t items = at < end ? team.heads * tiles : 0;
        float product = 0.0f, r = 1.0f;
        if (args.means > 0)
            r = team_r<GAINS>(args, team, team.turns ? items : 0, &product);
        for (int32_t item = cuda_lane() % args.lanes; item < items; item += args.lanes) {
            struct pairs p;
            pairs_read(args, team, item, &p);
            if (team.turns && args.means > 0)
                pairs_norm<GAINS>(args, r, product, &p, strip);
            if (team.turns && p.turns && !args.is_backward)
                pairs_turn(args, team, 1.0f, &p);
            const struct cuda_span first = span_at(p.first, p.to), second = span_at(p.second, p.to);
            if (args.gated && args.is_backward) {
                float low[CUDA_GROUP], high[CUDA_GROUP];
                cuda_read(args.out, first, low, args.out, second, high);
                UNROLLED(k, CUDA_GROUP) {
                    p.a[k] += low[k];
                    p.b[k] += high[k];
                }
            }
            cuda_write(args.out, first, p.a);
            cuda_write(args.out, second, p.b);
        }
    }
}

/* Two blocks on a multiprocessor, by registers; otherwise the compiler aims at more, and spills. */
template <bool GAINS>
static __global__ void __launch_bounds__(CUDA_ROW_WARPS *WARP_LANES, 2) rope(struct rope_args args)
{
    const int64_t teams = WARP_LANES / args.lanes, groups = args.groups;
    if constexpr (!GAINS) {
        groups_walk<false>(args, ((int64_t)blockIdx.x * CUDA_ROW_WARPS + cuda_warp()) * teams,
                           (int64_t)gridDim.x * CUDA_ROW_WARPS * teams, args.rows * groups, NULL);
    } else {
        DYN_SHARED(float, shared);
        const struct cuda_part rows = cuda_part_of(args.rows, args.parts, blockIdx.x);
        const int64_t team = cuda_warp() * teams + cuda_lane() / args.lanes,
                      strips = cuda_warps() * teams;
        const int64_t floats =
            args.strip_floats + args.lanes; /* so that the teams of a warp are in different banks */
        float *out = args.strips + blockIdx.x * args.strip_floats,
              *all = args.is_shared ? shared : out;
        for (int64_t at = threadIdx.x; at < (args.is_shared ? strips * floats : args.strip_floats);
             at += blockDim.x)
            all[at] = 0.0f;
        __syncthreads();
        groups_walk<true>(args, rows.begin * groups + cuda_warp() * teams, strips,
                          rows.end * groups, args.is_shared ? shared + team * floats : out);
        __syncthreads();
        for (int64_t at = threadIdx.x; args.is_shared && at < args.strip_floats; at += blockDim.x) {
            float sum = 0.0f;
            for (int64_t i = 0; i < strips; i++)
                sum += shared[i * floats + at];
            out[at] = sum;
        }
    }
}

/* With gains a block of the backward has as many warps as have room for their teams' strips in
 * shared memory, or one that sums in the workspace: its lanes are a single team then. */
static cudaError_t rope_launch(cudaStream_t stream, const struct cuda_args &args, bool is_backward)
{
    const bool has_strips = is_backward && args.strips > 0;
    const size_t warp_bytes =
        (size_t)(WARP_LANES / args.threads * (args.strip_floats + args.threads)) * sizeof(float);
    const size_t fitting = has_strips ? CUDA_SHARED_DEFAULT_BYTES / warp_bytes : CUDA_ROW_WARPS;
    const unsigned warps = fitting < CUDA_ROW_WARPS ? (unsigned)fitting : CUDA_ROW_WARPS;
    const bool in_place = args.strips == 0 && !args.attrs.gated;
    const int32_t groups =
        args.strips == 2 ? 3 : args.attrs.heads + (in_place ? 1 : 2) * args.attrs.kv_heads;
    const struct rope_args own = {args.operand[ROPE_FORWARD_X],
                                  args.operand[ROPE_FORWARD_GAIN],
                                  args.operand[ROPE_FORWARD_Y],
                                  args.operand[ROPE_BACKWARD_X],
                                  CUDA_POINTER(const float, ROPE_FORWARD_TABLE),
                                  CUDA_POINTER(const union scalar_word, ROPE_FORWARD_SCALARS),
                                  args.workspace,
                                  args.rows,
                                  args.attrs.time,
                                  args.parts,
                                  args.strip_floats,
                                  (int32_t)args.columns,
                                  args.turned,
                                  args.attrs.heads,
                                  args.attrs.kv_heads,
                                  args.threads,
                                  args.strips,
                                  groups,
                                  args.attrs.epsilon,
                                  args.attrs.gain_offset,
                                  is_backward,
                                  in_place,
                                  args.attrs.gated,
                                  warps > 0,
                                  args.walk.aligned};
    if (has_strips)
        return LAUNCH(rope<true>, dim3((unsigned)args.parts),
                      dim3(WARP_LANES * (warps > 0 ? warps : 1)), warps * warp_bytes, stream, own);
    return LAUNCH(rope<false>, dim3((unsigned)args.walk.blocks), dim3(CUDA_ROW_WARPS * WARP_LANES),
                  0, stream, own);
}

extern "C" cudaError_t cuda_launch_rope_forward(cudaStream_t stream, const struct cuda_args *args)
{
    return rope_launch(stream, *args, false);
}

extern "C" cudaError_t cuda_launch_rope_backward(cudaStream_t stream, const struct cuda_args *args)
{
    return rope_launch(stream, *args, true);
}
