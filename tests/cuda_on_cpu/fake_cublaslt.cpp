/* A fake cuBLASLt that needs no card: D = alpha op(A) op(B) + beta C, with a bias, for the
 * backend's layouts and dtypes.
 *
 * It supports column-major matrices with leading dimensions, all transposes, fp32, bf16 and fp16
 * with fp32 sums in rising k, TF32 by rounding the inputs, and the bias epilogue.  It rejects
 * everything else as NOT_SUPPORTED.  An algorithm is valid only for the product it was looked up
 * for, and needs its workspace, which every product fills with NaN.  Each product has three
 * algorithms, which split the sum into one, two or three parts, so that their bits differ; their
 * times are invented (GT_CUDA_ON_CPU_FASTEST).  Work goes into the stream like a kernel.  GELU
 * epilogues, FP8, sparse and complex matrices are not supported.
 */
#include "emulator.h"

#include <cstdio>
#include <cstdlib>

#include <vector>

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "fake_runtime.h"

/* As in the real library, some products need a workspace and some do not. */
#define WORKSPACE_FROM_DEPTH 64
#define ALIGNMENT_BYTES 16

struct lt_layout {
    cudaDataType type;
    uint64_t rows, cols;
    int64_t ld;
};

struct descriptor {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int32_t transpose_a, transpose_b, epilogue;
    const void *bias;
};

struct lt_preference {
    uint64_t workspace_bytes_max;
    uint32_t reduction_mask, alignment[4];
};

/* Identifies the product that an algorithm was looked up for; fits the 64 bytes of
 * cublasLtMatmulAlgo_t. */
struct algorithm {
    uint64_t magic, m, n, k, types, workspace_bytes, variant;
};

#define VARIANTS 3
#define MAGIC 0x6770742d74726169ull

struct cublasLtContext {
    int unused;
};

