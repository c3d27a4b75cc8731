/* Tiles of products whose operands are packed: fp32 with AVX-512, where this is faster than the
 * BLAS library, and 16 bits on every processor.
 *
 * The method is that of Goto and van de Geijn (ACM TOMS 34(3), 2008; as in BLIS).  A tile takes k
 * in portions.  For each portion it copies its rows of a into slivers of a few rows, which stay in
 * the second-level cache.  Then it copies the columns of b panel by panel, three vectors wide, and
 * multiplies each sliver with the panel.  A block of sums stays in registers.  Meanwhile it
 * prefetches the data of the next panel.  It pads edges with zeros.
 *
 * Slivers and panels consist of words of 32 bits.  Usually a word is the fp32 value of one k;
 * packing widens bf16 and fp16.  If this file is compiled for AVX512-BF16, a word has the bf16
 * values of two k, which VDPBF16PS multiplies at twice the rate.  This instruction treats values
 * and sums below 2^-126 as zero.  Sums are fp32.  The tile rounds them once, after the last
 * portion; between portions it keeps the sums of a 16-bit d in scratch.
 *
 * A tile of any size sums an element over k in increasing order, portion by portion.  So the bits
 * of an element depend on the shape alone.
 */
#include "backends/cpu/cpu_gemm.h"

#ifdef __AVX512BF16__
#define DEPTH 2 /* values of k in a word */
#else
#define DEPTH 1
#endif
#define SLIVER CPU_BLOCK_ROWS       /* rows of a */
#define VECTORS 3                   /* vectors in a row of sums */
#define PANEL (VECTORS * CPU_LANES) /* columns of b */
#define SQUARE CPU_LANES            /* lines, and words of k, that square_pack() packs */
#define SQUARE_DEPTH (SQUARE * DEPTH)
#define PORTION_MAX 384 /* words */
#define ROWS_MAX 512
#define COLUMNS_MAX (2304 / 48 * PANEL)
#define COLUMNS_ROUNDED_MAX (768 / 48 * PANEL)
#define SMALL_MAX 512
#define AHEAD_EVERY 32  /* words between prefetches: many at once would wait for each other */
#define AHEAD_ROWS 16   /* rows of a sliver to prefetch */
#define AHEAD_SQUARES 4 /* squares to prefetch, of an operand that is copied */

typedef float piece __attribute__((vector_size(SLIVER * sizeof(float)), aligned(4), may_alias));

static int64_t words_of(int64_t k)
{
    return size_ceil_div(k, DEPTH);
}

/* Returns the words of a portion: nearly equal, multiples of SQUARE. */
static int64_t portion_size(int64_t k)
{
    return cpu_gemm_piece(words_of(k), size_ceil_div(words_of(k), PORTION_MAX), SQUARE);
}

static int64_t slivers_floats(int64_t rows, int64_t k)
{
    return size_ceil_div(rows, SQUARE) * SQUARE * portion_size(k);
}

static bool sums_are_kept(const struct cpu_gemm *job)
{
    return job->d.dtype != DTYPE_F32 && words_of(job->k) > portion_size(job->k);
}

static size_t packed_scratch_bytes(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile)
{
    const int64_t sums = sums_are_kept(job) ? tile->rows * tile->columns : 0;
    const int64_t floats = slivers_floats(tile->rows, job->k) + PANEL * portion_size(job->k) + sums;
    return size_round_up((size_t)floats * sizeof(float), CPU_ALIGNMENT_BYTES);
}

/* ---- copies ---- */

/* `size` elements of k of `lines` lines, which are rows of op(a) or columns of op(b).  If k is
 * contiguous, each line begins `stride` elements after the previous line.  Otherwise the lines are
 * contiguous, and element k + 1 of a line lies `stride` elements after element k. */
struct strip {
    const char *from;
    enum dtype dtype;
    int64_t bytes; /* of an element */
    int64_t stride, lines, size;
    bool k_contiguous;
};

static inline const char *strip_at(const struct strip *strip, int64_t line, int64_t k)
{
    return strip->from +
           (strip->k_contiguous ? line * strip->stride + k : k * strip->stride + line) *
               strip->bytes;
}

#if DEPTH == 2
/* Loads a square of words; see square_load().  If k is contiguous, the two elements of a word are
 * neighbours in memory. Otherwise they lie a row apart. */
