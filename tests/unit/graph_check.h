/* The invariants of a graph: every operand of an op is a valid tensor; views lie inside their base;
 * a program-lifetime tensor is used by one program only and is written before it is read, unless it
 * is an input.
 *
 * The builder keeps them by construction, and plan_verify() replays every plan at run time.
 */
#ifndef GPT_TRAIN_UNIT_GRAPH_CHECK_H
#define GPT_TRAIN_UNIT_GRAPH_CHECK_H

#include "base/status.h"
#include "model/graph.h"

static bool check_views(const struct graph *graph)
{
    for (int32_t t = TENSOR_FIRST; t < graph->tensor_count; t++) {
        const struct tensor *view = &graph->tensors[t];
        if (view->base == TENSOR_NONE)
            continue;
        const struct tensor *base = &graph->tensors[view->base];
        if (base->base != TENSOR_NONE || base->dtype != view->dtype ||
            view->view_offset + graph_tensor_elements(graph, t) >
                graph_tensor_elements(graph, view->base)) {
            log_error("tensor %s is not inside its base %s", view->name, base->name);
            return false;
        }
    }
    return true;
}

/* Checks the tensors that `op` reads and marks those that it writes.  user[] is the program of each
 * storage. */
static bool check_op(const struct graph *graph, int32_t program, const struct op *op, bool *written,
                     int32_t *user)
{
    for (int32_t s = 0; s < op_declaration(op->kind)->operands; s++) {
        if (op->operand[s] == TENSOR_NONE)
            continue;
        int32_t storage = graph_storage(graph, op->operand[s]);
        const struct tensor *t = &graph->tensors[storage];
        if (t->lifetime != LIFETIME_PROGRAM)
            continue;
        if (user[storage] != -1 && user[storage] != program) {
            log_error("tensor %s is used by two programs", t->name);
            return false;
        }
        user[storage] = program;
        if (op_direction(op->kind, &op->attrs, s) != OPERAND_OUT && !t->input &&
            !written[storage]) {
            log_error("%s reads tensor %s before anything wrote it", op_declaration(op->kind)->name,
                      t->name);
            return false;
        }
    }
    for (int32_t s = 0; s < op_declaration(op->kind)->operands; s++) {
        if (op->operand[s] != TENSOR_NONE && op_direction(op->kind, &op->attrs, s) != OPERAND_IN)
            written[graph_storage(graph, op->operand[s])] = true;
    }
    return true;
}

/* Checks the invariants above.  Logs the first violation and returns false. */
static bool graph_check(const struct graph *graph)
{
    if (!check_views(graph))
        return false;
    size_t count = (size_t)graph->tensor_count + 1;
    bool *written = NULL;
    int32_t *user = NULL;
    bool good = HOSTMEM_NEW(graph, count, "graph check", &written) == GT_OK &&
                HOSTMEM_NEW(graph, count, "graph check", &user) == GT_OK;
    for (size_t i = 0; i < count && good; i++)
        user[i] = -1;
    for (int32_t p = 0; p < graph->program_count && good; p++) {
        for (int32_t i = 0; i < graph->programs[p].count && good; i++)
            good = check_op(graph, p, &graph->programs[p].ops[i], written, user);
    }
    hostmem_free(user);
    hostmem_free(written);
    return good;
}

#endif
