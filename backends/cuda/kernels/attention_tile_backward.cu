/* attention_backward on tensor cores, for bf16 and fp16, with recomputed weights.  Dao 2023, algorithm 2, in two
 * passes, so that every sum has one owner and a fixed order, without atomics:
 *     by keys:     a block owns 64 keys and walks over the queries that see them, of all heads that share them, in
 * order:
 *                  dv += (p f)' dy,   dk += ds' q
 *     by queries:  a block owns 64 queries of one head and walks over the keys that they see:   dq += ds k
 * with p = exp(s - lse), ds = p (f dp - delta), dp = dy v', f the dropout factors, and delta = rowsum(dy y) computed
 * before.  One kernel does both passes: its own rows are (k, v) or (q, dy), the other rows (q, dy) or (k, v), 32 at a
 * time.  The next other rows load while these are used, where shared memory suffices.  By keys everything is computed
 * transposed, so that weights go from accumulators to fragments without leaving the registers.
 *
 * Scores, dp and ds are fp32; p and ds are rounded to 16 bits as factors.  The scale of the scores, and in dv that of
 * dropout, are applied to the finished sums.
 *
 * Shared memory with two stages: (D + 8) 512 bytes and 512: 21, 37, 53, 69 KiB for D = 32, 64, 96, 128; with one stage
 * a quarter less.  Two blocks fit on a multiprocessor of sm_86 for D = 64, one for 128.
 */
#include "backends/cuda/kernels/attention_tile.h"

#define OTHER_ROWS 32
#define OTHER_TILES (OTHER_ROWS / 8) /* accumulators for the scores of 32 rows */
#define STAGES_MAX 2
#define BLOCKS_MIN 2 /* on a multiprocessor, by registers; otherwise the compiler aims at more, and spills */

/* One stage: two tiles of other rows and, by keys, lse and delta of each row. */
template <int D>
constexpr size_t stage_bytes = 2 * tile_elements<D, OTHER_ROWS> * sizeof(uint16_t) + 2 * OTHER_ROWS * sizeof(float);
template <int D> constexpr size_t own_bytes = 2 * tile_elements<D, TILE_ROWS> * sizeof(uint16_t);

/* The pointers of a stage in shared memory. */
template <typename T> struct stage {
    T *first, *second; /* q and dy, or k and v */
    float *lse, *delta;
};

template <typename T, int D> DEVICE struct stage<T> stage_of(unsigned char *shared, int index) {
    struct stage<T> stage;
    stage.first = (T *)(shared + own_bytes<D> + index * stage_bytes<D>);
    stage.second = stage.first + tile_elements<D, OTHER_ROWS>;
    stage.lse = (float *)(stage.second + tile_elements<D, OTHER_ROWS>);
    stage.delta = stage.lse + OTHER_ROWS;
    return stage;
}

/* Loads lse and delta of 32 queries; zeros from the end on, where the rows are zeros too. */
DEVICE void
statistics_load(const struct cuda_attention &attention, float *lse, float *delta, int sample, int head, int first)
{
    const int64_t start = ((int64_t)sample * attention.heads + head) * attention.time;
    const int i = (int)threadIdx.x % OTHER_ROWS, row = first + i;
    if (threadIdx.x < 2 * OTHER_ROWS) {
        const bool is_lse = threadIdx.x < OTHER_ROWS;
        cp_async_4((is_lse ? lse : delta) + i, (is_lse ? attention.lse : attention.delta) + start + row,
                   row < attention.time);
    }
}

/* Starts filling a stage with the other rows of step `step`. */
template <typename T, int D, bool KEYS>
DEVICE void stage_load(const struct cuda_attention &attention, const struct backward_place &place,
                       const struct stage<T> &stage, int step)
{
    int head, first;
    backward_step_place<KEYS, OTHER_ROWS>(place, step, &head, &first);
    const struct cuda_attention_rows &one = KEYS ? attention.q : attention.k, &two = KEYS ? attention.dy : attention.v;
    const int size = attention.head_size, at = KEYS ? head : head / (attention.heads / attention.kv_heads);
    tile_load<T, D, OTHER_ROWS>(
        stage.first, {tile_rows<T>(one, place.sample, at, size), one.row, first, attention.time, size, attention.unit});
    tile_load<T, D, OTHER_ROWS>(stage.second, {tile_rows<T>(two, place.sample, at, size), two.row, first,
                                               attention.time, size, attention.unit});
    if (KEYS)
        statistics_load(attention, stage.lse, stage.delta, place.sample, head, first);
    cp_async_commit();
}

/* lse and delta of the lane's two own rows, by queries; zeros for rows from the end on. */
struct own_statistics {
    float lse[2], delta[2];
};

