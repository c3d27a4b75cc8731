/* Matrix products by cuBLASLt: the table of prepared products.
 *
 * cuBLASLt is column-major.  Our row-major d = op(a) op(b) is its column-major d' = op(b)' op(a)',
 * so b is its first matrix, a its second, and its epilogue adds the bias, one element for each row
 * of d'.  Split products may only use schemes that write their parts to the workspace and add them
 * in a separate step: the others add in the order in which blocks happen to end.  The checkpoint,
 * an earlier timing or the library itself picks one of the library's candidates (cuda_tuning.c).
 * The table has a fixed number of slots and is probed linearly.  A program has a few dozen
 * products; when a test has more than fit, all are dropped and made anew.
 */
#include "backends/cuda/cuda_gemm_cache.h"

#include "backend/backend_peak.h"
#include "backends/cuda/cuda_error.h"
#include "backends/cuda/cuda_lt.h"
#include "backends/cuda/cuda_trial.h"
#include "backends/cuda/cuda_tuning.h"
#include "base/file.h"

#define SLOTS 1024
#define SLOTS_USED_MAX 768
#define BIAS_ALIGNMENT 16
#define NOISE_BYTES ((size_t)1 << 16)
/* Number of algorithms that are requested and timed.  It is always the same, so that the first one
 * does not depend on it. */
#define ALGORITHMS_MAX CUDA_TRIAL_MAX
/* The limit on the workspace before sm_90 up to release 0.2.0, whose checkpoints name algorithms
 * under it. */
#define EARLIER_WORKSPACE_BYTES ((uint64_t)8 << 20)

struct product {
    struct cuda_gemm_key key; /* m is 0 in an empty slot */
    struct cuda_gemm_key
        offered; /* the same, with the limit under which its algorithm was offered */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t first, second, result;
    cublasLtMatmulHeuristicResult_t chosen;
    bool known; /* the algorithm was chosen before, or has been timed */
    bool bound; /* belongs to a program, and not to the measurement of the device's rate */
};

struct cuda_gemm_cache {
    struct cuda_lt lt;
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    int32_t used;
    struct product slot[SLOTS];
};

_Static_assert(sizeof(struct cuda_gemm_key) == 5 * 8 + 4 * 2 + 8,
               "a key has no padding, whose bytes are unknown");

static const struct cuda_lt *lt_of(const struct cuda_backend *cuda)
{
    return &cuda->gemm->lt;
}

/* Logs a failed call of the library, with the product that it was for. */
static enum gt_status lt_fail(struct cuda_backend *cuda, const struct cuda_gemm_key *key,
                              cublasStatus_t status, const char *what)
{
    char product[128] = "";
    if (cuda_capture_fail(cuda, what, lt_of(cuda)->cublasLtGetStatusName(status)))
        return GT_DEVICE;
    if (key != NULL)
        snprintf(product, sizeof product,
                 " for %s %" PRId64 " x %" PRId64 " x %" PRId64 "%s%s into %s",
                 dtype_name((enum dtype)key->dtype), key->m, key->n, key->k,
                 key->transpose_a ? ", a transposed" : "", key->transpose_b ? ", b transposed" : "",
                 dtype_name((enum dtype)key->d_dtype));
    if (status == CUBLAS_STATUS_ALLOC_FAILED && cuda->binding)
        return cuda_loading_refuse(cuda, what);
    log_error("cuda: cuBLASLt: %s%s: %s (%s, capability %" PRId32 ".%" PRId32 ", cuBLASLt %zu)",
              what, product, lt_of(cuda)->cublasLtGetStatusName(status), cuda->name,
              cuda->capability / 10, cuda->capability % 10, lt_of(cuda)->cublasLtGetVersion());
    return status == CUBLAS_STATUS_ALLOC_FAILED ? GT_NO_MEMORY : GT_DEVICE;
}

#define LT_TRY(cuda, key, call, what)                          \
    do {                                                       \
        cublasStatus_t lt_status_ = (call);                    \
        if (lt_status_ != CUBLAS_STATUS_SUCCESS)               \
            return lt_fail((cuda), (key), lt_status_, (what)); \
    } while (0)

