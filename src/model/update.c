/* The update program.
 *
 * The optimizer and the state format determine the ops that update a parameter.  If Muon was chosen, its ops update the
 * matrices of blocks.  Otherwise adamw updates a parameter that is fp32 or has a master, and adamw_lean a bf16
 * parameter without a master.
 */
#include "model/update.h"

#include "model/muon.h"

static enum gt_status adamw_add(const struct graph_pen *pen, const struct model *model,
                                const struct parameter *parameter, const struct op_attrs *attrs)
{
    int32_t operands[ADAMW_OPERANDS] = {
        [ADAMW_GRAD] = parameter->gradient,
        [ADAMW_SCALARS] = model->scalars,
        [ADAMW_CORRECTIONS] = model->corrections,
        [ADAMW_PARAM] = parameter->tensor,
        [ADAMW_MASTER] = parameter->master,
        [ADAMW_M] = parameter->m,
        [ADAMW_V] = parameter->v,
    };
    return graph_op_add(pen, OP_ADAMW, attrs, parameter->name, operands);
}

static enum gt_status adamw_lean_add(const struct graph_pen *pen, const struct model *model,
                                     const struct parameter *parameter, const struct op_attrs *attrs)
{
    struct op_attrs lean = *attrs;
    int32_t operands[ADAMW_LEAN_OPERANDS] = {
        [ADAMW_LEAN_GRAD] = parameter->gradient,
        [ADAMW_LEAN_SCALARS] = model->scalars,
        [ADAMW_LEAN_CORRECTIONS] = model->corrections,
        [ADAMW_LEAN_PARAM] = parameter->tensor,
        [ADAMW_LEAN_M] = parameter->m,
        [ADAMW_LEAN_V] = parameter->v,
        [ADAMW_LEAN_SCALES] = parameter->scales,
    };
    lean.index_base = parameter->index_base;
    return graph_op_add(pen, OP_ADAMW_LEAN, &lean, parameter->name, operands);
}

static enum gt_status optimizer_add(const struct graph_pen *pen, const struct model *model,
                                    const struct parameter *parameter)
{
    const struct model_options *options = &model->options;
    struct op_attrs attrs = {
        .beta1 = options->beta1,
        .beta2 = options->beta2,
        .epsilon = options->adam_epsilon,
        .weight_decay = parameter->decay ? options->weight_decay : 0.0f,
    };
    if (parameter->muon)
        return muon_add(pen, model, parameter);
    bool fp32 = model->graph->tensors[model_parameter_home(parameter)].dtype == DTYPE_F32;
    return fp32 ? adamw_add(pen, model, parameter, &attrs) : adamw_lean_add(pen, model, parameter, &attrs);
}

/* Sums the squares of each gradient into partials[parameters], then computes norm and clip factor from them. */
static enum gt_status norm_add(const struct graph_pen *pen, const struct model *model)
{
    struct graph *graph = model->graph;
    int32_t count = model->parameters.count, partials;
    struct tensor tensor = {.name = "update.partials",
                            .dtype = DTYPE_F32,
                            .rank = 1,
                            .dims = {count},
                            .phase = PHASE_TRAIN,
                            .category = CATEGORY_TEMPORARY,
                            .lifetime = LIFETIME_PROGRAM,
                            .base = TENSOR_NONE};
    TRY(graph_tensor_add(graph, &tensor, &partials));
    for (int32_t i = 0; i < count; i++) {
        struct op_attrs attrs = {0};
        int32_t operands[SUM_OF_SQUARES_OPERANDS] = {[SUM_OF_SQUARES_X] = model->parameters.at[i].gradient};
        TRY(graph_view_add(graph, partials, i, 1, &operands[SUM_OF_SQUARES_PARTIAL]));
        TRY(graph_op_add(pen, OP_SUM_OF_SQUARES, &attrs, model->parameters.at[i].name, operands));
    }
    struct op_attrs clip = {.clip_max = model->options.grad_clip};
    int32_t operands[CLIP_FACTOR_OPERANDS] = {
        [CLIP_FACTOR_PARTIALS] = partials, [CLIP_FACTOR_SCALARS] = model->scalars};
    return graph_op_add(pen, OP_CLIP_FACTOR, &clip, "clip", operands);
}

enum gt_status update_build(struct model *model)
{
    TRY(graph_program_add(model->graph, "update", PHASE_TRAIN, &model->update.program));
    struct graph_pen pen = {model->graph, model->update.program, PASS_UPDATE, -1, 0, false};
    TRY(norm_add(&pen, model));
    for (int32_t i = 0; i < model->parameters.count; i++)
        TRY(optimizer_add(&pen, model, &model->parameters.at[i]));
    return GT_OK;
}
