/* Matrix units: selected by vendor and generation, then proven by compiling and by products with known results.
 *
 * NVIDIA's compiler accepts inline PTX, whose mma supports bf16 and fp16 from capability 8.0 and fp16 from 7.5.  AMD's
 * has Clang's builtins for the WMMA of gfx11.  The kernels assume that a group's work-items are the lanes of warps, in
 * order; no standard guarantees that.  Therefore every tile shape first multiplies small integers, whose sums are exact
 * in any order.  A compiler may also kill its process at unknown code, so the caller tries a new device in a child
 * process first (opencl_child.h).  The cache keeps what was proven there.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "backends/opencl/opencl_gemm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"

#define KNOWN "proven"
#define PROBE_M 40 /* not a multiple of a tile or of a unit */
#define PROBE_N 72
#define PROBE_K 56
#define PROBE_B_BYTES 8192 /* offsets of b and d in the probe's memory, and its size */
#define PROBE_D_BYTES 32768
#define PROBE_BYTES 65536
#define PROBE_GUARD UINT32_C(0x7fc0dead) /* a NaN that marks words not written */

_Static_assert(PROBE_M *PROBE_K * 2 <= PROBE_B_BYTES && PROBE_B_BYTES + PROBE_N * PROBE_K * 2 <= PROBE_D_BYTES &&
                   PROBE_D_BYTES + PROBE_M * PROBE_N * 4 < PROBE_BYTES,
               "the probe's matrices lie one after the other");

static const enum dtype dtypes_tried[] = {DTYPE_BF16, DTYPE_F16};

/* Parses GPT_TRAIN_OPENCL_MATRIX: "0" for no units; for tests "emulated-mma", "emulated-mma8" or "emulated-wmma", with
 * a suffix such as "/64" for tiles of that size only. */
static bool candidate_wanted(const char *wanted, struct opencl_matrix *out)
{
    static const struct {
        const char *name;
        enum opencl_unit unit;
    } emulated[] = {{"emulated-mma", OPENCL_UNIT_MMA_16},
                    {"emulated-mma8", OPENCL_UNIT_MMA_8},
                    {"emulated-wmma", OPENCL_UNIT_WMMA}};
    if (strcmp(wanted, "0") == 0) {
        snprintf(out->lost, sizeof out->lost, "GPT_TRAIN_OPENCL_MATRIX is 0");
        return true;
    }
    const size_t length = strcspn(wanted, "/");
    for (size_t i = 0; i < sizeof emulated / sizeof emulated[0]; i++) {
        if (strlen(emulated[i].name) != length || strncmp(wanted, emulated[i].name, length) != 0)
            continue;
        out->unit = emulated[i].unit;
        out->is_emulated = true;
        out->tile = wanted[length] == '/' ? (int32_t)strtol(wanted + length + 1, NULL, 10) : 0;
        out->dtypes = 1u << DTYPE_BF16 | 1u << DTYPE_F16;
        return true;
    }
    return false;
}

void opencl_matrix_candidate(const struct opencl_backend *cl, struct opencl_matrix *out)
{
    const struct opencl_device *device = &cl->device;
    const char *wanted = getenv("GPT_TRAIN_OPENCL_MATRIX");
    struct opencl_matrix matrix = {.unit = OPENCL_UNIT_NONE};
    if (wanted != NULL && candidate_wanted(wanted, &matrix)) {
        *out = matrix;
        return;
    }
    if (device->nvidia_capability >= 80) {
        matrix.unit = OPENCL_UNIT_MMA_16;
        matrix.dtypes = 1u << DTYPE_BF16 | 1u << DTYPE_F16;
    } else if (device->nvidia_capability >= 75) {
        matrix.unit = OPENCL_UNIT_MMA_8;
        matrix.dtypes = 1u << DTYPE_F16;
    } else if (strncmp(device->name, "gfx11", 5) == 0) {
        matrix.unit = OPENCL_UNIT_WMMA;
        matrix.dtypes = 1u << DTYPE_BF16 | (device->has_fp16_arithmetic ? 1u << DTYPE_F16 : 0u);
    } else {
        snprintf(matrix.lost, sizeof matrix.lost, "none are known on this device");
    }
    *out = matrix;
}

