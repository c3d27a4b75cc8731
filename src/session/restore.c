/* Decides where a run begins.
 *
 * The checkpoint fills the keys that this invocation did not set and supplies the choices of the
 * plan, so that a resumed run computes what the uninterrupted one would have.
 */
#include "session/restore.h"

#include <math.h>
#include <unistd.h>

#include "base/size.h"
#include "config/config_check.h"
#include "config/config_json.h"
#include "config/config_key.h"
#include "data/hf_hub.h"
#include "data/manifest.h"
#include "data/tokenizer.h"
#include "data/tokenizer_import.h"
#include "io/checkpoint_folder.h"
#include "io/checkpoint_open.h"
#include "io/checkpoint_record.h"
#include "io/checkpoint_save.h"
#include "io/gguf_tokenizer.h"
#include "io/hf_cache.h"
#include "io/known_models.h"
#include "io/peft_targets.h"
#include "session/finetune.h"
#include "session/session_plan.h"

/* GPT-2's 50257, padded to a multiple of 64; nanoGPT's choice.  Its larger ids occur in all but the
 * shortest texts. */
#define GPT2_VOCAB_SIZE 50304
#define GPT2_ID_LARGE 32768
#define SCAN_TOKENS_MAX ((int64_t)1 << 28) /* scanned in half a second */
#define VOCAB_SIZE_MAX (1 << 24)           /* the limit in keys.def */
#define CONFIG_BYTES_MAX ((size_t)4 << 20)

static enum gt_status split_largest(struct hostmem *mem, const char *folder, enum token_split split,
                                    int32_t *largest)
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
    if (source->length > SCAN_TOKENS_MAX)
        id = GPT2_ID_LARGE;
    else
        status = token_source_largest(source, &id);
    hostmem_free(source);
    *largest = id > *largest ? id : *largest;
    return status;
}

/* Derives the vocabulary of data without a tokenizer from the largest id.  Uses GPT-2's if that
 * could have produced the ids, if there is no data, or if there is too much to scan. */
static enum gt_status vocab_from_ids(struct hostmem *mem, const struct mixture *mixture,
                                     int64_t *out)
{
    const char *folder = mixture->parts[0].folder;
    int32_t largest = -1;
    bool exists = true;
    for (int i = 0; i < mixture->count && exists; i++)
        TRY(token_split_exists(mixture->parts[i].folder, TOKEN_TRAIN, &exists));
    for (int i = 0; i < mixture->count; i++) {
        TRY(split_largest(mem, mixture->parts[i].folder, TOKEN_TRAIN, &largest));
        TRY(split_largest(mem, mixture->parts[i].folder, TOKEN_VAL, &largest));
    }
    if (largest >= VOCAB_SIZE_MAX)
        return FAIL(GT_DATA, "%s: token id %" PRId32 " is too large for a vocabulary (at most %d)",
                    folder, largest, VOCAB_SIZE_MAX);
    const bool is_gpt2 = largest < 0 || (largest >= GPT2_ID_LARGE && largest < GPT2_VOCAB_SIZE);
    *out = is_gpt2 ? GPT2_VOCAB_SIZE : largest + 1;
    const char *which = is_gpt2 ? "GPT-2's 50257 rounded up" : "the largest token id + 1";
    if (exists)
        log_note("%s has no %s; using vocab_size=%" PRId64 " (%s)", folder, TOKENIZER_FILE_NAME,
                 *out, which);
    else
        log_note("the data are not there; this is a plan with vocab_size=%" PRId64 " (%s)", *out,
                 which);
    return GT_OK;
}

