/* Products of known matrices, which prove a library's or a matrix unit's kernels before they are
 * used.
 *
 * The matrices hold small integers, whose sums are exact in any order.  Results are checked with
 * Freivalds' method (Probabilistic machines can use less running time, 1977): d x against a (b x).
 * The vector x has no zeros, so a single wrong element is always detected.  NaN after d, and in d
 * unless the product adds to it, reveals elements that are written beyond d or not at all.
 */
#include "backends/opencl/opencl_known.h"

#include "backends/opencl/opencl_memory.h"

#define REGION_BYTES ((uint64_t)4 << 20) /* for each of a, b and d, which follow one another */
#define GUARD_WORDS 1024                 /* after d */
#define GUARD UINT32_C(0x7fc0dead)
#define WEIGHTS 61

/* Returns 32 bits that differ for each index and salt. */
static uint32_t known_bits(int64_t index, uint32_t salt)
{
    uint32_t x = (uint32_t)index * UINT32_C(2654435761) + salt;
    x ^= x >> 15;
    x *= UINT32_C(0x2c1b3c6d);
    return x ^ x >> 12;
}

/* Returns an integer from -4 to 4, which every dtype represents exactly. */
static float known_value(int64_t index, uint32_t matrix)
{
    return (float)(int32_t)(known_bits(index, matrix + 1) % 9) - 4.0f;
}

static double weight(int64_t index)
{
    return 1.0 + (double)(known_bits(index, 7) % WEIGHTS);
}

static void known_fill(void *memory, enum dtype dtype, int64_t count, uint32_t matrix)
{
    for (int64_t i = 0; i < count; i++) {
        const float value = known_value(i, matrix);
        dtype_convert((char *)memory + (size_t)i * dtype_size_bytes(dtype), dtype, &value,
                      DTYPE_F32, 1);
    }
}

static struct op_call call_make(const struct opencl_product *p)
{
    struct op_call call = {.kind = OP_GEMM,
                           .attrs = {.transpose_a = p->transpose_a, .transpose_b = p->transpose_b}};
    const int64_t dims[][2] = {{p->transpose_a ? p->k : p->m, p->transpose_a ? p->m : p->k},
                               {p->transpose_b ? p->n : p->k, p->transpose_b ? p->k : p->n},
                               {p->m, p->n}};
    const int32_t slots[] = {GEMM_A, GEMM_B, GEMM_D};
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++)
        call.operand[slots[i]] =
            (struct operand){.at = {.space = SPACE_DEVICE, .offset_bytes = i * REGION_BYTES},
                             .present = true,
                             .dtype = slots[i] == GEMM_D ? DTYPE_F32 : p->dtype,
                             .rank = 2,
                             .dims = {dims[i][0], dims[i][1]}};
    call.workspace = (struct address){.space = SPACE_DEVICE, .offset_bytes = 3 * REGION_BYTES};
    call.workspace_bytes = OPENCL_KNOWN_BYTES - 3 * REGION_BYTES;
    return call;
}

/* Uploads the operands, multiplies, and downloads d and the words after it.  `memory` is
 * REGION_BYTES. */
static enum gt_status known_run(struct opencl_backend *cl, const struct opencl_product *p,
                                opencl_multiply_fn *multiply, const void *context, float *memory)
{
    const struct backend_ops *ops = cl->base.ops;
    const struct op_call call = call_make(p);
    const size_t d_elements = (size_t)(p->m * p->n);
    for (uint32_t matrix = 0; matrix < 2; matrix++) {
        const struct operand *operand = &call.operand[matrix == 0 ? GEMM_A : GEMM_B];
        known_fill(memory, p->dtype, operand_elements(operand), matrix);
        TRY(ops->upload(&cl->base, operand->at, memory, operand_bytes(operand)));
    }
    for (size_t i = 0; i < d_elements + GUARD_WORDS; i++)
        memcpy(&memory[i], &(uint32_t){GUARD}, sizeof memory[i]);
    if (p->accumulate)
        known_fill(memory, DTYPE_F32, p->m * p->n, 2);
    TRY(ops->upload(&cl->base, call.operand[GEMM_D].at, memory,
                    (d_elements + GUARD_WORDS) * sizeof *memory));
    TRY(multiply(cl, &call, p, context));
    return ops->download(&cl->base, memory, call.operand[GEMM_D].at,
                         (d_elements + GUARD_WORDS) * sizeof *memory);
}

static bool known_check(const struct opencl_backend *cl, const struct opencl_product *p,
                        const float *d, char *lost)
{
    double through[OPENCL_KNOWN_SIDE_MAX]; /* op(b) x */
    for (int64_t k = 0; k < p->k; k++) {
        through[k] = 0.0;
        for (int64_t j = 0; j < p->n; j++)
            through[k] +=
                (double)known_value(p->transpose_b ? j * p->k + k : k * p->n + j, 1) * weight(j);
    }
    for (int64_t row = 0; row < p->m; row++) {
        double is = 0.0, should = 0.0;
        for (int64_t j = 0; j < p->n; j++) {
            is += (double)d[row * p->n + j] * weight(j);
            should += p->accumulate ? (double)known_value(row * p->n + j, 2) * weight(j) : 0.0;
        }
        for (int64_t k = 0; k < p->k; k++)
            should += (double)known_value(p->transpose_a ? k * p->m + row : row * p->k + k, 0) *
                      through[k];
        if (is == should)
            continue;
        snprintf(lost, BACKEND_REASON_MAX,
                 "%s multiplies wrongly: row %d of a known product of %d x %d x %d is wrong",
                 cl->device.name, (int)row, (int)p->m, (int)p->n, (int)p->k);
        return false;
    }
    for (int64_t i = p->m * p->n; i < p->m * p->n + GUARD_WORDS; i++) {
        if (memcmp(&d[i], &(uint32_t){GUARD}, sizeof d[i]) == 0)
            continue;
        snprintf(lost, BACKEND_REASON_MAX,
                 "%s writes beyond the result of a product of %d x %d x %d", cl->device.name,
                 (int)p->m, (int)p->n, (int)p->k);
        return false;
    }
    return true;
}

bool opencl_known_prove(struct opencl_backend *cl, const struct opencl_product *product,
                        opencl_multiply_fn *multiply, const void *context, char *lost)
{
    float *memory = malloc(REGION_BYTES);
    bool right = memory != NULL;
    assert(product->k <= OPENCL_KNOWN_SIDE_MAX &&
           product->m * product->n * 4 + GUARD_WORDS * 4 <= (int64_t)REGION_BYTES);
    if (right) {
        cl->trying = lost;
        right = known_run(cl, product, multiply, context, memory) == GT_OK;
        cl->trying = NULL;
        right = right && known_check(cl, product, memory, lost);
    }
    free(memory);
    return right;
}

bool opencl_scratch_open(struct opencl_backend *cl)
{
    const struct backend_segment segment = {.space = SPACE_DEVICE,
                                            .size_bytes = OPENCL_KNOWN_BYTES};
    assert(cl->segments == 0);
    return opencl_memory_commit(cl, &segment, 1) == GT_OK;
}

void opencl_scratch_close(struct opencl_backend *cl)
{
    opencl_memory_release(cl);
}
