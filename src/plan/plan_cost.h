/* How long programs take on a device: each op the longer of its FLOPs and its bytes, at the device's rates for
 * that op.
 *
 * The FLOPs and bytes are those that the ops declare.  A product with few rows does not reach the rate of one with
 * many: its time is that of rows + ramp rows.  What comes out is a model, and is called so wherever it is printed.
 */
#ifndef GPT_TRAIN_PLAN_PLAN_COST_H
#define GPT_TRAIN_PLAN_PLAN_COST_H

#include <stdint.h>

#include "backend/backend.h"
#include "model/graph.h"
#include "plan/device_profile.h"

/* Dtypes that matrices are stored in: DTYPE_F32, DTYPE_BF16, DTYPE_F16. */
#define PLAN_MATRIX_DTYPES 3
/* Shape classes of products: which operands are transposed (activations, their gradients and those of weights differ so), and
 * below or from 2^34 FLOPs on. */
#define PLAN_GEMM_CLASSES 8

struct plan_rates {
    double flops_per_s[OP_KIND_COUNT][PLAN_MATRIX_DTYPES]; /* by the op's first float operand; 0: free */
    double bytes_per_s[OP_KIND_COUNT];
    double ramp_rows;     /* of products: rows that each costs in addition */
    double ramp_elements; /* and elements of its result */
    double gemm_flops_per_s[PLAN_GEMM_CLASSES]
                           [PLAN_MATRIX_DTYPES]; /* timed at a run's own shapes, ramp included; 0: not */
};

/* The rates of a cpu whose fp32 matrix rate was measured as `peak_flops`; 0 = unknown: products then cost their
 * bytes. */
struct plan_rates plan_rates_of_peak(double peak_flops);
/* The same where products of 16-bit numbers are faster than everything else is: attention and the other ops compute in fp32. */
struct plan_rates plan_rates_of_peaks(double product_flops, double other_flops);
/* The rates of a profile: its share of its peaks, or the stated assumption where none was published. */
struct plan_rates plan_rates_of_profile(const struct device_profile *profile);
/* How many shape classes of products, in any dtype, and how many other kinds of op have timings. */
struct plan_timed {
    int32_t gemm_classes, kinds;
};
/* Rates of what was timed at the shapes of real runs replace those of a model or of smaller shapes; each class and kind by
 * the sum of its work over the sum of its seconds. */
struct plan_timed plan_rates_time(struct plan_rates *rates, const struct backend_timing *timings, size_t count);
/* What the times of a profile rest on, as one line. */
char *plan_rates_basis(char text[static 512], const struct device_profile *profile);

/* The rows of the activation that a product works through. */
double plan_cost_gemm_rows(const struct op_call *call);
/* Seconds of one op. */
double plan_cost_op(const struct op_call *call, const struct plan_rates *rates);
/* Seconds of one run of a program; 0 for program -1. */
double plan_cost_seconds(const struct graph *graph, int32_t program, const struct plan_rates *rates);

#endif