/* Adds the adapters that the configuration asks for. */
static enum gt_status lora_set(struct config *config, struct model_config *model)
{
    const bool alpha = config_key_was_set(config, CONFIG_KEY_lora_alpha);
    if (config->lora_rank == 0 && (alpha || config_key_was_set(config, CONFIG_KEY_lora_targets)))
        return FAIL(
            GT_USAGE,
            "%s needs lora_rank, the rank of the adapters; without both, the whole model "
            "is trained",
            CONFIG_KEY_DESCRIBED(config, alpha ? CONFIG_KEY_lora_alpha : CONFIG_KEY_lora_targets));
    if (config->lora_rank == 0)
        return GT_OK;
    if (config->lora_alpha == 0.0)
        config->lora_alpha = 2.0 * (double)config->lora_rank;
    model->lora =
        (struct lora_config){.rank = (int32_t)config->lora_rank, .alpha = config->lora_alpha};
    return peft_targets_read(config->lora_targets, model, &model->lora.targets);
}

/* The dataset's tokenizer gives the vocabulary; without one, vocab_size, else the ids. */
static enum gt_status open_scratch(struct hostmem *mem, struct config *config,
                                   const struct mixture *mixture, struct model_config *model)
{
    struct tokenizer *tokenizer;
    TRY(mixture_tokenizer_open(mem, mixture, &tokenizer));
    int64_t vocab = tokenizer ? tokenizer->vocab_size : 0;
    hostmem_free(tokenizer);
    if (vocab == 0 && config->vocab_size == 0)
        TRY(vocab_from_ids(mem, mixture, &vocab));
    if (vocab > 0 && config->vocab_size > 0 && vocab > config->vocab_size)
        return FAIL(GT_USAGE,
                    "vocab_size=%" PRId64 " is too small: the tokenizer in %s has %" PRId64
                    " tokens",
                    config->vocab_size, mixture->parts[0].folder, vocab);
    if (config->lora_rank > 0)
        TRY(finetune_defaults(mem, config, mixture, true));
    /* The checkpoint stores what is decided now. */
    session_model_resolve(config, vocab, model);
    TRY(lora_set(config, model));
    return checkpoint_config_check(model);
}

/* Returns the shape keys of a model as a configuration object, without `arch` if the configuration
 * has it. */
static json_t *shape_object(const struct config *config, const struct model_config *model,
                            bool has_arch)
{
    const bool rope = model->position == POSITION_ROPE;
    char scaling[ROPE_SCALING_TEXT_MAX];
    struct shape shape = model->shape;
    enum shape_property differs;
    json_t *object = json_object();
    int failures = 0;
    shape_sizes_fill(&shape);
    if (!rope)
        shape.rope.theta = arch_get(ARCH_gpt2)->shape.rope.theta; /* it has no effect */
    for (int p = 0; p < SHAPE_PROPERTIES; p++) {
        const enum shape_property property = (enum shape_property)p;
        failures |= json_object_set_new(object, shape_row_get(property)->name,
                                        hf_property_json(&shape, property));
    }
    failures |= json_object_set_new(object, "rope_scaling",
                                    json_string(rope_scaling_text(scaling, &shape.rope)));
    if (!has_arch)
        failures |=
            json_object_set_new(object, "arch", json_string(arch_nearest(&shape, &differs)->name));
    /* The user may set a shorter context, as with nanoGPT's crop_block_size; rotary positions allow
     * any. */
    const bool crop =
        config_key_was_set(config, CONFIG_KEY_block_size) && config->block_size < model->block_size;
    char targets[PEFT_TARGETS_TEXT_MAX];
    if (!rope && !crop)
        failures |= json_object_set_new(object, "block_size", json_integer(model->block_size));
    if (model->lora.rank > 0) {
        failures |= json_object_set_new(object, "lora_rank", json_integer(model->lora.rank));
        failures |= json_object_set_new(object, "lora_alpha", json_real(model->lora.alpha));
        failures |= json_object_set_new(object, "lora_targets",
                                        json_string(peft_targets_text(targets, model)));
    }
    return json_whole(object, failures);
}

