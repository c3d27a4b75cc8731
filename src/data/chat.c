/* Chat templates: ChatML, as Qwen and SmolLM use it, and Llama 3's.
 *
 * Sources: the chat templates of Qwen2.5 and of Llama 3 Instruct.  Unlike the latter's, ours does not trim the texts.
 */
#include "data/chat.h"

#define MARK "\xff" /* a digit follows for a special token, or one of these */
enum { MARK_COUNT = '+', MARK_IGNORE = '-', MARK_END_OF_TEXT = 'e' };

struct template
{
    const char *specials[CHAT_SPECIALS_MAX + 1];
    const char *begin, *before, *after; /* of a conversation; before and after a role */
    const char *end, *tail;             /* of a message; `end` counts in an answer */
    size_t end_special;
    const char *jinja;
};

static const struct template templates[CHAT_KIND_COUNT] = {
    [CHAT_CHATML] = {.specials = {"<|im_start|>", "<|im_end|>"},
                     .begin = "",
                     .before = MARK "0",
                     .after = "\n",
                     .end = MARK "1",
                     .tail = "\n",
                     .end_special = 1,
                     .jinja = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
                              "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}"
                              "{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    [CHAT_LLAMA3] = {.specials = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
                     .begin = MARK "0",
                     .before = MARK "1",
                     .after = MARK "2\n\n",
                     .end = MARK "3",
                     .tail = "",
                     .end_special = 3,
                     .jinja = "{{ '<|begin_of_text|>' }}{% for message in messages %}{{ '<|start_header_id|>' + "
                              "message['role'] + '<|end_header_id|>\\n\\n' + message['content'] + '<|eot_id|>' }}"
                              "{% endfor %}{% if add_generation_prompt %}"
                              "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"},
};

const char *const chat_words[] = {"none", "chatml", "llama3", NULL};

const char *const *chat_specials(enum chat_kind kind)
{
    return templates[kind].specials;
}

const char *chat_jinja(enum chat_kind kind)
{
    return templates[kind].jinja;
}

static bool special_has(const struct tokenizer *tokenizer, const char *text)
{
    return tokenizer != NULL && tokenizer->bpe != NULL && bpe_special_find(tokenizer->bpe, text) >= 0;
}

/* Returns the first token of the template that the vocabulary lacks, or NULL. */
static const char *special_lacking(const struct tokenizer *tokenizer, enum chat_kind kind)
{
    for (const char *const *text = templates[kind].specials; *text != NULL; text++)
        if (!special_has(tokenizer, *text))
            return *text;
    return tokenizer_eot(tokenizer) < 0 ? BPE_EOT_TEXT : NULL;
}

enum chat_kind chat_kind_of(const struct tokenizer *tokenizer)
{
    for (int kind = CHAT_NONE + 1; kind < CHAT_KIND_COUNT; kind++)
        if (special_lacking(tokenizer, (enum chat_kind)kind) == NULL)
            return (enum chat_kind)kind;
    return CHAT_NONE;
}

int32_t chat_end(const struct tokenizer *tokenizer)
{
    const struct template *template = &templates[chat_kind_of(tokenizer)];
    if (template->jinja == NULL)
        return tokenizer_eot(tokenizer);
    return bpe_special_find(tokenizer->bpe, template->specials[template->end_special]);
}

enum chat_kind chat_kind_learnt(const struct tokenizer *tokenizer)
{
    return tokenizer != NULL && tokenizer->has_template ? chat_kind_of(tokenizer) : CHAT_NONE;
}

int32_t chat_end_learnt(const struct tokenizer *tokenizer)
{
    return chat_kind_learnt(tokenizer) != CHAT_NONE ? chat_end(tokenizer) : tokenizer_eot(tokenizer);
}

enum gt_status chat_check(const struct tokenizer *tokenizer, enum chat_kind kind)
{
    char lacking[256] = "";
    const enum chat_kind other = chat_kind_of(tokenizer);
    if (special_lacking(tokenizer, kind) == NULL)
        return GT_OK;
    for (const char *const *text = templates[kind].specials; *text != NULL; text++)
        if (!special_has(tokenizer, *text))
            snprintf(lacking + strlen(lacking), sizeof lacking - strlen(lacking), "%s%s", lacking[0] ? ", " : "",
                     *text);
    if (lacking[0] == '\0')
        snprintf(lacking, sizeof lacking, BPE_EOT_TEXT);
    if (other != CHAT_NONE)
        return FAIL(GT_USAGE, "--chat=%s: the vocabulary has no token %s, but those of --chat=%s", chat_words[kind],
                    lacking, chat_words[other]);
    return FAIL(GT_USAGE,
                "--chat=%s: the vocabulary has no token %s; take that of the model's Instruct version, or let "
                "--tokenizer=train make one for a new model",
                chat_words[kind], lacking);
}

