/* Products of fp16 with fp16 sums, which GeForce cards add at twice the rate of fp32 sums.
 *
 * Tensor cores sum 32 products in fp16; these sums are added up in fp32, so that errors stay as
 * small as doc/numerics.md derives, also where a card cuts its sums off.  A block computes 128 x
 * 128 elements with four warps of 64 x 64 each, in steps of 32 of K; the tiles of this step and of
 * two steps ahead are in shared memory.  A warp finishes the 32 products of 16 columns before it
 * takes the next, so that few fp16 sums are alive: two blocks fit on a multiprocessor.
 *
 * Along the side of a tile (the rows of op(a), the columns of op(b)) lies a row of memory, or along
 * K ("deep").  The lengths of rows are multiples of 8, and all addresses of 16 bytes, so that a
 * chunk of 8 elements exists as a whole or not at all; missing ones are zeros.  Where a result has
 * too few blocks, K is cut into parts, whose sums cuda_launch_sums_add() adds up in order.
 */
#include "backends/cuda/cuda_floats.h"

#define SIDE 128
#define DEPTH 32
#define STAGES 3
#define THREADS 128
#define WARP_SIDE 64
#define CHUNK 8
#define TILE (SIDE * DEPTH)
#define CHUNKS (TILE / CHUNK / THREADS) /* of a thread, in each tile */
#define BAND 8 /* rows of tiles that are computed together, for the L2 cache */
/* Floats of a row of finished sums: rows begin in different banks. */
#define STRIP_STRIDE (WARP_SIDE + 8)
#define SPLIT_K_MIN 2048 /* the least part of K */
#define BLOCKS 512       /* that more parts aim at: two for each multiprocessor of a large card */
#define SHARED_BYTES (STAGES * 2 * TILE * sizeof(__half))

/* The chunks in a row of a tile. */
template <bool DEEP> constexpr int row_chunks = (DEEP ? DEPTH : SIDE) / CHUNK;

/* Returns where a chunk is in a tile.  Eight chunks that are written or read at once lie in
 * different banks. */
template <bool DEEP> DEVICE int chunk_at(int row, int chunk)
{
    return (row * row_chunks<DEEP> + (chunk ^ (DEEP ? row / 2 % 4 : row % 8))) * CHUNK;
}

/* What a thread still has to load: its first chunk of the next tile, and how many elements there
 * are from its first one on, along the side and along K. */
struct source {
    const __half *from;
    int length; /* of a row of memory */
    int side, depth;
};

/* Returns the source of tiles that begin at `first` of `end` along the side and at `k` of `k_end`.
 */
template <bool DEEP>
DEVICE struct source source_make(const void *matrix, int length, int first, int end, int k,
                                 int k_end)
{
    const int row = (int)threadIdx.x / row_chunks<DEEP>,
              column = (int)threadIdx.x % row_chunks<DEEP> * CHUNK;
    const int64_t row_first = (DEEP ? first : k) + row, column_first = (DEEP ? k : first) + column;
    const struct source source = {(const __half *)matrix + row_first * length + column_first,
                                  length, end - first - (DEEP ? row : column),
                                  k_end - k - (DEEP ? column : row)};
    return source;
}

/* Starts the copies of the next tile, and goes on to the one after it.  WHOLE: all of the tile
 * exists. */
template <bool DEEP, bool WHOLE> DEVICE void tile_load(__half *tile, struct source *source)
{
    constexpr int pass = THREADS / row_chunks<DEEP>; /* rows */
    const int row = (int)threadIdx.x / row_chunks<DEEP>,
              chunk = (int)threadIdx.x % row_chunks<DEEP>;
    UNROLLED(i, CHUNKS) {
        const bool fetch = WHOLE || (source->side > (DEEP ? i * pass : 0) &&
                                     source->depth > (DEEP ? 0 : i * pass));
        cp_async_16(tile + chunk_at<DEEP>(row + i * pass, chunk),
                    source->from + i * pass * (int64_t)source->length, fetch);
    }
    source->from += DEEP ? DEPTH : DEPTH * (int64_t)source->length;
    source->depth -= DEPTH;
}

/* Loads 16 x 16 elements, from `first` along the side and from `k` on.  Of the four matrices the
 * second is 8 further along the side for a, and along K for b; see mma_m16n8k16_half(). */
