/* Fills a session's weights and moments with initial values or from a checkpoint.  Also reads them
 * for a new checkpoint.
 *
 * An initial value depends only on the seed, the parameter's number and the element's, so the
 * threads can make pieces of a parameter in any order: 124M values take about a second on two
 * threads.  The device itself clears the moments.
 *
 * If a file and the device's tensor have the same dtype, restore_array_write() copies the data
 * unchanged, so a resumed run has every bit.  Otherwise the state format changes.  Then it decodes
 * codes with the exponents, which the loader delivers before the codes, and encodes values block by
 * block, rounding to nearest once.  A piece begins at a multiple of a block, because the size of
 * the staging buffer is such a multiple.
 */
#include "session/restore_weights.h"

#include <math.h>

#include "base/rng.h"
#include "base/size.h"
#include "base/thread.h"
#include "io/checkpoint_load.h"
#include "model/parameters.h"
#include "session/values.h"

#define INITIAL_PIECE ((int64_t)1 << 14) /* values; a multiple of 4 */
#define CODES_BLOCKS 32
#define CODES_ELEMENTS ((size_t)CODES_BLOCKS * STATE_BLOCK)

/* ---- the parts of a checkpoint ---- */

int32_t restore_array_tensor(const struct session *session, enum checkpoint_array part,
                             int32_t index)
{
    const struct parameter *parameter = &session->model->parameters.at[index];
    if (part == CHECKPOINT_M)
        return parameter->m;
    if (part == CHECKPOINT_V)
        return parameter->v;
    return part == CHECKPOINT_SCALES ? parameter->scales : model_parameter_home(parameter);
}

struct restore_place restore_place(const struct session *session, enum checkpoint_array part,
                                   int32_t index, int64_t first, int64_t count)
{
    const struct model *model = session->model;
    const struct parameter *parameter = &model->parameters.at[index];
    const int32_t ranks = model_ranks(&model->options);
    if (parameter->owner == OWNER_ALL ||
        (part == CHECKPOINT_PARAMETER && !parameter->dtypes.master))
        return (struct restore_place){model->options.rank, first, count};
    if (parameter->owner != OWNER_UNITS)
        return (struct restore_place){parameter->owner, first, count};
    /* Exponents are two rows of blocks. */
    const int64_t unit = part == CHECKPOINT_SCALES ? 1 : STATE_BLOCK;
    const int64_t blocks = state_blocks(graph_tensor_elements(model->graph, parameter->tensor));
    const int64_t row = part == CHECKPOINT_SCALES ? first / blocks : 0, at = first - row * blocks;
    const int32_t owner = (int32_t)(((at / unit + 1) * ranks - 1) / blocks);
    const struct parameter_range share = parameters_share(model->graph, parameter, ranks, owner);
    const int64_t begin = share.first / STATE_BLOCK * unit;
    const int64_t size = part == CHECKPOINT_SCALES ? state_blocks(share.count) : share.count;
    return (struct restore_place){owner, row * size + at - begin,
                                  min_i64(count, begin + size - at)};
}

/* ---- initial values ---- */

/* Zeroes those of m, v and scales that a parameter has. */
static enum gt_status moments_zero(struct session *session, const struct parameter *parameter)
{
    const int32_t tensors[] = {parameter->m, parameter->v, parameter->scales};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        if (tensors[i] != TENSOR_NONE)
            TRY(exec_zero(session->exec, tensors[i]));
    return GT_OK;
}

/* Recomputes, from their masters, the 16-bit weights that the ops read. */
static enum gt_status weights_refresh(struct session *session)
{
    int32_t program = session->model->refresh.program;
    if (program < 0)
        return GT_OK;
    TRY(exec_run(session->exec, program));
    return session->model->gather < 0 ? GT_OK : exec_run(session->exec, session->model->gather);
}

/* The bounds of e^A_log in Qwen3_5PreTrainedModel._init_weights(). */
#define DECAY_LEAST 0.01
#define DECAY_MOST 16.0

/* A range of initial values, divided into pieces. */
struct initial_values {
    const struct parameter *parameter;
    struct philox_key key;
    uint32_t index;
    int64_t first,
        count; /* elements of the parameter; `first` and INITIAL_PIECE are multiples of 4 */
    float *out;
};

