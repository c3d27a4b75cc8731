/* Reads records that hold conversations, in the forms that other programs use.
 *
 * A form is recognised by the names and the types of a record's fields.  All records have the form
 * of the first.  Every form becomes a list of messages with a role and a text, which chat_render.c
 * writes.  Fields that would change what the model learns, and that no template writes, are refused
 * by name; others are ignored.
 */
#include "data/chat_forms.h"

#include "data/chat_mark.h"
#include "data/chat_render.h"
#include "data/chat_templates.h"

/* Questions and answers, with what may follow the question. */
struct chat_pair {
    const char *question, *more, *answer, *name;
};

static const struct chat_pair pairs[] = {
    {"instruction", "input", "output", "Alpaca"},
    {"instruction", "context", "response", "Dolly"},
    {"prompt", "", "completion", "prompt and completion"},
    {"prompt", "", "response", "prompt and response"},
    {"query", "", "response", "query and response"},
    {"question", "context", "answer", "question and answer"},
    {"question", "context", "response", "question and response"},
    {"prompt", "", "chosen", "prompt and chosen"},
    {"instruction", "input", "chosen", "instruction and chosen"},
    {"problem", "", "solution", "problem and solution"},
    {"input", "", "output", "input and output"},
    {"question", "", "chosen", "question and chosen"},
    {"question", "", "solution", "question and solution"},
    {"problem", "", "generated_solution", "problem and generated_solution"},
    {"problem", "", "answer", "problem and answer"},
    {"instruction", "", "generation", "instruction and generation"},
    {"prompt", "", "output", "prompt and output"},
    {"prompt", "", "answer", "prompt and answer"},
    {"query", "", "answer", "query and answer"},
    {"inputs", "", "targets", "inputs and targets"}};

/* A record that is being read. */
struct reading {
    const struct chat_reader *reader;
    const struct chat_template *template;
    const json_t *root;
    json_t *messages; /* the result */
    char *reason;     /* CHAT_REASON_BYTES */
};

/* The names of a role, ours first; OpenAI's developer says what its system did. */
static const char *const *names_of_role(enum chat_role role)
{
    static const char *const names[CHAT_ROLES][12] = {
        {"system", "developer", NULL},
        {"user", "human", "prompter", NULL},
        {"assistant", "gpt", "chatgpt", "bing", "bard", "model", "bot", "chatbot", "ai",
         "function_call", "tool_call", NULL},
        {"tool", "observation", "function_response", "tool_response", "function", "ipython", NULL}};
    return names[role];
}

static bool refuse(const struct reading *reading, const char *text)
{
    snprintf(reading->reason, CHAT_REASON_BYTES, "%s", text);
    return false;
}

/* ---- forms ---- */

/* Returns a field of the first object of a list. */
static const json_t *first_get(const json_t *list, const char *field)
{
    return json_object_get(json_array_get(list, 0), field);
}

/* Returns true for a list that may hold messages: its objects have `field`, or its name is that of
 * such lists. */
static bool is_list_of(const char *key, const json_t *value, const char *field)
{
    const bool sharegpt = field[0] == 'f';
    const bool named =
        strcmp(key, sharegpt ? "conversations" : "messages") == 0 && json_is_array(value);
    return first_get(value, field) != NULL ||
           (named && (sharegpt || first_get(value, "from") == NULL));
}

/* Sets `out` to the name of a list of messages that have `field`.  The names in `first` are tried
 * first. */
static bool list_find(const json_t *root, const char *only, const char *field,
                      char out[static CHAT_KEY_BYTES])
{
    static const char *const first[] = {"messages", "conversations", "conversation", "chosen",
                                        NULL};
    const char *key = NULL, *found = NULL;
    json_t *value = NULL;
    for (const char *const *name = first; *name != NULL && found == NULL && only == NULL; name++)
        if (is_list_of(*name, json_object_get(root, *name), field))
            found = *name;
    json_object_foreach((json_t *)root, key, value) /* changes nothing */
    {
        if (found == NULL && (only == NULL || strcmp(only, key) == 0) &&
            is_list_of(key, value, field))
            found = key;
    }
    if (found != NULL)
        snprintf(out, CHAT_KEY_BYTES, "%s", found);
    return found != NULL && strlen(found) < CHAT_KEY_BYTES;
}

static const struct chat_pair *pair_find(const json_t *root, json_type type)
{
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const json_t *question = json_object_get(root, pairs[i].question);
        const json_t *answer = json_object_get(root, pairs[i].answer);
        if (question != NULL && answer != NULL && json_typeof(question) == type &&
            json_typeof(answer) == type &&
            (type == JSON_STRING || json_is_object(json_array_get(answer, 0)) ||
             json_array_size(answer) == 0))
            return &pairs[i];
    }
    return NULL;
}

