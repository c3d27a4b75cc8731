/* attention_backward on tensor cores, for bf16 and fp16, with recomputed weights.  Dao 2023,
 * algorithm 2, without atomics: every sum has one owner and a fixed order.  In two passes:
 *     by keys:     a block owns 64 keys and walks over the queries that see them, of all heads that
 *                  share them, in
 *                  order:   dv += (p f)' dy,   dk += ds' q
 *     by queries:  a block owns 64 queries of one head and walks over the keys that they see:   dq
 *                  += ds k
 * or, where there are enough heads for all multiprocessors, at once: a block takes one head of the
 * keys after another.  It walks through a head by keys, 128 at a time, and after each step adds ds
 * k to dq.  Between the steps the fp32 sums of dq are in the block's part of the workspace, where a
 * thread reads only what it wrote.  That makes five products of seven, with the same bits.
 *
 * Heads above 128 columns leave no registers for both dk and dv: there are three passes, by values
 * (dv), by keys (dk) and by queries, with eight products, and no pass at once.
 *
 * p = exp(s - lse), ds = p (f dp - delta), dp = dy v', f the dropout factors, and delta = rowsum(dy
 * y) computed before.  One kernel does all passes: its own rows are (k, v) or (q, dy), the other
 * rows (q, dy) or (k, v), 32 at a time.  The next other rows load while these are used, where
 * shared memory suffices.  By keys everything is computed transposed, so that weights go from
 * accumulators to fragments without leaving the registers.
 *
 * Scores, dp and ds are fp32; p and ds are rounded to 16 bits as factors.  The scale of the scores,
 * and in dv that of dropout, are applied to the finished sums.  With half_sums the sums of 32
 * products are fp16, and fp32 sums add these up.
 *
 * Shared memory with two stages: (D + 8) 512 bytes and 512: 21, 37, 53, 69 KiB for D = 32, 64, 96,
 * 128; with one stage a quarter less.  Two blocks fit on a multiprocessor of sm_86 for D = 64, one
 * for 128.  At once: (D + 8) 768 bytes and 10.5 KiB: 41, 65, 89, 113 KiB, or with one stage 35, 55,
 * 75, 95.  For D = 256 a pass takes 132 KiB, or 99 with one stage: all that a block may have on
 * sm_86, 89 and 120.  There lse and delta of each row are in the padding behind it.
 */
#include "backends/cuda/kernels/attention_tile.h"

#define OTHER_ROWS CUDA_ATTENTION_STEP
#define OTHER_TILES (OTHER_ROWS / 8) /* accumulators for the scores of 32 rows */
enum pass { BY_QUERIES, BY_KEYS, AT_ONCE, BY_VALUES };
template <int PASS> constexpr int pass_warps = PASS == AT_ONCE ? 2 * TILE_WARPS : TILE_WARPS;
template <int PASS> constexpr int pass_threads = pass_warps<PASS> *WARP_LANES;
template <int PASS> constexpr int own_rows = pass_warps<PASS> *TILE_WARP_ROWS;
/* True where there are registers to keep the place of the next other rows.  Elsewhere it is found
 * anew, and there is one stage. */
template <int D, int PASS, int MMA>
constexpr bool place_kept = MMA != MMA_K8 && (PASS != AT_ONCE || D < 128);
/* True where there are registers to let a warp skip a step that it would add only zeros in. */
template <int D, int PASS> constexpr bool steps_skipped = PASS != AT_ONCE || D <= 64;
/* True where there are registers to load sums of dq early.  fp16 sums are added to them last. */
template <int D, int MMA> constexpr bool sums_early = tile_held<D> &&MMA != MMA_HALF_SUMS;
/* Which sums of own rows a pass makes: dk or dq, and dv. */
template <int PASS> constexpr bool sums_slopes = PASS != BY_VALUES;
template <int D, int PASS>
constexpr bool sums_values = PASS == BY_VALUES || PASS == AT_ONCE ||
                             (PASS == BY_KEYS && D <= CUDA_ATTENTION_HEAD_SIZE_SMALL);