template <bool DEEP, bool IS_A>
DEVICE void fragment_load(uint32_t (&r)[4], const __half *tile, int first, int k)
{
    const int lane = cuda_lane();
    const int row = DEEP == IS_A ? lane % 16 : lane / 16 * 8 + lane % 8;
    const int chunk = DEEP == IS_A ? lane / 16 : lane / 8 % 2;
    if constexpr (DEEP)
        ldmatrix_x4(r, tile + first * DEPTH + chunk_at<DEEP>(row, k / CHUNK ^ chunk));
    else
        ldmatrix_x4_trans(r, tile + k * SIDE + chunk_at<DEEP>(row, first / CHUNK ^ chunk));
}

/* Adds the products of a step to the warp's sums, from `row` of a's tile and `column` of b's. */
template <bool TRANSPOSE_A, bool TRANSPOSE_B>
DEVICE void step_add(float (&sum)[4][8][4], const __half *a_tile, const __half *b_tile, int row,
                     int column)
{
    uint32_t a[2][4][4];
    UNROLLED(k, 2)
        UNROLLED(i, 4)
            fragment_load<!TRANSPOSE_A, true>(a[k][i], a_tile, row + 16 * i, 16 * k);
    UNROLLED(j, 4) {
        uint32_t b[4], part[4][2][2] = {};
        UNROLLED(k, 2) {
            fragment_load<TRANSPOSE_B, false>(b, b_tile, column + 16 * j, 16 * k);
            UNROLLED(i, 4)
                UNROLLED(n, 2)
                    mma_m16n8k16_half(part[i][n], a[k][i], b[2 * n], b[2 * n + 1]);
        }
        UNROLLED(i, 4) {
            UNROLLED(n, 2) {
                __half value[4];
                memcpy(static_cast<void *>(value), part[i][n], sizeof value);
                UNROLLED(e, 4)
                    sum[i][2 * j + n][e] += to_float(value[e]);
            }
        }
    }
}

/* Writes eight finished sums: one part's as they are, others with what is added to them. */
DEVICE void sums_end(const struct cuda_sums_add_args &to, int row, int column,
                     float (&x)[CUDA_GROUP])
{
    const int64_t at = row * to.columns + column;
    if (to.parts > 1) {
        cuda_write(to.sums, cuda_span_make(blockIdx.y * to.rows * to.columns + at, INT64_MAX, true),
                   x);
        return;
    }
    if (to.addend.memory != NULL) {
        float y[CUDA_GROUP];
        cuda_read(to.addend, cuda_span_make(to.addend_is_matrix ? at : column, INT64_MAX, true), y);
        UNROLLED(i, CUDA_GROUP)
            x[i] += y[i];
    }
    cuda_write(to.d, cuda_span_make(at, INT64_MAX, true), x);
}

/* Passes the warp's sums, 16 rows at a time, through memory that no other warp uses, to lanes with
 * eight columns. */
DEVICE void sums_write(const struct cuda_sums_add_args &to, const float (&sum)[4][8][4],
                       float *strip, int row, int column)
{
    const int lane = cuda_lane(), g = lane / 4, t = lane % 4 * 2;
    UNROLLED(i, 4) {
        UNROLLED(n, 8) {
            UNROLLED(e, 4)
                strip[(g + e / 2 * 8) * STRIP_STRIDE + 8 * n + t + e % 2] = sum[i][n][e];
        }
        __syncwarp();
#pragma unroll 1
        for (int y = lane / 8; y < 16; y += 4) {
            const int to_row = row + 16 * i + y, to_column = column + lane % 8 * CHUNK;
            float x[CUDA_GROUP];
            if (to_row >= to.rows || to_column >= to.columns)
                continue;
            memcpy(x, __builtin_assume_aligned(strip + y * STRIP_STRIDE + lane % 8 * CHUNK, 16),
                   sizeof x);
            sums_end(to, to_row, to_column, x);
        }
        __syncwarp();
    }
}

/* Starts the copies of one step's tiles, if there is such a step, and commits them as a group. */
template <bool DEEP_A, bool DEEP_B, bool WHOLE>
DEVICE void step_load(__half *tiles, struct source *a, struct source *b, bool exists)
{
    if (!WHOLE || exists) {
        tile_load<DEEP_A, WHOLE>(tiles, a);
        tile_load<DEEP_B, WHOLE>(tiles + TILE, b);
    }
    cp_async_commit();
}

