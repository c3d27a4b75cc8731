/* Chooses between launch shapes: which ops have several, their names, and the table of settled calls.
 *
 * Most shapes do not change a bit of the result, because they only distribute the work differently.  Those of
 * cross_entropy and gemm sum differently: they are different algorithms, like those of cuBLASLt.  A checkpoint names
 * both kinds, so that a resumed run launches as the one before.  On a card that lacks a shape the call has no choice,
 * is not listed in checkpoints, and uses the default.
 */
#include "backends/cuda/cuda_shapes.h"

#include "backends/cuda/cuda_tuning.h"
#include "base/hash.h"

struct shapes_of_op {
    int32_t (*count)(const struct backend *backend, const struct op_call *call); /* NULL: as many as there are names */
    const char *name[4];
    uint32_t beside; /* bit of each operand whose size does not matter: a table of which one row is read */
};

#define WALK_BESIDE(slots)                                                                                       \
    {                                                                                                            \
        .name = {[CUDA_WALK_WAVES] = "32 blocks", [CUDA_WALK_FEW] = "8 blocks", [CUDA_WALK_ALL] = "all blocks"}, \
        .beside = (slots)                                                                                        \
    }
#define WALK WALK_BESIDE(0u)

static const struct shapes_of_op shapes_of_ops[OP_KIND_COUNT] = {
    [OP_RESIDUAL] = WALK,
    [OP_GELU_FORWARD] = WALK,
    [OP_GELU_BACKWARD] = WALK,
    [OP_LAYERNORM_FORWARD] = WALK,
    [OP_RMSNORM_FORWARD] = WALK,
    [OP_SWIGLU_FORWARD] = WALK,
    [OP_SWIGLU_BACKWARD] = WALK,
    [OP_ROPE_FORWARD] = WALK_BESIDE(1u << ROPE_FORWARD_TABLE),
    [OP_ADAMW] = WALK_BESIDE(1u << ADAMW_CORRECTIONS),
    [OP_ADAMW_LEAN] = WALK_BESIDE(1u << ADAMW_LEAN_CORRECTIONS),
    [OP_MUON_MOMENTUM] = WALK,
    [OP_MUON_STEP] = WALK,
    [OP_ATTENTION_FORWARD] = {.count = cuda_attention_forward_shapes,
                              .name = {[CUDA_FORWARD_FOUR_WARPS] = "4 warps", [CUDA_FORWARD_EIGHT_WARPS] = "8 warps"}},
    [OP_ATTENTION_BACKWARD] = {.count = cuda_attention_backward_shapes,
                               .name = {[CUDA_BACKWARD_AT_ONCE] = "at once",
                                        [CUDA_BACKWARD_STAGES_MOST] = "2 stages",
                                        [CUDA_BACKWARD_STAGES_ONE] = "1 stage"}},
    [OP_GEMM] = {.count = cuda_gemm_shapes,
                 .name = {[CUDA_GEMM_HALF_SUMS] = "fp16 sums", [CUDA_GEMM_FLOAT_SUMS] = "fp32 sums"}},
    [OP_CROSS_ENTROPY] = {.count = cuda_cross_entropy_shapes,
                          .name = {[CUDA_ENTROPY_512] = "512 threads", [CUDA_ENTROPY_256] = "256 threads"}},
};

static int32_t names_of(enum op_kind kind)
{
    int32_t count = 0;
    while (count < 4 && shapes_of_ops[kind].name[count] != NULL)
        count++;
    return count;
}

static int32_t count_of(const struct backend *backend, const struct op_call *call)
{
    const struct shapes_of_op *shapes = &shapes_of_ops[call->kind];
    return shapes->count != NULL ? shapes->count(backend, call) : shapes->name[0] != NULL ? names_of(call->kind) : 1;
}

/* Hashes everything that the time may depend on: op, shapes, dtypes, and the attributes that change the work. */
static uint64_t call_identity(const struct backend *backend, const struct op_call *call)
{
    const struct op_attrs *attrs = &call->attrs;
    int64_t words[8 + OP_OPERANDS_MAX * (OP_RANK_MAX + 1)];
    size_t count = 0;
    memset(words, 0, sizeof words);
    words[count++] = INT64_C(0x7368617065); /* "shape": differs from the identity of any product */
    words[count++] = call->kind;
    words[count++] = attrs->time;
    words[count++] = (int64_t)attrs->heads << 32 | attrs->kv_heads;
    words[count++] = attrs->accumulate;
    words[count++] = attrs->vocab;
    words[count++] = (attrs->dropout > 0.0f) + 2 * attrs->gradient + 4 * (int64_t)attrs->gelu +
                     16 * attrs->transpose_a + 32 * attrs->transpose_b;
    words[count++] = cuda_from(backend)->capability;
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++) {
        const struct operand *operand = &call->operand[slot];
        const bool counts = operand->present && (shapes_of_ops[call->kind].beside >> slot & 1u) == 0;
        words[count++] = operand->present ? 1 + (int64_t)operand->dtype : 0;
        for (int32_t i = 0; i < OP_RANK_MAX; i++)
            words[count++] = counts && i < operand->rank ? operand->dims[i] : 0;
    }
    return hash_identity(hash_fnv1a(words, sizeof words));
}

