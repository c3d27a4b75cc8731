/* Products with known results, which prove a kernel or a library, and the scratch memory for them.
 */
#ifndef GPT_TRAIN_OPENCL_OPENCL_KNOWN_H
#define GPT_TRAIN_OPENCL_OPENCL_KNOWN_H

#include "backends/opencl/opencl.h"

/* d[m, n] (+)= op(a) op(b) + bias, with a of `dtype`.  is_wide: all rows of a and b begin at
 * multiples of 16 bytes. */
struct opencl_product {
    enum dtype dtype;
    int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate, is_wide;
};

#define OPENCL_KNOWN_BYTES ((uint64_t)48 << 20) /* of scratch: operands, then workspace */
#define OPENCL_KNOWN_SIDE_MAX 1024

/* Computes d (+)= op(a) op(b), with d in fp32, by the kernel that is to be proved. */
typedef enum gt_status opencl_multiply_fn(struct opencl_backend *cl, const struct op_call *call,
                                          const struct opencl_product *product,
                                          const void *context);

/* Returns true when `multiply` computes a product of known matrices and writes nothing else; else
 * writes the reason to lost[BACKEND_REASON_MAX].  Needs the scratch memory. */
bool opencl_known_prove(struct opencl_backend *cl, const struct opencl_product *product,
                        opencl_multiply_fn *multiply, const void *context, char *lost);
/* Commits OPENCL_KNOWN_BYTES of scratch memory as segment 0, before there is an arena.  On an
 * error, logs it and returns false. */
bool opencl_scratch_open(struct opencl_backend *cl);
void opencl_scratch_close(struct opencl_backend *cl);

#endif
