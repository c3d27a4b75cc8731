/* Renders a conversation in a family's template: one mechanism, which the rows of chat_templates.c
 * drive.
 *
 * A conversation is always rendered as a whole, because what a turn becomes may depend on later
 * ones: Qwen3 drops the reasoning of answers before the last question.  The marks of counted text
 * are set around each answer as the template writes it.
 */
#include "data/chat_render.h"

#include "data/chat_kind.h"
#include "data/chat_mark.h"
#include "data/chat_out.h"
#include "data/chat_templates.h"

/* A text inside a message. */
struct span {
    const char *text;
    size_t count;
};

struct message {
    enum chat_role role;
    struct span text, reasoning; /* a NULL text: none */
    const json_t *calls;
    bool counts;
};

struct rendering {
    const struct chat_template *template;
    const struct chat_conversation *conversation;
    enum chat_train_on train_on;
    struct chat_out *out;
    size_t count;         /* of messages */
    size_t last_question; /* index of the user's last message; without one, of the last message */
    size_t last_answer;
    bool no_think; /* SmolLM3: the system message says so */
};

static struct span span_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return (struct span){.text = json_string_value(value), .count = json_string_length(value)};
}

static enum chat_role role_of(const char *name)
{
    static const char *const names[CHAT_ROLES] = {"system", "user", "assistant", "tool"};
    int role = 0;
    while (strcmp(names[role], name) != 0)
        role++;
    return (enum chat_role)role;
}

static struct message message_at(const struct rendering *rendering, size_t index)
{
    const json_t *object = json_array_get(rendering->conversation->messages, index);
    struct message message = {.text = span_of(object, "content"),
                              .reasoning = span_of(object, "reasoning_content"),
                              .calls = json_object_get(object, "tool_calls"),
                              .counts = json_is_true(json_object_get(object, "counts"))};
    message.role = role_of(json_string_value(json_object_get(object, "role")));
    if (message.text.text == NULL)
        message.text = (struct span){.text = "", .count = 0};
    return message;
}

/* ---- pieces of text ---- */

static void mark_write(struct chat_out *out, char mark)
{
    chat_out_bytes(out, (const char[]){CHAT_MARK[0], mark}, 2);
}

static bool span_begins(struct span span, const char *text)
{
    return span.count >= strlen(text) && memcmp(span.text, text, strlen(text)) == 0;
}

/* Writes a text with marks for the special tokens in it. */
static void text_write(const struct rendering *rendering, struct span text)
{
    while (text.count > 0) {
        size_t length = 0;
        char mark = '0';
        for (const char *const *special = rendering->template->specials;
             *special != NULL && length == 0; special++) {
            length = span_begins(text, *special) ? strlen(*special) : 0;
            mark = (char)(mark + (length == 0));
        }
        if (length > 0)
            mark_write(rendering->out, mark);
        else
            chat_out_bytes(rendering->out, text.text, length = 1);
        text.text += length;
        text.count -= length;
    }
}

/* Does the same for a text of the template. */
static void markup_write(const struct rendering *rendering, const char *text)
{
    text_write(rendering, (struct span){text, strlen(text)});
}

static void span_write(const struct rendering *rendering, struct span span, bool trims)
{
    if (trims)
        span.text = chat_strip(span.text, &span.count);
    chat_out_bytes(rendering->out, span.text, span.count);
}

static bool span_ends(struct span span, const char *text)
{
    const size_t count = strlen(text);
    return span.count >= count && memcmp(span.text + span.count - count, text, count) == 0;
}

/* Returns the offset of the first or the last `text` in the span, or its length. */
static size_t span_find(struct span span, const char *text, bool last)
{
    const size_t count = strlen(text);
    size_t found = span.count;
    for (size_t at = 0; at + count <= span.count && (last || found == span.count); at++)
        if (memcmp(span.text + at, text, count) == 0)
            found = at;
    return found;
}