static void known_key(const struct opencl_backend *cl, char key[static OPENCL_KEY_MAX])
{
    struct opencl_matrix matrix;
    opencl_matrix_candidate(cl, &matrix);
    snprintf(key, OPENCL_KEY_MAX,
             "matrix units 1; %s; %s; %s; %s; unit %d%s; dtypes %" PRIx32 "; common %08" PRIx32 " kernel %08" PRIx32
             "; " PACKAGE_VERSION,
             cl->device.platform_name, cl->device.name, cl->device.driver, cl->device.version, (int)matrix.unit,
             matrix.is_emulated ? " emulated" : "", matrix.dtypes,
             file_crc32c(0, opencl_source_common.text, opencl_source_common.length),
             file_crc32c(0, opencl_source_gemm_matrix.text, opencl_source_gemm_matrix.length));
}

bool opencl_matrix_is_known(const struct opencl_backend *cl)
{
    char key[OPENCL_KEY_MAX];
    void *data = NULL;
    size_t bytes = 0;
    known_key(cl, key);
    const bool known =
        opencl_cache_load(key, &data, &bytes) && bytes == sizeof KNOWN && memcmp(data, KNOWN, bytes) == 0;
    free(data);
    return known;
}

static void probe_fill(uint8_t *memory, enum dtype dtype)
{
    uint16_t *a = (uint16_t *)(void *)memory, *b = (uint16_t *)(void *)(memory + PROBE_B_BYTES);
    for (size_t i = 0; i < PROBE_BYTES; i += sizeof(uint32_t))
        memcpy(memory + i, &(uint32_t){PROBE_GUARD}, sizeof(uint32_t));
    for (uint32_t i = 0; i < PROBE_M * PROBE_K; i++)
        a[i] = dtype == DTYPE_BF16 ? bf16_from_f32(opencl_known_value(i, 1)) : f16_from_f32(opencl_known_value(i, 1));
    for (uint32_t i = 0; i < PROBE_N * PROBE_K; i++)
        b[i] = dtype == DTYPE_BF16 ? bf16_from_f32(opencl_known_value(i, 2)) : f16_from_f32(opencl_known_value(i, 2));
}

static float probe_expected(uint32_t row, uint32_t column)
{
    float sum = 0.0f;
    for (uint32_t k = 0; k < PROBE_K; k++)
        sum += opencl_known_value(row * PROBE_K + k, 1) * opencl_known_value(column * PROBE_K + k, 2);
    return sum;
}

/* Returns true when d is correct and nothing behind it was written. */
static bool probe_check(const struct opencl_backend *cl, const uint8_t *memory, char *lost)
{
    const float *d = (const float *)(const void *)(memory + PROBE_D_BYTES);
    const uint32_t *rest = (const uint32_t *)(const void *)(memory + PROBE_D_BYTES);
    for (uint32_t i = 0; i < PROBE_M * PROBE_N; i++) {
        const float expected = probe_expected(i / PROBE_N, i % PROBE_N);
        if (d[i] == expected)
            continue;
        snprintf(lost, BACKEND_REASON_MAX, "%s multiplies wrongly on them: element %u,%u is %g and should be %g",
                 cl->device.name, i / PROBE_N, i % PROBE_N, (double)d[i], (double)expected);
        return false;
    }
    for (uint32_t i = PROBE_M * PROBE_N; i < (PROBE_BYTES - PROBE_D_BYTES) / sizeof *rest; i++) {
        if (rest[i] == PROBE_GUARD)
            continue;
        snprintf(lost, BACKEND_REASON_MAX, "%s writes %u elements beyond the result of a product on them",
                 cl->device.name, i - PROBE_M * PROBE_N);
        return false;
    }
    return true;
}

static enum gt_status probe_run(struct opencl_backend *cl, const struct opencl_matrix_shape *shape, enum dtype dtype,
                                cl_mem memory, uint8_t *bytes)
{
    const struct opencl_product product = {
        .dtype = dtype, .m = PROBE_M, .n = PROBE_N, .k = PROBE_K, .transpose_b = true, .is_wide = true};
    struct opencl_launch launch;
    CL_TRY(cl, "writing a known product",
           cl->api.clEnqueueWriteBuffer(cl->queue, memory, CL_TRUE, 0, PROBE_BYTES, bytes, 0, NULL, NULL));
    opencl_matrix_begin(&launch, cl, shape, &product);
    opencl_arg_memory(&launch, memory, 0);
    opencl_arg_memory(&launch, memory, PROBE_B_BYTES / sizeof(uint16_t));
    opencl_arg_memory(&launch, NULL, 0);
    opencl_arg_values(&launch, VALUES(I32(-1)));
    opencl_arg_memory(&launch, memory, PROBE_D_BYTES / sizeof(float));
    opencl_arg_values(&launch, VALUES(I32(DTYPE_F32)));
    TRY(opencl_matrix_end(&launch, shape, &product));
    CL_TRY(cl, "reading a known product",
           cl->api.clEnqueueReadBuffer(cl->queue, memory, CL_TRUE, 0, PROBE_BYTES, bytes, 0, NULL, NULL));
    return GT_OK;
}

