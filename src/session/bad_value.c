/* Finds the first value that is not finite, by running programs op by op.
 *
 * The first output with an infinity or a NaN ends the search.  An input that is not finite can then
 * only be a weight, because everything else was an output before.  Values are read through the
 * session's staging buffer.
 */
#include "session/bad_value.h"

#include <math.h>

#include "base/size.h"
#include "session/values.h"

enum gt_status value_scan(struct session *session, int32_t tensor, struct value_scan *out)
{
    const struct graph *graph = session->model->graph;
    const enum dtype dtype = graph->tensors[tensor].dtype;
    const bool scalars =
        tensor == session->model->scalars; /* only one of its words is a float that ops add to */
    const bool cache =
        graph->tensors[tensor].category == CATEGORY_CACHE; /* most of it has not been written */
    int64_t first = scalars ? SCALAR_LOSS_SUM : 0;
    const int64_t end = scalars ? first + 1 : cache ? 0 : graph_tensor_elements(graph, tensor);
    *out = (struct value_scan){.tensor = tensor, .bad = -1};
    while (first < end && (dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16)) {
        const int64_t count = min_i64(end - first, SESSION_STAGING_FLOATS);
        TRY(values_download(session->exec, graph, tensor, first, session->staging, count));
        for (int64_t i = 0; i < count; i++) {
            const float value = session->staging[i];
            if (!isfinite(value)) {
                out->bad = first + i;
                out->value = value;
                return GT_OK;
            }
            out->largest = fmaxf(out->largest, fabsf(value));
            out->squares += (double)value * (double)value;
        }
        first += count;
    }
    return GT_OK;
}

/* Returns true when the op has left the operand unchanged: no operand that it writes shares the
 * storage. */
static bool is_kept(const struct graph *graph, const struct op *op, int32_t slot)
{
    bool kept = op->operand[slot] != TENSOR_NONE;
    for (int32_t s = 0; s < op_declaration(op->kind)->operands && kept; s++)
        kept = op->operand[s] == TENSOR_NONE ||
               op_direction(op->kind, &op->attrs, s) == OPERAND_IN ||
               graph_storage(graph, op->operand[s]) != graph_storage(graph, op->operand[slot]);
    return kept;
}

static enum gt_status inputs_scan(struct bad_value *found)
{
    const struct model *model = found->session->model;
    const struct op *op = found->op;
    for (int32_t s = 0; s < op_declaration(op->kind)->operands; s++) {
        struct value_scan scan;
        if (!is_kept(model->graph, op, s) || op->operand[s] == model->scalars)
            continue;
        TRY(value_scan(found->session, op->operand[s], &scan));
        if (found->input.bad < 0 && (scan.bad >= 0 || scan.largest > found->input.largest))
            found->input = scan;
    }
    return GT_OK;
}

enum gt_status bad_value_probe(void *context, int32_t program, int32_t index)
{
    struct bad_value *found = context;
    const struct op *op = &found->session->model->graph->programs[program].ops[index];
    for (int32_t s = 0; s < op_declaration(op->kind)->operands && found->op == NULL; s++) {
        if (op->operand[s] == TENSOR_NONE || op_direction(op->kind, &op->attrs, s) == OPERAND_IN)
            continue;
        TRY(value_scan(found->session, op->operand[s], &found->output));
        if (found->output.bad < 0)
            continue;
        found->op = op;
        if (found->enough != NULL)
            *found->enough = true;
        TRY(inputs_scan(found));
    }
    return GT_OK;
}

/* Writes "h.3.attn.y[12, 17] = inf". */
static const char *value_text(const struct session *session, const struct value_scan *scan,
                              char text[static 192])
{
    const struct tensor *tensor = &session->model->graph->tensors[scan->tensor];
    int used = snprintf(text, 192, "%s", tensor->name);
    int64_t stride = graph_tensor_elements(session->model->graph, scan->tensor), rest = scan->bad;
    for (int32_t d = 0; d < tensor->rank; d++) {
        stride /= tensor->dims[d];
        used += snprintf(text + used, (size_t)(192 - used), "%s%" PRId64, d == 0 ? "[" : ", ",
                         rest / stride);
        rest %= stride;
    }
    snprintf(text + used, (size_t)(192 - used), "] = %g", log_number((double)scan->value));
    return text;
}

struct bad_value bad_value_none(struct session *session)
{
    return (struct bad_value){.session = session, .output = {.bad = -1}, .input = {.bad = -1}};
}

char *bad_value_text(char out[static BAD_VALUE_TEXT_MAX], const struct bad_value *found,
                     const char *place, const char *since)
{
    const char *op = op_declaration(found->op->kind)->name;
    const char *layer =
        found->op->layer >= 0 ? TEXT(32, " of layer %" PRId32, found->op->layer) : "";
    char text[192];
    if (found->input.bad >= 0)
        snprintf(out, BAD_VALUE_TEXT_MAX, "a weight is not finite: %s, read by %s%s%s; %s",
                 value_text(found->session, &found->input, text), op, layer, place, since);
    else
        snprintf(out, BAD_VALUE_TEXT_MAX,
                 "the first value that is not finite: %s, made by %s%s%s, from inputs up to %.3g",
                 value_text(found->session, &found->output, text), op, layer, place,
                 (double)found->input.largest);
    return out;
}

enum gt_status bad_value_explain(struct session *session, const char *what,
                                 bad_value_again_fn *again, void *context)
{
    struct bad_value found = bad_value_none(session);
    const bool half = session->device.dtype == DTYPE_F16;
    char text[BAD_VALUE_TEXT_MAX];
    exec_callback_set(session->exec, bad_value_probe, &found);
    const enum gt_status status = again(context);
    exec_callback_set(session->exec, NULL, NULL);
    TRY(status);
    if (found.op == NULL)
        return FAIL(
            GT_DIVERGED,
            ERROR_DIVERGED
            "%s is not finite, but when computed again, every value is: the memory or the processor "
            "of %s is faulty",
            what, session->device.info.device);
    return FAIL(
        GT_DIVERGED, ERROR_DIVERGED "%s is not finite; %s%s", what,
        bad_value_text(text, &found, "", "the model was loaded with it"),
        half ? "; float16 ends at 65504: --dtype=float32, or bfloat16 where the device has it"
             : "");
}
