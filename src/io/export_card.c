/* Writes the model card of a Hugging Face folder: README.md with a head of metadata, and the picture memory.svg.
 *
 * The facts come from the model's configuration, the checkpoint's record and the run's metrics.jsonl, as far as they
 * exist.  The licence is the owner's to choose.  Texts are reduced to characters that mean nothing in YAML and
 * Markdown.
 */
#include <ctype.h>
#include <math.h>
#include <unistd.h>

#include "io/export.h"
#include "report/report.h"

#define PLAIN_MAX 128

/* Writes the harmless characters of a JSON text to `out`, "unknown" if there is none.  Returns `out`. */
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
static void head_write(FILE *out, const char *name, const char *dataset, const char *type, double loss)
{
    fprintf(out, "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- gpt-train\n- %s\n", type);
    if (isfinite(loss))
        fprintf(out,
                "model-index:\n- name: \"%s\"\n  results:\n  - task:\n      type: text-generation\n    dataset:\n"
                "      name: \"%s\"\n      type: \"%s\"\n      split: validation\n    metrics:\n    - type: loss\n"
                "      value: %.4f\n    - type: perplexity\n      value: %.4f\n",
                name, dataset, dataset, loss, exp(loss));
    fputs("---\n\n", out);
}

static void card_write(const struct export_options *options, const json_t *config, const struct run_record *run,
                       FILE *out)
{
    const struct checkpoint *checkpoint = options->checkpoint;
    const struct model_config *model = &checkpoint->config;
    const double loss = run->last[RUN_VAL_LOSS];
    const json_t *dataset = json_object_get(checkpoint->record.state.configuration, "dataset");
    char name[PLAIN_MAX], data[PLAIN_MAX], text[PLAIN_MAX];
    json_t *owned = json_string(options->name);
    plain(name, owned);
    json_decref(owned);
    plain(data, dataset);
    head_write(out, name, strchr(data, ',') ? data : file_name_of(data),
               plain(text, json_object_get(config, "model_type")), loss);
    fprintf(out, "# %s\n\nA language model trained with gpt-train.\n\n| | |\n|---|---|\n| class | %s |\n", name,
            plain(text, json_array_get(json_object_get(config, "architectures"), 0)));
    fprintf(out, "| parameters | %.2f million, without positions |\n",
            (double)model_parameter_count_no_positions(model) / 1e6);
    fprintf(out, "| shape | %" PRId32 " layers, %" PRId32 " heads, %" PRId32 " channels, context %" PRId32 " |\n",
            model->n_layer, model->n_head, model->n_embd, model->block_size);
    if (checkpoint->kind == CHECKPOINT_OURS)
        fprintf(out, "| training data | %s |\n| updates | %" PRId64 ", %" PRId64 " tokens |\n", data,
                checkpoint->record.state.iter, checkpoint->record.state.tokens_seen);
    if (isfinite(loss))
        fprintf(out, "| validation loss | %.4f at iteration %" PRId64 ", perplexity %.2f |\n", loss,
                run->evaluated_iter, exp(loss));
    if (json_object_get(run->facts, "device"))
        fprintf(out, "| device | %s |\n", plain(text, json_object_get(run->facts, "device")));
    if (json_object_get(run->facts, "categories"))
        fputs("\n![Memory of the training run](" EXPORT_CARD_PICTURE ")\n", out);
    fputs("\n    from transformers import pipeline\n    print(pipeline(\"text-generation\", \".\")(\"Once\"))\n\n"
          "The licence is not stated: the owner adds `license:` to the head of this file.\n",
          out);
}

/* Begins a file of the folder; `out` is for what it is to contain. */
static enum gt_status file_begin(const char *folder, const char *name, FILE **out)
{
    const char *path = FILE_IN(folder, name);
    *out = fopen(path, "wxe");
    return *out ? GT_OK : file_error(path, "create");
}

static enum gt_status file_end(FILE *out, const char *name)
{
    const bool failed = fflush(out) != 0 || ferror(out) || fsync(fileno(out)) != 0;
    return fclose(out) != 0 || failed ? file_error(name, "write") : GT_OK;
}

enum gt_status export_card_write(const struct export_options *options, const json_t *config, const char *folder)
{
    const struct checkpoint *checkpoint = options->checkpoint;
    struct run_record *run;
    FILE *out = NULL;
    TRY(HOSTMEM_NEW(options->mem, 1, "the model card", &run));
    enum gt_status status = run_record_open(run, options->run, options->name);
    run->until = checkpoint->record.state.iter;
    if (status == GT_OK && checkpoint->kind == CHECKPOINT_OURS && file_exists(run->file.path))
        status = run_record_update(run);
    THEN(status, file_begin(folder, EXPORT_CARD_NAME, &out));
    if (status == GT_OK) {
        card_write(options, config, run, out);
        status = file_end(out, EXPORT_CARD_NAME);
    }
    if (status == GT_OK && json_object_get(run->facts, "categories")) {
        status = file_begin(folder, EXPORT_CARD_PICTURE, &out);
        if (status == GT_OK) {
            (void)report_memory_draw(run, out);
            status = file_end(out, EXPORT_CARD_PICTURE);
        }
    }
    run_record_close(run);
    hostmem_free(run);
    return status;
}
