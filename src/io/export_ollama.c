/* Writes a folder from which Ollama makes a model: model.gguf, and a Modelfile with the chat template, the words that
 * end an answer, and the length of the context.
 *
 * Ollama's templates are Go's text/template over .Messages, so the model's Jinja template cannot be copied.  Each
 * family of templates is a row of the texts around a message, from which one Go template is made; what Go's prints is
 * what Jinja's prints, except that an answer at the end of the messages stays open, so that the model continues it, as
 * in Ollama's own templates.  Ollama adds the token that begins a text where the vocabulary says so, so the template
 * has it only where it does not.  The Modelfile is removed before the GGUF file is replaced and written after it: a
 * folder with a Modelfile is complete.  Source: Ollama's docs/modelfile.md and docs/template.md.
 */
#include "io/export_ollama.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/chat.h"
#include "data/chat_kind.h"
#include "io/export_gguf.h"
#include "io/export_options.h"
#include "io/export_weights.h"
#include "model/parameters.h"

#define CONTEXT_MAX 8192 /* longer ones take much memory, and are easily set */

/* The texts around messages.  `after` ends the messages of others than the assistant. */
struct family {
    const char *word; /* of chat_words */
    const char *begin, *system, *user, *assistant, *end, *after;
    const char *system_default; /* where no message is the system's, or NULL */
};

#define CHATML "<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n", "<|im_end|>\n", "<|im_end|>\n"
#define LLAMA3                                                                                               \
    "<|begin_of_text|>", "<|start_header_id|>system<|end_header_id|>\n\n",                                   \
        "<|start_header_id|>user<|end_header_id|>\n\n", "<|start_header_id|>assistant<|end_header_id|>\n\n", \
        "<|eot_id|>", "<|eot_id|>"

static const struct family families[] = {
    {"chatml", "", CHATML, NULL},
    {"llama3", LLAMA3, NULL},
};

static const struct family *family_find(enum chat_kind kind)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(families[i].word, chat_words[kind]) == 0)
            return &families[i];
    return NULL;
}

static void template_put(FILE *stream, const struct family *family, bool begins)
{
    fputs(begins ? family->begin : "", stream);
    if (family->system_default != NULL)
        fprintf(stream, "{{ if ne (index .Messages 0).Role \"system\" }}%s%s%s{{ end }}", family->system,
                family->system_default, family->after);
    fprintf(stream,
            "{{ range $i, $_ := .Messages }}{{ $last := eq (len (slice $.Messages $i)) 1 }}"
            "{{ if eq .Role \"system\" }}%s{{ .Content }}%s"
            "{{ else if eq .Role \"assistant\" }}%s{{ .Content }}{{ if not $last }}%s{{ end }}"
            "{{ else }}%s{{ .Content }}%s{{ end }}"
            "{{ if and $last (ne .Role \"assistant\") }}%s{{ end }}{{ end }}",
            family->system, family->after, family->assistant, family->end, family->user, family->after,
            family->assistant);
}

static void stop_put(FILE *stream, const struct tokenizer *tokenizer, int32_t id)
{
    char scratch[4];
    const char *bytes;
    if (id < 0)
        return;
    const size_t count = tokenizer_token_bytes(tokenizer, id, scratch, &bytes);
    fprintf(stream, "PARAMETER stop \"%.*s\"\n", (int)count, bytes);
}

static void modelfile_put(FILE *stream, const struct export_options *options)
{
    const struct tokenizer *tokenizer = options->tokenizer;
    const struct model_config *config = &options->checkpoint->config;
    const enum chat_kind kind = chat_kind_learnt(tokenizer);
    const struct family *family = family_find(kind);
    const int32_t positions = model_positions(config), end = export_end_token(options);
    fprintf(stream, "# %s, by gpt-export\nFROM ./" EXPORT_OLLAMA_MODEL "\n", options->name);
    if (family != NULL || kind == CHAT_NONE)
        fputs("TEMPLATE \"\"\"", stream);
    if (family != NULL)
        template_put(stream, family, tokenizer_pipeline(tokenizer)->bos < 0);
    else if (kind == CHAT_NONE)
        fputs("{{ .Prompt }}", stream);
    if (family != NULL || kind == CHAT_NONE)
        fputs("\"\"\"\n", stream);
    stop_put(stream, tokenizer, end);
    if (tokenizer_eot(tokenizer) != end)
        stop_put(stream, tokenizer, tokenizer_eot(tokenizer));
    fprintf(stream, "PARAMETER num_ctx %" PRId32 "\n", positions < CONTEXT_MAX ? positions : CONTEXT_MAX);
}

static enum gt_status modelfile_write(const struct export_options *options, const char *path)
{
    char *text = NULL;
    size_t count = 0;
    FILE *stream = open_memstream(&text, &count);
    bool failed = stream == NULL;
    if (!failed) {
        modelfile_put(stream, options);
        failed = ferror(stream) != 0;
        failed = fclose(stream) != 0 || failed;
    }
    const enum gt_status status =
        failed ? FAIL(GT_NO_MEMORY, "out of memory: the Modelfile could not be made") : file_replace(path, text, count);
    free(text);
    return status;
}

enum gt_status export_ollama_write(const struct export_options *options, const struct export_weights *weights)
{
    struct export_options model = *options;
    char path[FILE_PATH_MAX], modelfile[FILE_PATH_MAX];
    const enum chat_kind kind = chat_kind_learnt(options->tokenizer);
    model.output = file_join(path, options->output, EXPORT_OLLAMA_MODEL);
    file_join(modelfile, options->output, EXPORT_MODELFILE);
    if (options->tokenizer == NULL)
        return FAIL(GT_USAGE, "%s: the model has no tokenizer, which Ollama needs; --format=gguf needs none",
                    options->checkpoint->source);
    if (kind != CHAT_NONE && family_find(kind) == NULL)
        log_note("no Go template is known for --chat=%s, so Ollama will look for one by itself; write TEMPLATE into %s",
                 chat_words[kind], modelfile);
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