DEVICE struct own_statistics own_statistics_of(const struct cuda_attention &attention,
                                               const struct backward_place &place)
{
    const int64_t start = ((int64_t)place.sample * attention.heads + place.head) * attention.time;
    struct own_statistics own;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int row = place.own + tile_warp_row() + cuda_lane() / 4 + 8 * r;
        own.lse[r] = row < attention.time ? attention.lse[start + row] : 0.0f;
        own.delta[r] = row < attention.time ? attention.delta[start + row] : 0.0f;
    }
    return own;
}

/* Turns scores into p f (without f's scale), and dp into ds.  `own` is the lane's first own row, `other` the tile's
 * first other row.  masked: some of the queries do not see some of the keys. */
template <bool KEYS>
DEVICE void slopes_make(const struct cuda_attention &attention, float (&score)[OTHER_TILES][4],
                        float (&slope)[OTHER_TILES][4], const struct own_statistics &rows, const float *lse,
                        const float *delta, uint32_t bits, int sample, int own, int other, bool masked)
{
    const int t = cuda_lane() % 4;
    const float scale = attention.scale * LOG2_E;
#pragma unroll
    for (int n = 0; n < OTHER_TILES; n++) {
        uint32_t kept = 15u;
        if (attention.threshold != 0)
            kept = KEYS ? tile_kept_key(bits, n) : tile_kept_query(tile_kept_of(bits, n), 0);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int column = n * 8 + 2 * t + e % 2, row = own + e / 2 * 8;
            const float row_lse = KEYS ? lse[column] : rows.lse[e / 2];
            const float row_delta = KEYS ? delta[column] : rows.delta[e / 2];
            const int query = KEYS ? other + column : row, key = KEYS ? row : other + column;
            const bool hidden = masked && (key > query || attention_hides(attention, sample, query, key));
            const float p = hidden ? 0.0f : exp2f(fmaf(score[n][e], scale, -row_lse * LOG2_E));
            const bool is_kept = (kept >> e & 1u) != 0;
            score[n][e] = is_kept ? p : 0.0f;
            slope[n][e] = p * ((is_kept ? slope[n][e] * attention.kept_scale : 0.0f) - row_delta);
        }
    }
}

/* Stores the finished sums of the warp's own rows. */
template <typename T, int D, bool KEYS>
DEVICE void sums_store(const struct cuda_attention &attention, const struct backward_place &place,
                       unsigned char *shared, const float (&sum)[D / 8][4], const float (&sum_v)[D / 8][4])
{
    const int size = attention.head_size, warp_row = tile_warp_row(), first = place.own + warp_row;
    T *scratch = (T *)shared + warp_row * tile_stride<D>;
    const struct cuda_attention_rows &to = KEYS ? attention.dk : attention.dq;
    const float scale[2] = {attention.scale, attention.scale};
    tile_store<T, D>(scratch, sum, scale, tile_rows<T>(to, place.sample, place.head, size), to.row, first,
                     attention.time, size, attention.unit);
    if (KEYS) {
        const float kept[2] = {attention.kept_scale, attention.kept_scale};
        tile_store<T, D>(scratch + tile_elements<D, TILE_ROWS>, sum_v, kept,
                         tile_rows<T>(attention.dv, place.sample, place.head, size), attention.dv.row, first,
                         attention.time, size, attention.unit);
    }
}