static enum gt_status fill_from_weights(struct config *config, struct model_config *model,
                                        bool has_arch, const char *source)
{
    json_t *object = shape_object(config, model, has_arch);
    if (!object)
        return FAIL(GT_NO_MEMORY, "out of memory");
    enum gt_status status = config_from_json(config, object, source);
    json_decref(object);
    TRY(status);
    if (model->position == POSITION_ROPE) { /* rotary positions allow any context: the one that is
                                               set, else at most the model's own */
        const int32_t most = model->max_positions > 0 ? model->max_positions : model->block_size;
        if (config->origin[CONFIG_KEY_block_size].source == NULL && config->block_size > most)
            config->block_size = most;
        if (config->block_size > most)
            log_warning("block_size=%" PRId64 " is more than the %" PRId32
                        " positions that the model was made for",
                        config->block_size, most);
        model->max_positions = config->block_size > most ? (int32_t)config->block_size : most;
    }
    model->block_size = (int32_t)config->block_size;
    model->dropout = (float)config->dropout;
    TRY(lora_set(config, model));
    return config_check(config);
}

/* Refuses another optimizer, which cannot use these moments. */
static enum gt_status optimizer_check(const struct config *config,
                                      const struct checkpoint *checkpoint)
{
    const char *before =
        json_string_value(json_object_get(checkpoint->record.state.plan, "optimizer"));
    const char *now = config->optimizer == CONFIG_OPTIMIZER_MUON ? "muon" : "adamw";
    before = before ? before : "adamw"; /* older records do not name it */
    if (strcmp(before, now) == 0)
        return GT_OK;
    return FAIL(
        GT_USAGE,
        "%s: this run uses optimizer='%s' and cannot continue with '%s'; leave --optimizer out, or start a new run from "
        "its weights with --init_from=%s and another out_dir",
        checkpoint->source, before, now, config->out_dir);
}

/* Chooses the format in which the run continues: the checkpoint's, unless it is to be converted. */
static enum gt_status states_choose(const struct config *config, struct restore_source *source,
                                    struct session_saved *saved)
{
    const char *from = state_format_name(saved->states);
    bool said = config_key_was_set(config, CONFIG_KEY_state_format) &&
                config->state_format != CONFIG_STATES_AUTO;
    enum state_format wanted = said ? session_state_format(config) : saved->states;
    saved->states_chosen = true;
    source->convert_states = config->convert_states; /* a ckpt.pt does not say its format */
    if (wanted == saved->states)
        return GT_OK;
    if (!config->convert_states)
        return FAIL(
            GT_USAGE,
            "%s: the optimizer states are stored as '%s', not '%s'; leave --state_format out, or add "
            "--convert_states=True to round them to the new format",
            source->checkpoint->source, from, state_format_name(wanted));
    log_note("%s: converting the optimizer states from '%s' to '%s', which rounds them",
             source->checkpoint->source, from, state_format_name(wanted));
    saved->states = wanted;
    return GT_OK;
}

/* Reads the choices of the plan and the format of the states, which old records do not name: there
 * was only one. */
static enum gt_status saved_from_record(const struct checkpoint *checkpoint,
                                        struct session_saved *saved)
{
    const json_t *plan = checkpoint->record.state.plan;
    const char *name;
    *saved = (struct session_saved){.states = STATE_MASTER};
    if (plan)
        TRY(plan_choice_read(plan, checkpoint->source, checkpoint->config.n_layer, &saved->plan));
    if (json_object_get(plan, "state_format") == NULL)
        return GT_OK;
    TRY(json_get_string(plan, checkpoint->source, "state_format", &name));
    if (state_format_from_name(name, &saved->states))
        return GT_OK;
    return FAIL(GT_DATA,
                "%s: field \"state_format\": \"%.32s\" is not a state format of this program",
                checkpoint->source, name);
}