enum gt_status cuda_gemm_cache_create(struct cuda_backend *cuda)
{
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    struct cuda_gemm_cache *cache = calloc(1, sizeof *cache);
    if (cache == NULL)
        return FAIL(GT_NO_MEMORY, "cuda: no memory for %zu B of prepared products", sizeof *cache);
    cuda->gemm = cache; /* the backend destroys it, even if it is half made */
    TRY(cuda_lt_open(&cache->lt));
    cuda->lt_version = cache->lt.cublasLtGetVersion();
    LT_TRY(cuda, NULL, cache->lt.cublasLtCreate(&cache->handle), "opening the library");
    LT_TRY(cuda, NULL, cache->lt.cublasLtMatmulPreferenceCreate(&cache->preference),
           "making preferences");
    LT_TRY(cuda, NULL,
           cache->lt.cublasLtMatmulPreferenceSetAttribute(
               cache->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
               sizeof schemes),
           "asking for sums in a fixed order");
    return GT_OK;
}

/* The product may be half made.  Errors while destroying it are ignored. */
static void product_clear(const struct cuda_lt *lt, struct product *product)
{
    if (product->desc != NULL)
        (void)lt->cublasLtMatmulDescDestroy(product->desc);
    const cublasLtMatrixLayout_t layouts[] = {product->first, product->second, product->result};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        if (layouts[i] != NULL)
            (void)lt->cublasLtMatrixLayoutDestroy(layouts[i]);
    memset(product, 0, sizeof *product);
}

static void products_clear(struct cuda_gemm_cache *cache)
{
    for (int32_t i = 0; i < SLOTS; i++)
        product_clear(&cache->lt, &cache->slot[i]);
    cache->used = 0;
}

void cuda_gemm_cache_destroy(struct cuda_backend *cuda)
{
    struct cuda_gemm_cache *cache = cuda->gemm;
    if (cache == NULL)
        return;
    products_clear(cache);
    if (cache->preference != NULL)
        (void)cache->lt.cublasLtMatmulPreferenceDestroy(cache->preference);
    if (cache->handle != NULL)
        (void)cache->lt.cublasLtDestroy(cache->handle);
    free(cache);
}

static uint64_t key_identity(const struct cuda_gemm_key *key)
{
    return hash_identity(hash_fnv1a(key, sizeof *key));
}

static uint64_t algorithm_identity(const cublasLtMatmulAlgo_t *algorithm)
{
    return hash_identity(hash_fnv1a(algorithm, sizeof *algorithm));
}

static uint64_t candidate_identity(const void *found, int32_t candidate)
{
    return algorithm_identity(&((const cublasLtMatmulHeuristicResult_t *)found)[candidate].algo);
}

/* Returns the slot of the key, or the empty slot where it belongs.  There always is one. */
static struct product *slot_find(struct cuda_gemm_cache *cache, const struct cuda_gemm_key *key)
{
    assert(cache->used <= SLOTS_USED_MAX);
    uint32_t at = (uint32_t)(hash_fnv1a(key, sizeof *key) % SLOTS);
    while (cache->slot[at].key.m != 0 && memcmp(&cache->slot[at].key, key, sizeof *key) != 0)
        at = (at + 1) % SLOTS;
    return &cache->slot[at];
}