static void initial_piece(void *context, size_t piece, int thread)
{
    const struct initial_values *values = context;
    const int64_t begin = (int64_t)piece * INITIAL_PIECE,
                  size = min_i64(values->count - begin, INITIAL_PIECE);
    const uint64_t block = (uint64_t)(values->first + begin) / 4;
    const struct philox_block counter = {
        {(uint32_t)block, (uint32_t)(block >> 32), values->index, 0}};
    float *out = values->out + begin;
    (void)thread;
    if (values->parameter->init == INIT_NORMAL)
        philox_normals(values->key, counter, size, out);
    const bool decay = values->parameter->init == INIT_DECAY;
    for (int64_t i = 0; (values->parameter->init == INIT_UNIFORM || decay) && i < size; i++) {
        const int64_t element = values->first + begin + i;
        const struct philox_block at = {{(uint32_t)element, 0, values->index, 0}};
        const double uniform = philox_uniform(philox4x32_10(values->key, at).word[0], 0);
        out[i] = (float)(2.0 * uniform - 1.0);
        if (decay)
            out[i] = element < values->parameter->part_rows[0]
                         ? (float)log(DECAY_LEAST + (DECAY_MOST - DECAY_LEAST) * uniform)
                         : 1.0f;
    }
    for (int64_t i = 0; i < size && !decay; i++)
        out[i] = values->parameter->init == INIT_ONE ? 1.0f : values->parameter->init_std * out[i];
}

static enum gt_status parameter_init(struct session *session, uint32_t index, struct philox_key key,
                                     int threads)
{
    const struct parameter *parameter = &session->model->parameters.at[index];
    const struct graph *graph = session->model->graph;
    int32_t home = model_parameter_home(parameter);
    int64_t total = graph_tensor_elements(graph, parameter->tensor);
    int64_t count = total / graph->tensors[parameter->tensor].dims[0] * parameter->saved_rows;
    TRY(exec_zero(session->exec, home));
    for (int64_t first = 0; first < count && parameter->init != INIT_ZERO;
         first += SESSION_STAGING_FLOATS) {
        const int64_t part = min_i64(count - first, SESSION_STAGING_FLOATS);
        struct initial_values values = {parameter, key, index, first, part, session->staging};
        thread_for_each(threads, (size_t)size_ceil_div(part, INITIAL_PIECE), initial_piece,
                        &values);
        struct restore_place place;
        for (int64_t done = 0; done < part; done += place.count) {
            place = restore_place(session, CHECKPOINT_PARAMETER, (int32_t)index, first + done,
                                  part - done);
            if (place.owner == session->model->options.rank)
                TRY(values_upload(session->exec, graph, home, place.first, session->staging + done,
                                  place.count));
        }
    }
    return GT_OK;
}

enum gt_status session_weights_init(struct session *session, uint64_t seed)
{
    struct philox_key key = philox_key_make(seed, RNG_INIT);
    const int threads =
        session->config->threads > 0 ? (int)session->config->threads : thread_count_available();
    for (int32_t i = 0; i < session->model->parameters.count; i++) {
        const struct parameter *parameter = &session->model->parameters.at[i];
        if (parameter->frozen)
            continue;
        TRY(parameter_init(session, (uint32_t)i, key, threads));
        TRY(moments_zero(session, parameter));
    }
    return weights_refresh(session);
}

/* ---- from a file ---- */

static enum state_moment moment_of(enum checkpoint_array part)
{
    return part == CHECKPOINT_M ? STATE_MOMENT_M : STATE_MOMENT_V;
}

static size_t blocks_of(const struct session *session, int32_t index)
{
    const struct parameter *parameter = &session->model->parameters.at[index];
    return (size_t)state_blocks(graph_tensor_elements(session->model->graph, parameter->tensor));
}

/* Keeps the exponents of a parameter until codes_expand() decodes its codes. */
static enum gt_status exponents_keep(struct restore_arrays *parts, int32_t index, size_t first,
                                     size_t count, const int8_t *values)
{
    const size_t needed = 2 * blocks_of(parts->session, index);
    TRY(HOSTMEM_GROW(parts->session->mem, &parts->exponents, needed, "exponents"));
    assert(first + count <= needed);
    memcpy(parts->exponents + first, values, count);
    return GT_OK;
}

/* Elements of a part that come from a file: `count` from `first` on.  `at` is the place of the
 * first one in this rank's tensor. */
struct piece {
    enum checkpoint_array part;
    int32_t index;
    size_t first, at, count;
};

