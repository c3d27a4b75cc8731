/* Judges a model: the perplexity of a token file, and how often it chooses the right answer of a
 * question.
 *
 * The session has only the evaluation program, with eval_batch_size sequences at once.  A token
 * file is evaluated as with eval_iters=0: every token but the first of a shard is predicted once.
 * Bits per byte divide the same sum of losses by the number of bytes that these tokens encode;
 * special tokens encode none.
 *
 * An answer's loss is the sum of the losses of its tokens after the context, and its mean loss is
 * that divided by their number.  The model chooses the answer with the smallest mean loss, which is
 * called "accuracy norm" and is what llm.c prints, or the smallest sum.  Ties go to the first
 * answer.  One answer is one sequence; the other rows are ignored.
 */
#include "judge/judge.h"

#include <math.h>

#include "base/progress.h"
#include "base/size.h"
#include "config/config_args.h"
#include "config/config_key.h"
#include "data/questions.h"
#include "session/bad_value.h"
#include "session/restore_weights.h"
#include "session/session_open.h"
#include "session/session_start.h"
#include "session/stop.h"
#include "session/watchdog.h"
#include "train/feed.h"

/* Default number of sequences at once.  More gain little, since one sequence is already a whole
 * matrix of rows. */
#define BATCH_DEFAULT 4
#define LOSS_CHUNK_ROWS 256
#define READ_COUNT 4096

struct judge {
    struct hostmem *mem;
    const struct config *config;
    struct restore_source source;
    struct session session;
    struct watchdog watchdog;
    struct progress progress;
    struct feed feed;
    struct tokenizer *tokenizer; /* NULL: unknown */
    char folder[FILE_PATH_MAX];  /* of the model's tokenizer */
    int64_t batch, time;         /* B and T of the evaluation program */
};

/* Chooses the length of the sequences and crops the model's context to it, as a run does:
 * block_size if it is set, else that of the checkpoint's run, else the default; a table of
 * positions is used whole. */
static enum gt_status time_choose(struct judge *judge, struct model_config *model)
{
    const struct config *config = judge->config;
    const struct checkpoint *checkpoint = judge->source.checkpoint;
    const json_t *before = json_object_get(checkpoint->record.state.configuration, "block_size");
    const bool set = config_key_was_set(config, CONFIG_KEY_block_size),
               rope = model->position == POSITION_ROPE;
    const int64_t usual = json_is_integer(before) ? json_integer_value(before) : config->block_size;
    const char *key = config->eval_block_size > 0 ? "eval_block_size" : "block_size";
    judge->time = set    ? config->block_size
                  : rope ? min_i64(usual, model->block_size)
                         : model->block_size;
    if (config->eval_block_size > 0)
        judge->time = config->eval_block_size;
    if (judge->time > model->block_size && !rope)
        return FAIL(GT_USAGE, "%s=%" PRId64 " is larger than the model's block_size, %" PRId32, key,
                    judge->time, model->block_size);
    if (judge->time > model->block_size)
        log_warning("%s=%" PRId64 " is more than the %" PRId32
                    " positions that the model was made for",
                    key, judge->time, model->block_size);
    model->block_size = rope ? (int32_t)judge->time : model->block_size;
    return GT_OK;
}

