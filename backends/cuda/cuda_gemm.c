/* gemm: d (+)= op(a) op(b) + bias by cuBLASLt, or where tuning or half_sums choose it by
 * kernels/gemm_own.cu, which makes the result of an op that reads d as well.
 *
 * Operands are fp32, bf16 or fp16, sums are fp32, and results have the operands' dtype or fp32. The
 * library's epilogue adds a bias of the result's dtype.  With a bias of another dtype (as a rule
 * fp32 with 16-bit activations), d is made in parts: fp32 sums in the workspace, as many rows as
 * fit, and then a kernel of ours adds the bias and rounds once. Products that are added to 16-bit
 * numbers take the same path, because algorithms of the library round them before they add (seen on
 * an H100).  Workspaces depend on the shape only, so that the plan is known before the device is
 * asked for memory.  They never exceed what a device profile grants for the shape.
 */
#include "backends/cuda/cuda_gemm.h"

#include "backends/cuda/cuda_error.h"
#include "backends/cuda/cuda_gemm_cache.h"
#include "backends/cuda/cuda_tuning.h"

/* Limit on the fp32 sums in the workspace: near the L2 cache's size, and still hundreds of rows. */
#define SUMS_BYTES ((size_t)16 << 20)
/* Rows are cut at multiples of this, for the operands' alignment. */
#define SUMS_BYTES_MIN_ROWS 16
#define SPLIT_K_MIN 256 /* the smallest part of K that is worth a split */
#define OWN_ROWS_MIN 64 /* fewer are not worth a tile of our own products */

struct gemm {
    int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate, has_bias;
    bool apart; /* fp32 sums first, then our kernel */
    enum dtype dtype, d_dtype, bias_dtype;
};

static struct gemm gemm_of(const struct op_call *call)
{
    const struct operand *a = &call->operand[GEMM_A], *d = &call->operand[GEMM_D],
                         *bias = &call->operand[GEMM_BIAS];
    const enum dtype bias_dtype = bias->present ? bias->dtype : d->dtype;
    const bool accumulates = op_accumulates(call, GEMM_D);
    return (struct gemm){
        .m = d->dims[0],
        .n = d->dims[1],
        .k = call->attrs.transpose_a ? a->dims[0] : a->dims[1],
        .transpose_a = call->attrs.transpose_a,
        .transpose_b = call->attrs.transpose_b,
        .accumulate = accumulates,
        .has_bias = bias->present,
        .apart = bias_dtype != d->dtype || (accumulates && d->dtype != DTYPE_F32),
        .dtype = a->dtype,
        .d_dtype = d->dtype,
        .bias_dtype = bias_dtype,
    };
}

/* The library counts rows of a matrix with 64 bits, but its kernels index some of them with 32. */
static bool gemm_supports(const struct backend *backend, const struct op_call *call)
{
    const struct gemm gemm = gemm_of(call);
    const bool bias_fits = gemm.bias_dtype == gemm.d_dtype || gemm.d_dtype == DTYPE_F32 ||
                           gemm.bias_dtype == DTYPE_F32;
    return cuda_dtype_is_float(backend, gemm.dtype) && call->operand[GEMM_B].dtype == gemm.dtype &&
           (gemm.d_dtype == gemm.dtype || gemm.d_dtype == DTYPE_F32) &&
           (!gemm.has_bias || cuda_dtype_is_float(backend, gemm.bias_dtype)) && bias_fits &&
           max_i64(max_i64(gemm.m, gemm.n), gemm.k) <= INT32_MAX;
}

/* Returns the rows of fp32 sums that fit in the workspace at once, or 0 when no sums are needed. */
static int64_t sums_rows(const struct gemm *gemm)
{
    if (!gemm->apart)
        return 0;
    const int64_t row_bytes = gemm->n * (int64_t)sizeof(float);
    int64_t rows = (int64_t)SUMS_BYTES / row_bytes / SUMS_BYTES_MIN_ROWS * SUMS_BYTES_MIN_ROWS;
    rows = max_i64(rows, SUMS_BYTES_MIN_ROWS);
    return min_i64(rows, gemm->m);
}

static size_t sums_bytes(const struct gemm *gemm)
{
    const size_t bytes = (size_t)sums_rows(gemm) * (size_t)gemm->n * sizeof(float);
    return (size_t)size_round_up(bytes, CUDA_ALIGNMENT_BYTES);
}

/* Returns the workspace that the library may use: an fp32 copy of the result for each part of K,
 * within the limits. */
