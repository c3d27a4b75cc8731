/* Measures the rate of products, and chooses kernels by it.
 *
 * Tile shapes affect the speed but not the bits of our own kernels, so machines may choose
 * differently.  CLBlast sums in another order; whether it is used is a choice that checkpoints
 * record.  Results are stored under the device, its driver and our version, and checked like a
 * binary.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "backends/opencl/opencl_tune.h"

#include "backend/backend_peak.h"
#include "backends/opencl/opencl_clblast.h"
#include "backends/opencl/opencl_gemm.h"
#include "backends/opencl/opencl_known.h"
#include "backends/opencl/opencl_program.h"

#define TUNE_SECONDS 0.2

/* In checkpoints, all fp32 products count as one call, and its algorithm says who computes them. */
#define CALL_PRODUCTS 1
#define PRODUCTS_OWN 1
#define PRODUCTS_CLBLAST 2

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
#define DTYPES (sizeof dtypes / sizeof dtypes[0])

static void tuning_key(const struct opencl_backend *cl, char key[static OPENCL_KEY_MAX])
{
    snprintf(key, OPENCL_KEY_MAX,
             "tuning 4; %s; %s; %s; %s; units %u; CLBlast %d; " PACKAGE_VERSION,
             cl->device.platform_name, cl->device.name, cl->device.driver, cl->device.version,
             cl->device.compute_units, cl->clblast != NULL);
}

void opencl_tuning_load(struct opencl_backend *cl)
{
    char key[OPENCL_KEY_MAX];
    void *stored = NULL;
    size_t size = 0;
    /* On a CPU, compiling CLBlast's kernels takes longer than a test, and gains nothing. */
    cl->tuning = (struct opencl_tuning){.gemm_clblast = cl->clblast != NULL && !cl->device.is_cpu};
    tuning_key(cl, key);
    if (opencl_cache_load(key, &stored, &size) && size == sizeof cl->tuning)
        memcpy(&cl->tuning, stored, sizeof cl->tuning);
    free(stored);
    const char *clblast = getenv("GPT_TRAIN_OPENCL_CLBLAST"); /* for tests: "1" */
    if (clblast != NULL && strcmp(clblast, "1") == 0)
        cl->tuning.gemm_clblast = cl->clblast != NULL;
}

static bool on_matrix_units(const struct opencl_backend *cl, enum dtype dtype)
{
    return (cl->matrix.dtypes >> dtype & 1u) != 0;
}

/* Stores the fastest shape of our own kernels for one dtype in cl->tuning, and returns its rate.
 * Products of other sizes than the measured one use the chosen shape of matrix units or a smaller
 * one. */
static enum gt_status dtype_measure(struct opencl_backend *cl, enum dtype dtype,
                                    size_t scratch_bytes, double *out_rate)
{
    const struct address scratch = {.space = SPACE_DEVICE};
    const bool units = on_matrix_units(cl, dtype);
    const struct opencl_shape *shapes = units ? opencl_matrix_shapes : opencl_gemm_shapes;
    const int32_t count = units ? opencl_matrix_shape_count : opencl_gemm_shape_count,
                  tile = cl->matrix.tile;
    int32_t *chosen = units ? &cl->tuning.matrix_shape[dtype] : &cl->tuning.gemm_shape[dtype],
            best = 0;
    enum gt_status status = GT_OK;
    *out_rate = 0.0;
    for (int32_t i = 0; i < count && status == GT_OK; i++) {
        double rate = 0.0;
        if (!opencl_shape_fits(cl, &shapes[i]))
            continue;
        *chosen = i;
        if (units) /* for all products, also those that do not occupy the device with it */
            cl->matrix.tile = shapes[i].tile;
        status = backend_peak_flops(&cl->base, dtype, scratch, scratch_bytes, TUNE_SECONDS, &rate);
        cl->matrix.tile = tile;
        if (status == GT_OK)
            log_note("opencl: products in %s%s, tiles of %s: %.1f GFLOP/s", dtype_name(dtype),
                     units ? " on matrix units" : "", shapes[i].name, rate * 1e-9);
        best = rate > *out_rate ? i : best;
        *out_rate = rate > *out_rate ? rate : *out_rate;
    }
    *chosen = best;
    return status;
}

static enum gt_status all_measure(struct opencl_backend *cl, size_t scratch_bytes)
{
    const struct address scratch = {.space = SPACE_DEVICE};
    double own_rate = 0.0, rate = 0.0;
    cl->tuning.gemm_clblast = false;
    for (size_t i = DTYPES; i > 0; i--) /* fp32 last: its rate is compared with CLBlast's */
        TRY(dtype_measure(cl, dtypes[i - 1], scratch_bytes, &own_rate));
    if (cl->clblast == NULL)
        return GT_OK;
    cl->tuning.gemm_clblast = true;
    TRY(backend_peak_flops(&cl->base, DTYPE_F32, scratch, scratch_bytes, TUNE_SECONDS, &rate));
    log_note("opencl: products in float32 by CLBlast: %.1f GFLOP/s", rate * 1e-9);
    cl->tuning.gemm_clblast = rate > own_rate;
    return GT_OK;
}

static const char *shape_name(const struct opencl_backend *cl, enum dtype dtype)
{
    return on_matrix_units(cl, dtype) ? opencl_matrix_shapes[cl->tuning.matrix_shape[dtype]].name
                                      : opencl_gemm_shapes[cl->tuning.gemm_shape[dtype]].name;
}

enum gt_status opencl_tuning_measure(struct opencl_backend *cl)
{
    char key[OPENCL_KEY_MAX];
    if (!opencl_scratch_open(cl))
        return GT_NO_MEMORY;
    const enum gt_status status = all_measure(cl, (size_t)OPENCL_KNOWN_BYTES);
    opencl_clblast_forget(cl);
    opencl_scratch_close(cl);
    if (status != GT_OK)
        return status;
    tuning_key(cl, key);
    opencl_cache_store(key, &cl->tuning, sizeof cl->tuning);
    log_note("opencl: products on %s: tiles of %s in float32, %s in bfloat16, %s in float16%s",
             cl->device.name, shape_name(cl, DTYPE_F32), shape_name(cl, DTYPE_BF16),
             shape_name(cl, DTYPE_F16), cl->tuning.gemm_clblast ? "; CLBlast takes float32" : "");
    return GT_OK;
}

enum gt_status opencl_tuning_choose(struct backend *backend,
                                    const struct backend_algorithm *algorithms, size_t count)
{
    struct opencl_backend *cl = opencl_backend_of(backend);
    for (size_t i = 0; i < count; i++) {
        if (algorithms[i].call == CALL_PRODUCTS)
            cl->tuning.gemm_clblast =
                algorithms[i].algorithm == PRODUCTS_CLBLAST && cl->clblast != NULL;
        for (size_t d = 0; algorithms[i].call == 0 && d < DTYPES;
             d++) /* for tests: a shape of tiles */
            cl->tuning.gemm_shape[dtypes[d]] = (int32_t)(algorithms[i].algorithm & INT32_MAX);
    }
    return GT_OK;
}

const struct backend_algorithm *opencl_tuning_algorithms(struct backend *backend, size_t *count)
{
    struct opencl_backend *cl = opencl_backend_of(backend);
    cl->choice = (struct backend_algorithm){
        CALL_PRODUCTS, cl->tuning.gemm_clblast ? PRODUCTS_CLBLAST : PRODUCTS_OWN};
    *count = 1;
    return &cl->choice;
}