/* Returns the name of a list of questions and answers, one conversation, or NULL. */
static const char *turns_find(const json_t *root, const char *only)
{
    static const char *const names[] = {"conversation", "conversations", "turns",
                                        "dialogue",     "dialog",        NULL};
    for (const char *const *name = only == NULL ? names : (const char *const[]){only, NULL};
         *name != NULL; name++) {
        const json_t *first = json_array_get(json_object_get(root, *name), 0);
        if (json_is_object(first) && pair_find(first, JSON_STRING) != NULL)
            return *name;
    }
    return NULL;
}

/* Returns true if the messages under `key` only end a conversation that begins in another list. */
static bool is_rest(const json_t *root, const char *key)
{
    const char *role = json_string_value(first_get(json_object_get(root, key), "role"));
    return role != NULL && strcmp(role, "assistant") == 0 && pair_find(root, JSON_ARRAY) != NULL;
}

void chat_form_find(const json_t *root, const char *field, struct chat_form *out)
{
    *out = (struct chat_form){.kind = CHAT_FORM_NONE};
    const char *text = field != NULL ? field : "text";
    if (list_find(root, field, "role", out->key))
        out->kind = CHAT_FORM_MESSAGES;
    else if (list_find(root, field, "from", out->key))
        out->kind = CHAT_FORM_SHAREGPT;
    if (out->kind != CHAT_FORM_NONE && strcmp(out->key, "prompt") != 0 &&
        strcmp(out->key, "completion") != 0 && (field != NULL || !is_rest(root, out->key)))
        return;
    out->kind = CHAT_FORM_NONE;
    const char *turns = turns_find(root, field);
    if (turns != NULL)
        out->kind = CHAT_FORM_TURNS;
    else if (field == NULL && (out->pair = pair_find(root, JSON_ARRAY)) != NULL)
        out->kind = CHAT_FORM_LISTS;
    else if (field == NULL && (out->pair = pair_find(root, JSON_STRING)) != NULL)
        out->kind = CHAT_FORM_PAIR;
    else if (json_is_string(json_object_get(root, text)))
        out->kind = CHAT_FORM_TEXT;
    snprintf(out->key, sizeof out->key, "%s",
             out->kind == CHAT_FORM_TEXT    ? text
             : out->kind == CHAT_FORM_TURNS ? turns
                                            : "");
}

char *chat_form_text(const struct chat_form *form, char out[static CHAT_FORM_BYTES])
{
    const struct chat_pair *pair = form->pair;
    if (form->kind == CHAT_FORM_PAIR)
        snprintf(out, CHAT_FORM_BYTES, "%s (%s, %s%s%s)", pair->name, pair->question, pair->more,
                 pair->more[0] != '\0' ? ", " : "", pair->answer);
    else if (form->kind == CHAT_FORM_LISTS)
        snprintf(out, CHAT_FORM_BYTES, "%s (lists of messages)", pair->name);
    else if (form->kind == CHAT_FORM_TURNS)
        snprintf(out, CHAT_FORM_BYTES, "questions and answers (%s)", form->key);
    else if (form->kind == CHAT_FORM_SHAREGPT)
        snprintf(out, CHAT_FORM_BYTES, "ShareGPT (%s, with from and value)", form->key);
    else
        snprintf(out, CHAT_FORM_BYTES, form->kind == CHAT_FORM_TEXT ? "text (%s)" : "messages (%s)",
                 form->key);
    return out;
}

static bool form_equal(const struct chat_form *a, const struct chat_form *b)
{
    return a->kind == b->kind && a->pair == b->pair && strcmp(a->key, b->key) == 0;
}

/* ---- what is refused ---- */

/* Returns false for null, false and empty values. */
static bool is_set(const json_t *value)
{
    return json_is_true(value) || json_is_number(value) || json_string_length(value) > 0 ||
           json_array_size(value) > 0 || json_object_size(value) > 0;
}

static bool is_zero(const json_t *value)
{
    return json_is_false(value) || (json_is_number(value) && json_number_value(value) == 0.0);
}

/* Returns the first of the keys that is set, or NULL. */
static const char *key_set(const json_t *object, const char *const *keys)
{
    while (*keys != NULL && !is_set(json_object_get(object, *keys)))
        keys++;
    return *keys;
}

/* Names of texts that are the system message. */
static const char *const system_names[] = {
    "system", "system_prompt", "system_message", "system_instruction", "systemInstruction", NULL};
#define SYSTEM_NAMES (sizeof system_names / sizeof system_names[0] - 1)

/* Returns true for a field that is read from a record of the form. */
static bool is_read(const struct chat_form *form, const char *key)
{
    const char *const names[] = {form->key,
                                 form->pair != NULL ? form->pair->question : "",
                                 form->pair != NULL ? form->pair->more : "",
                                 form->pair != NULL ? form->pair->answer : "",
                                 "history",
                                 "tools",
                                 "weight"};
    const bool is_text = form->kind == CHAT_FORM_TEXT;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], key) == 0)
            return !is_text || i == 0;
    for (size_t i = 0; i < SYSTEM_NAMES; i++)
        if (strcmp(system_names[i], key) == 0)
            return !is_text;
    return false;
}

