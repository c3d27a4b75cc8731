/* Where a run begins and how it is kept.
 *
 * What a checkpoint stores fills the keys that this invocation did not say, and the choices of the plan are taken over
 * from it, so that a resumed run computes what the uninterrupted one would have.  Tensors go through the session's staging
 * buffer, so that saving allocates nothing.
 */
#include "train/restore.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"
#include "data/tokenizer.h"
#include "data/tokens.h"
#include "io/checkpoint_keep.h"
#include "io/hf_cache.h"
#include "train/metrics.h"
#include "train/restore_algorithms.h"
#include "train/restore_parts.h"
#include "train/values.h"

#define DIFFERENCES_TEXT_MAX 1024
/* GPT-2's 50257, padded to a multiple of 64; nanoGPT's choice.  Its larger ids are met in all but the shortest texts. */
#define GPT2_VOCAB_SIZE 50304
#define GPT2_ID_LARGE 32768
#define SCAN_TOKENS_MAX ((int64_t)1 << 28) /* half a second */
#define VOCAB_SIZE_MAX (1 << 24)           /* of keys.def */

static enum gt_status split_largest(struct hostmem *mem, const char *folder, enum token_split split, int32_t *largest)
{
    const struct token_source_spec spec = {.folder = folder, .split = split};
    struct token_source *source = NULL;
    bool exists;
    int32_t id = 0;
    TRY(token_split_exists(folder, split, &exists));
    if (!exists)
        return GT_OK;
    TRY(token_source_open(mem, &spec, &source));
    enum gt_status status = GT_OK;
    if (token_source_length(source) > SCAN_TOKENS_MAX)
        id = GPT2_ID_LARGE;
    else
        status = token_source_largest(source, &id);
    token_source_close(source);
    *largest = id > *largest ? id : *largest;
    return status;
}

/* The vocabulary of a folder without a tokenizer: the largest id decides.  It is GPT-2's where that may have given the ids,
 * where there is no data, or too much to look at. */
static enum gt_status vocab_from_ids(struct hostmem *mem, const char *folder, int64_t *out)
{
    int32_t largest = -1;
    TRY(split_largest(mem, folder, TOKEN_TRAIN, &largest));
    TRY(split_largest(mem, folder, TOKEN_VAL, &largest));
    if (largest >= VOCAB_SIZE_MAX) {
        log_error("%s: token id %" PRId32 " is too large for a vocabulary (at most %d)", folder, largest,
                  VOCAB_SIZE_MAX);
        return GT_DATA;
    }
    const bool is_gpt2 = largest < 0 || (largest >= GPT2_ID_LARGE && largest < GPT2_VOCAB_SIZE);
    *out = is_gpt2 ? GPT2_VOCAB_SIZE : largest + 1;
    log_note("%s has no %s; using vocab_size=%" PRId64 " (%s)", folder, TOKENIZER_FILE_NAME, *out,
             is_gpt2 ? "GPT-2's 50257 rounded up" : "the largest token id + 1");
    return GT_OK;
}

/* The vocabulary of a dataset: its tokenizer's, else 0 where the configuration says one. */
static enum gt_status dataset_vocab(struct hostmem *mem, const struct config *config, const char *folder, int64_t *out)
{
    struct tokenizer *tokenizer = NULL;
    *out = 0;
    TRY(tokenizer_open_dataset(mem, folder, &tokenizer));
    if (tokenizer)
        *out = tokenizer_vocab_size(tokenizer);
    else if (config->vocab_size == 0)
        TRY(vocab_from_ids(mem, folder, out));
    tokenizer_destroy(tokenizer);
    return GT_OK;
}