/* True where there is a kernel. */
template <int D, int PASS, int MMA>
constexpr bool backward_exists =
    D <= CUDA_ATTENTION_HEAD_SIZE_SMALL ? PASS != BY_VALUES : MMA == MMA_K16 &&PASS != AT_ONCE;
/* The products that sums of own rows and dq at once are made of: with fp16 sums there are no
 * registers for those of dk and dv at the largest D. */
template <int D, int PASS, int MMA>
constexpr int sums_mma =
    D == 128 && sums_slopes<PASS> &&sums_values<D, PASS> &&MMA != MMA_K8 ? MMA_K16 : MMA;
/* Floats from the lse of a row to that of the next, and of delta. */
template <int D>
constexpr int statistics_stride = D <= CUDA_ATTENTION_HEAD_SIZE_SMALL ? 1 : tile_stride<D> / 2;
/* Blocks on a multiprocessor, by registers; otherwise the compiler aims at more, and spills. */
template <int D, int PASS> constexpr int blocks_min = PASS == AT_ONCE ? 1 : 2;
/* Shared memory has room for four. */
template <> constexpr int blocks_min<32, BY_QUERIES> = 4;
/* One stage: two tiles of other rows and, by keys, lse and delta of each row. */
template <int D>
constexpr size_t stage_bytes = 2 * tile_elements<D, OTHER_ROWS> * sizeof(uint16_t) +
                               (statistics_stride<D> == 1 ? 2 * OTHER_ROWS * sizeof(float) : 0);
/* Two tiles of own rows, or by values one, and, at once, ds of a step: [keys][SLOPES_STRIDE], an
 * odd number of 16-byte chunks. */
#define SLOPES_STRIDE (OTHER_ROWS + 8)
template <int D, int PASS>
constexpr size_t own_bytes = own_rows<PASS> *((sums_slopes<PASS> ? 2 : 1) * tile_stride<D> +
                                              (PASS == AT_ONCE ? SLOPES_STRIDE : 0)) *
                             sizeof(uint16_t);

/* The pointers of a stage in shared memory. */
template <typename T> struct stage {
    T *first, *second; /* q and dy, or k and v */
    float *lse, *delta;
};

template <typename T, int D, int PASS>
DEVICE struct stage<T> stage_of(unsigned char *shared, int index) {
    struct stage<T> stage;
    stage.first = (T *)(shared + own_bytes<D, PASS> + index * stage_bytes<D>);
    stage.second = stage.first + tile_elements<D, OTHER_ROWS>;
    if constexpr (statistics_stride<D> == 1) {
        stage.lse = (float *)(stage.second + tile_elements<D, OTHER_ROWS>);
        stage.delta = stage.lse + OTHER_ROWS;
    } else {
        stage.lse = (float *)(stage.first + D);
        stage.delta = (float *)(stage.second + D);
    }
    return stage;
}

/* Returns where a stage has lse, or from OTHER_ROWS on delta, of its row i % OTHER_ROWS. */
template <typename T, int D>
DEVICE float *statistic_of(const struct stage<T> &stage, int i)
{
    if constexpr (statistics_stride<D> == 1)
        return stage.lse + i;
    return (i < OTHER_ROWS ? stage.lse : stage.delta) + i % OTHER_ROWS * statistics_stride<D>;
}

/* The other rows that the next stage is filled with.  statistic: by keys, where this thread finds
 * lse or delta of a query. */
template <typename T> struct other_rows {
    struct tile_source<T> first, second;
    const float *statistic;
};

/* Returns the rows of one head of the queries from row `row` on. */
template <typename T, bool KEYS>
DEVICE struct other_rows<T> other_rows_of(const struct cuda_attention &attention, int sample,
                                          int head, int row) {
    const int64_t start = ((int64_t)sample * attention.heads + head) * attention.time + row;
    const int end = attention.time, of_keys = head / (attention.heads / attention.kv_heads),
              at = KEYS ? head : of_keys;
    return {tile_source_of<T>(attention, KEYS ? attention.q : attention.k, sample, at, row, end),
            tile_source_of<T>(attention, KEYS ? attention.dy : attention.v, sample, at, row, end),
            (threadIdx.x < OTHER_ROWS ? attention.lse : attention.delta) + start +
                threadIdx.x % OTHER_ROWS};
}