static void unused_add(const char *key, const json_t *value, char out[static CHAT_UNUSED_BYTES])
{
    const size_t used = strlen(out);
    if (is_set(value) && strstr(out, TEXT(80, " %.40s", key)) == NULL)
        snprintf(out + used, CHAT_UNUSED_BYTES - used, "%s%.40s", used == 0 ? "; not used: " : ", ",
                 key);
}

/* Adds the fields of messages that are neither read nor refused. */
static void unused_of_messages(const json_t *list, char out[static CHAT_UNUSED_BYTES])
{
    static const char *const read[] = {
        "role",     "content",      "from",       "value",
        "text",     "parts",        "weight",     "train",
        "training", "trainable",    "loss",       "loss_weight",
        "name",     "tool_call_id", "tool_calls", "reasoning_content",
        NULL};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *key = NULL;
        json_t *value = NULL;
        json_object_foreach(json_array_get(list, i), key, value)
        {
            const char *const *known = read;
            while (*known != NULL && strcmp(*known, key) != 0)
                known++;
            if (*known == NULL)
                unused_add(key, value, out);
        }
    }
}

char *chat_form_unused(const struct chat_form *form, const json_t *root,
                       char out[static CHAT_UNUSED_BYTES])
{
    const char *key = NULL;
    json_t *value = NULL;
    out[0] = '\0';
    json_object_foreach((json_t *)root, key, value) /* changes nothing */
    {
        if (!is_read(form, key))
            unused_add(key, value, out);
    }
    if (form->kind == CHAT_FORM_MESSAGES || form->kind == CHAT_FORM_SHAREGPT)
        unused_of_messages(json_object_get(root, form->key), out);
    return out;
}

static bool root_check(const struct reading *reading)
{
    static const char *const keys[] = {
        "functions", "function_call",        "images",           "image", "videos",
        "audios",    "chat_template_kwargs", "preferred_output", NULL};
    /* KTO's names for the label of a bad answer. */
    static const char *const labels[] = {"label", "kto_tag"};
    const char *key = key_set(reading->root, keys);
    for (size_t i = 0; i < sizeof labels / sizeof labels[0] && key == NULL; i++)
        if (json_is_false(json_object_get(reading->root, labels[i])))
            return refuse(reading,
                          TEXT(96, "\"%s\" is false: its answer is not to be learned", labels[i]));
    const json_t *weight = json_object_get(reading->root, "weight");
    const bool is_pair = reading->reader->form.kind == CHAT_FORM_PAIR;
    if (key == NULL && json_is_number(weight) && json_number_value(weight) != 1.0)
        key = "weight";
    if (key == NULL && !is_pair && is_set(json_object_get(reading->root, "history")))
        key = "history";
    if (key == NULL && reading->template->tools == CHAT_TOOLS_NONE &&
        is_set(json_object_get(reading->root, "tools")))
        return refuse(
            reading, TEXT(128, "the field \"tools\" is not supported: the template %s has no tools",
                          reading->template->word));
    if (key == NULL)
        return true;
    const bool removable =
        strcmp(key, "weight") != 0 && strcmp(key, "history") != 0 && key[0] != 'f'; /* functions */
    return refuse(
        reading,
        removable ? TEXT(160, "the field \"%s\" is not supported; jq -c 'del(.%s)' leaves it out",
                         key, key)
                  : TEXT(96, "the field \"%s\" is not supported", key));
}

/* Refuses a message; the reason begins with its number. */
static json_t *message_refuse(const struct reading *reading, const char *text)
{
    snprintf(reading->reason, CHAT_REASON_BYTES, "message %zu %s",
             json_array_size(reading->messages) + 1, text);
    return NULL;
}

/* Returns the field of a message that no template writes, or NULL. */
static const char *message_key(const struct reading *reading, const json_t *message,
                               enum chat_role role)
{
    static const char *const keys[] = {"function_call", "reasoning",    "thinking", "prefix",
                                       "refusal",       "audio",        "images",   "image",
                                       "videos",        "train_detail", "audios",   NULL};
    /* other programs' weight: off, and on */
    static const char *const counted[] = {"train", "training", "trainable", "loss", "loss_weight"};
    static const char *const masked[] = {"mask", "masked", "ignore", NULL};
    const char *key = key_set(message, keys);
    const bool has_tools = reading->template->tools != CHAT_TOOLS_NONE;
    for (size_t i = 0; i < sizeof counted / sizeof counted[0] && role == CHAT_ASSISTANT; i++)
        if (is_zero(json_object_get(message, counted[i])))
            key = counted[i];
    if (key == NULL && role == CHAT_ASSISTANT)
        key = key_set(message, masked);
    if (key == NULL && role != CHAT_TOOL)
        key = key_set(message, (const char *const[]){"tool_call_id", "name", NULL});
    if (key == NULL && (!has_tools || role != CHAT_ASSISTANT))
        key = key_set(message, (const char *const[]){"tool_calls", NULL});
    if (key == NULL &&
        (reading->template->thinking != CHAT_THINKING_QWEN || role != CHAT_ASSISTANT))
        key = key_set(message, (const char *const[]){"reasoning_content", NULL});
    return key;
}

