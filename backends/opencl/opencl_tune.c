/* The rate of products, and the choice between kernels for them by it.
 *
 * Shapes of tiles change the speed and not the bits of own kernels, so that a choice may differ from one machine to the
 * next; CLBlast's sums have another order, and whether it is used belongs to the choice.  What was found is kept under the
 * device, its driver and our version, checked like a binary, and bounded by the tables that it points into.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "backends/opencl/opencl_tune.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/opencl/opencl_cache.h"
#include "backends/opencl/opencl_clblast.h"
#include "backends/opencl/opencl_gemm.h"
#include "backends/opencl/opencl_memory.h"
#include "backends/opencl/opencl_table.h"
#include "base/clock.h"
#include "base/log.h"

#define PEAK_SIDE_MAX 1024
#define PEAK_SIDE_MAX_CPU 256 /* of a processor, for which larger ones take a second */
#define PEAK_SIDE_MIN 64
#define PEAK_RUNS_MAX 64
#define TUNE_SECONDS 0.2
#define TUNE_SCRATCH_BYTES ((uint64_t)48 << 20)
#define TUNE_TEXT_MAX 128

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
#define DTYPES (sizeof dtypes / sizeof dtypes[0])

/* A square product of `side`, its three matrices and the workspace one after the other from `scratch`; the bytes that it
 * needs go to *out_bytes. */
static struct op_call peak_call(const struct backend *backend, enum dtype dtype, struct address scratch, int64_t side,
                                size_t *out_bytes)
{
    static const int32_t slots[3] = {GEMM_A, GEMM_B, GEMM_D};
    struct op_call call = {.kind = OP_GEMM, .workspace = scratch};
    const uint64_t align = opencl_from(backend)->device.alignment_bytes;
    const uint64_t bytes = ((uint64_t)(side * side) * dtype_size_bytes(dtype) + align - 1) / align * align;
    for (int32_t i = 0; i < 3; i++) {
        call.operand[slots[i]] = (struct operand){.present = true, .dtype = dtype, .rank = 2, .dims = {side, side}};
        call.operand[slots[i]].at = scratch;
        call.operand[slots[i]].at.offset_bytes += (uint64_t)i * bytes;
    }
    call.workspace.offset_bytes += 3 * bytes;
    call.workspace_bytes = opencl_table[OP_GEMM].workspace_bytes(backend, &call);
    *out_bytes = (size_t)(3 * bytes) + call.workspace_bytes;
    return call;
}

/* The largest product that fits; false when the smallest does not. */
static bool peak_call_fit(const struct backend *backend, enum dtype dtype, struct address scratch, size_t scratch_bytes,
                          struct op_call *out)
{
    size_t bytes;
    const bool is_cpu = opencl_from(backend)->device.is_cpu;
    for (int64_t side = is_cpu ? PEAK_SIDE_MAX_CPU : PEAK_SIDE_MAX; side >= PEAK_SIDE_MIN; side /= 2) {
        *out = peak_call(backend, dtype, scratch, side, &bytes);
        if (bytes <= scratch_bytes)
            return true;
    }
    return false;
}

/* 0.5 in all elements of the three matrices, in any dtype. */
static enum gt_status peak_fill(struct opencl_backend *cl, const struct op_call *call)
{
    const struct operand *a = &call->operand[GEMM_A], *d = &call->operand[GEMM_D];
    const enum dtype dtype = a->dtype;
    const uint16_t half = dtype == DTYPE_BF16 ? bf16_from_f32(0.5f) : f16_from_f32(0.5f);
    const float whole = 0.5f;
    const void *pattern = dtype == DTYPE_F32 ? (const void *)&whole : (const void *)&half;
    const size_t bytes = (size_t)(d->at.offset_bytes - a->at.offset_bytes) + operand_bytes(d);
    CL_TRY(cl, "filling matrices",
           cl->api.clEnqueueFillBuffer(cl->queue, cl->segment[a->at.segment].memory, pattern, dtype_size_bytes(dtype),
                                       (size_t)a->at.offset_bytes, bytes, 0, NULL, NULL));
    return GT_OK;
}