static enum gt_status state_from_record(const struct checkpoint *checkpoint,
                                        struct run_state *state)
{
    const struct checkpoint_state *record = &checkpoint->record.state;
    struct session_saved saved;
    int64_t evaluated = -1, skipped = 0, length = 0;
    TRY(saved_from_record(checkpoint, &saved));
    if (record->data)
        TRY(json_get_int(record->data, checkpoint->source, "evaluated_iter", -1, INT64_MAX,
                         &evaluated));
    if (json_object_get(record->data, "skipped")) /* older records lack it */
        TRY(json_get_int(record->data, checkpoint->source, "skipped", 0, record->iter, &skipped));
    if (json_object_get(record->data, "length"))
        TRY(json_get_int(record->data, checkpoint->source, "length", 0, RUN_LENGTH_MAX, &length));
    *state = (struct run_state){
        .iter = record->iter,
        .adam_step = record->adam_step,
        .evaluations = record->evaluations,
        .samples_seen = record->samples_seen,
        .skipped = skipped,
        .length = length,
        .best_val_loss = record->best_val_loss,
        .evaluated = evaluated == record->iter,
        .saved = saved,
    };
    return GT_OK;
}

/* Finds the weights that init_from names. */
static enum gt_status weights_path(const struct config *config, char out[static FILE_PATH_MAX])
{
    const char *from =
        strcmp(config->init_from, "resume") == 0 ? config->out_dir : config->init_from;
    if (config->checkpoint[0] != '\0')
        return checkpoint_keep_find(from, config->checkpoint, out);
    if (from == config->init_from)
        return hf_cache_model_find(from, out);
    snprintf(out, FILE_PATH_MAX, "%s", from);
    return GT_OK;
}

/* Gives a fresh run from the weights in `from` the defaults of fine-tuning, if it trains adapters,
 * a model with a chat template, or a published model other than GPT-2.  `known`: the model is known
 * to be of the latter two kinds, whatever its folder contains. */
static enum gt_status tuning_prepare(struct hostmem *mem, struct config *config,
                                     const struct mixture *mixture, const char *from, bool known,
                                     const struct model_config *model)
{
    const bool adapters = config->lora_rank > 0 || model->lora.rank > 0;
    struct config_origin *alpha = &config->origin[CONFIG_KEY_lora_alpha];
    if (model->lora.rank > 0 && alpha->source == NULL) /* no default replaces that of the file */
        *alpha = (struct config_origin){.source = "the adapters", .checkpoint = true};
    bool tunes = adapters || known;
    if (config->eval_only)
        return GT_OK;
    if (!tunes && file_is_folder(from))
        TRY(tokenizer_folder_has_template(from, &tunes));
    else if (!tunes && gguf_is_file(from))
        TRY(gguf_has_template(mem, from, &tunes));
    return tunes ? finetune_defaults(mem, config, mixture, adapters) : GT_OK;
}

/* Returns true for the files of other programs that are not nanoGPT's. */
static bool is_published(const struct checkpoint *checkpoint)
{
    return checkpoint->kind == CHECKPOINT_HF || checkpoint->kind == CHECKPOINT_GGUF;
}

/* Finds the shape of a model without its weights, which is all that a plan needs: in the table of
 * known models if the model is not on this machine, or in a folder that has only config.json.  Sets
 * *found to false if it is in neither. */
static enum gt_status shape_find(const struct config *config, struct restore_source *source,
                                 struct known_model *out, char from[static FILE_PATH_MAX],
                                 bool *found)
{
    const char *name = config->init_from;
    const bool repository = hf_hub_is_repository(name), gpt2 = hf_cache_is_name(name);
    enum checkpoint_kind kind;
    struct hf_config_rest rest;
    json_t *root;
    *found = !file_is_folder(name) && (gpt2 || !hf_hub_holds(name)) && known_model_find(name, out);
    if (*found && !gpt2)
        log_note(
            "%s is not on this machine; its shape comes from the built-in table of known models",
            name);
    if (*found || strcmp(name, "resume") == 0) {
        source->download = *found && !gpt2 ? name : NULL;
        return GT_OK;
    }
    TRY(weights_path(config, from));
    const char *path = FILE_IN(from, CHECKPOINT_CONFIG_NAME);
    if (!file_exists(path))
        return GT_OK;
    TRY(checkpoint_probe(from, &kind));
    if (kind != CHECKPOINT_NONE)
        return GT_OK;
    *found = true;
    *out = (struct known_model){.name = name};
    source->download = repository ? name : NULL;
    TRY(json_parse_file(path, CONFIG_BYTES_MAX, &root));
    const enum gt_status status = hf_config_parse(root, path, &out->config, &rest);
    json_decref(root);
    return status;
}

