/* The defaults of fine-tuning (finetune.def), and the length of a run in epochs.
 *
 * nanoGPT's defaults pretrain a GPT-2: 600,000 iterations, an evaluation every 2,000.  A run that
 * tunes a model gets the defaults that other programs use for that.  Messages name their origin.  A
 * checkpoint stores them like any other value, so that a resumed run needs none of this.
 *
 * The rows of an epoch are counted as the sampler counts them, in the data set's files.
 */
#include "session/finetune.h"

#include <math.h>

#include "base/size.h"
#include "config/config_key.h"
#include "config/config_lex.h"
#include "config/config_value.h"
#include "data/sampler.h"
#include "data/tokenizer.h"
#include "session/session.h"

#define ROWS_OF_UPDATE 16
#define EVALUATIONS_AN_EPOCH 2
/* One of this many rows between two evaluations is evaluated, in each split. */
#define EVALUATION_SHARE 8
#define EVALUATION_ROWS_MIN 8
#define DEFAULTS_TEXT_MAX 640

static const char origin_text[] = "a default of fine-tuning";
static const struct config_origin origin = {.source = origin_text};

/* Returns true if the key has its default of fine-tuning. */
static bool is_default(const struct config *config, enum config_key key)
{
    return config->origin[key].source == origin_text;
}

/* ---- the data ---- */

/* What the data sets have in common, and their sum. */
struct data_facts {
    bool exist;   /* all of them are there */
    bool ends;    /* their tokenizer has an end-of-text token */
    int64_t row;  /* tokens of a row of packed conversations; 0: there are none */
    int64_t rows; /* of an epoch */
};

/* Adds the rows of block_size tokens that the training split of `folder` has; 0 counts none. */
static enum gt_status part_add(struct hostmem *mem, const char *folder, int64_t block_size,
                               struct data_facts *facts)
{
    const struct token_source_spec spec = {
        .folder = folder, .split = TOKEN_TRAIN, .block_size = block_size};
    struct sampler_spec walk = {
        .kind = SAMPLER_EPOCH, .block_size = block_size, .samples_per_step = 1};
    struct token_source *source = NULL;
    struct sampler *sampler = NULL;
    TRY(token_source_open(mem, &spec, &source));
    enum gt_status status = GT_OK;
    facts->row = max_i64(facts->row, source->row);
    walk.source = source;
    if (block_size > 0)
        status = sampler_create(mem, &walk, &sampler);
    if (status == GT_OK && sampler != NULL)
        facts->rows += sampler_window_count(sampler, false);
    hostmem_free(sampler);
    hostmem_free(source);
    return status;
}

/* Only a plan can do without the data. */
static enum gt_status data_facts_read(struct hostmem *mem, const struct config *config,
                                      const struct mixture *mixture, int64_t block_size,
                                      struct data_facts *out)
{
    const bool plans = config->plan != CONFIG_PLAN_OFF || config->print_program;
    struct tokenizer *tokenizer = NULL;
    *out = (struct data_facts){.exist = true, .ends = true};
    for (int i = 0; i < mixture->count && out->exist && plans; i++)
        TRY(token_split_exists(mixture->parts[i].folder, TOKEN_TRAIN, &out->exist));
    for (int i = 0; i < mixture->count && out->exist; i++)
        TRY(part_add(mem, mixture->parts[i].folder, block_size, out));
    if (!out->exist || block_size > 0)
        return GT_OK;
    TRY(mixture_tokenizer_open(mem, mixture, &tokenizer));
    out->ends = tokenizer != NULL && tokenizer_eot(tokenizer) >= 0;
    hostmem_free(tokenizer);
    return GT_OK;
}

/* ---- the defaults ---- */

#define COMPUTED NULL
#define CONFIG_KEY_NONE CONFIG_KEY_COUNT

