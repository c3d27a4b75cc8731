/* gemm on matrix units: d (+)= op(a) op(b) + bias, where a and b have the same 16-bit dtype, summed
 * in fp32.
 *
 * A group owns a square tile of d.  Each of its warps of 32 work-items owns a rectangle of the
 * tile.  Local memory contains GT_INNER steps of the inner dimension: rows of a and columns of b
 * along k, two steps to a word.  Meanwhile the next steps are fetched into registers.  Each vendor
 * defines how a unit's operands are spread over the warp's registers.  The section "units" below
 * loads these fragments, multiplies them, and returns the positions of the elements of d.
 * Work-items 32 w .. 32 w + 31 of a group must be warp w.  A known product proves that, the layouts
 * and the compiler's code before this kernel is used.  With GT_EMULATED, for tests, local memory
 * and barriers stand in for a unit.
 */
#define GT_UNIT_MMA_16 1 /* PTX mma.m16n8k16, sm_80 */
#define GT_UNIT_MMA_8 2  /* PTX mma.m16n8k8, sm_75 for fp16 */
#define GT_UNIT_WMMA 3   /* wave32 WMMA 16x16x16, gfx11 */

#define GT_LANES 32
#define GT_WARPS (GT_WARPS_DOWN * GT_WARPS_ACROSS)
#define GT_ITEMS (GT_LANES * GT_WARPS)
#define GT_INNER 32
/* Words per row of a tile; a fragment's rows fall into different banks. */
#define GT_PITCH (GT_INNER / 2 + 4)
/* Chunks of 16 elements that a work-item fetches. */
#define GT_CHUNKS (GT_TILE * GT_INNER / 16 / GT_ITEMS)

#if GT_UNIT == GT_UNIT_WMMA
#define GT_UNIT_ROWS 16
#define GT_UNIT_COLUMNS 16
#define GT_UNIT_INNER 16
typedef uint8 gt_part_a; /* a work-item's registers for its parts of a, b and d */
typedef uint8 gt_part_b;
typedef float8 gt_part_d;
#else
#define GT_UNIT_ROWS 16
#define GT_UNIT_COLUMNS 8
#if GT_UNIT == GT_UNIT_MMA_16
#define GT_UNIT_INNER 16
typedef uint4 gt_part_a;
typedef uint2 gt_part_b;
#else
#define GT_UNIT_INNER 8
typedef uint2 gt_part_a;
typedef uint gt_part_b;
#endif
typedef float4 gt_part_d;
#endif
#define GT_WORDS_D (GT_UNIT_ROWS * GT_UNIT_COLUMNS / GT_LANES)

#define GT_DOWN (GT_TILE / GT_WARPS_DOWN / GT_UNIT_ROWS)
#define GT_ACROSS (GT_TILE / GT_WARPS_ACROSS / GT_UNIT_COLUMNS)

/* Arrays become registers only if loops over them are unrolled; an emulated product is too long for
 * that. */
#ifdef GT_EMULATED
#define GT_UNROLL
#else
#define GT_UNROLL _Pragma("unroll")
#endif
#define GT_UNROLLED(i, count) GT_UNROLL for (uint i = 0; i < (count); i++)

/* ---- units: `tile` is the first of a part's rows, at a step of k that is a multiple of
 * GT_UNIT_INNER ---- */

#if GT_UNIT == GT_UNIT_WMMA
/* Lane l has all of row l % 16 of a, and all of column l % 16 of b; both halves of the warp have
 * the same. */
GT_INLINE uint8 gt_part_load(__local const uint *tile, uint lane)
{
    __local const uint4 *row = (__local const uint4 *)(tile + lane % 16 * GT_PITCH);
    return (uint8)(row[0], row[1]);
}
#define gt_part_a_load(tile, lane) gt_part_load(tile, lane)
#define gt_part_b_load(tile, lane) gt_part_load(tile, lane)

/* Return the row and column of element e of lane l of d. */
GT_INLINE uint gt_part_row(uint lane, uint e)
{
    return 2 * e + lane / 16;
}

GT_INLINE uint gt_part_column(uint lane, uint e)
{
    return lane % 16;
}
#else
/* Register i of lane l contains, of a, row l / 4 + 8 (i % 2), steps 2 (l % 4) + 8 (i / 2) and the
 * next; of b, column l / 4, steps 2 (l % 4) + 8 i and the next. */
GT_INLINE gt_part_a gt_part_a_load(__local const uint *tile, uint lane)
{
    __local const uint *row = tile + lane / 4 * GT_PITCH + lane % 4;
#if GT_UNIT == GT_UNIT_MMA_16
    return (uint4)(row[0], row[8 * GT_PITCH], row[4], row[8 * GT_PITCH + 4]);
#else
    return (uint2)(row[0], row[8 * GT_PITCH]);
#endif
}

