/* The perplexity of a token file.
 *
 * Windows of T tokens pass over the file so that every token but the first of a shard is predicted once.  The loss is
 * the mean over them in fp64, as evaluations with eval_iters=0 compute it.  Bits per byte divide the same sum by the
 * number of bytes that these tokens encode, according to the tokenizer next to the file or the model's; special tokens
 * encode none.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "data/batch.h"
#include "data/sampler.h"
#include "data/tokenizer.h"
#include "data/tokens.h"
#include "train/judge_internal.h"
#include "train/stop.h"

#define READ_COUNT 4096

struct text {
    struct judge *judge;
    struct token_source *source;
    struct sampler *sampler;
    struct batch_builder *builder;
    struct tokenizer *tokenizer; /* NULL: unknown */
    int64_t *positions;          /* [B] */
};

static enum gt_status source_open(struct text *text)
{
    struct judge *judge = text->judge;
    const char *path = judge->config->eval_data;
    const bool folder = file_is_folder(path);
    const struct token_source_spec spec = {.folder = path,
                                           .paths = &path,
                                           .path_count = folder ? 0 : 1,
                                           .split = TOKEN_VAL,
                                           .vocab_size = judge->source.checkpoint->config.vocab_size,
                                           .block_size = judge->time};
    void *array;
    TRY(token_source_open(judge->mem, &spec, &text->source));
    const struct sampler_spec sampler = {
        .source = text->source, .kind = SAMPLER_EPOCH, .block_size = judge->time, .samples_per_step = 1};
    TRY(sampler_create(judge->mem, &sampler, &text->sampler));
    TRY(batch_builder_create(judge->mem, judge->batch * judge->time, judge->time, &text->builder));
    TRY(hostmem_alloc(judge->mem, (size_t)judge->batch, sizeof(int64_t), "sample positions", &array));
    text->positions = array;
    return GT_OK;
}

/* Opens the tokenizer next to the tokens, else the one next to the model. */
static enum gt_status tokenizer_find(struct text *text)
{
    struct judge *judge = text->judge;
    char folder[FILE_PATH_MAX];
    memcpy(folder, judge->config->eval_data, strlen(judge->config->eval_data) + 1);
    char *slash = strrchr(folder, '/');
    bool exists;
    TRY(file_look(folder, &exists));
    if (!file_is_folder(folder) && slash != NULL)
        *slash = '\0';
    else if (!file_is_folder(folder))
        memcpy(folder, ".", 2);
    TRY(tokenizer_open_dataset(judge->mem, folder, &text->tokenizer));
    if (text->tokenizer == NULL && file_is_folder(judge->folder))
        TRY(tokenizer_open_dataset(judge->mem, judge->folder, &text->tokenizer));
    if (text->tokenizer == NULL)
        log_note("%s: no %s beside the tokens or the model, so bits per byte are not known", judge->config->eval_data,
                 TOKENIZER_FILE_NAME);
    return GT_OK;
}

/* Excludes rows of the batch beyond `count` sequences, and targets that the previous window has counted. */
static void targets_mask(struct text *text, int64_t first, int64_t count, int64_t *targets)
{
    struct judge *judge = text->judge;
    const int64_t used = count * judge->time, rows = judge->batch * judge->time;
    memset(judge->ids + used, 0, (size_t)(rows - used) * sizeof *judge->ids);
    batch_targets_ignore(judge->targets + used, rows - used);
    for (int64_t i = 0; i < count; i++) {
        const int64_t ignored = sampler_window_at(text->sampler, true, first + i).ignored;
        batch_targets_ignore(judge->targets + i * judge->time, ignored);
        *targets += judge->time - ignored;
    }
}

static enum gt_status losses_sum(struct text *text, double *out_sum, int64_t *out_targets)
{
    struct judge *judge = text->judge;
    const int64_t windows = sampler_window_count(text->sampler, true);
    const struct batch_tensors tensors = {.ids = judge->ids, .targets = judge->targets};
    *out_sum = 0.0;
    *out_targets = 0;
    for (int64_t first = 0; first < windows; first += judge->batch) {
        const int64_t count = windows - first < judge->batch ? windows - first : judge->batch;
        if (stop_requested())
            return GT_STOPPED;
        for (int64_t i = 0; i < count; i++)
            text->positions[i] = sampler_window_at(text->sampler, true, first + i).position;
        TRY(batch_fill(text->builder, text->source, text->positions, count, judge->time, &tensors));
        targets_mask(text, first, count, out_targets);
        TRY(judge_batch_add(judge, out_sum));
        progress_show(&judge->progress, "evaluate", first + count, windows, "", -1.0);
    }
    progress_clear(&judge->progress);
    return GT_OK;
}

static size_t token_bytes(const struct tokenizer *tokenizer, int32_t id)
{
    char scratch[4];
    const char *bytes;
    return id == tokenizer_eot(tokenizer) ? 0 : tokenizer_token_bytes(tokenizer, id, scratch, &bytes);
}

/* Adds up the bytes of all targets: of every token but the first of each shard that is long enough. */
static enum gt_status bytes_sum(const struct text *text, double *out)
{
    int32_t ids[READ_COUNT];
    double sum = 0.0;
    for (size_t shard = 0; shard < token_source_shard_count(text->source); shard++) {
        const int64_t length = token_source_shard_length(text->source, shard);
        const int64_t first = token_source_shard_first(text->source, shard);
        if (length <= text->judge->time)
            continue;
        for (int64_t at = 1; at < length; at += READ_COUNT) {
            const int64_t count = length - at < READ_COUNT ? length - at : READ_COUNT;
            TRY(token_source_read(text->source, first + at, count, ids));
            for (int64_t i = 0; i < count; i++)
                sum += (double)token_bytes(text->tokenizer, ids[i]);
        }
    }
    *out = sum;
    return GT_OK;
}

static enum gt_status text_judge(struct text *text)
{
    const char *path = text->judge->config->eval_data;
    double sum, bytes = 0.0;
    int64_t targets;
    TRY(source_open(text));
    TRY(tokenizer_find(text));
    TRY(losses_sum(text, &sum, &targets));
    if (text->tokenizer != NULL)
        TRY(bytes_sum(text, &bytes));
    const double loss = sum / (double)targets;
    if (bytes > 0.0)
        log_result("%s: %" PRId64 " tokens, loss %.6f, perplexity %.6g, %.0f bytes, bits per byte %.6f", path, targets,
                   loss, exp(loss), bytes, sum / log(2.0) / bytes);
    else
        log_result("%s: %" PRId64 " tokens, loss %.6f, perplexity %.6g", path, targets, loss, exp(loss));
    return GT_OK;
}

enum gt_status judge_text(struct judge *judge)
{
    struct text text = {.judge = judge};
    enum gt_status status = text_judge(&text);
    hostmem_free(judge->mem, text.positions);
    tokenizer_destroy(text.tokenizer);
    batch_builder_destroy(text.builder);
    sampler_destroy(text.sampler);
    token_source_close(text.source);
    return status;
}