static inline __attribute__((always_inline)) void words_load(cpu_vector *vector, const char *from,
                                                             int64_t row_bytes, bool k_contiguous,
                                                             enum dtype dtype)
{
    (void)dtype;
    CPU_UNROLLED for (int i = 0; i < SQUARE; i++)
    {
        if (k_contiguous) {
            vector[i] =
                (cpu_vector)_mm512_loadu_si512(from + i * row_bytes); /* bf16: aligned to 2 bytes */
            continue;
        }
        const char *row = from + 2 * i * row_bytes;
        const __m512i low =
            _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)row));
        const __m512i high = _mm512_cvtepu16_epi32(
            _mm256_loadu_si256((const __m256i *)(const void *)(row + row_bytes)));
        vector[i] = (cpu_vector)_mm512_or_si512(low, _mm512_slli_epi32(high, 16));
    }
}
#else
static inline __attribute__((always_inline)) void words_load(cpu_vector *vector, const char *from,
                                                             int64_t row_bytes, bool k_contiguous,
                                                             enum dtype dtype)
{
    (void)k_contiguous;
    float words[SQUARE];
    CPU_UNROLLED for (int i = 0; i < SQUARE; i++) vector[i] = *(const cpu_vector *)cpu_floats_read(
        (struct cpu_floats){(void *)(from + i * row_bytes), dtype}, 0, SQUARE, words);
}
#endif

/* Loads SQUARE lines by SQUARE words.  If k is contiguous, vector i gets the words of line i;
 * otherwise word i of every line. */
static inline __attribute__((always_inline)) void square_load(cpu_vector *vector, const char *from,
                                                              int64_t row_bytes, bool k_contiguous,
                                                              enum dtype dtype)
{
    if (dtype == DTYPE_F32 && DEPTH == 1)
        words_load(vector, from, row_bytes, k_contiguous, DTYPE_F32);
    else if (dtype == DTYPE_F16 && DEPTH == 1)
        words_load(vector, from, row_bytes, k_contiguous, DTYPE_F16);
    else if (k_contiguous)
        words_load(vector, from, row_bytes, true, DTYPE_BF16);
    else
        words_load(vector, from, row_bytes, false, DTYPE_BF16);
}

/* Copies the part of a square that exists to `edge` and fills the rest with zeros.  Returns the
 * bytes of a row of `edge`. */
static int64_t edge_copy(const struct strip *strip, int64_t line, int64_t k, char *edge)
{
    const int64_t lines = min_i64(SQUARE, strip->lines - line),
                  size = min_i64(SQUARE_DEPTH, strip->size - k);
    const int64_t row_bytes = (strip->k_contiguous ? SQUARE_DEPTH : SQUARE) * strip->bytes;
    const int64_t count = strip->k_contiguous ? lines : size,
                  length = strip->k_contiguous ? size : lines;
    memset(edge, 0, (size_t)(SQUARE * SQUARE_DEPTH * strip->bytes));
    for (int64_t i = 0; i < count; i++)
        memcpy(edge + i * row_bytes, strip_at(strip, line, k) + i * strip->stride * strip->bytes,
               (size_t)(length * strip->bytes));
    return row_bytes;
}

/* Packs the square at `line` and `k`: word i of lines p * SLIVER.. goes to out[p * skip + i * row].
 */
static inline void square_pack(const struct strip *strip, int64_t line, int64_t k, float *out,
                               int64_t skip, int64_t row)
{
    const char *from = strip_at(strip, line, k);
    int64_t row_bytes = strip->stride * strip->bytes;
    char edge[SQUARE * SQUARE_DEPTH * sizeof(float)];
    if (strip->lines - line < SQUARE || strip->size - k < SQUARE_DEPTH) {
        row_bytes = edge_copy(strip, line, k, edge);
        from = edge;
    }
    cpu_vector vector[SQUARE];
    square_load(vector, from, row_bytes, strip->k_contiguous, strip->dtype);
    if (strip->k_contiguous)
        cpu_square_transpose(vector);
    CPU_UNROLLED for (int i = 0; i < SQUARE; i++)
    {
        const piece *pieces = (const piece *)&vector[i];
        CPU_UNROLLED for (int p = 0; p < SQUARE / SLIVER; p++) *
            (piece *)(out + p * skip + i * row) = pieces[p];
    }
}

