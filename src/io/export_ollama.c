/* Writes a folder from which Ollama makes a model: model.gguf, and a Modelfile with the chat
 * template, the words that end an answer, and the length of the context.
 *
 * Ollama's templates are Go's, so the model's Jinja template cannot be copied; data/chat_go.c
 * writes one of the same family.  The Modelfile is removed before the GGUF file is replaced and
 * written after it: a folder with a Modelfile is complete.  Source: Ollama's docs/modelfile.md.
 */
#include "io/export_ollama.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/chat.h"
#include "data/chat_go.h"
#include "data/chat_kind.h"
#include "data/tokenizer_generation.h"
#include "io/export_generation.h"
#include "io/export_gguf.h"
#include "io/export_options.h"
#include "io/export_weights.h"
#include "model/parameters.h"

#define CONTEXT_MAX 8192 /* longer contexts take much memory, and users can easily set them */

static void stop_put(FILE *stream, const struct tokenizer *tokenizer, int32_t id)
{
    char scratch[4];
    const char *bytes;
    if (id < 0)
        return;
    const size_t count = tokenizer_token_bytes(tokenizer, id, scratch, &bytes);
    fprintf(stream, "PARAMETER stop \"%.*s\"\n", (int)count, bytes);
}

/* Puts the base's sampling settings, if it has any. */
static void sampling_put(FILE *stream, const json_t *generation)
{
    static const char *const names[][2] = {{"temperature", "temperature"},
                                           {"top_k", "top_k"},
                                           {"top_p", "top_p"},
                                           {"min_p", "min_p"},
                                           {"repetition_penalty", "repeat_penalty"}};
    const bool greedy = json_is_false(json_object_get(generation, "do_sample"));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_t *value = json_object_get(generation, names[i][0]);
        if (i == 0 && greedy)
            fputs("PARAMETER temperature 0\n", stream);
        else if (json_is_number(value))
            fprintf(stream, "PARAMETER %s %g\n", names[i][1], json_number_value(value));
    }
}

static void modelfile_put(FILE *stream, const struct export_options *options,
                          const json_t *generation)
{
    const struct tokenizer *tokenizer = options->tokenizer;
    const struct model_config *config = &options->checkpoint->config;
    const enum chat_kind kind = chat_kind_learnt(tokenizer);
    const bool plain =
        chat_jinja_learnt(tokenizer) == NULL; /* the model has seen no conversations */
    const int32_t positions = model_positions(config);
    fprintf(stream, "# %s, by gpt-export\nFROM ./" EXPORT_OLLAMA_MODEL "\n", options->name);
    if (kind != CHAT_NONE) {
        fputs("TEMPLATE \"\"\"", stream);
        chat_go_write(kind, tokenizer_pipeline(tokenizer)->bos < 0, stream);
        fputs("\"\"\"\n", stream);
    } else if (plain) {
        fputs("TEMPLATE \"\"\"{{ .Prompt }}\"\"\"\n", stream);
    }
    for (size_t i = 0; tokenizer_generation_id(generation, "eos_token_id", i) >= 0; i++)
        stop_put(stream, tokenizer,
                 (int32_t)tokenizer_generation_id(generation, "eos_token_id", i));
    sampling_put(stream, generation);
    fprintf(stream, "PARAMETER num_ctx %" PRId32 "\n",
            positions < CONTEXT_MAX ? positions : CONTEXT_MAX);
}

static enum gt_status modelfile_write(const struct export_options *options, const char *path)
{
    char *text = NULL;
    size_t count = 0;
    json_t *generation;
    TRY(export_generation_make(options, &generation));
    FILE *stream = open_memstream(&text, &count);
    bool failed = stream == NULL;
    if (!failed) {
        modelfile_put(stream, options, generation);
        failed = ferror(stream) != 0;
        failed = fclose(stream) != 0 || failed;
    }
    json_decref(generation);
    const enum gt_status status =
        failed ? FAIL(GT_NO_MEMORY, "out of memory: the Modelfile could not be made")
               : file_replace(path, text, count);
    free(text);
    return status;
}

enum gt_status export_ollama_write(const struct export_options *options,
                                   const struct export_weights *weights)
{
    struct export_options model = *options;
    char path[FILE_PATH_MAX], modelfile[FILE_PATH_MAX];
    model.output = file_join(path, options->output, EXPORT_OLLAMA_MODEL);
    file_join(modelfile, options->output, EXPORT_MODELFILE);
    if (options->tokenizer == NULL)
        return FAIL(GT_USAGE,
                    "%s: the model has no tokenizer, which Ollama needs; --format=gguf needs none",
                    options->checkpoint->source);
    if (chat_kind_learnt(options->tokenizer) == CHAT_NONE &&
        chat_jinja_learnt(options->tokenizer) != NULL)
        log_note(
            "the model's chat template is not one that is known here, so Ollama will look for one by itself; write "
            "TEMPLATE into %s if it finds none",
            modelfile);
    const bool made = mkdir(options->output, 0777) == 0;
    if (!made && errno != EEXIST)
        return file_error(options->output, "create the folder");
    if (unlink(modelfile) != 0 && errno != ENOENT)
        return file_error(modelfile, "remove this file of another model");
    enum gt_status status = export_gguf_write(&model, weights);
    THEN(status, modelfile_write(options, modelfile));
    if (status != GT_OK && made) {
        (void)unlink(path);
        (void)rmdir(options->output);
    }
    return status;
}

const char *export_ollama_name(char out[static EXPORT_OLLAMA_NAME_MAX], const char *output)
{
    const char *name = file_name_of(output);
    size_t count = 0;
    for (; *name != '\0' && count + 1 < EXPORT_OLLAMA_NAME_MAX; name++) {
        const bool upper = *name >= 'A' && *name <= 'Z';
        const char letter = upper ? (char)(*name - 'A' + 'a') : *name;
        const bool plain = (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9');
        if (plain || (count > 0 && strchr("._-", letter) != NULL))
            out[count++] = letter;
    }
    out[count] = '\0';
    return count > 0 ? out : "mine";
}
