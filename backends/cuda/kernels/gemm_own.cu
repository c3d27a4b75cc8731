/* Products of 16-bit matrices: with fp32 sums, or of fp16 with fp16 sums, which GeForce cards add
 * at twice the rate; and the ops behind a product that it ends with.
 *
 * A block computes ROWS x 128 elements with a warp for each 64 x 64, in steps of 32 of K; the tiles
 * of this step and of two or three steps ahead are in shared memory.  Tiles of 256 rows take a
 * quarter less from the L2 cache.  With fp16 sums tensor cores sum 32 products in fp16; these sums
 * are added up in fp32, so that errors stay as small as doc/numerics.md derives, also where a card
 * cuts its sums off.  A warp finishes the 32 products of 16 columns before it takes the next, so
 * that few fp16 sums are alive.
 *
 * Along the side of a tile (the rows of op(a), the columns of op(b)) lies a row of memory, or along
 * K ("deep").  The lengths of rows are multiples of 8, and all addresses of 16 bytes, so that a
 * chunk of 8 elements exists as a whole or not at all; missing ones are zeros.  Where a result has
 * too few blocks, K is cut into parts, whose sums cuda_launch_sums_add() adds up in order.
 *
 * gelu, swiglu, their backwards and residual read what a product has written.  A product that is
 * not cut may make their result too, from its own, rounded: the same bits, and a read less, and
 * a write less if nothing else reads the product.  For swiglu, which needs a column of a and one of
 * b, the two halves of a tile's columns are those of a and of b.
 *
 * Registers allow two blocks of 128 rows on a multiprocessor, or one of 256; shared memory is 8
 * bytes and 48 KiB a block with three stages, or 96 with four.
 */
#include "backends/cuda/kernels/gelu_fast.h"

#define COLUMNS 128
#define DEPTH 32
#define WARP_SIDE CUDA_GEMM_SIDE
#define CHUNK 8
#define BAND 8 /* rows of tiles that are computed together, for the L2 cache */
/* Floats of a row of finished sums: rows begin in different banks. */
#define STRIP_STRIDE (WARP_SIDE + 8)
#define STRIP_ROWS 16
/* Groups of a strip that a lane finishes. */
#define STRIP_GROUPS 4
/* Floats of a warp's strip, and of the groups that the op at the end reads besides, of swiglu's
 * backward twice as many. */
#define STRIP_FLOATS (STRIP_ROWS * STRIP_STRIDE + 2 * STRIP_GROUPS * WARP_LANES * 4)
#define SPLIT_K_MIN 2048 /* the least part of K */
#define SPLIT_ROWS                                                                   \
    65536 /* of blocks that more parts aim at: two on each multiprocessor of a large \
             card, or one of 256 rows */
/* False before sm_80, which the host side never asks. */
#ifdef GT_CUDA_EMULATED
constexpr bool own_compiled = true;
#else
constexpr bool own_compiled = CUDA_HAS_SM80 != 0;
#endif
template <int ROWS> constexpr int own_stages = ROWS == 128 ? 3 : 4;
template <int ROWS> constexpr int own_threads = ROWS; /* two warps for 64 rows */
template <int ROWS> constexpr int own_blocks_min = ROWS == 128 ? 2 : 1;
/* Elements of a stage, in which b's tile follows a's. */
template <int ROWS> constexpr int stage_elements = (ROWS + COLUMNS) * DEPTH;
template <int ROWS>
constexpr size_t own_bytes = own_stages<ROWS> *stage_elements<ROWS> * sizeof(uint16_t) +
                             2 * sizeof(int);

/* The chunks in a row of a tile. */
template <bool DEEP, int SIDE> constexpr int row_chunks = (DEEP ? DEPTH : SIDE) / CHUNK;

/* Returns where a chunk is in a tile.  Eight chunks that are written or read at once lie in
 * different banks. */
template <bool DEEP, int SIDE> DEVICE int chunk_at(int row, int chunk)
{
    return (row * row_chunks<DEEP, SIDE> + (chunk ^ (DEEP ? row / 2 % 4 : row % 8))) * CHUNK;
}

/* What a thread still has to load: its first chunk of the next tile, and how many elements there
 * are from its first one on, along the side and along K. */
template <typename T> struct source {
    const T *from;
    int length; /* of a row of memory */
    int side, depth;
};