/* For contiguous k: prefetches the data that slivers_pack() reads a few squares later. */
static inline void square_ahead(const struct strip *strip, int64_t line, int64_t k)
{
    for (int64_t i = line; i < min_i64(line + SQUARE, strip->lines); i++)
        __builtin_prefetch(strip_at(strip, i, k + AHEAD_SQUARES * SQUARE_DEPTH));
}

static inline void slivers_square(const struct strip *strip, int64_t line, int64_t k,
                                  int64_t portion, float *out)
{
    square_pack(strip, line, k, out + line * portion + k / DEPTH * SLIVER, SLIVER * portion,
                SLIVER);
}

/* Packs slivers, one after the other, each [portion][SLIVER].  Reads the operand along its rows in
 * memory: if it read across them, a product of 1,024 rows would take a tenth longer. */
static void slivers_pack(const struct strip *strip, int64_t portion, float *out)
{
    if (strip->k_contiguous) {
        for (int64_t line = 0; line < strip->lines; line += SQUARE) {
            for (int64_t k = 0; k < strip->size; k += SQUARE_DEPTH) {
                square_ahead(strip, line, k);
                slivers_square(strip, line, k, portion, out);
            }
        }
    } else {
        for (int64_t k = 0; k < strip->size; k += SQUARE_DEPTH) {
            for (int64_t line = 0; line < strip->lines; line += SQUARE)
                slivers_square(strip, line, k, portion, out);
        }
    }
}

/* Packs one panel, [portion][width]. */
static void panel_pack(const struct strip *strip, int64_t width, float *out)
{
    for (int64_t k = 0; k < strip->size; k += SQUARE_DEPTH) {
        for (int64_t line = 0; line < width; line += SQUARE)
            square_pack(strip, line, k, out + k / DEPTH * width + line, SLIVER, width);
    }
}

/* Returns what panel_pack() reads of a strip's first panel. */
static struct cpu_ahead ahead_of(const struct strip *strip)
{
    const int64_t columns = min_i64(PANEL, strip->lines);
    return (struct cpu_ahead){.row = strip->from,
                              .stride_bytes = strip->stride * strip->bytes,
                              .length_bytes =
                                  (strip->k_contiguous ? strip->size : columns) * strip->bytes,
                              .rows = strip->k_contiguous || columns == 0 ? columns : strip->size};
}

/* ---- products ---- */

static const float zero[PANEL]; /* a block adds to this row if the target has nothing to add to */

#define EACH_SUM \
    CPU_UNROLLED for (int r = 0; r < SLIVER; r++) CPU_UNROLLED for (int v = 0; v < vectors; v++)

/* A sliver of a, a panel of b, and a block of d.  block_multiply() sets d to with + sliver * panel.
 */
struct block {
    const float *a, *b, *with;
    float *d;
    int64_t words, with_row, d_row; /* words of k; row lengths */
    struct cpu_ahead *ahead;
    int64_t ahead_lines,
        ahead_rows; /* lines of the next panel, and rows of d, to prefetch per AHEAD_EVERY words */
};

static inline __attribute__((always_inline)) cpu_vector word_spread(float word)
{
#if DEPTH == 2
    return (cpu_vector)_mm512_set1_ps(
        word); /* no arithmetic: the bits of two bf16 are not an fp32 number */
#else
    return word - (cpu_vector){0.0f};
#endif
}

static inline __attribute__((always_inline)) void words_multiply(cpu_vector *sum, cpu_vector words,
                                                                 cpu_vector line)
{
#if DEPTH == 2
    *sum = (cpu_vector)_mm512_dpbf16_ps((__m512)*sum, (__m512bh)words, (__m512bh)line);
#elif CPU_LANES == 8
    /* This form needs no seventeenth register; gcc chooses another, and spills. */
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(*sum) : "x"(words), "x"(line));
#else
    *sum += words * line;
#endif
}

static inline __attribute__((always_inline)) void one_word(cpu_vector sum[SLIVER][VECTORS],
                                                           const float *a, const float *b,
                                                           int vectors)
{
    cpu_vector line[VECTORS];
    CPU_UNROLLED for (int v = 0; v < vectors; v++) line[v] = *(const cpu_vector *)(b + v * SQUARE);
    CPU_UNROLLED for (int r = 0; r < SLIVER; r++)
    {
        const cpu_vector words = word_spread(a[r]);
        CPU_UNROLLED for (int v = 0; v < vectors; v++) words_multiply(&sum[r][v], words, line[v]);
    }
}