static cudaDataType_t data_type(uint8_t dtype)
{
    return dtype == DTYPE_F32 ? CUDA_R_32F : dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static enum gt_status desc_set(struct cuda_backend *cuda, const struct cuda_gemm_key *key,
                               cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                               const void *value, size_t bytes, const char *what)
{
    LT_TRY(cuda, key, lt_of(cuda)->cublasLtMatmulDescSetAttribute(desc, attribute, value, bytes),
           what);
    return GT_OK;
}

static enum gt_status desc_make(struct cuda_backend *cuda, const struct cuda_gemm_key *key,
                                cublasLtMatmulDesc_t *out)
{
    const bool is_tf32 = cuda->tf32 && key->dtype == DTYPE_F32 && cuda->capability >= 80;
    const cublasComputeType_t compute = is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t first = key->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = key->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    LT_TRY(cuda, key, lt_of(cuda)->cublasLtMatmulDescCreate(out, compute, CUDA_R_32F),
           "describing a product");
    TRY(desc_set(cuda, key, *out, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first,
                 "setting a transpose"));
    TRY(desc_set(cuda, key, *out, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second,
                 "setting a transpose"));
    if (!key->has_bias)
        return GT_OK;
    return desc_set(cuda, key, *out, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue,
                    "setting the epilogue");
}

static enum gt_status layouts_make(struct cuda_backend *cuda, const struct cuda_gemm_key *key,
                                   struct product *product)
{
    const uint64_t m = (uint64_t)key->m, n = (uint64_t)key->n, k = (uint64_t)key->k;
    const cudaDataType_t in = data_type(key->dtype), out = data_type(key->d_dtype);
    const bool ta = key->transpose_a != 0, tb = key->transpose_b != 0;
    LT_TRY(cuda, key,
           lt_of(cuda)->cublasLtMatrixLayoutCreate(&product->first, in, tb ? k : n, tb ? n : k,
                                                   tb ? key->k : key->n),
           "laying out b");
    LT_TRY(cuda, key,
           lt_of(cuda)->cublasLtMatrixLayoutCreate(&product->second, in, ta ? m : k, ta ? k : m,
                                                   key->lda),
           "laying out a");
    LT_TRY(cuda, key, lt_of(cuda)->cublasLtMatrixLayoutCreate(&product->result, out, n, m, key->n),
           "laying out d");
    return GT_OK;
}

static enum gt_status limits_set(struct cuda_backend *cuda, const struct cuda_gemm_key *key,
                                 uint64_t workspace_bytes)
{
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        uint32_t bytes;
    } alignments[] = {
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key->alignment_b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key->alignment_a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key->alignment_d},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key->alignment_d},
    };
    cublasLtMatmulPreference_t preference = cuda->gemm->preference;
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++)
        LT_TRY(cuda, key,
               lt_of(cuda)->cublasLtMatmulPreferenceSetAttribute(
                   preference, alignments[i].attribute, &alignments[i].bytes,
                   sizeof alignments[i].bytes),
               "setting an alignment");
    LT_TRY(cuda, key,
           lt_of(cuda)->cublasLtMatmulPreferenceSetAttribute(
               preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
               sizeof workspace_bytes),
           "limiting the workspace");
    return GT_OK;
}

/* Finds the library's candidates within a workspace, its favourite first. */
static enum gt_status candidates_within(
    struct cuda_backend *cuda, const struct cuda_gemm_key *key, const struct product *product,
    uint64_t workspace_bytes, cublasLtMatmulHeuristicResult_t found[static ALGORITHMS_MAX],
    int32_t *out)
{
    const struct cuda_gemm_cache *cache = cuda->gemm;
    int count = 0;
    int32_t good = 0;
    /* All bytes of an algorithm identify it.  The library may leave some of them unwritten. */
    memset(found, 0, ALGORITHMS_MAX * sizeof found[0]);
    TRY(limits_set(cuda, key, workspace_bytes));
    const cublasStatus_t status = cache->lt.cublasLtMatmulAlgoGetHeuristic(
        cache->handle, product->desc, product->first, product->second, product->result,
        product->result, cache->preference, ALGORITHMS_MAX, found, &count);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) /* it has none */
        LT_TRY(cuda, key, status, "choosing an algorithm");
    for (int i = 0; i < count; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= workspace_bytes)
            found[good++] = found[i];
    *out = good;
    return GT_OK;
}

/* Finds the library's candidates, at least one: without workspace where it has none with it. */
static enum gt_status candidates_find(struct cuda_backend *cuda, const struct cuda_gemm_key *key,
                                      const struct product *product,
                                      cublasLtMatmulHeuristicResult_t found[static ALGORITHMS_MAX],
                                      int32_t *out)
{
    TRY(candidates_within(cuda, key, product, key->workspace_bytes, found, out));
    if (*out == 0 && key->workspace_bytes > 0)
        TRY(candidates_within(cuda, key, product, 0, found, out));
    return *out > 0 ? GT_OK
                    : lt_fail(cuda, key, CUBLAS_STATUS_NOT_SUPPORTED, "choosing an algorithm");
}

/* Returns the key under which algorithms are looked up: `key`, unless the checkpoint names an
 * algorithm for the same product under the earlier limit only. */
