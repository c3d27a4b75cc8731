/* The feed: asks the sampler for the positions of a step's samples, reads them, and uploads them to
 * the program's tensors.
 *
 * It keeps no position: step and sample number determine everything.  All memory is allocated when
 * it is opened, for the largest batch of any program.
 *
 * The evaluation program leaves the sum of a batch's losses in the scalars; they are added up here
 * in fp64.  The division of samples into batches changes only the order of that sum.  A signal ends
 * an evaluation between batches.
 */
#include "train/feed.h"

#include <math.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/size.h"
#include "data/chat.h"
#include "data/manifest.h"
#include "session/bad_value.h"
#include "session/stop.h"
#include "train/ranks.h"

/* An evaluation draws at most this many samples per sample of the split while none of their targets
 * counts. */
#define DRAWS_MAX 64

/* Opens the tokens of a split of a data set and the samplers over them. */
static enum gt_status split_open(struct feed *feed, struct feed_part *part,
                                 const struct token_source_spec *spec, struct sampler_spec sampler,
                                 enum token_split split)
{
    TRY(token_source_open(feed->mem, spec, &part->source[split]));
    const int64_t row = part->source[split]->row;
    if (row > 0 && (row != feed->block_size || row != feed->evaluate_time))
        return FAIL(GT_USAGE,
                    "%s: its conversations are packed into rows of %" PRId64
                    " tokens; give --block_size=%" PRId64
                    " and no other eval_block_size, or run gpt-prepare with another --block-size",
                    part->source[split]->shards[0].path, row, row);
    sampler.source = part->source[split];
    sampler.block_size = feed->block_size;
    TRY(sampler_create(feed->mem, &sampler, &part->sampler[split]));
    sampler.block_size = feed->evaluate_time;
    return sampler_create(feed->mem, &sampler, &part->evaluate_sampler[split]);
}

static enum gt_status tensors_alloc(struct feed *feed, int64_t samples_max, bool documents)
{
    struct batch_tensors *tensors = &feed->tensors;
    size_t rows = (size_t)(samples_max * feed->block_size);
    TRY(HOSTMEM_NEW(feed->mem, rows, "token ids", &tensors->ids));
    TRY(HOSTMEM_NEW(feed->mem, rows, "targets", &tensors->targets));
    if (documents)
        TRY(HOSTMEM_NEW(feed->mem, rows, "starts of documents", &tensors->first));
    TRY(HOSTMEM_NEW(feed->mem, rows, "row order", &tensors->order));
    TRY(HOSTMEM_NEW(feed->mem, rows + 2, "row groups", &tensors->starts));
    return batch_builder_create(feed->mem, (int64_t)rows, feed->block_size, &feed->builder);
}

static enum gt_status part_open(struct feed *feed, struct feed_part *part,
                                const struct config *config, const char *folder, int64_t vocab_size)
{
    struct token_source_spec spec = {.folder = folder,
                                     .split = TOKEN_TRAIN,
                                     .vocab_size = vocab_size,
                                     .block_size = feed->block_size};
    const struct sampler_spec sampler = {
        .kind = config->sampler == CONFIG_SAMPLER_EPOCH ? SAMPLER_EPOCH : SAMPLER_RANDOM,
        .seed = (uint64_t)config->seed,
        .samples_per_step = feed->samples_per_step,
    };
    TRY(split_open(feed, part, &spec, sampler, TOKEN_TRAIN));
    TRY(token_split_exists(folder, TOKEN_VAL, &part->has_val));
    if (part->has_val)
        spec.split = TOKEN_VAL;
    else
        log_warning(
            "%s has no val.bin: val loss is measured on training tokens and cannot show overfitting",
            folder);
    return split_open(feed, part, &spec, sampler, TOKEN_VAL);
}

/* Refuses a data set whose token file is, by a link, that of another one. */
static enum gt_status part_is_new(const struct feed *feed, int index)
{
    const char *path = feed->parts[index].source[TOKEN_TRAIN]->shards[0].path;
    for (int i = 0; i < index; i++) {
        const char *other = feed->parts[i].source[TOKEN_TRAIN]->shards[0].path;
        if (file_is_same(other, path))
            return FAIL(
                GT_USAGE,
                "dataset: %s and %s are one file; name one of the data sets, with both shares",
                other, path);
    }
    return GT_OK;
}

