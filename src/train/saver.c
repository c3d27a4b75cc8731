/* Saves a run.
 *
 * saver_create() prepares everything that a save needs, and tensors go through the session's staging buffer, so that
 * saving allocates nothing of ours.
 */
#include "train/saver.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include "io/checkpoint_keep.h"
#include "train/metrics.h"

enum gt_status saver_create(struct session *session, const struct tokenizer *tokenizer, const struct run_data *data,
                            struct saver *out)
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
        tokenizer_hash_text(tokenizer, out->tokenizer_hash);
    for (int i = 0; tokenizer && i < TOKENIZER_FILES_OF_RUN; i++)
        TRY(tokenizer_file_text(tokenizer, (enum tokenizer_file)i, session->model->options.config.block_size,
                                &out->tokens[i]));
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

/* Writes the tokenizer's files unless they already have this content. */
static enum gt_status tokens_put(struct saver *saver, bool repairs)
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

enum gt_status saver_repair_tokenizer(struct saver *saver)
{
    return tokens_put(saver, true);
}

/* Returns the record's description of the data, NULL without memory.  The tokenizer is added separately, because
 * json_pack() would omit an optional NULL value and hide the failure. */
static json_t *data_object(const struct saver *saver, const struct run_state *state)
{
    json_t *data = json_pack("{s:I, s:I, s:I, s:s, s:s}", "evaluated_iter",
                             (json_int_t)(state->evaluated ? state->iter : -1), "skipped", (json_int_t)state->skipped,
                             "length", (json_int_t)state->length, token_split_name(TOKEN_TRAIN),
                             saver->data.text[TOKEN_TRAIN], token_split_name(TOKEN_VAL), saver->data.text[TOKEN_VAL]);
    if (data && *saver->tokenizer_hash &&
        json_object_set_new(data, "tokenizer", json_string(saver->tokenizer_hash)) != 0) {
        json_decref(data);
        return NULL;
    }
    return data;
}

/* Keeps the checkpoint that the next save replaces, if the configuration says so. */
static enum gt_status others_keep(struct saver *saver)
{
    const struct config *config = saver->session->config;
    char folder[FILE_PATH_MAX];
    if (saver->metrics == NULL)
        return checkpoint_keep_last(config->out_dir, config->keep);
    saver->replaces = checkpoint_keep_earlier_next(config->out_dir, folder);
    TRY(checkpoint_keep_earlier(config->out_dir, saver->after, saver->metrics, METRICS_NAME));
    saver->metrics = NULL;
    return GT_OK;
}

enum gt_status saver_save(struct saver *saver, const struct run_state *state)
{
    struct session *session = saver->session;
    const struct config *config = session->config;
    json_t *data = data_object(saver, state);
    json_t *loss_scaler = state->loss_scaler.dynamic ? loss_scaler_to_json(&state->loss_scaler) : NULL;
    if (!data || (state->loss_scaler.dynamic && !loss_scaler)) {
        json_decref(data);
        return FAIL(GT_NO_MEMORY, "out of memory");
    }
    struct checkpoint_save_options options = {
        .out_dir = config->out_dir,
        .config = &saver->model,
        .base = session->base,
        .base_crc32c = session->base_crc32c,
        .bos_token = -1,
        .eos_token = -1,
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
        .read = restore_part_read,
        .read_context = session,
        .staging = session->staging,
        .staging_bytes = SESSION_STAGING_FLOATS * sizeof(float),
    };
    enum gt_status status = others_keep(saver);
    THEN(status, checkpoint_save(&options));
    json_decref(loss_scaler);
    json_decref(data);
    /* Only after the commit: until then the earlier run's checkpoint and tokenizer stay together. */
    return status == GT_OK ? tokens_put(saver, false) : status;
}

enum gt_status saver_room_check(const struct session *session, bool own)
{
    const struct config *config = session->config;
    const struct model *model = session->model;
    double each = 0.0; /* of the tensors; headers and JSON are small */
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const struct parameter *p = &model->parameters.at[i];
        if (p->frozen)
            continue;
        const int32_t tensors[] = {model_parameter_home(p), p->m, p->v, p->scales};
        for (size_t k = 0; k < sizeof tensors / sizeof tensors[0]; k++)
            each += tensors[k] != TENSOR_NONE ? (double)graph_tensor_bytes(model->graph, tensors[k]) : 0.0;
    }
    char one[24], all[24], left[24];
    struct statvfs disk;
    /* A file system that does not report its size passes. */
    if (statvfs(config->out_dir, &disk) != 0 || disk.f_blocks == 0)
        return GT_OK;
    const double free_bytes = (double)disk.f_bavail * (double)disk.f_frsize;
    /* During a save there are the new one, the last keep - 1 and the best; with keep=1 the new one and the last. */
    int64_t count = config->keep + 1 - (own ? 1 + (int64_t)checkpoint_keep_count(config->out_dir) : 0);
    count = count < 1 ? 1 : count;
    log_bytes(one, each);
    log_bytes(all, (double)count * each);
    log_bytes(left, free_bytes);
    if (free_bytes < each)
        return FAIL(
            GT_IO,
            "%s: not enough disk space for a checkpoint: it takes %s, and %s are free; free some space or choose "
            "another out_dir",
            config->out_dir, one, left);
    if (free_bytes < (double)count * each)
        log_warning("%s: disk space may run out: %" PRId64 " checkpoints of %s take %s, and %s are free",
                    config->out_dir, count, one, all, left);
    return GT_OK;
}