/* Returns true when the products of all shapes are correct; else writes the reason to lost[BACKEND_REASON_MAX]. */
static bool shapes_prove(struct opencl_backend *cl, enum dtype dtype, cl_mem memory, uint8_t *bytes, char *lost)
{
    int32_t proven = 0;
    bool right = true;
    snprintf(lost, BACKEND_REASON_MAX, "no tile fits %s", cl->device.name);
    for (int32_t i = 0; i < opencl_matrix_shape_count && right; i++) {
        const struct opencl_matrix_shape *shape = &opencl_matrix_shapes[i];
        if (!opencl_matrix_shape_fits(cl, shape))
            continue;
        probe_fill(bytes, dtype);
        cl->trying = lost;
        right = probe_run(cl, shape, dtype, memory, bytes) == GT_OK;
        cl->trying = NULL;
        right = right && probe_check(cl, bytes, lost);
        proven++;
    }
    return right && proven > 0;
}

static void dtypes_prove(struct opencl_backend *cl, struct opencl_matrix *matrix)
{
    cl_int code = CL_SUCCESS;
    uint8_t *bytes = malloc(PROBE_BYTES);
    cl_mem memory = cl->api.clCreateBuffer(cl->context, CL_MEM_READ_WRITE, PROBE_BYTES, NULL, &code);
    for (size_t i = 0; i < sizeof dtypes_tried / sizeof dtypes_tried[0]; i++) {
        const enum dtype dtype = dtypes_tried[i];
        char lost[BACKEND_REASON_MAX] = "no memory to try them";
        if ((matrix->dtypes >> dtype & 1u) == 0 ||
            (bytes != NULL && code == CL_SUCCESS && shapes_prove(cl, dtype, memory, bytes, lost)))
            continue;
        matrix->dtypes &= ~(1u << dtype);
        snprintf(matrix->lost, sizeof matrix->lost, "%s", lost);
    }
    if (code == CL_SUCCESS)
        (void)cl->api.clReleaseMemObject(memory);
    free(bytes);
}

void opencl_matrix_open(struct opencl_backend *cl, uint32_t dtypes, const char *lost)
{
    char key[OPENCL_KEY_MAX];
    struct opencl_matrix *matrix = &cl->matrix;
    opencl_matrix_candidate(cl, matrix);
    if (matrix->unit == OPENCL_UNIT_NONE)
        return;
    const bool was_known = opencl_matrix_is_known(cl);
    if ((matrix->dtypes & ~dtypes) != 0)
        snprintf(matrix->lost, sizeof matrix->lost, "%s", lost);
    matrix->dtypes &= dtypes;
    dtypes_prove(cl, matrix);
    if (matrix->lost[0] != '\0') {
        log_note("opencl: %s products on %s are left to vector units, which are slower than its matrix units: %s",
                 matrix->dtypes == 0 ? "16-bit" : "some 16-bit", cl->device.name, matrix->lost);
    } else if (!was_known && matrix->tile == 0) {
        known_key(cl, key);
        opencl_cache_store(key, KNOWN, sizeof KNOWN);
    }
}

void opencl_matrix_texts(const struct opencl_backend *cl, char *has, size_t has_size, char *lacks, size_t lacks_size)
{
    const struct opencl_matrix *matrix = &cl->matrix;
    const bool bf16 = (matrix->dtypes >> DTYPE_BF16 & 1u) != 0, f16 = (matrix->dtypes >> DTYPE_F16 & 1u) != 0;
    if (bf16 || f16)
        snprintf(has, has_size, "%s%s%s products on %smatrix units", bf16 ? "bfloat16" : "", bf16 && f16 ? ", " : "",
                 f16 ? "float16" : "", matrix->is_emulated ? "emulated " : "");
    else
        snprintf(has, has_size, "%s", cl->device.is_cpu ? "" : "products on vector units");
    if (bf16 || f16)
        snprintf(lacks, lacks_size, "%sfloat32 products and attention on vector units",
                 bf16 && f16 ? "" : (bf16 ? "float16, " : "bfloat16, "));
    else if (cl->device.is_cpu)
        snprintf(lacks, lacks_size, "a processor: the cpu backend is faster");
    else
        snprintf(lacks, lacks_size, "no matrix units: %s", matrix->lost);
}
