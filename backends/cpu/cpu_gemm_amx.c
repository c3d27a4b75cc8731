/* Tiles of bf16 products on the processor's matrix unit, AMX.
 *
 * Both operands of a tile are packed, at most 256 of k at a time, into blocks of 16 lines by 32 of
 * k: `a` line by line, `b` by pairs of k.  32 x 32 blocks of the result are then computed from two
 * strips of lines each, kept in fp32 between the portions of k, and rounded once after the last
 * portion.  An element sums its products in groups of 32 of k for any size of tiles and portions,
 * so neither affects its bits.  The unit treats inputs and results below 2^-126 as zero.  Each
 * block prefetches its rows of d and a part of the next portion, a few cache lines at a time.
 * Compiled once, with its own flags; chosen at run time.  Intel SDM vol. 2: TDPBF16PS
 */
#include "backends/cpu/cpu_gemm.h"

#include <immintrin.h>

#define STRIP 16               /* lines of a packed block */
#define DEPTH 32               /* of k in a packed block */
#define PACKED (STRIP * DEPTH) /* elements of a packed block: 1 KiB */
#define SIDE (2 * STRIP)       /* side of a block of the result */
#define BLOCK (SIDE * SIDE)    /* elements of such a block: four quarters of 16 x 16, row by row */
#define QUARTER (STRIP * STRIP)
#define PORTION_MAX 256 /* of k; two strips of a then stay in the first-level cache */
#define ROWS_MAX 512
#define COLUMNS_MAX 512

/* Lines of an operand along m or n.  Element (line, k) is memory[line * line_stride + k *
 * k_stride].  One of the strides is 1. */
struct lines {
    const uint16_t *memory;
    int64_t line_stride, k_stride;
    int64_t count; /* lines beyond it are packed as zero */
};

struct portion {
    int64_t begin, size;
};

/* Loads 16 lines from `line`, 32 of k from `k`, by line: for operands in which k is contiguous. */
static inline void block_load_by_line(const struct lines *from, int64_t line, int64_t k,
                                      int64_t depth, __m512i v[static STRIP])
{
    const __mmask32 mask = depth >= DEPTH ? 0xffffffffu : (1u << depth) - 1u;
    const uint16_t *memory = from->memory + line * from->line_stride + k;
    for (int i = 0; i < STRIP; i++) {
        v[i] = line + i < from->count ? _mm512_maskz_loadu_epi16(mask, memory)
                                      : _mm512_setzero_si512();
        memory += from->line_stride;
    }
}

/* The same by pairs of k, for operands in which lines are contiguous. */
static inline void block_load_by_pair(const struct lines *from, int64_t line, int64_t k,
                                      int64_t depth, __m512i v[static STRIP])
{
    const int64_t lines = from->count - line;
    const __mmask16 mask = (__mmask16)(lines >= STRIP ? 0xffffu : (1u << lines) - 1u);
    const uint16_t *memory = from->memory + k * from->k_stride + line;
    for (int i = 0; i < STRIP; i++) {
        const __mmask16 low_mask = 2 * i < depth ? mask : 0,
                        high_mask = 2 * i + 1 < depth ? mask : 0;
        const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(low_mask, memory));
        const __m512i high =
            _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(high_mask, memory + from->k_stride));
        v[i] = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
        memory += 2 * from->k_stride;
    }
}

/* Packs one block of 16 lines and 32 of k into `out`: vectors of 16 pairs of k of a line, or of a
 * pair of 16 lines. */
static inline void block_pack(const struct lines *from, int64_t line, int64_t k, int64_t depth,
                              bool by_line, uint16_t *out)
{
    __m512i v[STRIP];
    if (from->k_stride == 1)
        block_load_by_line(from, line, k, depth, v);
    else
        block_load_by_pair(from, line, k, depth, v);
    if ((from->k_stride == 1) != by_line)
        cpu_square_transpose((cpu_vector *)v);
    for (int i = 0; i < STRIP; i++)
        _mm512_store_si512(out + i * DEPTH, v[i]);
}

/* Packs a portion of k of all strips, in the operand's memory order. */
static void lines_pack(const struct lines *from, struct portion portion, bool by_line,
                       uint16_t *out)
{
    const int64_t blocks = size_ceil_div(portion.size, DEPTH),
                  strips = size_ceil_div(from->count, SIDE) * 2;
    const bool along_k = from->k_stride == 1;
    for (int64_t outer = 0; outer < (along_k ? strips : blocks); outer++) {
        for (int64_t inner = 0; inner < (along_k ? blocks : strips); inner++) {
            const int64_t strip = along_k ? outer : inner, block = along_k ? inner : outer;
            uint16_t *to = out + (strip * blocks + block) * PACKED;
            if (strip * STRIP >= from->count)
                memset(to, 0, PACKED * sizeof *to);
            else
                block_pack(from, strip * STRIP, portion.begin + block * DEPTH,
                           portion.size - block * DEPTH, by_line, to);
        }
    }
}

