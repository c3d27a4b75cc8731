/* Chooses a writer, after the checks that all formats share.
 *
 * Errors that do not depend on the weights, such as a wrong dtype or an existing output, are detected before the
 * weights are read.  The checkpoint is then verified, and only then does the writer begin.
 */
#include "io/export.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "io/checkpoint_keep.h"
#include "io/hf_config.h"

static const struct {
    enum gt_status (*write)(const struct export_options *options, const struct export_weights *weights);
    unsigned dtypes; /* bits */
    bool folder;
} formats[] = {
    [EXPORT_HF] = {export_hf_write, 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16, true},
    [EXPORT_GGUF] = {export_gguf_write, 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16, false},
    [EXPORT_LLMC] = {export_llmc_write, 1u << DTYPE_F32 | 1u << DTYPE_BF16, false},
};
_Static_assert(sizeof formats / sizeof formats[0] == EXPORT_FORMATS, "a writer for every format");

const char *const export_format_words[] = {"hf", "gguf", "llmc", NULL};

/* Fails when `folder` is the folder of a run, which an export would damage. */
static enum gt_status run_refuse(const char *output, const char *folder, const char *what)
{
    char record[FILE_PATH_MAX];
    bool exists;
    TRY(file_join(record, folder, CHECKPOINT_RECORD_NAME));
    TRY(file_look(record, &exists));
    if (!exists)
        return GT_OK;
    log_error("%s: is %s of a run, which an export would damage; choose another OUTPUT", output, what);
    return GT_USAGE;
}

static enum gt_status output_check(const struct export_options *options)
{
    const char *output = options->output;
    const bool folder = formats[options->format].folder;
    char parent[FILE_PATH_MAX];
    bool exists;
    TRY(file_look(output, &exists));
    if (!folder && checkpoint_keep_belongs(file_name_of(output))) {
        file_folder_of(parent, output);
        TRY(run_refuse(output, parent, "a file"));
    }
    if (!exists)
        return GT_OK;
    if (file_is_folder(output) != folder) {
        log_error("%s: is %s, but --format=%s writes %s", output, folder ? "a file" : "a folder",
                  export_format_words[options->format], folder ? "a folder" : "a file");
        return GT_USAGE;
    }
    if (folder)
        TRY(run_refuse(output, output, "the folder"));
    if (options->force)
        return GT_OK;
    log_error("%s: already exists; --force replaces it", output);
    return GT_USAGE;
}

/* Refuses a model that the format cannot hold. */
static enum gt_status model_check(const struct export_options *options)
{
    const struct model_config *config = &options->checkpoint->config;
    const bool gguf = options->format == EXPORT_GGUF;
    const char *lacks = gguf ? export_gguf_lacks(config) : hf_config_lacks(config);
    if (options->format == EXPORT_LLMC && !model_is_gpt2(config)) {
        log_error("%s: --format=llmc holds GPT-2's blocks only%s", options->checkpoint->source,
                  lacks == NULL ? "; --format=hf holds this model" : "");
        return GT_UNSUPPORTED;
    }
    if (lacks == NULL)
        return GT_OK;
    log_error("%s: no %s holds a model with %s", options->checkpoint->source,
              gguf ? "architecture of llama.cpp" : "class of transformers", lacks);
    return GT_UNSUPPORTED;
}

enum gt_status export_run(const struct export_options *options)
{
    struct export_weights weights;
    struct checkpoint written = *options->checkpoint;
    struct export_options output = *options;
    written.config.embed_norm = false; /* export_weights_read() folds it into the table */
    output.checkpoint = &written;
    if ((formats[options->format].dtypes >> options->dtype & 1u) == 0) {
        log_error("--format=%s cannot store %s; choose another --dtype", export_format_words[options->format],
                  dtype_name(options->dtype));
        return GT_USAGE;
    }
    TRY(model_check(&output));
    TRY(output_check(options));
    TRY(export_weights_open(options->mem, options->checkpoint, &weights));
    const enum gt_status status = formats[options->format].write(&output, &weights);
    export_weights_close(&weights);
    return status;
}
