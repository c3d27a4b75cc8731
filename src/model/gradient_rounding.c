/* Inserts the ops that round 16-bit gradients.
 *
 * It appends the ops to the differentiated program, then moves each one to just behind the last contribution.  Only the
 * finished program shows which op that is, because of recompute and loss chunks.
 */
#include "model/programs.h"

/* Returns what the micro-steps add to. */
static int32_t accumulator(const struct parameter *parameter)
{
    return parameter->part_gradient != TENSOR_NONE ? parameter->part_gradient : parameter->gradient;
}

static bool is_rounded(const struct model *model, int32_t parameter)
{
    const int32_t gradient = accumulator(&model->parameters.at[parameter]);
    return gradient != TENSOR_NONE && model->graph->tensors[gradient].dtype != DTYPE_F32;
}

enum gt_status gradient_rounding_targets(struct model *model, const char *program, struct autodiff_parameter *targets)
{
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const struct parameter *parameter = &model->parameters.at[i];
        targets[i] = (struct autodiff_parameter){parameter->tensor, accumulator(parameter), is_rounded(model, i)};
        if (!is_rounded(model, i))
            continue;
        struct tensor whole = model->graph->tensors[accumulator(parameter)];
        whole.dtype = DTYPE_F32;
        whole.category = CATEGORY_TEMPORARY;
        whole.lifetime = LIFETIME_PROGRAM;
        snprintf(whole.name, sizeof whole.name, "%.24s.%.60s.grad", program, parameter->name);
        TRY(graph_tensor_add(model->graph, &whole, &targets[i].gradient));
    }
    return GT_OK;
}

static enum gt_status rounding_add(struct model *model, int32_t program, bool first, int32_t parameter, int32_t from)
{
    const struct parameter *to = &model->parameters.at[parameter];
    struct graph_pen pen = {model->graph, program, PASS_BACKWARD, -1, 0, false};
    struct op_attrs attrs = {.accumulate = first ? 0 : 1u << GRADIENT_ROUND_Y, .index_base = to->index_base};
    int32_t operands[GRADIENT_ROUND_OPERANDS] = {
        [GRADIENT_ROUND_X] = from, [GRADIENT_ROUND_SCALARS] = model->scalars, [GRADIENT_ROUND_Y] = accumulator(to)};
    return graph_op_add(&pen, OP_GRADIENT_ROUND, &attrs, to->name, operands);
}

enum gt_status gradient_rounding_insert(struct model *model, int32_t program, bool first,
                                        const struct autodiff_parameter *targets)
{
    struct graph *graph = model->graph;
    const int32_t count = graph->programs[program].count;
    struct tensor_range *ranges;
    int32_t *after, added = 0;
    TRY(HOSTMEM_NEW(graph, (size_t)graph->tensor_count, "program ranges", &ranges));
    TRY(HOSTMEM_NEW(graph, (size_t)model->parameters.count, "places of roundings", &after));
    graph_ranges(graph, program, ranges);
    for (int32_t i = 0; i < model->parameters.count; i++) {
        if (!is_rounded(model, i))
            continue;
        TRY(rounding_add(model, program, first, i, targets[i].gradient));
        after[added++] = ranges[targets[i].gradient].last;
    }
    TRY(graph_ops_move(graph, program, count, after));
    hostmem_free(after);
    hostmem_free(ranges);
    return GT_OK;
}