/* Returns what lines_pack() reads. */
static struct cpu_ahead lines_ahead(const struct lines *from, struct portion portion)
{
    const bool along_k = from->k_stride == 1;
    return (struct cpu_ahead){
        .row = (const char *)(from->memory + portion.begin * from->k_stride),
        .stride_bytes =
            (along_k ? from->line_stride : from->k_stride) * (int64_t)sizeof *from->memory,
        .length_bytes = (along_k ? portion.size : from->count) * (int64_t)sizeof *from->memory,
        .rows = along_k ? from->count : portion.size,
    };
}

/* Compilers do not see the memory that tile instructions access; no access may move across this
 * barrier. */
static inline void tiles_barrier(void)
{
    __asm__ volatile("" ::: "memory");
}

/* A block of the result.  block_multiply() sets sums (+)= two strips of a times two strips of b. */
struct block {
    const uint16_t *a, *b;
    float *sums;
    int64_t strip, packed; /* elements between strips; packed blocks in a strip */
    bool add;
    struct cpu_ahead *next,
        d; /* the next portion of a, then of b; the rows of d that the block is stored in */
    int64_t next_lines; /* to prefetch per packed block */
};

/* Returns a block of a portion of k, for which `count` blocks prefetch the next portion. */
static struct block block_of(int64_t k, struct cpu_ahead next[static 2], int64_t count)
{
    const int64_t packed = size_ceil_div(k, DEPTH);
    return (struct block){
        .strip = packed * PACKED,
        .packed = packed,
        .next = next,
        .next_lines =
            size_ceil_div(cpu_ahead_lines(&next[0]) + cpu_ahead_lines(&next[1]), count * packed),
    };
}

/* Packing and block_finish() would wait for each line that is not prefetched here. */
static void block_multiply(const struct block *block)
{
    enum { ROW_BYTES = 64 };
    const uint16_t *a = block->a, *b = block->b;
    float *sums = block->sums;
    struct cpu_ahead d = block->d;
    const int64_t d_lines = size_ceil_div(cpu_ahead_lines(&d), block->packed);
    tiles_barrier();
    if (block->add) {
        _tile_loadd(0, sums, ROW_BYTES);
        _tile_loadd(1, sums + QUARTER, ROW_BYTES);
        _tile_loadd(2, sums + 2 * QUARTER, ROW_BYTES);
        _tile_loadd(3, sums + 3 * QUARTER, ROW_BYTES);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t i = 0; i < block->packed; i++) {
        cpu_ahead_step(block->next[0].rows > 0 ? &block->next[0] : &block->next[1],
                       block->next_lines);
        cpu_ahead_step(&d, d_lines);
        _tile_loadd(6, b, ROW_BYTES);
        _tile_loadd(4, a, ROW_BYTES);
        _tile_loadd(7, b + block->strip, ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a + block->strip, ROW_BYTES);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        a += PACKED;
        b += PACKED;
    }
    _tile_stored(0, sums, ROW_BYTES);
    _tile_stored(1, sums + QUARTER, ROW_BYTES);
    _tile_stored(2, sums + 2 * QUARTER, ROW_BYTES);
    _tile_stored(3, sums + 3 * QUARTER, ROW_BYTES);
    tiles_barrier();
}

/* Returns 16 elements of a bf16 or fp32 operand from `at` on; those outside the mask are zero. */
static inline __m512 values_load(struct cpu_floats from, int64_t at, __mmask16 mask)
{
    if (from.dtype == DTYPE_F32)
        return _mm512_maskz_loadu_ps(mask, (const float *)from.memory + at);
    const __m256i halves = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)from.memory + at);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* Rounds like cpu_bf16_store(), in a fifth of the instructions that the compiler generates for that
 * function. */
static inline void values_store(struct cpu_floats to, int64_t at, __mmask16 mask, __m512 value)
{
    if (to.dtype == DTYPE_F32) {
        _mm512_mask_storeu_ps((float *)to.memory + at, mask, value);
        return;
    }
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const __m512i kept = _mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16);
    _mm256_mask_storeu_epi16((uint16_t *)to.memory + at, mask, _mm512_cvtepi32_epi16(kept));
}

static struct cpu_ahead d_ahead(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile,
                                int64_t row, int64_t column)
{
    const int64_t bytes = (int64_t)dtype_size_bytes(job->d.dtype);
    return (struct cpu_ahead){
        .row = (const char *)job->d.memory +
               ((tile->row + row) * job->n + tile->column + column) * bytes,
        .stride_bytes = job->n * bytes,
        .length_bytes = min_i64(SIDE, tile->columns - column) * bytes,
        .rows = min_i64(SIDE, tile->rows - row),
    };
}

