/* CLBlast for fp32 products, called in the way that needs the smallest temporary buffer.
 *
 * Row-major matrices are passed as column-major ones with the operands swapped: CLBlast then
 * transposes the small matrix instead of copying the result (at [65536, 50304] x 768 the temporary
 * is 339 MiB instead of 12.9 GiB).  Offsets are 0, because each operand is a sub-buffer, created
 * once per place.  The temporary is our workspace, of the size that CLBlast reports for its
 * parameters on this device.  16-bit storage never comes here: CLBlast has no bf16, and it sums
 * fp16 in fp16.
 *
 * CLBlast chooses kernels and their parameters by device name and size, and one release had
 * parameters that multiply wrongly (its issue 533: 1.6.2 on Arc A770), so known products prove it
 * first.
 *
 * On NVIDIA, CLBlast is used only if requested, because the driver crashes: 580.159.04 on an H100
 * ended each of 44 runs with SIGSEGV in clReleaseMemObject() of such a sub-buffer, after everything
 * was saved, and none of 8 runs without CLBlast.  On that card our own tiles reach 0.91 to 1.03 of
 * CLBlast's rate.
 */
#include "backends/opencl/opencl_clblast.h"

#include <dlfcn.h>

#include "backends/opencl/opencl_error.h"
#include "backends/opencl/opencl_known.h"
#include "base/module.h"
#include "base/platform.h"

#define PLACES_MAX 4096 /* a power of two */
/* CLBlast counts elements in 32 bits, rounded up to whole tiles. */
#define ELEMENTS_MAX ((int64_t)1 << 31)
#define TILE_MAX 256 /* the largest side of such a tile */

/* Values from clblast_c.h. */
enum { LAYOUT_COL_MAJOR = 102, TRANSPOSE_NO = 111, TRANSPOSE_YES = 112 };

typedef int sgemm_fn(int layout, int a_transpose, int b_transpose, size_t m, size_t n, size_t k,
                     float alpha, cl_mem a, size_t a_offset, size_t a_ld, cl_mem b, size_t b_offset,
                     size_t b_ld, float beta, cl_mem c, size_t c_offset, size_t c_ld,
                     cl_command_queue *queue, cl_event *event, cl_mem temporary);
typedef int sgemm_bytes_fn(int layout, int a_transpose, int b_transpose, size_t m, size_t n,
                           size_t k, size_t a_offset, size_t a_ld, size_t b_offset, size_t b_ld,
                           size_t c_offset, size_t c_ld, cl_command_queue *queue, size_t *out);
typedef int clear_fn(void);

/* A sub-buffer of the arena. */
struct place {
    cl_mem memory; /* NULL: free */
    uint8_t segment;
    uint64_t offset_bytes, bytes;
};

struct opencl_clblast {
    sgemm_fn *sgemm;
    sgemm_bytes_fn *sgemm_bytes;
    clear_fn *clear;
    int32_t places;
    struct place place[PLACES_MAX];
};

/* A product in CLBlast's terms. */
struct product {
    size_t m, n, k, first_ld, second_ld, out_ld;
    int first_transpose, second_transpose;
};