/* Starts filling a stage, and moves to the rows after it.  lse and delta are zeros from the end on,
 * where the rows are zeros too. */
template <typename T, int D, int PASS>
DEVICE void stage_load(const struct stage<T> &stage, struct other_rows<T> *rows)
{
    tile_load<T, D, OTHER_ROWS, pass_threads<PASS>>(stage.first, rows->first);
    tile_load<T, D, OTHER_ROWS, pass_threads<PASS>>(stage.second, rows->second);
    if (PASS != BY_QUERIES && threadIdx.x < 2 * OTHER_ROWS)
        cp_async_4(statistic_of<T, D>(stage, (int)threadIdx.x), rows->statistic,
                   (int)threadIdx.x % OTHER_ROWS < rows->first.rows);
    cp_async_commit();
    tile_advance(&rows->first, OTHER_ROWS);
    tile_advance(&rows->second, OTHER_ROWS);
    rows->statistic += OTHER_ROWS;
}

/* lse, times LOG2_E, and delta of the lane's two own rows, by queries, and where their documents
 * begin; zeros for rows from the end on. */
struct own_statistics {
    float lse[2], delta[2];
    int begin[2];
    int last_begin; /* of the tile's last query: documents begin in order */
};

/* Returns those of a tile of `rows` own rows. */
DEVICE struct own_statistics own_statistics_of(const struct cuda_attention &attention,
                                               const struct backward_place &place, int rows)
{
    const int64_t start = ((int64_t)place.sample * attention.heads + place.head) * attention.time;
    struct own_statistics own;
    own.last_begin =
        attention_document(attention, place.sample, min(place.own + rows, attention.time) - 1);
    UNROLLED(r, 2) {
        const int row = place.own + tile_warp_row() + cuda_lane() / 4 + 8 * r;
        own.lse[r] = row < attention.time ? attention.lse[start + row] * LOG2_E : 0.0f;
        own.delta[r] = row < attention.time ? attention.delta[start + row] : 0.0f;
        own.begin[r] = attention_document(attention, place.sample, row);
    }
    return own;
}

/* Sets the scores of keys behind a query, and of those before its window, to minus infinity.  `own`
 * is the lane's first own row, `other` the tile's first other row.  A key is as far before its
 * query as an unsigned number says, and one behind it is very far.  Selections instead of branches:
 * see attention_place.h. */
template <bool KEYS>
DEVICE void scores_hide_outside(float (&score)[OTHER_TILES][4], int own, int other, int window)
{
    const int same =
        own - other -
        2 * (cuda_lane() % 4); /* the column of the own row, counted from the lane's first */
    const unsigned seen = window > 0 ? (unsigned)window : 1u << 31;
    UNROLLED(n, OTHER_TILES) {
        UNROLLED(e, 4) {
            const int column = n * 8 + e % 2, row = same + e / 2 * 8;
            score[n][e] =
                (unsigned)(KEYS ? column - row : row - column) < seen ? score[n][e] : -INFINITY;
        }
    }
}

/* The same for the keys before the document of a query.  By keys the queries are other ones in each
 * step.  In one function with windows it would take more registers than there are. */
template <bool KEYS>
DEVICE void scores_hide_earlier(const struct cuda_attention &attention,
                                float (&score)[OTHER_TILES][4], int sample, int own, int other,
                                const struct own_statistics &rows)
{
    const int start = other + 2 * (cuda_lane() % 4);
    int begins[KEYS ? OTHER_TILES * 2 : 2]; /* of the lane's queries */
    UNROLLED(i, KEYS ? OTHER_TILES * 2 : 2)
        begins[i] = KEYS ? attention_document(attention, sample, start + i / 2 * 8 + i % 2)
                         : rows.begin[i % 2];
    UNROLLED(n, OTHER_TILES) {
        UNROLLED(e, 4) {
            const int key = KEYS ? own + e / 2 * 8 : start + n * 8 + e % 2;
            score[n][e] = key < begins[KEYS ? 2 * n + e % 2 : e / 2] ? -INFINITY : score[n][e];
        }
    }
}

