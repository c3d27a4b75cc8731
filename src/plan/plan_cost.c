/* The cost model.
 *
 * Its three assumptions stand here with where they come from, until they are calibrated by timing ops on the device: the
 * order of candidates needs little more than the FLOPs that recompute adds, but the forecast is only as good as they are.
 */
#include "plan/plan_cost.h"

/* Measured with --profile at 124M on two cores with AVX-512: products reach 0.72 of the timed peak at 256 rows and 0.9 at
 * 1,024; elementwise ops and AdamW move 10 to 50 GB/s. */
#define MATRIX_SHARE 0.9
#define BANDWIDTH 20e9
#define RAMP_ROWS 64.0

struct plan_rates plan_rates_of_peak(double peak_flops)
{
    return (struct plan_rates){
        .flops_per_s = MATRIX_SHARE * peak_flops, .bytes_per_s = BANDWIDTH, .ramp_rows = RAMP_ROWS};
}

/* The rows of the activation that a product works through: of d, or of a where d is a weight's gradient. */
static double gemm_rows(const struct op_call *call)
{
    return (double)call->operand[call->attrs.transpose_a ? GEMM_A : GEMM_D].dims[0];
}

static double op_seconds(const struct graph *graph, const struct op *op, const struct plan_rates *rates)
{
    struct op_call call;
    graph_call(graph, op, &call);
    double flops = op_flops(&call);
    if (op->kind == OP_GEMM)
        flops *= 1.0 + rates->ramp_rows / gemm_rows(&call);
    double compute = rates->flops_per_s > 0.0 ? flops / rates->flops_per_s : 0.0;
    double memory = op_bytes(&call) / rates->bytes_per_s;
    return compute > memory ? compute : memory;
}

double plan_cost_seconds(const struct graph *graph, int32_t program, const struct plan_rates *rates)
{
    double seconds = 0.0;
    if (program < 0)
        return 0.0;
    for (int32_t i = 0; i < graph->programs[program].count; i++)
        seconds += op_seconds(graph, &graph->programs[program].ops[i], rates);
    return seconds;
}