void opencl_clblast_open(struct opencl_backend *cl)
{
    const char *wanted = getenv("GPT_TRAIN_OPENCL_CLBLAST");
    const bool is_wanted = wanted != NULL && strcmp(wanted, "1") == 0;
    if ((wanted != NULL && strcmp(wanted, "0") == 0) ||
        (cl->device.nvidia_capability > 0 && !is_wanted))
        return;
    void *library = dlopen(PLATFORM_CLBLAST, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return;
    struct opencl_clblast *clblast = calloc(1, sizeof *clblast);
    if (clblast != NULL &&
        library_function(library, "CLBlastSgemmWithTempBuffer", &clblast->sgemm) &&
        library_function(library, "CLBlastSGemmTempBufferSize", &clblast->sgemm_bytes) &&
        library_function(library, "CLBlastClearCache", &clblast->clear)) {
        cl->clblast = clblast;
        return;
    }
    free(clblast); /* older than 1.5: it would hide its temporary buffer */
    dlclose(library);
}

void opencl_clblast_forget(struct opencl_backend *cl)
{
    struct opencl_clblast *clblast = cl->clblast;
    if (clblast == NULL)
        return;
    for (int32_t i = 0; i < PLACES_MAX; i++) {
        if (clblast->place[i].memory != NULL)
            (void)cl->api.clReleaseMemObject(clblast->place[i].memory);
        clblast->place[i].memory = NULL;
    }
    clblast->places = 0;
}

void opencl_clblast_close(struct opencl_backend *cl)
{
    struct opencl_clblast *clblast = cl->clblast;
    if (clblast == NULL)
        return;
    opencl_clblast_forget(cl);
    (void)clblast->clear(); /* its cache belongs to our context; the library stays loaded, as the
                               drivers do */
    free(clblast);
    cl->clblast = NULL;
}

static struct product product_of(const struct op_call *call)
{
    const struct operand *a = &call->operand[GEMM_A], *b = &call->operand[GEMM_B],
                         *d = &call->operand[GEMM_D];
    const size_t k = (size_t)(call->attrs.transpose_a ? a->dims[0] : a->dims[1]);
    return (struct product){
        .m = (size_t)d->dims[1],
        .n = (size_t)d->dims[0],
        .k = k,
        .first_ld = (size_t)b->dims[1],
        .second_ld = (size_t)a->dims[1],
        .out_ld = (size_t)d->dims[1],
        .first_transpose = call->attrs.transpose_b ? TRANSPOSE_YES : TRANSPOSE_NO,
        .second_transpose = call->attrs.transpose_a ? TRANSPOSE_YES : TRANSPOSE_NO,
    };
}

static bool is_countable(int64_t rows, int64_t columns)
{
    const int64_t most = ELEMENTS_MAX - TILE_MAX;
    return rows > 0 && columns > 0 && rows < most && columns < most &&
           rows + TILE_MAX - 1 < ELEMENTS_MAX / (columns + TILE_MAX - 1);
}

bool opencl_clblast_usable(const struct opencl_backend *cl, const struct op_call *call)
{
    static const int32_t slots[] = {GEMM_A, GEMM_B, GEMM_D};
    if (cl->clblast == NULL || !cl->tuning.gemm_clblast)
        return false;
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
        const struct operand *operand = &call->operand[slots[i]];
        /* In planning, addresses are 0.  A sub-buffer must begin at a multiple of the device's
         * alignment. */
        if (operand->dtype != DTYPE_F32 || operand->rank != 2 ||
            !is_countable(operand->dims[0], operand->dims[1]) ||
            operand->at.offset_bytes % cl->device.alignment_bytes != 0)
            return false;
    }
    return true;
}

size_t opencl_clblast_workspace_bytes(const struct opencl_backend *cl, const struct op_call *call)
{
    const struct product product = product_of(call);
    cl_command_queue queue = cl->queue;
    size_t bytes = 0;
    const int code = cl->clblast->sgemm_bytes(
        LAYOUT_COL_MAJOR, product.first_transpose, product.second_transpose, product.m, product.n,
        product.k, 0, product.first_ld, 0, product.second_ld, 0, product.out_ld, &queue, &bytes);
    return code == 0 ? bytes : 0;
}