/* Refuses a field of a message, with what leaves it out, if that leaves the rest as it was. */
static json_t *field_refuse(const struct reading *reading, const json_t *message, const char *key)
{
    const json_t *value = json_object_get(message, key);
    const char *list = reading->reader->form.key;
    const bool calls = strcmp(key, "tool_calls") == 0 || strcmp(key, "function_call") == 0;
    char advice[192] = "";
    if (is_zero(value) || json_is_true(value))
        snprintf(advice, sizeof advice, "; \"weight\": 0 leaves an answer out of what is learnt");
    else if (!calls && list[0] != '\0')
        snprintf(advice, sizeof advice, "; jq -c 'del(.%s[].%s)' leaves it out", list, key);
    return message_refuse(reading,
                          TEXT(320, "has the field \"%s\", which is not supported%s", key, advice));
}

/* ---- messages ---- */

/* Finds a role by a name in any case: User, Assistant. */
static bool role_find(const char *given, enum chat_role *out)
{
    char name[24];
    size_t count = 0;
    for (; given[count] != '\0' && count < sizeof name - 1; count++)
        name[count] = (char)(given[count] >= 'A' && given[count] <= 'Z' ? given[count] + 'a' - 'A'
                                                                        : given[count]);
    name[count] = '\0';
    for (int role = 0; role < CHAT_ROLES; role++)
        for (const char *const *known = names_of_role((enum chat_role)role); *known != NULL;
             known++)
            if (strcmp(*known, name) == 0) {
                *out = (enum chat_role)role;
                return true;
            }
    return false;
}

/* Reads a text or a list of parts with texts.  Returns a new text, or NULL with the reason. */
static json_t *content_read(const struct reading *reading, const json_t *content)
{
    json_t *whole = json_is_string(content) ? json_copy((json_t *)content) : NULL;
    size_t parts = json_array_size(content);
    if (whole != NULL)
        return whole;
    if (parts == 0)
        return message_refuse(reading, "has no text as content");
    whole = json_string("");
    for (size_t i = 0; i < parts && whole != NULL; i++) {
        const json_t *part = json_array_get(content, i);
        const json_t *text = json_is_string(part) ? part : json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        json_t *joined = NULL;
        if (!json_is_string(text) || (type != NULL && strcmp(type, "text") != 0))
            message_refuse(
                reading,
                TEXT(128, "has a part of type \"%.40s\" in its content; only text is supported",
                     type != NULL ? type : "unknown"));
        else
            joined = json_sprintf("%s%s", json_string_value(whole), json_string_value(text));
        json_decref(whole);
        whole = joined;
    }
    return whole;
}

/* Returns a message's text or parts: under its form's name, else under that of another form. */
static const json_t *content_find(const json_t *message, bool sharegpt)
{
    const char *const names[] = {sharegpt ? "value" : "content", sharegpt ? "content" : "value",
                                 "text", "parts"};
    const json_t *found = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && found == NULL; i++)
        found = json_object_get(message, names[i]);
    return found;
}

/* Reads whether an answer counts.  Returns false if its weight is neither 0 nor 1, or if another
 * role has one. */
static bool weight_read(const json_t *message, bool is_answer, bool *out)
{
    const json_t *weight = json_object_get(message, "weight");
    const double value = json_number_value(weight);
    *out = is_answer && (weight == NULL || json_is_null(weight) || value == 1.0);
    return weight == NULL || json_is_null(weight) ||
           (json_is_number(weight) && (value == 0.0 || (value == 1.0 && is_answer)));
}

/* Returns false unless a call has arguments.  Qwen3.5's must be an object; JSON in a text is parsed
 * into the record, as servers of OpenAI's protocol do. */
static bool arguments_read(const struct reading *reading, json_t *given)
{
    const bool xml = reading->template->tools == CHAT_TOOLS_QWEN35;
    const json_t *arguments = json_object_get(given, "arguments");
    json_t *object =
        xml && json_is_string(arguments) ? json_loads(json_string_value(arguments), 0, NULL) : NULL;
    if (object != NULL && json_object_set_new(given, "arguments", object) == 0)
        arguments = object;
    return arguments != NULL && (!xml || json_is_object(arguments));
}

