/* Graphs of programs: stream capture, and the table of captured programs.
 *
 * The copies of offload fork from the stream of ops and join it again, so that one graph holds all three branches.
 *
 * A program is identified by the address and the number of its calls; its first and its last call are compared as
 * well.  Nothing runs during a capture.  Errors are kept and not logged, because the calls can be launched without a
 * graph; only a lost card is an error.  A graph is uploaded to the device when it is recorded, so that the first replay
 * allocates nothing there.
 */
#include "backends/cuda/cuda.h"

#define CALLS_MIN 4 /* of a graph: fewer are launched as fast one by one */

static bool is_same(const struct cuda_graph *graph, const struct op_call *calls, size_t count)
{
    return graph->calls == calls && graph->count == count && memcmp(&graph->first, &calls[0], sizeof calls[0]) == 0 &&
           memcmp(&graph->last, &calls[count - 1], sizeof calls[0]) == 0;
}

cudaGraphExec_t cuda_graph_find(const struct cuda_backend *cuda, const struct op_call *calls, size_t count)
{
    for (int32_t i = 0; i < cuda->graphs && count > 0; i++)
        if (is_same(&cuda->graph[i], calls, count))
            return cuda->graph[i].exec;
    return NULL;
}

void cuda_graphs_destroy(struct cuda_backend *cuda)
{
    for (int32_t i = 0; i < cuda->graphs; i++)
        (void)cudaGraphExecDestroy(cuda->graph[i].exec);
}

/* Returns true when there is no error.  Only the first error of a capture is kept: the others follow from it. */
static bool is_good(struct cuda_backend *cuda, cudaError_t error, const char *what)
{
    return cuda_check(&cuda->base, error, what) == GT_OK;
}

/* The capture has to be ended in any case, to release the stream. */
static bool calls_capture(struct cuda_backend *cuda, const struct op_call *calls, size_t count, cudaGraph_t *out)
{
    cudaGraph_t graph = NULL;
    if (!is_good(cuda, cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal), "beginning a capture"))
        return false;
    const enum gt_status status = cuda_calls_launch(&cuda->base, calls, count);
    for (int i = 0; i < CUDA_COPIES_MAX; i++)
        cuda->copy[i].call = NULL; /* a failed recording leaves some */
    const bool ended = is_good(cuda, cudaStreamEndCapture(cuda->stream, &graph), "ending a capture");
    if (status == GT_OK && ended) {
        *out = graph;
        return true;
    }
    if (graph != NULL)
        (void)cudaGraphDestroy(graph);
    return false;
}

static bool graph_make(struct cuda_backend *cuda, const struct op_call *calls, size_t count, cudaGraphExec_t *out)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec = NULL;
    if (!calls_capture(cuda, calls, count, &graph))
        return false;
    /* cudaGraphInstantiateWithFlags has had these arguments since 11.4; cudaGraphInstantiate's changed with 12.0. */
    bool made = is_good(cuda, cudaGraphInstantiateWithFlags(&exec, graph, 0), "making a graph");
    (void)cudaGraphDestroy(graph);
    made = made && is_good(cuda, cudaGraphUpload(exec, cuda->stream), "uploading a graph");
    if (!made && exec != NULL)
        (void)cudaGraphExecDestroy(exec);
    *out = exec;
    return made;
}

/* Returns true if the host has a part in the program's copies, because the memory is not pinned. */
static bool copies_pageable(const struct cuda_backend *cuda, const struct op_call *calls, size_t count)
{
    size_t i = 0;
    while (i < count && !op_is_copy_beside(calls[i].kind))
        i++;
    return cuda->pins_refused && i < count;
}

static void failure_note(struct cuda_backend *cuda)
{
    const struct cuda_capture *capture = &cuda->capture;
    cuda->graphs_off = true;
    log_note("cuda: a program cannot be kept as a graph (%s: %s); its kernels are launched one by one", capture->what,
             capture->why);
}

enum gt_status cuda_graph_record(struct cuda_backend *cuda, const struct op_call *calls, size_t count)
{
    cudaGraphExec_t exec = NULL;
    const bool has_room = cuda->graphs < CUDA_GRAPHS_MAX;
    if (cuda->graphs_off || count < CALLS_MIN || copies_pageable(cuda, calls, count))
        return GT_OK;
    cuda->capture = (struct cuda_capture){
        .active = true, .what = "capturing", .why = has_room ? "unknown" : "the table of graphs is full"};
    const bool made = has_room && graph_make(cuda, calls, count, &exec);
    cuda->capture.active = false;
    if (cuda->lost != cudaSuccess)
        return GT_DEVICE;
    if (made)
        cuda->graph[cuda->graphs++] = (struct cuda_graph){
            .calls = calls, .count = count, .first = calls[0], .last = calls[count - 1], .exec = exec};
    else
        failure_note(cuda);
    return GT_OK;
}