static enum gt_status open_scratch(struct hostmem *mem, struct config *config, const char *folder,
                                   struct model_config *model)
{
    int64_t vocab;
    TRY(dataset_vocab(mem, config, folder, &vocab));
    if (vocab > 0 && config->vocab_size > 0 && vocab > config->vocab_size) {
        log_error("vocab_size=%" PRId64 " is too small: the tokenizer in %s has %" PRId64 " tokens", config->vocab_size,
                  folder, vocab);
        return GT_USAGE;
    }
    session_model_config(config, vocab, model);
    /* What was left open is decided now, and the checkpoint stores the decision. */
    config->vocab_size = model->vocab_size;
    config->gelu = model->gelu == GELU_TANH ? CONFIG_GELU_TANH : CONFIG_GELU_ERF;
    config->n_kv_head = model->n_kv_head;
    return checkpoint_config_check(model);
}

/* The shape keys of a folder of weights, as a configuration object. */
static json_t *shape_object(const struct config *config, const struct model_config *model)
{
    json_t *object = json_pack("{s:i, s:i, s:i, s:i, s:b, s:s}", "n_layer", (int)model->n_layer, "n_head",
                               (int)model->n_head, "n_embd", (int)model->n_embd, "vocab_size", (int)model->vocab_size,
                               "bias", model->bias ? 1 : 0, "gelu", model->gelu == GELU_TANH ? "tanh" : "erf");
    /* A shorter context may be asked for, as with nanoGPT's crop_block_size. */
    bool crop = config_key_was_set(config, CONFIG_KEY_block_size) && config->block_size < model->block_size;
    if (object && !crop && json_object_set_new(object, "block_size", json_integer(model->block_size)) != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static enum gt_status fill_from_weights(struct config *config, struct model_config *model, const char *source)
{
    json_t *object = shape_object(config, model);
    if (!object) {
        log_error("out of memory");
        return GT_NO_MEMORY;
    }
    enum gt_status status = config_from_json(config, object, source);
    json_decref(object);
    TRY(status);
    model->block_size = (int32_t)config->block_size;
    model->dropout = (float)config->dropout;
    return config_check(config);
}

/* The format of the checkpoint's states; records of before there was more than one do not say. */
static enum gt_status states_from_record(const struct checkpoint *checkpoint, enum state_format *out)
{
    const json_t *plan = checkpoint->record.state.plan;
    const char *name;
    *out = STATE_MASTER;
    if (plan == NULL || json_object_get(plan, "state_format") == NULL)
        return GT_OK;
    TRY(json_get_string(plan, checkpoint->source, "state_format", &name));
    if (state_format_from_name(name, out))
        return GT_OK;
    log_error("%s: field \"state_format\": \"%.32s\" is no format of this program", checkpoint->source, name);
    return GT_DATA;
}

/* Another optimizer cannot go on from these moments. */
static enum gt_status optimizer_check(const struct config *config, const struct checkpoint *checkpoint)
{
    static const char *const names[] = {[CONFIG_OPTIMIZER_ADAMW] = "adamw", [CONFIG_OPTIMIZER_MUON] = "muon"};
    const json_t *plan = checkpoint->record.state.plan;
    const char *before = plan ? json_string_value(json_object_get(plan, "optimizer")) : NULL;
    if (strcmp(before ? before : names[CONFIG_OPTIMIZER_ADAMW], names[config->optimizer]) == 0)
        return GT_OK;
    log_error(
        "%s: this run uses optimizer='%s' and cannot continue with '%s'; leave --optimizer out, or start a new run from "
        "its weights with --init_from=%s and another out_dir",
        checkpoint->source, before ? before : names[CONFIG_OPTIMIZER_ADAMW], names[config->optimizer], config->out_dir);
    return GT_USAGE;
}

/* The format in which the run goes on: the checkpoint's, unless it is to be converted. */
static enum gt_status states_choose(const struct config *config, struct restore_source *source,
                                    struct session_choices *choices)
{
    const char *from = state_format_name(choices->states);
    bool said = config_key_was_set(config, CONFIG_KEY_state_format) && config->state_format != CONFIG_STATES_AUTO;
    enum state_format wanted = said ? session_state_format(config) : choices->states;
    choices->states_chosen = true;
    if (wanted == choices->states)
        return GT_OK;
    if (!config->convert_states) {
        log_error("%s: the optimizer states are stored as '%s', not '%s'; leave --state_format out, or add "
                  "--convert_states=True to round them to the new format",
                  source->checkpoint->source, from, state_format_name(wanted));
        return GT_USAGE;
    }
    log_note("%s: converting the optimizer states from '%s' to '%s', which rounds them", source->checkpoint->source,
             from, state_format_name(wanted));
    source->convert_states = true;
    choices->states = wanted;
    return GT_OK;
}

static enum gt_status choices_from_record(const struct checkpoint *checkpoint, struct session_choices *choices)
{
    const json_t *plan = checkpoint->record.state.plan;
    *choices = (struct session_choices){.states_chosen = false};
    if (plan)
        TRY(plan_choice_read(plan, checkpoint->source, checkpoint->config.n_layer, &choices->plan));
    return states_from_record(checkpoint, &choices->states);
}

/* Whether the run's batches are no longer those of the run that was saved. */
static bool is_other_batch(const struct config *config, const struct checkpoint *checkpoint)
{
    const json_t *before = checkpoint->record.state.configuration;
    return json_integer_value(json_object_get(before, "batch_size")) != config->batch_size ||
           json_integer_value(json_object_get(before, "block_size")) != config->block_size;
}

static enum gt_status state_from_record(const struct checkpoint *checkpoint, struct run_state *state)
{
    const struct checkpoint_state *record = &checkpoint->record.state;
    struct session_choices choices;
    int64_t evaluated = -1, skipped = 0;
    TRY(choices_from_record(checkpoint, &choices));
    if (record->data)
        TRY(json_get_int(record->data, checkpoint->source, "evaluated_iter", -1, INT64_MAX, &evaluated));
    if (json_object_get(record->data, "skipped")) /* records of before do not say */
        TRY(json_get_int(record->data, checkpoint->source, "skipped", 0, record->iter, &skipped));
    *state = (struct run_state){
        .iter = record->iter,
        .adam_step = record->adam_step,
        .evaluations = record->evaluations,
        .samples_seen = record->samples_seen,
        .skipped = skipped,
        .best_val_loss = record->best_val_loss,
        .evaluated = evaluated == record->iter,
        .choices = choices,
    };
    return GT_OK;
}

/* Where the weights are that init_from names. */
static enum gt_status weights_path(const struct config *config, char out[static FILE_PATH_MAX])
{
    const char *from = strcmp(config->init_from, "resume") == 0 ? config->out_dir : config->init_from;
    if (config->checkpoint[0] != '\0')
        return checkpoint_keep_find(from, config->checkpoint, out);
    if (from == config->init_from && hf_cache_is_name(from))
        return hf_cache_find(from, out);
    snprintf(out, FILE_PATH_MAX, "%s", from);
    return GT_OK;
}

/* The checkpoint, folder or file that init_from names.  A run of nanoGPT's is continued unless its weights alone are
 * wanted. */
static enum gt_status open_checkpoint(struct hostmem *mem, struct config *config, struct restore_source *source,
                                      struct run_state *state, struct model_config *model)
{
    char from[FILE_PATH_MAX];
    enum checkpoint_kind kind = CHECKPOINT_NONE;
    if (config->plan != CONFIG_PLAN_OFF && !file_is_folder(config->init_from) &&
        hf_cache_shape(config->init_from, model))
        return fill_from_weights(config, model, config->init_from); /* a plan needs no weights */
    TRY(weights_path(config, from));
    const bool resume = strcmp(config->init_from, "resume") == 0;
    source->own = resume && strcmp(from, config->out_dir) == 0;
    source->branch = resume && !source->own;
    if (!resume)
        TRY(checkpoint_probe(from, &kind));
    source->resume = resume || (kind == CHECKPOINT_NANOGPT && config->resume_state);
    TRY(checkpoint_open(mem, from, source->resume, &source->checkpoint));
    const struct checkpoint *checkpoint = source->checkpoint;
    if (source->resume) {
        TRY(state_from_record(checkpoint, state));
        if (checkpoint->record.state.configuration)
            TRY(config_from_json(config, checkpoint->record.state.configuration, checkpoint->source));
    }
    *model = checkpoint->config;
    TRY(fill_from_weights(config, model, checkpoint->source));
    if (source->resume) {
        TRY(optimizer_check(config, checkpoint));
        TRY(states_choose(config, source, &state->choices));
        if (is_other_batch(config, checkpoint)) /* then only the format of the states is still the same question */
            state->choices = (struct session_choices){.states_chosen = true, .states = state->choices.states};
    }
    if (config->eval_only)
        TRY(checkpoint_open(mem, from, false, &source->weights));
    return GT_OK;
}

/* Updates, evaluations, samples and tokens of the whole run can be counted.  A checkpoint's counters may be anything. */
static enum gt_status counters_check(const struct config *config, const struct run_state *state)
{
    const int64_t left = state->iter <= config->max_iters ? config->max_iters + 1 - state->iter : 0;
    const size_t factors[] = {(size_t)left, (size_t)config->batch_size, (size_t)config->gradient_accumulation_steps};
    size_t samples, all, tokens;
    if (config->eval_only ||
        (state->adam_step <= INT32_MAX - left && state->evaluations <= UINT32_MAX - left &&
         size_product(factors, 3, &samples) && size_add((size_t)state->samples_seen, samples, &all) &&
         size_mul(all, (size_t)config->block_size, &tokens) && tokens <= INT64_MAX))
        return GT_OK;
    log_error("max_iters=%" PRId64 " is too many: with the %" PRId64 " iterations, %" PRId64 " updates, %" PRId64
              " evaluations and %" PRId64
              " samples so far, the run would exceed 2^31 updates, 2^32 evaluations or 2^63 "
              "tokens",
              config->max_iters, state->iter, state->adam_step, state->evaluations, state->samples_seen);
    return GT_USAGE;
}

enum gt_status restore_open(struct hostmem *mem, struct config *config, const char *folder,
                            struct restore_source *source, struct run_state *state, struct model_config *model)
{
    *source = (struct restore_source){0};
    *state = (struct run_state){.best_val_loss = INFINITY};
    enum gt_status status = strcmp(config->init_from, "scratch") == 0
                                ? open_scratch(mem, config, folder, model)
                                : open_checkpoint(mem, config, source, state, model);
    if (status == GT_OK)
        status = counters_check(config, state);
    if (status != GT_OK)
        restore_close(source);
    return status;
}

enum gt_status restore_open_weights(struct hostmem *mem, const struct config *config, struct restore_source *source)
{
    char from[FILE_PATH_MAX];
    *source = (struct restore_source){0};
    TRY(weights_path(config, from));
    return checkpoint_open(mem, from, false, &source->checkpoint);
}

void restore_close(struct restore_source *source)
{
    checkpoint_close(source->weights);
    checkpoint_close(source->checkpoint);
    source->weights = source->checkpoint = NULL;
}

/* The parameters of the model as io/ sees them. */
static enum gt_status tensors_create(struct session *session, struct checkpoint_tensor **out)
{
    const struct model *model = session->model;
    void *array;
    TRY(hostmem_alloc(session->mem, (size_t)model->parameters.count, sizeof(struct checkpoint_tensor),
                      "checkpoint tensors", &array));
    struct checkpoint_tensor *tensors = array;
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const struct parameter *parameter = &model->parameters.at[i];
        const struct tensor *tensor = &model->graph->tensors[parameter->tensor];
        const int32_t home = model_parameter_home(parameter), m = parameter->m;
        tensors[i] = (struct checkpoint_tensor){.name = parameter->name,
                                                .index = i,
                                                .rank = tensor->rank,
                                                .dims = {parameter->saved_rows, tensor->rank > 1 ? tensor->dims[1] : 0},
                                                .dtype = model->graph->tensors[home].dtype,
                                                .moment = m != TENSOR_NONE ? model->graph->tensors[m].dtype : DTYPE_F32,
                                                .no_second = parameter->v == TENSOR_NONE};
    }
    *out = tensors;
    return GT_OK;
}

/* What the checkpoint does not hold: moments of a new optimizer, rows beyond the vocabulary. */
static enum gt_status zero_rest(struct session *session, bool moments)
{
    const struct model *model = session->model;
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const struct parameter *parameter = &model->parameters.at[i];
        if (parameter->saved_rows < model->graph->tensors[parameter->tensor].dims[0])
            TRY(exec_zero(session->exec, model_parameter_home(parameter)));
        if (moments)
            TRY(session_moments_zero(session, parameter));
    }
    return GT_OK;
}