static size_t library_bytes(const struct gemm *gemm)
{
    const size_t most = OP_GEMM_WORKSPACE_BYTES, used = sums_bytes(gemm);
    const size_t parts = (size_t)(gemm->k / SPLIT_K_MIN),
                 result = (size_t)gemm->m * (size_t)gemm->n * sizeof(float);
    if (parts < 2)
        return 0;
    const size_t wanted = result > most / parts ? most : result * parts;
    return size_min(wanted, used < most ? most - used : 0) / CUDA_ALIGNMENT_BYTES *
           CUDA_ALIGNMENT_BYTES;
}

static size_t gemm_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    const struct gemm gemm = gemm_of(call);
    (void)backend;
    return sums_bytes(&gemm) + library_bytes(&gemm);
}

/* The largest power of two, up to CUDA_ALIGNMENT_BYTES, that divides the offset. */
static uint16_t alignment_of(uint64_t offset_bytes)
{
    uint64_t low = offset_bytes & (~offset_bytes + 1);
    return (uint16_t)(low == 0 || low > CUDA_ALIGNMENT_BYTES ? CUDA_ALIGNMENT_BYTES : low);
}

/* The product of rows `row` .. row + rows - 1 of d. */
static struct cuda_gemm_key key_of(const struct op_call *call, const struct gemm *gemm, int64_t row,
                                   int64_t rows)
{
    const struct operand *operand = call->operand;
    const int64_t size = (int64_t)dtype_size_bytes(gemm->dtype);
    const uint64_t a_offset = (uint64_t)((gemm->transpose_a ? row : row * gemm->k) * size);
    return (struct cuda_gemm_key){
        .m = rows,
        .n = gemm->n,
        .k = gemm->k,
        .lda = gemm->transpose_a ? gemm->m : gemm->k,
        .workspace_bytes = library_bytes(gemm),
        .alignment_a = alignment_of(operand[GEMM_A].at.offset_bytes + a_offset),
        .alignment_b = alignment_of(operand[GEMM_B].at.offset_bytes),
        .alignment_d =
            gemm->apart ? CUDA_ALIGNMENT_BYTES : alignment_of(operand[GEMM_D].at.offset_bytes),
        .dtype = (uint8_t)gemm->dtype,
        .d_dtype = (uint8_t)(gemm->apart ? DTYPE_F32 : gemm->d_dtype),
        .transpose_a = gemm->transpose_a,
        .transpose_b = gemm->transpose_b,
        .accumulate = gemm->accumulate && !gemm->apart,
        .has_bias = gemm->has_bias && !gemm->apart,
    };
}

void cuda_gemm_half_sums_decide(struct cuda_backend *cuda, bool anywhere)
{
    const int32_t capability = cuda->capability;
    const bool is_even = capability == 80 || capability == 90 ||
                         capability / 10 == 10; /* the same rate either way */
    const bool is_known = strstr(cuda->name, "GeForce") != NULL;
    const bool is_test =
        is_even && anywhere && getenv("GPT_TRAIN_CUDA_HALF_SUMS") != NULL; /* "any" */
    cuda->half_sums = capability >= 80 && (is_test || (!is_even && (is_known || anywhere)));
    if (is_test)
        log_note("cuda: fp16 sums on %s because of GPT_TRAIN_CUDA_HALF_SUMS, which is for tests",
                 cuda->name);
    if (!cuda->half_sums && anywhere)
        log_note("half_sums has no effect on %s: %s", cuda->name,
                 is_even ? "its products are as fast with fp32 sums"
                         : "it needs capability 8.0 or later");
}

/* Returns true for products that our own kernel takes: not those of a few rows, which wait for
 * memory. */
static bool own_possible(const struct backend *backend, const struct op_call *call)
{
    const struct gemm gemm = gemm_of(call);
    const int64_t rest = gemm.k % 8 + gemm.n % 8 + (gemm.transpose_a ? gemm.m % 8 : 0);
    return cuda_from(backend)->capability >= CUDA_CAPABILITY_BF16 && gemm.dtype != DTYPE_F32 &&
           !(gemm.transpose_a && gemm.transpose_b) && gemm.m >= OWN_ROWS_MIN && rest == 0 &&
           cuda_operands_aligned(backend, call);
}

static bool half_sums_possible(const struct backend *backend, const struct op_call *call)
{
    return cuda_from(backend)->half_sums && call->operand[GEMM_A].dtype == DTYPE_F16;
}

int32_t cuda_gemm_shapes(const struct backend *backend, const struct op_call *call)
{
    if (!own_possible(backend, call))
        return 1;
    return half_sums_possible(backend, call) ? CUDA_GEMM_SHAPES
                                             : CUDA_GEMM_SHAPES - CUDA_GEMM_LIBRARY;
}