/* Decodes codes from a file and uploads the values to a tensor of floats. */
static enum gt_status codes_expand(const struct restore_arrays *parts, const struct piece *piece,
                                   const uint8_t *codes)
{
    const struct session *session = parts->session;
    const int32_t tensor = restore_array_tensor(session, piece->part, piece->index);
    const int8_t *exponents =
        parts->exponents + (piece->part == CHECKPOINT_V ? blocks_of(session, piece->index) : 0);
    float values[CODES_ELEMENTS];
    assert(parts->exponents != NULL && piece->first % STATE_BLOCK == 0);
    for (size_t done = 0; done < piece->count; done += CODES_ELEMENTS) {
        const size_t some = size_min(piece->count - done, CODES_ELEMENTS);
        for (size_t k = 0; k < some; k += STATE_BLOCK)
            state_codes_decode(moment_of(piece->part), codes + done + k,
                               exponents[(piece->first + done + k) / STATE_BLOCK],
                               size_min(some - k, STATE_BLOCK), values + k);
        TRY(values_upload(session->exec, session->model->graph, tensor, (int64_t)(piece->at + done),
                          values, (int64_t)some));
    }
    return GT_OK;
}

/* Encodes floats from a file and uploads their codes and exponents. */
static enum gt_status codes_make(const struct session *session, const struct piece *piece,
                                 const float *values)
{
    const int32_t tensor = restore_array_tensor(session, piece->part, piece->index);
    const int32_t scales = restore_array_tensor(session, CHECKPOINT_SCALES, piece->index);
    const int64_t row =
        piece->part == CHECKPOINT_V ? session->model->graph->tensors[scales].dims[1] : 0;
    uint8_t codes[CODES_ELEMENTS];
    int8_t exponents[CODES_BLOCKS];
    assert(piece->at % STATE_BLOCK == 0);
    for (size_t done = 0; done < piece->count; done += CODES_ELEMENTS) {
        const size_t some = size_min(piece->count - done, CODES_ELEMENTS),
                     block = (piece->at + done) / STATE_BLOCK;
        for (size_t k = 0; k < some; k += STATE_BLOCK)
            exponents[k / STATE_BLOCK] =
                state_codes_encode(moment_of(piece->part), values + done + k,
                                   size_min(some - k, STATE_BLOCK), codes + k);
        TRY(exec_upload(session->exec, tensor, (int64_t)(piece->at + done), codes, (int64_t)some));
        TRY(exec_upload(session->exec, scales, row + (int64_t)block, exponents,
                        state_blocks((int64_t)some)));
    }
    return GT_OK;
}

/* Uploads a piece that belongs to this rank. */
static enum gt_status piece_write(const struct restore_arrays *parts, const struct piece *piece,
                                  const void *values, enum dtype dtype)
{
    const struct session *session = parts->session;
    const struct graph *graph = session->model->graph;
    const int32_t tensor = restore_array_tensor(session, piece->part, piece->index);
    if (graph->tensors[tensor].dtype == dtype)
        return exec_upload(session->exec, tensor, (int64_t)piece->at, values,
                           (int64_t)piece->count);
    if (dtype == DTYPE_U8)
        return codes_expand(parts, piece, values);
    assert(dtype == DTYPE_F32);
    if (graph->tensors[tensor].dtype == DTYPE_U8)
        return codes_make(session, piece, values);
    return values_upload(session->exec, graph, tensor, (int64_t)piece->at, values,
                         (int64_t)piece->count);
}

enum gt_status restore_array_write(void *context, enum checkpoint_array part, int32_t index,
                                   size_t first, size_t count, const void *values, enum dtype dtype)
{
    struct restore_arrays *parts = context;
    const struct session *session = parts->session;
    if (part == CHECKPOINT_SCALES && restore_array_tensor(session, part, index) == TENSOR_NONE)
        return exponents_keep(parts, index, first, count, values);
    struct restore_place place;
    for (size_t done = 0; done < count; done += (size_t)place.count) {
        place =
            restore_place(session, part, index, (int64_t)(first + done), (int64_t)(count - done));
        const struct piece piece = {part, index, first + done, (size_t)place.first,
                                    (size_t)place.count};
        if (place.owner == session->model->options.rank)
            TRY(piece_write(parts, &piece, (const char *)values + done * dtype_size_bytes(dtype),
                            dtype));
    }
    return GT_OK;
}

enum gt_status restore_tensors(struct session *session, struct checkpoint_tensor **out)
{
    const struct model *model = session->model;
    struct checkpoint_tensor *tensors;
    TRY(HOSTMEM_NEW(session->mem, (size_t)model->parameters.count, "checkpoint tensors", &tensors));
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const struct parameter *parameter = &model->parameters.at[i];
        const struct tensor *tensor = &model->graph->tensors[parameter->tensor];
        tensors[i] = (struct checkpoint_tensor){.name = parameter->name,
                                                .index = i,
                                                .dtype = parameter->dtypes.master ? DTYPE_F32
                                                                                  : tensor->dtype,
                                                .moment = parameter->dtypes.moment,
                                                .used = tensor->dtype,
                                                .no_second = parameter->group == GROUP_MUON};
    }
    *out = tensors;
    return GT_OK;
}

