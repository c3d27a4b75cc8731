/* Tests CLBlast with known products before it is used.
 *
 * CLBlast chooses kernels and their parameters by device name and size, and one release had parameters that multiply
 * wrongly (its issue 533: 1.6.2 on Arc A770).  The test multiplies small integers, whose sums are exact in any order:
 * one size for CLBlast's kernel for small products and one for its kernel for large ones, in the three transpositions
 * of training, with and without accumulation.  Results are checked with Freivalds' method (Probabilistic machines can
 * use less running time, 1977): d x against a (b x).  The vector x has no zeros, so a single wrong element is always
 * detected.
 */
#include "backends/opencl/opencl_clblast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/opencl/opencl_gemm.h"
#include "backends/opencl/opencl_memory.h"
#include "base/log.h"

#define REGION_BYTES ((uint64_t)4 << 20) /* for each of a, b and d, which follow one another */
#define SCRATCH_BYTES ((uint64_t)48 << 20)
#define GUARD_WORDS 1024 /* after d */
#define GUARD UINT32_C(0x7fc0dead)
#define WEIGHTS 61

/* d [m, n] (+)= op(a) op(b) over k. */
struct known_product {
    int32_t m, n, k;
    bool transpose_a, transpose_b, accumulate;
};

/* No size is a multiple of a tile. */
static const struct known_product products[] = {
    {72, 104, 40, false, true, false},    {72, 104, 40, true, false, true},    {72, 104, 40, false, false, false},
    {776, 1032, 648, false, true, false}, {776, 1032, 648, true, false, true}, {776, 1032, 648, false, false, false},
    {1032, 520, 1000, false, true, true},
};

struct known {
    float *a, *b, *d; /* REGION_BYTES each */
    double *through;  /* op(b) x */
};

static double weight(uint32_t index)
{
    return 1.0 + (double)(opencl_known_bits(index, 7) % WEIGHTS);
}

static struct op_call call_make(const struct opencl_backend *cl, const struct known_product *product)
{
    struct op_call call = {.kind = OP_GEMM,
                           .attrs = {.transpose_a = product->transpose_a, .transpose_b = product->transpose_b}};
    const int64_t dims[][2] = {
        {product->transpose_a ? product->k : product->m, product->transpose_a ? product->m : product->k},
        {product->transpose_b ? product->n : product->k, product->transpose_b ? product->k : product->n},
        {product->m, product->n}};
    const int32_t slots[] = {GEMM_A, GEMM_B, GEMM_D};
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++)
        call.operand[slots[i]] = (struct operand){.at = {.space = SPACE_DEVICE, .offset_bytes = i * REGION_BYTES},
                                                  .present = true,
                                                  .dtype = DTYPE_F32,
                                                  .rank = 2,
                                                  .dims = {dims[i][0], dims[i][1]}};
    call.workspace = (struct address){.space = SPACE_DEVICE, .offset_bytes = 3 * REGION_BYTES};
    call.workspace_bytes = opencl_clblast_workspace_bytes(&cl->base, &call);
    return call;
}

static void known_fill(const struct known_product *product, const struct known *known)
{
    for (int32_t i = 0; i < product->m * product->k; i++)
        known->a[i] = opencl_known_value((uint32_t)i, 1);
    for (int32_t i = 0; i < product->n * product->k; i++)
        known->b[i] = opencl_known_value((uint32_t)i, 2);
    for (int32_t i = 0; i < product->m * product->n; i++)
        known->d[i] = opencl_known_value((uint32_t)i, 3);
    for (int32_t i = 0; i < GUARD_WORDS; i++)
        memcpy(&known->d[product->m * product->n + i], &(uint32_t){GUARD}, sizeof(uint32_t));
}

/* Returns true when row `row` of d passes the check with x. */
static bool row_is_right(const struct known_product *product, const struct known *known, int32_t row)
{
    const float *d = known->d + (size_t)row * (size_t)product->n;
    double is = 0.0, should = 0.0;
    for (int32_t j = 0; j < product->n; j++) {
        is += (double)d[j] * weight((uint32_t)j);
        should += product->accumulate
                      ? (double)opencl_known_value((uint32_t)(row * product->n + j), 3) * weight((uint32_t)j)
                      : 0.0;
    }
    for (int32_t k = 0; k < product->k; k++)
        should +=
            (double)known->a[product->transpose_a ? k * product->m + row : row * product->k + k] * known->through[k];
    return is == should;
}