static enum cuda_gemm_shape shape_of(const struct backend *backend, const struct op_call *call)
{
    const int32_t shapes = cuda_gemm_shapes(backend, call);
    return shapes == 1
               ? CUDA_GEMM_LIBRARY
               : (enum cuda_gemm_shape)(cuda_shape_of(backend, call) + CUDA_GEMM_SHAPES - shapes);
}

/* Tiles have 256 rows only where all are whole. */
static struct cuda_gemm_own_args own_args_of(const struct backend *backend,
                                             const struct op_call *call, enum cuda_gemm_shape shape)
{
    const struct gemm gemm = gemm_of(call);
    const size_t workspace_bytes = gemm_workspace_bytes(backend, call);
    const struct cuda_floats d = cuda_floats_of(backend, call, GEMM_D);
    const bool is_tall = (shape == CUDA_GEMM_HALF_256 || shape == CUDA_GEMM_OWN_256) &&
                         gemm.m % 256 == 0 && gemm.n % 128 == 0 && gemm.k % 32 == 0;
    return (struct cuda_gemm_own_args){
        .a = cuda_operand(backend, call, GEMM_A),
        .b = cuda_operand(backend, call, GEMM_B),
        .end = {.sums = {cuda_workspace(backend, call, workspace_bytes), DTYPE_F32},
                .addend = gemm.accumulate ? d : cuda_floats_of(backend, call, GEMM_BIAS),
                .d = d,
                .addend_is_matrix = gemm.accumulate,
                .rows = gemm.m,
                .columns = gemm.n},
        .sums_bytes = workspace_bytes,
        .k = (int32_t)gemm.k,
        .tile_rows = is_tall ? 256 : 128,
        .dtype = gemm.dtype,
        .half_sums = shape < CUDA_GEMM_LIBRARY,
        .transpose_a = gemm.transpose_a,
        .transpose_b = gemm.transpose_b,
    };
}

/* What an op that a product may end with reads of it, reads besides, and writes. */
static const struct next_slots {
    bool ends;
    int32_t product, other, result; /* other: -1: none */
} next_slots[OP_KIND_COUNT] = {
    [OP_GELU_FORWARD] = {true, GELU_FORWARD_X, -1, GELU_FORWARD_Y},
    [OP_GELU_BACKWARD] = {true, GELU_BACKWARD_DY, GELU_BACKWARD_X, GELU_BACKWARD_DX},
    [OP_SWIGLU_FORWARD] = {true, SWIGLU_FORWARD_X, -1, SWIGLU_FORWARD_Y},
    [OP_SWIGLU_BACKWARD] = {true, SWIGLU_BACKWARD_DY, SWIGLU_BACKWARD_X, SWIGLU_BACKWARD_DX},
    [OP_RESIDUAL] = {true, RESIDUAL_Y, RESIDUAL_X, RESIDUAL_R},
};

/* Returns true if two operands have bytes in common. */
static bool overlap(const struct backend *backend, const struct op_call *first, int32_t slot,
                    const struct op_call *second, int32_t other)
{
    const char *a = cuda_operand(backend, first, slot), *b = cuda_operand(backend, second, other);
    return a != NULL && b != NULL && a < b + operand_bytes(&second->operand[other]) &&
           b < a + operand_bytes(&first->operand[slot]);
}

/* Returns true if a tile of the product has what elements of the result of `next` need: of swiglu a
 * column of a and one of b. */
static bool next_tiles(const struct op_call *call, const struct op_call *next)
{
    return next->kind != OP_SWIGLU_FORWARD ||
           (call->attrs.transpose_b && op_columns(next, SWIGLU_FORWARD_Y) % CUDA_GEMM_SIDE == 0);
}

/* Returns true if the result of `next` may be written while the product is made. */
static bool next_fits(const struct backend *backend, const struct op_call *call,
                      const struct op_call *next)
{
    const struct next_slots *slots = &next_slots[next->kind];
    if (!slots->ends ||
        cuda_operand(backend, next, slots->product) != cuda_operand(backend, call, GEMM_D) ||
        op_elements(next, slots->product) != op_elements(call, GEMM_D) ||
        op_columns(next, slots->product) != op_columns(call, GEMM_D) || !next_tiles(call, next) ||
        !cuda_operands_aligned(backend, next))
        return false;
    if (slots->other >= 0 && next->operand[slots->other].dtype == DTYPE_F32)
        return false;
    for (int32_t slot = 0; slot < GEMM_D; slot++)
        if (overlap(backend, call, slot, next, slots->result))
            return false;
    return slots->other < 0 || !overlap(backend, call, GEMM_D, next, slots->other);
}

/* Returns true if our own kernel makes the result of `next` as well; *args are those of both.  The
 * product is not stored where only `next` would read it. */