/* Hides the scores of a step that queries do not see, if there are any. */
template <bool KEYS, int OWN>
DEVICE void scores_hide(const struct cuda_attention &attention, const struct backward_place &place,
                        float (&score)[OTHER_TILES][4], int own, int other,
                        const struct own_statistics &rows)
{
    const int first_key = KEYS ? place.own : other,
              last_key = first_key + (KEYS ? OWN : OTHER_ROWS) - 1;
    const int first = KEYS ? other : place.own,
              end = min(first + (KEYS ? OTHER_ROWS : OWN), attention.time);
    if (last_key > first || (attention.window > 0 && attention.window < end - first_key))
        scores_hide_outside<KEYS>(score, own, other, attention.window);
    if (first_key < (KEYS ? attention_document(attention, place.sample, end - 1) : rows.last_begin))
        scores_hide_earlier<KEYS>(attention, score, place.sample, own, other, rows);
}

/* Sets what dropout drops to zero, and multiplies the rest by `scale`.  The whole warp takes part.
 */
template <bool KEYS>
DEVICE void weights_drop(float (&weight)[OTHER_TILES][4], uint32_t bits, float scale)
{
    UNROLLED(n, OTHER_TILES) {
        const uint32_t kept =
            KEYS ? tile_kept_key(bits, n) : tile_kept_query(tile_kept_of(bits, n), 0);
        UNROLLED(e, 4)
            weight[n][e] = (kept >> e & 1u) != 0 ? weight[n][e] * scale : 0.0f;
    }
}

/* Returns true when a query of a step sees a key of the warp's own rows, or one of its queries sees
 * a key of the step.  Otherwise, in tiles on the diagonal, all weights of the step are zeros.  It
 * is the same for the whole warp. */
template <bool KEYS> DEVICE bool step_counts(const struct backward_place &place, int other)
{
    const int first = place.own + tile_warp_row();
    return KEYS ? first < other + OTHER_ROWS : other < first + TILE_WARP_ROWS;
}

/* Turns scores into p f (without f's scale), and dp, if the pass needs it, into ds.  bits: what
 * dropout keeps. */
template <typename T, int D, int PASS>
DEVICE void slopes_make(const struct cuda_attention &attention, float (&score)[OTHER_TILES][4],
                        float (&slope)[OTHER_TILES][4], const struct own_statistics &rows,
                        const struct stage<T> &others, uint32_t bits)
{
    constexpr bool KEYS = PASS != BY_QUERIES;
    const float scale = attention.scale * LOG2_E;
    if (sums_slopes<PASS> && attention.threshold != 0)
        weights_drop<KEYS>(slope, bits, attention.kept_scale);
    UNROLLED(n, OTHER_TILES) {
        UNROLLED(e, 4) {
            const int column = n * 8 + 2 * (cuda_lane() % 4) + e % 2;
            const float row_lse =
                KEYS ? others.lse[column * statistics_stride<D>] * LOG2_E : rows.lse[e / 2];
            const float row_delta =
                KEYS ? others.delta[column * statistics_stride<D>] : rows.delta[e / 2];
            score[n][e] = fast_exp2(fmaf(score[n][e], scale, -row_lse));
            if constexpr (sums_slopes<PASS>)
                slope[n][e] = score[n][e] * (slope[n][e] - row_delta);
        }
    }
    if (sums_values<D, PASS> && attention.threshold != 0)
        weights_drop<KEYS>(score, bits, 1.0f);
}

/* ---- dq at once: a warp has 16 queries of a step and a quarter of the columns, in D / 32
 * accumulators ---- */