enum gt_status restore_loss_scaler(const struct restore_source *source, enum dtype dtype, struct loss_scaler *out)
{
    loss_scaler_init(out, dtype);
    if (!source->resume)
        return GT_OK;
    return loss_scaler_from_json(out, source->checkpoint->record.state.loss_scaler, source->checkpoint->source);
}

enum gt_status restore_weights(struct session *session, const struct restore_source *source, uint64_t seed)
{
    if (!source->checkpoint)
        return session_weights_init(session, seed);
    struct checkpoint_tensor *tensors;
    struct restore_parts parts = {.session = session};
    TRY(zero_rest(session, true));
    TRY(tensors_create(session, &tensors));
    struct checkpoint_load_options options = {
        .config = &session->model->options.config,
        .tensors = tensors,
        .tensor_count = (size_t)session->model->parameters.count,
        .write = restore_part_write,
        .write_context = &parts,
        .convert = source->convert_states,
        .staging = session->staging,
        .staging_bytes = SESSION_STAGING_FLOATS * sizeof(float),
    };
    enum gt_status status = checkpoint_load(source->weights ? source->weights : source->checkpoint, &options);
    hostmem_free(session->mem, parts.exponents);
    hostmem_free(session->mem, tensors);
    TRY(status);
    return session_weights_refresh(session);
}

