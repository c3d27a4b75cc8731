/* Measures a device's rate of matrix products, for MFU and forecasts, through the backend interface
 * only.
 *
 * It times square products of growing size, as long as they fit the scratch and the time, then
 * repeats the largest while time remains.  The time of a product is that of its fastest run, since
 * a run that waits for a processor may take a hundred times as long.  On a card several short
 * products are timed together, because launching one and waiting for it takes longer than computing
 * it.  The best rate counts.  The elements are random numbers, which repeat: a card at its power
 * limit is faster with equal ones.
 */
#include "backend/backend_peak.h"

#include "backend/backend_call.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/size.h"

#define SIDE_MIN 64
#define SIDE_MAX 8192
#define SIDE_SURE 256 /* up to here products are timed however long they take */
#define RUNS_EACH 3
#define RUNS_MORE 64 /* of the largest product */
#define TOGETHER_MAX 16
#define TOGETHER_NS 500000            /* shorter products on a card are timed together */
#define NOISE_BYTES ((size_t)1 << 14) /* random numbers, before they repeat */
#define GROWTH 8 /* a product of twice the side takes this many times as long */
#define TIME_SHARE 0.8

/* Makes a product of `side`.  Its matrices and workspace lie one after the other in `scratch` and
 * take *out_bytes. */
static struct op_call square_call(const struct backend *backend, enum dtype dtype,
                                  struct address scratch, int64_t side, size_t *out_bytes)
{
    static const int32_t slots[] = {GEMM_A, GEMM_B, GEMM_D};
    struct op_call call = {.kind = OP_GEMM, .workspace = scratch};
    const uint64_t bytes = (uint64_t)(side * side) * dtype_size_bytes(dtype);
    for (uint64_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
        struct operand *operand = &call.operand[slots[i]];
        *operand = (struct operand){
            .at = scratch, .present = true, .dtype = dtype, .rank = 2, .dims = {side, side}};
        operand->at.offset_bytes += i * bytes;
    }
    call.workspace.offset_bytes += 3 * bytes; /* aligned, because sides are multiples of 64 */
    call.workspace_bytes = backend->ops->workspace_bytes(backend, &call);
    *out_bytes = (size_t)(3 * bytes) + call.workspace_bytes;
    return call;
}

void backend_noise(enum dtype dtype, int64_t count, void *out)
{
    const struct philox_key key = philox_key_make(0, RNG_INIT);
    for (int64_t i = 0; i < count; i++) {
        const struct philox_block block =
            philox4x32_10(key, (struct philox_block){{(uint32_t)(i / 4)}});
        const float value = (float)(int32_t)block.word[i % 4] * 0x1p-31f;
        if (dtype == DTYPE_F32)
            ((float *)out)[i] = value;
        else
            ((uint16_t *)out)[i] = dtype == DTYPE_BF16 ? bf16_from_f32(value) : f16_from_f32(value);
    }
}

/* Fills both factors with the noise: uploads it once, and then doubles it by copies on the device.
 */
static enum gt_status values_write(struct backend *backend, const struct op_call *product)
{
    static const int32_t slots[] = {GEMM_A, GEMM_B};
    uint8_t noise[NOISE_BYTES];
    const enum dtype dtype = product->operand[GEMM_A].dtype;
    const uint64_t size = dtype_size_bytes(dtype),
                   all = (uint64_t)operand_bytes(&product->operand[GEMM_A]);
    const uint64_t first = all < sizeof noise ? all : sizeof noise;
    backend_noise(dtype, (int64_t)(first / size), noise);
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
        const struct operand *factor = &product->operand[slots[i]];
        TRY(backend_upload(backend, factor->at, noise, (size_t)first));
        for (uint64_t done = first; done < all; done *= 2) {
            struct op_call copy = {.kind = OP_COPY};
            copy.operand[COPY_X] = *factor;
            copy.operand[COPY_X].rank = 1;
            copy.operand[COPY_X].dims[0] =
                (int64_t)((done < all - done ? done : all - done) / size);
            copy.operand[COPY_Y] = copy.operand[COPY_X];
            copy.operand[COPY_Y].at.offset_bytes += done;
            TRY(backend_run(backend, &copy, 1));
        }
    }
    return backend_sync(backend);
}

