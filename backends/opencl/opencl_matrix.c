/* Matrix units: selected by vendor and generation, then proven by compiling and by products with known results.
 *
 * NVIDIA's compiler accepts inline PTX, whose mma supports bf16 and fp16 from capability 8.0 and fp16 from 7.5.  AMD's
 * has Clang's builtins for the WMMA of gfx11.  The kernels assume that a group's work-items are the lanes of warps, in
 * order; no standard guarantees that.  Therefore every tile shape first multiplies known matrices (opencl_known.c).  A
 * compiler may also kill its process at unknown code, so the caller tries a new device in a child process first
 * (opencl_child.h).  The cache keeps what was proven there.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "backends/opencl/opencl_gemm.h"

#include "base/file.h"

#define KNOWN "proven"

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

static enum gt_status shape_multiply(struct opencl_backend *cl, const struct op_call *call,
                                     const struct opencl_product *product, const void *shape)
{
    return opencl_matrix_run(cl, call, shape, product);
}

/* Returns true when the products of all shapes are correct; else writes the reason to lost[BACKEND_REASON_MAX].  The
 * size is not a multiple of a tile or of a unit. */
static bool shapes_prove(struct opencl_backend *cl, enum dtype dtype, char *lost)
{
    const struct opencl_product product = {
        .dtype = dtype, .m = 40, .n = 72, .k = 56, .transpose_b = true, .is_wide = true};
    int32_t proven = 0;
    bool right = true;
    snprintf(lost, BACKEND_REASON_MAX, "no tile fits %s", cl->device.name);
    for (int32_t i = 0; i < opencl_matrix_shape_count && right; i++) {
        const struct opencl_shape *shape = &opencl_matrix_shapes[i];
        if (!opencl_shape_fits(cl, shape))
            continue;
        right = opencl_known_prove(cl, &product, shape_multiply, shape, lost);
        proven++;
    }
    return right && proven > 0;
}

static void dtypes_prove(struct opencl_backend *cl, struct opencl_matrix *matrix)
{
    const bool has_scratch = opencl_scratch_open(cl);
    for (size_t i = 0; i < sizeof dtypes_tried / sizeof dtypes_tried[0]; i++) {
        const enum dtype dtype = dtypes_tried[i];
        char lost[BACKEND_REASON_MAX] = "no memory to try them";
        if ((matrix->dtypes >> dtype & 1u) == 0 || (has_scratch && shapes_prove(cl, dtype, lost)))
            continue;
        matrix->dtypes &= ~(1u << dtype);
        snprintf(matrix->lost, sizeof matrix->lost, "%s", lost);
    }
    opencl_scratch_close(cl);
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
