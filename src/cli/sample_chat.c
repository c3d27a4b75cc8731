/* A conversation with a model.
 *
 * Each line of the input is a message, or a command that begins with a slash.  The whole
 * conversation is rendered for every answer, because a template may rewrite earlier turns; if the
 * new ids begin with the ids that the generator has already read, it reads only the rest.
 */
#include "cli/sample_chat.h"

#include <unistd.h>

#include "base/json.h"
#include "base/size.h"
#include "base/utf8.h"
#include "cli/line_edit.h"
#include "config/config_key.h"
#include "data/chat.h"
#include "data/chat_kind.h"
#include "data/chat_render.h"
#include "data/chat_templates.h"
#include "data/tokenizer_encoder.h"
#include "data/tokenizer_generation.h"

#define ENDS_MAX 16
#define TEXT_BYTES_MAX ((size_t)1 << 20)

struct sample_chat {
    struct sample_chat_spec spec;
    enum chat_kind kind;
    struct chat_encoder *encoder;
    struct generator *generator;
    int32_t ends[ENDS_MAX]; /* each of these tokens ends an answer */
    size_t end_count;
    struct chat_conversation conversation; /* the system message first, if there is one */
    struct chat_text text;                 /* the rendered conversation */
    int32_t *prompt;
    size_t prompt_count;
    int64_t used; /* tokens that the generator has */
    struct tokenizer_stream stream;
    struct stop_text stop;
    FILE *answer; /* collects the answer's text in `answer_text` */
    char *answer_text;
    size_t answer_bytes;
};

/* ---- opening ---- */

static void chat_close(void *object)
{
    struct sample_chat *chat = object;
    json_decref(chat->conversation.messages);
}

static void end_add(struct sample_chat *chat, int64_t id)
{
    if (chat->end_count < ENDS_MAX && id >= 0 && id < chat->spec.tokenizer->vocab_size)
        chat->ends[chat->end_count++] = (int32_t)id;
}

/* Adds the end tokens of generation_config.json, a number or a list, or else those of the
 * tokenizer's copy of that file.  A broken file only causes a warning, because the model still
 * works. */
static enum gt_status ends_read(struct sample_chat *chat)
{
    const char *path = FILE_IN(chat->spec.model, GENERATION_NAME);
    json_t *root;
    json_error_t error;
    TRY(json_parse_optional(path, GENERATION_BYTES_MAX, &error, &root));
    if (error.text[0] != '\0')
        log_warning("%s: not read: %s", path, error.text);
    if (root == NULL)
        TRY(tokenizer_generation_get(chat->spec.tokenizer, &root));
    for (size_t i = 0; i < ENDS_MAX; i++)
        end_add(chat, tokenizer_generation_id(root, "eos_token_id", i));
    json_decref(root);
    return GT_OK;
}

static enum gt_status kind_find(struct sample_chat *chat)
{
    const struct tokenizer *tokenizer = chat->spec.tokenizer;
    chat->kind = chat_kind_of(tokenizer);
    if (tokenizer->template != NULL && tokenizer->chat == CHAT_NONE)
        return FAIL(
            GT_USAGE,
            "%s: the model's chat template is not one that is known here; export it with gpt-export and use a "
            "program that runs templates, such as llama.cpp",
            chat->spec.vocabulary);
    if (chat->kind == CHAT_NONE)
        return FAIL(
            GT_USAGE,
            "%s: no token of a chat template, such as <|im_start|>, is in this vocabulary; --chat needs a model "
            "that was trained on data of gpt-prepare --chat",
            chat->spec.vocabulary);
    return GT_OK;
}

/* Adds a message at the end, or a system message at the beginning.  Bytes that are not UTF-8 become
 * U+FFFD. */
static enum gt_status message_add(struct sample_chat *chat, const char *role, const char *text)
{
    json_t *messages = chat->conversation.messages;
    const size_t length = strlen(text);
    char *valid = malloc(3 * length + 1);
    size_t count = 0, at = 0;
    while (valid != NULL && at < length) {
        uint32_t code_point = UTF8_REPLACEMENT;
        const int used = utf8_decode((const unsigned char *)text + at, length - at, &code_point);
        count += utf8_encode(used > 0 ? code_point : UTF8_REPLACEMENT, valid + count);
        at += used > 0 ? (size_t)used : 1;
    }
    json_t *content = valid != NULL ? json_stringn(valid, count) : NULL;
    json_t *message = content != NULL ? json_pack("{s:s, s:o, s:b}", "role", role, "content",
                                                  content, "counts", 0)
                                      : NULL;
    const size_t place = strcmp(role, "system") == 0 ? 0 : json_array_size(messages);
    const int failed = message == NULL || json_array_insert_new(messages, place, message) != 0;
    free(valid);
    return failed ? FAIL(GT_NO_MEMORY, "out of memory for a message") : GT_OK;
}