enum gt_status feed_open(struct hostmem *mem, const struct config *config,
                         const struct mixture *mixture, int64_t vocab_size, int64_t samples_max,
                         struct feed *out)
{
    *out =
        (struct feed){.mem = mem,
                      .mixture = mixture,
                      .samples_per_step = config->batch_size * config->gradient_accumulation_steps,
                      .block_size = config->block_size,
                      .evaluate_time = config->block_size};
    if (config->eval_block_size > 0)
        out->evaluate_time = config->eval_block_size;
    for (int i = 0; i < mixture->count; i++) {
        TRY(part_open(out, &out->parts[i], config, mixture->parts[i].folder, vocab_size));
        TRY(part_is_new(out, i));
    }
    return tensors_alloc(out, samples_max, config->document_mask);
}

enum gt_status feed_open_val(struct hostmem *mem, const struct config *config, const char *path,
                             int64_t vocab_size, int64_t time, int64_t samples_max,
                             struct feed *out)
{
    const struct token_source_spec spec = {.folder = path,
                                           .paths = &path,
                                           .path_count = file_is_folder(path) ? 0 : 1,
                                           .split = TOKEN_VAL,
                                           .vocab_size = vocab_size,
                                           .block_size = time};
    const struct sampler_spec sampler = {.kind = SAMPLER_EPOCH, .samples_per_step = 1};
    *out = (struct feed){.mem = mem, .block_size = time, .evaluate_time = time};
    if (path[0] != '\0')
        TRY(split_open(out, &out->parts[0], &spec, sampler, TOKEN_VAL));
    return tensors_alloc(out, samples_max, config->document_mask);
}

enum gt_status feed_manifest_check(const struct feed *feed, const struct tokenizer *tokenizer)
{
    for (int i = 0; i < feed->mixture->count; i++) {
        const struct feed_part *part = &feed->parts[i];
        const int64_t tokens[] = {part->source[TOKEN_TRAIN]->length,
                                  part->has_val ? part->source[TOKEN_VAL]->length : 0};
        TRY(manifest_check(feed->mixture->parts[i].folder, tokens, tokenizer));
    }
    return GT_OK;
}

enum gt_status feed_documents_set(struct feed *feed, const struct tokenizer *tokenizer)
{
    feed->tensors.end = tokenizer != NULL ? tokenizer_eot(tokenizer) : -1;
    feed->tensors.ends_twice = chat_kind_of(tokenizer) != CHAT_NONE &&
                               chat_end(tokenizer) == feed->tensors.end; /* Mistral's answers */
    if (feed->tensors.first == NULL || feed->tensors.end >= 0)
        return GT_OK;
    return FAIL(
        GT_USAGE,
        "document_mask=True: documents end at an end-of-text token, and the data's vocabulary has none");
}

/* The samples of each data set are numbered separately, as if the run read nothing else. */
struct token_source *feed_sample(const struct feed *feed, int64_t iter, int64_t sample,
                                 int64_t *out_position)
{
    const struct mixture_place place =
        mixture_place(feed->mixture, iter * feed->samples_per_step + sample);
    const struct feed_part *part = &feed->parts[place.part];
    *out_position =
        sampler_position(part->sampler[TOKEN_TRAIN], place.number / feed->samples_per_step,
                         place.number % feed->samples_per_step);
    return part->source[TOKEN_TRAIN];
}

int64_t feed_targets(const struct feed *feed, int64_t iter)
{
    int64_t count = 0, position;
    for (int64_t i = 0; i < feed->samples_per_step; i++) {
        const struct token_source *source = feed_sample(feed, iter, i, &position);
        count += token_source_mask(source, position + 1, feed->block_size, NULL);
    }
    return count;
}

enum gt_status feed_digest(struct feed *feed, enum token_split split,
                           char text[static DATA_DIGEST_MAX])
{
    uint32_t crc32c = 0, digest;
    int64_t length = 0;
    for (int i = 0; i < feed->mixture->count; i++) {
        TRY(token_source_digest(feed->parts[i].source[split], &digest));
        /* Continued from the first digest, this would be the checksum of an exclusive or, which is
         * the same in any order. */
        crc32c = feed->mixture->count == 1 ? digest : le_crc32c(crc32c, digest);
        length += feed->parts[i].source[split]->length;
    }
    int used = snprintf(text, DATA_DIGEST_MAX, "%" PRId64 " tokens", length);
    for (int i = 0; i < feed->mixture->count && feed->mixture->count > 1; i++)
        used += snprintf(text + used, DATA_DIGEST_MAX - (size_t)used, "%s%.6g",
                         i == 0 ? " in shares " : ":", feed->mixture->parts[i].share);
    snprintf(text + used, DATA_DIGEST_MAX - (size_t)used, ", crc32c:%08" PRIx32, crc32c);
    return GT_OK;
}

