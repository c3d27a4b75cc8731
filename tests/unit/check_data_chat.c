/* Tests of src/data/chat.c: rendering, parts, cuts, ids, and the templates that a vocabulary has. */
#include "data/chat.h"

#include "tests/unit/bpe_fixture.h"

/* Returns a vocabulary with the template's tokens. */
static struct tokenizer *make_chat(struct data_fixture *fixture, enum chat_kind kind)
{
    static char text[4000];
    struct bpe_trainer *trainer = NULL;
    struct tokenizer *tokenizer = NULL;
    random_text(7, false, text, sizeof text);
    ck_assert_int_eq(bpe_trainer_create(fixture->mem, chat_specials(kind), &trainer), GT_OK);
    ck_assert_int_eq(bpe_trainer_add(trainer, text, sizeof text), GT_OK);
    ck_assert_int_eq(bpe_trainer_finish(trainer, fixture->mem, 300, &tokenizer), GT_OK);
    ck_assert_int_eq(tokenizer->vocab_size, 300);
    hostmem_free(trainer);
    return tokenizer;
}

static bool render(enum chat_kind kind, const char *messages, char out[static 512], size_t *count,
                   char reason[static 100])
{
    json_t *list = json_loads(messages, 0, NULL);
    ck_assert_ptr_nonnull(list);
    const bool good = chat_render(kind, list, out, count, reason, 100);
    json_decref(list);
    return good;
}

/* Decodes ids; what counts is between brackets. */
static void decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t count, char out[static 2048])
{
    int32_t counted = 0;
    size_t length = 0;
    for (size_t i = 0; i <= count; i++) {
        char scratch[4];
        const char *bytes = NULL;
        const int32_t now = i < count ? ids[i] & CHAT_COUNTED : 0;
        if (now != counted)
            out[length++] = now != 0 ? '[' : ']';
        counted = now;
        if (i == count)
            break;
        const size_t size = tokenizer_token_bytes(tokenizer, ids[i] & ~CHAT_COUNTED, scratch, &bytes);
        memcpy(out + length, bytes, size);
        length += size;
    }
    out[length] = '\0';
}

TEST_LOOP(a_conversation_becomes_its_template, 2)
{
    static const char *const wanted[] = {
        "<|im_start|>user\nthe other<|im_end|>\n<|im_start|>assistant\n[them <|im_end|>, 12<|im_end|>]\n<|endoftext|>",
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nthe other<|eot_id|><|start_header_id|>assistant"
        "<|end_header_id|>\n\n[them <|im_end|>, 12<|eot_id|>]<|endoftext|>"};
    static const char *const prompts[] = {
        "<|im_start|>system\nx<|im_end|>\n<|im_start|>user\nthe<|im_end|>\n<|im_start|>assistant\n",
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nx<|eot_id|><|start_header_id|>user"
        "<|end_header_id|>\n\nthe<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"};
    const enum chat_kind kind = _i == 0 ? CHAT_CHATML : CHAT_LLAMA3;
    struct data_fixture fixture;
    struct tokenizer_encoder *encoder = NULL;
    char text[512], said[2048], reason[100];
    int32_t ids[512];
    size_t count = 0, id_count = 0;
    fixture_open(&fixture);
    struct tokenizer *tokenizer = make_chat(&fixture, kind);
    ck_assert_int_eq(chat_kind_of(tokenizer), kind);
    ck_assert_int_eq(chat_check(tokenizer, kind), GT_OK);
    ck_assert_int_eq(chat_check(tokenizer, CHAT_CHATML + CHAT_LLAMA3 - kind), GT_USAGE);
    FIXTURE_SAYS(&fixture, _i == 0 ? "but those of --chat=chatml" : "but those of --chat=llama3");
    ck_assert_int_eq(tokenizer_encoder_create(fixture.mem, tokenizer, &encoder), GT_OK);
    ck_assert(render(kind,
                     "[{\"role\":\"user\",\"content\":\"the other\"},"
                     "{\"role\":\"assistant\",\"content\":\"them <|im_end|>, 12\"}]",
                     text, &count, reason));
    ck_assert_int_eq(chat_encode(encoder, tokenizer, kind, text, count, ids, &id_count), GT_OK);
    ck_assert_uint_le(id_count, count);
    decode(tokenizer, ids, id_count, said);
    ck_assert_str_eq(said, wanted[_i]);
    ck_assert_int_eq(ids[id_count - 1], tokenizer_eot(tokenizer));
    int32_t ends = 0; /* the text of the special token is not the token */
    for (size_t i = 0; i < id_count; i++)
        ends += (ids[i] & ~CHAT_COUNTED) == chat_end(tokenizer);
    ck_assert_int_eq(ends, 2);
    count = chat_turn(kind, true, "x", "the", text);
    ck_assert_int_eq(chat_encode(encoder, tokenizer, kind, text, count, ids, &id_count), GT_OK);
    decode(tokenizer, ids, id_count, said);
    ck_assert_str_eq(said, prompts[_i]);
    for (size_t most = 1; most < count; most++) { /* a cut leaves whole characters and marks */
        const size_t cut = chat_cut(text, most);
        ck_assert(cut <= most && cut + 1 >= most);
        ck_assert_int_eq(chat_encode(encoder, tokenizer, kind, text, cut, ids, &id_count), GT_OK);
    }
    ck_assert_uint_eq(chat_cut("a\xF0\x9F\x98\x80", 4), 1);
    hostmem_free(encoder);
    hostmem_free(tokenizer);
    fixture_close(&fixture);
}