/* Returns the source of tiles that begin at `first` of `end` along the side and at `k` of `k_end`.
 */
template <typename T, bool DEEP, int SIDE>
DEVICE struct source<T> source_make(const void *matrix, int length, int first, int end, int k,
                                    int k_end) {
    const int row = (int)threadIdx.x / row_chunks<DEEP, SIDE>,
              column = (int)threadIdx.x % row_chunks<DEEP, SIDE> * CHUNK;
    const int64_t row_first = (DEEP ? first : k) + row, column_first = (DEEP ? k : first) + column;
    return {(const T *)matrix + row_first * length + column_first, length,
            end - first - (DEEP ? row : column), k_end - k - (DEEP ? column : row)};
}

/* Starts the copies of the next tile, and goes on to the one after it.  Along the side, `apart`
 * elements lie between its parts of WARP_SIDE, if it is deep.  WHOLE: all of the tile exists. */
template <typename T, bool DEEP, int SIDE, int THREADS, bool WHOLE>
DEVICE void tile_load(T *tile, struct source<T> *source, int apart)
{
    constexpr int pass = THREADS / row_chunks<DEEP, SIDE>; /* rows */
    const int row = (int)threadIdx.x / row_chunks<DEEP, SIDE>,
              chunk = (int)threadIdx.x % row_chunks<DEEP, SIDE>;
    UNROLLED(i, SIDE * DEPTH / CHUNK / THREADS) {
        const bool fetch = WHOLE || (source->side > (DEEP ? i * pass : 0) &&
                                     source->depth > (DEEP ? 0 : i * pass));
        const int next = DEEP ? i * pass % WARP_SIDE + i * pass / WARP_SIDE * apart : i * pass;
        cp_async_16(tile + chunk_at<DEEP, SIDE>(row + i * pass, chunk),
                    source->from + next * (int64_t)source->length, fetch);
    }
    source->from += DEEP ? DEPTH : DEPTH * (int64_t)source->length;
    source->depth -= DEPTH;
}

/* Loads 16 x 16 elements, from `first` along the side and from `k` on.  Of the four matrices the
 * second is 8 further along the side for a, and along K for b; see mma_m16n8k16(). */
template <typename T, bool DEEP, int SIDE, bool IS_A>
DEVICE void fragment_load(uint32_t (&r)[4], const T *tile, int first, int k)
{
    const int lane = cuda_lane();
    const int row = DEEP == IS_A ? lane % 16 : lane / 16 * 8 + lane % 8;
    const int chunk = DEEP == IS_A ? lane / 16 : lane / 8 % 2;
    if constexpr (DEEP)
        ldmatrix_x4(r, tile + first * DEPTH + chunk_at<DEEP, SIDE>(row, k / CHUNK ^ chunk));
    else
        ldmatrix_x4_trans(r, tile + k * SIDE + chunk_at<DEEP, SIDE>(row, first / CHUNK ^ chunk));
}

/* Adds the products of a step to the warp's sums, from `row` of a's tile and `column` of b's. */
template <typename T, int ROWS, bool TRANSPOSE_A, bool TRANSPOSE_B>
DEVICE void step_add(float (&sum)[4][8][4], const T *a_tile, const T *b_tile, int row, int column)
{
    UNROLLED(k, 2) {
        uint32_t a[4][4];
        UNROLLED(i, 4)
            fragment_load<T, !TRANSPOSE_A, ROWS, true>(a[i], a_tile, row + 16 * i, 16 * k);
        UNROLLED(j, 4) {
            uint32_t b[4];
            fragment_load<T, TRANSPOSE_B, COLUMNS, false>(b, b_tile, column + 16 * j, 16 * k);
            UNROLLED(i, 4)
                UNROLLED(n, 2)
                    mma_m16n8k16<T>(sum[i][2 * j + n], a[i], b[2 * n], b[2 * n + 1]);
        }
    }
}

