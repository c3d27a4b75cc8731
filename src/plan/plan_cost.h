/* How long programs take on a device: each op the longer of its FLOPs and its bytes, at the device's rates.
 *
 * The FLOPs and bytes are those that the ops declare.  A product with few rows does not reach the rate of one with many:
 * its time is that of rows + ramp_rows rows.  What comes out is a model, and is called so wherever it is printed.
 */
#ifndef GPT_TRAIN_PLAN_PLAN_COST_H
#define GPT_TRAIN_PLAN_PLAN_COST_H

#include <stdint.h>

#include "model/graph.h"

struct plan_rates {
    double flops_per_s; /* of matrix products, as a step's products reach it; 0 = unknown, they then cost nothing */
    double bytes_per_s; /* of everything else */
    double ramp_rows;
};

/* The rates of a device whose fp32 matrix rate was measured as `peak_flops`. */
struct plan_rates plan_rates_of_peak(double peak_flops);
/* Seconds of one run of a program; 0 for program -1. */
double plan_cost_seconds(const struct graph *graph, int32_t program, const struct plan_rates *rates);

#endif