static struct span span_without_newlines(struct span span, bool left, bool right)
{
    for (; left && span.count > 0 && span.text[0] == '\n'; span.count--)
        span.text++;
    while (right && span.count > 0 && span.text[span.count - 1] == '\n')
        span.count--;
    return span;
}

/* ---- the system message and the tools ---- */

/* Removes every `text` from what was written since `from`. */
static void out_remove(struct chat_out *out, size_t from, const char *text)
{
    const size_t count = strlen(text);
    size_t to = from, at = from;
    while (at < out->count) {
        const bool found = out->count - at >= count && memcmp(out->text + at, text, count) == 0;
        if (!found)
            out->text[to++] = out->text[at];
        at += found ? count : 1;
    }
    out->count = to;
}

/* Writes SmolLM3's system message, without the end of the turn, as its template does. */
static void smol_system_write(const struct rendering *rendering, struct span text)
{
    struct chat_out *out = rendering->out;
    const bool overrides = span_find(text, "/system_override", false) < text.count;
    if (!overrides) {
        chat_out_text(out, rendering->template->head);
        chat_out_text(out, rendering->no_think ? CHAT_SMOL_NO_THINK : CHAT_SMOL_THINKS);
        chat_out_text(out, CHAT_SMOL_INSTRUCTIONS);
    }
    const size_t from = out->count;
    span_write(rendering, text, false);
    out_remove(out, from, CHAT_SMOL_NO_THINK);
    out_remove(out, from, CHAT_SMOL_THINKS);
    out->count = from + chat_strip_end(out->text + from, out->count - from);
    if (overrides) {
        out_remove(out, from, "/system_override");
        out->count = from + chat_strip_end(out->text + from, out->count - from);
        markup_write(rendering, rendering->template->after);
        return;
    }
    if (out->count == from)
        chat_out_text(out, rendering->no_think ? rendering->template->empty_system_no_think
                                               : rendering->template->empty_system);
    chat_out_text(out, "\n\n");
}

static bool tools_write(const struct rendering *rendering, const char *before, const char *after,
                        int indent)
{
    const json_t *tools = rendering->conversation->tools;
    bool good = true;
    for (size_t i = 0; i < json_array_size(tools) && good; i++) {
        chat_out_text(rendering->out, before);
        good = chat_out_json(rendering->out, json_array_get(tools, i), indent);
        chat_out_text(rendering->out, after);
    }
    return good;
}

static bool qwen_tools_write(const struct rendering *rendering)
{
    const bool xml = rendering->template->tools == CHAT_TOOLS_QWEN35;
    chat_out_text(rendering->out, xml ? CHAT_QWEN35_TOOLS : CHAT_QWEN_TOOLS);
    const bool good = tools_write(rendering, "\n", "", 0);
    chat_out_text(rendering->out, xml ? "\n" CHAT_QWEN35_TOOLS_END : "\n" CHAT_QWEN_TOOLS_END);
    return good;
}

static bool llama_tools_write(const struct rendering *rendering)
{
    chat_out_text(rendering->out, CHAT_LLAMA_TOOLS);
    return tools_write(rendering, "", "\n\n", 4);
}

/* Writes the first system message, or else the template's own, and the tools that the template
 * writes there. */