/* The same with fp16 sums of the step. */
template <typename T, int ROWS, bool TRANSPOSE_A, bool TRANSPOSE_B>
DEVICE void step_add_half(float (&sum)[4][8][4], const T *a_tile, const T *b_tile, int row,
                          int column)
{
    uint32_t a[2][4][4];
    UNROLLED(k, 2)
        UNROLLED(i, 4)
            fragment_load<T, !TRANSPOSE_A, ROWS, true>(a[k][i], a_tile, row + 16 * i, 16 * k);
    UNROLLED(j, 4) {
        uint32_t b[4], part[4][2][2] = {};
        UNROLLED(k, 2) {
            fragment_load<T, TRANSPOSE_B, COLUMNS, false>(b, b_tile, column + 16 * j, 16 * k);
            UNROLLED(i, 4)
                UNROLLED(n, 2)
                    mma_m16n8k16_half(part[i][n], a[k][i], b[2 * n], b[2 * n + 1]);
        }
        UNROLLED(i, 4) {
            UNROLLED(n, 2)
                half_sums_add<false>(sum[i][2 * j + n], part[i][n]);
        }
    }
}

/* x[i] = make(x[i], other[i]) for eight elements. */
template <typename Make>
DEVICE void each_make(float (&x)[CUDA_GROUP], const float (&other)[CUDA_GROUP], Make make)
{
    UNROLLED(i, CUDA_GROUP)
        x[i] = make(x[i], other[i]);
}

/* Replaces eight elements of the product by those of the op that it ends with; `other` is what that
 * op reads besides. */
DEVICE void next_make(const struct cuda_gemm_next &next, float (&x)[CUDA_GROUP],
                      const float (&other)[CUDA_GROUP])
{
    if (next.kind == OP_RESIDUAL)
        each_make(x, other, [](float y, float old) { return old + y; });
    else if (next.kind == OP_GELU_FORWARD && next.gelu == GELU_TANH)
        each_make(x, other, [](float y, float) { return gelu<GELU_TANH>(y); });
    else if (next.kind == OP_GELU_FORWARD)
        each_make(x, other, [](float y, float) { return gelu<GELU_ERF>(y); });
    else if (next.kind == OP_GELU_BACKWARD && next.gelu == GELU_TANH)
        each_make(x, other, [](float dy, float y) { return dy * gelu_slope<GELU_TANH>(y); });
    else if (next.kind == OP_GELU_BACKWARD)
        each_make(x, other, [](float dy, float y) { return dy * gelu_slope<GELU_ERF>(y); });
    else if (next.gate == GATE_GELU) /* swiglu_forward */
        each_make(x, other, [](float a, float b) { return gated<GATE_GELU>(a, b); });
    else
        each_make(x, other, [](float a, float b) { return gated<GATE_SILU>(a, b); });
}

/* Starts the copies of what the op at the end reads besides, for the lane's groups of a strip, so
 * that the loads do not wait for each other. */
DEVICE void others_load(const struct cuda_gemm_own_args &args, uint4 *others, int row, int column)
{
    const bool is_pair = args.next.kind == OP_SWIGLU_BACKWARD; /* rows of [a | b] */
    const int64_t columns = args.end.columns;
    if (args.next.other.memory == NULL)
        return;
    UNROLLED(i, STRIP_GROUPS) {
        const int y = row + 4 * i;
        const bool exists = y < args.end.rows && column < columns;
        const uint16_t *from = (const uint16_t *)args.next.other.memory +
                               y * (is_pair ? 2 * columns : columns) + column;
        cp_async_16(others + i * WARP_LANES, from, exists);
        if (is_pair)
            cp_async_16(others + (STRIP_GROUPS + i) * WARP_LANES, from + columns, exists);
    }
    cp_async_commit();
}

/* Writes the gradients of a and b for eight elements of dy, from `at` on. */
DEVICE void gated_slopes_write(const struct cuda_gemm_next &next, const uint4 *others, int64_t at,
                               int64_t columns, const float (&dy)[CUDA_GROUP])
{
    float a[CUDA_GROUP], b[CUDA_GROUP];
    cuda_unpack({others[0], make_uint4(0, 0, 0, 0)}, next.other.dtype, a);
    cuda_unpack({others[STRIP_GROUPS * WARP_LANES], make_uint4(0, 0, 0, 0)}, next.other.dtype, b);
    if (next.gate == GATE_GELU) {
        UNROLLED(i, CUDA_GROUP)
            gated_slopes<GATE_GELU>(dy[i], &a[i], &b[i]);
    } else {
        UNROLLED(i, CUDA_GROUP)
            gated_slopes<GATE_SILU>(dy[i], &a[i], &b[i]);
    }
    cuda_write(next.result, cuda_span_make(at, INT64_MAX, true), a);
    cuda_write(next.result, cuda_span_make(at + columns, INT64_MAX, true), b);
}

