/* The cost model.
 *
 * Rates come from three places: the constants here, for a cpu that was timed by one product only; a device profile;
 * or calibrate.c, which times every kind of op.  The order of candidates needs little more than the FLOPs that
 * recompute adds; a profile's share of its peaks scales all its times alike and so changes no choice.  Not modelled:
 * caches, overlap, what the host does between ops.
 */
#include "plan/plan_cost.h"

#include <stdio.h>

/* Measured with --profile at 124M on two cores with AVX-512: products reach 0.72 of the timed peak at 256 rows and
 * 0.9 at 1,024; elementwise ops and AdamW move 10 to 50 GB/s. */
#define CPU_MATRIX_SHARE 0.9
#define CPU_BANDWIDTH 20e9
#define CPU_RAMP_ROWS 64.0
/* Where no training speed of a card was published: the middle of those of other cards, 0.51 to 0.93. */
#define ASSUMED_SHARE 0.7
/* A product on a card is cut into tiles that its units share; on average half a round of them is lost at the end. */
#define TILE_ELEMENTS (128.0 * 128.0)
#define ROUND_LOST 0.5

struct plan_rates plan_rates_of_peak(double peak_flops)
{
    return plan_rates_of_peaks(peak_flops, peak_flops);
}

struct plan_rates plan_rates_of_peaks(double product_flops, double other_flops)
{
    struct plan_rates rates = {.ramp_rows = CPU_RAMP_ROWS};
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        rates.bytes_per_s[kind] = CPU_BANDWIDTH;
        for (int dtype = 0; dtype < PLAN_MATRIX_DTYPES; dtype++)
            rates.flops_per_s[kind][dtype] = CPU_MATRIX_SHARE * (kind == OP_GEMM ? product_flops : other_flops);
    }
    return rates;
}

static bool is_matrix_op(enum op_kind kind)
{
    return kind == OP_GEMM || kind == OP_ATTENTION_FORWARD || kind == OP_ATTENTION_BACKWARD ||
           kind == OP_ATTENTION_CACHED;
}

static double share_of(const struct device_profile *profile)
{
    return profile->share > 0.0 ? profile->share : ASSUMED_SHARE;
}

struct plan_rates plan_rates_of_profile(const struct device_profile *profile)
{
    double share = share_of(profile);
    struct plan_rates rates = {.ramp_elements = ROUND_LOST * TILE_ELEMENTS * (double)profile->units};
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        rates.bytes_per_s[kind] = share * profile->bytes_per_s;
        for (int dtype = 0; dtype < PLAN_MATRIX_DTYPES; dtype++) {
            double matrix = is_matrix_op((enum op_kind)kind) ? profile->matrix_flops_per_s[dtype] : 0.0;
            rates.flops_per_s[kind][dtype] = share * (matrix > 0.0 ? matrix : profile->vector_flops_per_s);
        }
    }
    return rates;
}

char *plan_rates_basis(char text[static 512], const struct device_profile *profile)
{
    if (profile->share > 0.0)
        snprintf(text, 512, "times of %s are modelled: %.2f of its peaks, as %s", profile->name, profile->share,
                 profile->share_source);
    else
        snprintf(
            text, 512,
            "times of %s are modelled: %.2f of its peaks is assumed, as no published training speed of it is known",
            profile->name, ASSUMED_SHARE);
    return text;
}

/* Of d, or of a where d is a weight's gradient. */
double plan_cost_gemm_rows(const struct op_call *call)
{
    return (double)call->operand[call->attrs.transpose_a ? GEMM_A : GEMM_D].dims[0];
}

static double gemm_ramp(const struct op_call *call, const struct plan_rates *rates)
{
    double rows = rates->ramp_rows + rates->ramp_elements / (double)call->operand[GEMM_D].dims[1];
    return 1.0 + rows / plan_cost_gemm_rows(call);
}

/* Of the op's first operand that is a float. */
static int matrix_dtype(const struct op_call *call)
{
    for (int slot = 0; slot < OP_OPERANDS_MAX; slot++) {
        if (call->operand[slot].present && call->operand[slot].dtype < PLAN_MATRIX_DTYPES)
            return (int)call->operand[slot].dtype;
    }
    return DTYPE_F32;
}

double plan_cost_op(const struct op_call *call, const struct plan_rates *rates)
{
    double rate = rates->flops_per_s[call->kind][matrix_dtype(call)];
    double flops = op_flops(call) * (call->kind == OP_GEMM ? gemm_ramp(call, rates) : 1.0);
    double compute = rate > 0.0 ? flops / rate : 0.0;
    double memory = op_bytes(call) / rates->bytes_per_s[call->kind];
    return compute > memory ? compute : memory;
}

double plan_cost_seconds(const struct graph *graph, int32_t program, const struct plan_rates *rates)
{
    double seconds = 0.0;
    if (program < 0)
        return 0.0;
    for (int32_t i = 0; i < graph->programs[program].count; i++) {
        struct op_call call;
        graph_call(graph, &graph->programs[program].ops[i], &call);
        seconds += plan_cost_op(&call, rates);
    }
    return seconds;
}

_Static_assert(DTYPE_F32 < PLAN_MATRIX_DTYPES && DTYPE_BF16 < PLAN_MATRIX_DTYPES && DTYPE_F16 < PLAN_MATRIX_DTYPES,
               "the matrix dtypes come first");