/* What decides the last bits: the plan's choices and who computes. */
static json_t *plan_object(const struct session *session)
{
    const struct model_options *options = &session->model->options;
    json_t *algorithms;
    if (!restore_algorithms_object(session->device, &algorithms))
        return NULL;
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:o*}", "dtype", dtype_name(options->dtype), "state_format",
                  state_format_name(options->states), "optimizer", options->muon ? "muon" : "adamw", "backend",
                  session->device->ops->name, "kernels", session->info.detail, "algorithms", algorithms);
    if (object && plan_choice_write(object, &options->choice, options->config.n_layer))
        return object;
    json_decref(object);
    return NULL;
}

/* recompute changes no bit, a conversion was announced, another optimizer refused. */
static bool is_difference(const char *key, const json_t *before, const json_t *now)
{
    if (strcmp(key, "recompute") == 0 || strcmp(key, "state_format") == 0 || strcmp(key, "optimizer") == 0)
        return false;
    if (strcmp(key, "algorithms") == 0)
        return restore_algorithms_differ(before, now);
    return before == NULL || !json_equal(before, now);
}

/* Appends "KEY was WAS, is IS" as far as there is room. */
static void difference_add(char text[static DIFFERENCES_TEXT_MAX], const char *key, const char *was, const char *is)
{
    const size_t used = strlen(text);
    snprintf(text + used, DIFFERENCES_TEXT_MAX - used, "%s%s was %.100s, is %.100s", used > 0 ? "; " : "", key, was,
             is);
}