TEST(conversations_that_teach_nothing_are_refused)
{
    static const struct {
        const char *messages, *reason;
    } bad[] = {
        {"[]", "no message is the assistant's"},
        {"[{\"role\":\"user\",\"content\":\"a\"}]", "no message is the assistant's"},
        {"[{\"content\":\"a\"}]", "message 1 has no \"role\""},
        {"[3]", "message 1 has no \"role\""},
        {"[{\"role\":\"system\",\"content\":\"\"},{\"role\":\"tool\",\"content\":\"a\"}]",
         "message 2 has the role \"tool\"; only system, user and assistant are supported"},
        {"[{\"role\":\"user\",\"content\":null}]", "message 1 has no text as \"content\""},
        {"[{\"role\":\"assistant\",\"content\":\"\"}]", "message 1 is an empty answer of the assistant"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}]",
         "message 1 has a list, not one text, as \"content\""},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\"}]}]",
         "message 1 has a part of type \"image_url\" in \"content\"; only text is supported"},
        {"[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[{}]}]",
         "message 1 has the field \"tool_calls\", which is not supported"},
        {"[{\"role\":\"assistant\",\"content\":null,\"function_call\":{\"name\":\"f\"}}]",
         "message 1 has the field \"function_call\", which is not supported"},
        {"[{\"role\":\"assistant\",\"content\":\"a\",\"train\":false}]",
         "message 1 has the field \"train\", which is not supported; \"weight\": 0 is"},
        {"[{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0.5}]",
         "message 1 has a \"weight\" that is not 0 or 1"},
        {"[{\"role\":\"assistant\",\"content\":\"a\",\"weight\":\"0\"}]",
         "message 1 has a \"weight\" that is not 0 or 1"},
        {"[{\"role\":\"user\",\"content\":\"a\",\"weight\":1}]", "message 1 has a \"weight\" that is not an answer's"}};
    char text[512], reason[100];
    size_t count;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert(!render(CHAT_CHATML, bad[i].messages, text, &count, reason));
        ck_assert_str_eq(reason, bad[i].reason);
    }
}

/* Fields that say nothing, and those that no template writes anyway. */
TEST(fields_that_are_ignored)
{
    static const char *const good[] = {
        "[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":null,\"refusal\":null,\"annotations\":[]}]",
        "[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[],\"name\":\"\",\"weight\":null}]",
        "[{\"role\":\"assistant\",\"content\":\"a\",\"id\":7,\"timestamp\":\"now\",\"train\":true}]",
        "[{\"role\":\"user\",\"content\":\"a\",\"weight\":0},{\"role\":\"assistant\",\"content\":\"\",\"weight\":0}]"};
    char text[512], reason[100];
    size_t count;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        ck_assert_msg(render(CHAT_CHATML, good[i], text, &count, reason), "%s", reason);
}

TEST(an_answer_of_weight_0_does_not_count)
{
    char text[512], reason[100];
    size_t count = 0, marks = 0;
    ck_assert(render(CHAT_CHATML,
                     "[{\"role\":\"assistant\",\"content\":\"BAD\",\"weight\":0},"
                     "{\"role\":\"assistant\",\"content\":\"good\",\"weight\":1}]",
                     text, &count, reason));
    for (size_t i = 0; i + 1 < count; i++)
        if (text[i] == '\xff' && text[i + 1] == '+') {
            marks++;
            ck_assert_int_eq(memcmp(text + i + 2, "good", 4), 0);
        }
    ck_assert_uint_eq(marks, 1);
}