/* Writes eight finished sums: one part's as they are, others with what is added to them, and then
 * the result of the op that reads them; x becomes what that op reads, or its result. */
DEVICE void sums_end(const struct cuda_gemm_own_args &args, const uint4 *others, int row,
                     int column, float (&x)[CUDA_GROUP])
{
    const struct cuda_sums_add_args &to = args.end;
    const int64_t row_at = row * to.columns, at = row_at + column;
    const struct cuda_span span = cuda_span_make(at, INT64_MAX, true);
    float y[CUDA_GROUP] = {};
    if (to.parts > 1) {
        cuda_write(to.sums, cuda_span_make(blockIdx.y * to.rows * to.columns + at, INT64_MAX, true),
                   x);
        return;
    }
    if (to.addend.memory != NULL) {
        cuda_read(to.addend, cuda_span_make(to.addend_is_matrix ? at : column, INT64_MAX, true), y);
        UNROLLED(i, CUDA_GROUP)
            x[i] += y[i];
    }
    const struct cuda_group product = cuda_pack(to.d.dtype, x);
    if (to.d.memory != NULL)
        cuda_put(to.d, span, product);
    if (args.next.result.memory == NULL)
        return;
    cuda_unpack(product, to.d.dtype, x); /* what the op would read */
    if (args.next.kind == OP_SWIGLU_FORWARD)
        return;
    if (args.next.kind == OP_SWIGLU_BACKWARD) {
        gated_slopes_write(args.next, others, row_at + at, to.columns, x);
        return;
    }
    if (args.next.other.memory != NULL)
        cuda_unpack({others[0], make_uint4(0, 0, 0, 0)}, args.next.other.dtype, y);
    next_make(args.next, x, y);
    cuda_write(args.next.result, span, x);
}

/* Writes swiglu's result for a strip, from those of a warp with columns of a and the next one with
 * those of b, each of which takes half of the rows.  All warps wait for each other before and
 * after. */
DEVICE void swiglu_write(const struct cuda_gemm_own_args &args, const float *strip, int row,
                         int column)
{
    const int lane = cuda_lane(), is_second = cuda_warp() % 2, half = STRIP_ROWS / 2;
    const float *a_strip = strip - is_second * STRIP_FLOATS;
    __syncthreads();
#pragma unroll 1
    for (int y = is_second * half + lane / 8; y < is_second * half + half; y += 4) {
        const float *from = a_strip + y * STRIP_STRIDE + lane % 8 * CHUNK;
        float a[CUDA_GROUP], b[CUDA_GROUP];
        if (row + y >= args.end.rows)
            continue;
        memcpy(a, __builtin_assume_aligned(from, 16), sizeof a);
        memcpy(b, __builtin_assume_aligned(from + STRIP_FLOATS, 16), sizeof b);
        next_make(args.next, a, b);
        cuda_write(args.next.result,
                   cuda_span_make((row + y) * (args.end.columns / 2) + column + lane % 8 * CHUNK,
                                  INT64_MAX, true),
                   a);
    }
    __syncthreads();
}

/* Passes the warp's sums, a strip at a time, through memory that no other warp uses, to lanes with
 * eight columns. */
DEVICE void sums_write(const struct cuda_gemm_own_args &args, const float (&sum)[4][8][4],
                       float *strip, int row, int column)
{
    const int lane = cuda_lane(), g = lane / 4, t = lane % 4 * 2;
    const bool is_swiglu = args.next.kind == OP_SWIGLU_FORWARD;
    const int to_column = column + cuda_warp() % 2 * args.apart + lane % 8 * CHUNK;
    uint4 *const others = (uint4 *)(strip + STRIP_ROWS * STRIP_STRIDE) + lane;
#pragma unroll 1 /* the end is long */
    for (int strip_row = 0; strip_row < WARP_SIDE; strip_row += STRIP_ROWS) {
        others_load(args, others, row + strip_row + lane / 8, to_column);
        UNROLLED(i, 4) {
            if (STRIP_ROWS * i == strip_row) {
                UNROLLED(n, 8) {
                    UNROLLED(e, 4)
                        strip[(g + e / 2 * 8) * STRIP_STRIDE + 8 * n + t + e % 2] = sum[i][n][e];
                }
            }
        }
        cp_async_wait<0>();
        __syncwarp();
#pragma unroll 1
        for (int i = 0; i < STRIP_GROUPS; i++) {
            const int y = 4 * i + lane / 8, to_row = row + strip_row + y;
            float *const own = strip + y * STRIP_STRIDE + lane % 8 * CHUNK;
            float x[CUDA_GROUP];
            if (to_row >= args.end.rows || to_column >= args.end.columns)
                continue;
            memcpy(x, __builtin_assume_aligned(own, 16), sizeof x);
            sums_end(args, others + i * WARP_LANES, to_row, to_column, x);
            if (is_swiglu)
                cuda_write({own, DTYPE_F32}, cuda_span_make(0, CUDA_GROUP, true), x);
        }
        __syncwarp();
        if (is_swiglu)
            swiglu_write(args, strip, row + strip_row, column);
    }
}