GT_INLINE gt_part_b gt_part_b_load(__local const uint *tile, uint lane)
{
    __local const uint *row = tile + lane / 4 * GT_PITCH + lane % 4;
#if GT_UNIT == GT_UNIT_MMA_16
    return (uint2)(row[0], row[4]);
#else
    return row[0];
#endif
}

/* Return the row and column of element e of lane l of d. */
GT_INLINE uint gt_part_row(uint lane, uint e)
{
    return lane / 4 + e / 2 * 8;
}

GT_INLINE uint gt_part_column(uint lane, uint e)
{
    return lane % 4 * 2 + e % 2;
}
#endif

#if defined(GT_EMULATED)
#include "tests/opcheck/emulated_units.clh"
#elif GT_UNIT == GT_UNIT_WMMA
#ifndef __has_builtin
#error this compiler cannot be asked for WMMA
#elif !__has_builtin(__builtin_amdgcn_wmma_f32_16x16x16_f16_w32)
#error this compiler has no WMMA
#endif
#if !GT_UNIT_IS_BF16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define GT_WMMA(a, b, d) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(as_half16(a), as_half16(b), d)
#else
#define GT_WMMA(a, b, d) \
    __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(as_short16(a), as_short16(b), d)
#endif
GT_INLINE void gt_multiply(gt_part_d *d, const gt_part_a *a, const gt_part_b *b)
{
    *d = GT_WMMA(*a, *b, *d);
}
#define GT_MULTIPLY(d, a, b) gt_multiply(d, a, b)
#else
#if GT_UNIT_IS_BF16
#define GT_PTX_TYPES "row.col.f32.bf16.bf16.f32 "
#else
#define GT_PTX_TYPES "row.col.f32.f16.f16.f32 "
#endif
GT_INLINE void gt_multiply(gt_part_d *d, const gt_part_a *a, const gt_part_b *b)
{
    float d0 = d->s0, d1 = d->s1, d2 = d->s2, d3 = d->s3;
#if GT_UNIT == GT_UNIT_MMA_16
    asm volatile("mma.sync.aligned.m16n8k16." GT_PTX_TYPES
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
                 : "r"(a->s0), "r"(a->s1), "r"(a->s2), "r"(a->s3), "r"(b->s0), "r"(b->s1));
#else
    asm volatile("mma.sync.aligned.m16n8k8." GT_PTX_TYPES
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
                 : "r"(a->s0), "r"(a->s1), "r"(*b));
#endif
    *d = (float4)(d0, d1, d2, d3);
}
#define GT_MULTIPLY(d, a, b) gt_multiply(d, a, b)
#endif

/* ---- tiles ---- */

/* A matrix of rows x inner, stored as rows x inner or, if `turned`, as inner x rows.  `wide`: eight
 * neighbours may be read as 16 bytes. */
struct gt_source {
    __global const ushort *memory;
    long rows, inner;
    int turned, wide;
};

/* gt_source_one() returns one element, gt_source_eight() eight neighbours in memory; zeros outside
 * the matrix. */
GT_INLINE uint gt_source_one(const struct gt_source *from, long row, long k)
{
    uint value = 0;
    if (row < from->rows && k < from->inner)
        value = from->memory[from->turned ? k * from->rows + row : row * from->inner + k];
    return value;
}

GT_INLINE uint4 gt_source_eight(const struct gt_source *from, long row, long k)
{
    uint4 value = (uint4)(0);
    if (row < from->rows && k < from->inner)
        value = *(__global const uint4 *)(from->memory + (from->turned ? k * from->rows + row
                                                                       : row * from->inner + k));
    return value;
}

/* A chunk: steps k .. k + 15 of one row, or k and k + 1 of eight rows. */
GT_INLINE uint8 gt_chunk_fetch(const struct gt_source *from, long row, long k)
{
    uint8 words;
    if (from->wide && !from->turned) {
        words.lo = gt_source_eight(from, row, k);
        words.hi = gt_source_eight(from, row, k + 8);
    } else if (from->wide) {
        const uint4 first = gt_source_eight(from, row, k),
                    second = gt_source_eight(from, row, k + 1);
        words.even = (first & 0xffffu) | second << 16;
        words.odd = first >> 16 | (second & 0xffff0000u);
    } else {
        const long down = from->turned ? 1 : 0, along = from->turned ? 0 : 2;
        uint one[8];
        GT_UNROLLED(i, 8) {
            const long r = row + i * down, step = k + i * along;
            one[i] = gt_source_one(from, r, step) | gt_source_one(from, r, step + 1) << 16;
        }
        words = (uint8)(one[0], one[1], one[2], one[3], one[4], one[5], one[6], one[7]);
    }
    return words;
}

/* Return the start of a chunk in the tile: neighbouring work-items take chunks that are neighbours
 * in memory. */
GT_INLINE uint gt_chunk_row(uint chunk, int turned)
{
    return turned ? chunk % (GT_TILE / 8) * 8 : chunk / (GT_INNER / 16);
}