template <typename T, int D, bool KEYS, bool WIDE>
__global__ void __launch_bounds__(TILE_THREADS, BLOCKS_MIN)
    attention_backward_tiles(const struct cuda_attention attention)
{
    if constexpr (tile_compiled<T, WIDE>) {
        DYN_SHARED(unsigned char, shared);
        T *own_first = (T *)shared, *own_second = own_first + tile_elements<D, TILE_ROWS>;
        const struct backward_place place = backward_place_of<KEYS, TILE_ROWS, OTHER_ROWS>(attention);
        const int size = attention.head_size, warp_row = tile_warp_row(), steps = place.heads * place.tiles;
        const int stages = WIDE ? attention.stages : 1; /* synchronous copies gain nothing from a second stage */
        const int own_row = place.own + warp_row;
        const struct cuda_attention_rows &one = KEYS ? attention.k : attention.q;
        const struct cuda_attention_rows &two = KEYS ? attention.v : attention.dy;
        tile_load<T, D, TILE_ROWS>(own_first, {tile_rows<T>(one, place.sample, place.head, size), one.row, place.own,
                                               attention.time, size, attention.unit});
        tile_load<T, D, TILE_ROWS>(own_second, {tile_rows<T>(two, place.sample, place.head, size), two.row, place.own,
                                                attention.time, size, attention.unit});
        stage_load<T, D, KEYS>(attention, place, stage_of<T, D>(shared, 0), 0);
        struct own_statistics rows = {{0.0f, 0.0f}, {0.0f, 0.0f}};
        if (!KEYS)
            rows = own_statistics_of(attention, place);
        uint32_t held_first[tile_held_fragments<D>][4], held_second[tile_held_fragments<D>][4];
        float sum[D / 8][4], sum_v[KEYS ? D / 8 : 1][4];
        tile_clear(sum);
        tile_clear(sum_v);
        for (int step = 0; step < steps; step++) {
            const struct stage<T> stage = stage_of<T, D>(shared, step % stages);
            const bool ahead = stages > 1 && step + 1 < steps;
            if (ahead) {
                stage_load<T, D, KEYS>(attention, place, stage_of<T, D>(shared, (step + 1) % stages), step + 1);
                cp_async_wait<1>();
            } else {
                cp_async_wait<0>();
            }
            __syncthreads(); /* this step's stage has arrived */
            if (step == 0) {
                tile_hold<T, D>(held_first, own_first + warp_row * tile_stride<D>);
                tile_hold<T, D>(held_second, own_second + warp_row * tile_stride<D>);
            }
            int head, other;
            backward_step_place<KEYS, OTHER_ROWS>(place, step, &head, &other);
            uint32_t bits = 0;
            if (attention.threshold != 0) {
                const struct cuda_mask mask = attention_mask_make(attention, place.sample, head);
                bits = KEYS ? tile_kept_by_key(attention, mask, other, own_row)
                            : tile_kept_by_query<OTHER_TILES>(attention, mask, own_row, other);
            }
            float score[OTHER_TILES][4], slope[OTHER_TILES][4];
            tile_scores<T, D, OTHER_TILES, WIDE>(score, held_first, own_first + warp_row * tile_stride<D>, stage.first);
            tile_scores<T, D, OTHER_TILES, WIDE>(slope, held_second, own_second + warp_row * tile_stride<D>,
                                                 stage.second);
            const bool masked = attention.begin != NULL ||
                                (KEYS ? place.own + TILE_ROWS - 1 > other : other + OTHER_ROWS - 1 > place.own);
            slopes_make<KEYS>(attention, score, slope, rows, stage.lse, stage.delta, bits, place.sample,
                              own_row + cuda_lane() / 4, other, masked);
            if constexpr (KEYS)
                tile_add<T, D, OTHER_TILES, WIDE>(sum_v, score, stage.second);
            tile_add<T, D, OTHER_TILES, WIDE>(sum, slope, stage.first);
            __syncthreads(); /* the stage is no longer read */
            if (stages == 1 && step + 1 < steps)
                stage_load<T, D, KEYS>(attention, place, stage, step + 1);
        }
        if constexpr (KEYS)
            sums_store<T, D, KEYS>(attention, place, shared, sum, sum_v);
        else
            sums_store<T, D, KEYS>(attention, place, shared, sum, sum);
    } else {
        __trap();
    }
}

/* ---- host side ---- */

template <typename T, bool KEYS, bool WIDE> static attention_kernel backward_kernel_of(int32_t head_size)
{
    return head_size <= 32   ? attention_backward_tiles<T, 32, KEYS, WIDE>
           : head_size <= 64 ? attention_backward_tiles<T, 64, KEYS, WIDE>
           : head_size <= 96 ? attention_backward_tiles<T, 96, KEYS, WIDE>
                             : attention_backward_tiles<T, 128, KEYS, WIDE>;
}

template <bool KEYS> static attention_kernel backward_kernel_by(enum dtype dtype, bool wide, int32_t head_size)
{
    if (dtype == DTYPE_BF16)
        return backward_kernel_of<__nv_bfloat16, KEYS, true>(head_size);
    return wide ? backward_kernel_of<__half, KEYS, true>(head_size)
                : backward_kernel_of<__half, KEYS, false>(head_size);
}

extern "C" size_t cuda_attention_backward_shared_bytes(int32_t head_size, int32_t stages)
{
    const size_t count = (size_t)stages;
    return head_size <= 32   ? own_bytes<32> + count * stage_bytes<32>
           : head_size <= 64 ? own_bytes<64> + count * stage_bytes<64>
           : head_size <= 96 ? own_bytes<96> + count * stage_bytes<96>
                             : own_bytes<128> + count * stage_bytes<128>;
}

template <bool KEYS> static cudaError_t backward_launch(cudaStream_t stream, const struct cuda_attention *attention)
{
    const struct attention_instance instance = {
        backward_kernel_by<KEYS>(attention->q.of.dtype, attention->tensor_k16, attention->head_size),
        cuda_attention_backward_shared_bytes(attention->head_size, attention->stages)};
    return attention_launch(stream, instance, TILE_ROWS, KEYS ? attention->kv_heads : attention->heads, TILE_THREADS,
                            attention);
}

extern "C" cudaError_t cuda_launch_attention_backward_tiles(cudaStream_t stream, const struct cuda_attention *attention)
{
    const cudaError_t error = backward_launch<true>(stream, attention);
    return error != cudaSuccess ? error : backward_launch<false>(stream, attention);
}
