/* The last step of an export: what was written is read back and judged.
 *
 * First its tensors are compared with the model's, block by block: each type has a bound that no
 * sound encoder exceeds (ggml_block.c).  What that cannot see, such as wrong keys, shows in the
 * loss. Both models, the one before and the one after, compute that of the same tokens on the cpu
 * in float32, one after the other, by the same code that trains.  Tokens come from the beginning of
 * the validation data that the run names.  All of them count, those that the training of
 * conversations ignores too.
 */
#include "judge/export_check.h"

#include <math.h>

#include "base/size.h"
#include "base/system_memory.h"
#include "data/tokenizer_encoder.h"
#include "data/tokens.h"
#include "io/export_compare.h"
#include "io/export_ollama.h"
#include "io/export_options.h"
#include "judge/judge.h"
#include "model/parameters.h"

#define TOKENS_MIN 64
#define WINDOW_MAX 256
#define FLOPS_MODELLED 2e10 /* a second, of a slow processor */
#define SECONDS_MAX 10.0    /* for both models */
#define LOSS_ROUNDING 1e-3  /* of fp32, in sums of other orders */
#define GELU_SHARE 5e-3     /* ten times the largest difference of its two forms, 5e-4 */

/* Public domain: written for this program. */
static const char own_text[] =
    "The river rises in the hills behind the town, where it is no more than a ditch that a child can jump over. By the "
    "time it reaches the mill it carries boats. People have lived here for a long time: they fished, they built a "
    "bridge of wood, and when the flood took it away they built one of stone. In 1842 the railway came. It brought "
    "coal and visitors, and it took away the young, who went to the city to look for work. Some of them wrote "
    "letters. \"You would not believe the noise,\" one of these says, \"but I have learned to sleep through it.\" Today "
    "the station is a library, and on Saturdays there is a market in front of it, with bread, cheese and flowers.\n";

/* Returns true if readers of the format compute another form of GELU than the model. */
static bool gelu_differs(const struct export_options *options)
{
    const struct model_config *config = &options->checkpoint->config;
    return options->format != EXPORT_HF && config->mlp == MLP_GELU && config->gelu != GELU_TANH;
}

/* Returns how much the loss may differ if weights of `share` of the model's size were added to
 * them.
 *
 * Rounding is unrelated to what it is multiplied with, so a product has the error `share` of its
 * own deviation.  A logit is a sum of paths; the longest through a block has four matrices (values,
 * projection, MLP), whose errors add as squares: 2 share.  Sums of paths keep the share.  With
 * logits of deviation S that is d = 2 share S.  A token's loss changes by its own logit's error, d,
 * and because errors make the sum of exponentials larger, by d^2 / 2 at most.  S: where logits are
 * about normal, a softmax over V tokens is certain of one from S = sqrt(2 ln V) on, and no model
 * needs more; a loss above that shows how far apart the logits are.
 */
static double bound_of(const struct export_options *options, double share, double before)
{
    const double tokens = fmax((double)options->checkpoint->config.vocab_size, 2.0);
    const double all = share + (gelu_differs(options) ? GELU_SHARE : 0.0);
    const double deviation = 2.0 * all * fmax(sqrt(2.0 * log(tokens)), before);
    return LOSS_ROUNDING * fmax(1.0, before) + deviation + deviation * deviation / 2.0;
}

/* Reads the first tokens of the run's validation data and names them.  Sets *out_count to 0 if they
 * are not there, or have other ids than the model. */
static enum gt_status tokens_of_run(const struct export_check *check, int64_t most, int32_t *ids,
                                    int64_t *out_count, const char **out_name)
{
    const struct checkpoint *checkpoint = check->options->checkpoint;
    const char *dataset =
        json_string_value(json_object_get(checkpoint->record.state.configuration, "dataset"));
    bool exists = false;
    struct token_source *source;
    *out_count = 0;
    if (dataset == NULL || strpbrk(dataset, ":,") != NULL)
        return GT_OK;
    const char *folder = file_is_folder(dataset) ? dataset : FILE_IN("data", dataset);
    TRY(token_split_exists(folder, TOKEN_VAL, &exists));
    if (!exists)
        return GT_OK;
    const struct token_source_spec spec = {.folder = folder, .split = TOKEN_VAL};
    TRY(token_source_open(check->options->mem, &spec, &source));
    const int64_t count = source->length < most ? source->length : most;
    enum gt_status status = token_source_read(source, 0, count, ids);
    *out_name =
        source->row > 0 ? "the validation data, prompts and answers" : "the validation data";
    *out_count = count;
    for (int64_t i = 0; status == GT_OK && i < count; i++)
        *out_count = ids[i] < checkpoint->config.vocab_size ? *out_count : 0;
    hostmem_free(source);
    return status;
}

