/* Tests of src/data/chat*.c: records in every form, rendering in every family, cuts, ids and masks,
 * JSON and white space as Python has them, and the templates that are recognised. */
#include "data/bpe_train.h"
#include "data/chat_forms.h"
#include "data/chat_kind.h"
#include "data/chat_mark.h"
#include "data/chat_out.h"
#include "data/chat_render.h"
#include "data/chat_templates.h"
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

/* Decodes ids; what counts is between brackets. */
static void decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t count,
                   char out[static 2048])
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
        const size_t size =
            tokenizer_token_bytes(tokenizer, ids[i] & ~CHAT_COUNTED, scratch, &bytes);
        memcpy(out + length, bytes, size);
        length += size;
    }
    out[length] = '\0';
}

/* Renders one record; false with the reason. */
static bool render_with(struct chat_reader *reader, const char *record, struct chat_text *out,
                        char reason[static CHAT_REASON_BYTES])
{
    json_t *root = json_loads(record, 0, NULL);
    ck_assert_ptr_nonnull(root);
    const enum gt_status status = chat_record_render(reader, root, out, reason);
    json_decref(root);
    ck_assert(status == GT_OK || status == GT_DATA);
    return status == GT_OK;
}

static bool render(enum chat_kind kind, const char *record, struct chat_text *out,
                   char reason[static CHAT_REASON_BYTES])
{
    struct chat_reader reader = {.kind = kind};
    return render_with(&reader, record, out, reason);
}

/* Returns rendered text with the special tokens' texts, what counts between brackets and the end of
 * text as |. */
static const char *shown(enum chat_kind kind, const struct chat_text *text)
{
    static char out[8192];
    struct chat_piece part;
    size_t at = 0, count = 0;
    while (chat_next(text->text, text->count, &at, &part)) {
        const char *bytes = part.text, *special = NULL;
        size_t length = part.count;
        if (part.mark >= '0' && part.mark <= '9')
            special = chat_specials(kind)[part.mark - '0'];
        else if (part.mark != 0)
            special = part.mark == CHAT_MARK_COUNT    ? "["
                      : part.mark == CHAT_MARK_IGNORE ? "]"
                                                      : "|";
        if (special != NULL) {
            bytes = special;
            length = strlen(special);
        }
        ck_assert_uint_lt(count + length, sizeof out);
        memcpy(out + count, bytes, length);
        count += length;
    }
    out[count] = '\0';
    return out;
}

#define ROOM(bytes) ((struct chat_text){.text = (bytes), .room = sizeof(bytes)})
#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ANSWER(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"

static void expect_shown(enum chat_kind kind, const char *record, const char *wanted)
{
    static char text[8192];
    struct chat_text out = ROOM(text);
    char reason[CHAT_REASON_BYTES];
    ck_assert_msg(render(kind, record, &out, reason), "%s: %s", record, reason);
    ck_assert_str_eq(shown(kind, &out), wanted);
}

TEST_LOOP(a_conversation_becomes_its_template, 2)
{
    static const char *const wanted[] = {
        "<|im_start|>user\nthe other<|im_end|>\n<|im_start|>assistant\n[them <|im_end|>, 12<|im_end|>]\n<|endoftext|>",
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nthe other<|eot_id|><|start_header_id|>assistant"
        "<|end_header_id|>\n\n[them <|im_end|>, 12<|eot_id|>]<|endoftext|>"};
    const enum chat_kind kind = _i == 0 ? CHAT_CHATML : CHAT_LLAMA3;
    struct data_fixture fixture;
    struct chat_encoder *encoder = NULL;
    enum chat_kind chosen = CHAT_NONE;
    char said[2048], reason[CHAT_REASON_BYTES], room[512];
    struct chat_text text = ROOM(room);
    int32_t ids[512];
    size_t id_count = 0;
    fixture_open(&fixture);
    struct tokenizer *tokenizer = make_chat(&fixture, kind);
    ck_assert_int_eq(chat_kind_of(tokenizer), kind);
    ck_assert_int_eq(chat_choose(tokenizer, CHAT_AUTO, &chosen), GT_OK);
    ck_assert_int_eq(chosen, kind);
    ck_assert_int_eq(chat_choose(tokenizer, CHAT_CHATML + CHAT_LLAMA3 - kind, &chosen), GT_USAGE);
    FIXTURE_SAYS(&fixture, _i == 0 ? "but those of --chat=chatml" : "but those of --chat=llama3");
    ck_assert_int_eq(chat_encoder_create(fixture.mem, tokenizer, kind, sizeof room, &encoder),
                     GT_OK);
    ck_assert(render(kind,
                     "{\"messages\":[" USER("the other") "," ANSWER("them <|im_end|>, 12") "]}",
                     &text, reason));
    ck_assert_int_eq(chat_encode(encoder, text.text, text.count, ids, &id_count), GT_OK);
    ck_assert_uint_le(id_count, text.count);
    decode(tokenizer, ids, id_count, said);
    ck_assert_str_eq(said, wanted[_i]);
    ck_assert_int_eq(ids[id_count - 1], tokenizer_eot(tokenizer));
    int32_t ends = 0; /* the text of the special token is not the token */
    for (size_t i = 0; i < id_count; i++)
        ends += (ids[i] & ~CHAT_COUNTED) == chat_end(tokenizer);
    ck_assert_int_eq(ends, 2);
    for (size_t most = 1; most < text.count; most++) { /* a cut leaves whole characters and marks */
        const size_t cut = chat_cut(text.text, most);
        ck_assert(cut <= most && cut + 1 >= most);
        ck_assert_int_eq(chat_encode(encoder, text.text, cut, ids, &id_count), GT_OK);
    }
    ck_assert_uint_eq(chat_cut("a\xF0\x9F\x98\x80", 4), 1);
    hostmem_free(encoder);
    hostmem_free(tokenizer);
    fixture_close(&fixture);
}

