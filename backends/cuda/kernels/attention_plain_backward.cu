/* attention_backward in fp32 arithmetic, for fp32 and mixtures of dtypes; and delta, for all
 * dtypes.
 *
 * It makes the two passes of attention_tile_backward.cu, by keys and by queries, with fused
 * multiply-adds.  A block owns 32 rows, 8 for each warp, and walks over the other rows, 32 (16 for
 * head sizes above 96) at a time; for heads above 128 columns two warps own 16 rows, and walk over
 * 8 at a time.  Weights and slopes pass through the warp's shared memory.  Every sum has one owner
 * and a fixed order.  No TF32.
 *
 * Shared memory: 28, 44, 60, 55.5, 51 KiB for D = 32, 64, 96, 128, 256.
 */
#include "backends/cuda/kernels/attention_plain.h"

#define ROWS_I 2               /* rows of scores in a lane */
#define WARP_ROWS (4 * ROWS_I) /* own rows of a warp; by keys, one group of eight keys */
#define BLOCKS_MIN 2   /* on a multiprocessor, by registers: see attention_tile_backward.cu */
#define DELTA_LANES 16 /* for a row of one head, 8 elements each */
#define DELTA_ROWS (PLAIN_THREADS / DELTA_LANES) /* of a block */

template <int D> constexpr int plain_warps = D <= CUDA_ATTENTION_HEAD_SIZE_SMALL ? PLAIN_WARPS : 2;
template <int D> constexpr int plain_threads = plain_warps<D> *WARP_LANES;
template <int D> constexpr int plain_own_rows = plain_warps<D> *WARP_ROWS;
template <int D>
constexpr int plain_other_rows = D <= 96                               ? 32
                                 : D <= CUDA_ATTENTION_HEAD_SIZE_SMALL ? 16
                                                                       : 8;
template <int D>
constexpr size_t plain_backward_bytes =
    (2 * (plain_own_rows<D> + plain_other_rows<D>)*plain_stride<D> +
     2 * plain_own_rows<D> * weight_stride<plain_other_rows<D>>)*sizeof(float);