/* Stores the warp's ds of a step, rounded, for all warps. */
template <typename T> DEVICE void slopes_share(const float (&slope)[OTHER_TILES][4], T *slopes)
{
    const int g = cuda_lane() / 4, t = cuda_lane() % 4;
    T *to = slopes + (tile_warp_row() + g) * SLOPES_STRIDE + 2 * t;
    UNROLLED(n, OTHER_TILES) {
        UNROLLED(r, 2) {
            const uint32_t pair = pack_pair<T>(slope[n][2 * r], slope[n][2 * r + 1]);
            void *at = to + 8 * r * SLOPES_STRIDE + n * 8;
            memcpy(__builtin_assume_aligned(at, 4), &pair, sizeof pair);
        }
    }
}

/* sum += ds k, over the block's keys. */
template <typename T, int D, int MMA>
DEVICE void queries_add(float (&sum)[D / 32][4], const T *slopes, const T *keys)
{
    const int lane = cuda_lane(), warp = cuda_warp();
    const T *ds =
        slopes + (lane / 16 * 8 + lane % 8) * SLOPES_STRIDE + warp % 2 * 16 + lane / 8 % 2 * 8;
    const T *k = keys + lane * tile_stride<D> + warp / 2 * (D / 4);
#pragma unroll
    for (int key = 0; key < own_rows<AT_ONCE>; key += 32) {
        uint32_t low[4], high[4];
        ldmatrix_x4_trans(low, ds + key * SLOPES_STRIDE);
        ldmatrix_x4_trans(high, ds + (key + 16) * SLOPES_STRIDE);
        UNROLLED(n, D / 32) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, k + key * tile_stride<D> + n * 8);
            if constexpr (MMA == MMA_HALF_SUMS) {
                uint32_t part[2] = {0, 0};
                mma_m16n8k16_half(part, low, b[0], b[1]);
                mma_m16n8k16_half(part, high, b[2], b[3]);
                half_sums_add<false>(sum[n], part);
            } else {
                tile_multiply<T, MMA_K16>(sum[n], low, b[0], b[1]);
                tile_multiply<T, MMA_K16>(sum[n], high, b[2], b[3]);
            }
        }
    }
}

/* Returns where this thread keeps its sums of the tile that begins at query `query` of a head: 4
 * floats of each accumulator, behind those of the threads before it. */
template <int D>
DEVICE float *query_sums_of(const struct cuda_attention &attention,
                            const struct backward_place &place, int head, int query)
{
    const int tiles = (attention.time + OTHER_ROWS - 1) / OTHER_ROWS;
    const int64_t heads = (int64_t)blockIdx.x * place.heads + head - place.head * place.heads;
    return attention.query_sums + (heads * tiles + query / OTHER_ROWS) * (OTHER_ROWS * D) +
           4 * threadIdx.x;
}

/* Loads the sums of the tile that begins at query `query`, or clears them where these queries see
 * no key before the block's. */
template <int D>
DEVICE void query_sums_load(const struct cuda_attention &attention,
                            const struct backward_place &place, int head, int query,
                            float (&sum)[D / 32][4])
{
    if (attention_begin(attention, place.sample, query) >= place.own) {
        tile_clear(sum);
        return;
    }
    const float *from = query_sums_of<D>(attention, place, head, query);
    UNROLLED(n, D / 32)
        load_values<float>(sum[n], from + n * 4 * pass_threads<AT_ONCE>);
}

template <int D>
DEVICE void query_sums_store(const struct cuda_attention &attention,
                             const struct backward_place &place, int head, int query,
                             const float (&sum)[D / 32][4])
{
    float *to = query_sums_of<D>(attention, place, head, query);
    UNROLLED(n, D / 32)
        store_values<float>(to + n * 4 * pass_threads<AT_ONCE>, sum[n]);
}

/* Writes the finished dq of the tile that begins at query `query`. */
template <typename T, int D>
DEVICE void queries_store(const struct cuda_attention &attention, int sample, int head, int query,
                          const float (&sum)[D / 32][4])
{
    const int row = query + cuda_warp() % 2 * 16 + cuda_lane() / 4, size = attention.head_size;
    const int first = cuda_warp() / 2 * (D / 4) + 2 * (cuda_lane() % 4);
    T *to = tile_rows<T>(attention.dq, sample, head, size) + row * attention.dq.row + first;
    UNROLLED(n, D / 32) {
        UNROLLED(r, 2) {
            void *at = to + 8 * r * attention.dq.row + n * 8;
            const T pair[2] = {rounded<T>(sum[n][2 * r] * attention.scale),
                               rounded<T>(sum[n][2 * r + 1] * attention.scale)};
            const int left = row + 8 * r < attention.time ? size - first - n * 8 : 0;
            if (attention.unit > 1 && left > 0)
                memcpy(__builtin_assume_aligned(at, 4), pair, sizeof pair);
            for (int i = 0; i < 2 && i < left && attention.unit == 1; i++)
                ((T *)at)[i] = pair[i];
        }
    }
}