enum gt_status sample_chat_open(struct hostmem *mem, const struct sample_chat_spec *spec,
                                struct sample_chat **out)
{
    struct sample_chat *chat;
    const bool has_system = config_key_was_set(spec->config, CONFIG_KEY_start);
    TRY(HOSTMEM_NEW(mem, 1, "a conversation", &chat));
    hostmem_at_free(chat, chat_close);
    chat->spec = *spec;
    chat->text.room = TEXT_BYTES_MAX;
    chat->conversation.messages = json_array();
    enum gt_status status = kind_find(chat);
    if (status == GT_OK) {
        end_add(chat, chat_end(spec->tokenizer));
        end_add(chat, tokenizer_eot(spec->tokenizer));
    }
    THEN(status, ends_read(chat));
    THEN(status,
         chat_encoder_create(chat, spec->tokenizer, chat->kind, TEXT_BYTES_MAX, &chat->encoder));
    THEN(status, HOSTMEM_NEW(chat, TEXT_BYTES_MAX, "a conversation's text", &chat->text.text));
    THEN(status, HOSTMEM_NEW(chat, TEXT_BYTES_MAX * tokenizer_pipeline(spec->tokenizer)->growth,
                             "its tokens", &chat->prompt));
    if (status == GT_OK && has_system && spec->config->start[0] != '\0')
        status = chat_has_system(chat->kind)
                     ? message_add(chat, "system", spec->config->start)
                     : FAIL(GT_USAGE, "--start: the template %s has no place for a system message",
                            chat_words[chat->kind]);
    return FINISH(status, out, chat, hostmem_free);
}

/* ---- the history ---- */

static bool has_role(const struct sample_chat *chat, size_t index, const char *role)
{
    const json_t *message = json_array_get(chat->conversation.messages, index);
    const char *name = json_string_value(json_object_get(message, "role"));
    return name != NULL && strcmp(name, role) == 0;
}

/* Removes the oldest question and its answer.  Returns false when only the last message is left. */
static bool oldest_drop(struct sample_chat *chat)
{
    json_t *messages = chat->conversation.messages;
    const size_t first = has_role(chat, 0, "system");
    if (json_array_size(messages) <= first + 1)
        return false;
    json_array_remove(messages, first);
    while (!has_role(chat, first, "user") && json_array_size(messages) > first + 1)
        json_array_remove(messages, first);
    return true;
}

/* Sets the prompt to the conversation so far and the beginning of an answer; *out_fits is false if
 * it is too long. */
static enum gt_status prompt_make(struct sample_chat *chat, bool *out_fits)
{
    const enum chat_rendered done =
        chat_render(chat->kind, &chat->conversation, CHAT_TRAIN_ASSISTANT, true, &chat->text);
    *out_fits = done == CHAT_RENDERED;
    if (!*out_fits)
        return GT_OK;
    TRY(chat_encode(chat->encoder, chat->text.text, chat->text.count, chat->prompt,
                    &chat->prompt_count));
    *out_fits = (int64_t)chat->prompt_count < chat->spec.block;
    return GT_OK;
}

/* Makes a prompt that fits, without the oldest turns if necessary.  If the last message alone is
 * too long, removes it and sets *out_fits to false. */
static enum gt_status history_fit(struct sample_chat *chat, bool *out_fits)
{
    size_t dropped = 0;
    TRY(prompt_make(chat, out_fits));
    while (!*out_fits && oldest_drop(chat)) {
        dropped++;
        TRY(prompt_make(chat, out_fits));
    }
    if (dropped > 0)
        log_note("the conversation fills the %" PRId64 " tokens of block_size: the oldest %s",
                 chat->spec.block,
                 dropped == 1 ? "turn leaves it" : TEXT(48, "%zu turns leave it", dropped));
    if (*out_fits)
        return GT_OK;
    log_warning("this message has %zu tokens with the template; block_size is %" PRId64,
                chat->prompt_count, chat->spec.block);
    json_array_remove(chat->conversation.messages,
                      json_array_size(chat->conversation.messages) - 1);
    return GT_OK;
}

/* Gives the generator the prompt, or only the part that it does not have yet. */
static void prompt_give(struct sample_chat *chat)
{
    const int64_t count = (int64_t)chat->prompt_count;
    const int32_t *has = chat->used > 0 ? generator_sequence(chat->generator, 0) : NULL;
    if (chat->used > 0 && chat->used < count &&
        memcmp(has, chat->prompt, (size_t)chat->used * sizeof has[0]) == 0)
        generator_extend(chat->generator, chat->prompt + chat->used, count - chat->used);
    else
        generator_begin(chat->generator, 0, chat->prompt, count);
    chat->used = count;
}

/* ---- an answer ---- */

/* Prints text of the answer, without the space that begins an answer in some templates. */
static void text_show(void *context, const char *text, size_t count)
{
    struct sample_chat *chat = context;
    if (chat_template_of(chat->kind)->trims_answers && count > 0 && text[0] == ' ' &&
        ftell(chat->answer) == 0) {
        text++;
        count--;
    }
    fwrite(text, 1, count, stdout);
    fwrite(text, 1, count, chat->answer);
}

static bool is_end(const struct sample_chat *chat, int32_t token)
{
    for (size_t i = 0; i < chat->end_count; i++)
        if (chat->ends[i] == token)
            return true;
    return false;
}