/* Opens the checkpoint, folder or file that init_from names.  A nanoGPT run is continued if
 * resume_state is set. */
static enum gt_status open_checkpoint(struct hostmem *mem, struct config *config,
                                      const struct mixture *mixture, struct restore_source *source,
                                      struct run_state *state, struct model_config *model)
{
    char from[FILE_PATH_MAX] = "";
    enum checkpoint_kind kind = CHECKPOINT_NONE;
    struct known_model shape;
    bool found = false;
    if (config->plan != CONFIG_PLAN_OFF)
        TRY(shape_find(config, source, &shape, from, &found));
    if (found) {
        *model = shape.config;
        TRY(tuning_prepare(mem, config, mixture, from, shape.chat || !model_is_gpt2(model), model));
        return fill_from_weights(config, model, false, config->init_from);
    }
    TRY(weights_path(config, from));
    const bool resume = strcmp(config->init_from, "resume") == 0;
    source->in_place = resume && strcmp(from, config->out_dir) == 0;
    source->branch = resume && !source->in_place;
    if (!resume)
        TRY(checkpoint_probe(from, &kind));
    source->resume = resume || (kind == CHECKPOINT_NANOGPT && config->resume_state);
    TRY(checkpoint_open(mem, from, source->resume, &source->checkpoint));
    const struct checkpoint *checkpoint = source->checkpoint;
    if (source->resume) {
        TRY(state_from_record(checkpoint, state));
        if (checkpoint->record.state.configuration)
            TRY(config_from_json(config, checkpoint->record.state.configuration,
                                 checkpoint->source));
    }
    checkpoint_blocks_log(checkpoint);
    *model = checkpoint->config;
    const bool has_arch =
        source->resume && json_object_get(checkpoint->record.state.configuration, "arch") != NULL;
    if (!source->resume)
        TRY(tuning_prepare(mem, config, mixture, from,
                           is_published(checkpoint) && !model_is_gpt2(model), model));
    TRY(fill_from_weights(config, model, has_arch, checkpoint->source));
    if (model->lora.rank > 0 && checkpoint->base[0] == '\0' && checkpoint->kind != CHECKPOINT_HF &&
        checkpoint->kind != CHECKPOINT_GGUF && checkpoint->kind != CHECKPOINT_OURS)
        return FAIL(GT_UNSUPPORTED, CHECKPOINT_BASE_FORM, checkpoint->source);
    if (checkpoint->base[0] != '\0')
        snprintf(source->base, sizeof source->base, "%s", checkpoint->base);
    else if (!file_is_folder(config->init_from) || realpath(from, source->base) == NULL)
        snprintf(source->base, sizeof source->base, "%s", config->init_from);
    if (source->resume) {
        TRY(optimizer_check(config, checkpoint));
        TRY(states_choose(config, source, &state->saved));
        const json_t *before = checkpoint->record.state.configuration;
        if (json_number_value(json_object_get(before, "hours")) != config->hours)
            state->length = 0; /* measured again */
        /* If the batches differ from the saved run's, only the format of the states still applies.
         */
        if (json_integer_value(json_object_get(before, "batch_size")) != config->batch_size ||
            json_integer_value(json_object_get(before, "block_size")) != config->block_size)
            state->saved =
                (struct session_saved){.states_chosen = true, .states = state->saved.states};
    }
    if (config->eval_only) { /* nothing is trained */
        hostmem_free(source->checkpoint->optimizer);
        source->checkpoint->optimizer = NULL;
    }
    return GT_OK;
}

/* Checks that the updates, evaluations, samples and tokens of the whole run can be counted.  A
 * checkpoint's counters may have any value. */