static void value_difference_add(char text[static DIFFERENCES_TEXT_MAX], const char *key, const json_t *before,
                                 const json_t *now)
{
    char *was = before != NULL ? json_dumps(before, JSON_ENCODE_ANY) : NULL, *is = json_dumps(now, JSON_ENCODE_ANY);
    difference_add(text, key, was != NULL ? was : "not known", is != NULL ? is : "?");
    free(was);
    free(is);
}

enum gt_status restore_differences_check(const struct session *session, const struct restore_source *source)
{
    const json_t *before = source->resume ? source->checkpoint->record.state.plan : NULL;
    json_t *now = before ? plan_object(session) : NULL, *value;
    char text[DIFFERENCES_TEXT_MAX] = "";
    const char *key;
    if (before && !now) {
        log_error("out of memory");
        return GT_NO_MEMORY;
    }
    json_object_foreach(now, key, value)
    {
        const json_t *old = json_object_get(before, key);
        if (is_difference(key, old, value))
            value_difference_add(text, key, old, value);
    }
    json_decref(now);
    if (text[0] == '\0')
        return GT_OK;
    if (session->config->strict_resume) {
        log_error("%s: strict_resume: results would differ in their last bits from an uninterrupted run's: %s",
                  source->checkpoint->source, text);
        return GT_USAGE;
    }
    log_note("%s: results will differ in their last bits from an uninterrupted run's (%s); --strict_resume=True "
             "would refuse to resume",
             source->checkpoint->source, text);
    return GT_OK;
}

