/* Writes a Hugging Face folder, with a model card: README.md with a head of metadata, and the
 * picture memory.svg.
 *
 * All files are written to the temporary folder OUTPUT.gpt-export.tmp, which is then renamed, so
 * that a new OUTPUT is always complete.  If OUTPUT exists (and --force was given), the temporary
 * folder is inside it, since OUTPUT may be a link or a mount point and a rename cannot cross file
 * systems.  The files of OUTPUT are then replaced one by one, and other files in it are left alone.
 * config.json is removed first and the new one put in place last, so that in between no reader
 * mixes files of two models.  The temporary folder is locked while its process lives, so that the
 * next export recognises the leftovers of a killed one; a process id would not be unique among
 * machines or containers.  The tensors have the names that save_pretrained() gives them.
 */
#include "io/export_hf.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/chat.h"
#include "data/chat_kind.h"
#include "data/tokenizer.h"
#include "data/tokenizer_export.h"
#include "data/tokenizer_generation.h"
#include "io/export_generation.h"
#include "io/export_options.h"
#include "io/export_weights.h"
#include "io/peft.h"
#include "io/safetensors_table.h"
#include "model/parameters.h"
#include "report/report_page.h"
#include "report/run_record.h"

#define CARD_NAME "README.md"
#define CARD_PICTURE "memory.svg"
#define ASIDE_NAME "gpt-export.tmp"
#define RENAME "rename the new files over it"
#define FILES ((size_t)TOKENIZER_FILES + 7)

struct hf_export {
    const struct export_options *options;
    const struct export_weights *weights;
    bool exists; /* OUTPUT existed when the export began */
    bool has_card;
    int aside_fd; /* locked; -1: none */
    char aside[FILE_PATH_MAX];
};

/* Returns the name of a possible file of the folder.  The last one, config.json, makes the folder a
 * model. */
static const char *file_name(size_t index)
{
    static const char *const rest[] = {
        CARD_NAME,       CARD_PICTURE,     CHECKPOINT_MODEL_NAME, GENERATION_NAME,
        PEFT_MODEL_NAME, PEFT_CONFIG_NAME, CHECKPOINT_CONFIG_NAME};
    assert(index < FILES);
    return index < TOKENIZER_FILES ? tokenizer_file_names[index] : rest[index - TOKENIZER_FILES];
}

static bool is_peft(const struct hf_export *export)
{
    return export->options->format == EXPORT_PEFT;
}

/* ---- the temporary folder ---- */

/* Removes the files that a temporary folder may contain. */
static void aside_empty(const char *aside)
{
    file_remove_leftovers(aside, true);
    for (size_t i = 0; i < FILES; i++)
        (void)unlink(FILE_IN(aside, file_name(i)));
}