/* Returns the sub-buffer of `bytes` bytes at an address; creates it on first use. */
static enum gt_status place_find(struct opencl_backend *cl, struct address at, uint64_t bytes,
                                 cl_mem *out)
{
    struct opencl_clblast *clblast = cl->clblast;
    uint64_t slot =
        (at.offset_bytes / OPENCL_ALIGNMENT_BYTES_MIN * 31 + bytes * 7 + at.segment) % PLACES_MAX;
    for (;; slot = (slot + 1) % PLACES_MAX) {
        const struct place *place = &clblast->place[slot];
        if (place->memory == NULL)
            break;
        if (place->segment == at.segment && place->offset_bytes == at.offset_bytes &&
            place->bytes == bytes) {
            *out = place->memory;
            return GT_OK;
        }
    }
    if (clblast->places == PLACES_MAX - 1)
        return FAIL(GT_UNSUPPORTED, "opencl: more than %d operands of products", PLACES_MAX - 1);
    const cl_buffer_region region = {.origin = (size_t)at.offset_bytes, .size = (size_t)bytes};
    cl_int code = CL_SUCCESS;
    cl_mem memory = cl->api.clCreateSubBuffer(cl->segment[at.segment].memory, CL_MEM_READ_WRITE,
                                              CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
    CL_TRY(cl, "clCreateSubBuffer of an operand", code);
    clblast->place[slot] = (struct place){memory, at.segment, at.offset_bytes, bytes};
    clblast->places++;
    *out = memory;
    return GT_OK;
}

static enum gt_status operand_find(struct opencl_backend *cl, const struct op_call *call,
                                   int32_t slot, cl_mem *out)
{
    return place_find(cl, call->operand[slot].at, operand_bytes(&call->operand[slot]), out);
}

enum gt_status opencl_clblast_run(struct opencl_backend *cl, const struct op_call *call,
                                  bool accumulate)
{
    const struct product product = product_of(call);
    const size_t need = opencl_clblast_workspace_bytes(cl, call);
    cl_mem a = NULL, b = NULL, d = NULL, temporary = NULL;
    assert(call->workspace_bytes >= need);
    TRY(operand_find(cl, call, GEMM_A, &a));
    TRY(operand_find(cl, call, GEMM_B, &b));
    TRY(operand_find(cl, call, GEMM_D, &d));
    if (need > 0)
        TRY(place_find(cl, call->workspace, need, &temporary));
    if (cl->is_dry)
        return GT_OK;
    const int code = cl->clblast->sgemm(
        LAYOUT_COL_MAJOR, product.first_transpose, product.second_transpose, product.m, product.n,
        product.k, 1.0f, b, 0, product.first_ld, a, 0, product.second_ld, accumulate ? 1.0f : 0.0f,
        d, 0, product.out_ld, &cl->queue, NULL, temporary);
    if (code == 0)
        return GT_OK;
    char what[OPENCL_NAME_MAX];
    snprintf(what, sizeof what, "CLBlast's SGEMM of %zu x %zu x %zu", product.n, product.m,
             product.k);
    return opencl_failure(cl, what, code);
}

/* No size is a multiple of a tile: one for CLBlast's kernel for small products, and larger ones for
 * that for large products, in the transpositions of training. */
static const struct opencl_product products_known[] = {
    {.m = 72, .n = 104, .k = 40, .transpose_b = true},
    {.m = 72, .n = 104, .k = 40, .transpose_a = true, .accumulate = true},
    {.m = 72, .n = 104, .k = 40},
    {.m = 776, .n = 1032, .k = 648, .transpose_b = true},
    {.m = 776, .n = 1032, .k = 648, .transpose_a = true, .accumulate = true},
    {.m = 776, .n = 1032, .k = 648},
    {.m = 1032, .n = 520, .k = 1000, .transpose_b = true, .accumulate = true},
};

static enum gt_status known_multiply(struct opencl_backend *cl, const struct op_call *call,
                                     const struct opencl_product *product, const void *context)
{
    (void)context;
    if (opencl_clblast_workspace_bytes(cl, call) <= call->workspace_bytes)
        return opencl_clblast_run(cl, call, product->accumulate);
    opencl_error(cl, "a product of %d x %d x %d needs %zu B of workspace", (int)product->m,
                 (int)product->n, (int)product->k, opencl_clblast_workspace_bytes(cl, call));
    return GT_UNSUPPORTED;
}

void opencl_clblast_prove(struct opencl_backend *cl)
{
    char lost[BACKEND_REASON_MAX] = "no memory to try it";
    if (cl->clblast == NULL || !cl->tuning.gemm_clblast || cl->is_clblast_proven)
        return;
    cl->is_clblast_proven = opencl_scratch_open(cl);
    for (size_t i = 0;
         i < sizeof products_known / sizeof products_known[0] && cl->is_clblast_proven; i++)
        cl->is_clblast_proven =
            opencl_known_prove(cl, &products_known[i], known_multiply, NULL, lost);
    opencl_clblast_forget(cl);
    opencl_scratch_close(cl);
    if (cl->is_clblast_proven)
        return;
    cl->tuning.gemm_clblast = false;
    log_note("opencl: CLBlast on %s is not used; our own kernels multiply float32: %s",
             cl->device.name, lost);
}
