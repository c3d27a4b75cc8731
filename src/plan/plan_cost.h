/* The cost model: predicts the time of programs on a device.  Each op takes the longer of the times
 * for its FLOPs and its bytes, at the device's rates for that op.
 *
 * The ops declare their FLOPs and bytes.  A product with few rows does not reach the rate of one
 * with many: its time is that of rows + ramp rows.  The result is an estimate, and is called so
 * wherever it is printed.
 */
#ifndef GPT_TRAIN_PLAN_PLAN_COST_H
#define GPT_TRAIN_PLAN_PLAN_COST_H

#include "backend/backend.h"
#include "model/graph.h"
#include "plan/device_profile.h"

/* Dtypes that matrices are stored in: DTYPE_F32, DTYPE_BF16, DTYPE_F16. */
#define PLAN_MATRIX_DTYPES 3
/* Shape classes of products: which operands are transposed (this distinguishes activations, their
 * gradients and those of weights), and whether a product has at least 2^34 FLOPs. */
#define PLAN_GEMM_CLASSES 8
/* Attention's kernels on cards have registers, and before sm_80 shared memory, for heads of at most
 * this many columns. */
#define PLAN_HEAD_COLUMNS 128

struct plan_rates {
    double flops_per_s[OP_KIND_COUNT][PLAN_MATRIX_DTYPES]; /* by the dtype of the op's first float
                                                              operand; 0: FLOPs cost nothing */
    double bytes_per_s[OP_KIND_COUNT];
    double op_seconds; /* what an op takes besides its FLOPs or bytes */
    double
        wide_heads[2]; /* the rates of attention and its backward with heads above
                          PLAN_HEAD_COLUMNS, as shares of those with narrower heads; 0: the same */
    double half_sums; /* fp16: the share of attention's time that fp16 sums save; 0: none, or it was
                         timed */
    double
        units; /* of a card, which groups of gated_delta share; 0: not modelled, or it was timed */
    double ramp_rows;     /* what starting a product costs: extra rows */
    double ramp_elements; /* extra elements of its result */
    double ramp_depth;    /* extra terms of each element's sum */
    double gemm_flops_per_s[PLAN_GEMM_CLASSES]
                           [PLAN_MATRIX_DTYPES]; /* timed at a run's own shapes, ramp included; 0:
                                                    not timed */
    int32_t copy_engines;                        /* as in struct backend_info */
    bool link_timed;    /* the rates of fetch and store were measured on this machine */
    double uncertainty; /* relative error to expect of a step's time; 1 and more: a factor */
    bool disturbed; /* because other programs used the device, or its processors, while it was timed
                     */
};

#define PLAN_UNCERTAINTY_MAX 80
/* Writes "+-20 %", "within a factor of 4", or "within a factor of 12, as other programs use this
 * machine". */
char *plan_uncertainty_text(char text[static PLAN_UNCERTAINTY_MAX], double uncertainty,
                            bool disturbed);
/* Returns the uncertainty of a time that may be too small or too large by `factor`: of two
 * disagreeing figures, their ratio. */
double plan_uncertainty_of(double factor);

/* Returns the rates of a cpu.  Its products reach `product_flops`; attention and other ops, which
 * compute in fp32, reach `other_flops`.  0 = unknown: they then cost their bytes. */
struct plan_rates plan_rates_of_peaks(double product_flops, double other_flops);
/* Sets the rates of fetch and store to those of a link between device and host, each way. */
void plan_rates_link_set(struct plan_rates *rates, double bytes_per_s, int32_t copy_engines);
/* The link of most cards, per direction with both busy: 16 lanes of PCIe 3.0, or 8 of 4.0
 * (nvbandwidth's README and users' logs). */
#define PLAN_LINK_BYTES_PER_S 11.2e9
/* Returns the rates of a profile: its peaks, times the shares that training reaches.  With
 * half_sums they are those of a run with fp16 sums. */
struct plan_rates plan_rates_of_profile(const struct device_profile *profile, bool half_sums);
/* The number of shape classes of products, in any dtype, and of other kinds of op that have
 * timings. */
struct plan_timed {
    int32_t gemm_classes, kinds;
};
/* Replaces rates of a model or of smaller shapes by rates timed at the shapes of real runs.  The
 * rate of a class or kind is the sum of its work divided by the sum of its seconds. */
struct plan_timed plan_rates_time(struct plan_rates *rates, const struct backend_timing *timings,
                                  size_t count);
/* Describes the basis of a profile's times in one line. */
char *plan_rates_basis(char text[static 512], const struct device_profile *profile);

/* Returns the rows of the activation that a product processes. */
double plan_cost_gemm_rows(const struct op_call *call);
/* Returns the dtype of the op's first float operand, by which its rate is chosen. */
int plan_cost_dtype(const struct op_call *call);
/* Returns the seconds of one op. */
double plan_cost_op(const struct op_call *call, const struct plan_rates *rates);
/* How many seconds one run of a program takes, and for how many of them each queue is busy. */
struct plan_queues {
    double makespan, busy[QUEUE_COUNT];
};
typedef double plan_seconds_fn(const struct graph *graph, int32_t program,
                               const struct plan_rates *rates);
/* Returns the makespan. */
plan_seconds_fn plan_cost_seconds;
/* Returns the sum, over the passes through a model's blocks, of the time of the queue that is busy
 * longest.  Unlike the makespan, it does not depend on what surrounds a block; the makespan is
 * longer where a copy waits for its turn. */
plan_seconds_fn plan_cost_blocks;

#endif