/* Starts the copies of one step's tiles, if there is such a step, and commits them as a group. */
template <typename T, int ROWS, bool DEEP_A, bool DEEP_B, bool WHOLE>
DEVICE void step_load(T *tiles, struct source<T> *a, struct source<T> *b, int apart, bool exists)
{
    if (!WHOLE || exists) {
        tile_load<T, DEEP_A, ROWS, own_threads<ROWS>, WHOLE>(tiles, a, WARP_SIDE);
        tile_load<T, DEEP_B, COLUMNS, own_threads<ROWS>, WHOLE>(tiles + ROWS * DEPTH, b, apart);
    }
    cp_async_commit();
}

/* WHOLE: the sides are multiples of a tile's and K is one of DEPTH, so that no copy needs a test of
 * its own. */
template <typename T, bool HALF_SUMS, int ROWS, bool TRANSPOSE_A, bool TRANSPOSE_B, bool WHOLE>
DEVICE void product_make(const struct cuda_gemm_own_args &args)
{
    constexpr int stages = own_stages<ROWS>, stage = stage_elements<ROWS>;
    DYN_SHARED(T, tiles); /* [stages][a, b], later the warps' strips; then the place of d's tile */
    int *const place = (int *)(tiles + stages * stage);
    const int m = (int)args.end.rows, n = (int)args.end.columns;
    const int rows = (m + ROWS - 1) / ROWS, columns = (n + COLUMNS - 1) / COLUMNS,
              steps = (args.k + DEPTH - 1) / DEPTH;
    const int band = (int)blockIdx.x / (BAND * columns), at = (int)blockIdx.x % (BAND * columns);
    const int height = min(BAND, rows - band * BAND);
    const int row = (band * BAND + at % height) * ROWS,
              column = at / height * (args.next.kind == OP_SWIGLU_FORWARD ? WARP_SIDE : COLUMNS);
    const struct cuda_part own = cuda_part_of(steps, args.end.parts, blockIdx.y);
    const int k = (int)own.begin * DEPTH; /* the part ends with a whole step */
    const int warp_row = cuda_warp() / 2 * WARP_SIDE, warp_column = cuda_warp() % 2 * WARP_SIDE;
    struct source<T> a =
        source_make<T, !TRANSPOSE_A, ROWS>(args.a, TRANSPOSE_A ? m : args.k, row, m, k, args.k);
    struct source<T> b = source_make<T, TRANSPOSE_B, COLUMNS>(args.b, TRANSPOSE_B ? args.k : n,
                                                              column, n, k, args.k);
    if (threadIdx.x == 0) { /* there it takes no registers during the products */
        place[0] = row;
        place[1] = column;
    }
    float sum[4][8][4] = {};
    int left = (int)(own.end - own.begin);
    for (int i = 0; i < stages - 1; i++)
        step_load<T, ROWS, !TRANSPOSE_A, TRANSPOSE_B, WHOLE>(tiles + i * stage, &a, &b, args.apart,
                                                             i < left);
    const bool works = WHOLE || (row + warp_row < m && column + warp_column < n);
    T *now = tiles;
    T *const last = tiles + (stages - 1) * stage;
#pragma unroll 1
    for (; left > 0; left--) {
        cp_async_wait<stages - 2>(); /* later tiles may be on their way */
        __syncthreads();
        /* Loads into the stage before this one, so that no register holds its address during the
         * products. */
        step_load<T, ROWS, !TRANSPOSE_A, TRANSPOSE_B, WHOLE>(now == tiles ? last : now - stage, &a,
                                                             &b, args.apart, left >= stages);
        if constexpr (HALF_SUMS) {
            if (works)
                step_add_half<T, ROWS, TRANSPOSE_A, TRANSPOSE_B>(sum, now, now + ROWS * DEPTH,
                                                                 warp_row, warp_column);
        } else {
            if (works)
                step_add<T, ROWS, TRANSPOSE_A, TRANSPOSE_B>(sum, now, now + ROWS * DEPTH, warp_row,
                                                            warp_column);
        }
        now = now == last ? tiles : now + stage;
    }
    cp_async_wait<0>();
    __syncthreads();
    sums_write(args, sum, (float *)tiles + cuda_warp() * STRIP_FLOATS,
               place[0] + cuda_warp() / 2 * WARP_SIDE, place[1]);
}