/* Creates and locks the temporary folder, or takes over what a killed export left of it. */
static enum gt_status aside_create(struct hf_export *export)
{
    char output[FILE_PATH_MAX];
    TRY(file_trim(output, export->options->output));
    const int length = snprintf(export->aside, sizeof export->aside, "%s%s", output,
                                export->exists ? "/" ASIDE_NAME : "." ASIDE_NAME);
    if (length >= FILE_PATH_MAX)
        return FAIL(GT_USAGE, "%.100s...: the path is too long", output);
    if (mkdir(export->aside, 0777) != 0 && errno != EEXIST)
        return file_error(export->aside, "create the folder");
    export->aside_fd = open(export->aside, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (export->aside_fd < 0)
        return file_error(export->aside, "open the folder");
    if (flock(export->aside_fd, LOCK_EX | LOCK_NB) != 0 &&
        errno == EWOULDBLOCK) { /* else: no locks on this disk */
        return FAIL(GT_USAGE, "%s: another export is writing to this folder; wait until it ends",
                    export->aside);
    }
    aside_empty(export->aside);
    return GT_OK;
}

/* ---- the weights ---- */
static bool tensor_describe(void *context, size_t index, struct safetensors_tensor *out)
{
    const struct hf_export *export = context;
    struct parameter_shape tensor;
    parameters_file_shape(&export->options->checkpoint->config, index, &tensor);
    (void)snprintf(out->name, sizeof out->name, "%s%.100s", tensor.prefix, tensor.name);
    out->dtype = export->options->dtype;
    out->rank = parameter_file_dims(&tensor, out->dims);
    return true;
}

static enum gt_status tensor_fill(void *context, size_t index, size_t first, size_t count,
                                  void *out)
{
    const struct hf_export *export = context;
    struct parameter_shape tensor;
    parameters_file_shape(&export->options->checkpoint->config, index, &tensor);
    return export_weights_read(export->weights, &tensor, false, first, count,
                               export->options->dtype, out);
}

static enum gt_status model_write(const struct hf_export *export)
{
    struct safetensors_result result;
    const struct safetensors_source source = {
        .context = (void *)export,
        .count = parameters_file_count(&export->options->checkpoint->config),
        .describe = tensor_describe,
        .fill = tensor_fill};
    const char *path =
        FILE_IN(export->aside, is_peft(export) ? PEFT_MODEL_NAME : CHECKPOINT_MODEL_NAME);
    /* As many elements as are read at a time; 16-bit ones use half of this buffer. */
    const size_t staging_bytes =
        export->weights->capacity * dtype_size_bytes(export->options->dtype);
    return safetensors_write(path, &source, export->weights->turned, staging_bytes, &result);
}

/* ---- the model card ---- */

/* The facts come from the model's configuration, the checkpoint's record and the run's
 * metrics.jsonl, as far as they exist.  The licence is the owner's to choose.  Texts are reduced to
 * characters that mean nothing in YAML and Markdown. */
struct card {
    const struct export_options *options;
    const json_t *config; /* the content of config.json */
    struct run_record *run;
};

#define PLAIN_MAX 128

/* Writes the harmless characters of a JSON text to `out`, "unknown" if there is none.  Returns
 * `out`. */
static char *plain(char out[static PLAIN_MAX], const json_t *value)
{
    const char *text = json_is_string(value) ? json_string_value(value) : "unknown";
    size_t used = 0;
    for (; *text != '\0' && used < PLAIN_MAX - 1; text++)
        out[used++] = isalnum((unsigned char)*text) || strchr(" ._-/+:,()", *text) ? *text : '_';
    out[used] = '\0';
    return out;
}

/* The head: YAML that the Hub reads. */
static void head_write(FILE *out, const char *name, const char *dataset, const char *type,
                       double loss)
{
    fprintf(
        out,
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- gpt-train\n- %s\n",
        type);
    if (isfinite(loss))
        fprintf(
            out,
            "model-index:\n- name: \"%s\"\n  results:\n  - task:\n      type: text-generation\n    dataset:\n"
            "      name: \"%s\"\n      type: \"%s\"\n      split: validation\n    metrics:\n    - type: loss\n"
            "      value: %.4f\n    - type: perplexity\n      value: %.4f\n",
            name, dataset, dataset, loss, exp(loss));
    fputs("---\n\n", out);
}

static void card_draw(const struct card *card, FILE *out)
{
    const struct checkpoint *checkpoint = card->options->checkpoint;
    const struct run_record *run = card->run;
    const struct model_config *model = &checkpoint->config;
    const double loss = run->last[RUN_VAL_LOSS];
    const json_t *dataset = json_object_get(checkpoint->record.state.configuration, "dataset");
    char name[PLAIN_MAX], data[PLAIN_MAX], text[PLAIN_MAX];
    json_t *owned = json_string(card->options->name);
    plain(name, owned);
    json_decref(owned);
    plain(data, dataset);
    head_write(out, name, strchr(data, ',') ? data : file_name_of(data),
               plain(text, json_object_get(card->config, "model_type")), loss);
    fprintf(
        out,
        "# %s\n\nA language model trained with gpt-train.\n\n| | |\n|---|---|\n| class | %s |\n",
        name, plain(text, json_array_get(json_object_get(card->config, "architectures"), 0)));
    fprintf(out, "| parameters | %.2f million, without positions |\n",
            (double)model_parameter_count_no_positions(model) / 1e6);
    fprintf(out,
            "| shape | %" PRId32 " layers, %" PRId32 " heads, %" PRId32
            " channels, context %" PRId32 " |\n",
            model->n_layer, model->n_head, model->n_embd, model->block_size);
    if (checkpoint->kind == CHECKPOINT_OURS)
        fprintf(out, "| training data | %s |\n| updates | %" PRId64 ", %" PRId64 " tokens |\n",
                data, checkpoint->record.state.iter, checkpoint->record.state.tokens_seen);
    if (isfinite(loss))
        fprintf(out, "| validation loss | %.4f at iteration %" PRId64 ", perplexity %.2f |\n", loss,
                run->evaluated_iter, exp(loss));
    if (json_object_get(run->facts, "device"))
        fprintf(out, "| device | %s |\n", plain(text, json_object_get(run->facts, "device")));
    if (json_object_get(run->facts, "categories"))
        fputs("\n![Memory of the training run](" CARD_PICTURE ")\n", out);
    fputs(
        "\n    from transformers import pipeline\n    print(pipeline(\"text-generation\", \".\")(\"Once\"))\n\n"
        "The licence is not stated: the owner adds `license:` to the head of this file.\n",
        out);
}

static void picture_draw(const struct card *card, FILE *out)
{
    (void)report_memory_draw(card->run, out);
}

static enum gt_status drawn_write(const struct card *card,
                                  void (*draw)(const struct card *card, FILE *out),
                                  const char *path)
{
    FILE *out = fopen(path, "wxe");
    if (out == NULL)
        return file_error(path, "create");
    draw(card, out);
    const bool failed = fflush(out) != 0 || ferror(out) || fsync(fileno(out)) != 0;
    return fclose(out) != 0 || failed ? file_error(path, "write") : GT_OK;
}

static enum gt_status card_write(const struct hf_export *export, const json_t *config)
{
    struct card card = {.options = export->options, .config = config};
    const struct checkpoint *checkpoint = card.options->checkpoint;
    TRY(HOSTMEM_NEW(card.options->mem, 1, "the model card", &card.run));
    enum gt_status status = run_record_open(card.run, card.options->run, card.options->name);
    card.run->until = checkpoint->record.state.iter;
    if (status == GT_OK && checkpoint->kind == CHECKPOINT_OURS && file_exists(card.run->file.path))
        status = run_record_update(card.run);
    THEN(status, drawn_write(&card, card_draw, FILE_IN(export->aside, CARD_NAME)));
    if (json_object_get(card.run->facts, "categories"))
        THEN(status, drawn_write(&card, picture_draw, FILE_IN(export->aside, CARD_PICTURE)));
    run_record_close(card.run);
    hostmem_free(card.run);
    return status;
}

/* ---- the other files ---- */
static enum gt_status json_save(const struct hf_export *export, const char *name,
                                const json_t *root)
{
    return json_replace_file(FILE_IN(export->aside, name), root, CHECKPOINT_JSON_INDENT);
}

static enum gt_status configs_write(const struct hf_export *export)
{
    const struct checkpoint *checkpoint = export->options->checkpoint;
    json_t *config = NULL, *generation = NULL;
    const struct tokenizer *tokenizer = export->options->tokenizer;
    /* The tokenizer's, else those in the checkpoint's config.json. */
    const int32_t end = export_end_token(export->options),
                  eot = tokenizer != NULL ? tokenizer_eot(tokenizer) : -1;
    const int32_t bos = tokenizer_pipeline(tokenizer)->bos, begin = bos >= 0 ? bos : eot;
    TRY(hf_config_make(&checkpoint->config, begin >= 0 ? begin : checkpoint->rest.bos_token, end,
                       &config));
    enum gt_status status = export_generation_make(export->options, &generation);
    if (status == GT_OK &&
        json_object_set_new(config, "torch_dtype",
                            json_string(dtype_name(export->options->dtype))) != 0)
        status = FAIL(GT_NO_MEMORY, "out of memory: config.json");
    THEN(status, json_save(export, CHECKPOINT_CONFIG_NAME, config));
    THEN(status, json_save(export, GENERATION_NAME, generation));
    if (status == GT_OK && export->has_card)
        log_note("%s: " CARD_NAME " is left as it is", export->options->output);
    else
        THEN(status, card_write(export, config));
    json_decref(generation);
    json_decref(config);
    return status;
}

static enum gt_status adapter_config_write(const struct hf_export *export)
{
    json_t *config;
    TRY(peft_config_make(&export->options->checkpoint->config, export->options->checkpoint->base,
                         &config));
    const enum gt_status status = json_save(export, PEFT_CONFIG_NAME, config);
    json_decref(config);
    return status;
}

static enum gt_status folder_write(const struct hf_export *export)
{
    const struct export_options *options = export->options;
    TRY(is_peft(export) ? adapter_config_write(export) : configs_write(export));
    if (options->tokenizer != NULL)
        TRY(tokenizer_files_save(options->tokenizer, options->checkpoint->config.block_size,
                                 export->aside));
    else
        log_note("the model has no tokenizer, so the folder has none");
    TRY(model_write(export));
    return file_sync_folder(export->aside);
}

/* ---- putting it in place ---- */
static enum gt_status file_remove(const char *output, const char *name)
{
    const char *path = FILE_IN(output, name);
    return unlink(path) == 0 || errno == ENOENT
               ? GT_OK
               : file_error(path, "remove this file of another model");
}

static enum gt_status file_publish(const struct hf_export *export, size_t index)
{
    const char *name = file_name(index), *to = FILE_IN(export->options->output, name);
    if (export->has_card && (strcmp(name, CARD_NAME) == 0 || strcmp(name, CARD_PICTURE) == 0))
        return GT_OK;
    if (rename(FILE_IN(export->aside, name), to) == 0)
        return GT_OK;
    if (errno != ENOENT)
        return file_error(to, RENAME);
    return file_remove(export->options->output,
                       name); /* an earlier export's tokenizer is not of this model */
}

/* The syncs preserve this order across a power loss. */
static enum gt_status files_publish(const struct hf_export *export)
{
    TRY(file_sync_folder(export->options->output));
    for (size_t i = 0; i < FILES - 1; i++)
        TRY(file_publish(export, i));
    TRY(file_sync_folder(export->options->output));
    TRY(file_publish(export, FILES - 1));
    return file_sync_folder(export->options->output);
}

static enum gt_status folder_publish(const struct hf_export *export)
{
    const char *output = export->options->output;
    if (!export->exists) {
        if (rename(export->aside, output) != 0)
            return file_error(output, RENAME);
        return file_sync_name(
            export->aside); /* it had the same parent, and does not end in a slash */
    }
    TRY(file_remove(output, CHECKPOINT_CONFIG_NAME)); /* now the folder is not a model */
    enum gt_status status = files_publish(export);
    if (status != GT_OK)
        log_warning("%s: may now hold files of two models and has no " CHECKPOINT_CONFIG_NAME
                    "; repeat the export",
                    output);
    return status;
}

enum gt_status export_hf_write(const struct export_options *options,
                               const struct export_weights *weights)
{
    struct hf_export export = {.options = options, .weights = weights, .aside_fd = -1};
    TRY(file_stat_exists(options->output, &export.exists));
    TRY(file_stat_exists(FILE_IN(options->output, CARD_NAME), &export.has_card));
    enum gt_status status = aside_create(&export);
    if (status == GT_OK) {
        status = folder_write(&export);
        THEN(status, folder_publish(&export));
        aside_empty(export.aside);
        (void)rmdir(export.aside);
    }
    if (export.aside_fd >= 0)
        (void)close(export.aside_fd);
    return status;
}