static struct cuda_gemm_key key_offered(const struct cuda_backend *cuda,
                                        const struct cuda_gemm_key *key)
{
    const struct cuda_algorithms *stored = &cuda->tuning->stored;
    struct cuda_gemm_key earlier = *key;
    if (earlier.workspace_bytes > EARLIER_WORKSPACE_BYTES)
        earlier.workspace_bytes = EARLIER_WORKSPACE_BYTES;
    const bool is_earlier = cuda_algorithms_find(stored, key_identity(key)) == 0 &&
                            cuda_algorithms_find(stored, key_identity(&earlier)) != 0;
    return is_earlier ? earlier : *key;
}

static enum gt_status product_make(struct cuda_backend *cuda, const struct cuda_gemm_key *key,
                                   struct product *product)
{
    cublasLtMatmulHeuristicResult_t found[ALGORITHMS_MAX];
    int32_t count = 0;
    product->offered = key_offered(cuda, key);
    TRY(desc_make(cuda, key, &product->desc));
    TRY(layouts_make(cuda, key, product));
    TRY(candidates_find(cuda, &product->offered, product, found, &count));
    const int32_t chosen = cuda_tuning_chosen(cuda->tuning, key_identity(&product->offered), count,
                                              candidate_identity, found);
    product->known = chosen >= 0;
    product->chosen = found[chosen >= 0 ? chosen : 0];
    product->key = *key;
    return GT_OK;
}

static enum gt_status product_get(struct cuda_backend *cuda, const struct cuda_gemm_key *key,
                                  struct product **out)
{
    struct cuda_gemm_cache *cache = cuda->gemm;
    assert(key->m > 0 && key->n > 0 && key->k > 0);
    struct product *product = slot_find(cache, key);
    if (product->key.m != 0) {
        *out = product;
        return GT_OK;
    }
    if (cache->used == SLOTS_USED_MAX) {
        /* Products in flight have their descriptors by value. */
        products_clear(cache);
        product = slot_find(cache, key);
    }
    const enum gt_status status = product_make(cuda, key, product);
    if (status != GT_OK) {
        product_clear(&cache->lt, product);
        return status;
    }
    cache->used++;
    *out = product;
    return GT_OK;
}

/* A product, its operands, and the candidates for its algorithm. */
struct trial_context {
    const struct product *product;
    const struct cuda_gemm_operands *operands;
    cublasLtMatmulHeuristicResult_t found[ALGORITHMS_MAX];
};

static enum gt_status product_start(struct cuda_backend *cuda, const struct trial_context *trial,
                                    const cublasLtMatmulHeuristicResult_t *chosen)
{
    const struct product *product = trial->product;
    const struct cuda_gemm_operands *operands = trial->operands;
    const float one = 1.0f, old = product->key.accumulate ? 1.0f : 0.0f;
    LT_TRY(cuda, &product->key,
           lt_of(cuda)->cublasLtMatmul(
               cuda->gemm->handle, product->desc, &one, operands->b, product->first, operands->a,
               product->second, &old, operands->d, product->result, operands->d, product->result,
               &chosen->algo, operands->workspace, chosen->workspaceSize, cuda->stream),
           "starting a product");
    return GT_OK;
}

static enum gt_status candidate_start(struct cuda_backend *cuda, int32_t candidate,
                                      const void *context)
{
    const struct trial_context *trial = context;
    return product_start(cuda, trial, &trial->found[candidate]);
}

static struct backend_timing timing_of(const struct cuda_gemm_key *key, double seconds)
{
    const double m = (double)key->m, n = (double)key->n, k = (double)key->k;
    const double read = (m * k + k * n) * (double)dtype_size_bytes((enum dtype)key->dtype);
    const double written = m * n * (double)dtype_size_bytes((enum dtype)key->d_dtype);
    return (struct backend_timing){.kind = OP_GEMM,
                                   .dtype = (enum dtype)key->dtype,
                                   .transpose_a = key->transpose_a != 0,
                                   .transpose_b = key->transpose_b != 0,
                                   .flops = 2.0 * m * n * k,
                                   .bytes = read + written * (key->accumulate != 0 ? 2.0 : 1.0),
                                   .seconds = seconds};
}