/* Stores the finished sums of the warp's own rows, dk or dq and dv, that the pass makes. */
template <typename T, int D, int PASS, int N, int M>
DEVICE void sums_store(const struct cuda_attention &attention, const struct backward_place &place,
                       unsigned char *shared, const float (&sum)[N][4], const float (&sum_v)[M][4])
{
    const int size = attention.head_size, warp_row = tile_warp_row(), first = place.own + warp_row;
    T *scratch = (T *)shared + warp_row * tile_stride<D>;
    if constexpr (sums_slopes<PASS>) {
        const struct cuda_attention_rows &to = PASS == BY_QUERIES ? attention.dq : attention.dk;
        const float scale[2] = {attention.scale, attention.scale};
        tile_store<T, D>(scratch, sum, scale, tile_rows<T>(to, place.sample, place.head, size),
                         to.row, first, attention.time, size, attention.unit);
    }
    if constexpr (sums_values<D, PASS>) {
        const float kept[2] = {attention.kept_scale, attention.kept_scale};
        tile_store<T, D>(scratch + (sums_slopes<PASS> ? tile_elements<D, own_rows<PASS>> : 0),
                         sum_v, kept, tile_rows<T>(attention.dv, place.sample, place.head, size),
                         attention.dv.row, first, attention.time, size, attention.unit);
    }
}