static bool system_write(const struct rendering *rendering)
{
    const struct chat_template *template = rendering->template;
    const bool has_tools = json_array_size(rendering->conversation->tools) > 0;
    const bool qwen_tools = has_tools && template->tools != CHAT_TOOLS_LLAMA;
    const bool tools_first = qwen_tools && template->tools == CHAT_TOOLS_QWEN35;
    const struct message first = message_at(rendering, 0);
    const char *plain = template->system_default;
    struct span text = {.text = plain, .count = plain != NULL ? strlen(plain) : 0};
    bool good = true;
    if (first.role == CHAT_SYSTEM)
        text = first.text;
    if (template->system != CHAT_SYSTEM_TURN || (text.text == NULL && !qwen_tools))
        return true;
    markup_write(rendering, template->before[CHAT_SYSTEM]);
    if (template->empty_system != NULL) {
        smol_system_write(rendering, text);
        return true;
    }
    if (template->head != NULL) {
        chat_out_text(rendering->out, has_tools ? "Environment: ipython\n" : "");
        chat_out_text(rendering->out, template->head);
    }
    if (text.text != NULL && template->trims)
        text.text = chat_strip(text.text, &text.count);
    if (tools_first)
        good = qwen_tools_write(rendering);
    if (tools_first && text.count > 0)
        chat_out_text(rendering->out, "\n\n");
    if (text.text != NULL)
        span_write(rendering, text, false);
    if (text.text != NULL && qwen_tools && !tools_first)
        chat_out_text(rendering->out, "\n\n");
    if (qwen_tools && !tools_first)
        good = qwen_tools_write(rendering);
    markup_write(rendering, template->after);
    return good;
}

/* ---- turns ---- */

/* Writes what precedes the text of a user's message. */
static bool user_prefix_write(const struct rendering *rendering, size_t index)
{
    const struct chat_template *template = rendering->template;
    const struct message first = message_at(rendering, 0);
    const bool has_system = first.role == CHAT_SYSTEM;
    const bool is_first = index == (size_t)has_system;
    if (has_system &&
        ((template->system == CHAT_SYSTEM_FIRST_USER && is_first) ||
         (template->system == CHAT_SYSTEM_LAST_USER && index + 1 == rendering->count))) {
        span_write(rendering, first.text, false);
        chat_out_text(rendering->out, "\n\n");
    }
    const bool has_tools =
        template->tools == CHAT_TOOLS_LLAMA && json_array_size(rendering->conversation->tools) > 0;
    return !has_tools || !is_first || llama_tools_write(rendering);
}

/* Writes a tool's result.  Qwen's template joins consecutive results in one turn. */
static void result_write(const struct rendering *rendering, size_t index,
                         const struct message *message)
{
    const struct chat_template *template = rendering->template;
    struct chat_out *out = rendering->out;
    const bool first = index == 0 || message_at(rendering, index - 1).role != CHAT_TOOL;
    const bool last =
        index + 1 == rendering->count || message_at(rendering, index + 1).role != CHAT_TOOL;
    const json_t *object = json_array_get(rendering->conversation->messages, index);
    const bool is_llama = template->tools == CHAT_TOOLS_LLAMA;
    if (first || is_llama)
        markup_write(rendering, template->before[CHAT_TOOL]);
    if (is_llama) {
        (void)chat_out_json(out, json_object_get(object, "content"), 0); /* a text */
    } else {
        chat_out_text(out, "\n" CHAT_RESULT_BEGIN "\n");
        span_write(rendering, message->text, template->trims);
        chat_out_text(out, "\n" CHAT_RESULT_END);
    }
    if (last || is_llama)
        markup_write(rendering, template->after);
}

/* Writes lists and objects as JSON, and other values as Python's str() does. */
static bool value_write(struct chat_out *out, const json_t *value)
{
    if (json_is_string(value))
        chat_out_bytes(out, json_string_value(value), json_string_length(value));
    else if (json_is_boolean(value))
        chat_out_text(out, json_is_true(value) ? "True" : "False");
    else if (json_is_null(value))
        chat_out_text(out, "None");
    else
        return chat_out_json(out, value, 0);
    return true;
}

/* Writes a call in Qwen3.5's tags. */
static bool xml_call_write(const struct rendering *rendering, const json_t *given)
{
    struct chat_out *out = rendering->out;
    const char *name = NULL;
    json_t *value = NULL;
    bool good = true;
    chat_out_text(out, "<tool_call>\n<function=");
    span_write(rendering, span_of(given, "name"), false);
    chat_out_text(out, ">\n");
    json_object_foreach(json_object_get(given, "arguments"), name, value)
    {
        chat_out_text(out, "<parameter=");
        chat_out_text(out, name);
        chat_out_text(out, ">\n");
        good = value_write(out, value) && good;
        chat_out_text(out, "\n</parameter>\n");
    }
    chat_out_text(out, "</function>\n</tool_call>");
    return good;
}

