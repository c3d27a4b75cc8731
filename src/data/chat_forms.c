/* Recognises lines of JSONL that hold conversations in the forms of other programs, and says how to read them.
 *
 * A form is known by the names and the types of a line's fields.  Each has a line of Python that converts a file to
 * "messages"; it keeps the other fields, so that gpt-prepare still refuses those that it does not support.  Nothing is
 * converted here.
 */
#include "data/chat.h"

#include "base/file.h"
#include "data/input.h"

#define PYTHON_BEGIN "import json, sys; "
#define PYTHON_SYSTEM "([{\"role\": \"system\", \"content\": d.pop(\"system\")}] if d.get(\"system\") else [])"
#define PYTHON_END ", **d})) for d in map(json.loads, filter(str.strip, sys.stdin))]"
#define PYTHON_BYTES 768
#define KEY_BYTES_MAX 40

/* Returns a field of the first object of a list. */
static const json_t *first_get(const json_t *list, const char *field)
{
    return json_object_get(json_array_get(list, 0), field);
}

/* Returns the name of a field with a list of objects that have `field`, "messages" before others; NULL: none. */
static const char *list_find(const json_t *root, const char *field)
{
    const char *key = NULL, *found = NULL;
    json_t *value = NULL;
    if (first_get(json_object_get(root, "messages"), field) != NULL)
        return "messages";
    json_object_foreach((json_t *)root, key, value) /* changes nothing */
    {
        const bool plain = strlen(key) <= KEY_BYTES_MAX && strpbrk(key, "'\"\\ ") == NULL;
        if (found == NULL && plain && first_get(value, field) != NULL)
            found = key;
    }
    return found;
}

/* Questions and answers, with what may follow the question. */
static const struct pair {
    const char *question, *more, *answer, *name;
} pairs[] = {{"instruction", "input", "output", "Alpaca's form"},
             {"instruction", "context", "response", "Dolly's form"},
             {"prompt", "", "completion", "a prompt and its completion"},
             {"prompt", "", "response", "a prompt and its response"},
             {"query", "", "response", "a query and its response"},
             {"question", "", "answer", "a question and its answer"},
             {"problem", "", "solution", "a problem and its solution"},
             {"input", "", "output", "an input and its output"}};

static const struct pair *pair_find(const json_t *root, json_type type)
{
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const json_t *question = json_object_get(root, pairs[i].question);
        const json_t *answer = json_object_get(root, pairs[i].answer);
        if (question != NULL && answer != NULL && json_typeof(question) == type && json_typeof(answer) == type)
            return &pairs[i];
    }
    return NULL;
}

/* Sets `out` to the advice to convert the file by a line of Python. */
static void convert_advise(const struct chat_given *given, const char *form, const char *python,
                           char out[static CHAT_ADVICE_BYTES])
{
    char quoted[FILE_PATH_MAX];
    const bool plain = file_exists(given->path) && !input_name_is_packed(given->path);
    snprintf(out, CHAT_ADVICE_BYTES,
             "this is %s; to convert it: python3 -c '%s' <%.600s >messages.jsonl; then give %s%s", form, python,
             plain ? file_shell_quote(quoted, sizeof quoted, given->path) : "FILE", given->flags,
             given->flags[0] != '\0' ? " messages.jsonl" : "messages.jsonl");
}

/* Writes the line of Python for pairs of texts, or of lists of messages. */
static void pair_python(const struct pair *pair, bool lists, char out[static PYTHON_BYTES])
{
    if (lists)
        snprintf(out, PYTHON_BYTES, PYTHON_BEGIN "[print(json.dumps({\"messages\": d[\"%s\"] + d[\"%s\"]" PYTHON_END,
                 pair->question, pair->answer);
    else
        snprintf(out, PYTHON_BYTES,
                 PYTHON_BEGIN "[print(json.dumps({\"messages\": " PYTHON_SYSTEM " + [{\"role\": \"user\", \"content\": "
                              "\"\\n\\n\".join(filter(None, [d[\"%s\"], d.get(\"%s\")]))}, {\"role\": \"assistant\", "
                              "\"content\": d[\"%s\"]}]" PYTHON_END,
                 pair->question, pair->more, pair->answer);
}

static void sharegpt_python(const char *key, char out[static PYTHON_BYTES])
{
    snprintf(out, PYTHON_BYTES,
             PYTHON_BEGIN
             "R = {\"human\": \"user\", \"gpt\": \"assistant\"}; [print(json.dumps({\"messages\": " PYTHON_SYSTEM
             " + [{**m, \"role\": R.get(m[\"from\"], m[\"from\"]), \"content\": "
             "m[\"value\"]} for m in d[\"%s\"]]" PYTHON_END,
             key);
}

static void messages_advise(const struct chat_given *given, const char *key, char out[static CHAT_ADVICE_BYTES])
{
    const bool usual = given->kind == CHAT_NONE && strcmp(key, "messages") == 0;
    const char *space = given->flags[0] != '\0' ? " " : "";
    snprintf(out, CHAT_ADVICE_BYTES, "the field \"%s\" is a conversation: give %s%s%s", key, given->flags,
             usual ? "" : TEXT(32, "%s--field=", space), usual ? "" : key);
}

bool chat_advise(const json_t *root, const struct chat_given *given, char out[static CHAT_ADVICE_BYTES])
{
    char python[PYTHON_BYTES];
    const char *messages = list_find(root, "role"), *turns = list_find(root, "from");
    const struct pair *texts = pair_find(root, JSON_STRING), *lists = pair_find(root, JSON_ARRAY);
    const char *form = lists != NULL ? lists->name : "ShareGPT's form";
    if (messages != NULL && given->kind != CHAT_NONE && strcmp(messages, given->field) == 0)
        return false; /* something else is wrong */
    if (messages != NULL && lists == NULL) {
        messages_advise(given, first_get(json_object_get(root, "chosen"), "role") != NULL ? "chosen" : messages, out);
        return true;
    }
    if (lists != NULL) {
        pair_python(lists, true, python);
    } else if (turns != NULL) {
        sharegpt_python(turns, python);
    } else if (texts != NULL) {
        pair_python(texts, false, python);
        form = texts->name;
    } else {
        snprintf(out, CHAT_ADVICE_BYTES, "the line is a text and no conversation: leave out --chat");
        return given->kind != CHAT_NONE && json_is_string(json_object_get(root, "text"));
    }
    convert_advise(given, form, python, out);
    return true;
}