static enum gt_status model_load(struct judge *judge)
{
    const struct config *config = judge->config;
    if (strcmp(config->init_from, "scratch") == 0)
        return FAIL(
            GT_USAGE,
            "%s measures a trained model; add --init_from=resume, or --init_from with a folder or file",
            config->eval_data[0] != '\0' ? "eval_data" : "hellaswag");
    TRY(restore_open_weights(judge->mem, config, &judge->source));
    struct model_config model = judge->source.checkpoint->config;
    TRY(time_choose(judge, &model));
    judge->batch = config->hellaswag[0] != '\0' ? 1 : BATCH_DEFAULT;
    if (config->eval_batch_size > 0)
        judge->batch = config->eval_batch_size;
    TRY(session_open(judge->mem, config, &judge->session));
    const struct model_options options = {
        .config = model,
        .dtype = judge->session.device.dtype,
        .evaluate = true,
        .document_mask = config->document_mask,
        .choice.evaluate_batch = (int32_t)judge->batch,
        .evaluate_time = (int32_t)judge->time,
        .choice.loss_chunk_rows = (int32_t)min_i64(judge->batch * judge->time, LOSS_CHUNK_ROWS),
    };
    TRY(session_plan(&judge->session, &options));
    TRY(watchdog_start(&judge->watchdog, judge->mem, judge->session.device.backend, judge->folder,
                       config->watchdog));
    TRY(session_start(&judge->session));
    exec_waits_set(judge->session.exec,
                   config->watchdog > 0); /* so that the watchdog can name an op */
    return restore_weights(&judge->session, &judge->source, 0);
}

/* ---- the perplexity of a token file ---- */

/* Opens the tokenizer next to the tokens, else the one next to the model. */
static enum gt_status judge_tokenizer_find(struct judge *judge)
{
    const char *path = judge->config->eval_data;
    char folder[FILE_PATH_MAX];
    bool exists;
    TRY(file_stat_exists(path, &exists));
    file_folder_of(folder, path);
    TRY(tokenizer_open_dataset(judge->mem, file_is_folder(path) ? path : folder,
                               &judge->tokenizer));
    TRY(restore_tokenizer_check(judge->mem, judge->config, &judge->source, judge->tokenizer, path));
    if (judge->tokenizer == NULL && file_is_folder(judge->folder))
        TRY(tokenizer_open_dataset(judge->mem, judge->folder, &judge->tokenizer));
    if (judge->tokenizer == NULL)
        log_note("%s: no %s next to the tokens or the model, so bits per byte are not known", path,
                 TOKENIZER_FILE_NAME);
    return GT_OK;
}

/* Adds up the bytes of those of the first `targets` targets that count.  Targets are all tokens but
 * the first of each shard that is long enough. */
static enum gt_status bytes_sum(const struct judge *judge, int64_t targets, double *out)
{
    struct token_source *source = judge->feed.parts[0].source[TOKEN_VAL];
    const int32_t eot = tokenizer_eot(judge->tokenizer);
    int32_t ids[READ_COUNT];
    char scratch[4];
    const char *bytes;
    double sum = 0.0;
    for (size_t shard = 0; shard < source->shard_count; shard++) {
        const int64_t length = min_i64(source->shards[shard].length - 1, targets) + 1;
        const int64_t first = source->shards[shard].first;
        if (source->shards[shard].length <= judge->time)
            continue;
        targets -= length - 1;
        for (int64_t at = 1; at < length; at += READ_COUNT) {
            const int64_t count = min_i64(length - at, READ_COUNT);
            TRY(token_source_read(source, first + at, count, ids));
            (void)token_source_mask(source, first + at, count,
                                    ids); /* what does not count has no bytes */
            for (int64_t i = 0; i < count; i++)
                sum += ids[i] == eot ? 0.0
                                     : (double)tokenizer_token_bytes(judge->tokenizer, ids[i],
                                                                     scratch, &bytes);
        }
    }
    *out = sum;
    return GT_OK;
}

/* Prints loss, perplexity and bits per byte of all tokens of eval_data. */
static enum gt_status text_judge(struct judge *judge)
{
    const char *path = judge->config->eval_data;
    const struct evaluation evaluation = {
        .session = &judge->session,
        .feed = &judge->feed,
        .progress = &judge->progress,
        .windows = size_ceil_div(judge->config->eval_tokens, judge->time),
        .must_be_finite = true};
    struct evaluation_sum sum;
    double bytes = 0.0;
    TRY(judge_tokenizer_find(judge));
    TRY(feed_documents_set(&judge->feed, judge->tokenizer));
    TRY(evaluation_split_sum(&evaluation, TOKEN_VAL, "evaluate", &sum));
    progress_clear(&judge->progress);
    if (judge->tokenizer != NULL)
        TRY(bytes_sum(judge, evaluation.windows > 0 ? evaluation.windows * judge->time : INT64_MAX,
                      &bytes));
    const double loss = sum.loss / (double)sum.targets;
    log_result("%s: %" PRId64 " tokens, loss %.6f, perplexity %.6g%s", path, sum.targets, loss,
               exp(loss),
               bytes > 0.0 ? TEXT(96, ", %.0f bytes, bits per byte %.6f", bytes,
                                  sum.loss / log(2.0) / bytes)
                           : "");
    return GT_OK;
}