static enum gt_status counters_check(const struct config *config, const struct run_state *state)
{
    const int64_t left = state->iter <= config->max_iters ? config->max_iters + 1 - state->iter : 0;
    const int64_t factors[] = {left, config->batch_size, config->gradient_accumulation_steps};
    size_t samples, all, tokens;
    if (config->eval_only ||
        (state->adam_step <= INT32_MAX - left && state->evaluations <= UINT32_MAX - left &&
         size_product(factors, 3, &samples) &&
         size_add((size_t)state->samples_seen, samples, &all) &&
         size_mul(all, (size_t)config->block_size, &tokens) && tokens <= INT64_MAX))
        return GT_OK;
    return FAIL(GT_USAGE,
                "max_iters=%" PRId64 " is too many: with the %" PRId64 " iterations, %" PRId64
                " updates, %" PRId64 " evaluations and %" PRId64
                " samples so far, the run would exceed 2^31 updates, 2^32 evaluations or 2^63 "
                "tokens",
                config->max_iters, state->iter, state->adam_step, state->evaluations,
                state->samples_seen);
}

enum gt_status restore_open(struct hostmem *mem, struct config *config,
                            const struct mixture *mixture, struct restore_source *source,
                            struct run_state *state, struct model_config *model)
{
    *source = (struct restore_source){0};
    *state = (struct run_state){.best_val_loss = INFINITY};
    enum gt_status status = strcmp(config->init_from, "scratch") == 0
                                ? open_scratch(mem, config, mixture, model)
                                : open_checkpoint(mem, config, mixture, source, state, model);
    THEN(status, finetune_length_set(mem, config, source->resume));
    THEN(status, counters_check(config, state));
    if (status != GT_OK)
        restore_close(source);
    return status;
}

enum gt_status restore_open_weights(struct hostmem *mem, const struct config *config,
                                    struct restore_source *source)
{
    char from[FILE_PATH_MAX];
    *source = (struct restore_source){0};
    TRY(weights_path(config, from));
    return checkpoint_open(mem, from, false, &source->checkpoint);
}

enum gt_status restore_tokenizer_check(struct hostmem *mem, const struct config *config,
                                       const struct restore_source *source,
                                       const struct tokenizer *data, const char *folder)
{
    char from[FILE_PATH_MAX];
    struct tokenizer *folder_tokenizer = NULL;
    bool found = false;
    if (data == NULL || source->checkpoint == NULL || source->resume)
        return checkpoint_tokenizer_check(source->checkpoint, data, folder);
    TRY(weights_path(config, from));
    if (file_is_folder(from))
        TRY(tokenizer_import_folder(from, &found));
    if (found)
        TRY(tokenizer_import(mem, from, &folder_tokenizer));
    const int64_t tokens = data->vocab_size, rows = source->checkpoint->config.vocab_size;
    const bool same = folder_tokenizer != NULL ? tokenizer_has_same_tokens(folder_tokenizer, data)
                                               : tokens <= rows;
    if (!same)
        log_error("%s: this text was encoded by a tokenizer of %" PRId64
                  " tokens, but %s of %s has %" PRId64
                  "; prepare it again with gpt-prepare --tokenizer=%s",
                  folder, tokens, folder_tokenizer != NULL ? "that" : "the vocabulary", from,
                  folder_tokenizer != NULL ? folder_tokenizer->vocab_size : rows, from);
    hostmem_free(folder_tokenizer);
    return same ? GT_OK : GT_DATA;
}

enum gt_status restore_template_find(const struct config *config,
                                     const struct restore_source *source,
                                     const struct mixture *mixture, struct tokenizer *tokenizer)
{
    char from[FILE_PATH_MAX];
    if (tokenizer == NULL)
        return GT_OK;
    for (int i = 0; i < mixture->count && !tokenizer->has_template; i++)
        TRY(manifest_is_chat(mixture->parts[i].folder, &tokenizer->has_template));
    if (tokenizer->has_template || source->checkpoint == NULL)
        return GT_OK;
    TRY(weights_path(config, from));
    return gguf_is_file(from) ? gguf_template_read(from, tokenizer)
                              : tokenizer_template_read(from, tokenizer);
}

void restore_close(struct restore_source *source)
{
    hostmem_free(source->checkpoint);
    source->checkpoint = NULL;
}
