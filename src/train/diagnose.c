/* Finds the first bad value of an update, and traces spikes.
 *
 * The micro-steps of the update run again op by op.  The first output with an infinity or a NaN ends the search.  An
 * input that is not finite can then only be a weight, because everything else was an output before.  If all outputs are
 * finite, the squares of the gradients are added up as the update does.  Values are read through the session's staging
 * buffer.
 */
#include "train/diagnose.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "train/stop.h"
#include "train/values.h"

#define DIAGNOSES_MAX 3

/* The result of scanning a tensor's values. */
struct scan {
    int32_t tensor;
    int64_t bad; /* the first element that is not finite, -1 = none */
    float value; /* its value */
    float largest;
    double squares;
};

struct search {
    struct replay replay;
    const struct op *op; /* the first op with an output that is not finite, or NULL */
    struct scan output;  /* of `op`; while there is none, the last output scanned */
    struct scan input;   /* an input of `op`: one that is not finite, else the largest */
};

static enum gt_status tensor_scan(struct session *session, int32_t tensor, struct scan *out)
{
    const struct graph *graph = session->model->graph;
    const enum dtype dtype = graph->tensors[tensor].dtype;
    const bool scalars = tensor == session->model->scalars; /* only one of its words is a float that ops add to */
    int64_t first = scalars ? SCALAR_LOSS_SUM : 0;
    const int64_t end = scalars ? first + 1 : graph_tensor_elements(graph, tensor);
    *out = (struct scan){.tensor = tensor, .bad = -1};
    while (first < end && (dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16)) {
        const int64_t count = end - first < SESSION_STAGING_FLOATS ? end - first : SESSION_STAGING_FLOATS;
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

/* Returns true when the op has left the operand unchanged: no operand that it writes shares the storage. */
static bool is_kept(const struct graph *graph, const struct op *op, int32_t slot)
{
    bool kept = op->operand[slot] != TENSOR_NONE;
    for (int32_t s = 0; s < op_declaration(op->kind)->operands && kept; s++)
        kept = op->operand[s] == TENSOR_NONE || op_direction(op->kind, &op->attrs, s) == OPERAND_IN ||
               graph_storage(graph, op->operand[s]) != graph_storage(graph, op->operand[slot]);
    return kept;
}

static enum gt_status inputs_scan(struct search *search)
{
    const struct model *model = search->replay.session->model;
    const struct op *op = search->op;
    for (int32_t s = 0; s < op_declaration(op->kind)->operands; s++) {
        struct scan scan;
        if (!is_kept(model->graph, op, s) || op->operand[s] == model->scalars)
            continue;
        TRY(tensor_scan(search->replay.session, op->operand[s], &scan));
        if (search->input.bad < 0 && (scan.bad >= 0 || scan.largest > search->input.largest))
            search->input = scan;
    }
    return GT_OK;
}

/* Called after each op: finds the first output that is not finite, and scans the inputs of its op. */
static enum gt_status look(void *context, int32_t program, int32_t index)
{
    struct search *search = context;
    const struct op *op = &search->replay.session->model->graph->programs[program].ops[index];
    for (int32_t s = 0; s < op_declaration(op->kind)->operands && search->op == NULL; s++) {
        if (op->operand[s] == TENSOR_NONE || op_direction(op->kind, &op->attrs, s) == OPERAND_IN)
            continue;
        TRY(tensor_scan(search->replay.session, op->operand[s], &search->output));
        if (search->output.bad < 0)
            continue;
        search->op = op;
        search->replay.enough = true;
        TRY(inputs_scan(search));
    }
    return GT_OK;
}

/* Writes "h.3.attn.y[12, 17] = inf". */
static const char *value_text(const struct session *session, const struct scan *scan, char text[static 192])
{
    const struct tensor *tensor = &session->model->graph->tensors[scan->tensor];
    int used = snprintf(text, 192, "%s", tensor->name);
    int64_t stride = graph_tensor_elements(session->model->graph, scan->tensor), rest = scan->bad;
    for (int32_t d = 0; d < tensor->rank; d++) {
        stride /= tensor->dims[d];
        used += snprintf(text + used, (size_t)(192 - used), "%s%" PRId64, d == 0 ? "[" : ", ", rest / stride);
        rest %= stride;
    }
    snprintf(text + used, (size_t)(192 - used), "] = %g", (double)scan->value);
    return text;
}

/* Scans the gradients after the last micro-step: adds up their squares, as the update does in fp32, and finds the
 * largest. */
static enum gt_status norm_log(struct session *session, int64_t iter, int32_t moved)
{
    const struct parameter_list *parameters = &session->model->parameters;
    struct scan scan, largest = {.largest = -1.0f};
    double squares = 0.0;
    for (int32_t i = 0; i < parameters->count; i++) {
        TRY(tensor_scan(session, parameters->at[i].gradient, &scan));
        squares += scan.squares;
        if (scan.largest > largest.largest)
            largest = scan;
    }
    if (squares > (double)FLT_MAX)
        log_warning("iter %" PRId64 ": every value is finite, but the gradient is too large for its norm: %g in %s",
                    iter, (double)largest.largest, session->model->graph->tensors[largest.tensor].name);
    else if (moved > 0)
        log_warning("iter %" PRId64 ": computed again with the weights of %" PRId32 " update%s later, every value is "
                    "finite; log_interval=1 would look before they change",
                    iter, moved, moved == 1 ? "" : "s");
    else
        log_warning("iter %" PRId64 ": computed again from the same weights and samples, every value is finite: the "
                    "memory or the processor of %s makes mistakes",
                    iter, session->device.info.device);
    return GT_OK;
}

static void found_log(const struct search *search, int32_t moved)
{
    const int64_t iter = search->replay.result->iter;
    const struct session *session = search->replay.session;
    const struct op *op = search->op;
    char text[192], place[96] = "";
    if (op->layer >= 0)
        snprintf(place, sizeof place, " of layer %" PRId32, op->layer);
    if (session->model->options.micro_steps > 1)
        snprintf(place + strlen(place), sizeof place - strlen(place), ", micro-step %" PRId32 " of %" PRId32,
                 search->replay.micro_step + 1, session->model->options.micro_steps);
    if (moved > 0)
        snprintf(place + strlen(place), sizeof place - strlen(place), ", with weights of %" PRId32 " update%s later",
                 moved, moved == 1 ? "" : "s");
    if (search->input.bad >= 0)
        log_warning("iter %" PRId64 ": a weight is not finite: %s, read by %s%s; an earlier update made it so", iter,
                    value_text(session, &search->input, text), op_declaration(op->kind)->name, place);
    else
        log_warning("iter %" PRId64 ": the first value that is not finite: %s, made by %s%s, from inputs up to %.3g",
                    iter, value_text(session, &search->output, text), op_declaration(op->kind)->name, place,
                    (double)search->input.largest);
}

/* `moved`: number of updates that have changed the weights since. */
static enum gt_status bad_log(struct diagnosis *diagnosis, const struct step_result *result, int32_t moved)
{
    struct search search = {
        .replay = {diagnosis->session, diagnosis->feed, result, look, &search, 0, false},
        .output = {.bad = -1},
        .input = {.bad = -1},
    };
    TRY(replay_run(&search.replay));
    if (search.op)
        found_log(&search, moved);
    else if (!stop_requested())
        TRY(norm_log(diagnosis->session, result->iter, moved));
    return GT_OK;
}

static enum gt_status spike_look(struct diagnosis *diagnosis, const struct step_result *result, double loss)
{
    struct spike spike;
    struct replay replay = {.session = diagnosis->session, .feed = diagnosis->feed, .result = result};
    if (!spikes_add(&diagnosis->spikes, result->iter, loss, (double)result->scalars[SCALAR_GRAD_NORM].f, &spike))
        return GT_OK;
    progress_clear(diagnosis->progress);
    return spike_log(&spike, &replay, diagnosis->tokenizer);
}

enum gt_status diagnose_step(struct diagnosis *diagnosis, int32_t index, int32_t count, double loss)
{
    const struct step_result *result = &diagnosis->ahead->step[index];
    const bool skipped = result->scalars[SCALAR_FOUND_INF].i != 0;
    const bool bad = (skipped && result->loss_scale <= 1.0) || !isfinite(loss);
    const bool due = bad && !diagnosis->was_bad && diagnosis->done < DIAGNOSES_MAX;
    int32_t moved = 0;
    diagnosis->was_bad = bad;
    if (!bad && !skipped)
        return spike_look(diagnosis, result, loss);
    if (!due)
        return GT_OK;
    diagnosis->done++;
    for (int32_t i = index; i < count; i++)
        moved += diagnosis->ahead->step[i].scalars[SCALAR_FOUND_INF].i == 0;
    progress_clear(diagnosis->progress);
    return bad_log(diagnosis, result, moved);
}