static enum gt_status product_run(struct opencl_backend *cl, const struct op_call *call)
{
    TRY(opencl_table[OP_GEMM].run(&cl->base, 0, call));
    CL_TRY(cl, "waiting for a product", cl->api.clFinish(cl->queue));
    return GT_OK;
}

enum gt_status opencl_peak_measure(struct opencl_backend *cl, enum dtype dtype, struct address scratch,
                                   size_t scratch_bytes, double seconds, double *out)
{
    struct op_call call;
    if (!peak_call_fit(&cl->base, dtype, scratch, scratch_bytes, &call) &&
        !peak_call_fit(&cl->base, DTYPE_F32, scratch, scratch_bytes, &call)) {
        log_error("opencl: peak_flops needs %zu B of scratch, have %zu B",
                  (size_t)(3 * PEAK_SIDE_MIN * PEAK_SIDE_MIN) * sizeof(float), scratch_bytes);
        return GT_NO_MEMORY;
    }
    TRY(peak_fill(cl, &call));
    TRY(product_run(cl, &call)); /* builds the kernels */
    const double side = (double)call.operand[GEMM_A].dims[0], flops = 2.0 * side * side * side;
    const int64_t begin = clock_monotonic_ns(), limit = (int64_t)(seconds * 1e9 * 0.8);
    double best = 0.0;
    for (int run = 0; run < PEAK_RUNS_MAX; run++) {
        const int64_t start = clock_monotonic_ns();
        TRY(product_run(cl, &call));
        const int64_t end = clock_monotonic_ns();
        const double rate = flops / ((double)(end - start + 1) * 1e-9);
        best = rate > best ? rate : best;
        if (end - begin > limit)
            break;
    }
    *out = best;
    return GT_OK;
}

static void tuning_key(const struct opencl_backend *cl, char key[static OPENCL_KEY_MAX])
{
    snprintf(key, OPENCL_KEY_MAX, "tuning 1; %s; %s; %s; %s; units %u; CLBlast %d; " PACKAGE_VERSION,
             cl->device.platform_name, cl->device.name, cl->device.driver, cl->device.version, cl->device.compute_units,
             cl->clblast != NULL);
}

/* Zero-terminated text as tuning_store() writes it, checked against the tables. */
static bool tuning_parse(const char *text, struct opencl_tuning *out)
{
    struct opencl_tuning tuning = {.gemm_clblast = false};
    int shapes[DTYPES] = {0, 0, 0}, clblast = 0;
    if (sscanf(text, "gemm %d %d %d clblast %d", &shapes[0], &shapes[1], &shapes[2], &clblast) != 4)
        return false;
    for (size_t i = 0; i < DTYPES; i++) {
        if (shapes[i] < 0 || shapes[i] >= opencl_gemm_shape_count)
            return false;
        tuning.gemm_shape[dtypes[i]] = shapes[i];
    }
    tuning.gemm_clblast = clblast != 0;
    *out = tuning;
    return true;
}

void opencl_tuning_load(struct opencl_backend *cl)
{
    char key[OPENCL_KEY_MAX], text[TUNE_TEXT_MAX] = "";
    void *bytes = NULL;
    size_t size = 0;
    /* A processor compiles CLBlast's kernels for longer than a test takes, and gains nothing by them. */
    cl->tuning = (struct opencl_tuning){.gemm_clblast = cl->clblast != NULL && !cl->device.is_cpu};
    tuning_key(cl, key);
    if (opencl_cache_load(key, &bytes, &size) && size < sizeof text) {
        memcpy(text, bytes, size);
        (void)tuning_parse(text, &cl->tuning);
    }
    free(bytes);
    const char *wanted = getenv("GPT_TRAIN_OPENCL_CLBLAST");
    if (wanted != NULL && strcmp(wanted, "1") == 0)
        cl->tuning.gemm_clblast = cl->clblast != NULL;
}

