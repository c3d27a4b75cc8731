/* Tests of src/data/tokenizer_import.c and tokenizer_export.c: every format gives the same
 * tokenizer again, and other files are refused in one line that names file and field or line. */
#include "data/tokenizer.h"
#include "data/tokenizer_export.h"
#include "data/tokenizer_import.h"
#include "tests/unit/bpe_fixture.h"

TEST(import_reads_what_export_wrote)
{
    static const char *const removed[] = {"", "gpt_tokenizer.json", "tokenizer.json"};
    bool holds;
    struct data_fixture fixture;
    fixture_open(&fixture);
    struct tokenizer *tokenizer = make_trained(&fixture, 400), *back = NULL;
    ck_assert_int_eq(tokenizer_files_save(tokenizer, 1, fixture.folder), GT_OK);
    /* The whole folder, then without its first choice, then with the old pair of files only. */
    for (size_t i = 0; i < sizeof removed / sizeof removed[0]; i++) {
        if (removed[i][0] != '\0')
            ck_assert_int_eq(unlink(fixture_path(&fixture, removed[i])), 0);
        ck_assert(tokenizer_import_folder(fixture.folder, &holds) == GT_OK && holds);
        ck_assert_int_eq(tokenizer_import(fixture.mem, fixture.folder, &back), GT_OK);
        ck_assert_uint_eq(back->hash, tokenizer->hash);
        ck_assert_int_eq(tokenizer_eot(back), tokenizer_eot(tokenizer));
        hostmem_free(back);
    }
    static const char *const halves[] = {"vocab.json", "merges.txt"};
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(tokenizer_import(fixture.mem, fixture_path(&fixture, halves[i]), &back),
                         GT_OK);
        ck_assert_uint_eq(back->hash, tokenizer->hash);
        hostmem_free(back);
    }
    ck_assert_int_eq(unlink(fixture_path(&fixture, "merges.txt")), 0);
    ck_assert(tokenizer_import_folder(fixture.folder, &holds) == GT_OK && !holds);
    ck_assert_int_eq(tokenizer_import(fixture.mem, fixture.folder, &back), GT_USAGE);
    FIXTURE_SAYS(&fixture, "this folder has no tokenizer.json");
    ck_assert_int_eq(tokenizer_import(fixture.mem, fixture_path(&fixture, "vocab.json"), &back),
                     GT_IO);
    FIXTURE_SAYS(&fixture, "merges.txt");
    ck_assert_int_eq(tokenizer_import(fixture.mem, fixture_path(&fixture, "absent.json"), &back),
                     GT_USAGE);
    FIXTURE_SAYS(&fixture, "absent.json: no such file or folder");
    fixture_write_text(&fixture, "vocab.bin", "x");
    ck_assert_int_eq(tokenizer_import(fixture.mem, fixture_path(&fixture, "vocab.bin"), &back),
                     GT_USAGE);
    FIXTURE_SAYS(&fixture, "not the name of a vocabulary file");
    hostmem_free(tokenizer);
    fixture_close(&fixture);
}

