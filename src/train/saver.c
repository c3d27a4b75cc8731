/* Saves a run.
 *
 * saver_create() prepares everything that a save needs, and tensors go through the session's
 * staging buffer, so that saving allocates nothing of ours.
 */
#include "train/saver.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "config/config_json.h"
#include "data/tokenizer_export.h"
#include "data/tokens.h"
#include "io/checkpoint_folder.h"
#include "io/checkpoint_save.h"
#include "session/restore_weights.h"

/* ---- states that other ranks have ---- */

/* Rank 0 asks the others for each piece: words that name the part, the parameter, its first element
 * and their number. Part -1 ends the save, with its status. */
enum { REQUEST_PART, REQUEST_INDEX, REQUEST_FIRST, REQUEST_COUNT, REQUEST_WORDS };

static void ask(struct session *session, double words[static REQUEST_WORDS])
{
    double all[DIST_RANKS_MAX * REQUEST_WORDS];
    dist_gather(session->dist, words, REQUEST_WORDS * sizeof *words, all);
    memcpy(words, all, REQUEST_WORDS * sizeof *words);
}

static size_t array_element_bytes(const struct session *session, enum checkpoint_array part,
                                  int32_t index)
{
    const struct parameter *parameter = &session->model->parameters.at[index];
    const enum dtype weight = session->model->graph->tensors[parameter->tensor].dtype;
    if (part == CHECKPOINT_SCALES)
        return 1;
    if (part == CHECKPOINT_PARAMETER)
        return dtype_size_bytes(parameter->dtypes.master ? DTYPE_F32 : weight);
    return dtype_size_bytes(parameter->dtypes.moment);
}

/* A checkpoint_read_fn; the context is the session. */
static enum gt_status part_read(void *context, enum checkpoint_array part, int32_t index,
                                size_t first, size_t count, void *out)
{
    struct session *session = context;
    const int32_t tensor = restore_array_tensor(session, part, index);
    const size_t size = array_element_bytes(session, part, index);
    struct restore_place place;
    for (size_t done = 0; done < count; done += (size_t)place.count) {
        place =
            restore_place(session, part, index, (int64_t)(first + done), (int64_t)(count - done));
        void *to = (char *)out + done * size;
        if (place.owner == session->model->options.rank) {
            TRY(exec_download(session->exec, tensor, place.first, to, place.count));
            continue;
        }
        ask(session, (double[]){part, index, (double)(first + done), (double)place.count});
        dist_receive(session->dist, place.owner, to, (size_t)place.count * size);
        dist_wait(session->dist, session->dist->started);
    }
    return GT_OK;
}

enum gt_status saver_serve(struct session *session)
{
    for (;;) {
        double requested[REQUEST_WORDS] = {0.0};
        ask(session, requested);
        if (requested[REQUEST_PART] < 0.0)
            return (enum gt_status)requested[REQUEST_INDEX];
        const enum checkpoint_array part = (enum checkpoint_array)requested[REQUEST_PART];
        const int32_t index = (int32_t)requested[REQUEST_INDEX];
        const struct restore_place place =
            restore_place(session, part, index, (int64_t)requested[REQUEST_FIRST],
                          (int64_t)requested[REQUEST_COUNT]);
        if (place.owner != session->dist->rank)
            continue;
        TRY(exec_download(session->exec, restore_array_tensor(session, part, index), place.first,
                          session->staging, place.count));
        dist_send(session->dist, 0, session->staging,
                  (size_t)place.count * array_element_bytes(session, part, index));
        dist_wait(session->dist, session->dist->started);
    }
}

/* ---- the save ---- */

enum gt_status saver_create(struct session *session, const struct tokenizer *tokenizer,
                            const struct data_digests *data, struct saver *out)
{
    const struct model *model = session->model;
    *out = (struct saver){.session = session, .data = *data, .model = model->options.config};
    out->model.lora.alone = out->model.lora.rank > 0;
    TRY(restore_tensors(session, &out->tensors));
    for (int32_t i = 0; i < model->parameters.count; i++)
        if (!model->parameters.at[i].frozen)
            out->tensors[out->tensor_count++] = out->tensors[i];
    TRY(config_to_json(session->config, &out->configuration));
    out->plan = resume_plan_object(session);
    if (tokenizer)
        (void)snprintf(out->tokenizer_hash, sizeof out->tokenizer_hash, "%s",
                       TOKENIZER_HASH_TEXT(tokenizer));
    for (int i = 0; tokenizer && i < TOKENIZER_FILES_OF_RUN; i++)
        TRY(tokenizer_file_text(tokenizer, (enum tokenizer_file)i,
                                session->model->options.config.block_size, &out->tokens[i]));
    if (!out->plan)
        return FAIL(GT_NO_MEMORY, "out of memory");
    return GT_OK;
}

void saver_destroy(struct saver *saver)
{
    if (!saver->session)
        return;
    json_decref(saver->configuration);
    json_decref(saver->plan);
    for (int i = 0; i < TOKENIZER_FILES_OF_RUN; i++)
        free(saver->tokens[i]);
    *saver = (struct saver){0};
}

enum gt_status saver_tokenizer_write(struct saver *saver, bool repairs)
{
    for (int i = 0; i < TOKENIZER_FILES_OF_RUN && !saver->tokens_written; i++) {
        const char *text = saver->tokens[i];
        const size_t length = text ? strlen(text) : 0;
        const char *path = FILE_IN(saver->session->config->out_dir, tokenizer_file_names[i]);
        if (!text && saver->replaces)
            (void)unlink(path); /* it belongs to the earlier run, whose folder has a copy */
        if (!text || file_matches(path, length, file_crc32c(0, text, length)))
            continue;
        TRY(file_replace(path, text, length));
        if (repairs)
            log_note("%s was damaged or missing; restored it from the data set", path);
    }
    saver->tokens_written = true;
    return GT_OK;
}