/* A token of two newlines begins before the answer and ends in it: the ids are those of the whole
 * text, and it counts. */
TEST(a_token_may_span_the_beginning_of_an_answer)
{
    struct data_fixture fixture;
    struct bpe_trainer *trainer = NULL;
    struct tokenizer *tokenizer = NULL;
    struct chat_encoder *encoder = NULL;
    char reason[CHAT_REASON_BYTES], room[256];
    struct chat_text text = ROOM(room);
    const char *bytes = NULL;
    int32_t ids[64];
    size_t count = 0, counted = 0;
    fixture_open(&fixture);
    ck_assert_int_eq(bpe_trainer_create(fixture.mem, chat_specials(CHAT_CHATML), &trainer), GT_OK);
    ck_assert_int_eq(bpe_trainer_add(trainer, "\n\n a\n\n b\n\n c\n\n", 15), GT_OK);
    ck_assert_int_eq(bpe_trainer_finish(trainer, fixture.mem, 260, &tokenizer), GT_OK);
    ck_assert_int_eq(
        chat_encoder_create(fixture.mem, tokenizer, CHAT_CHATML, sizeof room, &encoder), GT_OK);
    ck_assert(render(CHAT_CHATML, "{\"messages\":[" ANSWER("\\n") "]}", &text, reason));
    ck_assert_int_eq(chat_encode(encoder, text.text, text.count, ids, &count), GT_OK);
    for (size_t i = 0; i < count; i++)
        counted += (ids[i] & CHAT_COUNTED) != 0;
    /* <|im_start|> a s s i s t a n t \n\n <|im_end|> \n <|endoftext|> */
    ck_assert_uint_eq(count, 14);
    ck_assert_uint_eq(counted, 2);
    ck_assert_int_ne(ids[10] & CHAT_COUNTED, 0);
    ck_assert_uint_eq(
        tokenizer_token_bytes(tokenizer, ids[10] & ~CHAT_COUNTED, (char[4]){0}, &bytes), 2);
    ck_assert_int_eq(memcmp(bytes, "\n\n", 2), 0);
    hostmem_free(encoder);
    hostmem_free(tokenizer);
    hostmem_free(trainer);
    fixture_close(&fixture);
}

/* Qwen3: only the answers after the last question keep their reasoning, and what counts is what
 * stands there. */