/* Prefetches this step's rows of d.  Prefetching all rows at once would delay the lines of the
 * panel. */
static inline __attribute__((always_inline)) void sums_ahead(const struct block *block,
                                                             int64_t step, int vectors)
{
    const int64_t end = min_i64((step + 1) * block->ahead_rows, SLIVER);
    for (int64_t r = step * block->ahead_rows; r < end; r++) {
        for (int v = 0; v < vectors; v++)
            __builtin_prefetch(block->d + r * block->d_row + v * SQUARE, 1);
    }
}

/* Computes SLIVER x vectors of d, two words at a time.  If the number of words is odd, packing has
 * added a word of zeros.  The function is inlined so that `vectors` is a constant. */
static inline __attribute__((always_inline)) void sums_multiply(const struct block *block,
                                                                int vectors)
{
    const float *a = block->a, *b = block->b;
    const int64_t with_row = block->with_row, d_row = block->d_row;
    cpu_vector sum[SLIVER][VECTORS];
    EACH_SUM sum[r][v] = (cpu_vector){0.0f};
    for (int64_t k = 0; k < block->words; k += 2) {
        if (k % AHEAD_EVERY == 0) {
            cpu_ahead_step(block->ahead, block->ahead_lines);
            sums_ahead(block, k / AHEAD_EVERY, vectors);
        }
        __builtin_prefetch(a + AHEAD_ROWS * SLIVER);
        one_word(sum, a, b, vectors);
        one_word(sum, a + SLIVER, b + vectors * SQUARE, vectors);
        a += 2 * SLIVER;
        b += 2 * vectors * SQUARE;
    }
    EACH_SUM sum[r][v] += *(const cpu_vector *)(block->with + r * with_row + v * SQUARE);
    EACH_SUM *(cpu_vector *)(block->d + r * d_row + v * SQUARE) = sum[r][v];
}

static __attribute__((noinline)) void block_multiply(const struct block *block, int64_t vectors)
{
    if (vectors == VECTORS)
        sums_multiply(block, VECTORS);
    else if (vectors == 2)
        sums_multiply(block, 2);
    else
        sums_multiply(block, 1);
}

/* A tile's sums begin with the rows `with` and go to the rows `to`.  with.of.memory == NULL means
 * that they begin with 0; stride 0 means that all rows begin with the same one. */
struct target {
    struct cpu_rows with, to;
};

static int64_t rows_at(const struct cpu_rows *rows, int64_t row, int64_t column)
{
    return rows->first + row * rows->stride + column;
}

/* Multiplies a block of which only rows x columns exist, or whose target is not fp32, through a
 * buffer. */
static void block_convert(struct block block, const struct target *target, int64_t row,
                          int64_t column, int64_t rows, int64_t columns)
{
    float sums[SLIVER * PANEL], buffer[PANEL];
    block.with = zero;
    block.d = sums;
    block.d_row = PANEL;
    block_multiply(&block, size_ceil_div(columns, SQUARE));
    for (int64_t r = 0; r < rows; r++) {
        float *sum = sums + r * PANEL;
        if (target->with.of.memory != NULL) {
            const float *with = cpu_floats_read(
                target->with.of, rows_at(&target->with, row + r, column), columns, buffer);
            CPU_SIMD(i, columns)
                sum[i] += with[i];
        }
        cpu_floats_write(target->to.of, rows_at(&target->to, row + r, column), columns, sum);
    }
}

/* Multiplies a whole block whose target is fp32, without a buffer. */
static void block_in_place(struct block block, const struct target *target, int64_t row,
                           int64_t column, int64_t vectors)
{
    const struct cpu_rows *with = &target->with, *to = &target->to;
    block.with = zero;
    if (with->of.memory != NULL) {
        block.with = (const float *)with->of.memory + rows_at(with, row, column);
        block.with_row = with->stride;
    }
    block.d = (float *)to->of.memory + rows_at(to, row, column);
    block.d_row = to->stride;
    block_multiply(&block, vectors);
}

/* Returns a strip that begins where the matrix does.  strip_part() then sets its lines and its
 * size. */
static struct strip strip_of(struct cpu_floats matrix, bool k_contiguous, int64_t row_length)
{
    return (struct strip){.from = matrix.memory,
                          .dtype = matrix.dtype,
                          .bytes = (int64_t)dtype_size_bytes(matrix.dtype),
                          .stride = row_length,
                          .k_contiguous = k_contiguous};
}