/* Returns the record's description of the data, NULL without memory. */
static json_t *data_object(const struct saver *saver, const struct run_state *state)
{
    json_t *data = json_pack("{s:I, s:I, s:I, s:s, s:s}", "evaluated_iter",
                             (json_int_t)(state->evaluated ? state->iter : -1), "skipped",
                             (json_int_t)state->skipped, "length", (json_int_t)state->length,
                             token_split_name(TOKEN_TRAIN), saver->data.text[TOKEN_TRAIN],
                             token_split_name(TOKEN_VAL), saver->data.text[TOKEN_VAL]);
    const bool known = saver->tokenizer_hash[0] != '\0';
    return json_whole(
        data,
        known ? json_object_set_new(data, "tokenizer", json_string(saver->tokenizer_hash)) : 0);
}

/* Keeps the checkpoint that the next save replaces, if the configuration says so. */
static enum gt_status best_checkpoint_keep(struct saver *saver)
{
    const struct config *config = saver->session->config;
    char folder[FILE_PATH_MAX];
    if (saver->metrics == NULL)
        return checkpoint_keep_last(config->out_dir, config->keep);
    saver->replaces = checkpoint_keep_earlier_next(config->out_dir, folder);
    TRY(checkpoint_keep_earlier(config->out_dir, saver->after, saver->metrics));
    saver->metrics = NULL;
    return GT_OK;
}

enum gt_status saver_save(struct saver *saver, const struct run_state *state)
{
    struct session *session = saver->session;
    const struct config *config = session->config;
    json_t *data = data_object(saver, state);
    json_t *loss_scaler =
        state->loss_scaler.dynamic ? loss_scaler_to_json(&state->loss_scaler) : NULL;
    if (!data || (state->loss_scaler.dynamic && !loss_scaler)) {
        json_decref(data);
        return FAIL(GT_NO_MEMORY, "out of memory");
    }
    struct checkpoint_save_options options = {
        .out_dir = config->out_dir,
        .config = &saver->model,
        .base = session->base,
        .base_crc32c = session->base_crc32c,
        .state = {.iter = state->iter,
                  .adam_step = state->adam_step,
                  .seed = config->seed,
                  .samples_seen = state->samples_seen,
                  .tokens_seen = state->samples_seen * config->block_size,
                  .evaluations = state->evaluations,
                  .best_val_loss = state->best_val_loss,
                  .data = data,
                  .plan = saver->plan,
                  .loss_scaler = loss_scaler,
                  .configuration = saver->configuration},
        .tensors = saver->tensors,
        .tensor_count = saver->tensor_count,
        .read = part_read,
        .read_context = session,
        .staging = session->staging,
        .staging_bytes = SESSION_STAGING_FLOATS * sizeof(float),
    };
    enum gt_status status = best_checkpoint_keep(saver);
    THEN(status, checkpoint_save(&options));
    json_decref(loss_scaler);
    json_decref(data);
    /* Only after the commit: until then the earlier run's checkpoint and tokenizer stay together.
     */
    THEN(status, saver_tokenizer_write(saver, false));
    if (session->dist != NULL)
        ask(session, (double[]){-1.0, (double)status, 0.0, 0.0});
    return status;
}

enum gt_status saver_room_check(const struct session *session, bool in_place)
{
    const struct config *config = session->config;
    const struct model *model = session->model;
    double each = 0.0; /* of the tensors; headers and JSON are small */
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const struct parameter *p = &model->parameters.at[i];
        const int64_t elements = graph_tensor_elements(model->graph, p->tensor);
        const size_t moments =
            (p->group == GROUP_MUON ? 1 : 2) * array_element_bytes(session, CHECKPOINT_M, i);
        if (p->frozen)
            continue;
        each += (double)((size_t)elements *
                         (array_element_bytes(session, CHECKPOINT_PARAMETER, i) + moments));
        each += p->dtypes.moment == DTYPE_U8 ? 2.0 * (double)state_blocks(elements) : 0.0;
    }
    struct statvfs disk;
    /* A file system that does not report its size passes. */
    if (statvfs(config->out_dir, &disk) != 0 || disk.f_blocks == 0)
        return GT_OK;
    const double free_bytes = (double)disk.f_bavail * (double)disk.f_frsize;
    /* During a save the disk holds the new checkpoint, the last keep - 1 and the best; with keep=1
     * the new one and the last. */
    int64_t count =
        config->keep + 1 - (in_place ? 1 + (int64_t)checkpoint_keep_count(config->out_dir) : 0);
    count = count < 1 ? 1 : count;
    const char *one = LOG_BYTES(each), *left = LOG_BYTES(free_bytes);
    if (free_bytes < each)
        return FAIL(
            GT_IO,
            "%s: not enough disk space for a checkpoint: it takes %s, and %s are free; free some space or choose "
            "another out_dir",
            config->out_dir, one, left);
    if (free_bytes < (double)count * each)
        log_warning("%s: disk space may run out: %" PRId64
                    " checkpoints of %s take %s, and %s are free",
                    config->out_dir, count, one, LOG_BYTES((double)count * each), left);
    return GT_OK;
}
