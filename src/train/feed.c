/* The feed: asks the sampler for the positions of a step's samples, reads them, and uploads them to the program's
 * tensors.
 *
 * It keeps no position: step and sample number determine everything.  All memory is allocated when it is opened, for
 * the largest batch of any program.
 *
 * The evaluation program leaves the sum of a batch's losses in the scalars; they are added up here in fp64.  The
 * division of samples into batches changes only the order of that sum.  A signal ends an evaluation between batches.
 */
#include "train/feed.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/size.h"
#include "data/prepare.h"
#include "train/stop.h"

enum gt_status feed_folder(const char *dataset, char out[static FILE_PATH_MAX])
{
    if (strchr(dataset, '/'))
        return file_join(out, dataset, "");
    return file_join(out, "data", dataset);
}

/* Opens the tokens of a split and the samplers over them. */
static enum gt_status split_open(struct feed *feed, const struct token_source_spec *spec, struct sampler_spec sampler,
                                 enum token_split split)
{
    TRY(token_source_open(feed->mem, spec, &feed->source[split]));
    const int64_t row = token_source_row(feed->source[split]);
    if (row > 0 && (row != feed->block_size || row != feed->evaluate_time)) {
        log_error("%s: its conversations are packed into rows of %" PRId64 " tokens; give --block_size=%" PRId64
                  " and no other eval_block_size, or run gpt-prepare with another --block-size",
                  token_source_shard_path(feed->source[split], 0), row, row);
        return GT_USAGE;
    }
    sampler.source = feed->source[split];
    sampler.block_size = feed->block_size;
    TRY(sampler_create(feed->mem, &sampler, &feed->sampler[split]));
    sampler.block_size = feed->evaluate_time;
    return sampler_create(feed->mem, &sampler, &feed->evaluate_sampler[split]);
}

static enum gt_status tensors_alloc(struct feed *feed, int64_t samples_max, bool documents)
{
    size_t rows = (size_t)(samples_max * feed->block_size);
    void *array;
    TRY(hostmem_alloc(feed->mem, rows, sizeof(int32_t), "token ids", &array));
    feed->tensors.ids = array;
    TRY(hostmem_alloc(feed->mem, rows, sizeof(int32_t), "targets", &array));
    feed->tensors.targets = array;
    if (documents)
        TRY(hostmem_alloc(feed->mem, rows, sizeof(int32_t), "starts of documents", &array));
    feed->tensors.first = documents ? array : NULL;
    TRY(hostmem_alloc(feed->mem, rows, sizeof(int32_t), "row order", &array));
    feed->tensors.order = array;
    TRY(hostmem_alloc(feed->mem, rows + 2, sizeof(int32_t), "row groups", &array));
    feed->tensors.starts = array;
    TRY(hostmem_alloc(feed->mem, (size_t)samples_max, sizeof(int64_t), "sample positions", &array));
    feed->positions = array;
    return batch_builder_create(feed->mem, (int64_t)rows, feed->block_size, &feed->builder);
}

static enum gt_status splits_open(struct feed *feed, const struct config *config, const char *folder,
                                  int64_t vocab_size)
{
    struct token_source_spec spec = {
        .folder = folder, .split = TOKEN_TRAIN, .vocab_size = vocab_size, .block_size = feed->block_size};
    const struct sampler_spec sampler = {
        .kind = config->sampler == CONFIG_SAMPLER_EPOCH ? SAMPLER_EPOCH : SAMPLER_RANDOM,
        .seed = (uint64_t)config->seed,
        .samples_per_step = config->batch_size * config->gradient_accumulation_steps,
    };
    TRY(split_open(feed, &spec, sampler, TOKEN_TRAIN));
    TRY(token_split_exists(folder, TOKEN_VAL, &feed->has_val));
    if (feed->has_val)
        spec.split = TOKEN_VAL;
    else
        log_warning("%s has no val.bin: val loss is measured on training tokens and cannot show overfitting", folder);
    return split_open(feed, &spec, sampler, TOKEN_VAL);
}

enum gt_status feed_open(struct hostmem *mem, const struct config *config, const char *folder, int64_t vocab_size,
                         int64_t samples_max, struct feed *out)
{
    *out = (struct feed){.mem = mem, .block_size = config->block_size, .evaluate_time = config->block_size};
    if (config->eval_block_size > 0)
        out->evaluate_time = config->eval_block_size;
    enum gt_status status = splits_open(out, config, folder, vocab_size);
    if (status == GT_OK)
        status = tensors_alloc(out, samples_max, config->document_mask);
    if (status != GT_OK)
        feed_close(out);
    return status;
}