template <typename T, bool HALF_SUMS, int ROWS, bool TRANSPOSE_A, bool TRANSPOSE_B, bool WHOLE>
static __global__ void __launch_bounds__(own_threads<ROWS>, own_blocks_min<ROWS>)
    gemm_own(const struct cuda_gemm_own_args args)
{
    if constexpr (own_compiled)
        product_make<T, HALF_SUMS, ROWS, TRANSPOSE_A, TRANSPOSE_B, WHOLE>(args);
    else
        __trap();
}

typedef void (*own_kernel)(const struct cuda_gemm_own_args);

template <typename T, bool HALF_SUMS, int ROWS, bool WHOLE>
static own_kernel kernel_by_sides(const struct cuda_gemm_own_args &args)
{
    return args.transpose_a   ? gemm_own<T, HALF_SUMS, ROWS, true, false, WHOLE>
           : args.transpose_b ? gemm_own<T, HALF_SUMS, ROWS, false, true, WHOLE>
                              : gemm_own<T, HALF_SUMS, ROWS, false, false, WHOLE>;
}

template <int ROWS, bool WHOLE> static own_kernel kernel_of(const struct cuda_gemm_own_args &args)
{
    if (args.half_sums)
        return kernel_by_sides<__half, true, ROWS, WHOLE>(args);
    return args.dtype == DTYPE_BF16 ? kernel_by_sides<__nv_bfloat16, false, ROWS, WHOLE>(args)
                                    : kernel_by_sides<__half, false, ROWS, WHOLE>(args);
}

static int64_t tiles_of(const struct cuda_gemm_own_args *args)
{
    return (args->end.rows + args->tile_rows - 1) / args->tile_rows *
           ((args->end.columns + COLUMNS - 1) / COLUMNS);
}

int32_t cuda_gemm_own_parts(const struct cuda_gemm_own_args *args)
{
    const int64_t fit =
        (int64_t)args->sums_bytes / (args->end.rows * args->end.columns * (int64_t)sizeof(float));
    const int64_t parts = min(
        min(SPLIT_ROWS / args->tile_rows / tiles_of(args), (int64_t)args->k / SPLIT_K_MIN), fit);
    return (int32_t)max(parts, (int64_t)1);
}

cudaError_t cuda_launch_gemm_own(cudaStream_t stream, const struct cuda_gemm_own_args *args)
{
    struct cuda_gemm_own_args own = *args;
    own.end.parts = cuda_gemm_own_parts(args);
    own.apart =
        own.next.kind == OP_SWIGLU_FORWARD ? (int32_t)(own.end.columns / 2) : CUDA_GEMM_SIDE;
    const bool is_tall = own.tile_rows == 256, is_whole = own.end.rows % 128 == 0 &&
                                                          own.end.columns % COLUMNS == 0 &&
                                                          own.k % DEPTH == 0;
    const own_kernel kernel = is_tall    ? kernel_of<256, true>(own)
                              : is_whole ? kernel_of<128, true>(own)
                                         : kernel_of<128, false>(own);
    const size_t bytes = is_tall ? own_bytes<256> : own_bytes<128>;
    cudaError_t error = cuda_shared_prefer((const void *)kernel, bytes);
    if (error == cudaSuccess)
        error = LAUNCH((kernel), dim3((unsigned)tiles_of(args), (unsigned)own.end.parts),
                       dim3((unsigned)own.tile_rows), bytes, stream, own);
    return error != cudaSuccess || own.end.parts == 1 ? error
                                                      : cuda_launch_sums_add(stream, &own.end);
}