/* WHOLE: the sides are multiples of SIDE and K is one of DEPTH, so that no copy needs a test of its
 * own. */
template <bool TRANSPOSE_A, bool TRANSPOSE_B, bool WHOLE>
static __global__ void __launch_bounds__(THREADS, 2)
    gemm_half(const struct cuda_half_sums_args args)
{
    DYN_SHARED(__half, tiles); /* [STAGES][a, b][TILE], then the warps' strips */
    const int m = (int)args.end.rows, n = (int)args.end.columns;
    const int rows = (m + SIDE - 1) / SIDE, columns = (n + SIDE - 1) / SIDE,
              steps = (args.k + DEPTH - 1) / DEPTH;
    const int band = (int)blockIdx.x / (BAND * columns), at = (int)blockIdx.x % (BAND * columns);
    const int height = min(BAND, rows - band * BAND);
    const int row = (band * BAND + at % height) * SIDE, column = at / height * SIDE;
    const struct cuda_part own = cuda_part_of(steps, args.end.parts, blockIdx.y);
    const int k = (int)own.begin * DEPTH; /* the part ends with a whole step */
    const int warp_row = cuda_warp() / 2 * WARP_SIDE, warp_column = cuda_warp() % 2 * WARP_SIDE;
    struct source a =
        source_make<!TRANSPOSE_A>(args.a, TRANSPOSE_A ? m : args.k, row, m, k, args.k);
    struct source b =
        source_make<TRANSPOSE_B>(args.b, TRANSPOSE_B ? args.k : n, column, n, k, args.k);
    float sum[4][8][4] = {};
    int left = (int)(own.end - own.begin);
    for (int stage = 0; stage < STAGES - 1; stage++)
        step_load<!TRANSPOSE_A, TRANSPOSE_B, WHOLE>(tiles + 2 * stage * TILE, &a, &b, stage < left);
    const bool works = WHOLE || (row + warp_row < m && column + warp_column < n);
    __half *now = tiles, *later = tiles + 2 * (STAGES - 1) * TILE;
#pragma unroll 1
    for (; left > 0; left--) {
        cp_async_wait<1>(); /* the next tile may be on its way */
        __syncthreads();
        step_load<!TRANSPOSE_A, TRANSPOSE_B, WHOLE>(later, &a, &b, left >= STAGES);
        if (works)
            step_add<TRANSPOSE_A, TRANSPOSE_B>(sum, now, now + TILE, warp_row, warp_column);
        later = now;
        now = now == tiles + 2 * (STAGES - 1) * TILE ? tiles : now + 2 * TILE;
    }
    cp_async_wait<0>();
    __syncthreads();
    sums_write(args.end, sum, (float *)tiles + cuda_warp() * 16 * STRIP_STRIDE, row + warp_row,
               column + warp_column);
}

template <bool WHOLE> static auto kernel_of(const struct cuda_half_sums_args *args)
{
    return args->transpose_a   ? gemm_half<true, false, WHOLE>
           : args->transpose_b ? gemm_half<false, true, WHOLE>
                               : gemm_half<false, false, WHOLE>;
}

/* The parts depend on the shape only. */
cudaError_t cuda_launch_half_sums(cudaStream_t stream, const struct cuda_half_sums_args *args)
{
    struct cuda_half_sums_args own = *args;
    struct cuda_sums_add_args &end = own.end;
    const int64_t tiles = (end.rows + SIDE - 1) / SIDE * ((end.columns + SIDE - 1) / SIDE);
    const int64_t fit = (int64_t)own.sums_bytes / (end.rows * end.columns * (int64_t)sizeof(float));
    end.parts =
        (int32_t)max(min(min(BLOCKS / tiles, (int64_t)own.k / SPLIT_K_MIN), fit), (int64_t)1);
    const bool whole = end.rows % SIDE == 0 && end.columns % SIDE == 0 && own.k % DEPTH == 0;
    const auto kernel = whole ? kernel_of<true>(&own) : kernel_of<false>(&own);
    const dim3 grid((unsigned)tiles, (unsigned)end.parts);
    cudaError_t error = cuda_shared_prefer((const void *)kernel, SHARED_BYTES);
    if (error == cudaSuccess)
        error = LAUNCH((kernel), grid, dim3(THREADS), SHARED_BYTES, stream, own);
    return error != cudaSuccess || end.parts == 1 ? error : cuda_launch_sums_add(stream, &end);
}