/* Returns false unless every call has a name and arguments. */
static bool calls_check(const struct reading *reading, const json_t *calls)
{
    bool good = json_is_array(calls);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *call = json_array_get(calls, i), *function = json_object_get(call, "function");
        json_t *given = function != NULL ? function : call;
        good = good && json_is_string(json_object_get(given, "name")) &&
               arguments_read(reading, given);
    }
    if (!good)
        message_refuse(reading, "has \"tool_calls\" that are not a list of names and arguments");
    else if (json_array_size(calls) > 1 && reading->template->tools == CHAT_TOOLS_LLAMA)
        message_refuse(reading,
                       TEXT(128, "has %zu tool calls; the template %s allows one per answer",
                            json_array_size(calls), reading->template->word));
    else
        return true;
    return false;
}

/* Turns ShareGPT's call, which is JSON in a text, into a list of one call.  Returns NULL with the
 * reason. */
static json_t *call_of_text(const struct reading *reading, const json_t *text)
{
    json_t *call = json_is_string(text) ? json_loads(json_string_value(text), 0, NULL) : NULL;
    if (call == NULL)
        message_refuse(reading, "is a call whose text is not JSON");
    return call != NULL ? json_pack("[o]", call) : NULL;
}

/* Adds reasoning and calls to a message whose role and text are known. */
static json_t *extras_add(const struct reading *reading, json_t *made, const json_t *reasoning,
                          json_t *calls)
{
    int failures = made == NULL;
    bool good = true;
    if (made != NULL && json_is_string(reasoning))
        failures |= json_object_set(made, "reasoning_content", (json_t *)reasoning);
    if (made != NULL && is_set(calls)) {
        good = calls_check(reading, calls);
        failures |= json_object_set(made, "tool_calls", calls);
    }
    json_decref(calls);
    return json_whole(made, failures || !good);
}

/* Returns the message with our names, or NULL with the reason (empty: out of memory). */
static json_t *message_make(const struct reading *reading, const json_t *message, bool sharegpt,
                            bool learns)
{
    const char *name = json_string_value(json_object_get(message, sharegpt ? "from" : "role"));
    const json_t *content = content_find(message, sharegpt);
    enum chat_role role = CHAT_SYSTEM;
    bool counts = false;
    if (name == NULL)
        return message_refuse(reading, sharegpt ? "has no \"from\"" : "has no \"role\"");
    const bool known = role_find(name, &role);
    const bool is_call =
        known && (strcmp(name, "function_call") == 0 || strcmp(name, "tool_call") == 0);
    const bool has_tools = reading->template->tools != CHAT_TOOLS_NONE;
    if (!known || ((role == CHAT_TOOL || is_call) && !has_tools))
        return message_refuse(
            reading,
            TEXT(192, "has the role \"%.40s\"; %s supports system, user%s assistant%s", name,
                 reading->template->word, has_tools ? "," : " and", has_tools ? " and tool" : ""));
    const char *key = message_key(reading, message, role);
    if (key != NULL)
        return field_refuse(reading, message, key);
    if (!weight_read(message, role == CHAT_ASSISTANT, &counts))
        return message_refuse(reading, TEXT(96, "has a \"weight\" that is not %s",
                                            role == CHAT_ASSISTANT ? "0 or 1" : "an answer's"));
    const json_t *given = json_object_get(message, "tool_calls");
    json_t *calls = is_call ? call_of_text(reading, content) : json_incref((json_t *)given);
    if (is_call && calls == NULL)
        return NULL;
    json_t *text = is_set(calls) && (is_call || !is_set(content)) ? json_string("")
                                                                  : content_read(reading, content);
    if (text != NULL && counts && json_string_length(text) == 0 && !is_set(calls)) {
        json_decref(text);
        text = message_refuse(reading, "is an empty answer of the assistant");
    }
    if (text == NULL) {
        json_decref(calls);
        return NULL;
    }
    json_t *made = json_pack("{s:s, s:o, s:b}", "role", names_of_role(role)[0], "content", text,
                             "counts", counts && learns);
    return extras_add(reading, made, json_object_get(message, "reasoning_content"), calls);
}

static bool messages_add(struct reading *reading, const json_t *list, bool sharegpt, bool learns)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *made = message_make(reading, json_array_get(list, i), sharegpt, learns);
        if (made == NULL || json_array_append_new(reading->messages, made) != 0)
            return false;
    }
    return true;
}

static bool text_add(struct reading *reading, const char *role, const char *text, bool counts)
{
    return json_array_append_new(reading->messages, json_pack("{s:s, s:s, s:b}", "role", role,
                                                              "content", text, "counts", counts)) ==
           0;
}

/* Adds a question, with `more` after an empty line, and its answer. */
static bool turn_add(struct reading *reading, const char *question, const char *more,
                     const char *answer)
{
    const bool none = more[strspn(more, " \t\r\n")] == '\0';
    json_t *joined =
        json_sprintf(none || question[0] == '\0' ? "%s%s" : "%s\n\n%s", question, none ? "" : more);
    const bool good = joined != NULL && text_add(reading, "user", json_string_value(joined), false);
    json_decref(joined);
    if (answer[0] == '\0')
        return refuse(reading, "the answer is empty");
    return good && text_add(reading, "assistant", answer, true);
}

