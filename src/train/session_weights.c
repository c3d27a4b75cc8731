/* Initial weights, and zeroed moments.
 *
 * A value depends only on the seed, the parameter's number and the element's, so that all threads can make pieces of a
 * parameter: 124M values take about a second on two threads.  The device itself clears the moments.
 */
#include "base/rng.h"
#include "base/size.h"
#include "base/thread.h"
#include "train/session.h"
#include "train/values.h"

#define INITIAL_PIECE ((int64_t)1 << 14) /* values; a multiple of 4 */

enum gt_status session_moments_zero(struct session *session, const struct parameter *parameter)
{
    const int32_t tensors[] = {parameter->m, parameter->v, parameter->scales};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        if (tensors[i] != TENSOR_NONE)
            TRY(exec_zero(session->exec, tensors[i]));
    }
    return GT_OK;
}

enum gt_status session_weights_refresh(struct session *session)
{
    int32_t program = session->model->refresh.program;
    return program < 0 ? GT_OK : exec_run(session->exec, program);
}

/* A range of initial values, divided into pieces. */
struct initial_values {
    const struct parameter *parameter;
    struct philox_key key;
    uint32_t index;
    int64_t first, count; /* elements of the parameter; `first` is a multiple of 4, as pieces are */
    float *out;
};

static void initial_piece(void *context, size_t piece, int thread)
{
    const struct initial_values *values = context;
    const int64_t begin = (int64_t)piece * INITIAL_PIECE, left = values->count - begin;
    const int64_t size = left < INITIAL_PIECE ? left : INITIAL_PIECE;
    const uint64_t block = (uint64_t)(values->first + begin) / 4;
    const struct philox_block counter = {{(uint32_t)block, (uint32_t)(block >> 32), values->index, 0}};
    float *out = values->out + begin;
    (void)thread;
    if (values->parameter->init == INIT_NORMAL)
        philox_normals(values->key, counter, size, out);
    for (int64_t i = 0; i < size; i++)
        out[i] = values->parameter->init == INIT_ONE ? 1.0f : values->parameter->init_std * out[i];
}

static enum gt_status parameter_init(struct session *session, uint32_t index, struct philox_key key, int threads)
{
    const struct parameter *parameter = &session->model->parameters.at[index];
    const struct graph *graph = session->model->graph;
    int32_t home = model_parameter_home(parameter);
    int64_t total = graph_tensor_elements(graph, home);
    int64_t count = total / graph->tensors[home].dims[0] * parameter->saved_rows;
    TRY(exec_zero(session->exec, home));
    for (int64_t first = 0; first < count && parameter->init != INIT_ZERO; first += SESSION_STAGING_FLOATS) {
        const int64_t left = count - first, part = left < SESSION_STAGING_FLOATS ? left : SESSION_STAGING_FLOATS;
        struct initial_values values = {parameter, key, index, first, part, session->staging};
        thread_for_each(threads, (size_t)size_ceil_div(part, INITIAL_PIECE), initial_piece, &values);
        TRY(values_upload(session->exec, graph, home, first, session->staging, part));
    }
    return GT_OK;
}

enum gt_status session_weights_init(struct session *session, uint64_t seed)
{
    struct philox_key key = philox_key_make(seed, RNG_INIT);
    const int threads = session->config->threads > 0 ? (int)session->config->threads : thread_count_available();
    for (int32_t i = 0; i < session->model->parameters.count; i++) {
        const struct parameter *parameter = &session->model->parameters.at[i];
        TRY(parameter_init(session, (uint32_t)i, key, threads));
        TRY(session_moments_zero(session, parameter));
    }
    return session_weights_refresh(session);
}