static enum gt_status tokens_of_text(const struct export_check *check, int64_t most, int32_t *ids,
                                     int64_t *out_count)
{
    const struct tokenizer *tokenizer = check->options->tokenizer;
    struct tokenizer_encoder *encoder;
    struct tokenizer_fault fault;
    int32_t *all;
    size_t count = 0;
    *out_count = 0;
    if (tokenizer == NULL)
        return GT_OK;
    TRY(tokenizer_encoder_create(check->options->mem, tokenizer, &encoder));
    enum gt_status status = HOSTMEM_NEW(
        encoder, sizeof own_text * (size_t)tokenizer_pipeline(tokenizer)->growth, "tokens", &all);
    if (status == GT_OK &&
        tokenizer_encoder_run(encoder, own_text, sizeof own_text - 1, TOKENIZER_SPECIAL_AS_TEXT,
                              all, &count, &fault) == GT_OK)
        *out_count = (int64_t)count < most
                         ? (int64_t)count
                         : most; /* else it has characters that the vocabulary lacks */
    if (*out_count > 0)
        memcpy(ids, all, (size_t)*out_count * sizeof ids[0]);
    hostmem_free(encoder);
    return status;
}

/* Each model has a heap of its own, since no memory can be allocated once a session has started. */
static enum gt_status loss_of(const char *model, int64_t window, const int32_t *ids, int64_t count,
                              double *out)
{
    struct hostmem *mem;
    TRY(hostmem_create(&mem));
    const enum gt_status status = judge_ids(mem, model, window, ids, count, out);
    hostmem_destroy(mem);
    return status;
}

static enum gt_status losses_compare(const struct export_check *check, const char *exported,
                                     double share, const char *name, const int32_t *ids,
                                     int64_t count)
{
    const struct model_config *config = &check->options->checkpoint->config;
    const int64_t most = config->sliding_window > 0 ? config->sliding_window : WINDOW_MAX;
    const int64_t limit = min_i64(min_i64(config->block_size, WINDOW_MAX), most);
    const int64_t window = count - 1 < limit ? count - 1 : limit;
    double before, after;
    TRY(loss_of(check->model, window, ids, count, &before));
    TRY(loss_of(exported, window, ids, count, &after));
    log_result("%s: loss %.4f, the model's is %.4f (%+.4f, %" PRId64 " tokens of %s)", exported,
               after, before, after - before, (count - 1) / window * window, name);
    const double bound = bound_of(check->options, share, before);
    if (fabs(after - before) <= bound)
        return GT_OK;
    return FAIL(
        GT_FAILURE,
        "%s: the loss differs by more than %.3g, which the type of the weights does not explain; do not use this "
        "file, and report it with the model's config.json",
        exported, bound);
}

enum gt_status export_check_run(const struct export_check *check)
{
    const struct export_options *options = check->options;
    const bool ollama = options->format == EXPORT_OLLAMA;
    const char *exported = ollama ? FILE_IN(options->output, EXPORT_OLLAMA_MODEL) : options->output;
    const uint64_t parameters = (uint64_t)model_parameter_count(&options->checkpoint->config),
                   bytes = parameters * sizeof(float);
    const double affordable = SECONDS_MAX * FLOPS_MODELLED / (4.0 * (double)parameters);
    uint64_t total = 0, free_bytes = 0;
    double share;
    int64_t count = 0,
            most = affordable < (double)check->tokens ? (int64_t)affordable : check->tokens;
    int32_t *ids;
    if (options->format == EXPORT_PEFT || options->format == EXPORT_GGUF_LORA || check->tokens == 0)
        return GT_OK;
    TRY(export_compare(options, exported, &share));
    if (system_memory_read(&total, &free_bytes) && bytes > free_bytes / 2) {
        log_note("not evaluated: its weights take %s in float32, and %s of memory are free",
                 LOG_BYTES(bytes), LOG_BYTES(free_bytes));
        return GT_OK;
    }
    most = most > TOKENS_MIN ? most : TOKENS_MIN;
    TRY(HOSTMEM_NEW(options->mem, (size_t)most + 1, "tokens to evaluate", &ids));
    const char *name;
    enum gt_status status = tokens_of_run(check, most + 1, ids, &count, &name);
    if (count < 2) {
        name = "our own text";
        THEN(status, tokens_of_text(check, most + 1, ids, &count));
    }
    if (status == GT_OK && count < 2)
        log_note(
            "not evaluated: the run's validation data are not here, and there is no tokenizer for another text");
    else
        THEN(status, losses_compare(check, exported, share, name, ids, count));
    hostmem_free(ids);
    return status;
}