/* Adds earlier turns: a list of questions and answers. */
static bool history_add(struct reading *reading, const json_t *history)
{
    for (size_t i = 0; i < json_array_size(history); i++) {
        const json_t *turn = json_array_get(history, i);
        const char *question = json_string_value(json_array_get(turn, 0));
        const char *answer = json_string_value(json_array_get(turn, 1));
        if (question == NULL || answer == NULL)
            return refuse(reading, "the field \"history\" is not a list of questions and answers");
        if (!turn_add(reading, question, "", answer))
            return false;
    }
    return true;
}

/* Adds the question and the answer of an object that has those of a pair. */
static bool pair_add(struct reading *reading, const struct chat_pair *pair, const json_t *object)
{
    const char *more = json_string_value(json_object_get(object, pair->more));
    return turn_add(reading, json_string_value(json_object_get(object, pair->question)),
                    more != NULL ? more : "",
                    json_string_value(json_object_get(object, pair->answer)));
}

static bool turns_add(struct reading *reading, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *turn = json_array_get(list, i);
        const struct chat_pair *pair = json_is_object(turn) ? pair_find(turn, JSON_STRING) : NULL;
        if (pair == NULL)
            return refuse(reading, TEXT(96, "turn %zu has no question with an answer", i + 1));
        if (!pair_add(reading, pair, turn))
            return false;
    }
    return true;
}

/* ---- a conversation ---- */

/* Adds the system message of the record, else that of --system, unless the messages have their
 * own. */
static bool system_add(struct reading *reading)
{
    const char *set = key_set(reading->root, system_names),
               *name = set != NULL ? set : system_names[0];
    const json_t *field = json_object_get(reading->root, name);
    const char *first = json_string_value(first_get(reading->messages, "role"));
    const bool has_one = first != NULL && strcmp(first, "system") == 0;
    const char *text = is_set(field) ? json_string_value(field) : reading->reader->system;
    if (is_set(field) && text == NULL)
        return refuse(reading, TEXT(64, "the field \"%s\" is not a string", name));
    if (is_set(field) && has_one)
        return refuse(
            reading,
            TEXT(96, "both the field \"%s\" and the first message are system messages", name));
    if (text == NULL || has_one || json_array_size(reading->messages) == 0)
        return true;
    if (reading->template->system == CHAT_SYSTEM_REFUSED)
        return refuse(
            reading,
            TEXT(144, "the template %s has no place for a system message; begin the user's with it",
                 reading->template->word));
    json_t *message = json_pack("{s:s, s:s, s:b}", "role", "system", "content", text, "counts", 0);
    return json_array_insert_new(reading->messages, 0, message) == 0;
}

/* Returns what is wrong with a message of `role` after one of `before`, or NULL. */
static const char *order_fault(const struct chat_template *template, enum chat_role before,
                               enum chat_role role, bool is_first)
{
    if (role == CHAT_SYSTEM && template->system == CHAT_SYSTEM_REFUSED)
        return "is a system message, for which the template has no place; begin the user's with it";
    if (role == CHAT_SYSTEM && !is_first && template->one_system)
        return "is a system message; this template allows one at the beginning only";
    if (!is_first && role == CHAT_ASSISTANT && before == CHAT_ASSISTANT)
        return "is the second answer in a row";
    if (template->alternates && role == CHAT_USER && before == CHAT_USER && !is_first)
        return "is a second user message in a row; in this template user and assistant take turns";
    if (template->alternates && role == CHAT_ASSISTANT && before != CHAT_USER)
        return "is an answer without a question; this template has none";
    return NULL;
}

/* Returns what is wrong with the role of the first message after the system's, or NULL. */
static const char *begin_fault(const struct reading *reading, enum chat_role role)
{
    if (role == CHAT_TOOL)
        return "is a tool's result before any call";
    if (role != CHAT_USER && reading->template->tools == CHAT_TOOLS_LLAMA &&
        is_set(json_object_get(reading->root, "tools")))
        return "is no user's; this template writes \"tools\" into the first message, the user's";
    return NULL;
}

static bool order_check(const struct reading *reading)
{
    enum chat_role before = CHAT_SYSTEM, role = CHAT_SYSTEM;
    size_t answers = 0, begun = 0;
    for (size_t i = 0; i < json_array_size(reading->messages); i++) {
        const json_t *message = json_array_get(reading->messages, i);
        (void)role_find(json_string_value(json_object_get(message, "role")), &role);
        const char *fault = order_fault(reading->template, before, role, i == 0);
        if (fault == NULL && role != CHAT_SYSTEM && begun++ == 0)
            fault = begin_fault(reading, role);
        if (fault != NULL)
            return refuse(reading, TEXT(160, "message %zu %s", i + 1, fault));
        answers += role == CHAT_ASSISTANT;
        before = role;
    }
    if (json_array_size(reading->messages) == 0)
        return refuse(reading, "the conversation is empty");
    return answers > 0 || refuse(reading, "no message is from the assistant");
}