static bool call_write(const struct rendering *rendering, const json_t *call)
{
    const json_t *function = json_object_get(call, "function");
    const json_t *given = function != NULL ? function : call,
                 *arguments = json_object_get(given, "arguments");
    const enum chat_tools tools = rendering->template->tools;
    struct chat_out *out = rendering->out;
    if (tools == CHAT_TOOLS_QWEN35)
        return xml_call_write(rendering, given);
    chat_out_text(out, tools == CHAT_TOOLS_LLAMA ? "{\"name\": \"" : "<tool_call>\n{\"name\": \"");
    span_write(rendering, span_of(given, "name"), false);
    chat_out_text(out, tools == CHAT_TOOLS_LLAMA ? "\", \"parameters\": " : "\", \"arguments\": ");
    if (tools == CHAT_TOOLS_QWEN3 && json_is_string(arguments))
        span_write(rendering, span_of(given, "arguments"), false);
    else if (!chat_out_json(out, arguments, 0))
        return false;
    chat_out_text(out, tools == CHAT_TOOLS_LLAMA ? "}" : "}\n</tool_call>");
    return true;
}

static bool calls_write(const struct rendering *rendering, const struct message *message)
{
    const enum chat_tools tools = rendering->template->tools;
    const bool has_text = message->text.count > 0 && tools != CHAT_TOOLS_LLAMA;
    bool good = true;
    for (size_t i = 0; i < json_array_size(message->calls) && good; i++) {
        if (i > 0 || has_text)
            chat_out_text(rendering->out, "\n");
        if (i == 0 && has_text && tools == CHAT_TOOLS_QWEN35)
            chat_out_text(rendering->out, "\n");
        good = call_write(rendering, json_array_get(message->calls, i));
    }
    return good;
}

/* Takes the reasoning out of an answer's text, as Qwen3's template does. */
static void reasoning_split(struct message *message)
{
    struct span whole = message->text;
    const size_t first = span_find(whole, CHAT_THINK_END, false),
                 last = span_find(whole, CHAT_THINK_END, true);
    if (message->reasoning.text != NULL || first == whole.count)
        return;
    struct span before = span_without_newlines((struct span){whole.text, first}, false, true);
    const size_t begin = span_find(before, CHAT_THINK_BEGIN, true);
    const size_t skip = begin < before.count ? begin + strlen(CHAT_THINK_BEGIN) : 0;
    message->reasoning =
        span_without_newlines((struct span){before.text + skip, before.count - skip}, true, false);
    message->text.text = whole.text + last + strlen(CHAT_THINK_END);
    message->text.count = whole.count - last - strlen(CHAT_THINK_END);
    message->text = span_without_newlines(message->text, true, false);
}

/* Writes the part of an answer that the prompt already contains, then the mark of counted text. */
static void answer_begin(const struct rendering *rendering, bool marks, const char *prompt)
{
    chat_out_text(rendering->out, prompt);
    if (marks)
        mark_write(rendering->out, CHAT_MARK_COUNT);
}