/* The fastest own shape of one dtype into cl->tuning, and its rate. */
static enum gt_status shapes_measure(struct opencl_backend *cl, enum dtype dtype, size_t scratch_bytes,
                                     double *out_rate)
{
    const struct address scratch = {.space = SPACE_DEVICE};
    int32_t best = 0;
    double best_rate = 0.0;
    for (int32_t i = 0; i < opencl_gemm_shape_count; i++) {
        double rate = 0.0;
        if (!opencl_gemm_shape_fits(cl, &opencl_gemm_shapes[i]))
            continue;
        cl->tuning.gemm_shape[dtype] = i;
        TRY(opencl_peak_measure(cl, dtype, scratch, scratch_bytes, TUNE_SECONDS, &rate));
        log_note("opencl: products in %s, tiles of %s: %.1f GFLOP/s", dtype_name(dtype), opencl_gemm_shapes[i].name,
                 rate * 1e-9);
        best = rate > best_rate ? i : best;
        best_rate = rate > best_rate ? rate : best_rate;
    }
    cl->tuning.gemm_shape[dtype] = best;
    *out_rate = best_rate;
    return GT_OK;
}

static enum gt_status all_measure(struct opencl_backend *cl, size_t scratch_bytes)
{
    const struct address scratch = {.space = SPACE_DEVICE};
    double own_rate = 0.0, rate = 0.0;
    cl->tuning.gemm_clblast = false;
    for (size_t i = DTYPES; i > 0; i--) /* fp32 last: its rate is compared with CLBlast's */
        TRY(shapes_measure(cl, dtypes[i - 1], scratch_bytes, &own_rate));
    if (cl->clblast == NULL)
        return GT_OK;
    cl->tuning.gemm_clblast = true;
    TRY(opencl_peak_measure(cl, DTYPE_F32, scratch, scratch_bytes, TUNE_SECONDS, &rate));
    log_note("opencl: products in float32 by CLBlast: %.1f GFLOP/s", rate * 1e-9);
    cl->tuning.gemm_clblast = rate > own_rate;
    return GT_OK;
}

static void tuning_store(const struct opencl_backend *cl)
{
    char key[OPENCL_KEY_MAX], text[TUNE_TEXT_MAX];
    const struct opencl_tuning *tuning = &cl->tuning;
    tuning_key(cl, key);
    const int length = snprintf(text, sizeof text, "gemm %" PRId32 " %" PRId32 " %" PRId32 " clblast %d",
                                tuning->gemm_shape[DTYPE_F32], tuning->gemm_shape[DTYPE_BF16],
                                tuning->gemm_shape[DTYPE_F16], tuning->gemm_clblast);
    opencl_cache_store(key, text, (size_t)length);
}

enum gt_status opencl_tuning_measure(struct opencl_backend *cl)
{
    const struct backend_segment segment = {.space = SPACE_DEVICE, .size_bytes = TUNE_SCRATCH_BYTES};
    assert(!cl->has_arena && cl->segments == 0);
    TRY(opencl_memory_commit(cl, &segment, 1));
    const enum gt_status status = all_measure(cl, (size_t)segment.size_bytes);
    opencl_clblast_forget(cl);
    opencl_memory_release(cl);
    if (status != GT_OK)
        return status;
    tuning_store(cl);
    log_note("opencl: products on %s: tiles of %s in float32, %s in bfloat16, %s in float16%s", cl->device.name,
             opencl_gemm_shapes[cl->tuning.gemm_shape[DTYPE_F32]].name,
             opencl_gemm_shapes[cl->tuning.gemm_shape[DTYPE_BF16]].name,
             opencl_gemm_shapes[cl->tuning.gemm_shape[DTYPE_F16]].name,
             cl->tuning.gemm_clblast ? "; CLBlast takes float32" : "");
    return GT_OK;
}