/* ---- rendering ---- */

static void append(char *out, size_t *count, const char *text, size_t length)
{
    memcpy(out + *count, text, length);
    *count += length;
}

static void append_text(char *out, size_t *count, const char *text)
{
    append(out, count, text, strlen(text));
}

static void append_role(const struct template *template, char *out, size_t *count, const char *role)
{
    append_text(out, count, template->before);
    append_text(out, count, role);
    append_text(out, count, template->after);
}

static void append_message(const struct template *template, char *out, size_t *count, const char *role,
                           const char *text, size_t length, bool counts)
{
    const size_t marks = counts ? 2 : 0;
    append_role(template, out, count, role);
    append(out, count, (const char[]){MARK[0], MARK_COUNT}, marks);
    append(out, count, text, length);
    append_text(out, count, template->end);
    append(out, count, (const char[]){MARK[0], MARK_IGNORE}, marks);
    append_text(out, count, template->tail);
}

/* ---- what cannot be rendered ---- */

/* Returns true for a value that says something: null, false and empty ones do not. */
static bool is_set(const json_t *value)
{
    return json_is_true(value) || json_is_number(value) || json_string_length(value) > 0 ||
           json_array_size(value) > 0 || json_object_size(value) > 0;
}

/* Returns the first of the keys that is set, or NULL. */
static const char *key_set(const json_t *object, const char *const *keys)
{
    while (*keys != NULL && !is_set(json_object_get(object, *keys)))
        keys++;
    return *keys;
}

bool chat_line_check(const json_t *root, char *reason, size_t reason_bytes)
{
    static const char *const keys[] = {"tools",   "functions", "function_call", "system", "system_prompt",
                                       "history", "images",    "image",         "videos", "audios",
                                       NULL};
    const char *key = key_set(root, keys);
    const json_t *weight = json_object_get(root, "weight");
    if (key == NULL && json_is_number(weight) && json_number_value(weight) != 1.0)
        key = "weight";
    if (key == NULL)
        return true;
    snprintf(reason, reason_bytes, "the field \"%s\" is not supported%s", key,
             key[0] == 's' ? "; write it as a message with the role system" : "");
    return false;
}

/* Sets `out` to what is wrong with a content that is no text. */
static void content_fault(const json_t *content, char *out, size_t out_bytes)
{
    for (size_t i = 0; i < json_array_size(content); i++) {
        const char *type = json_string_value(json_object_get(json_array_get(content, i), "type"));
        if (type == NULL || strcmp(type, "text") == 0)
            continue;
        snprintf(out, out_bytes, "has a part of type \"%.40s\" in \"content\"; only text is supported", type);
        return;
    }
    snprintf(out, out_bytes, "has %s as \"content\"", json_is_array(content) ? "a list, not one text," : "no text");
}

/* Reads whether an answer counts.  Returns false if its weight is neither 0 nor 1, or if another role has one. */
static bool weight_read(const json_t *message, bool is_answer, bool *out)
{
    const json_t *weight = json_object_get(message, "weight");
    const double value = json_number_value(weight);
    *out = is_answer && (weight == NULL || json_is_null(weight) || value == 1.0);
    return weight == NULL || json_is_null(weight) ||
           (json_is_number(weight) && (value == 0.0 || (value == 1.0 && is_answer)));
}