/* ---- questions ---- */

/* Writes context and answer into the first sequence: row t predicts token t + 1, and only the
 * answer's tokens count. */
static enum gt_status row_fill(const struct judge *judge, const struct question *question,
                               int64_t number, int32_t answer)
{
    const struct question_tokens *context = &question->context,
                                 *tokens = &question->answers[answer];
    const int64_t count = (int64_t)context->count + tokens->count;
    int32_t *ids = judge->feed.tensors.ids, *targets = judge->feed.tensors.targets;
    if (count - 1 > judge->time)
        return FAIL(GT_DATA,
                    "%s: question %" PRId64 " has %" PRId64 " tokens with answer %" PRId32
                    ", more than the %" PRId64 " that the model takes",
                    judge->config->hellaswag, number, count, answer, judge->time + 1);
    memset(ids, 0, (size_t)(judge->batch * judge->time) * sizeof *ids);
    batch_targets_ignore(targets, judge->batch * judge->time);
    if (judge->feed.tensors.first != NULL)
        memset(judge->feed.tensors.first, 0, (size_t)(judge->batch * judge->time) * sizeof *ids);
    for (int64_t i = 0; i + 1 < count; i++)
        ids[i] = i < context->count ? context->at[i] : tokens->at[i - context->count];
    for (int32_t i = 0; i < tokens->count; i++)
        targets[context->count - 1 + i] = tokens->at[i];
    return GT_OK;
}

/* A row to be evaluated. */
struct row {
    struct judge *judge;
    const struct question *question;
    int64_t number;
    int32_t answer;
    double loss;
};

/* Sets the loss of a row.  A bad_value_again_fn. */
static enum gt_status row_evaluate(void *context)
{
    struct row *row = context;
    struct judge *judge = row->judge;
    row->loss = 0.0;
    TRY(row_fill(judge, row->question, row->number, row->answer));
    TRY(feed_upload(&judge->feed, &judge->session, &judge->session.model->evaluate));
    return evaluation_batch_add(&judge->session, &row->loss);
}

/* Finds the answer with the smallest loss per token, and the one with the smallest loss. */
static enum gt_status question_answer(struct judge *judge, const struct question *question,
                                      int64_t number, int32_t *out_mean, int32_t *out_sum)
{
    double least_mean = INFINITY, least_sum = INFINITY;
    for (int32_t answer = 0; answer < question->answer_count; answer++) {
        struct row row = {judge, question, number, answer, 0.0};
        TRY(row_evaluate(&row));
        if (!isfinite(row.loss))
            return bad_value_explain(&judge->session,
                                     TEXT(64, "the loss of question %" PRId64, number),
                                     row_evaluate, &row);
        const double sum = row.loss, mean = sum / question->answers[answer].count;
        if (mean < least_mean) {
            least_mean = mean;
            *out_mean = answer;
        }
        if (sum < least_sum) {
            least_sum = sum;
            *out_sum = answer;
        }
    }
    return GT_OK;
}

