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
    } bad[] = {{"[]", "no message is the assistant's"},
               {"[{\"role\":\"user\",\"content\":\"a\"}]", "no message is the assistant's"},
               {"[{\"content\":\"a\"}]", "message 1 has no \"role\""},
               {"[3]", "message 1 has no \"role\""},
               {"[{\"role\":\"system\",\"content\":\"\"},{\"role\":\"tool\",\"content\":\"a\"}]",
                "message 2 has an unknown role; system, user and assistant are known"},
               {"[{\"role\":\"user\",\"content\":null}]", "message 1 has no text as \"content\""},
               {"[{\"role\":\"assistant\",\"content\":\"\"}]", "message 1 is an empty answer of the assistant"}};
    char text[512], reason[100];
    size_t count;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert(!render(CHAT_CHATML, bad[i].messages, text, &count, reason));
        ck_assert_str_eq(reason, bad[i].reason);
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
    FIXTURE_SAYS(&fixture, "has no token <|begin_of_text|>");
    hostmem_free(bytes);
    hostmem_free(bpe);
    fixture_close(&fixture);
}