enum gt_status feed_open_val(struct hostmem *mem, const struct config *config, const char *path, int64_t vocab_size,
                             int64_t time, int64_t samples_max, struct feed *out)
{
    const struct token_source_spec spec = {.folder = path,
                                           .paths = &path,
                                           .path_count = file_is_folder(path) ? 0 : 1,
                                           .split = TOKEN_VAL,
                                           .vocab_size = vocab_size,
                                           .block_size = time};
    const struct sampler_spec sampler = {.kind = SAMPLER_EPOCH, .samples_per_step = 1};
    *out = (struct feed){.mem = mem, .block_size = time, .evaluate_time = time, .has_val = path[0] != '\0'};
    enum gt_status status = out->has_val ? split_open(out, &spec, sampler, TOKEN_VAL) : GT_OK;
    if (status == GT_OK)
        status = tensors_alloc(out, samples_max, config->document_mask);
    if (status != GT_OK)
        feed_close(out);
    return status;
}

void feed_close(struct feed *feed)
{
    if (!feed->mem)
        return;
    batch_builder_destroy(feed->builder);
    hostmem_free(feed->mem, feed->positions);
    hostmem_free(feed->mem, feed->tensors.starts);
    hostmem_free(feed->mem, feed->tensors.order);
    hostmem_free(feed->mem, feed->tensors.first);
    hostmem_free(feed->mem, feed->tensors.targets);
    hostmem_free(feed->mem, feed->tensors.ids);
    for (int split = 0; split < 2; split++) {
        sampler_destroy(feed->evaluate_sampler[split]);
        sampler_destroy(feed->sampler[split]);
        token_source_close(feed->source[split]);
    }
    *feed = (struct feed){0};
}

enum gt_status feed_manifest_check(const struct feed *feed, const char *folder, const struct tokenizer *tokenizer)
{
    const int64_t tokens[] = {token_source_length(feed->source[TOKEN_TRAIN]),
                              feed->has_val ? token_source_length(feed->source[TOKEN_VAL]) : 0};
    return manifest_check(folder, tokens, tokenizer);
}

enum gt_status feed_documents_set(struct feed *feed, const struct tokenizer *tokenizer)
{
    feed->tensors.end = tokenizer != NULL ? tokenizer_eot(tokenizer) : -1;
    if (feed->tensors.first == NULL || feed->tensors.end >= 0)
        return GT_OK;
    log_error("document_mask=True: documents end at an end-of-text token, and the data's vocabulary has none");
    return GT_USAGE;
}

int64_t feed_targets(const struct feed *feed, int64_t iter, int64_t samples)
{
    int64_t count = 0;
    if (token_source_row(feed->source[TOKEN_TRAIN]) == 0)
        return samples * feed->block_size; /* there is no mask */
    for (int64_t i = 0; i < samples; i++)
        count += token_source_mask(feed->source[TOKEN_TRAIN], sampler_position(feed->sampler[TOKEN_TRAIN], iter, i) + 1,
                                   feed->block_size, NULL);
    return max_i64(count, 1);
}

enum gt_status feed_digest(struct feed *feed, enum token_split split, char text[static FEED_DIGEST_MAX])
{
    uint32_t crc32c;
    TRY(token_source_digest(feed->source[split], &crc32c));
    snprintf(text, FEED_DIGEST_MAX, "%" PRId64 " tokens, crc32c:%08" PRIx32, token_source_length(feed->source[split]),
             crc32c);
    return GT_OK;
}

enum gt_status feed_upload(const struct feed *feed, struct session *session, const struct program_io *io)
{
    int64_t rows = (int64_t)io->batch * io->time;
    TRY(exec_upload(session->exec, io->ids, 0, feed->tensors.ids, rows));
    TRY(exec_upload(session->exec, io->targets, 0, feed->tensors.targets, rows));
    if (io->first != TENSOR_NONE)
        TRY(exec_upload(session->exec, io->first, 0, feed->tensors.first, rows));
    if (io->order == TENSOR_NONE)
        return GT_OK;
    TRY(exec_upload(session->exec, io->order, 0, feed->tensors.order, rows));
    return exec_upload(session->exec, io->starts, 0, feed->tensors.starts, rows + 2);
}

enum gt_status feed_train(struct feed *feed, struct session *session, const struct program_io *io, int64_t iter,
                          int64_t first)
{
    for (int32_t i = 0; i < io->batch; i++)
        feed->positions[i] = sampler_position(feed->sampler[TOKEN_TRAIN], iter, first + i);
    TRY(batch_fill(feed->builder, feed->source[TOKEN_TRAIN], feed->positions, io->batch, feed->block_size,
                   &feed->tensors));
    return feed_upload(feed, session, io);
}

/* Returns the program of micro-step `k`. */
static const struct program_io *micro_step_io(const struct model *model, int32_t k)
{
    if (k == 0)
        return &model->train_first;
    bool last = k == model->options.micro_steps - 1;
    return last && model->options.choice.remainder_batch > 0 ? &model->train_remainder : &model->train_next;
}