static bool next_ends(const struct backend *backend, const struct op_call *call,
                      const struct op_call *next, struct cuda_gemm_own_args *args)
{
    const enum cuda_gemm_shape shape = shape_of(backend, call);
    if (shape == CUDA_GEMM_LIBRARY || !next_fits(backend, call, next))
        return false;
    const struct next_slots *slots = &next_slots[next->kind];
    *args = own_args_of(backend, call, shape);
    args->next = (struct cuda_gemm_next){.kind = next->kind,
                                         .gelu = next->attrs.gelu,
                                         .gate = next->attrs.gate,
                                         .result = cuda_floats_of(backend, next, slots->result)};
    if (slots->other >= 0)
        args->next.other = cuda_floats_of(backend, next, slots->other);
    if (next->operand[slots->product].last || args->next.result.memory == args->end.d.memory)
        args->end.d.memory = NULL;
    return cuda_gemm_own_parts(args) == 1;
}

size_t cuda_gemm_group(const struct backend *backend, const struct op_call *calls, size_t count)
{
    return count > 1 && cuda_gemm_shapes(backend, calls) > 1 && next_fits(backend, calls, &calls[1])
               ? 2
               : 1;
}

bool cuda_gemm_is_pair(const struct backend *backend, const struct op_call *calls, size_t count)
{
    struct cuda_gemm_own_args args;
    return count > 1 && next_ends(backend, calls, &calls[1], &args);
}

enum gt_status cuda_gemm_pair_start(struct backend *backend, const struct op_call *calls)
{
    struct cuda_gemm_own_args args;
    const bool ends = next_ends(backend, calls, &calls[1], &args);
    assert(ends);
    (void)ends;
    return cuda_check(backend, cuda_launch_gemm_own(cuda_stream(backend), &args), "gemm");
}

/* The library's part of the workspace comes first, the sums after it. */
static enum gt_status run_apart(struct backend *backend, const struct op_call *call,
                                const struct gemm *gemm, struct cuda_gemm_operands *operands)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const char *a = cuda_operand(backend, call, GEMM_A);
    char *d = cuda_operand(backend, call, GEMM_D);
    const int64_t step = sums_rows(gemm), size = (int64_t)dtype_size_bytes(gemm->dtype);
    operands->d = (char *)operands->workspace + library_bytes(gemm);
    for (int64_t row = 0; row < gemm->m; row += step) {
        const struct cuda_gemm_key key = key_of(call, gemm, row, min_i64(step, gemm->m - row));
        char *d_rows = d + row * gemm->n * (int64_t)dtype_size_bytes(gemm->d_dtype);
        const struct cuda_sums_add_args args = {
            .sums = {operands->d, DTYPE_F32},
            .addend = {gemm->accumulate ? d_rows : operands->bias, gemm->bias_dtype},
            .d = {d_rows, gemm->d_dtype},
            .addend_is_matrix = gemm->accumulate,
            .parts = 1,
            .rows = key.m,
            .columns = gemm->n,
        };
        operands->a = a + (gemm->transpose_a ? row : row * gemm->k) * size;
        TRY(cuda_gemm_enqueue(cuda, &key, operands));
        TRY(cuda_check(backend, cuda_launch_sums_add(cuda->stream, &args), "gemm"));
    }
    return GT_OK;
}

static enum gt_status gemm_run(struct backend *backend, const struct op_call *call)
{
    const struct gemm gemm = gemm_of(call);
    if (gemm.m == 0 || gemm.n == 0)
        return GT_OK;
    const enum cuda_gemm_shape shape = shape_of(backend, call);
    if (shape != CUDA_GEMM_LIBRARY) {
        const struct cuda_gemm_own_args args = own_args_of(backend, call, shape);
        return cuda_check(backend, cuda_launch_gemm_own(cuda_stream(backend), &args), "gemm");
    }
    const size_t workspace_bytes = gemm_workspace_bytes(backend, call);
    struct cuda_gemm_operands operands = {
        .a = cuda_operand(backend, call, GEMM_A),
        .b = cuda_operand(backend, call, GEMM_B),
        .bias = cuda_operand(backend, call, GEMM_BIAS),
        .d = cuda_operand(backend, call, GEMM_D),
        .workspace = cuda_workspace(backend, call, workspace_bytes),
    };
    if (gemm.apart)
        return run_apart(backend, call, &gemm, &operands);
    const struct cuda_gemm_key key = key_of(call, &gemm, 0, gemm.m);
    return cuda_gemm_enqueue(cuda_backend_of(backend), &key, &operands);
}

const struct op_impl cuda_gemm = {
    .supports = gemm_supports,
    .workspace_bytes = gemm_workspace_bytes,
    .run = gemm_run,
};