/* Computes the gradients of tile `own` of own rows. */
template <typename T, int D, int PASS, int MMA>
DEVICE void gradients_make(const struct cuda_attention &attention, unsigned char *shared, int own)
{
    constexpr bool KEYS = PASS != BY_QUERIES;
    constexpr int OWN = own_rows<PASS>, THREADS = pass_threads<PASS>;
    T *own_first = (T *)shared, *own_second = own_first + tile_elements<D, OWN>;
    T *slopes = own_second + tile_elements<D, OWN>; /* at once */
    const struct backward_place place = backward_place_of<KEYS, OWN, OTHER_ROWS>(attention, own);
    const int warp_row = tile_warp_row();
    constexpr bool kept = place_kept<D, PASS, MMA>;
    const int stages =
        kept ? attention.stages : 1; /* synchronous copies gain nothing from a second stage */
    const int own_row = place.own + warp_row + cuda_lane() / 4;
    tile_load<T, D, OWN, THREADS>(
        own_first, tile_source_of<T>(attention, KEYS ? attention.k : attention.q, place.sample,
                                     place.head, place.own, attention.time));
    if constexpr (sums_slopes<PASS>)
        tile_load<T, D, OWN, THREADS>(
            own_second, tile_source_of<T>(attention, KEYS ? attention.v : attention.dy,
                                          place.sample, place.head, place.own, attention.time));
    int head = KEYS ? place.head * place.heads : place.head, tile = 0,
        stage_now = 0; /* of this step */
    const int head_end = head + place.heads;
    struct other_rows<T> others =
        other_rows_of<T, KEYS>(attention, place.sample, head, place.first);
    stage_load<T, D, PASS>(stage_of<T, D, PASS>(shared, 0), &others);
    struct own_statistics rows = {{0.0f, 0.0f}, {0.0f, 0.0f}, {0, 0}, 0};
    if (!KEYS)
        rows = own_statistics_of(attention, place, OWN);
    uint32_t held_first[tile_held_fragments<D>][4], held_second[tile_held_fragments<D>][4];
    float sum[sums_slopes<PASS> ? D / 8 : 1][4], sum_v[sums_values<D, PASS> ? D / 8 : 1][4];
    tile_clear(sum);
    tile_clear(sum_v);
    for (bool first = true; head < head_end; first = false) {
        const struct stage<T> stage = stage_of<T, D, PASS>(shared, stage_now);
        const bool head_ends = tile + 1 == place.tiles, more = !head_ends || head + 1 < head_end;
        if (kept && more && head_ends)
            others = other_rows_of<T, KEYS>(attention, place.sample, head + 1, place.first);
        if (more && stages > 1) {
            stage_load<T, D, PASS>(stage_of<T, D, PASS>(shared, 1 - stage_now), &others);
            cp_async_wait<1>();
        } else {
            cp_async_wait<0>();
        }
        __syncthreads(); /* this step's stage has arrived, and ds is no longer read */
        if (first) {
            tile_hold<T, D>(held_first, own_first + warp_row * tile_stride<D>);
            if constexpr (sums_slopes<PASS>)
                tile_hold<T, D>(held_second, own_second + warp_row * tile_stride<D>);
        }
        const int other = place.first + tile * OTHER_ROWS;
        uint32_t bits = 0;
        if (attention.threshold != 0) {
            const struct dropout_mask mask = attention_mask_make(attention, place.sample, head);
            bits = KEYS ? tile_kept_by_key(attention, mask, other, place.own + warp_row)
                        : tile_kept_by_query<OTHER_TILES>(attention, mask, place.own + warp_row,
                                                          other);
        }
        float score[OTHER_TILES][4], slope[OTHER_TILES][4], dq[PASS == AT_ONCE ? D / 32 : 1][4];
        if (!steps_skipped<D, PASS> || step_counts<KEYS>(place, other)) {
            tile_scores<T, D, OTHER_TILES, MMA>(score, held_first,
                                                own_first + warp_row * tile_stride<D>, stage.first);
            if constexpr (sums_slopes<PASS>)
                tile_scores<T, D, OTHER_TILES, MMA>(
                    slope, held_second, own_second + warp_row * tile_stride<D>, stage.second);
            scores_hide<KEYS, OWN>(attention, place, score, own_row, other, rows);
            slopes_make<T, D, PASS>(attention, score, slope, rows, stage, bits);
            if constexpr (PASS == AT_ONCE)
                slopes_share(slope, slopes);
            if constexpr (PASS == AT_ONCE && sums_early<D, MMA>)
                query_sums_load<D>(attention, place, head, other, dq);
            if constexpr (sums_values<D, PASS>)
                tile_add<T, D, OTHER_TILES, sums_mma<D, PASS, MMA>>(sum_v, score, stage.second);
            if constexpr (sums_slopes<PASS>)
                tile_add<T, D, OTHER_TILES, sums_mma<D, PASS, MMA>>(sum, slope, stage.first);
        } else if constexpr (PASS == AT_ONCE) {
            tile_clear(slope);
            slopes_share(slope, slopes);
            if constexpr (sums_early<D, MMA>)
                query_sums_load<D>(attention, place, head, other, dq);
        }
        __syncthreads(); /* the stage is no longer read, and ds is complete */
        if (!kept && more)
            others = other_rows_of<T, KEYS>(attention, place.sample, head + head_ends,
                                            place.first + (head_ends ? 0 : tile + 1) * OTHER_ROWS);
        if (more && stages == 1)
            stage_load<T, D, PASS>(stage, &others);
        if constexpr (PASS == AT_ONCE && !sums_early<D, MMA>)
            query_sums_load<D>(attention, place, head, other, dq);
        if constexpr (PASS == AT_ONCE) {
            queries_add<T, D, sums_mma<D, PASS, MMA>>(dq, slopes, own_first);
            if (other < place.own + OWN) /* these queries see no key after the block's */
                queries_store<T, D>(attention, place.sample, head, other, dq);
            else
                query_sums_store<D>(attention, place, head, other, dq);
        }
        head += head_ends;
        tile = head_ends ? 0 : tile + 1;
        stage_now = stages > 1 ? 1 - stage_now : 0;
    }
    if constexpr (PASS == AT_ONCE)
        __syncthreads(); /* the keys are no longer read */
    sums_store<T, D, PASS>(attention, place, shared, sum, sum_v);
}

