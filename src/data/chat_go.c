/* Writes a family's template in Go's text/template, from its row in chat_templates.c.
 *
 * Go's template prints what chat_render.c writes, with these differences.  An answer at the end of
 * the messages stays open, so that the model continues it.  White space around texts stays, because
 * Go's templates cannot remove it.  The reasoning of an answer is in .Thinking, where Ollama puts
 * it; Ollama's switch sets SmolLM3's mode, not a word in the system message.  Tools are left out:
 * Ollama would write their JSON in another form than the model was trained on.  A system message
 * that a family has no place for is written before the user's first text.
 *
 * Ollama finds the tags of the reasoning in the text before and after .Thinking.  Source: Ollama's
 * docs/template.md, template/template.go and thinking/template.go.
 */
#include "data/chat_go.h"

#include "data/chat_templates.h"

#define NO_THINK "and $.IsThinkSet (not $.Think)" /* the user switched the reasoning off */
#define FIRST "(index $.Messages 0)"
#define FIRST_IS_SYSTEM "eq " FIRST ".Role \"system\""
#define EMPTY_BLOCK CHAT_THINK_BEGIN "\n\n" CHAT_THINK_END "\n\n"

struct writer {
    const struct chat_template *template;
    FILE *stream;
};

static void put(const struct writer *writer, const char *text)
{
    (void)fputs(text, writer->stream); /* a failure is found by the owner of the stream */
}

/* "{{ if CONDITION }}" */
static void put_if(const struct writer *writer, const char *condition)
{
    (void)fprintf(writer->stream, "{{ if %s }}", condition);
}

/* Writes `text` where a condition holds, else `other`. */
static void put_either(const struct writer *writer, const char *condition, const char *text,
                       const char *other)
{
    put_if(writer, condition);
    (void)fprintf(writer->stream, "%s{{ else }}%s{{ end }}", text, other);
}

static bool is_smol(const struct writer *writer)
{
    return writer->template->thinking == CHAT_THINKING_SMOL;
}

static void head_put(const struct writer *writer)
{
    put(writer, writer->template->head);
    if (!is_smol(writer))
        return;
    put_either(writer, NO_THINK, CHAT_SMOL_NO_THINK, CHAT_SMOL_THINKS);
    put(writer, CHAT_SMOL_INSTRUCTIONS);
}

static void empty_system_put(const struct writer *writer)
{
    put_either(writer, NO_THINK, writer->template->empty_system_no_think,
               writer->template->empty_system);
}

/* Ends the system message; SmolLM3's template leaves the end of the turn out. */
static void system_end_put(const struct writer *writer)
{
    put(writer, is_smol(writer) ? "\n\n" : writer->template->after);
}

/* Writes the system message of conversations that have none. */
static void default_put(const struct writer *writer)
{
    const struct chat_template *template = writer->template;
    if (template->system_default == NULL)
        return;
    put(writer, "{{ if ne (index .Messages 0).Role \"system\" }}");
    put(writer, template->before[CHAT_SYSTEM]);
    if (template->head != NULL)
        head_put(writer);
    put(writer, template->system_default);
    if (is_smol(writer))
        empty_system_put(writer);
    system_end_put(writer);
    put(writer, "{{ end }}");
}

static void system_put(const struct writer *writer)
{
    const struct chat_template *template = writer->template;
    if (template->system != CHAT_SYSTEM_TURN) /* user_put() writes it */
        return;
    put(writer, template->before[CHAT_SYSTEM]);
    if (template->head != NULL) {
        put_if(writer, "eq $i 0");
        head_put(writer);
        put(writer, "{{ end }}");
    }
    put(writer, "{{ .Content }}");
    if (is_smol(writer)) {
        put_if(writer, "not .Content");
        empty_system_put(writer);
        put(writer, "{{ end }}");
    }
    system_end_put(writer);
}

static void user_put(const struct writer *writer)
{
    const struct chat_template *template = writer->template;
    put(writer, template->before[CHAT_USER]);
    if (template->system == CHAT_SYSTEM_LAST_USER)
        put_if(writer, "and $last (" FIRST_IS_SYSTEM ")");
    else if (template->system != CHAT_SYSTEM_TURN)
        put_if(writer, "and (eq $i 1) (" FIRST_IS_SYSTEM ")");
    if (template->system != CHAT_SYSTEM_TURN)
        put(writer, "{{ " FIRST ".Content }}\n\n{{ end }}");
    put(writer, "{{ .Content }}");
    put(writer, template->after);
}

/* Qwen's answers before the last question lose their reasoning.  Without tools at most one answer
 * comes after that question. */
static void reasoning_put(const struct writer *writer)
{
    if (writer->template->thinking == CHAT_THINKING_QWEN)
        put(writer,
            "{{ if $last }}" CHAT_THINK_BEGIN "\n{{ .Thinking }}\n" CHAT_THINK_END "\n\n{{ end }}");
    if (!is_smol(writer))
        return;
    put_if(writer, NO_THINK);
    put(writer, writer->template->think);
    put(writer, "{{ else if .Thinking }}" CHAT_THINK_BEGIN "\n{{ .Thinking }}\n" CHAT_THINK_END
                "\n{{ end }}");
}

static void answer_put(const struct writer *writer)
{
    const struct chat_template *template = writer->template;
    put(writer, template->before[CHAT_ASSISTANT]);
    reasoning_put(writer);
    put(writer, "{{ .Content }}{{ if not $last }}");
    put(writer, template->end);
    put(writer, template->tail);
    put(writer, "{{ end }}");
}

/* Writes the beginning of an answer.  The model writes a space at its end, which belongs to the
 * answer's first token. */
static void prompt_put(const struct writer *writer)
{
    const struct chat_template *template = writer->template;
    const char *text = template->before[CHAT_ASSISTANT];
    const size_t count = strlen(text);
    (void)fwrite(text, 1, count - (size_t)(text[count - 1] == ' '), writer->stream);
    if (template->thinking == CHAT_THINKING_QWEN && template->think != NULL) {
        if (template->trims) { /* Qwen3.5's thinking can be switched off */
            put_if(writer, NO_THINK);
            put(writer, EMPTY_BLOCK "{{ else }}");
        }
        put(writer, template->think);
        put(writer, template->trims ? "{{ end }}" : "");
    } else if (template->thinking != CHAT_THINKING_NONE) {
        put_if(writer, NO_THINK);
        put(writer, is_smol(writer) ? template->think : EMPTY_BLOCK);
        put(writer, "{{ end }}");
    }
}

void chat_go_write(enum chat_kind kind, bool begins, FILE *stream)
{
    const struct writer writer = {.template = chat_template_of(kind), .stream = stream};
    put(&writer, begins ? writer.template->begin : "");
    default_put(&writer);
    put(&writer, "{{ range $i, $_ := .Messages }}{{ $last := eq (len (slice $.Messages $i)) 1 }}"
                 "{{ if eq .Role \"system\" }}");
    system_put(&writer);
    put(&writer, "{{ else if eq .Role \"assistant\" }}");
    answer_put(&writer);
    put(&writer, "{{ else }}");
    user_put(&writer);
    put(&writer, "{{ end }}{{ if and $last (ne .Role \"assistant\") }}");
    prompt_put(&writer);
    put(&writer, "{{ end }}{{ end }}");
}
