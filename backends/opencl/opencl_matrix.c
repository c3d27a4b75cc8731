/* Matrix units: selected by vendor and generation, then proven by compiling and by products with
 * known results.
 *
 * NVIDIA's compiler accepts inline PTX, whose mma supports bf16 and fp16 from capability 8.0 and
 * fp16 from 7.5.  AMD's has Clang's builtins for the WMMA of gfx11.  The kernels assume that a
 * group's work-items are the lanes of warps, in order; no standard guarantees that.  Therefore
 * every tile shape first multiplies known matrices (opencl_known.c).  A compiler may also kill its
 * process at unknown code, so the caller tries a new device in a child process first
 * (opencl_child.c).
 */
#include "backends/opencl/opencl_matrix.h"

#include "backends/opencl/opencl_gemm.h"
#include "backends/opencl/opencl_known.h"

static const enum dtype dtypes_tried[] = {DTYPE_BF16, DTYPE_F16};

/* Parses GPT_TRAIN_OPENCL_MATRIX: "0" for no units; for tests "emulated-mma", "emulated-mma8" or
 * "emulated-wmma", with a suffix such as "/64" for tiles of that size only. */
static bool candidate_wanted(const char *wanted, struct opencl_matrix *out)
{
    static const char *const emulated[] = {[OPENCL_UNIT_MMA_16] = "emulated-mma",
                                           [OPENCL_UNIT_MMA_8] = "emulated-mma8",
                                           [OPENCL_UNIT_WMMA] = "emulated-wmma"};
    if (strcmp(wanted, "0") == 0) {
        snprintf(out->lost, sizeof out->lost, "GPT_TRAIN_OPENCL_MATRIX is 0");
        return true;
    }
    const size_t length = strcspn(wanted, "/");
    for (enum opencl_unit unit = OPENCL_UNIT_MMA_16; unit <= OPENCL_UNIT_WMMA; unit++) {
        if (strlen(emulated[unit]) != length || strncmp(wanted, emulated[unit], length) != 0)
            continue;
        out->unit = unit;
        out->is_emulated = true;
        out->tile = wanted[length] == '/' ? (int32_t)strtol(wanted + length + 1, NULL, 10) : 0;
        out->dtypes = 1u << DTYPE_BF16 | 1u << DTYPE_F16;
        return true;
    }
    return false;
}

/* Returns the units that the device should have by its vendor and generation.  Tries nothing. */
static struct opencl_matrix opencl_matrix_candidate(const struct opencl_device *device)
{
    const char *wanted = getenv("GPT_TRAIN_OPENCL_MATRIX");
    struct opencl_matrix matrix = {.unit = OPENCL_UNIT_NONE};
    if (wanted != NULL && candidate_wanted(wanted, &matrix))
        return matrix;
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
    return matrix;
}

static enum gt_status shape_multiply(struct opencl_backend *cl, const struct op_call *call,
                                     const struct opencl_product *product, const void *shape)
{
    return opencl_matrix_run(cl, call, shape, product);
}

/* Returns true when the products of all shapes are correct; else writes the reason to
 * lost[BACKEND_REASON_MAX].  The size is not a multiple of a tile or of a unit. */
static bool shapes_prove(struct opencl_backend *cl, enum dtype dtype, char *lost)
{
    const struct opencl_product product = {
        .dtype = dtype, .m = 40, .n = 72, .k = 56, .transpose_b = true, .is_wide = true};
    bool right = false;
    snprintf(lost, BACKEND_REASON_MAX, "no tile fits %s", cl->device.name);
    for (int32_t i = 0; i < opencl_matrix_shape_count; i++) {
        const struct opencl_shape *shape = &opencl_matrix_shapes[i];
        if (!opencl_shape_fits(cl, shape))
            continue;
        right = opencl_known_prove(cl, &product, shape_multiply, shape, lost);
        if (!right)
            break;
    }
    return right;
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
    struct opencl_matrix *matrix = &cl->matrix;
    *matrix = opencl_matrix_candidate(&cl->device);
    if (matrix->unit == OPENCL_UNIT_NONE)
        return;
    if ((matrix->dtypes & ~dtypes) != 0)
        snprintf(matrix->lost, sizeof matrix->lost, "%s", lost);
    matrix->dtypes &= dtypes;
    dtypes_prove(cl, matrix);
    if (matrix->lost[0] != '\0')
        log_note(
            "opencl: %s products on %s are left to vector units, which are slower than its matrix units: %s",
            matrix->dtypes == 0 ? "16-bit" : "some 16-bit", cl->device.name, matrix->lost);
}