static const struct {
    enum config_key key, unless;
    const char *adapters, *model; /* NULL: computed */
} table[] = {
#define FINETUNE(key, adapters, model, unless, source) \
    {CONFIG_KEY_##key, CONFIG_KEY_##unless, adapters, model},
#include "session/finetune.def"
};

/* Returns true if the default does not apply, because the user has decided otherwise or the data do
 * not allow it. */
static bool is_decided(const struct config *config, size_t row, const struct data_facts *facts)
{
    const enum config_key key = table[row].key, unless = table[row].unless;
    const bool lasts = key == CONFIG_KEY_epochs || key == CONFIG_KEY_warmup_ratio ||
                       key == CONFIG_KEY_lr_decay_iters;
    return config->origin[key].source != NULL ||
           (unless != CONFIG_KEY_COUNT && config->origin[unless].source != NULL) ||
           (lasts && config->hours > 0.0) ||
           ((key == CONFIG_KEY_block_size || key == CONFIG_KEY_sample_tokens) && facts->row == 0) ||
           (key == CONFIG_KEY_document_mask && !facts->ends) ||
           (key == CONFIG_KEY_lora_alpha && config->lora_rank == 0);
}

static struct config_value integer_of(int64_t integer)
{
    return (struct config_value){.type = CONFIG_VALUE_INT, .integer = integer};
}

/* Returns a computed default, or 1, the least value, if it is not known yet. */
static struct config_value computed(const struct config *config, enum config_key key,
                                    const struct data_facts *facts)
{
    const bool typed = config_key_was_set(config, CONFIG_KEY_gradient_accumulation_steps) &&
                       !is_default(config, CONFIG_KEY_gradient_accumulation_steps);
    const int64_t steps = typed ? config->gradient_accumulation_steps : 1;
    if (key == CONFIG_KEY_block_size)
        return integer_of(facts->row);
    if (key == CONFIG_KEY_batch_size)
        return integer_of(
            size_ceil_div(size_ceil_div(ROWS_OF_UPDATE, config->parts) * config->parts, steps));
    return integer_of(key == CONFIG_KEY_lora_alpha ? 2 * config->lora_rank : 1);
}

enum gt_status finetune_defaults(struct hostmem *mem, struct config *config,
                                 const struct mixture *mixture, bool adapters)
{
    struct data_facts facts;
    TRY(data_facts_read(mem, config, mixture, 0, &facts));
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const char *text = adapters ? table[i].adapters : table[i].model;
        struct config_value value = computed(config, table[i].key, &facts);
        char pool[32];
        if (is_decided(config, i, &facts))
            continue;
        if (text != NULL && strcmp(text, "True") == 0)
            value = (struct config_value){.type = CONFIG_VALUE_BOOL, .integer = 1};
        else if (text != NULL && !config_lex_literal(text, pool, sizeof pool, &value))
            return FAIL(GT_FAILURE, "finetune.def: %s is not a value", text);
        TRY(config_key_assign(config, table[i].key, &value, &origin));
    }
    return GT_OK;
}

/* Logs the keys that have their default of fine-tuning, in the order of --help. */
static void defaults_log(const struct config *config)
{
    char text[DEFAULTS_TEXT_MAX] = "";
    for (int key = 0; key < CONFIG_KEY_COUNT; key++) {
        const size_t used = strlen(text);
        if (is_default(config, (enum config_key)key))
            snprintf(text + used, sizeof text - used, "%s%s=%s", used > 0 ? ", " : "",
                     config_key_info_get((enum config_key)key)->name,
                     CONFIG_KEY_TEXT(config, (enum config_key)key));
    }
    if (text[0] != '\0')
        log_note("defaults of fine-tuning, which you can override by setting the keys: %s", text);
}

/* ---- the length ---- */

/* Returns true if `key` gives way to `other`: the user has set `other`, unless `key` was typed and
 * `other` is from a file. */
static bool gives_way(const struct config *config, enum config_key key, enum config_key other)
{
    const bool typed = config_key_is_typed(config, key) && !is_default(config, key);
    return config_key_was_set(config, other) && !is_default(config, other) &&
           !(typed && config->origin[other].line > 0);
}

/* Turns `epochs` or `warmup_ratio` off if the user has set the key that it would set. */
static void key_yield(struct config *config, enum config_key key, double *value,
                      enum config_key other)
{
    if (*value == 0.0 || !gives_way(config, key, other))
        return;
    if (config_key_was_set(config, key))
        log_note("%s has no effect because of %s", CONFIG_KEY_DESCRIBED(config, key),
                 CONFIG_KEY_DESCRIBED(config, other));
    *value = 0.0;
}

/* Sets `key` to the number that `decider` gives, unless `decider` gives way to `key`. */
static void number_set(struct config *config, enum config_key key, int64_t *field, int64_t value,
                       enum config_key decider)
{
    if (gives_way(config, decider, key))
        return;
    *field = value;
    if (!is_default(config, key))
        config->origin[key] = config->origin[decider];
}