static void answer_text_write(const struct rendering *rendering, size_t index,
                              struct message *message, bool marks)
{
    const struct chat_template *template = rendering->template;
    const bool qwen = template->thinking == CHAT_THINKING_QWEN;
    if (qwen && template->trims)
        message->text.text = chat_strip(message->text.text, &message->text.count);
    if (qwen)
        reasoning_split(message);
    if (qwen && template->trims && message->reasoning.count > 0)
        message->reasoning.text = chat_strip(message->reasoning.text, &message->reasoning.count);
    const bool thinks = qwen && index > rendering->last_question &&
                        (index + 1 == rendering->count || message->reasoning.count > 0 ||
                         template->tools == CHAT_TOOLS_QWEN35);
    const bool closed = template->think != NULL && strstr(template->think, CHAT_THINK_END) != NULL;
    if (thinks && closed && message->reasoning.count == 0) {
        answer_begin(rendering, marks, template->think);
    } else if (thinks) {
        const char *prompt = template->think != NULL && !closed ? template->think : "";
        answer_begin(rendering, marks, prompt);
        chat_out_text(rendering->out, &(CHAT_THINK_BEGIN "\n")[strlen(prompt)]);
        if (message->reasoning.count > 0)
            span_write(rendering, span_without_newlines(message->reasoning, true, true), false);
        chat_out_text(rendering->out, "\n" CHAT_THINK_END "\n\n");
    } else {
        answer_begin(rendering, marks, rendering->no_think ? template->think : "");
    }
    const bool calls_only =
        template->tools == CHAT_TOOLS_LLAMA && json_array_size(message->calls) > 0;
    const bool strips = thinks || template->thinking == CHAT_THINKING_SMOL;
    if (!calls_only)
        span_write(rendering, span_without_newlines(message->text, strips, false),
                   (template->trims && !qwen) || template->trims_answers);
}

static bool answer_write(const struct rendering *rendering, size_t index, struct message *message)
{
    const bool all = rendering->train_on == CHAT_TRAIN_ALL;
    const bool wanted =
        rendering->train_on != CHAT_TRAIN_COMPLETION || index == rendering->last_answer;
    const bool marks = !all && wanted && message->counts;
    if (all && !message->counts)
        mark_write(rendering->out, CHAT_MARK_IGNORE);
    markup_write(rendering, rendering->template->before[CHAT_ASSISTANT]);
    answer_text_write(rendering, index, message, marks);
    const bool good = calls_write(rendering, message);
    markup_write(rendering, rendering->template->end);
    if (marks)
        mark_write(rendering->out, CHAT_MARK_IGNORE);
    if (all && !message->counts)
        mark_write(rendering->out, CHAT_MARK_COUNT);
    markup_write(rendering, rendering->template->tail);
    return good;
}

static bool message_write(const struct rendering *rendering, size_t index)
{
    const struct chat_template *template = rendering->template;
    struct message message = message_at(rendering, index);
    if (message.role == CHAT_SYSTEM && index == 0) /* system_write() wrote it */
        return true;
    if (message.role == CHAT_ASSISTANT)
        return answer_write(rendering, index, &message);
    if (message.role == CHAT_TOOL) {
        result_write(rendering, index, &message);
        return true;
    }
    markup_write(rendering, template->before[message.role]);
    const bool good = message.role != CHAT_USER || user_prefix_write(rendering, index);
    span_write(rendering, message.text, template->trims);
    markup_write(rendering, template->after);
    return good;
}

/* ---- a conversation ---- */

static void rendering_prepare(struct rendering *rendering)
{
    rendering->count = json_array_size(rendering->conversation->messages);
    rendering->last_question = rendering->count - 1;
    for (size_t i = 0; i < rendering->count; i++) {
        struct message message = message_at(rendering, i);
        if (rendering->template->trims)
            message.text.text = chat_strip(message.text.text, &message.text.count);
        const bool is_result = span_begins(message.text, CHAT_RESULT_BEGIN) &&
                               span_ends(message.text, CHAT_RESULT_END);
        if (message.role == CHAT_USER && !is_result)
            rendering->last_question = i;
        if (message.role == CHAT_ASSISTANT)
            rendering->last_answer = i;
    }
    const struct message first = message_at(rendering, 0);
    rendering->no_think = rendering->template->thinking == CHAT_THINKING_SMOL &&
                          first.role == CHAT_SYSTEM &&
                          span_find(first.text, CHAT_SMOL_NO_THINK, false) < first.text.count;
}

/* Writes the beginning of an answer.  The model writes a space at its end, which belongs to the
 * answer's first token. */
