/* Choices of algorithms and of launch shapes: their identities, the stored list, and the timings.
 *
 * Candidates are timed on the operands of the call, in the arena, while programs are bound
 * (cuda_trial.c).  The list is one file of the user's cache for each card, made for one driver and
 * one library; a list made for others is ignored.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "backends/cuda/cuda_tuning.h"

#include "backends/cuda/cuda_trial.h"
#include "base/file.h"
#include "base/user_cache.h"

static const struct user_cache tunings = {
    .folder = "cuda",
    .magic = "GTCUDAT4",
    .suffix = ".tuning",
    .otherwise = "products have cuBLASLt's first algorithms until --tune=True times them again",
    .bytes_max = (uint64_t)4 << 20,
    .file_bytes_max = (uint64_t)256 << 10,
};
_Static_assert(sizeof(struct cuda_kept) < 200 << 10, "it fits a file");

#define SECONDS_MIN 1e-9

/* Returns the index of the call's choice, or -1. */
static int32_t algorithm_find(const struct cuda_algorithms *algorithms, uint64_t call)
{
    for (int32_t i = 0; i < algorithms->count; i++)
        if (algorithms->at[i].call == call)
            return i;
    return -1;
}

uint64_t cuda_algorithms_find(const struct cuda_algorithms *algorithms, uint64_t call)
{
    const int32_t at = algorithm_find(algorithms, call);
    return at >= 0 ? algorithms->at[at].algorithm : 0;
}

int32_t cuda_algorithms_put(struct cuda_algorithms *algorithms, uint64_t call, uint64_t algorithm)
{
    const int32_t known = algorithm_find(algorithms, call),
                  at = known >= 0 ? known : algorithms->count;
    if (at == CUDA_ALGORITHMS_MAX)
        return -1;
    algorithms->at[at] = (struct backend_algorithm){.call = call, .algorithm = algorithm};
    algorithms->count += at == algorithms->count;
    return at;
}

/* Sets the name that a list is stored under, and the key that says what it was made for. */
static void cache_names(const struct cuda_backend *cuda, char name[static USER_CACHE_KEY_MAX],
                        char key[static USER_CACHE_KEY_MAX])
{
    snprintf(name, USER_CACHE_KEY_MAX, "%s, capability %" PRId32 "%s%s", cuda->name,
             cuda->capability, cuda->tf32 ? ", TF32" : "", cuda->half_sums ? ", fp16 sums" : "");
    const char *driver = cuda->nvml.driver;
    snprintf(key, USER_CACHE_KEY_MAX,
             "%s, driver%s%s for CUDA %" PRId32 ", CUDA %" PRId32 ", cuBLASLt %zu, " PACKAGE_STRING,
             name, driver[0] != '\0' ? " " : "", driver, cuda->driver, cuda->runtime,
             cuda->lt_version);
}

enum gt_status cuda_tuning_create(struct cuda_backend *cuda, bool on)
{
    struct cuda_tuning *tuning = cuda->tuning = calloc(1, sizeof *tuning);
    char name[USER_CACHE_KEY_MAX], key[USER_CACHE_KEY_MAX];
    void *bytes = NULL;
    size_t size = 0;
    if (tuning == NULL)
        return FAIL(GT_NO_MEMORY, "cuda: no memory for %zu B of algorithms", sizeof *tuning);
    cache_names(cuda, name, key);
    const enum user_cache_file found = user_cache_load(&tunings, name, key, &bytes, &size);
    tuning->on = on;
    tuning->is_unread = found == USER_CACHE_UNREAD;
    if (found == USER_CACHE_READ && size == sizeof tuning->kept)
        memcpy(&tuning->kept, bytes, size);
    free(bytes);
    return GT_OK;
}