/* Zeroes the weights with more rows than a checkpoint has (rows beyond the vocabulary), and all
 * moments. */
static enum gt_status zero_rest(struct session *session)
{
    const struct model *model = session->model;
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const struct parameter *parameter = &model->parameters.at[i];
        if (parameter->saved_rows < model->graph->tensors[parameter->tensor].dims[0])
            TRY(exec_zero(session->exec, model_parameter_home(parameter)));
        TRY(moments_zero(session, parameter));
    }
    return GT_OK;
}

/* Uploads the table of Adam's bias corrections. */
static enum gt_status corrections_upload(struct session *session)
{
    const struct model_options *options = &session->model->options;
    for (int32_t row = 0; row < options->correction_rows; row++) {
        float pair[2] = {(float)(1.0 - pow((double)options->beta1, row + 1)),
                         (float)(1.0 - pow((double)options->beta2, row + 1))};
        TRY(exec_upload(session->exec, session->model->corrections, 2 * (int64_t)row, pair, 2));
    }
    return GT_OK;
}

/* Uploads the cosines and sines of rotary positions, if there is a table for them. */
static enum gt_status angles_upload(struct session *session, int32_t table,
                                    const struct rope_config *rope)
{
    const struct model_config *config = &session->model->options.config;
    const int32_t size = model_turned_dim(config), rows_max = SESSION_STAGING_FLOATS / size;
    const double factor = rope_attention(rope);
    float *row = session->staging;
    if (table == TENSOR_NONE)
        return GT_OK;
    for (int32_t first = 0; first < config->block_size; first += rows_max) {
        const int32_t left = config->block_size - first, rows = left < rows_max ? left : rows_max;
        for (int32_t k = 0; k < size / 2; k++) {
            const double frequency = rope_frequency(rope, size, config->block_size, k);
            for (int32_t i = 0; i < rows; i++) {
                const double angle = (first + i) * frequency;
                row[i * size + k] = (float)(factor * cos(angle));
                row[i * size + size / 2 + k] = (float)(factor * sin(angle));
            }
        }
        TRY(exec_upload(session->exec, table, (int64_t)first * size, row, (int64_t)rows * size));
    }
    return GT_OK;
}

/* Uploads the tables with which the B of a layer's adapters become one matrix: alpha / rank times
 * the identity. */
static enum gt_status expand_upload(struct session *session)
{
    const struct lora_config *lora = &session->model->options.config.lora;
    if (lora->rank == 0)
        return GT_OK;
    const float scale = (float)(lora->alpha / lora->rank);
    for (int parts = 0; parts < PARAMETER_RANGES_MAX; parts++) {
        const int32_t table = session->model->expand[parts], rows = (parts + 1) * lora->rank;
        TRY(exec_zero(session->exec, table));
        for (int64_t i = 0; i < rows; i++)
            TRY(values_upload(session->exec, session->model->graph, table, i * rows + i, &scale,
                              1));
    }
    return GT_OK;
}

enum gt_status restore_weights(struct session *session, const struct restore_source *source,
                               uint64_t seed)
{
    TRY(corrections_upload(session));
    const struct model *model = session->model;
    const struct rope_config local = {.theta = model->options.config.rope_local_theta};
    TRY(angles_upload(session, model->angles, &model->options.config.rope));
    TRY(angles_upload(session, model->local_angles, &local));
    TRY(expand_upload(session));
    if (!source->checkpoint)
        return session_weights_init(session, seed);
    struct checkpoint_tensor *tensors;
    struct restore_arrays parts = {.session = session};
    struct model_config config = session->model->options.config;
    const bool made = config.lora.rank > 0 &&
                      source->checkpoint->config.lora.rank == 0; /* the adapters are new */
    snprintf(session->base, sizeof session->base, "%s", source->base);
    TRY(zero_rest(session));
    if (made) {
        TRY(session_weights_init(session, seed));
        config.lora.rank = 0;
    }
    TRY(restore_tensors(session, &tensors));
    struct checkpoint_load_options options = {
        .config = &config,
        .base_crc32c = session->model->options.config.lora.rank > 0 ? &session->base_crc32c : NULL,
        .tensors = tensors,
        .tensor_count = (size_t)session->model->parameters.count,
        .write = restore_array_write,
        .write_context = &parts,
        .convert = source->convert_states,
        .staging = session->staging,
        .staging_bytes = SESSION_STAGING_FLOATS * sizeof(float),
    };
    TRY(checkpoint_load(source->checkpoint, &options));
    hostmem_free(parts.exponents);
    hostmem_free(tensors);
    return weights_refresh(session);
}