enum gt_status feed_micro_step(struct feed *feed, struct session *session, int64_t iter, int32_t k)
{
    const struct program_io *io = micro_step_io(session->model, k);
    const int64_t first =
        (int64_t)k * session->model->options.choice.micro_batch; /* only the last one may be smaller */
    session->scalars[SCALAR_SAMPLE_BASE].i = (int32_t)first;
    session->scalars[SCALAR_MICRO_STEP].i = k;
    session->scalars[SCALAR_LOSS_SUM].f = 0.0f;
    TRY(feed_train(feed, session, io, iter, first));
    TRY(session_scalars_set(session));
    return exec_start(session->exec, io->program);
}

/* ---- evaluation ---- */

/* Reads `count` samples, without their row order, into the host tensors, and fills the rest of the batch with ignored
 * rows. */
static enum gt_status evaluation_fill(struct feed *feed, struct session *session, enum token_split split, int64_t count)
{
    const struct program_io *io = &session->model->evaluate;
    struct batch_tensors tensors = feed->tensors;
    tensors.order = tensors.starts = NULL;
    assert(count > 0 && count <= io->batch && feed->evaluate_time == io->time);
    TRY(batch_fill(feed->builder, feed->source[split], feed->positions, count, feed->evaluate_time, &tensors));
    int64_t used = count * feed->evaluate_time, rows = (int64_t)io->batch * feed->evaluate_time;
    memset(feed->tensors.ids + used, 0, (size_t)(rows - used) * sizeof(int32_t));
    if (tensors.first != NULL)
        memset(tensors.first + used, 0, (size_t)(rows - used) * sizeof(int32_t));
    batch_targets_ignore(feed->tensors.targets + used, rows - used);
    return GT_OK;
}

enum gt_status feed_evaluate(struct feed *feed, struct session *session, enum token_split split, int64_t evaluation,
                             int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        feed->positions[i] = sampler_position_eval(feed->evaluate_sampler[split], split, evaluation, first + i);
    TRY(evaluation_fill(feed, session, split, count));
    return feed_upload(feed, session, &session->model->evaluate);
}

enum gt_status feed_windows(struct feed *feed, struct session *session, enum token_split split, int64_t first,
                            int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        feed->positions[i] = sampler_window_at(feed->evaluate_sampler[split], true, first + i).position;
    TRY(evaluation_fill(feed, session, split, count));
    for (int64_t i = 0; i < count; i++) {
        int64_t ignored = sampler_window_at(feed->evaluate_sampler[split], true, first + i).ignored;
        batch_targets_ignore(feed->tensors.targets + i * feed->evaluate_time, ignored);
    }
    return feed_upload(feed, session, &session->model->evaluate);
}

int64_t evaluation_runs(const struct config *config, const struct model *model)
{
    return size_ceil_div(config->eval_iters * config->batch_size, model->options.choice.evaluate_batch);
}

enum gt_status evaluation_batch_add(struct session *session, double *sum)
{
    session->scalars[SCALAR_LOSS_SUM].f = 0.0f;
    session->scalars[SCALAR_POSITION].i = 0;
    TRY(session_scalars_upload(session));
    TRY(exec_run(session->exec, session->model->evaluate.program));
    TRY(session_scalars_download(session));
    *sum += (double)session->scalars[SCALAR_LOSS_SUM].f;
    return GT_OK;
}

enum gt_status evaluation_split_sum(const struct evaluation *evaluation, enum token_split split, const char *what,
                                    struct evaluation_sum *out)
{
    struct session *session = evaluation->session;
    struct feed *feed = evaluation->feed;
    const bool whole = evaluation->samples == 0;
    const int64_t windows = sampler_window_count(feed->evaluate_sampler[split], true);
    const int64_t most = evaluation->windows > 0 ? min_i64(windows, evaluation->windows) : windows;
    const int64_t samples = whole ? most : evaluation->samples;
    const int64_t batch = session->model->options.choice.evaluate_batch, start_ns = clock_monotonic_ns();
    struct evaluation_sum sum = {0};
    for (int64_t first = 0; first < samples; first += batch) {
        const int64_t count = min_i64(samples - first, batch);
        if (stop_requested())
            return GT_STOPPED;
        if (whole)
            TRY(feed_windows(feed, session, split, first, count));
        else
            TRY(feed_evaluate(feed, session, split, evaluation->iter, first, count));
        for (int64_t i = 0; i < count * feed->evaluate_time; i++)
            sum.targets += feed->tensors.targets[i] != BATCH_TARGET_IGNORED;
        TRY(evaluation_batch_add(session, &sum.loss));
        double each = (double)(clock_monotonic_ns() - start_ns) / 1e9 / (double)(first + count);
        progress_show(evaluation->progress, what, first + count, samples, "", each * (double)(samples - first - count));
    }
    sum.targets = max_i64(sum.targets, 1); /* the caller divides by it */
    *out = sum;
    return GT_OK;
}