/* delta[b,h,t] = the sum over d of dy y. */
__global__ void __launch_bounds__(PLAIN_THREADS)
    attention_delta(const struct cuda_attention attention)
{
    const int lane = (int)threadIdx.x % DELTA_LANES, size = attention.head_size;
    const int64_t index =
        (int64_t)blockIdx.x * DELTA_ROWS + threadIdx.x / DELTA_LANES; /* (sample, row, head) */
    const int64_t rows = (int64_t)attention.samples * attention.time * attention.heads;
    const int head = (int)(index % attention.heads),
              row = (int)(index / attention.heads % attention.time);
    const int sample = (int)(index / attention.heads / attention.time);
    float sum = 0.0f;
    for (int column = lane * CUDA_GROUP; index < rows && column < size;
         column += DELTA_LANES * CUDA_GROUP) {
        float y[CUDA_GROUP], dy[CUDA_GROUP];
        cuda_read(
            attention.y.of,
            attention_span(attention, attention_row(attention.y, sample, row, head, size), column),
            y);
        cuda_read(
            attention.dy.of,
            attention_span(attention, attention_row(attention.dy, sample, row, head, size), column),
            dy);
        UNROLLED(k, CUDA_GROUP)
            sum = fmaf(dy[k], y[k], sum);
    }
#pragma unroll
    for (int distance = DELTA_LANES / 2; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    if (index < rows && lane == 0)
        attention.delta[((int64_t)sample * attention.heads + head) * attention.time + row] = sum;
}

/* Returns the kept elements (query, key) of 8 rows of the warp and 8 J columns, as bits.  By keys a
 * lane draws the block of one query, and bit k is row k; by queries it draws that of one row and
 * eight keys, and bit k is x. */
template <bool KEYS>
DEVICE uint32_t plain_kept(const struct cuda_attention &attention, const struct dropout_mask &mask,
                           int own, int other)
{
    const int lane = cuda_lane();
    const int query = KEYS ? other + lane : own + lane % 8, key = KEYS ? own : other + lane / 8 * 8;
    return dropout_kept(&mask, attention_mask_group(attention, query, key));
}

/* Turns scores into p f (without f's scale), and dp into ds.  `own` is the warp's first own row,
 * `other` the first other row. */
template <bool KEYS, int J>
DEVICE void plain_slopes(const struct cuda_attention &attention, float (&score)[ROWS_I][J],
                         float (&slope)[ROWS_I][J], int sample, int head, int own, int other,
                         uint32_t bits)
{
    const int64_t start = ((int64_t)sample * attention.heads + head) * attention.time;
    const int x = plain_x(), y = plain_y();
    UNROLLED(i, ROWS_I) {
        UNROLLED(j, J) {
            const int row = own + y + 4 * i, column = other + x + 8 * j;
            const int query = KEYS ? column : row, key = KEYS ? row : column;
            const float lse = query < attention.time ? attention.lse[start + query] : 0.0f;
            const float delta = query < attention.time ? attention.delta[start + query] : 0.0f;
            const bool hidden = key > query || key < attention_begin(attention, sample, query);
            const float p = hidden ? 0.0f : expf(fmaf(score[i][j], attention.scale, -lse));
            bool kept = true;
            if (attention.threshold != 0) {
                const int source = KEYS ? x + 8 * j : y + 4 * i + 8 * j, bit = KEYS ? y + 4 * i : x;
                kept = (__shfl_sync(ALL_LANES, bits, source) >> bit & 1u) != 0;
            }
            score[i][j] = kept ? p : 0.0f;
            slope[i][j] = p * ((kept ? slope[i][j] * attention.kept_scale : 0.0f) - delta);
        }
    }
}

template <int D, bool KEYS>
__global__ void __launch_bounds__(plain_threads<D>, BLOCKS_MIN)
    attention_backward_plain(const struct cuda_attention attention)
{
    constexpr int OWN_ROWS = plain_own_rows<D>, OTHER = plain_other_rows<D>, J = OTHER / 8,
                  THREADS = plain_threads<D>;
    DYN_SHARED(float, shared);
    const struct backward_place place = backward_place_of<KEYS, OWN_ROWS, OTHER>(attention);
    const int group = attention.heads / attention.kv_heads, warp_row = cuda_warp() * WARP_ROWS;
    float *own_one = shared, *own_two = own_one + OWN_ROWS * plain_stride<D>;
    float *other_one = own_two + OWN_ROWS * plain_stride<D>,
          *other_two = other_one + OTHER * plain_stride<D>;
    float *weights = other_two + OTHER * plain_stride<D> + warp_row * weight_stride<OTHER>;
    float *slopes = weights + OWN_ROWS * weight_stride<OTHER>;
    float *warp_one = own_one + warp_row * plain_stride<D>,
          *warp_two = own_two + warp_row * plain_stride<D>;
    float sum[ROWS_I][D / 8], sum_v[ROWS_I][KEYS ? D / 8 : 1];
    plain_clear(sum);
    plain_clear(sum_v);
    plain_load<D, OWN_ROWS, THREADS>(own_one, attention, KEYS ? attention.k : attention.q,
                                     place.sample, place.head, place.own, attention.time);
    plain_load<D, OWN_ROWS, THREADS>(own_two, attention, KEYS ? attention.v : attention.dy,
                                     place.sample, place.head, place.own, attention.time);
    for (int step = 0; step < place.heads * place.tiles; step++) {
        const int head =
            KEYS ? place.head * place.heads + step / place.tiles : place.head; /* of the queries */
        const int other = place.first + step % place.tiles * OTHER,
                  other_head = KEYS ? head : head / group;
        plain_load<D, OTHER, THREADS>(other_one, attention, KEYS ? attention.q : attention.k,
                                      place.sample, other_head, other, attention.time);
        plain_load<D, OTHER, THREADS>(other_two, attention, KEYS ? attention.dy : attention.v,
                                      place.sample, other_head, other, attention.time);
        __syncthreads(); /* the tiles have arrived */
        uint32_t bits = 0;
        if (attention.threshold != 0)
            bits = plain_kept<KEYS>(attention, attention_mask_make(attention, place.sample, head),
                                    place.own + warp_row, other);
        float score[ROWS_I][J], slope[ROWS_I][J];
        plain_scores<D>(score, warp_one, other_one);
        plain_scores<D>(slope, warp_two, other_two);
        plain_slopes<KEYS, J>(attention, score, slope, place.sample, head, place.own + warp_row,
                              other, bits);
        if (KEYS)
            plain_weights_put(weights, score);
        plain_weights_put(slopes, slope);
        __syncwarp(); /* the warp's weights and slopes are written */
        if constexpr (KEYS)
            plain_add<D, ROWS_I, J>(sum_v, weights, other_two);
        plain_add<D, ROWS_I, J>(sum, slopes, other_one);
        __syncthreads(); /* nothing of this step is read any more */
    }
    const float scale[ROWS_I] = {attention.scale, attention.scale};
    plain_store<D, ROWS_I>(warp_one, sum, scale, attention, KEYS ? attention.dk : attention.dq,
                           place.sample, place.head, place.own + warp_row, attention.time);
    if constexpr (KEYS) {
        const float kept[ROWS_I] = {attention.kept_scale, attention.kept_scale};
        plain_store<D, ROWS_I>(warp_two, sum_v, kept, attention, attention.dv, place.sample,
                               place.head, place.own + warp_row, attention.time);
    }
}

/* ---- host side ---- */

template <bool KEYS>
static cudaError_t plain_backward_launch(cudaStream_t stream,
                                         const struct cuda_attention *attention)
{
    const auto instance = attention_by_size(attention->head_size, [](auto size) {
        return attention_instance{attention_backward_plain<size(), KEYS>,
                                  plain_backward_bytes<size()>};
    });
    const bool small = attention->head_size <= CUDA_ATTENTION_HEAD_SIZE_SMALL;
    return attention_launch(stream, instance, small ? plain_own_rows<32> : plain_own_rows<256>,
                            KEYS ? attention->kv_heads : attention->heads,
                            small ? plain_threads<32> : plain_threads<256>, attention);
}

extern "C" cudaError_t cuda_launch_attention_delta(cudaStream_t stream,
                                                   const struct cuda_attention *attention)
{
    const int64_t rows = (int64_t)attention->samples * attention->time * attention->heads;
    const unsigned blocks = (unsigned)((rows + DELTA_ROWS - 1) / DELTA_ROWS);
    return LAUNCH(attention_delta, dim3(blocks), dim3(PLAIN_THREADS), 0, stream, *attention);
}

extern "C" cudaError_t cuda_launch_attention_backward_plain(cudaStream_t stream,
                                                            const struct cuda_attention *attention)
{
    const cudaError_t error = plain_backward_launch<true>(stream, attention);
    return error != cudaSuccess ? error : plain_backward_launch<false>(stream, attention);
}