/* Refuses the differences, or warns of them; each of the two texts says what is wrong.  None are well. */
static enum gt_status differences_judge(const struct config *config, const struct restore_source *source,
                                        const char *differences, const char *refused, const char *warned)
{
    if (differences[0] == '\0')
        return GT_OK;
    if (config->strict_resume) {
        log_error("%s: strict_resume: %s: %s", source->checkpoint->source, refused, differences);
        return GT_USAGE;
    }
    log_warning("%s: %s: %s", source->checkpoint->source, warned, differences);
    return GT_OK;
}

enum gt_status restore_keys_check(const struct config *config, const struct restore_source *source)
{
    const json_t *before = source->resume ? source->checkpoint->record.state.configuration : NULL;
    struct config_change change;
    char text[DIFFERENCES_TEXT_MAX] = "";
    for (int key = 0; key < CONFIG_KEY_COUNT && before; key++)
        if (config_key_change(config, (enum config_key)key, before, &change))
            difference_add(text, change.name, change.was, change.is);
    return differences_judge(config, source, text, "these keys were changed",
                             "these keys were changed, so the run continues differently");
}

enum gt_status restore_data_check(const struct config *config, const struct restore_source *source,
                                  const struct restore_data *data)
{
    const json_t *before = source->resume ? source->checkpoint->record.state.data : NULL;
    char text[DIFFERENCES_TEXT_MAX] = "";
    for (int split = TOKEN_TRAIN; split <= TOKEN_VAL; split++) {
        const char *name = token_split_name((enum token_split)split), *now = data->text[split];
        const char *was = json_string_value(json_object_get(before, name));
        if (was != NULL && strcmp(was, now) != 0)
            difference_add(text, name, was, now);
    }
    return differences_judge(
        config, source, text, "the data have changed since the run began",
        "the data have changed since the run began, so batches differ from an uninterrupted run's");
}

static const char *hash_text(char text[static 32], const struct tokenizer *tokenizer)
{
    snprintf(text, 32, "crc32c:%08" PRIx32, tokenizer_hash(tokenizer));
    return text;
}

enum gt_status restore_tokenizer_check(const struct restore_source *source, const struct tokenizer *tokenizer,
                                       const char *what)
{
    const struct checkpoint *checkpoint = source->checkpoint;
    const json_t *data = checkpoint && checkpoint->kind == CHECKPOINT_OURS ? checkpoint->record.state.data : NULL;
    const char *stored = json_string_value(json_object_get(data, "tokenizer"));
    char now[32];
    if (!stored || !tokenizer || strcmp(stored, hash_text(now, tokenizer)) == 0)
        return GT_OK;
    log_error("%s: this tokenizer (%s) is not the one that %s was trained with (%s)", what, now, checkpoint->source,
              stored);
    return GT_DATA;
}

enum gt_status restore_saver_create(struct session *session, const struct tokenizer *tokenizer,
                                    const struct restore_data *data, struct restore_saver *out)
{
    *out = (struct restore_saver){.session = session, .data = *data};
    TRY(tensors_create(session, &out->tensors));
    TRY(config_to_json(session->config, &out->configuration));
    out->plan = plan_object(session);
    if (tokenizer) {
        hash_text(out->tokenizer_hash, tokenizer);
        TRY(export_hf_tokens_texts(session->mem, tokenizer, session->model->options.config.block_size,
                                   EXPORT_HF_TOKENS_OF_RUN, out->tokens));
    }
    if (!out->plan) {
        log_error("out of memory");
        return GT_NO_MEMORY;
    }
    return GT_OK;
}