TEST(turns_that_later_ones_rewrite)
{
#define THOUGHT(text, reason) \
    "{\"role\":\"assistant\",\"content\":\"" text "\",\"reasoning_content\":\"" reason "\"}"
    expect_shown(
        CHAT_QWEN3,
        "{\"messages\":[" USER("q") "," THOUGHT("a", "one") "," USER("r") "," THOUGHT("b",
                                                                                      "two") "]}",
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[a<|im_end|>]\n<|im_start|>user\nr<|im_end|>\n"
        "<|im_start|>assistant\n[<think>\ntwo\n</think>\n\nb<|im_end|>]\n|");
    expect_shown(
        CHAT_QWEN3, "{\"messages\":[" USER("q") "," ANSWER("<think>\\nh\\n</think>\\n\\na") "]}",
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[<think>\nh\n</think>\n\na<|im_end|>]\n|");
    expect_shown(
        CHAT_QWEN3_THINKING, "{\"messages\":[" USER("q") "," THOUGHT("a", "h") "]}",
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n[h\n</think>\n\na<|im_end|>]\n|");
    expect_shown(CHAT_QWEN3_INSTRUCT, "{\"messages\":[" USER("q") "," ANSWER("a") "]}",
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[a<|im_end|>]\n|");
}

TEST(tools_and_their_results)
{
    const char *record =
        "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"x\":0.1}}],\"messages\":[" USER(
            "q") ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":"
                 "{\"a\":1}}}]},{\"role\":\"tool\",\"content\":\"2\"},{\"role\":\"tool\",\"content\":\"3\"}," ANSWER(
                     "five") "]}";
    const char *calls =
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[<tool_call>\n{\"name\": \"f\", \"arguments\": "
        "{\"a\": 1}}\n</tool_call><|im_end|>]\n<|im_start|>user\n<tool_response>\n2\n</tool_response>\n"
        "<tool_response>\n3\n</tool_response><|im_end|>\n<|im_start|>assistant\n[five<|im_end|>]\n|";
    char room[4096], reason[CHAT_REASON_BYTES];
    struct chat_text text = ROOM(room);
    ck_assert_msg(render(CHAT_QWEN3_INSTRUCT, record, &text, reason), "%s", reason);
    const char *said = shown(CHAT_QWEN3_INSTRUCT, &text);
    ck_assert_ptr_nonnull(strstr(
        said,
        "<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"f\", \"x\": 0.1}}\n</tools>"));
    ck_assert_str_eq(strstr(said, "<|im_start|>user"), calls);
    /* ShareGPT's names of the same roles */
    ck_assert(render(
        CHAT_QWEN3_INSTRUCT,
        "{\"conversations\":[{\"from\":\"human\",\"value\":\"q\"},{\"from\":\"function_call\",\"value\":"
        "\"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 1}}\"},{\"from\":\"observation\",\"value\":"
        "\"2\"},{\"from\":\"tool\",\"value\":\"3\"},{\"from\":\"gpt\",\"value\":\"five\"}]}",
        &text, reason));
    ck_assert_str_eq(shown(CHAT_QWEN3_INSTRUCT, &text), calls);
    ck_assert(
        !render(CHAT_LLAMA31,
                "{\"messages\":[" USER(
                    "q") ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":["
                         "{\"name\":\"f\",\"arguments\":{}},{\"name\":\"g\",\"arguments\":{}}]}]}",
                &text, reason));
    ck_assert_str_eq(reason,
                     "message 2 has 2 tool calls; the template llama3.1 allows one per answer");
    ck_assert(!render(CHAT_LLAMA31,
                      "{\"tools\":[{\"name\":\"f\"}],\"messages\":[" ANSWER("hello") "," USER(
                          "q") "," ANSWER("a") "]}",
                      &text, reason));
    ck_assert_str_eq(
        reason,
        "message 1 is no user's; this template writes \"tools\" into the first message, the user's");
    ck_assert(!render(
        CHAT_QWEN35,
        "{\"messages\":[{\"role\":\"tool\",\"content\":\"2\"}," USER("q") "," ANSWER("a") "]}",
        &text, reason));
    ck_assert_str_eq(reason, "message 1 is a tool's result before any call");
}

TEST(arguments_in_tags)
{
#define CALL(arguments)                                                                                 \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"name\":\"f\",\"arguments\":" arguments \
    "}]}"
    char room[4096], reason[CHAT_REASON_BYTES];
    struct chat_text text = ROOM(room);
    /* a text of JSON is what it says */
    expect_shown(
        CHAT_QWEN35,
        "{\"messages\":[" USER("q") "," CALL(
            "\"{\\\"a\\\": true, \\\"b\\\": [1]}\"") ",{\"role\":\"tool\",\"content\":\" 2\"}," ANSWER("r") "]}",
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n[\n</think>\n\n<tool_call>\n<function=f>\n"
        "<parameter=a>\nTrue\n</parameter>\n<parameter=b>\n[1]\n</parameter>\n</function>\n</tool_call><|im_end|>]\n"
        "<|im_start|>user\n<tool_response>\n2\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
        "<think>\n[\n</think>\n\nr<|im_end|>]\n|");
    ck_assert(
        !render(CHAT_QWEN35, "{\"messages\":[" USER("q") "," CALL("\"[1]\"") "]}", &text, reason));
    ck_assert_str_eq(reason,
                     "message 2 has \"tool_calls\" that are not a list of names and arguments");
}

TEST(families)
{
    static const struct {
        enum chat_kind kind;
        const char *wanted;
    } families[] = {
        {CHAT_SMOLLM2,
         "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\n q <|im_end|>\n<|im_start|>assistant\n[ a <|im_end|>]\n|"},
        {CHAT_LLAMA3_META,
         "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\ns<|eot_id|><|start_header_id|>user"
         "<|end_header_id|>\n\nq<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n[a<|eot_id|>]|"},
        {CHAT_LLAMA32,
         "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
         "Today Date: 26 Jul 2024\n\ns<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\n[a<|eot_id|>]|"},
        {CHAT_GEMMA3,
         "<bos><start_of_turn>user\ns\n\nq<end_of_turn>\n<start_of_turn>model\n[a<end_of_turn>]\n|"},
        {CHAT_MISTRAL, "<s>[INST]  q [/INST] [a</s>]|"},
        {CHAT_MISTRAL_NEMO, "<s>[INST] q [/INST][ a </s>]|"},
        {CHAT_PHI3, "<|system|>\ns<|end|>\n<|user|>\n q <|end|>\n<|assistant|>\n[ a <|end|>]\n|"},
        {CHAT_PHI4,
         "<|im_start|>system<|im_sep|>s<|im_end|><|im_start|>user<|im_sep|> q <|im_end|><|im_start|>assistant"
         "<|im_sep|>[ a <|im_end|>]|"},
        {CHAT_PHI4_MINI, "<|system|>s<|end|><|user|> q <|end|><|assistant|>[ a <|end|>]|"}};
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        expect_shown(families[i].kind,
                     "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"}," USER(
                         " q ") "," ANSWER(" a ") "]}",
                     families[i].wanted);
    char room[512], reason[CHAT_REASON_BYTES];
    struct chat_text text = ROOM(room);
    ck_assert(!render(CHAT_GEMMA, "{\"system\":\"s\",\"messages\":[" USER("q") "," ANSWER("a") "]}",
                      &text, reason));
    ck_assert_str_eq(
        reason, "the template gemma has no place for a system message; begin the user's with it");
    ck_assert(!render(CHAT_GEMMA3, "{\"messages\":[" USER("q") "," USER("q") "]}", &text, reason));
    ck_assert_str_eq(
        reason,
        "message 2 is a second user message in a row; in this template user and assistant take turns");
    /* The space before an answer is its first token's, so the prompt ends without it. */
    const struct chat_conversation asked = {.messages = json_loads("[" USER("q") "]", 0, NULL)};
    ck_assert(chat_render(CHAT_MISTRAL, &asked, CHAT_TRAIN_ASSISTANT, true, &text) ==
              CHAT_RENDERED);
    ck_assert_str_eq(shown(CHAT_MISTRAL, &text), "<s>[INST] q[/INST]");
    json_decref(asked.messages);
}

/* The numbers are those that Python 3.11's json.dumps() writes. */
TEST(json_is_written_as_python_does)
{
    const char *given =
        "{\"a\":[0.1,1.0,1e16,123456789012345680.0,1e-5,0.0001,-0.0,1e22,5e-324,100.5,3],\"b\":{},\"c\":[],"
        "\"d\":\"\\u0007\\\"\\\\/\\n\\u00fc\",\"e\":[true,false,null]}";
    const char *flat =
        "{\"a\": [0.1, 1.0, 1e+16, 1.2345678901234568e+17, 1e-05, 0.0001, -0.0, 1e+22, 5e-324, 100.5, 3], "
        "\"b\": {}, \"c\": [], \"d\": \"\\u0007\\\"\\\\/\\n\xc3\xbc\", \"e\": [true, false, null]}";
    char room[1024];
    struct chat_out out = {.text = room, .room = sizeof room};
    json_t *value = json_loads(given, 0, NULL);
    ck_assert_ptr_nonnull(value);
    ck_assert(chat_out_json(&out, value, 0));
    ck_assert_uint_eq(out.count, strlen(flat));
    ck_assert_int_eq(memcmp(room, flat, out.count), 0);
    json_decref(value);
    value = json_loads("{\"a\":[1,{}],\"b\":{\"c\":[]}}", 0, NULL);
    out.count = 0;
    ck_assert(chat_out_json(&out, value, 4));
    const char *tall =
        "{\n    \"a\": [\n        1,\n        {}\n    ],\n    \"b\": {\n        \"c\": []\n    }\n}";
    ck_assert_uint_eq(out.count, strlen(tall));
    ck_assert_int_eq(memcmp(room, tall, out.count), 0);
    json_decref(value);
    char deep[400] = "";
    for (int i = 0; i < 100; i++)
        strcat(deep, "[");
    for (int i = 0; i < 100; i++)
        strcat(deep, "]");
    value = json_loads(deep, 0, NULL);
    ck_assert(!chat_out_json(&out, value, 0));
    json_decref(value);
    size_t count = strlen("\xe3\x80\x80 a b\xc2\xa0\n");
    const char *stripped = chat_strip("\xe3\x80\x80 a b\xc2\xa0\n", &count);
    ck_assert(count == 3 && memcmp(stripped, "a b", 3) == 0);
}

/* Templates written here, which have the marks of families and no text of theirs. */
TEST(templates_are_recognised)
{
    static const struct {
        const char *jinja;
        enum chat_kind kind;
    } given[] = {
        {"{{'<|im_start|>' + message['role'] + message['content'] + '<|im_end|>'}}", CHAT_CHATML},
        {"{% if tools %}{{'<|im_start|>' + message['content'] + '<|im_end|>'}}", CHAT_NONE},
        {"<start_of_turn> first_user_prefix <end_of_turn> {{ x | trim }}", CHAT_GEMMA3},
        {"<start_of_turn> first_user_prefix <end_of_turn> {{ x | trim }} declaration", CHAT_NONE},
        {"<|start_header_id|>{{ message['content'] | trim }}<|eot_id|> bos_token",
         CHAT_LLAMA3_META},
        {"{{ hello }}", CHAT_NONE},
        {"", CHAT_NONE}};
    struct data_fixture fixture;
    enum chat_kind chosen = CHAT_NONE;
    bool exact = true;
    fixture_open(&fixture);
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        ck_assert_int_eq(chat_recognise(given[i].jinja, &exact), given[i].kind);
        ck_assert(!exact);
    }
    for (int kind = CHAT_CHATML; kind <= CHAT_LLAMA3; kind++) {
        ck_assert_int_eq(chat_recognise(chat_template_of((enum chat_kind)kind)->jinja, &exact),
                         kind);
        ck_assert(exact);
    }
    struct tokenizer *tokenizer = make_chat(&fixture, CHAT_CHATML);
    ck_assert_int_eq(tokenizer_template_set(tokenizer, "{{ hello }}"), GT_OK);
    ck_assert_str_eq(chat_jinja(tokenizer), "{{ hello }}");
    ck_assert_int_eq(chat_choose(tokenizer, CHAT_AUTO, &chosen), GT_USAGE);
    FIXTURE_SAYS(&fixture,
                 "the model's chat template is not one that is known here; --chat=chatml");
    ck_assert_int_eq(chat_choose(tokenizer, CHAT_CHATML, &chosen), GT_OK);
    chat_use(tokenizer, CHAT_CHATML);
    ck_assert_str_eq(chat_jinja(tokenizer), chat_template_of(CHAT_CHATML)->jinja);
    hostmem_free(tokenizer);
    fixture_close(&fixture);
}

TEST(a_vocabulary_without_special_tokens_has_no_template)
{
    struct data_fixture fixture;
    enum chat_kind chosen = CHAT_NONE;
    fixture_open(&fixture);
    struct tokenizer *bpe = make_trained(&fixture, 300), *bytes = NULL;
    ck_assert_int_eq(tokenizer_create_bytes(fixture.mem, &bytes), GT_OK);
    ck_assert_int_eq(chat_kind_of(bpe), CHAT_NONE);
    ck_assert_int_eq(chat_kind_of(bytes), CHAT_NONE);
    ck_assert_int_eq(chat_end(bpe), tokenizer_eot(bpe));
    ck_assert_int_eq(chat_end(bytes), -1);
    ck_assert_int_eq(chat_choose(bpe, CHAT_LLAMA3, &chosen), GT_USAGE);
    FIXTURE_SAYS(
        &fixture,
        "has no token <|begin_of_text|>, <|start_header_id|>, <|end_header_id|>, <|eot_id|>;");
    ck_assert_int_eq(chat_choose(bpe, CHAT_AUTO, &chosen), GT_USAGE);
    FIXTURE_SAYS(&fixture, "the vocabulary comes with no chat template");
    hostmem_free(bytes);
    hostmem_free(bpe);
    fixture_close(&fixture);
}