GT_INLINE uint gt_chunk_step(uint chunk, int turned)
{
    return turned ? chunk / (GT_TILE / 8) * 2 : chunk % (GT_INNER / 16) * 16;
}

GT_INLINE void gt_tile_fetch(const struct gt_source *from, long first_row, long first_step,
                             uint item, uint8 *chunks)
{
    GT_UNROLLED(c, GT_CHUNKS) {
        const uint chunk = c * GT_ITEMS + item;
        chunks[c] = gt_chunk_fetch(from, first_row + gt_chunk_row(chunk, from->turned),
                                   first_step + gt_chunk_step(chunk, from->turned));
    }
}

GT_INLINE void gt_tile_store(__local uint *tile, int turned, uint item, const uint8 *chunks)
{
    GT_UNROLLED(c, GT_CHUNKS) {
        const uint chunk = c * GT_ITEMS + item;
        __local uint *to =
            tile + gt_chunk_row(chunk, turned) * GT_PITCH + gt_chunk_step(chunk, turned) / 2;
        GT_UNROLLED(i, 8)
            to[i * (turned ? GT_PITCH : 1)] = ((const uint *)&chunks[c])[i];
    }
}

GT_KERNEL(GT_ITEMS)
gt_gemm_matrix(GT_ARRAY(const ushort, a), GT_ARRAY(const ushort, b), GT_TENSOR(bias), GT_TENSOR(d),
               int accumulate, long m, long n, long k)
{
    __local uint tile_a[GT_TILE * GT_PITCH] __attribute__((aligned(16)));
    __local uint tile_b[GT_TILE * GT_PITCH] __attribute__((aligned(16)));
#ifdef GT_EMULATED
    __local uint registers[GT_WARPS * GT_REGISTERS];
#endif
    const uint item = (uint)get_local_id(0), lane = item % GT_LANES, warp = item / GT_LANES;
    const uint warp_row = warp / GT_WARPS_ACROSS * GT_DOWN * GT_UNIT_ROWS;
    const uint warp_column = warp % GT_WARPS_ACROSS * GT_ACROSS * GT_UNIT_COLUMNS;
    const struct gt_source from_a = {a + a_at, m, k, GT_TURNED_A, GT_WIDE};
    const struct gt_source from_b = {b + b_at, n, k, GT_TURNED_B, GT_WIDE};
    long first_row, first_column;
    gt_tile_place(m, n, GT_TILE, &first_row, &first_column);
    uint8 next_a[GT_CHUNKS], next_b[GT_CHUNKS];
    gt_part_d sum[GT_DOWN][GT_ACROSS];
    GT_UNROLLED(i, GT_DOWN) {
        GT_UNROLLED(j, GT_ACROSS)
            sum[i][j] = (gt_part_d)(0.0f);
    }
    gt_tile_fetch(&from_a, first_row, 0, item, next_a);
    gt_tile_fetch(&from_b, first_column, 0, item, next_b);
    for (long first = 0; first < k; first += GT_INNER) {
        GT_SYNC();
        gt_tile_store(tile_a, from_a.turned, item, next_a);
        gt_tile_store(tile_b, from_b.turned, item, next_b);
        GT_SYNC();
        gt_tile_fetch(&from_a, first_row, first + GT_INNER, item, next_a);
        gt_tile_fetch(&from_b, first_column, first + GT_INNER, item, next_b);
        GT_UNROLL
        for (uint step = 0; step < GT_INNER; step += GT_UNIT_INNER) {
            gt_part_a part_a[GT_DOWN];
            gt_part_b part_b[GT_ACROSS];
            GT_UNROLLED(i, GT_DOWN)
                part_a[i] = gt_part_a_load(
                    tile_a + (warp_row + i * GT_UNIT_ROWS) * GT_PITCH + step / 2, lane);
            GT_UNROLLED(j, GT_ACROSS)
                part_b[j] = gt_part_b_load(
                    tile_b + (warp_column + j * GT_UNIT_COLUMNS) * GT_PITCH + step / 2, lane);
            GT_UNROLLED(i, GT_DOWN) {
                GT_UNROLLED(j, GT_ACROSS)
                    GT_MULTIPLY(&sum[i][j], &part_a[i], &part_b[j]);
            }
        }
    }
    GT_UNROLLED(i, GT_DOWN) {
        GT_UNROLLED(j, GT_ACROSS) {
            GT_UNROLLED(e, GT_WORDS_D) {
                const long row = first_row + warp_row + i * GT_UNIT_ROWS + gt_part_row(lane, e);
                const long column =
                    first_column + warp_column + j * GT_UNIT_COLUMNS + gt_part_column(lane, e);
                const long at = row * n + column;
                if (row < m && column < n)
                    GT_GEMM_END(at, column, ((const float *)&sum[i][j])[e]);
            }
        }
    }
}