void restore_saver_destroy(struct restore_saver *saver)
{
    if (!saver->session)
        return;
    hostmem_free(saver->session->mem, saver->tensors);
    json_decref(saver->configuration);
    json_decref(saver->plan);
    export_hf_tokens_free(saver->tokens, EXPORT_HF_TOKENS_OF_RUN);
    *saver = (struct restore_saver){0};
}

/* Where it is not there already: *out_written. */
static enum gt_status token_file_put(const char *path, const char *text, bool *out_written)
{
    const size_t length = strlen(text);
    *out_written = !file_matches(path, length, file_crc32c(0, text, length));
    return *out_written ? file_replace(path, text, length) : GT_OK;
}

static enum gt_status tokens_put(struct restore_saver *saver, bool repairs)
{
    char path[FILE_PATH_MAX];
    bool written;
    for (int i = 0; i < EXPORT_HF_TOKENS_OF_RUN && !saver->tokens_written; i++) {
        TRY(file_join(path, saver->session->config->out_dir, export_hf_tokens_names[i]));
        if (!saver->tokens[i] && saver->replaces)
            (void)unlink(path); /* the earlier run's, which has it in its own folder */
        if (!saver->tokens[i])
            continue;
        TRY(token_file_put(path, saver->tokens[i], &written));
        if (written && repairs)
            log_note("%s was damaged or missing; restored it from the data set", path);
    }
    saver->tokens_written = true;
    return GT_OK;
}

enum gt_status restore_tokenizer_repair(struct restore_saver *saver)
{
    return tokens_put(saver, true);
}

/* What the record says of the data; NULL without memory, which json_pack() takes for no value where one may be missing. */
static json_t *data_object(const struct restore_saver *saver, const struct run_state *state)
{
    json_t *data =
        json_pack("{s:I, s:I, s:s, s:s}", "evaluated_iter", (json_int_t)(state->evaluated ? state->iter : -1),
                  "skipped", (json_int_t)state->skipped, token_split_name(TOKEN_TRAIN), saver->data.text[TOKEN_TRAIN],
                  token_split_name(TOKEN_VAL), saver->data.text[TOKEN_VAL]);
    if (data && *saver->tokenizer_hash &&
        json_object_set_new(data, "tokenizer", json_string(saver->tokenizer_hash)) != 0) {
        json_decref(data);
        return NULL;
    }
    return data;
}

/* Keeps the checkpoint that the next save replaces, where it is to be kept. */
static enum gt_status others_keep(struct restore_saver *saver)
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

enum gt_status restore_save(struct restore_saver *saver, const struct run_state *state)
{
    struct session *session = saver->session;
    const struct config *config = session->config;
    json_t *data = data_object(saver, state);
    json_t *loss_scaler = state->loss_scaler.dynamic ? loss_scaler_to_json(&state->loss_scaler) : NULL;
    if (!data || (state->loss_scaler.dynamic && !loss_scaler)) {
        json_decref(data);
        log_error("out of memory");
        return GT_NO_MEMORY;
    }
    struct checkpoint_save_options options = {
        .out_dir = config->out_dir,
        .config = &session->model->options.config,
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
        .tensor_count = (size_t)session->model->parameters.count,
        .read = restore_part_read,
        .read_context = session,
        .staging = session->staging,
        .staging_bytes = SESSION_STAGING_FLOATS * sizeof(float),
    };
    enum gt_status status = others_keep(saver);
    if (status == GT_OK)
        status = checkpoint_save(&options);
    json_decref(loss_scaler);
    json_decref(data);
    /* Only after the commit: an earlier run's checkpoint and its tokenizer stay together until then. */
    return status == GT_OK ? tokens_put(saver, false) : status;
}