/* Stores a finished block in d, with the bias or the old value added. */
static void block_finish(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, int64_t row,
                         int64_t column, const float *block, const float *bias)
{
    const int64_t rows = min_i64(SIDE, tile->rows - row),
                  columns = min_i64(SIDE, tile->columns - column);
    const uint32_t mask = columns == SIDE ? 0xffffffffu : (1u << columns) - 1u;
    for (int half = 0; half < 2; half++) {
        const __mmask16 wanted = (__mmask16)(mask >> half * STRIP);
        const __m512 bias_values = bias != NULL
                                       ? _mm512_maskz_loadu_ps(wanted, bias + column + half * STRIP)
                                       : _mm512_setzero_ps();
        for (int64_t r = 0; r < rows; r++) {
            const int64_t at =
                (tile->row + row + r) * job->n + tile->column + column + half * STRIP;
            __m512 value =
                _mm512_load_ps(block + (r / STRIP * 2 + half) * QUARTER + r % STRIP * STRIP);
            if (job->accumulate)
                value = _mm512_add_ps(value, values_load(job->d, at, wanted));
            else if (bias != NULL)
                value = _mm512_add_ps(value, bias_values);
            values_store(job->d, at, wanted, value);
        }
    }
}

static struct portion portion_of(int64_t k, int64_t index)
{
    const int64_t count = size_ceil_div(k, PORTION_MAX);
    const int64_t size = cpu_gemm_piece(k, count, DEPTH);
    return (struct portion){.begin = index * size, .size = min_i64(size, k - index * size)};
}

static int64_t padded_lines(int64_t lines)
{
    return size_ceil_div(lines, SIDE) * SIDE;
}

/* Scratch contains packed a, packed b, the bias, and the sums if k has several portions. */
static size_t amx_scratch_bytes(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile)
{
    const int64_t depth = size_ceil_div(portion_of(job->k, 0).size, DEPTH) * DEPTH;
    const int64_t height = padded_lines(tile->rows), width = padded_lines(tile->columns);
    const int64_t sums = job->k > PORTION_MAX ? height * width : BLOCK;
    return (size_t)((height + width) * depth) * sizeof(uint16_t) +
           (size_t)(width + sums) * sizeof(float);
}

static void tile_multiply(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile,
                          void *scratch)
{
    const int64_t height = padded_lines(tile->rows), width = padded_lines(tile->columns);
    const int64_t depth = size_ceil_div(portion_of(job->k, 0).size, DEPTH) * DEPTH;
    uint16_t *a = scratch, *b = a + height * depth;
    float *buffer = (float *)(void *)(b + width * depth), *sums = buffer + width;
    const struct lines a_lines = {
        .memory = (const uint16_t *)job->a.memory + tile->row * (job->transpose_a ? 1 : job->k),
        .line_stride = job->transpose_a ? 1 : job->k,
        .k_stride = job->transpose_a ? job->m : 1,
        .count = tile->rows,
    };
    const struct lines b_lines = {
        .memory = (const uint16_t *)job->b.memory + tile->column * (job->transpose_b ? job->k : 1),
        .line_stride = job->transpose_b ? job->k : 1,
        .k_stride = job->transpose_b ? 1 : job->n,
        .count = tile->columns,
    };
    const float *bias = NULL;
    if (job->bias.memory != NULL)
        bias = cpu_floats_read(job->bias, tile->column, tile->columns, buffer);
    const int64_t portions = size_ceil_div(job->k, PORTION_MAX);
    for (int64_t index = 0; index < portions; index++) {
        const struct portion portion = portion_of(job->k, index);
        const bool last = index == portions - 1;
        lines_pack(&a_lines, portion, true, a);
        lines_pack(&b_lines, portion, false, b);
        struct cpu_ahead next[2] = {{0}};
        if (!last) {
            next[0] = lines_ahead(&a_lines, portion_of(job->k, index + 1));
            next[1] = lines_ahead(&b_lines, portion_of(job->k, index + 1));
        }
        struct block block = block_of(portion.size, next, height / SIDE * (width / SIDE));
        block.add = index > 0;
        for (int64_t row = 0; row < height;
             row += SIDE) { /* in this order, so that d is written along its rows */
            for (int64_t column = 0; column < width; column += SIDE) {
                block.a = a + row / STRIP * block.strip;
                block.b = b + column / STRIP * block.strip;
                block.sums = portions == 1 ? sums : sums + row * width + column * SIDE;
                if (last)
                    block.d = d_ahead(job, tile, row, column);
                block_multiply(&block);
                if (last)
                    block_finish(job, tile, row, column, block.sums, bias);
            }
        }
    }
}

struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* All eight tiles are 16 rows of 64 bytes.  The tile state belongs to the thread and is released at
 * once. */
static void tile_run(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile, void *scratch)
{
    struct tile_shapes shapes = {.palette = 1};
    _Static_assert(sizeof shapes == 64, "what LDTILECFG reads");
    for (int i = 0; i < 8; i++) {
        shapes.row_bytes[i] = 64;
        shapes.rows[i] = STRIP;
    }
    _tile_loadconfig(&shapes);
    tile_multiply(job, tile, scratch);
    _tile_release();
}

const struct cpu_gemm_path cpu_gemm_path_amx = {
    .name = "AMX",
    .rows_max = ROWS_MAX,
    .columns_max = COLUMNS_MAX,
    .few_rows = 2,
    .small_max = COLUMNS_MAX,
    .scratch_bytes = amx_scratch_bytes,
    .tile_run = tile_run,
};
