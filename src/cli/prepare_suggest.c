/* Suggests what to train on a data set.
 *
 * Size: a model needs about 20 tokens per parameter (Hoffmann et al. 2022, "Training Compute-Optimal Large Language
 * Models"), so the amount of text limits the size; a small text is repeated for several epochs.  Time: 6 FLOPs per
 * parameter and token, plus attention, at a rate that processors reach with small models.  gpt-prepare does not look
 * for cards; `gpt-train --plan` does.
 */
#include "cli/prepare_suggest.h"

#include "base/clock.h"
#include "base/thread.h"

#define TOKENS_PER_PARAMETER 20.0
#define EPOCHS_MAX 40.0
#define HOURS_MAX 8.0
/* Measured in a step of the tiny model on one processor with AVX2; see doc/own_text.md. */
#define PROCESSOR_FLOPS 30e9
#define ITERATIONS_MIN 100.0

struct model_size {
    const char *name;
    int n_layer, n_head, n_embd, block_size, batch_size, accumulation;
    const char *learning_rate, *min_lr;
};

static const struct model_size sizes[] = {
    {"tiny", 4, 4, 128, 128, 16, 1, "1e-3", "1e-4"},
    {"small", 6, 6, 192, 256, 16, 1, "1e-3", "1e-4"},
    {"medium", 6, 6, 384, 256, 32, 1, "1e-3", "1e-4"},
    {"large", 8, 8, 512, 512, 32, 1, "6e-4", "6e-5"},
    {"GPT-2 small", 12, 12, 768, 1024, 12, 40, "6e-4", "6e-5"},
};

/* The cost of training a model of one size. */
struct training {
    double parameters, tokens, iterations, seconds;
};

static struct training training_of(const struct model_size *size, const struct prepare_result *result, int processors)
{
    const double channels = size->n_embd, vocab = (double)result->vocab_size;
    const double matrices = 12 * channels * channels * size->n_layer + vocab * channels;
    const double flops = 6 * matrices + 12 * channels * size->block_size * size->n_layer; /* per token */
    const double update = (double)size->batch_size * size->block_size * size->accumulation;
    const double repeated = EPOCHS_MAX * (double)result->train_tokens, rate = PROCESSOR_FLOPS * processors;
    struct training training = {.parameters = matrices + channels * size->block_size};
    training.tokens = TOKENS_PER_PARAMETER * training.parameters;
    training.tokens = training.tokens < repeated ? training.tokens : repeated;
    if (size == sizes && training.tokens * flops > HOURS_MAX * 3600 * rate) /* there is no smaller size */
        training.tokens = HOURS_MAX * 3600 * rate / flops;
    training.iterations = training.tokens / update;
    if (training.iterations < ITERATIONS_MIN)
        training.iterations = ITERATIONS_MIN;
    training.seconds = training.iterations * update * flops / rate;
    return training;
}

/* Returns the largest size that the text suffices for. */
static size_t size_for_text(const struct prepare_result *result)
{
    size_t i = sizeof sizes / sizeof sizes[0] - 1;
    while (i > 0 && TOKENS_PER_PARAMETER * training_of(&sizes[i], result, 1).parameters > (double)result->train_tokens)
        i--;
    return i;
}

/* Rounds an estimate to two significant digits: 8,013 -> 8,000. */
static int64_t rounded(double value)
{
    int64_t unit = 1;
    while (value / (double)unit >= 100)
        unit *= 10;
    return (int64_t)(value / (double)unit + 0.5) * unit;
}

static void command_print(const char *out_dir, const struct model_size *size, int64_t block_size, int64_t iterations,
                          bool is_chat)
{
    char path[FILE_PATH_MAX], dataset[FILE_PATH_MAX + 2], folder[FILE_PATH_MAX + 8], quoted[2][FILE_PATH_MAX];
    if (file_trim(path, out_dir) != GT_OK)
        return;
    const char *name = file_name_of(path);
    const bool in_data = name == path + 5 && strncmp(path, "data/", 5) == 0;
    /* gpt-train would look for a name without a slash below data/. */
    snprintf(dataset, sizeof dataset, "%s%s", name == path ? "./" : "", in_data ? name : path);
    snprintf(folder, sizeof folder, "out-%s", name);
    log_result("  gpt-train --dataset=%s --out_dir=%s \\", file_shell_quote(quoted[0], sizeof quoted[0], dataset),
               file_shell_quote(quoted[1], sizeof quoted[1], folder));
    log_result("    --n_layer=%d --n_head=%d --n_embd=%d --block_size=%" PRId64 " --batch_size=%d \\", size->n_layer,
               size->n_head, size->n_embd, block_size, size->batch_size);
    log_result("    --gradient_accumulation_steps=%d --max_iters=%" PRId64 " --lr_decay_iters=%" PRId64 " \\",
               size->accumulation, iterations, iterations);
    log_result("    --learning_rate=%s --min_lr=%s --warmup_iters=%" PRId64 " \\", size->learning_rate, size->min_lr,
               iterations / 20);
    log_result("    --eval_interval=%" PRId64 " --eval_iters=20%s", iterations / 10,
               is_chat ? " --document_mask=True" : "");
}

void prepare_suggest(const char *out_dir, const struct prepare_result *result)
{
    const int processors = thread_count_available();
    const size_t most = size_for_text(result);
    size_t chosen = most;
    struct training training = training_of(&sizes[chosen], result, processors);
    while (chosen > 0 && training.seconds > HOURS_MAX * 3600)
        training = training_of(&sizes[--chosen], result, processors);
    const struct model_size *size = &sizes[chosen];
    int64_t block_size = size->block_size;
    const int64_t val = result->val_tokens > 0 ? result->val_tokens : result->train_tokens;
    const int64_t shorter = val < result->train_tokens ? val : result->train_tokens;
    block_size = block_size < shorter ? block_size : shorter - 1;
    block_size = result->row_tokens > 0 ? result->row_tokens : block_size;
    if (block_size < 1) {
        log_result("this is too little text to train on");
        return;
    }
    char duration[32];
    log_result("a model for this text and %d processor%s: %s, %.1f million parameters, about %s", processors,
               processors == 1 ? "" : "s", size->name, training.parameters * 1e-6,
               clock_duration(duration, (double)rounded(training.seconds)));
    command_print(out_dir, size, block_size, rounded(training.iterations), result->row_tokens > 0);
    log_result("(the time is an estimate; with --plan the command tells memory and time)");
    if (chosen < most)
        log_result("on a graphics card, this text is enough for %.0f million parameters: --n_layer=%d --n_head=%d "
                   "--n_embd=%d --block_size=%d",
                   training_of(&sizes[most], result, processors).parameters * 1e-6, sizes[most].n_layer,
                   sizes[most].n_head, sizes[most].n_embd, sizes[most].block_size);
}
