/* Turns a program into items with lifetimes, and measures the live bytes at each op.
 *
 * Ranges come from graph_ranges().  Inputs and outputs are clamped to the first and last op, which does not change
 * which lives overlap, since some op uses both.  Live bytes are footprints (alignment and guard included): the largest
 * sum over the ops is a lower bound for every placement.
 */
#include <assert.h>
#include <string.h>

#include "base/size.h"
#include "plan/plan_internal.h"

uint64_t plan_footprint(const struct plan_options *options, uint64_t bytes)
{
    assert(bytes < PLAN_BYTES_MAX);
    return size_round_up(bytes > 0 ? bytes : 1, options->alignment_bytes) + options->guard_bytes;
}

int32_t plan_items_collect(const struct plan *plan, int32_t program, const struct tensor_range *ranges,
                           struct plan_item *items)
{
    const struct graph *graph = plan->graph;
    int32_t ops = graph->programs[program].count, count = 0;
    for (int32_t t = 0; t < graph->tensor_count; t++) {
        const struct tensor *tensor = &graph->tensors[t];
        if (tensor->base != TENSOR_NONE || tensor->lifetime != LIFETIME_PROGRAM || ranges[t].last < 0)
            continue;
        items[count++] = (struct plan_item){
            .first = ranges[t].first < 0 ? 0 : ranges[t].first,
            .last = ranges[t].last >= ops ? ops - 1 : ranges[t].last,
            .bytes = plan_footprint(&plan->options, graph_tensor_bytes(graph, t)),
            .offset_bytes = PLAN_UNPLACED,
            .tensor = t,
        };
    }
    for (int32_t i = 0; i < ops; i++) {
        if (plan->workspace_bytes[program][i] == 0)
            continue;
        items[count++] = (struct plan_item){
            .first = i,
            .last = i,
            .bytes = plan_footprint(&plan->options, plan->workspace_bytes[program][i]),
            .offset_bytes = PLAN_UNPLACED,
            .tensor = TENSOR_NONE,
            .op = i,
        };
    }
    return count;
}

void plan_live_measure(const struct plan *plan, int32_t program, const struct plan_item *items, int32_t count,
                       uint64_t *live, struct plan_program *out)
{
    int32_t ops = plan->graph->programs[program].count;
    memset(live, 0, ((size_t)ops + 1) * sizeof live[0]);
    /* First the differences, then their running sum; a negative difference wraps, and the sum wraps back. */
    for (int32_t i = 0; i < count; i++) {
        live[items[i].first] += items[i].bytes;
        live[items[i].last + 1] -= items[i].bytes;
    }
    out->bytes_bound = ops > 0 ? live[0] : 0;
    out->peak_op = 0;
    for (int32_t i = 1; i < ops; i++) {
        live[i] += live[i - 1];
        if (live[i] > out->bytes_bound) {
            out->bytes_bound = live[i];
            out->peak_op = i;
        }
    }
    memset(out->live_bytes, 0, sizeof out->live_bytes);
    for (int32_t i = 0; i < count; i++) {
        if (items[i].first > out->peak_op || items[i].last < out->peak_op)
            continue;
        int32_t t = items[i].tensor;
        out->live_bytes[t == TENSOR_NONE ? CATEGORY_WORKSPACE : plan->graph->tensors[t].category] += items[i].bytes;
    }
}