void cuda_tuning_store(struct cuda_backend *cuda)
{
    struct cuda_tuning *tuning = cuda->tuning;
    if (tuning->products.timed + tuning->shapes.timed == 0)
        return;
    const char *kept = "kept for later runs";
    char name[USER_CACHE_KEY_MAX], key[USER_CACHE_KEY_MAX];
    cache_names(cuda, name, key);
    if (tuning->is_unread)
        kept = "the list in the user's cache could not be read and stays as it is";
    else if (!user_cache_store(&tunings, name, key, &tuning->kept, sizeof tuning->kept))
        kept = "the user's cache cannot be written, so later runs go without them";
    log_note(
        "cuda: %" PRId32 " products timed, %" PRId32
        " of them faster with another algorithm than cuBLASLt's first, by up to %.0f %%; %" PRId32
        " launches of our kernels timed, %" PRId32
        " of them faster in another shape, by up to %.0f %%; %s",
        tuning->products.timed, tuning->products.faster, 100.0 * tuning->products.gain_most,
        tuning->shapes.timed, tuning->shapes.faster, 100.0 * tuning->shapes.gain_most, kept);
    tuning->products = tuning->shapes = (struct cuda_found){.timed = 0};
}

void cuda_tuning_found(struct cuda_tuning *tuning, struct cuda_found *found,
                       const struct backend_algorithm *choice,
                       const struct cuda_trial_result *result, const struct backend_timing *timing)
{
    found->timed++;
    found->faster += result->best > 0;
    found->gain_most = result->gain > found->gain_most ? result->gain : found->gain_most;
    if (timing->seconds < SECONDS_MIN)
        return; /* the clock did not advance */
    const int32_t at =
        cuda_algorithms_put(&tuning->kept.algorithms, choice->call, choice->algorithm);
    if (at >= 0)
        tuning->kept.timing[at] = *timing;
}

int32_t cuda_tuning_chosen(const struct cuda_tuning *tuning, uint64_t call, int32_t count,
                           uint64_t (*identity)(const void *context, int32_t candidate),
                           const void *context)
{
    const uint64_t chosen[] = {cuda_algorithms_find(&tuning->stored, call),
                               cuda_algorithms_find(&tuning->kept.algorithms, call)};
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
        for (int32_t candidate = 0; chosen[i] != 0 && candidate < count; candidate++)
            if (identity(context, candidate) == chosen[i])
                return candidate;
    }
    return -1;
}

/* ---- launch shapes: which ops have several, their names, and the resolved calls.
 *
 * Most shapes do not change a bit of the result, because they only distribute the work differently.
 * Those of cross_entropy and gemm sum differently: they are different algorithms, like those of
 * cuBLASLt.  A checkpoint names both kinds, so that a resumed run launches as the one before.  On a
 * card that lacks a shape the call has no choice, is not listed in checkpoints, and uses the
 * default. ---- */

static int32_t shape_names(enum op_kind kind)
{
    int32_t count = 0;
    while (count < CUDA_SHAPES_MAX && cuda_shapes_of_ops[kind].name[count] != NULL)
        count++;
    return count;
}

static int32_t count_of(const struct backend *backend, const struct op_call *call)
{
    const struct cuda_shapes_of_op *shapes = &cuda_shapes_of_ops[call->kind];
    return shapes->count != NULL ? shapes->count(backend, call) : shape_names(call->kind);
}

/* Hashes everything that the time may depend on: op, shapes, dtypes, and the attributes that change
 * the work. */
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
        const bool counts =
            operand->present && (cuda_shapes_of_ops[call->kind].ignored >> slot & 1u) == 0;
        words[count++] = operand->present ? 1 + (int64_t)operand->dtype : 0;
        for (int32_t i = 0; i < OP_RANK_MAX; i++)
            words[count++] = counts && i < operand->rank ? operand->dims[i] : 0;
    }
    return hash_identity(hash_fnv1a(words, sizeof words));
}

/* A call, the number of its shapes, which are the last ones of its op, and how many calls from it
 * on are timed together. */
struct counted_call {
    const struct op_call *call;
    int32_t count;
    size_t calls;
};

static uint64_t shape_identity(const void *context, int32_t shape)
{
    const struct counted_call *counted = context;
    const enum op_kind kind = counted->call->kind;
    const char *op = op_declaration(kind)->name;
    const char *name = cuda_shapes_of_ops[kind].name[shape_names(kind) - counted->count + shape];
    return hash_identity(hash_fnv1a(op, strlen(op)) ^ hash_fnv1a(name, strlen(name)));
}

int32_t cuda_shape_of(const struct backend *backend, const struct op_call *call)
{
    const struct cuda_tuning *tuning = cuda_from(backend)->tuning;
    if (cuda_shapes_of_ops[call->kind].name[0] == NULL)
        return 0;
    if (tuning->tried == call)
        return tuning->trying;
    if (tuning->forced > 0)
        return tuning->forced < count_of(backend, call) ? tuning->forced : 0;
    const int32_t at = tuning->resolved.count > 0
                           ? algorithm_find(&tuning->resolved, call_identity(backend, call))
                           : -1;
    return at >= 0 ? tuning->shape[at] : 0;
}