TEST(fields_of_a_line)
{
    static const struct {
        const char *line, *reason;
    } lines[] = {{"{\"messages\":[],\"id\":1,\"source\":\"x\",\"tools\":[],\"system\":\"\",\"weight\":1}", NULL},
                 {"{\"tools\":[{}]}", "the field \"tools\" is not supported"},
                 {"{\"functions\":[{}]}", "the field \"functions\" is not supported"},
                 {"{\"images\":[\"a.png\"]}", "the field \"images\" is not supported"},
                 {"{\"weight\":0.3}", "the field \"weight\" is not supported"},
                 {"{\"system\":\"be brief\"}",
                  "the field \"system\" is not supported; write it as a message with the role system"}};
    char reason[100];
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        json_t *root = json_loads(lines[i].line, 0, NULL);
        ck_assert_ptr_nonnull(root);
        ck_assert_int_eq(chat_line_check(root, reason, sizeof reason), lines[i].reason == NULL);
        if (lines[i].reason != NULL)
            ck_assert_str_eq(reason, lines[i].reason);
        json_decref(root);
    }
}

TEST(other_forms_are_recognised)
{
    static const struct {
        const char *line, *text,
            *chat; /* what a line to be read as text, or as a conversation, is called; NULL: unknown */
    } lines[] = {{"{\"messages\":[{\"role\":\"user\"}]}", "\"messages\" is a conversation: give --chat=llama3", NULL},
                 {"{\"chat\":[{\"role\":\"user\"}]}", "give --chat=llama3 --field=chat", "give --field=chat"},
                 {"{\"conversations\":[{\"from\":\"human\"}]}", "ShareGPT's form", "ShareGPT's form"},
                 {"{\"instruction\":\"a\",\"input\":\"\",\"output\":\"b\"}", "Alpaca's form", "Alpaca's form"},
                 {"{\"instruction\":\"a\",\"context\":\"\",\"response\":\"b\"}", "Dolly's form", "Dolly's form"},
                 {"{\"prompt\":[{\"role\":\"user\"}],\"completion\":[{\"role\":\"assistant\"}]}",
                  "d[\"prompt\"] + d[\"completion\"]", "a prompt and its completion"},
                 {"{\"prompt\":\"a\",\"chosen\":[{\"role\":\"user\"}],\"rejected\":[{\"role\":\"user\"}]}",
                  "--field=chosen", "--field=chosen"},
                 {"{\"text\":\"a\"}", NULL, "leave out --chat"},
                 {"{\"it's\":[{\"role\":\"user\"}]}", NULL, NULL},
                 {"{\"instruction\":\"a\",\"output\":1}", NULL, NULL},
                 {"{\"conversations\":[],\"x\":{}}", NULL, NULL}};
    char out[CHAT_ADVICE_BYTES];
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        json_t *root = json_loads(lines[i].line, 0, NULL);
        ck_assert_ptr_nonnull(root);
        for (int chat = 0; chat < 2; chat++) {
            const char *wanted = chat ? lines[i].chat : lines[i].text;
            const struct chat_given given = {.kind = chat ? CHAT_LLAMA3 : CHAT_NONE,
                                             .field = chat ? "messages" : "text",
                                             .path = "file",
                                             .flags = chat ? "" : "--chat=llama3"};
            ck_assert_msg(chat_advise(root, &given, out) == (wanted != NULL), "line %zu", i);
            if (wanted != NULL)
                ck_assert_msg(strstr(out, wanted) != NULL, "line %zu: %s", i, out);
        }
        json_decref(root);
    }
}

TEST(a_vocabulary_without_special_tokens_has_no_template)
{
    struct data_fixture fixture;
    fixture_open(&fixture);
    struct tokenizer *bpe = make_trained(&fixture, 300), *bytes = NULL;
    ck_assert_int_eq(tokenizer_create_bytes(fixture.mem, &bytes), GT_OK);
    ck_assert_int_eq(chat_kind_of(bpe), CHAT_NONE);
    ck_assert_int_eq(chat_kind_of(bytes), CHAT_NONE);
    ck_assert_int_eq(chat_end(bpe), tokenizer_eot(bpe));
    ck_assert_int_eq(chat_end(bytes), -1);
    ck_assert_int_eq(chat_check(bpe, CHAT_LLAMA3), GT_USAGE);
    FIXTURE_SAYS(&fixture, "has no token <|begin_of_text|>, <|start_header_id|>, <|end_header_id|>, <|eot_id|>;");
    hostmem_free(bytes);
    hostmem_free(bpe);
    fixture_close(&fixture);
}
