/* Writes the model card of a Hugging Face folder: README.md with a head of metadata, and the picture memory.svg.
 *
 * The facts come from the model's configuration, from the checkpoint's record and from the run's metrics.jsonl, as far
 * as they exist.  The licence is the owner's to choose.  Names are reduced to characters that mean nothing in YAML and
 * in Markdown.  A card that exists may have been edited, so it is left alone.
 */
#include "io/export_card.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "report/report.h"

struct card {
    const struct export_options *options;
    const json_t *config; /* config.json */
    struct run_record *run;
    FILE *out;
};

static void name_put(const struct card *card, const char *text)
{
    for (; *text != '\0'; text++)
        fputc(isalnum((unsigned char)*text) || strchr(" ._-/+:,()", *text) ? *text : '_', card->out);
}

/* Returns a text of config.json or of the run, or "unknown". */
static const char *text_of(const json_t *value)
{
    return json_is_string(value) ? json_string_value(value) : "unknown";
}

static const char *dataset_of(const struct card *card)
{
    const json_t *value = json_object_get(card->options->checkpoint->record.state.configuration, "dataset");
    return file_name_of(text_of(value ? value : json_object_get(card->run->facts, "dataset")));
}

static void head_put(const struct card *card)
{
    const double loss = card->run->last[RUN_VAL_LOSS];
    fputs("---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- gpt-train\n- ", card->out);
    name_put(card, text_of(json_object_get(card->config, "model_type")));
    if (isfinite(loss)) {
        fputs("\nmodel-index:\n- name: \"", card->out);
        name_put(card, card->options->name);
        fputs("\"\n  results:\n  - task:\n      type: text-generation\n    dataset:\n      name: \"", card->out);
        name_put(card, dataset_of(card));
        fputs("\"\n      type: \"", card->out);
        name_put(card, dataset_of(card));
        fprintf(
            card->out,
            "\"\n      split: validation\n    metrics:\n    - type: loss\n      value: %.4f\n    - type: perplexity\n"
            "      value: %.4f",
            loss, exp(loss));
    }
    fputs("\n---\n\n", card->out);
}

static void row_put(const struct card *card, const char *name, const char *text)
{
    fprintf(card->out, "| %s | ", name);
    name_put(card, text);
    fputs(" |\n", card->out);
}

static void training_put(const struct card *card)
{
    const struct run_record *run = card->run;
    const struct checkpoint *checkpoint = card->options->checkpoint;
    char text[128];
    if (checkpoint->kind != CHECKPOINT_OURS)
        return;
    row_put(card, "training data", dataset_of(card));
    snprintf(text, sizeof text, "%" PRId64 ", %" PRId64 " tokens", checkpoint->record.state.iter,
             checkpoint->record.state.tokens_seen);
    row_put(card, "updates", text);
    snprintf(text, sizeof text, "%.4f at iteration %" PRId64 " (perplexity %.2f)", run->last[RUN_VAL_LOSS],
             run->evaluated_iter, exp(run->last[RUN_VAL_LOSS]));
    if (isfinite(run->last[RUN_VAL_LOSS]))
        row_put(card, "validation loss", text);
    if (json_object_get(run->facts, "device"))
        row_put(card, "device", text_of(json_object_get(run->facts, "device")));
}

static void body_put(const struct card *card)
{
    const struct model_config *config = &card->options->checkpoint->config;
    char text[128];
    fputs("# ", card->out);
    name_put(card, card->options->name);
    fputs("\n\nA language model trained with gpt-train.\n\n| | |\n|---|---|\n", card->out);
    row_put(card, "class", text_of(json_array_get(json_object_get(card->config, "architectures"), 0)));
    snprintf(text, sizeof text, "%.2f million without positions",
             (double)model_parameter_count_no_positions(config) / 1e6);
    row_put(card, "parameters", text);
    snprintf(text, sizeof text, "%" PRId32 " layers, %" PRId32 " heads, %" PRId32 " channels, context %" PRId32,
             config->n_layer, config->n_head, config->n_embd, config->block_size);
    row_put(card, "shape", text);
    training_put(card);
    fputs("\n    from transformers import pipeline\n    print(pipeline(\"text-generation\", \".\")(\"Once\"))\n\n"
          "The licence is not stated: the owner adds `license:` to the head of this file.\n",
          card->out);
}

/* Writes a file of the folder from what `put` prints; none if it returns false. */
static enum gt_status file_put(struct card *card, const char *folder, const char *name,
                               bool (*put)(const struct card *))
{
    char path[FILE_PATH_MAX], *text = NULL;
    size_t count = 0;
    TRY(file_join(path, folder, name));
    card->out = open_memstream(&text, &count);
    const bool any = card->out && put(card);
    if (!card->out || fclose(card->out) != 0) {
        log_error("out of memory: %s", name);
        free(text);
        return GT_NO_MEMORY;
    }
    const enum gt_status status = any ? file_replace(path, text, count) : GT_OK;
    free(text);
    return status;
}

static bool card_put(const struct card *card)
{
    head_put(card);
    body_put(card);
    if (json_object_get(card->run->facts, "categories"))
        fputs("\n![Memory of the training run](" EXPORT_CARD_PICTURE ")\n", card->out);
    return true;
}

static bool picture_put(const struct card *card)
{
    return report_memory_draw(card->run, card->out);
}

/* Reads the metrics up to the checkpoint, if there are any. */
static enum gt_status run_read(const struct card *card)
{
    const struct checkpoint *checkpoint = card->options->checkpoint;
    TRY(run_record_open(card->run, card->options->run, card->options->name));
    if (checkpoint->kind != CHECKPOINT_OURS || !file_exists(card->run->file.path))
        return GT_OK;
    card->run->until = checkpoint->record.state.iter;
    return run_record_update(card->run);
}

enum gt_status export_card_write(const struct export_options *options, const json_t *config, const char *folder)
{
    struct card card = {.options = options, .config = config};
    TRY(HOSTMEM_NEW(options->mem, 1, "the model card", &card.run));
    enum gt_status status = run_read(&card);
    if (status == GT_OK)
        status = file_put(&card, folder, EXPORT_CARD_NAME, card_put);
    if (status == GT_OK)
        status = file_put(&card, folder, EXPORT_CARD_PICTURE, picture_put);
    run_record_close(card.run);
    hostmem_free(options->mem, card.run);
    return status;
}