/* Reads the tools: a list or, as in ShareGPT's files, JSON in a text.  *out is NULL without any. */
static bool tools_read(const struct reading *reading, json_t **out)
{
    json_t *given = json_object_get(reading->root, "tools");
    *out = NULL;
    if (!is_set(given))
        return true;
    *out =
        json_is_string(given) ? json_loads(json_string_value(given), 0, NULL) : json_incref(given);
    if (json_is_array(*out))
        return true;
    json_decref(*out);
    *out = NULL;
    return refuse(reading, "the field \"tools\" is not a list");
}

static bool conversation_read(struct reading *reading)
{
    const struct chat_form *form = &reading->reader->form;
    const json_t *root = reading->root;
    bool good = root_check(reading);
    if (form->kind == CHAT_FORM_PAIR)
        good = good && history_add(reading, json_object_get(root, "history")) &&
               pair_add(reading, form->pair, root);
    else if (form->kind == CHAT_FORM_TURNS)
        good = good && turns_add(reading, json_object_get(root, form->key));
    else if (form->kind == CHAT_FORM_LISTS)
        good = good &&
               messages_add(reading, json_object_get(root, form->pair->question), false, false) &&
               messages_add(reading, json_object_get(root, form->pair->answer), false, true);
    else
        good = good && messages_add(reading, json_object_get(root, form->key),
                                    form->kind == CHAT_FORM_SHAREGPT, true);
    return good && system_add(reading) && order_check(reading);
}

/* Returns true if the template omits the system message because the last message is not the user's.
 */
static bool loses_system(const struct reading *reading)
{
    const size_t count = json_array_size(reading->messages);
    const json_t *last = json_array_get(reading->messages, count - 1);
    return reading->template->system == CHAT_SYSTEM_LAST_USER &&
           strcmp(json_string_value(first_get(reading->messages, "role")), "system") == 0 &&
           strcmp(json_string_value(json_object_get(last, "role")), "user") != 0;
}

/* ---- records ---- */

/* Returns true for a list of objects as Python prints it. */
static bool is_python_list(const json_t *value)
{
    const char *text = json_string_value(value);
    return text != NULL && text[0] == '[' &&
           strchr(text, '{') == text + 1 + strspn(text + 1, " \n") && strstr(text, "{'") != NULL;
}

/* Returns true for a record that has a single message of a conversation, not a list of them. */
static bool is_message(const json_t *root)
{
    const char *const keys[] = {"role", "from", "parent_id"};
    bool found = false;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        found = found || json_is_string(json_object_get(root, keys[i]));
    return found && (json_is_string(json_object_get(root, "content")) ||
                     json_is_string(json_object_get(root, "value")) ||
                     json_is_string(json_object_get(root, "text")));
}

/* Describes a record without a conversation: names its fields and what makes a pair of two, or the
 * list in it that holds conversations. */
static const char *fields_text(const json_t *root, char out[static CHAT_UNUSED_BYTES])
{
    const char *key = NULL;
    json_t *value = NULL;
    struct chat_form form;
    size_t texts = 0;
    int count = snprintf(out, CHAT_UNUSED_BYTES, "; it has ");
    json_object_foreach((json_t *)root, key, value) /* changes nothing */
    {
        texts += json_is_string(value);
        if (is_python_list(value)) {
            snprintf(
                out, CHAT_UNUSED_BYTES,
                "; its field \"%.40s\" is a list as Python prints it: write it with json.dumps",
                key);
            return out;
        }
        const json_t *first = json_array_get(value, 0);
        if (json_is_object(first) || json_is_object(value))
            chat_form_find(json_is_object(value) ? value : first, NULL, &form);
        if (json_is_object(value) && form.kind != CHAT_FORM_NONE) {
            snprintf(out, CHAT_UNUSED_BYTES,
                     "; its field \"%.40s\" is a record, and jq -c '.[]' writes one a line", key);
            return out;
        }
        if (json_is_object(first) && form.kind != CHAT_FORM_NONE) {
            snprintf(out, CHAT_UNUSED_BYTES,
                     "; its field \"%.40s\" is a list of records, which jq -c '.[\"%.40s\"][]' "
                     "writes one a line",
                     key, key);
            return out;
        }
        const size_t used = strlen(out);
        snprintf(out + used, CHAT_UNUSED_BYTES - used, "%s%.40s", used > (size_t)count ? ", " : "",
                 key);
    }
    const size_t used = strlen(out);
    if (texts >= 2 && json_object_get(root, "chosen") == NULL)
        snprintf(out + used, CHAT_UNUSED_BYTES - used,
                 "; jq -c '{prompt: .A, completion: .B}' makes pairs of its fields A and B");
    return json_object_size(root) > 0 ? out : "";
}