/* Times one run of `count` equal products.  *out_ns is the time per product; *best is raised to the
 * rate. */
static enum gt_status products_time(struct backend *backend, const struct op_call *product,
                                    size_t count, double *best, int64_t *out_ns)
{
    struct op_call calls[TOGETHER_MAX];
    const double side = (double)product->operand[GEMM_A].dims[0];
    for (size_t i = 0; i < count; i++)
        calls[i] = *product;
    const int64_t start_ns = clock_monotonic_ns();
    TRY(backend_run(backend, calls, count));
    TRY(backend_sync(backend));
    *out_ns = (clock_monotonic_ns() - start_ns) / (int64_t)count + 1;
    const double rate = 2.0 * side * side * side / ((double)*out_ns * 1e-9);
    *best = rate > *best ? rate : *best;
    return GT_OK;
}

/* Returns the number of products to time together if each takes `ns`. */
static size_t together(bool is_card, int64_t ns)
{
    const int64_t count = is_card ? TOGETHER_NS / ns : 1;
    return count < 1 ? 1 : (size_t)(count < TOGETHER_MAX ? count : TOGETHER_MAX);
}

/* Runs the smallest product, because some drivers compile kernels at their first run.  Sets *dtype
 * to fp32 if the device cannot multiply it. */
static enum gt_status warm_up(struct backend *backend, enum dtype *dtype, struct address scratch,
                              size_t scratch_bytes)
{
    size_t bytes = 0;
    int64_t ns = 0;
    double rate = 0.0;
    struct op_call product = square_call(backend, *dtype, scratch, SIDE_MIN, &bytes);
    if (!backend->ops->supports(backend, &product)) {
        *dtype = DTYPE_F32;
        product = square_call(backend, *dtype, scratch, SIDE_MIN, &bytes);
    }
    if (bytes > scratch_bytes)
        return GT_NO_FIT;
    TRY(values_write(backend, &product));
    return products_time(backend, &product, 1, &rate, &ns);
}

enum gt_status backend_peak_flops(struct backend *backend, enum dtype dtype, struct address scratch,
                                  size_t scratch_bytes, double seconds, double *out)
{
    struct backend_info info;
    TRY(backend_info(backend, &info));
    TRY(warm_up(backend, &dtype, scratch, scratch_bytes));
    const int64_t most_ns = (int64_t)(seconds * TIME_SHARE * 1e9);
    double best = 0.0;
    int64_t spent_ns = 0, fastest_ns, ns;
    size_t bytes = 0;
    struct op_call product, next = square_call(backend, dtype, scratch, SIDE_MIN, &bytes);
    bool is_next;
    do {
        product = next;
        fastest_ns = INT64_MAX;
        const int64_t side = product.operand[GEMM_A].dims[0];
        TRY(values_write(backend, &product));
        size_t count = 1; /* the first run may load or choose its kernel */
        for (int run = 0;
             run < RUNS_EACH && (run == 0 || side <= SIDE_SURE || spent_ns + fastest_ns < most_ns);
             run++) {
            TRY(products_time(backend, &product, count, &best, &ns));
            fastest_ns = min_i64(fastest_ns, ns);
            spent_ns += side > SIDE_SURE ? fastest_ns : 0;
            count = together(!info.host_memory, fastest_ns);
        }
        next = square_call(backend, dtype, scratch, 2 * side, &bytes);
        is_next = 2 * side <= SIDE_MAX && bytes <= scratch_bytes &&
                  (2 * side <= SIDE_SURE || spent_ns + GROWTH * fastest_ns < most_ns);
    } while (is_next);
    for (int run = 0; run < RUNS_MORE && spent_ns + fastest_ns < most_ns; run++) {
        TRY(products_time(backend, &product, together(!info.host_memory, fastest_ns), &best, &ns));
        fastest_ns = min_i64(fastest_ns, ns);
        spent_ns += fastest_ns;
    }
    *out = best;
    return GT_OK;
}