/* A call and the number of its shapes: the last ones of its op. */
struct counted_call {
    const struct op_call *call;
    int32_t count;
};

static uint64_t shape_identity(const void *context, int32_t shape)
{
    const struct counted_call *counted = context;
    const enum op_kind kind = counted->call->kind;
    const char *op = op_declaration(kind)->name;
    const char *name = shapes_of_ops[kind].name[names_of(kind) - counted->count + shape];
    return hash_identity(hash_fnv1a(op, strlen(op)) ^ hash_fnv1a(name, strlen(name)));
}

static const struct cuda_shape *settled_find(const struct cuda_shapes *shapes, uint64_t call)
{
    for (int32_t i = 0; i < shapes->count; i++)
        if (shapes->at[i].call == call)
            return &shapes->at[i];
    return NULL;
}

int32_t cuda_shape_of(const struct backend *backend, const struct op_call *call)
{
    const struct cuda_shapes *shapes = cuda_from(backend)->shapes;
    const bool has_none = shapes_of_ops[call->kind].name[0] == NULL;
    if (shapes == NULL || has_none)
        return 0;
    if (shapes->trying >= 0)
        return shapes->trying;
    if (shapes->forced > 0)
        return shapes->forced < count_of(backend, call) ? shapes->forced : 0;
    const struct cuda_shape *settled = shapes->count > 0 ? settled_find(shapes, call_identity(backend, call)) : NULL;
    return settled != NULL ? settled->shape : 0;
}

static enum gt_status shape_start(struct cuda_backend *cuda, int32_t shape, const void *context)
{
    const struct op_call *call = context;
    cuda->shapes->trying = shape;
    const enum gt_status status = cuda_table[call->kind]->run(&cuda->base, call);
    cuda->shapes->trying = -1;
    return status;
}

static enum gt_status shape_time(struct cuda_backend *cuda, const struct counted_call *counted,
                                 struct cuda_shape *settled)
{
    const struct op_call *call = counted->call;
    const struct cuda_trial trial = {
        .what = "timing a kernel", .count = counted->count, .start = shape_start, .context = call};
    struct cuda_trial_result result;
    TRY(cuda_trial_run(cuda, &trial, &result));
    settled->shape = result.best;
    settled->algorithm = shape_identity(counted, result.best);
    const struct backend_timing timing = {.kind = call->kind,
                                          .dtype = call->operand[0].dtype,
                                          .transpose_a = call->attrs.transpose_a,
                                          .transpose_b = call->attrs.transpose_b,
                                          .flops = op_flops(call),
                                          .bytes = op_bytes(call),
                                          .seconds = result.seconds};
    const struct backend_choice choice = {.call = settled->call, .algorithm = settled->algorithm};
    cuda_tuning_found(cuda->tuning, &cuda->tuning->shapes, &choice, &result, &timing);
    return GT_OK;
}

enum gt_status cuda_shape_settle(struct cuda_backend *cuda, const struct op_call *call)
{
    struct cuda_shapes *shapes = cuda->shapes;
    const struct counted_call counted = {call, count_of(&cuda->base, call)};
    if (counted.count < 2 || shapes->count == CUDA_SHAPES_MAX)
        return GT_OK;
    const uint64_t identity = call_identity(&cuda->base, call);
    if (settled_find(shapes, identity) != NULL)
        return GT_OK;
    const int32_t chosen = cuda_tuning_chosen(cuda->tuning, identity, counted.count, shape_identity, &counted);
    struct cuda_shape settled = {.call = identity, .shape = chosen >= 0 ? chosen : 0};
    settled.algorithm = shape_identity(&counted, settled.shape);
    if (chosen < 0 && cuda->tuning->now)
        TRY(shape_time(cuda, &counted, &settled));
    shapes->at[shapes->count++] = settled;
    return GT_OK;
}