static enum gt_status shape_start(struct cuda_backend *cuda, int32_t shape, const void *context)
{
    const struct counted_call *counted = context;
    cuda->tuning->tried = counted->call;
    cuda->tuning->trying = shape;
    const enum gt_status status = cuda->base.ops->run(&cuda->base, counted->call, counted->calls);
    cuda->tuning->tried = NULL;
    return status;
}

/* Sets *shape to the fastest. */
static enum gt_status shape_time(struct cuda_backend *cuda, const struct counted_call *counted,
                                 uint64_t identity, int32_t *shape)
{
    const struct op_call *call = counted->call;
    const struct cuda_trial trial = {.what = "timing a kernel",
                                     .count = counted->count,
                                     .start = shape_start,
                                     .context = counted};
    struct cuda_trial_result result;
    TRY(cuda_trial_run(cuda, &trial, &result));
    /* Of several calls the time is that of no op. */
    const struct backend_timing timing = {.kind = counted->calls > 1 ? OP_KIND_COUNT : call->kind,
                                          .dtype = call->operand[0].dtype,
                                          .transpose_a = call->attrs.transpose_a,
                                          .transpose_b = call->attrs.transpose_b,
                                          .flops = op_flops(call),
                                          .bytes = op_bytes(call),
                                          .seconds = result.seconds};
    const struct backend_algorithm choice = {.call = identity,
                                             .algorithm = shape_identity(counted, result.best)};
    cuda_tuning_found(cuda->tuning, &cuda->tuning->shapes, &choice, &result, &timing);
    *shape = result.best;
    return GT_OK;
}

enum gt_status cuda_launch_shape_resolve(struct cuda_backend *cuda, const struct op_call *calls,
                                         size_t count)
{
    struct cuda_tuning *tuning = cuda->tuning;
    const struct op_call *call = calls;
    const struct cuda_shapes_of_op *shapes = &cuda_shapes_of_ops[call->kind];
    const struct counted_call counted = {
        call, count_of(&cuda->base, call),
        shapes->group != NULL ? shapes->group(&cuda->base, calls, count) : 1};
    if (counted.count < 2 || tuning->resolved.count == CUDA_ALGORITHMS_MAX)
        return GT_OK;
    const uint64_t identity = call_identity(&cuda->base, call);
    if (algorithm_find(&tuning->resolved, identity) >= 0)
        return GT_OK;
    const int32_t chosen =
        cuda_tuning_chosen(tuning, identity, counted.count, shape_identity, &counted);
    int32_t shape = chosen >= 0 ? chosen : 0;
    if (chosen < 0 && tuning->on)
        TRY(shape_time(cuda, &counted, identity, &shape));
    tuning
        ->shape[cuda_algorithms_put(&tuning->resolved, identity, shape_identity(&counted, shape))] =
        shape;
    return GT_OK;
}

/* ---- the backend's interface ---- */

enum gt_status cuda_tuning_choose(struct backend *backend,
                                  const struct backend_algorithm *algorithms, size_t count)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    for (size_t i = 0; i < count; i++) {
        if (algorithms[i].call == 0)
            cuda->tuning->forced = (int32_t)(algorithms[i].algorithm & INT32_MAX);
        else
            (void)cuda_algorithms_put(&cuda->tuning->stored, algorithms[i].call,
                                      algorithms[i].algorithm);
    }
    return GT_OK;
}

void cuda_launch_algorithms(const struct cuda_backend *cuda, struct cuda_algorithms *out)
{
    const struct cuda_algorithms *resolved = &cuda->tuning->resolved;
    for (int32_t i = 0; i < resolved->count; i++)
        (void)cuda_algorithms_put(out, resolved->at[i].call, resolved->at[i].algorithm);
}

const struct backend_timing *cuda_tuning_timings(struct backend *backend, size_t *count)
{
    const struct cuda_tuning *tuning = cuda_from(backend)->tuning;
    *count = (size_t)tuning->kept.algorithms.count;
    return tuning->kept.timing;
}