static void text_push(struct sample_chat *chat, const char *text, size_t count)
{
    if (!chat->stop.found)
        (void)stop_text_push(&chat->stop, chat->spec.stops, text, count, text_show, chat);
}

/* Writes the answer as it is drawn, up to a token that ends it, a stop text, or the end of the
 * context. */
static enum gt_status answer_draw(struct sample_chat *chat)
{
    char bytes[TOKENIZER_TEXT_MAX];
    int32_t token = -1;
    chat->stream = (struct tokenizer_stream){.held_count = 0};
    chat->stop = (struct stop_text){0};
    for (int64_t i = 0; i < chat->spec.config->max_new_tokens && chat->used < chat->spec.block &&
                        !chat->stop.found;
         i++) {
        TRY(generator_next(chat->generator, &token));
        chat->used++;
        if (is_end(chat, token))
            break;
        text_push(chat, bytes,
                  tokenizer_stream_push(chat->spec.tokenizer, &chat->stream, token, bytes));
        if (fflush(stdout) != 0)
            return GT_IO;
    }
    text_push(chat, bytes, tokenizer_stream_end(&chat->stream, bytes));
    if (!chat->stop.found)
        stop_text_end(&chat->stop, text_show, chat);
    fputs("\n", stdout);
    return GT_OK;
}

/* Draws an answer and adds it to the conversation. */
static enum gt_status answer_write(struct sample_chat *chat)
{
    chat->answer_text = NULL;
    chat->answer = open_memstream(&chat->answer_text, &chat->answer_bytes);
    if (chat->answer == NULL)
        return FAIL(GT_NO_MEMORY, "out of memory for an answer");
    enum gt_status status = answer_draw(chat);
    if (fclose(chat->answer) != 0 && status == GT_OK)
        status = FAIL(GT_NO_MEMORY, "out of memory for an answer");
    THEN(status, message_add(chat, "assistant", chat->answer_text));
    free(chat->answer_text);
    return status;
}

/* ---- messages and commands ---- */

/* Warns about the bytes of a message that have no token. */
static void message_warn(const struct sample_chat *chat, const char *text, const char *where)
{
    struct tokenizer_unknown unknown = {0};
    unknown.total =
        bpe_count_unknown(chat->spec.tokenizer->bpe, text, strlen(text), unknown.counts);
    tokenizer_unknown_warn(chat->spec.tokenizer, &unknown, where);
}

static enum gt_status system_set(struct sample_chat *chat, const char *text)
{
    if (!chat_has_system(chat->kind)) {
        log_warning("/system: the template %s has no place for a system message",
                    chat_words[chat->kind]);
        return GT_OK;
    }
    if (has_role(chat, 0, "system"))
        json_array_remove(chat->conversation.messages, 0);
    log_note(text[0] != '\0' ? "the system message is set" : "there is no system message now");
    message_warn(chat, text, "this message");
    return text[0] != '\0' ? message_add(chat, "system", text) : GT_OK;
}

static void conversation_reset(struct sample_chat *chat)
{
    json_t *messages = chat->conversation.messages;
    const size_t kept = has_role(chat, 0, "system");
    while (json_array_size(messages) > kept)
        json_array_remove(messages, kept);
    log_note("a new conversation begins");
}

/* Runs a line that is a command; *out_is_one is false if it is a message. */
static enum gt_status command_run(struct sample_chat *chat, const char *line, bool *out_is_one)
{
    static const char system_word[] = "/system";
    const size_t word = strcspn(line, " \t");
    *out_is_one = line[0] == '/';
    if (!*out_is_one)
        return GT_OK;
    if (strcmp(line, "/reset") == 0)
        conversation_reset(chat);
    else if (word == sizeof system_word - 1 && memcmp(line, system_word, word) == 0)
        return system_set(chat, line + word + strspn(line + word, " \t"));
    else
        log_warning(
            "%.*s: no such command; the commands are /reset and /system TEXT, and a message may begin with a blank",
            (int)size_min(word, 40), line);
    return GT_OK;
}

static enum gt_status line_answer(struct sample_chat *chat, char *line)
{
    bool is_command = false, fits = false;
    line[strcspn(line, "\r\n")] = '\0';
    if (line[0] == '\0')
        return GT_OK;
    TRY(command_run(chat, line, &is_command));
    if (is_command)
        return GT_OK;
    message_warn(chat, line, "this message");
    TRY(message_add(chat, "user", line));
    TRY(history_fit(chat, &fits));
    if (!fits)
        return GT_OK;
    prompt_give(chat);
    return answer_write(chat);
}

enum gt_status sample_chat_run(struct sample_chat *chat, struct generator *generator)
{
    enum gt_status status = GT_OK;
    struct line_edit editor;
    chat->generator = generator;
    if (has_role(chat, 0, "system"))
        message_warn(chat, chat->spec.config->start, "--start");
    line_edit_open(&editor);
    for (char *line = NULL; status == GT_OK && (line = line_edit_read(&editor, "> ")) != NULL;)
        status = line_answer(chat, line);
    line_edit_close(&editor);
    return status;
}