/* Prints how many questions the model answers correctly. */
static enum gt_status questions_judge(struct judge *judge, struct questions *questions)
{
    const int64_t count = questions_count(questions);
    int64_t right_mean = 0, right_sum = 0;
    for (int64_t i = 0; i < count; i++) {
        struct question question;
        int32_t mean = 0, sum = 0;
        if (stop_requested())
            return GT_STOPPED;
        TRY(questions_next(questions, &question));
        TRY(question_answer(judge, &question, i, &mean, &sum));
        right_mean += mean == question.right;
        right_sum += sum == question.right;
        progress_show(&judge->progress, "questions", i + 1, count, "", -1.0);
    }
    progress_clear(&judge->progress);
    log_result("%s: accuracy norm %" PRId64 "/%" PRId64 " = %.6f, accuracy %" PRId64 "/%" PRId64
               " = %.6f",
               judge->config->hellaswag, right_mean, count, (double)right_mean / (double)count,
               right_sum, count, (double)right_sum / (double)count);
    return GT_OK;
}

static enum gt_status judge_all(struct judge *judge)
{
    const struct config *config = judge->config;
    struct questions *questions;
    TRY(model_load(judge));
    stop_install();
    const int64_t vocab_size = judge->source.checkpoint->config.vocab_size;
    TRY(feed_open_val(judge->mem, config, config->eval_data, vocab_size, judge->time, judge->batch,
                      &judge->feed));
    if (config->eval_data[0] != '\0')
        TRY(text_judge(judge));
    if (config->hellaswag[0] == '\0')
        return GT_OK;
    TRY(questions_open(judge->mem, config->hellaswag, vocab_size, &questions));
    return questions_judge(judge, questions);
}

/* ---- tokens in memory ---- */
static enum gt_status ids_judge(struct judge *judge, const int32_t *ids, int64_t count, double *out)
{
    double sum = 0.0;
    int64_t targets = 0;
    TRY(model_load(judge));
    const int64_t vocab_size = judge->source.checkpoint->config.vocab_size;
    TRY(feed_open_val(judge->mem, judge->config, "", vocab_size, judge->time, judge->batch,
                      &judge->feed));
    for (int64_t first = 0; first + judge->time < count;
         first += judge->time, targets += judge->time) {
        const size_t bytes = (size_t)judge->time * sizeof ids[0];
        memcpy(judge->feed.tensors.ids, ids + first, bytes);
        memcpy(judge->feed.tensors.targets, ids + first + 1, bytes);
        TRY(feed_upload(&judge->feed, &judge->session, &judge->session.model->evaluate));
        TRY(evaluation_batch_add(&judge->session, &sum));
    }
    *out = sum / (double)targets;
    return GT_OK;
}

enum gt_status judge_ids(struct hostmem *mem, const char *model, int64_t window, const int32_t *ids,
                         int64_t count, double *out)
{
    struct config *config;
    char from[FILE_PATH_MAX + 16], time[32];
    TRY(HOSTMEM_NEW(mem, 1, "configuration", &config));
    struct judge judge = {.mem = mem, .config = config};
    (void)snprintf(from, sizeof from, "--init_from=%s%s", strchr(model, '/') != NULL ? "" : "./",
                   model);
    (void)snprintf(time, sizeof time, "--block_size=%" PRId64, window);
    char *const arguments[] = {"judge",          from, time, "--eval_batch_size=1", "--backend=cpu",
                               "--dtype=float32"};
    config_defaults(config, CONFIG_TRAIN);
    TRY(config_parse_args(config, sizeof arguments / sizeof arguments[0], arguments));
    snprintf(judge.folder, sizeof judge.folder, "%s", model);
    progress_init(&judge.progress);
    const enum gt_status status = ids_judge(&judge, ids, count, out);
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    session_close(&judge.session);
    ticker_stop(judge.watchdog.ticker);
    return status;
}

enum gt_status judge_run(struct hostmem *mem, const struct config *config)
{
    struct judge judge = {.mem = mem, .config = config};
    const bool resume = strcmp(config->init_from, "resume") == 0;
    snprintf(judge.folder, sizeof judge.folder, "%s", resume ? config->out_dir : config->init_from);
    progress_init(&judge.progress);
    enum gt_status status = judge_all(&judge);
    progress_clear(&judge.progress);
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    session_close(&judge.session);
    ticker_stop(judge.watchdog.ticker);
    return status;
}