/* Fills `bytes` from `to` on with noise of the dtype: uploads a first piece, and copies it to the
 * rest. */
static enum gt_status noise_fill(struct cuda_backend *cuda, enum dtype dtype, void *to,
                                 size_t bytes)
{
    uint8_t noise[NOISE_BYTES];
    const size_t first = size_min(bytes, sizeof noise);
    backend_noise(dtype, (int64_t)(first / dtype_size_bytes(dtype)), noise);
    TRY(cuda_check(&cuda->base,
                   cudaMemcpyAsync(to, noise, first, cudaMemcpyHostToDevice, cuda->stream),
                   "a trial"));
    for (size_t done = first; done < bytes; done *= 2)
        TRY(cuda_check(&cuda->base,
                       cudaMemcpyAsync((char *)to + done, to, size_min(done, bytes - done),
                                       cudaMemcpyDeviceToDevice, cuda->stream),
                       "a trial"));
    return cuda_check(&cuda->base, cudaStreamSynchronize(cuda->stream),
                      "a trial"); /* the noise is on the stack */
}

/* Gives a trial random factors: zeros take less power, so that all candidates would look faster
 * than they are.  The program's inputs are elsewhere, and its arena is cleared before the next one
 * is bound. */
static enum gt_status factors_fill(struct cuda_backend *cuda, const struct trial_context *trial)
{
    const struct cuda_gemm_key *key = &trial->product->key;
    const enum dtype dtype = (enum dtype)key->dtype;
    const size_t size = dtype_size_bytes(dtype), k = (size_t)key->k;
    /* Of a transposed `a` only the rows' own columns may be written. */
    if (key->transpose_a == 0 || key->lda == key->m)
        TRY(noise_fill(cuda, dtype, (void *)(uintptr_t)trial->operands->a,
                       (size_t)key->m * k * size));
    return noise_fill(cuda, dtype, (void *)(uintptr_t)trial->operands->b,
                      (size_t)key->n * k * size);
}

static enum gt_status product_tune(struct cuda_backend *cuda, struct product *product,
                                   struct trial_context *context)
{
    struct cuda_trial trial = {
        .what = "timing a product", .start = candidate_start, .context = context};
    struct cuda_trial_result result;
    TRY(candidates_find(cuda, &product->offered, product, context->found, &trial.count));
    TRY(factors_fill(cuda, context));
    TRY(cuda_trial_run(cuda, &trial, &result));
    const struct backend_timing timing = timing_of(&product->key, result.seconds);
    product->chosen = context->found[result.best];
    product->known = true;
    const struct backend_algorithm choice = {.call = key_identity(&product->offered),
                                             .algorithm =
                                                 algorithm_identity(&product->chosen.algo)};
    cuda_tuning_found(cuda->tuning, &cuda->tuning->products, &choice, &result, &timing);
    return GT_OK;
}

enum gt_status cuda_gemm_enqueue(struct cuda_backend *cuda, const struct cuda_gemm_key *key,
                                 const struct cuda_gemm_operands *operands)
{
    struct product *product;
    TRY(product_get(cuda, key, &product));
    struct trial_context context = {.product = product, .operands = operands};
    /* The algorithm was chosen without the pointer, and assumes this alignment. */
    assert(!key->has_bias || (uintptr_t)operands->bias % BIAS_ALIGNMENT == 0);
    if (key->has_bias)
        TRY(desc_set(cuda, key, product->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &operands->bias,
                     sizeof operands->bias, "naming the bias"));
    product->bound = product->bound || cuda->binding;
    if (cuda->binding && cuda->tuning->on && !product->known)
        TRY(product_tune(cuda, product, &context));
    return product_start(cuda, &context, &product->chosen);
}

void cuda_gemm_algorithms(struct cuda_backend *cuda, struct cuda_algorithms *out)
{
    const struct cuda_gemm_cache *cache = cuda->gemm;
    for (int32_t i = 0; i < SLOTS; i++)
        if (cache->slot[i].bound)
            (void)cuda_algorithms_put(out, key_identity(&cache->slot[i].offered),
                                      algorithm_identity(&cache->slot[i].chosen.algo));
}