extern "C" {

const char *cublasLtGetStatusName(cublasStatus_t status)
{
#define NAMED(name) \
    case name:      \
        return #name;
    switch (status) {
        NAMED(CUBLAS_STATUS_SUCCESS)
        NAMED(CUBLAS_STATUS_NOT_INITIALIZED)
        NAMED(CUBLAS_STATUS_ALLOC_FAILED)
        NAMED(CUBLAS_STATUS_INVALID_VALUE)
        NAMED(CUBLAS_STATUS_EXECUTION_FAILED)
        NAMED(CUBLAS_STATUS_INTERNAL_ERROR)
        NAMED(CUBLAS_STATUS_NOT_SUPPORTED)
    default:
        return "CUBLAS_STATUS_UNKNOWN";
    }
#undef NAMED
}

size_t cublasLtGetVersion(void)
{
    return 130000;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    if (fake_cuda_call_fails(__func__))
        return CUBLAS_STATUS_ALLOC_FAILED;
    *handle = new cublasLtContext();
    fake_cuda_object_count(1);
    fake_cuda_device_take((int64_t)FAKE_CUBLASLT_BYTES);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    bool fails = fake_cuda_call_fails(__func__);
    delete handle;
    fake_cuda_object_count(-1);
    fake_cuda_device_take(-(int64_t)FAKE_CUBLASLT_BYTES);
    return fails ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

/* ---- descriptors ---- */
}

/* The library's types are opaque: *out is a `made` of ours. */
template <typename Handle, typename T>
static cublasStatus_t object_make(const char *function, Handle *out, const T &made)
{
    if (fake_cuda_call_fails(function))
        return CUBLAS_STATUS_ALLOC_FAILED;
    *out = (Handle)(void *)new T(made);
    fake_cuda_object_count(1);
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T> static cublasStatus_t object_free(const char *function, void *object)
{
    bool fails = fake_cuda_call_fails(function);
    delete (T *)object;
    fake_cuda_object_count(-1);
    return fails ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

/* A field of a T that an attribute sets. */
struct field {
    int attribute;
    size_t at, bytes;
};
#define FIELD(attribute, type, field)                                      \
    {                                                                      \
        attribute, offsetof(type, field), sizeof(((type *)nullptr)->field) \
    }

template <size_t count>
static cublasStatus_t field_set(const char *function, const struct field (&fields)[count],
                                void *object, int attribute, const void *value, size_t bytes)
{
    if (fake_cuda_call_fails(function))
        return CUBLAS_STATUS_INVALID_VALUE;
    for (const struct field &field : fields) {
        if (field.attribute != attribute)
            continue;
        if (!value || bytes != field.bytes)
            return CUBLAS_STATUS_INVALID_VALUE;
        memcpy((char *)object + field.at, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

extern "C" {

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    return object_make(__func__, layout, lt_layout{type, rows, cols, ld});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return object_free<lt_layout>(__func__, layout);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    return object_make(
        __func__, desc,
        descriptor{compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    return object_free<descriptor>(__func__, desc);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    static const struct field fields[] = {
        FIELD(CUBLASLT_MATMUL_DESC_TRANSA, descriptor, transpose_a),
        FIELD(CUBLASLT_MATMUL_DESC_TRANSB, descriptor, transpose_b),
        FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE, descriptor, epilogue),
        FIELD(CUBLASLT_MATMUL_DESC_BIAS_POINTER, descriptor, bias)};
    return field_set(__func__, fields, desc, attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    return object_make(__func__, preference,
                       lt_preference{0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    return object_free<lt_preference>(__func__, preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    static const struct field fields[] = {
        FIELD(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, lt_preference, workspace_bytes_max),
        FIELD(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, lt_preference, reduction_mask),
        FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, lt_preference, alignment[0]),
        FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, lt_preference, alignment[1]),
        FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, lt_preference, alignment[2]),
        FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, lt_preference, alignment[3])};
    return field_set(__func__, fields, preference, attribute, value, bytes);
}
}

/* ---- a product ---- */

struct product {
    struct descriptor desc;
    struct lt_layout a, b, c, d;
    uint64_t m, n, k, variant;
};

static uint64_t types_of(const struct product *product)
{
    return (uint64_t)product->a.type | (uint64_t)product->b.type << 8 |
           (uint64_t)product->d.type << 16 | (uint64_t)product->desc.transpose_a << 24 |
           (uint64_t)product->desc.transpose_b << 26 | (uint64_t)product->desc.epilogue << 32;
}

static bool type_is_half(cudaDataType type)
{
    return type == CUDA_R_16BF || type == CUDA_R_16F;
}

static bool layout_is_valid(const struct lt_layout *layout)
{
    return layout->rows > 0 && layout->cols > 0 && layout->ld >= (int64_t)layout->rows;
}

/* Derives the product's shape from the layouts and op().  Returns INVALID_VALUE when they do not
 * match, NOT_SUPPORTED for unsupported features. */
static cublasStatus_t product_make(const struct descriptor *desc,
                                   const struct lt_layout *const layouts[4], struct product *out)
{
    struct product product = {*desc, *layouts[0], *layouts[1], *layouts[2], *layouts[3], 0, 0, 0,
                              0};
    const struct lt_layout *a = &product.a, *b = &product.b, *d = &product.d;
    bool transpose_a = desc->transpose_a != CUBLAS_OP_N,
         transpose_b = desc->transpose_b != CUBLAS_OP_N;
    product.m = transpose_a ? a->cols : a->rows;
    product.k = transpose_a ? a->rows : a->cols;
    product.n = transpose_b ? b->rows : b->cols;
    for (int i = 0; i < 4; i++)
        if (!layout_is_valid(layouts[i]))
            return CUBLAS_STATUS_INVALID_VALUE;
    if ((transpose_b ? b->cols : b->rows) != product.k || d->rows != product.m ||
        d->cols != product.n || product.c.rows != product.m || product.c.cols != product.n)
        return CUBLAS_STATUS_INVALID_VALUE;
    bool types = a->type == b->type && product.c.type == d->type &&
                 (d->type == a->type || (type_is_half(a->type) && d->type == CUDA_R_32F)) &&
                 (type_is_half(a->type) || a->type == CUDA_R_32F);
    bool compute = desc->compute == CUBLAS_COMPUTE_32F ||
                   (desc->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a->type == CUDA_R_32F);
    bool epilogue =
        desc->epilogue == CUBLASLT_EPILOGUE_DEFAULT || desc->epilogue == CUBLASLT_EPILOGUE_BIAS;
    if (!types || !compute || !epilogue || desc->scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *out = product;
    return CUBLAS_STATUS_SUCCESS;
}

static uint64_t workspace_wanted(const struct product *product)
{
    return product->k >= WORKSPACE_FROM_DEPTH ? (product->m * product->n * 4 + 255) / 256 * 256 : 0;
}

static float value_get(const void *matrix, cudaDataType type, int64_t index)
{
    if (type == CUDA_R_32F)
        return ((const float *)matrix)[index];
    if (type == CUDA_R_16BF)
        return __bfloat162float(((const __nv_bfloat16 *)matrix)[index]);
    return __half2float(((const __half *)matrix)[index]);
}

static void value_put(void *matrix, cudaDataType type, int64_t index, float value)
{
    if (type == CUDA_R_32F)
        ((float *)matrix)[index] = value;
    else if (type == CUDA_R_16BF)
        ((__nv_bfloat16 *)matrix)[index] = __float2bfloat16_rn(value);
    else
        ((__half *)matrix)[index] = __float2half_rn(value);
}

/* Rounds to 10 fraction bits, to nearest, ties away from zero: cvt.rna.tf32. */
static float tf32(float value)
{
    uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7f800000u) == 0x7f800000u)
        return value;
    return __uint_as_float((bits + 0x1000u) & ~0x1fffu);
}

static int64_t index_of(const struct lt_layout *layout, uint64_t row, uint64_t col)
{
    return (int64_t)row + (int64_t)col * layout->ld;
}

#define TILE_M 8
#define TILE_N 4
typedef float quad __attribute__((vector_size(16)));

/* out[TILE_N][TILE_M] = sum over k of a[k][i] b[j][k], k rising; a has rows of `stride`. */
static void tile_run(const float *a, size_t stride, const float *const b[TILE_N], uint64_t depth,
                     float out[TILE_N][TILE_M])
{
    quad sum[TILE_N][2] = {};
    for (uint64_t k = 0; k < depth; k++) {
        quad low, high;
        memcpy(&low, a + k * stride, sizeof low);
        memcpy(&high, a + k * stride + 4, sizeof high);
        for (int j = 0; j < TILE_N; j++) {
            sum[j][0] += low * b[j][k];
            sum[j][1] += high * b[j][k];
        }
    }
    memcpy(out, sum, sizeof sum);
}

/* The same sums as tensor cores may compute them; see rounding.cpp. */
static void tile_run_truncated(const float *a, size_t stride, const float *const b[TILE_N],
                               uint64_t depth, float out[TILE_N][TILE_M])
{
    memset(out, 0, sizeof(float) * TILE_N * TILE_M);
    for (int j = 0; j < TILE_N; j++)
        for (int i = 0; i < TILE_M; i++)
            for (uint64_t k = 0; k < depth; k += EMULATOR_PRODUCTS) {
                double products[EMULATOR_PRODUCTS];
                int count = 0;
                for (; count < EMULATOR_PRODUCTS && k + (uint64_t)count < depth; count++)
                    products[count] = (double)a[(k + (uint64_t)count) * stride + (size_t)i] *
                                      b[j][k + (uint64_t)count];
                out[j][i] = emulator_sum_truncated(out[j][i], products, count);
            }
}

/* Computes the parts of the variant's sum and adds them in order. */
static void parts_run(const struct product *product, const float *a, size_t stride,
                      const float *const b[TILE_N], float out[TILE_N][TILE_M])
{
    uint64_t parts = product->variant + 1, begin = 0;
    bool truncates = emulator_card_rounding && type_is_half(product->a.type);
    memset(out, 0, sizeof(float) * TILE_N * TILE_M);
    for (uint64_t part = 0; part < parts; part++) {
        uint64_t end = product->k * (part + 1) / parts;
        const float *columns[TILE_N];
        float sums[TILE_N][TILE_M];
        for (int j = 0; j < TILE_N; j++)
            columns[j] = b[j] + begin;
        (truncates ? tile_run_truncated : tile_run)(a + begin * stride, stride, columns,
                                                    end - begin, sums);
        for (int j = 0; j < TILE_N; j++)
            for (int i = 0; i < TILE_M; i++)
                out[j][i] += sums[j][i];
        begin = end;
    }
}

/* Inputs as fp32: op(A) as [k][m rounded up to tiles], op(B) as [n][k]. */
static void inputs_unpack(const struct product *product, const void *a, const void *b,
                          size_t stride, std::vector<float> *a_out, std::vector<float> *b_out)
{
    bool rounds = product->desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    bool transpose_a = product->desc.transpose_a != CUBLAS_OP_N,
         transpose_b = product->desc.transpose_b != CUBLAS_OP_N;
    a_out->assign(product->k * stride, 0.0f);
    b_out->resize(product->n * product->k);
    for (uint64_t k = 0; k < product->k; k++)
        for (uint64_t i = 0; i < product->m; i++) {
            int64_t at = transpose_a ? index_of(&product->a, k, i) : index_of(&product->a, i, k);
            float value = value_get(a, product->a.type, at);
            (*a_out)[k * stride + i] = rounds ? tf32(value) : value;
        }
    for (uint64_t j = 0; j < product->n; j++)
        for (uint64_t k = 0; k < product->k; k++) {
            int64_t at = transpose_b ? index_of(&product->b, j, k) : index_of(&product->b, k, j);
            float value = value_get(b, product->b.type, at);
            (*b_out)[j * product->k + k] = rounds ? tf32(value) : value;
        }
}

struct addresses {
    const void *a, *b, *c;
    void *d, *workspace;
    size_t workspace_bytes;
    float alpha, beta;
};

/* Under card rounding, the product is rounded to 16 bits before C and the bias are added: some
 * algorithms of cuBLASLt 13.1 do so on an H100. */
static void tile_write(const struct product *product, const struct addresses *at, uint64_t i0,
                       uint64_t j0, float tile[TILE_N][TILE_M])
{
    const bool rounds_first =
        emulator_card_rounding && at->beta != 0.0f && type_is_half(product->d.type);
    for (uint64_t j = j0; j < j0 + TILE_N && j < product->n; j++)
        for (uint64_t i = i0; i < i0 + TILE_M && i < product->m; i++) {
            const int64_t place = index_of(&product->d, i, j);
            float value = at->alpha * tile[j - j0][i - i0], before = 0.0f;
            if (at->beta != 0.0f)
                before = at->beta * value_get(at->c, product->c.type, index_of(&product->c, i, j));
            if (rounds_first) {
                value_put(at->d, product->d.type, place, value);
                value = value_get(at->d, product->d.type, place);
            }
            value += before;
            if (product->desc.epilogue == CUBLASLT_EPILOGUE_BIAS)
                value += value_get(product->desc.bias, product->d.type, (int64_t)i);
            value_put(at->d, product->d.type, place, value);
        }
}

static void product_run(const struct product *product, const struct addresses *at)
{
    size_t stride = (product->m + TILE_M - 1) / TILE_M * TILE_M;
    std::vector<float> a, b;
    if (at->workspace)
        memset(at->workspace, 0xff, at->workspace_bytes);
    inputs_unpack(product, at->a, at->b, stride, &a, &b);
    for (uint64_t j = 0; j < product->n; j += TILE_N) {
        const float *columns[TILE_N];
        for (uint64_t x = 0; x < TILE_N; x++)
            columns[x] = b.data() + std::min(j + x, product->n - 1) * product->k;
        for (uint64_t i = 0; i < product->m; i += TILE_M) {
            float tile[TILE_N][TILE_M];
            parts_run(product, a.data() + i, stride, columns, tile);
            tile_write(product, at, i, j, tile);
        }
    }
}

/* The variant that takes half as long as the others. */
static uint64_t fastest(void)
{
    const char *text = getenv("GT_CUDA_ON_CPU_FASTEST");
    return text ? strtoull(text, nullptr, 10) : 0;
}

extern "C" {

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int *found)
{
    if (fake_cuda_call_fails(__func__))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    if (!handle || !desc || requested < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    const struct lt_layout *const layouts[4] = {
        (const struct lt_layout *)(void *)a, (const struct lt_layout *)(void *)b,
        (const struct lt_layout *)(void *)c, (const struct lt_layout *)(void *)d};
    struct product product;
    *found = 0;
    cublasStatus_t status =
        product_make((const struct descriptor *)(void *)desc, layouts, &product);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    const struct lt_preference *wishes = (const struct lt_preference *)(void *)preference;
    uint64_t workspace = workspace_wanted(&product);
    for (int i = 0; i < 4; i++)
        if (wishes->alignment[i] < ALIGNMENT_BYTES)
            return CUBLAS_STATUS_NOT_SUPPORTED;
    if (wishes->workspace_bytes_max > 0 && getenv("GT_CUDA_ON_CPU_BARE") != nullptr)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (workspace > wishes->workspace_bytes_max)
        workspace = 0;
    for (int i = 0; i < std::min(requested, VARIANTS); i++) {
        struct algorithm algorithm = {
            MAGIC, product.m, product.n, product.k, types_of(&product), workspace, (uint64_t)i};
        static_assert(sizeof algorithm <= sizeof results->algo, "an algorithm has 64 bytes");
        memcpy(&results[i].algo, &algorithm,
               sizeof algorithm); /* the rest of the 64 bytes is unused */
        results[i].workspaceSize = workspace;
        results[i].state = CUBLAS_STATUS_SUCCESS;
        results[i].wavesCount = 1.0f;
        *found = i + 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    if (fake_cuda_call_fails(__func__))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    const struct lt_layout *const layouts[4] = {
        (const struct lt_layout *)(void *)a_layout, (const struct lt_layout *)(void *)b_layout,
        (const struct lt_layout *)(void *)c_layout, (const struct lt_layout *)(void *)d_layout};
    struct product product;
    struct algorithm algorithm = {};
    struct addresses at = {
        a, b, c, d, workspace, workspace_bytes, *(const float *)alpha, *(const float *)beta};
    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    cublasStatus_t status =
        product_make((const struct descriptor *)(void *)desc, layouts, &product);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (algo) {
        memcpy(&algorithm, algo, sizeof algorithm);
        if (algorithm.magic != MAGIC || algorithm.m != product.m || algorithm.n != product.n ||
            algorithm.k != product.k || algorithm.types != types_of(&product) ||
            algorithm.workspace_bytes > workspace_bytes || algorithm.variant >= VARIANTS)
            return CUBLAS_STATUS_INVALID_VALUE;
        product.variant = algorithm.variant;
    } else if (fake_cuda_call_fails("cublasLtMatmulAlgoGetHeuristic")) {
        return CUBLAS_STATUS_INTERNAL_ERROR;
    }
    uintptr_t bits = (uintptr_t)a | (uintptr_t)b | (uintptr_t)d | (uintptr_t)workspace;
    if (at.beta != 0.0f)
        bits |= (uintptr_t)c;
    if (product.desc.epilogue == CUBLASLT_EPILOGUE_BIAS)
        bits |= (uintptr_t)product.desc.bias;
    if (bits % ALIGNMENT_BYTES != 0 ||
        (product.desc.epilogue == CUBLASLT_EPILOGUE_BIAS && !product.desc.bias))
        return CUBLAS_STATUS_INVALID_VALUE;
    bool fast = product.variant == fastest();
    cudaError_t error = fake_cuda_enqueue(stream, [product, at, fast] {
        product_run(&product, &at);
        fake_cuda_clock_advance(fast ? 1.0 : 2.0);
    });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
}