/* Returns a copy of `text` with the first `from` replaced; the caller calls free(). */
static char *replaced(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    ck_assert_msg(at != NULL, "%s", from);
    char *copy = malloc(strlen(text) + strlen(to) + 1);
    ck_assert_ptr_nonnull(copy);
    sprintf(copy, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return copy;
}

struct spoiled {
    const char *from, *to, *says;
    enum gt_status status;
};

static void expect_refusals(struct data_fixture *fixture, const char *name, const char *text,
                            const struct spoiled *cases, size_t count)
{
    struct tokenizer *back = NULL;
    for (size_t i = 0; i < count; i++) {
        char *bad = replaced(text, cases[i].from, cases[i].to);
        const size_t lines = log_count(LOG_ERROR);
        fixture_write_text(fixture, name, bad);
        const enum gt_status status =
            tokenizer_import(fixture->mem, fixture_path(fixture, name), &back);
        ck_assert_msg(status == cases[i].status, "case %zu (%s): status %d: %s", i, cases[i].says,
                      status, fixture->line);
        ck_assert_ptr_null(back);
        ck_assert_uint_eq(log_count(LOG_ERROR), lines + 1);
        ck_assert_msg(strstr(fixture->line, name) != NULL, "%s", fixture->line);
        ck_assert_msg(strstr(fixture->line, cases[i].says) != NULL, "case %zu (%s): %s", i,
                      cases[i].says, fixture->line);
        free(bad);
    }
}

TEST(json_refusals)
{
    static const struct spoiled cases[] = {
        {"{\"version\"", "[\"version\"", "not valid JSON", GT_DATA},
        {"\"type\": \"BPE\"", "\"type\": \"Unigram\"", "a Unigram vocabulary; only BPE",
         GT_UNSUPPORTED},
        {"\"model\": {", "\"mode\": {", "\"model.type\"", GT_UNSUPPORTED},
        {"\"dropout\": null", "\"dropout\": 0.1", "\"model.dropout\": 0.1", GT_UNSUPPORTED},
        {"\"unk_token\": null", "\"unk_token\": 7", "\"model.unk_token\"", GT_UNSUPPORTED},
        {"\"continuing_subword_prefix\": null", "\"continuing_subword_prefix\": \"##\"",
         "continuing_subword_prefix", GT_UNSUPPORTED},
        {"\"byte_fallback\": false", "\"byte_fallback\": true", "\"Metaspace\" with U+2581",
         GT_UNSUPPORTED},
        {"\"ignore_merges\": false", "\"ignore_merges\": 1", "ignore_merges", GT_UNSUPPORTED},
        {"\"normalizer\": null", "\"normalizer\": {\"type\": \"NFD\"}",
         "\"normalizer\": {\"type\":\"NFD\"}", GT_UNSUPPORTED},
        {"{\"type\": \"ByteLevel\"", "{\"type\": \"Sequence\"", "\"pre_tokenizer\"",
         GT_UNSUPPORTED},
        {"\"add_prefix_space\": false", "\"add_prefix_space\": true",
         "pre_tokenizer.add_prefix_space", GT_UNSUPPORTED},
        {"\"use_regex\": true", "\"use_regex\": false", "pre_tokenizer.use_regex", GT_UNSUPPORTED},
        {"\"post_processor\": null", "\"post_processor\": {\"type\": \"BertProcessing\"}",
         "post_processor", GT_UNSUPPORTED},
        {"\"added_tokens\": [", "\"added_tokens\": [7, ", "added_tokens.content", GT_UNSUPPORTED},
        {"\"single_word\": false", "\"single_word\": true", "added_tokens", GT_UNSUPPORTED},
        {"\"id\": 399", "\"id\": 3", "its id in \"added_tokens\" is not that in \"vocab\"",
         GT_DATA},
        {"\"content\": \"<|", "\"content\": \"<||", "another token has its id", GT_DATA},
        {"\"!\": 0", "\"!\": 1", "another token has its id", GT_DATA},
        {"\"!\": 0", "\"!\": \"0\"", "the id is not a number", GT_DATA},
        {"\"!\": 0", "\"!\": -1", "the id is not a number", GT_DATA},
        {"\"!\": 0", "\"! \": 0", "\"! \": has a character", GT_DATA},
        {"\"!\": 0", "\"\": 0", "expected 1 to 1024 bytes", GT_DATA},
        {"\"!\": 0, ", "", "the id is not a number from 0 to 398", GT_DATA},
        {"\"merges\": [", "\"merges\": [\"a b c\", ", "\"model.merges\": entry 0", GT_DATA},
        {"\"merges\": [", "\"merges\": [\"\xC4\xA0  \", ", "\"model.merges\": entry 0", GT_DATA},
        {"\"merges\": [", "\"merges\": [\"ab\", ", "\"model.merges\": entry 0", GT_DATA},
        {"\"merges\": [", "\"merges\": [7, ", "\"model.merges\": entry 0", GT_DATA},
        {"\"merges\": [", "\"merges\": [[\"a\"], ", "\"model.merges\": entry 0", GT_DATA},
        {"\"merges\": [", "\"merges\": [[\"a\", \"b\", \"c\"], ", "\"model.merges\": entry 0",
         GT_DATA},
        {"\"merges\": [", "\"merges\": [[1, 2], ", "\"model.merges\": entry 0", GT_DATA},
        {"\"merges\": [", "\"merges\": [\"$ $\", ", "\"model.merges\": entry 0", GT_DATA},
        {"\"merges\": [", "\"merge\": [", "\"merges\", a list", GT_DATA},
    };
    struct data_fixture fixture;
    char *text = NULL;
    struct tokenizer *back = NULL;
    fixture_open(&fixture);
    struct tokenizer *tokenizer = make_trained(&fixture, 400);
    ck_assert_int_eq(tokenizer_file_text(tokenizer, TOKENIZER_FILE_JSON, 1, &text), GT_OK);
    ck_assert_int_eq(tokenizer_import_json(fixture.mem,
                                           &(struct tokenizer_source){"same", text, strlen(text)},
                                           &back),
                     GT_OK);
    ck_assert_uint_eq(back->hash, tokenizer->hash);
    hostmem_free(back);
    expect_refusals(&fixture, "tokenizer.json", text, cases, sizeof cases / sizeof cases[0]);
    free(text);
    hostmem_free(tokenizer);
    fixture_close(&fixture);
}

/* Imports a vocabulary of the bytes and "ab" from the old pair of files. */
static enum gt_status import_pair(struct data_fixture *fixture, const char *merges,
                                  struct tokenizer **out)
{
    struct tokenizer *bytes = make_trained(fixture, 258);
    char *vocab = NULL;
    ck_assert_int_eq(tokenizer_file_text(bytes, TOKENIZER_FILE_VOCAB, 1, &vocab), GT_OK);
    const enum gt_status status = tokenizer_import_pair(
        fixture->mem, &(struct tokenizer_source){"vocab.json", vocab, strlen(vocab)},
        &(struct tokenizer_source){"merges.txt", merges, strlen(merges)}, out);
    free(vocab);
    hostmem_free(bytes);
    return status;
}

TEST(merges_lines)
{
    struct data_fixture fixture;
    fixture_open(&fixture);
    struct tokenizer *tokenizer = make_trained(&fixture, 258), *back = NULL;
    char *merges = NULL, line[128];
    ck_assert_int_eq(tokenizer_file_text(tokenizer, TOKENIZER_FILE_MERGES, 1, &merges), GT_OK);
    ck_assert(strncmp(merges, "#version: 0.2\n", 14) == 0);
    const int length = (int)strcspn(merges + 14, "\n");
    static const char *const good[] = {"%.*s", "%.*s\n", "%.*s\r\n", "#version: 0.2\n%.*s\n\n\n",
                                       "#version: 0.2\r\n%.*s\r\n"};
    static const char *const bad[] = {"x\n%.*s", "%.*s\n\n%.*s", " %.*s", "%.*s x",
                                      "#version: 0.2\n#version: 0.2\n%.*s"};
    static const char *const says[] = {"line 1", "line 2: is empty", "line 1", "line 1", "line 2"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        snprintf(line, sizeof line, good[i], length, merges + 14);
        ck_assert_msg(import_pair(&fixture, line, &back) == GT_OK, "case %zu", i);
        ck_assert_uint_eq(back->hash, tokenizer->hash);
        hostmem_free(back);
    }
    back = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(line, sizeof line, bad[i], length, merges + 14, length, merges + 14);
        ck_assert_msg(import_pair(&fixture, line, &back) == GT_DATA, "case %zu", i);
        FIXTURE_SAYS(&fixture, "merges.txt: ");
        FIXTURE_SAYS(&fixture, says[i]);
    }
    ck_assert_ptr_null(back);
    const struct tokenizer_source list = {"vocab.json", "[]", 2}, none = {"vocab.json", "{}", 2},
                                  no_merges = {"merges.txt", "", 0};
    ck_assert_int_eq(tokenizer_import_pair(fixture.mem, &list, &no_merges, &back), GT_DATA);
    FIXTURE_SAYS(&fixture, "vocab.json: expected an object");
    ck_assert_int_eq(tokenizer_import_pair(fixture.mem, &none, &no_merges, &back), GT_DATA);
    FIXTURE_SAYS(&fixture, "vocab.json: 0 tokens");
    free(merges);
    hostmem_free(tokenizer);
    fixture_close(&fixture);
}