static bool known_check(const struct known_product *product, const struct known *known, char *lost)
{
    for (int32_t k = 0; k < product->k; k++) {
        known->through[k] = 0.0;
        for (int32_t j = 0; j < product->n; j++)
            known->through[k] +=
                (double)known->b[product->transpose_b ? j * product->k + k : k * product->n + j] * weight((uint32_t)j);
    }
    for (int32_t row = 0; row < product->m; row++) {
        if (row_is_right(product, known, row))
            continue;
        snprintf(lost, BACKEND_REASON_MAX, "row %d of a known product of %d x %d x %d is wrong", row, product->m,
                 product->n, product->k);
        return false;
    }
    for (int32_t i = 0; i < GUARD_WORDS; i++) {
        uint32_t word;
        memcpy(&word, &known->d[product->m * product->n + i], sizeof word);
        if (word == GUARD)
            continue;
        snprintf(lost, BACKEND_REASON_MAX, "a product of %d x %d x %d writes beyond its result", product->m, product->n,
                 product->k);
        return false;
    }
    return true;
}

static enum gt_status known_run(struct opencl_backend *cl, const struct known_product *product,
                                const struct known *known)
{
    const struct backend_ops *ops = cl->base.ops;
    const struct op_call call = call_make(cl, product);
    const size_t d_bytes = ((size_t)product->m * (size_t)product->n + GUARD_WORDS) * sizeof(float);
    if (3 * REGION_BYTES + call.workspace_bytes > SCRATCH_BYTES) {
        opencl_error(cl, "a product of %d x %d x %d needs %zu B of workspace", product->m, product->n, product->k,
                     call.workspace_bytes);
        return GT_UNSUPPORTED;
    }
    TRY(ops->upload(&cl->base, 0, call.operand[GEMM_A].at, known->a, operand_bytes(&call.operand[GEMM_A])));
    TRY(ops->upload(&cl->base, 0, call.operand[GEMM_B].at, known->b, operand_bytes(&call.operand[GEMM_B])));
    TRY(ops->upload(&cl->base, 0, call.operand[GEMM_D].at, known->d, d_bytes));
    TRY(opencl_clblast_run(&cl->base, &call, product->accumulate));
    TRY(ops->download(&cl->base, 0, known->d, call.operand[GEMM_D].at, d_bytes));
    return GT_OK;
}

static bool products_prove(struct opencl_backend *cl, const struct known *known, char *lost)
{
    bool right = true;
    for (size_t i = 0; i < sizeof products / sizeof products[0] && right; i++) {
        known_fill(&products[i], known);
        cl->trying = lost;
        right = known_run(cl, &products[i], known) == GT_OK;
        cl->trying = NULL;
        right = right && known_check(&products[i], known, lost);
    }
    return right;
}

void opencl_clblast_prove(struct opencl_backend *cl)
{
    const struct backend_segment segment = {.space = SPACE_DEVICE, .size_bytes = SCRATCH_BYTES};
    char lost[BACKEND_REASON_MAX] = "no memory to try it";
    if (cl->clblast == NULL || !cl->tuning.gemm_clblast || cl->is_clblast_proven)
        return;
    assert(!cl->has_arena && cl->segments == 0);
    float *memory = malloc(3 * REGION_BYTES + 1024 * sizeof(double));
    const size_t floats = REGION_BYTES / sizeof *memory;
    const struct known known = {memory, memory + floats, memory + 2 * floats, (double *)(void *)(memory + 3 * floats)};
    if (memory != NULL && opencl_memory_commit(cl, &segment, 1) == GT_OK) {
        cl->is_clblast_proven = products_prove(cl, &known, lost);
        opencl_clblast_forget(cl);
        opencl_memory_release(cl);
    }
    free(memory);
    if (cl->is_clblast_proven)
        return;
    cl->tuning.gemm_clblast = false;
    log_note("opencl: CLBlast on %s is left alone; our own kernels multiply float32: %s", cl->device.name, lost);
}