/* Returns false, with the reason, when a message cannot be rendered; else sets *out_counts. */
static bool message_read(const json_t *message, bool *out_counts, char *out, size_t out_bytes)
{
    static const char *const keys[] = {"tool_calls",
                                       "function_call",
                                       "tool_call_id",
                                       "reasoning_content",
                                       "reasoning",
                                       "thinking",
                                       "name",
                                       "prefix",
                                       "refusal",
                                       "audio",
                                       "images",
                                       "image",
                                       "videos",
                                       "audios",
                                       NULL};
    static const char *const switches[] = {"train", "training", "loss"}; /* other programs' weight */
    const json_t *content = json_object_get(message, "content");
    const char *role = json_string_value(json_object_get(message, "role")), *key = key_set(message, keys);
    const bool is_answer = role != NULL && strcmp(role, "assistant") == 0;
    for (size_t i = 0; i < sizeof switches / sizeof switches[0] && is_answer; i++)
        if (json_is_false(json_object_get(message, switches[i])))
            key = switches[i];
    if (role == NULL)
        snprintf(out, out_bytes, "has no \"role\"");
    else if (key != NULL)
        snprintf(out, out_bytes, "has the field \"%s\", which is not supported%s", key,
                 json_is_false(json_object_get(message, key)) ? "; \"weight\": 0 is" : "");
    else if (!is_answer && strcmp(role, "system") != 0 && strcmp(role, "user") != 0)
        snprintf(out, out_bytes, "has the role \"%.40s\"; only system, user and assistant are supported", role);
    else if (!json_is_string(content))
        content_fault(content, out, out_bytes);
    else if (!weight_read(message, is_answer, out_counts))
        snprintf(out, out_bytes, "has a \"weight\" that is not %s", is_answer ? "0 or 1" : "an answer's");
    else if (*out_counts && json_string_length(content) == 0)
        snprintf(out, out_bytes, "is an empty answer of the assistant");
    else
        return true;
    return false;
}

bool chat_render(enum chat_kind kind, const json_t *messages, char *out, size_t *out_count, char *reason,
                 size_t reason_bytes)
{
    const struct template *template = &templates[kind];
    size_t count = 0, answers = 0;
    append_text(out, &count, template->begin);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i), *content = json_object_get(message, "content");
        const int used = snprintf(reason, reason_bytes, "message %zu ", i + 1);
        bool counts = false;
        if (!message_read(message, &counts, reason + used, reason_bytes - (size_t)used))
            return false;
        const char *role = json_string_value(json_object_get(message, "role"));
        answers += role[0] == 'a';
        append_message(template, out, &count, role, json_string_value(content), json_string_length(content), counts);
    }
    append(out, &count, (const char[]){MARK[0], MARK_END_OF_TEXT}, 2);
    *out_count = count;
    if (answers == 0)
        snprintf(reason, reason_bytes, "no message is the assistant's");
    return answers > 0;
}

size_t chat_turn(enum chat_kind kind, bool first, const char *system, const char *text, char *out)
{
    const struct template *template = &templates[kind];
    size_t count = 0;
    append_text(out, &count, first ? template->begin : template->tail);
    if (first && system[0] != '\0')
        append_message(template, out, &count, "system", system, strlen(system), false);
    append_message(template, out, &count, "user", text, strlen(text), false);
    append_role(template, out, &count, "assistant");
    return count;
}

/* ---- rendered text ---- */

bool chat_next(const char *text, size_t count, size_t *at, struct chat_part *out)
{
    if (*at == count)
        return false;
    if (text[*at] == MARK[0]) {
        assert(count - *at >= 2);
        *out = (struct chat_part){.mark = text[*at + 1]};
        *at += 2;
        return true;
    }
    const char *mark = memchr(text + *at, MARK[0], count - *at);
    *out = (struct chat_part){.text = text + *at, .count = mark != NULL ? (size_t)(mark - text) - *at : count - *at};
    *at += out->count;
    return true;
}

size_t chat_cut(const char *text, size_t most)
{
    while (most > 0 && (((unsigned char)text[most] & 0xC0u) == 0x80 || text[most - 1] == MARK[0]))
        most--;
    return most;
}

enum gt_status chat_encode(struct tokenizer_encoder *encoder, const struct tokenizer *tokenizer, enum chat_kind kind,
                           const char *text, size_t count, int32_t *out, size_t *out_count)
{
    struct tokenizer_fault fault;
    struct chat_part part;
    size_t ids = 0, at = 0;
    int32_t counted = 0;
    while (chat_next(text, count, &at, &part)) {
        size_t more = 1;
        if (part.mark == 0)
            TRY(tokenizer_encoder_run(encoder, part.text, part.count, TOKENIZER_SPECIAL_AS_TEXT, out + ids, &more,
                                      &fault));
        else if (part.mark == MARK_COUNT || part.mark == MARK_IGNORE)
            more = 0;
        else if (part.mark == MARK_END_OF_TEXT)
            out[ids] = tokenizer_eot(tokenizer);
        else
            out[ids] = bpe_special_find(tokenizer->bpe, templates[kind].specials[part.mark - '0']);
        if (part.mark == MARK_COUNT || part.mark == MARK_IGNORE)
            counted = part.mark == MARK_COUNT ? CHAT_COUNTED : 0;
        for (size_t i = 0; i < more; i++)
            out[ids++] |= counted;
    }
    *out_count = ids;
    return GT_OK;
}