enum gt_status feed_upload(const struct feed *feed, struct session *session,
                           const struct program_io *io)
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

/* Loads samples first .. first + io->batch of training step `iter` into the tensors of a training
 * program. */
static enum gt_status feed_train(struct feed *feed, struct session *session,
                                 const struct program_io *io, int64_t iter, int64_t first)
{
    for (int32_t i = 0; i < io->batch; i++) {
        int64_t position;
        struct token_source *source = feed_sample(feed, iter, first + i, &position);
        TRY(batch_sample_read(feed->builder, source, position, feed->block_size, i,
                              &feed->tensors));
    }
    batch_order_build(feed->builder, feed->tensors.ids, io->batch * feed->block_size,
                      feed->tensors.order, feed->tensors.starts);
    return feed_upload(feed, session, io);
}

/* Returns the program of micro-step `k` of a part. */
static const struct program_io *micro_step_io(const struct model *model, int32_t part, int32_t k)
{
    const bool next = model_adds_in_step(&model->options) && part >= model_ranks(&model->options);
    if (k == 0)
        return next ? &model->train_next : &model->train_first;
    bool last = k == model->options.micro_steps - 1;
    return last && model->options.choice.remainder_batch > 0 ? &model->train_remainder
                                                             : &model->train_next;
}

enum gt_status feed_micro_step(struct feed *feed, struct session *session, int64_t iter, int32_t k)
{
    const struct model *model = session->model;
    const struct plan_choice *choice = &model->options.choice;
    const int32_t steps = model->options.micro_steps, part = k / steps, step = k % steps;
    const struct program_io *io = micro_step_io(model, part, step);
    /* Only the last micro-step of a part may be smaller. */
    const int64_t missing =
        choice->remainder_batch > 0 ? choice->micro_batch - choice->remainder_batch : 0;
    const int64_t first = (int64_t)k * choice->micro_batch - part * missing;
    if (ranks_computes(session, k)) {
        session->scalars[SCALAR_SAMPLE_BASE].i = (int32_t)first;
        session->scalars[SCALAR_MICRO_STEP].i = k;
        session->scalars[SCALAR_LOSS_SUM].f = 0.0f;
        TRY(feed_train(feed, session, io, iter, first));
        TRY(session_scalars_set(session));
        TRY(exec_start(session->exec, io->program));
    }
    if (model->part_first < 0 || step < steps - 1)
        return GT_OK; /* there is one part, or the micro-step has added it */
    const int32_t ranks = model_ranks(&model->options);
    if (part % ranks < ranks - 1 || (ranks > 1 && session->dist == NULL))
        return GT_OK; /* the round goes on, or an update is repeated without the other ranks */
    return exec_start(session->exec, part < ranks ? model->part_first : model->part_next);
}

/* ---- evaluation ---- */

/* Returns true if the evaluation takes each sample of the split once: because it has to, or because
 * it would draw as many rows of packed conversations as there are. */
static bool takes_each_once(const struct evaluation *evaluation, enum token_split split)
{
    const struct feed_part *part = &evaluation->feed->parts[evaluation->part];
    return evaluation->samples == 0 ||
           (part->source[split]->row > 0 &&
            evaluation->samples >= sampler_window_count(part->evaluate_sampler[split], true));
}