/* Refuses a record that has the fields of a pair, of which not both are texts.  Returns true if it
 * is none. */
static bool pair_check(const struct reading *reading)
{
    const json_t *root = reading->root;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const json_t *question = json_object_get(root, pairs[i].question);
        const json_t *answer = json_object_get(root, pairs[i].answer);
        if ((json_is_array(question) || json_is_object(question)) &&
            json_typeof(question) == json_typeof(answer != NULL ? answer : root))
            return refuse(reading,
                          TEXT(192,
                               "\"%s\" and \"%s\" are columns; write a record for each row, as "
                               "pandas' to_json(orient=\"records\", lines=True) does",
                               pairs[i].question, pairs[i].answer));
        if (question != NULL && answer != NULL)
            return refuse(reading,
                          TEXT(96, "the field \"%s\" is not a text",
                               json_is_string(question) ? pairs[i].answer : pairs[i].question));
    }
    return true;
}

/* Stores the first record's form, and refuses records of other forms. */
static bool form_check(struct chat_reader *reader, const struct reading *reading)
{
    struct chat_form form;
    char texts[2][CHAT_FORM_BYTES];
    chat_form_find(reading->root, reader->field, &form);
    if (reader->field == NULL && is_message(reading->root) &&
        (form.kind == CHAT_FORM_NONE || form.kind == CHAT_FORM_TEXT))
        return refuse(reading,
                      TEXT(192,
                           "this record is one message; a conversation is a record with all of its "
                           "messages in a list: {\"messages\": [...]}%s",
                           form.kind == CHAT_FORM_TEXT ? "; --field=text takes it as a text" : ""));
    if (form.kind == CHAT_FORM_NONE && reader->field == NULL && !pair_check(reading))
        return false;
    if (form.kind == CHAT_FORM_NONE)
        return refuse(
            reading,
            TEXT(CHAT_REASON_BYTES, "no conversation in this record: expected %s%s",
                 reader->field != NULL
                     ? TEXT(128, "a list of messages, or a text, in the field \"%.60s\"",
                            reader->field)
                     : "a field messages or conversations, instruction and output, prompt and "
                       "completion, question and answer, or text; --field=NAME names another list "
                       "of messages",
                 fields_text(reading->root, (char[CHAT_UNUSED_BYTES]){0})));
    if (reader->form.kind == CHAT_FORM_NONE)
        reader->form = form;
    if (form_equal(&reader->form, &form))
        return true;
    return refuse(
        reading, TEXT(400, "this record has the form %s, the first one %s: prepare them separately",
                      chat_form_text(&form, texts[0]), chat_form_text(&reader->form, texts[1])));
}

static bool begins_counted(const struct chat_text *text)
{
    return text->count > 1 && text->text[0] == CHAT_MARK[0] && text->text[1] == CHAT_MARK_COUNT;
}

enum gt_status chat_record_render(struct chat_reader *reader, const json_t *root,
                                  struct chat_text *out, char reason[static CHAT_REASON_BYTES])
{
    struct reading reading = {.reader = reader,
                              .template = chat_template_of(reader->kind),
                              .root = root,
                              .reason = reason};
    struct chat_conversation conversation = {.tools = NULL};
    reason[0] = '\0';
    if (!json_is_object(root)) {
        refuse(&reading, "expected an object");
        return GT_DATA;
    }
    if (!form_check(reader, &reading))
        return GT_DATA;
    if (reader->form.kind == CHAT_FORM_TEXT) {
        if (chat_text_render(reader->kind, json_object_get(root, reader->form.key),
                             reader->train_on, out)) {
            reader->lacks_answers = reader->lacks_answers || begins_counted(out);
            return GT_OK;
        }
        refuse(&reading, "the text is longer than a document may be");
        return GT_DATA;
    }
    reading.messages = json_array();
    bool good = reading.messages != NULL && conversation_read(&reading) &&
                tools_read(&reading, &conversation.tools);
    conversation.messages = reading.messages;
    if (good) {
        reader->loses_system = reader->loses_system || loses_system(&reading);
        const enum chat_rendered done =
            chat_render(reader->kind, &conversation, reader->train_on, false, out);
        good = done == CHAT_RENDERED ||
               refuse(&reading, done == CHAT_TOO_DEEP
                                    ? "its tools are nested too deeply"
                                    : "the conversation is longer than a document may be");
    }
    json_decref(reading.messages);
    json_decref(conversation.tools);
    if (!good && reason[0] == '\0')
        return FAIL(GT_NO_MEMORY, "out of memory for a conversation");
    return good ? GT_OK : GT_DATA;
}