/* Sets max_iters and lr_decay_iters from `epochs`. */
static enum gt_status epochs_set(struct config *config, const struct data_facts *facts)
{
    const int64_t each = config->batch_size * config->gradient_accumulation_steps;
    const double updates =
        facts->exist ? fmax(ceil(config->epochs * (double)facts->rows / (double)each), 1.0)
                     : FINETUNE_UPDATES_UNKNOWN;
    if (updates >= (double)RUN_LENGTH_MAX)
        return FAIL(GT_USAGE, "%s are %.0f updates, 2^31 or more",
                    CONFIG_KEY_DESCRIBED(config, CONFIG_KEY_epochs), updates);
    config->max_iters = (int64_t)updates - 1;
    config->origin[CONFIG_KEY_max_iters] = config->origin[CONFIG_KEY_epochs];
    number_set(config, CONFIG_KEY_lr_decay_iters, &config->lr_decay_iters, config->max_iters,
               CONFIG_KEY_epochs);
    if (facts->exist)
        log_note("epochs=%s: %" PRId64 " rows of %" PRId64 " tokens, %" PRId64
                 " an update: %.0f update%s",
                 CONFIG_REAL_TEXT(config->epochs), facts->rows, config->block_size, each, updates,
                 updates == 1.0 ? "" : "s");
    if (facts->exist && each > facts->rows)
        log_warning("an update has %" PRId64 " rows, but the data only %" PRId64
                    ", so it repeats them; --batch_size=%" PRId64 " uses each once",
                    each, facts->rows,
                    max_i64(facts->rows / config->gradient_accumulation_steps, 1));
    if (!facts->exist)
        log_note(
            "the data are not there, so the number of updates in an epoch is unknown; this is a plan of %d updates",
            FINETUNE_UPDATES_UNKNOWN);
    return GT_OK;
}

/* Sets how often a run that tunes a model is evaluated, and on how many batches. */
static void evaluations_set(struct config *config, const struct data_facts *facts)
{
    const int64_t each = config->batch_size * config->gradient_accumulation_steps,
                  updates = config->max_iters + 1;
    int64_t interval = size_ceil_div(updates, EVALUATIONS_AN_EPOCH);
    if (facts->exist)
        interval = min_i64(interval, facts->rows / (EVALUATIONS_AN_EPOCH * each));
    interval = max_i64(interval, 1);
    if (is_default(config, CONFIG_KEY_eval_interval))
        config->eval_interval = interval;
    const int64_t rows = max_i64(interval * each / EVALUATION_SHARE, EVALUATION_ROWS_MIN);
    if (is_default(config, CONFIG_KEY_eval_iters))
        config->eval_iters = min_i64(size_ceil_div(rows, config->batch_size), 200);
}

/* Sets the keys that follow from the length of the run. */
static void length_follow(struct config *config, const struct data_facts *facts)
{
    if (is_default(config, CONFIG_KEY_lr_decay_iters))
        config->lr_decay_iters = config->max_iters;
    if (config->warmup_ratio > 0.0)
        number_set(config, CONFIG_KEY_warmup_iters, &config->warmup_iters,
                   (int64_t)ceil(config->warmup_ratio * (double)(config->max_iters + 1)),
                   CONFIG_KEY_warmup_ratio);
    if (is_default(config, CONFIG_KEY_eval_interval) || is_default(config, CONFIG_KEY_eval_iters))
        evaluations_set(config, facts);
}

enum gt_status finetune_length_set(struct hostmem *mem, struct config *config, bool resumed)
{
    const bool longer = config_key_was_set(config, CONFIG_KEY_epochs);
    struct data_facts facts = {.exist = false};
    struct mixture mixture;
    if (longer && config->epochs == 0.0 && config->hours == 0.0 &&
        !config_key_was_set(config, CONFIG_KEY_max_iters))
        return FAIL(GT_USAGE,
                    "%s would leave the length to max_iters=%" PRId64
                    "; set max_iters, or leave it out",
                    CONFIG_KEY_DESCRIBED(config, CONFIG_KEY_epochs), config->max_iters);
    key_yield(config, CONFIG_KEY_epochs, &config->epochs, CONFIG_KEY_max_iters);
    key_yield(config, CONFIG_KEY_warmup_ratio, &config->warmup_ratio, CONFIG_KEY_warmup_iters);
    if (resumed && !longer && !config_key_was_set(config, CONFIG_KEY_warmup_ratio))
        return GT_OK;
    const bool counts = config->epochs > 0.0 && (!resumed || longer);
    TRY(mixture_parse(config->dataset, &mixture));
    if (counts || is_default(config, CONFIG_KEY_eval_interval) ||
        is_default(config, CONFIG_KEY_eval_iters))
        TRY(data_facts_read(mem, config, &mixture, config->block_size, &facts));
    if (counts)
        TRY(epochs_set(config, &facts));
    length_follow(config, &facts);
    defaults_log(config);
    return GT_OK;
}