template <typename T, int D, int PASS, int MMA>
__global__ void __launch_bounds__(pass_threads<PASS>, blocks_min<D, PASS>)
    attention_backward_tiles(const struct cuda_attention attention)
{
    if constexpr (!tile_compiled<T, MMA>) {
        __trap();
    } else if constexpr (PASS == AT_ONCE) {
        DYN_SHARED(unsigned char, shared);
        /* One counter: there is no register for a head's and a tile's. */
        const int tiles = (attention.time + own_rows<PASS> - 1) / own_rows<PASS>;
        for (int own = (int)blockIdx.x * tiles;
             own < attention.samples * attention.kv_heads * tiles;) {
            gradients_make<T, D, PASS, MMA>(attention, shared, own);
            __syncthreads(); /* the tile is stored */
            own++;
            own += own % tiles == 0 ? ((int)gridDim.x - 1) * tiles : 0; /* to the next head */
        }
    } else {
        DYN_SHARED(unsigned char, shared);
        gradients_make<T, D, PASS, MMA>(attention, shared, (int)blockIdx.x);
    }
}

/* ---- host side ---- */

template <typename T, int PASS, int MMA>
static attention_kernel backward_kernel_of(int32_t head_size)
{
    return attention_by_size(head_size, [](auto size) -> attention_kernel {
        if constexpr (backward_exists<size(), PASS, MMA>)
            return attention_backward_tiles<T, size(), PASS, MMA>;
        return NULL; /* the host side asks for none */
    });
}

template <int PASS>
static attention_kernel backward_kernel_by(const struct cuda_attention &attention)
{
    const int32_t size = attention.head_size;
    if (attention.q.of.dtype == DTYPE_BF16)
        return backward_kernel_of<__nv_bfloat16, PASS, MMA_K16>(size);
    if (attention.half_sums)
        return backward_kernel_of<__half, PASS, MMA_HALF_SUMS>(size);
    if constexpr (PASS != AT_ONCE) {
        if (!attention.tensor_k16)
            return backward_kernel_of<__half, PASS, MMA_K8>(size);
    }
    return backward_kernel_of<__half, PASS, MMA_K16>(size);
}

template <int PASS> static size_t backward_shared_bytes(int32_t head_size, int32_t stages)
{
    return attention_by_size(head_size, [&](auto size) {
        return own_bytes<size(), PASS> + (size_t)stages * stage_bytes<size()>;
    });
}

extern "C" size_t cuda_attention_backward_shared_bytes(int32_t head_size, int32_t stages,
                                                       bool at_once)
{
    if (at_once && head_size > CUDA_ATTENTION_HEAD_SIZE_SMALL)
        return SIZE_MAX;
    return at_once ? backward_shared_bytes<AT_ONCE>(head_size, stages)
                   : backward_shared_bytes<BY_KEYS>(head_size, stages);
}

template <int PASS>
static cudaError_t backward_launch(cudaStream_t stream, const struct cuda_attention *attention)
{
    const struct attention_instance instance = {
        backward_kernel_by<PASS>(*attention),
        backward_shared_bytes<PASS>(attention->head_size, attention->stages)};
    return attention_launch(stream, instance, TILE_ROWS,
                            PASS == BY_QUERIES ? attention->heads : attention->kv_heads,
                            pass_threads<PASS>, attention);
}

extern "C" cudaError_t cuda_launch_attention_backward_tiles(cudaStream_t stream,
                                                            const struct cuda_attention *attention)
{
    if (attention->blocks > 0)
        return backward_launch<AT_ONCE>(stream, attention);
    cudaError_t error = cudaSuccess;
    if (attention->head_size > CUDA_ATTENTION_HEAD_SIZE_SMALL)
        error = backward_launch<BY_VALUES>(stream, attention);
    if (error == cudaSuccess)
        error = backward_launch<BY_KEYS>(stream, attention);
    return error != cudaSuccess ? error : backward_launch<BY_QUERIES>(stream, attention);
}