static void prompt_write(const struct rendering *rendering)
{
    const struct chat_template *template = rendering->template;
    const char *before = template->before[CHAT_ASSISTANT];
    const size_t count = strlen(before);
    const bool thinks = template->think != NULL &&
                        (template->thinking != CHAT_THINKING_SMOL || rendering->no_think);
    text_write(rendering, (struct span){before, count - (before[count - 1] == ' ')});
    chat_out_text(rendering->out, thinks ? template->think : "");
}

enum chat_rendered chat_render(enum chat_kind kind, const struct chat_conversation *conversation,
                               enum chat_train_on train_on, bool asks, struct chat_text *text)
{
    struct chat_out out = {.text = text->text, .room = text->room};
    struct rendering rendering = {.template = chat_template_of(kind),
                                  .conversation = conversation,
                                  .train_on = train_on,
                                  .out = &out};
    assert(json_array_size(conversation->messages) > 0);
    rendering_prepare(&rendering);
    if (train_on == CHAT_TRAIN_ALL)
        mark_write(&out, CHAT_MARK_COUNT);
    markup_write(&rendering, rendering.template->begin);
    bool good = system_write(&rendering);
    for (size_t i = 0; i < rendering.count && good && !out.full; i++)
        good = message_write(&rendering, i);
    if (asks)
        prompt_write(&rendering);
    if (train_on == CHAT_TRAIN_ALL)
        mark_write(&out, CHAT_MARK_IGNORE);
    if (!asks)
        mark_write(&out, CHAT_MARK_END_OF_TEXT);
    text->count = out.count;
    return out.full ? CHAT_TOO_LONG : good ? CHAT_RENDERED : CHAT_TOO_DEEP;
}

/* ---- a text that is rendered already ---- */

/* Writes a text with marks for its special tokens and around its answers: around answer number
 * `only`, or around all if that is 0.  Returns the number of answers; without an output it only
 * counts them. */
static size_t answers_write(struct rendering *rendering, struct span text, size_t only)
{
    const struct chat_template *template = rendering->template;
    const char *begin = template->before[CHAT_ASSISTANT];
    size_t answers = 0, from = 0;
    for (size_t at = 0; at < text.count; at++) {
        const struct span rest = {text.text + at, text.count - at};
        if (!span_begins(rest, begin))
            continue;
        const struct span body = {rest.text + strlen(begin), rest.count - strlen(begin)};
        const size_t end = span_find(body, template->end, false);
        const size_t count = end < body.count ? end + strlen(template->end) : end;
        answers++;
        if (rendering->out == NULL || (only != 0 && answers != only))
            continue;
        text_write(rendering, (struct span){text.text + from, at + strlen(begin) - from});
        mark_write(rendering->out, CHAT_MARK_COUNT);
        text_write(rendering, (struct span){body.text, count});
        mark_write(rendering->out, CHAT_MARK_IGNORE);
        from = at + strlen(begin) + count;
        at = from - 1;
    }
    if (rendering->out != NULL)
        text_write(rendering, (struct span){text.text + from, text.count - from});
    return answers;
}

bool chat_text_render(enum chat_kind kind, const json_t *value, enum chat_train_on train_on,
                      struct chat_text *text)
{
    struct chat_out out = {.text = text->text, .room = text->room};
    struct rendering rendering = {.template = chat_template_of(kind)};
    const struct span whole = {json_string_value(value), json_string_length(value)};
    const size_t answers = train_on != CHAT_TRAIN_ALL ? answers_write(&rendering, whole, 0) : 0;
    rendering.out = &out;
    if (answers == 0)
        mark_write(&out, CHAT_MARK_COUNT);
    if (answers == 0)
        text_write(&rendering, whole);
    else
        (void)answers_write(&rendering, whole, train_on == CHAT_TRAIN_COMPLETION ? answers : 0);
    mark_write(&out, CHAT_MARK_END_OF_TEXT);
    if (answers == 0)
        mark_write(&out, CHAT_MARK_IGNORE);
    text->count = out.count;
    return !out.full;
}