static enum gt_status feed_evaluate(const struct evaluation *evaluation, enum token_split split,
                                    int64_t first, int64_t count)
{
    struct feed *feed = evaluation->feed;
    const struct feed_part *part = &feed->parts[evaluation->part];
    const struct program_io *io = &evaluation->session->model->evaluate;
    const int64_t time = feed->evaluate_time, used = count * time, rows = (int64_t)io->batch * time;
    assert(count > 0 && count <= io->batch && time == io->time);
    for (int64_t i = 0; i < count; i++) {
        struct sampler_window window = {.ignored = 0};
        if (takes_each_once(evaluation, split))
            window = sampler_window_at(part->evaluate_sampler[split], true, first + i);
        else
            window.position = sampler_position_eval(part->evaluate_sampler[split], split,
                                                    evaluation->iter, first + i);
        TRY(batch_sample_read(feed->builder, part->source[split], window.position, time, i,
                              &feed->tensors));
        batch_targets_ignore(feed->tensors.targets + i * time, window.ignored);
    }
    memset(feed->tensors.ids + used, 0, (size_t)(rows - used) * sizeof(int32_t));
    if (feed->tensors.first != NULL)
        memset(feed->tensors.first + used, 0, (size_t)(rows - used) * sizeof(int32_t));
    batch_targets_ignore(feed->tensors.targets + used, rows - used);
    return feed_upload(feed, evaluation->session, io);
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

/* A batch whose loss is not finite. */
struct bad_batch {
    const struct evaluation *evaluation;
    enum token_split split;
    int64_t first, count;
};

/* A bad_value_again_fn. */
static enum gt_status batch_again(void *context)
{
    const struct bad_batch *bad = context;
    double sum = 0.0;
    TRY(feed_evaluate(bad->evaluation, bad->split, bad->first, bad->count));
    return evaluation_batch_add(bad->evaluation->session, &sum);
}

/* Adds up the losses and the targets of `count` samples. */
static enum gt_status batch_sum(const struct evaluation *evaluation, enum token_split split,
                                int64_t first, int64_t count, double out[static 2])
{
    const struct feed *feed = evaluation->feed;
    struct bad_batch bad = {evaluation, split, first, count};
    TRY(feed_evaluate(evaluation, split, first, count));
    for (int64_t i = 0; i < count * feed->evaluate_time; i++)
        out[1] += feed->tensors.targets[i] != BATCH_TARGET_IGNORED;
    TRY(evaluation_batch_add(evaluation->session, &out[0]));
    if (isfinite(out[0]) || !evaluation->must_be_finite)
        return GT_OK;
    progress_clear(evaluation->progress);
    return bad_value_explain(evaluation->session, "the loss", batch_again, &bad);
}

enum gt_status evaluation_split_sum(const struct evaluation *evaluation, enum token_split split,
                                    const char *what, struct evaluation_sum *out)
{
    struct session *session = evaluation->session;
    struct feed *feed = evaluation->feed;
    const int64_t windows =
        sampler_window_count(feed->parts[evaluation->part].evaluate_sampler[split], true);
    const int64_t most = evaluation->windows > 0 ? min_i64(windows, evaluation->windows) : windows;
    const bool once = takes_each_once(evaluation, split);
    int64_t samples = once ? most : evaluation->samples;
    const int64_t batch = session->model->options.choice.evaluate_batch,
                  start_ns = clock_monotonic_ns();
    const int32_t ranks = session->dist != NULL ? session->dist->ranks : 1;
    const int32_t rank = session->dist != NULL ? session->dist->rank : 0;
    struct evaluation_sum sum = {0};
    for (int64_t first = 0; first < samples; first += ranks * batch) {
        const int64_t count = min_i64(samples - first - rank * batch, batch),
                      done = first + ranks * batch;
        double sums[2] = {0.0, 0.0},
               all[2 * DIST_RANKS_MAX]; /* the losses and the targets of a batch */
        if (stop_requested())
            return GT_STOPPED;
        if (count > 0)
            TRY(batch_sum(evaluation, split, first + rank * batch, count, sums));
        ranks_gather(session->dist, sums, 2, all);
        for (int32_t r = 0; r < ranks; r++) {
            sum.loss += all[2 * r];
            sum.targets += (int64_t)all[2 * r + 1];
        }
        if (sum.targets == 0 && !once && done >= samples && done < DRAWS_MAX * windows)
            samples = done + ranks * batch;
        double each = (double)(clock_monotonic_ns() - start_ns) / 1e9 / (double)done;
        progress_show(evaluation->progress, what, min_i64(done, samples), samples, "",
                      each * (double)max_i64(samples - done, 0));
    }
    if (sum.targets == 0) /* the caller would divide by it */
        return FAIL(GT_DATA,
                    "%s: none of the targets of %" PRId64 " samples counts, so they have no loss",
                    feed->parts[evaluation->part].source[split]->shards[0].path, samples);
    sum.loss = log_number(sum.loss);
    *out = sum;
    return GT_OK;
}