static struct strip strip_part(struct strip strip, int64_t line, int64_t lines, int64_t k,
                               int64_t size)
{
    strip.from = strip_at(&strip, line, k);
    strip.lines = lines;
    strip.size = size;
    return strip;
}

static struct strip strip_skip(const struct strip *strip, int64_t lines)
{
    return strip_part(*strip, lines, max_i64(strip->lines - lines, 0), 0, strip->size);
}

/* Sets target->to to target->with + slivers * b, panel by panel. */
static void panels_multiply(const struct cpu_gemm_tile *tile, const float *slivers, int64_t portion,
                            struct strip b, const struct target *target, float *panel)
{
    const int64_t words = words_of(b.size), steps = size_ceil_div(words, AHEAD_EVERY);
    const int64_t blocks = size_ceil_div(tile->rows, SLIVER);
    const bool in_place = target->to.of.dtype == DTYPE_F32 && target->with.of.dtype == DTYPE_F32;
    for (int64_t column = 0; column < tile->columns; column += PANEL) {
        const int64_t columns = min_i64(PANEL, tile->columns - column),
                      vectors = size_ceil_div(columns, SQUARE);
        const struct strip next = strip_skip(&b, PANEL);
        struct cpu_ahead ahead = ahead_of(&next);
        const struct block block = {.b = panel,
                                    .words = words,
                                    .ahead = &ahead,
                                    .ahead_lines =
                                        size_ceil_div(cpu_ahead_lines(&ahead), blocks * steps),
                                    .ahead_rows = size_ceil_div(SLIVER, steps)};
        panel_pack(&b, vectors * SQUARE, panel);
        for (int64_t row = 0; row < tile->rows; row += SLIVER) {
            const int64_t rows = min_i64(SLIVER, tile->rows - row);
            struct block this = block;
            this.a = slivers + row * portion;
            if (in_place && rows == SLIVER && columns == vectors * SQUARE)
                block_in_place(this, target, row, column, vectors);
            else
                block_convert(this, target, row, column, rows, columns);
        }
        b = next;
    }
}

static void packed_tile_run(const struct cpu_gemm *job, const struct cpu_gemm_tile *tile,
                            void *scratch)
{
    const int64_t portion = portion_size(job->k);
    float *slivers = scratch, *panel = slivers + slivers_floats(tile->rows, job->k),
          *sums = panel + PANEL * portion;
    const struct strip a = strip_of(job->a, !job->transpose_a, job->transpose_a ? job->m : job->k);
    const struct strip b = strip_of(job->b, job->transpose_b, job->transpose_b ? job->k : job->n);
    const struct cpu_rows d = {job->d, tile->row * job->n + tile->column, job->n};
    const struct cpu_rows bias = {job->bias, tile->column, 0};
    const struct cpu_rows kept =
        sums_are_kept(job) ? (struct cpu_rows){{sums, DTYPE_F32}, 0, tile->columns} : d;
    struct target target = {.with = {.of.dtype = DTYPE_F32}};
    if (job->bias.memory != NULL || job->accumulate)
        target.with = job->accumulate ? d : bias;
    for (int64_t k = 0; k < job->k; k += portion * DEPTH, target.with = kept) {
        const int64_t size = min_i64(portion * DEPTH, job->k - k);
        const struct strip a_part = strip_part(a, tile->row, tile->rows, k, size);
        target.to = k + size < job->k ? kept : d;
        slivers_pack(&a_part, portion, slivers);
        panels_multiply(tile, slivers, portion, strip_part(b, tile->column, tile->columns, k, size),
                        &target, panel);
    }
}

const struct cpu_gemm_path CPU_NAME(cpu_gemm_path_packed) = {
    .name = DEPTH == 2 ? "AVX512-BF16" : NULL,
    .rows_max = ROWS_MAX,
    .columns_max = COLUMNS_MAX,
    .columns_rounded_max = COLUMNS_ROUNDED_MAX,
    .small_max = SMALL_MAX,
    .columns_multiple = PANEL,
    .copy_a = 40 * DEPTH,
    .copy_b = 16 * DEPTH,
    .scratch_bytes = packed_scratch_bytes,
    .tile_run = packed_tile_run,
};
