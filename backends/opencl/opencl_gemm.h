/* Products: the tile shapes from which --tune chooses, matrix units, tuning, and products that prove a kernel. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_GEMM_H
#define GPT_TRAIN_OPENCL_OPENCL_GEMM_H

#include "backends/opencl/opencl_launch.h"

/* d[m, n] (+)= op(a) op(b) + bias, with a of `dtype`.  is_wide: all rows of a and b begin at multiples of 16 bytes. */
struct opencl_product {
    enum dtype dtype;
    int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate, is_wide;
};

/* A square tile of d, which a group computes.  On vector units a group has side x side work-items; each computes each x
 * each elements, `inner` steps of K at a time.  A group of one work-item is for CPUs (kernels/gemm_single.cl).  On
 * matrix units, for which `side` is 0, the tile is divided among warps of 32 work-items: down x across. */
struct opencl_shape {
    const char *name;
    int32_t tile, side, each, inner, down, across;
};

/* Of the first, the first that fits a device is its default.  Of the second, the largest come first. */
extern const struct opencl_shape opencl_gemm_shapes[], opencl_matrix_shapes[];
extern const int32_t opencl_gemm_shape_count, opencl_matrix_shape_count;

/* Returns false when the device allows too few work-items or too little local memory for the shape, or is not of the
 * shape's kind (CPU or not). */
bool opencl_shape_fits(const struct opencl_backend *cl, const struct opencl_shape *shape);
/* Multiplies on matrix units, in tiles of `shape`. */
enum gt_status opencl_matrix_run(struct opencl_backend *cl, const struct op_call *call,
                                 const struct opencl_shape *shape, const struct opencl_product *product);

/* ---- opencl_matrix.c: selects the kind of matrix units that a device should have, and proves their products ---- */

#define OPENCL_MATRIX_ALL UINT32_MAX /* all dtypes that the unit supports */

/* Returns the units that the device should have by its vendor and generation.  Tries nothing. */
struct opencl_matrix opencl_matrix_candidate(const struct opencl_device *device);
/* Takes the candidate, limited to `dtypes`, compiles its kernels and multiplies known matrices.  A dtype that fails is
 * dropped, and the log gives the reason.  `lost` is the reason why `dtypes` lacks some dtypes, "" if it lacks none. */
void opencl_matrix_open(struct opencl_backend *cl, uint32_t dtypes, const char *lost);

/* ---- opencl_clblast.c: CLBlast, if installed, for fp32 products; its temporary buffer is part of the plan ---- */

/* Opens the library into cl->clblast.  It stays NULL when CLBlast is not installed, is switched off
 * (GPT_TRAIN_OPENCL_CLBLAST=0), would hide a temporary buffer from the plan, or, on NVIDIA, is not switched on (=1). */
void opencl_clblast_open(struct opencl_backend *cl);
void opencl_clblast_close(struct opencl_backend *cl);
/* If CLBlast is chosen, multiplies matrices with known products, in its own scratch memory, before there is an arena.
 * If a product is wrong or fails, logs a note and disables CLBlast. */
void opencl_clblast_prove(struct opencl_backend *cl);
/* Releases the sub-buffers of the arena; called before the arena is released. */
void opencl_clblast_forget(struct opencl_backend *cl);
/* Returns true when CLBlast computes this gemm: all operands are fp32, and it supports their sizes. */
bool opencl_clblast_usable(const struct opencl_backend *cl, const struct op_call *call);
/* Returns the bytes of temporary buffer that CLBlast needs for this shape on this device. */
size_t opencl_clblast_workspace_bytes(const struct opencl_backend *cl, const struct op_call *call);
/* d = op(a) op(b), or d += if `accumulate`.  The caller adds the bias.  Errors: GT_DEVICE, GT_NO_MEMORY. */
enum gt_status opencl_clblast_run(struct opencl_backend *cl, const struct op_call *call, bool accumulate);

/* ---- opencl_tune.c: measures which kernels compute products fastest, and keeps the result in the user's cache ---- */

/* Loads the result of an earlier measurement on this device with this version, else the defaults. */
void opencl_tuning_load(struct opencl_backend *cl);
/* For each dtype, times every shape of opencl_matrix_shapes if matrix units compute it, else of opencl_gemm_shapes;
 * then times CLBlast.  Uses its own scratch memory, before there is an arena.  Stores and applies the best.  Errors:
 * GT_DEVICE, GT_NO_MEMORY. */
enum gt_status opencl_tuning_measure(struct opencl_backend *cl);

/* backend_ops.choose and choices.  One choice affects bits: whether CLBlast computes those fp32 products that it
 * can. */
enum gt_status opencl_tuning_choose(struct backend *backend, const struct backend_choice *choices, size_t count);
const struct backend_choice *opencl_tuning_choices(struct backend *backend, size_t *count);

/* ---- opencl_known.c: products with known results ---- */

#define OPENCL_KNOWN_BYTES ((uint64_t)48 << 20) /* of scratch: operands, then workspace */
#define OPENCL_KNOWN_SIDE_MAX 1024

/* Computes d (+)= op(a) op(b), with d in fp32, by the kernel that is to be proved. */
typedef enum gt_status opencl_multiply_fn(struct opencl_backend *cl, const struct op_call *call,
                                          const struct opencl_product *product, const void *context);

/* Returns true when `multiply` computes a product of known matrices and writes nothing else; else writes the reason to
 * lost[BACKEND_REASON_MAX].  Needs the scratch memory. */
bool opencl_known_prove(struct opencl_backend *cl, const struct opencl_product *product, opencl_multiply_fn *multiply,
                        const void *context, char *lost);
/* Commits OPENCL_KNOWN_BYTES of scratch memory as segment 0, before there is an arena.  On an error, logs it and
 * returns false. */
bool opencl_scratch_open(struct opencl_backend *cl);
void opencl_scratch_close(struct opencl_backend *cl);

#endif