/* Returns the tokens of a tokenizer as tiktoken's lines, without special ones; the caller calls
 * free(). */
static char *tiktoken_text(const struct tokenizer *tokenizer)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc(1 << 16), *at = text;
    ck_assert_ptr_nonnull(text);
    for (int32_t id = 0; id < tokenizer_eot(tokenizer); id++) {
        const char *bytes = NULL;
        const size_t count = bpe_token(tokenizer->bpe, id, &bytes);
        for (size_t i = 0; i < count; i += 3) {
            const unsigned a = (unsigned char)bytes[i],
                           b = i + 1 < count ? (unsigned char)bytes[i + 1] : 0,
                           c = i + 2 < count ? (unsigned char)bytes[i + 2] : 0;
            *at++ = digits[a >> 2];
            *at++ = digits[(a << 4 | b >> 4) & 63];
            *at++ = '=';
            *at++ = '=';
            if (i + 1 < count)
                at[-2] = digits[(b << 2 | c >> 6) & 63];
            if (i + 2 < count)
                at[-1] = digits[c & 63];
        }
        at += sprintf(at, " %d\n", id);
    }
    ck_assert_int_lt(at - text, 1 << 16);
    return text;
}

TEST(tiktoken_lines)
{
    static const struct spoiled cases[] = {
        {"IQ== 0\n", "IQ== 0 \n", "line 1", GT_DATA},
        {"IQ== 0\n", "IQ==\n", "line 1: expected a token", GT_DATA},
        {"IQ== 0\n", "IQ= 0\n", "line 1: expected a token", GT_DATA},
        {"IQ== 0\n", "I=== 0\n", "line 1: expected a token", GT_DATA},
        {"IQ== 0\n", "I$== 0\n", "line 1: expected a token", GT_DATA},
        {"IQ== 0\n", " 0\n", "line 1: expected a token", GT_DATA},
        {"IQ== 0\n", "IQ== -1\n", "line 1: the rank", GT_DATA},
        {"IQ== 0\n", "IQ== 299\n", "line 1: the rank", GT_DATA},
        {"IQ== 0\n", "IQ== 99999999999\n", "line 1: the rank", GT_DATA},
        {"IQ== 0\n", "IQ== 1\n", "line 2: the rank occurs twice", GT_DATA},
        {"IQ== 0\n", "Ig== 0\n", "line 2: the token occurs twice", GT_DATA},
        {"IQ== 0\n", "ISEhISEh 0\n", "the byte 0x21 is not a token", GT_DATA},
        {"IQ== 0\n", "", "the rank is not a number below that of the lines", GT_DATA},
        {"IQ== 0\n", "\n", "line 1: expected a token", GT_DATA},
    };
    struct data_fixture fixture;
    struct tokenizer *back = NULL;
    fixture_open(&fixture);
    struct tokenizer *tokenizer = make_trained(&fixture, 300);
    char *text = tiktoken_text(tokenizer);
    fixture_write_text(&fixture, "good.tiktoken", text);
    ck_assert_int_eq(tokenizer_import(fixture.mem, fixture_path(&fixture, "good.tiktoken"), &back),
                     GT_OK);
    ck_assert_int_eq(back->vocab_size, 300);
    ck_assert_int_eq(tokenizer_eot(back), 299);
    ck_assert(!tokenizer_can_merge(back));
    hostmem_free(back);
    back = NULL;
    expect_refusals(&fixture, "bad.tiktoken", text, cases, sizeof cases / sizeof cases[0]);
    ck_assert_int_eq(
        tokenizer_import_tiktoken(fixture.mem, &(struct tokenizer_source){"empty", "", 0}, &back),
        GT_DATA);
    FIXTURE_SAYS(&fixture, "empty: 0 lines");
    free(text);
    hostmem_free(tokenizer);
    fixture_close(&fixture);
}
