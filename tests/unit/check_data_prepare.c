/* Tests of src/data/prepare.c: the split, both tokenizers, joined folders, wide vocabularies, and every refusal.  A
 * failed run must leave an earlier data set unchanged, and no other files. */
#include "data/prepare.h"

#include "base/utf8.h"
#include "data/prepare_spec.h"
#include "data/tokens.h"
#include "tests/unit/data_fixture.h"

static enum gt_status prepare(struct data_fixture *fixture, enum tokenizer_kind kind, const char *input,
                              double fraction, struct prepare_result *out)
{
    char in[512], dir[512];
    strcpy(in, fixture_path(fixture, input));
    strcpy(dir, fixture_path(fixture, "out"));
    const char *inputs[1] = {in};
    /* The number of threads is fixed, because each allocates, and allocations are counted. */
    const struct prepare_spec spec = {
        .inputs = inputs, .input_count = 1, .out_dir = dir, .tokenizer = kind, .val_fraction = fraction, .threads = 2};
    return prepare_run(fixture->mem, &spec, out);
}

/* Decodes a split of out/ back to text. */
static char *decode_split(struct data_fixture *fixture, enum token_split split)
{
    struct tokenizer *tokenizer = NULL;
    struct token_source *source = NULL;
    char dir[512], piece[TOKENIZER_TEXT_MAX];
    strcpy(dir, fixture_path(fixture, "out"));
    ck_assert_int_eq(tokenizer_open_dataset(fixture->mem, dir, &tokenizer), GT_OK);
    ck_assert_ptr_nonnull(tokenizer);
    const struct token_source_spec spec = {.folder = dir, .split = split, .vocab_size = tokenizer->vocab_size};
    ck_assert_int_eq(token_source_open(fixture->mem, &spec, &source), GT_OK);
    const size_t count = (size_t)source->length;
    int32_t *ids = malloc(count * sizeof ids[0]);
    char *text = calloc(count + 1, 4);
    size_t length = 0;
    struct tokenizer_stream stream = {.held_count = 0};
    ck_assert_int_eq(token_source_read(source, 0, (int64_t)count, ids), GT_OK);
    for (size_t i = 0; i < count; i++) {
        const size_t more = tokenizer_stream_push(tokenizer, &stream, ids[i], piece);
        memcpy(text + length, piece, more);
        length += more;
    }
    free(ids);
    hostmem_free(source);
    hostmem_free(tokenizer);
    return text;
}

static void expect_split(struct data_fixture *fixture, const char *train, const char *val)
{
    char *text = decode_split(fixture, TOKEN_TRAIN);
    ck_assert_str_eq(text, train);
    free(text);
    text = decode_split(fixture, TOKEN_VAL);
    ck_assert_str_eq(text, val);
    free(text);
}

TEST_LIMIT(60)

TEST(prepare_chars_splits_characters)
{
    struct data_fixture fixture;
    struct prepare_result result;
    fixture_open(&fixture);
    fixture_write_text(&fixture, "in.txt", "h\xC3\xA9llo w\xC3\xB6rld\xE2\x82\xAC"); /* 12 characters, 10 distinct */
    ck_assert_int_eq(prepare(&fixture, TOKENIZER_CHARS, "in.txt", 0.25, &result), GT_OK);
    ck_assert(result.train_tokens == 9 && result.val_tokens == 3 && result.vocab_size == 10);
    ck_assert(result.documents.file_count == 1 && result.documents.skipped_count == 0);
    expect_split(&fixture, "h\xC3\xA9llo w\xC3\xB6r", "ld\xE2\x82\xAC");
    size_t count = 0;
    char *manifest = fixture_read(&fixture, "out/manifest.json", &count);
    ck_assert_ptr_nonnull(strstr(manifest, "\"tokens\": 9"));
    ck_assert_ptr_nonnull(strstr(manifest, "\"vocab_size\": 10"));
    ck_assert_ptr_nonnull(strstr(manifest, "in.txt"));
    free(manifest);
    ck_assert_int_ne(access(fixture_path(&fixture, "out/.gpt-prepare.lock"), F_OK), 0);
    fixture_close(&fixture);
}

TEST(prepare_folder_is_joined_with_newlines)
{
    struct data_fixture fixture;
    struct prepare_result result;
    fixture_open(&fixture);
    fixture_make_folder(&fixture, "in");
    fixture_make_folder(&fixture, "in/sub");
    fixture_write_text(&fixture, "in/c.txt", "three");
    fixture_write_text(&fixture, "in/a.txt", "one");
    fixture_write_text(&fixture, "in/aa.txt", "");
    fixture_write_text(&fixture, "in/b.txt", "two\n");
    fixture_write_text(&fixture, "in/sub/d.txt", "four");
    fixture_write(&fixture, "in/bb.png", "\x89PNG\0\0", 6);
    for (int kind = 0; kind < TOKENIZER_BPE; kind++) {
        ck_assert_int_eq(prepare(&fixture, (enum tokenizer_kind)kind, "in", 0.2, &result), GT_OK);
        ck_assert(result.train_tokens == 14 && result.val_tokens == 4);
        ck_assert(result.documents.file_count == 5 && result.documents.skipped_count == 1);
        expect_split(&fixture, "one\ntwo\nthree\n", "four");
    }
    ck_assert_str_eq(result.documents.kinds[0].name, ".png");
    ck_assert(result.documents.kinds[0].count == 1 && result.documents.kinds[1].count == 0);
    fixture_close(&fixture);
}

/* Places a character at every offset around the border of two pieces of 1 MiB. */
TEST(prepare_characters_across_pieces)
{
    struct data_fixture fixture;
    struct prepare_result result;
    const size_t piece = (size_t)1 << 20;
    char *text = malloc(piece + 64);
    fixture_open(&fixture);
    for (size_t shift = 0; shift < 5; shift++) {
        memset(text, 'a', piece + 10);
        memcpy(text + piece - shift, "\xF0\x9F\x98\x80", 4);
        text[piece + 10] = '\0';
        fixture_write(&fixture, "in.txt", text, piece + 10);
        ck_assert_int_eq(prepare(&fixture, TOKENIZER_CHARS, "in.txt", 0.5, &result), GT_OK);
        ck_assert_int_eq(result.train_tokens + result.val_tokens, (int64_t)piece + 7);
        char *train = decode_split(&fixture, TOKEN_TRAIN), *val = decode_split(&fixture, TOKEN_VAL);
        ck_assert_uint_eq(strlen(train) + strlen(val), piece + 10);
        ck_assert_int_eq(memcmp(train, text, strlen(train)), 0);
        ck_assert_str_eq(val, text + strlen(train));
        free(train);
        free(val);
    }
    free(text);
    fixture_close(&fixture);
}

/* All tokens are for training, by position and by document; an earlier data set's validation files are removed. */
TEST(prepare_without_validation)
{
    struct data_fixture fixture;
    struct prepare_result result;
    fixture_open(&fixture);
    fixture_write_text(&fixture, "in.txt", "some text");
    fixture_write_text(&fixture, "in.jsonl", "{\"text\":\"some\"}\n{\"text\":\" text\"}\n");
    for (int kind = 0; kind < TOKENIZER_BPE; kind++)
        for (int i = 0; i < 2; i++) {
            ck_assert_int_eq(prepare(&fixture, TOKENIZER_BYTES, "in.txt", 0.5, &result), GT_OK);
            ck_assert_int_eq(access(fixture_path(&fixture, "out/val.bin"), F_OK), 0);
            const char *input = i == 0 ? "in.txt" : "in.jsonl";
            ck_assert_int_eq(prepare(&fixture, (enum tokenizer_kind)kind, input, 0, &result), GT_OK);
            ck_assert(result.train_tokens >= 9 && result.val_tokens == 0);
            ck_assert_int_ne(access(fixture_path(&fixture, "out/val.bin"), F_OK), 0);
        }
    fixture_close(&fixture);
}

TEST(prepare_wide_vocabulary_makes_shards)
{
    struct data_fixture fixture;
    struct prepare_result result;
    const uint32_t characters = 70000;
    char *text = calloc(characters + 1, 4);
    size_t length = 0, count = 0;
    fixture_open(&fixture);
    for (uint32_t i = 0; i < characters; i++)
        length += utf8_encode(i + 0x10000, text + length);
    fixture_write(&fixture, "in.txt", text, length);
    ck_assert_int_eq(prepare(&fixture, TOKENIZER_CHARS, "in.txt", 0.1, &result), GT_OK);
    ck_assert(result.vocab_size == characters && result.train_tokens == 63000 && result.val_tokens == 7000);
    char *bytes = fixture_read(&fixture, "out/val.bin", &count);
    ck_assert_uint_eq(count, 1024 + 4 * 7000);
    ck_assert_int_eq(memcmp(bytes, "\xA1\xD9\x34\x01\x07\0\0\0\x58\x1B\0\0", 12), 0);
    char *val = decode_split(&fixture, TOKEN_VAL);
    ck_assert_str_eq(val, text + (size_t)63000 * 4);
    free(val);
    free(bytes);
    free(text);
    fixture_close(&fixture);
}

static void expect_refused(struct data_fixture *fixture, enum tokenizer_kind kind, const char *input,
                           enum gt_status status, const char *says)
{
    struct prepare_result result = {.vocab_size = -5};
    const size_t lines = log_count(LOG_ERROR);
    ck_assert_int_eq(prepare(fixture, kind, input, 0.5, &result), status);
    ck_assert_int_eq(result.vocab_size, -5);
    ck_assert_uint_eq(log_count(LOG_ERROR), lines + 1);
    FIXTURE_SAYS(fixture, says);
    expect_split(fixture, "old ", "text");
}

TEST(prepare_refusals_leave_the_old_data_set)
{
    struct data_fixture fixture;
    struct prepare_result result;
    fixture_open(&fixture);
    fixture_write_text(&fixture, "old.txt", "old text");
    ck_assert_int_eq(prepare(&fixture, TOKENIZER_BYTES, "old.txt", 0.5, &result), GT_OK);
    fixture_write_text(&fixture, "bad.txt", "good\xE9zut");
    expect_refused(&fixture, TOKENIZER_CHARS, "bad.txt", GT_DATA,
                   "bad.txt: byte 4 is not UTF-8 but looks like Latin-1; give --encoding=latin1");
    fixture_write_text(&fixture, "cut.txt", "good\xE4\xB8");
    expect_refused(&fixture, TOKENIZER_CHARS, "cut.txt", GT_DATA, "cut.txt: byte 4 is not UTF-8");
    fixture_write(&fixture, "zero.txt", "ab\0cd", 5);
    expect_refused(&fixture, TOKENIZER_CHARS, "zero.txt", GT_DATA, "zero.txt: byte 2 is zero");
    fixture_write_text(&fixture, "empty.txt", "");
    expect_refused(&fixture, TOKENIZER_BYTES, "empty.txt", GT_DATA, "no text");
    fixture_write_text(&fixture, "one.txt", "x");
    expect_refused(&fixture, TOKENIZER_BYTES, "one.txt", GT_DATA, "1 token in 1 document");
    expect_refused(&fixture, TOKENIZER_BYTES, "none.txt", GT_USAGE, "none.txt");
    fixture_make_folder(&fixture, "binary");
    fixture_write(&fixture, "binary/a", "\0", 1);
    expect_refused(&fixture, TOKENIZER_BYTES, "binary", GT_DATA, "no text in 1 file; not text: 1 no extension");
    ck_assert_int_eq(prepare(&fixture, TOKENIZER_BYTES, "zero.txt", 0.5, &result), GT_OK); /* named: any bytes */
    ck_assert_int_eq(result.train_tokens + result.val_tokens, 5);
    fixture_close(&fixture);
}

/* The progress function makes the file grow, shrink, or change in place between the passes. */
struct disturbance {
    const char *path;
    int kind;
    bool done;
};

static void disturb(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct disturbance *disturbance = context;
    if (disturbance->done || done_bytes < total_bytes / 2)
        return;
    disturbance->done = true;
    FILE *file = fopen(disturbance->path, disturbance->kind == 0 ? "ab" : "r+b");
    ck_assert_ptr_nonnull(file);
    fputs(disturbance->kind == 2 ? "ba" : "more", file);
    fclose(file);
    if (disturbance->kind == 1)
        ck_assert_int_eq(truncate(disturbance->path, 3), 0);
}

TEST(prepare_changing_files_are_noticed)
{
    struct data_fixture fixture;
    struct prepare_result result;
    char in[512], dir[512];
    fixture_open(&fixture);
    strcpy(in, fixture_path(&fixture, "in.txt"));
    strcpy(dir, fixture_path(&fixture, "out"));
    const char *inputs[1] = {in};
    for (int kind = 0; kind < 3; kind++) {
        struct disturbance disturbance = {.path = in, .kind = kind};
        const struct prepare_spec spec = {.inputs = inputs,
                                          .input_count = 1,
                                          .out_dir = dir,
                                          .tokenizer = TOKENIZER_CHARS,
                                          .val_fraction = 0.5,
                                          .progress = disturb,
                                          .progress_context = &disturbance};
        fixture_write_text(&fixture, "in.txt", "abababab");
        ck_assert_int_eq(prepare_run(fixture.mem, &spec, &result), GT_DATA);
        ck_assert(disturbance.done);
        FIXTURE_SAYS(&fixture, "in.txt: the file changed while it was read");
        ck_assert_int_ne(access(fixture_path(&fixture, "out/train.bin"), F_OK), 0);
    }
    ck_assert_int_ne(access(dir, F_OK), 0); /* the run that made it removed it */
    fixture_close(&fixture);
}

TEST(prepare_survives_failed_allocations)
{
    struct data_fixture fixture;
    struct prepare_result result;
    enum gt_status status = GT_NO_MEMORY;
    size_t n = 0;
    fixture_open(&fixture);
    fixture_write_text(&fixture, "in.txt", "some text");
    while (status == GT_NO_MEMORY && n < 60) {
        hostmem_fail_at(fixture.mem, ++n);
        status = prepare(&fixture, TOKENIZER_CHARS, "in.txt", 0.5, &result);
        if (status != GT_OK)
            ck_assert_int_ne(access(fixture_path(&fixture, "out/train.bin"), F_OK), 0);
    }
    hostmem_fail_at(fixture.mem, 0);
    ck_assert_int_eq(status, GT_OK);
    ck_assert_uint_gt(n, 8);
    fixture_close(&fixture);
}

static struct prepare_spec many_spec(const char *const *inputs, const char *dir)
{
    return (struct prepare_spec){.inputs = inputs,
                                 .input_count = 1,
                                 .out_dir = dir,
                                 .tokenizer = TOKENIZER_BPE,
                                 .vocab_size = 270,
                                 .val_fraction = 0.5,
                                 .dedup = true,
                                 .shard_tokens = 7,
                                 .threads = 2};
}

static const char many_lines[] = "{\"text\":\"one one one\"}\n{\"text\":\"two two\"}\n{\"text\":\"one one one\"}\n"
                                 "{\"text\":\"three\"}\n{\"text\":\"four four four\"}\n{\"text\":\"five\"}\n";

/* Opens the fixture with these lines as the only input; the caller owns the paths. */
static struct prepare_spec many_open(struct data_fixture *fixture, char in[static 512], char dir[static 512],
                                     const char *const *inputs)
{
    fixture_open(fixture);
    fixture_write_text(fixture, "in.jsonl", many_lines);
    strcpy(in, fixture_path(fixture, "in.jsonl"));
    strcpy(dir, fixture_path(fixture, "out"));
    return many_spec(inputs, dir);
}

static void expect_between(struct data_fixture *fixture, const char *dir)
{
    struct token_source *source = NULL;
    struct tokenizer *tokenizer = NULL;
    const struct token_source_spec spec = {.folder = dir, .split = TOKEN_TRAIN};
    ck_assert_int_eq(token_source_open(fixture->mem, &spec, &source), GT_DATA);
    FIXTURE_SAYS(fixture, "out: gpt-prepare was stopped while it replaced this data set; give its command again");
    ck_assert_int_eq(tokenizer_open_dataset(fixture->mem, dir, &tokenizer), GT_DATA);
    ck_assert_int_eq(prepared_folder_check(fixture->folder), GT_OK);
}

/* A rename fails half way: the next run only completes the commit; other options are refused, and so is training. */
TEST(prepare_commit_is_taken_up)
{
    struct data_fixture fixture;
    struct prepare_result result, again;
    char in[512], dir[512], blocker[512];
    size_t count = 0;
    const char *inputs[1] = {in};
    struct prepare_spec spec = many_open(&fixture, in, dir, inputs);
    ck_assert_int_eq(prepare_run(fixture.mem, &spec, &result), GT_OK);
    ck_assert(result.documents.document_count == 6 && result.counts.duplicates == 1 && !result.resumed);
    ck_assert_int_gt(result.vocab_size, 257);
    ck_assert_int_eq(access(fixture_path(&fixture, "out/train_000002.bin"), F_OK), 0);
    char *manifest = fixture_read(&fixture, "out/manifest.json", &count);
    ck_assert_int_eq(unlink(fixture_path(&fixture, "out/val_000001.bin")), 0);
    fixture_make_folder(&fixture, "out/val_000001.bin");
    strcpy(blocker, fixture_path(&fixture, "out/val_000001.bin/x"));
    fixture_write_text(&fixture, "out/val_000001.bin/x", "");
    ck_assert_int_eq(prepare_run(fixture.mem, &spec, &again), GT_IO);
    ck_assert_int_ne(access(fixture_path(&fixture, "out/manifest.json"), F_OK), 0);
    ck_assert_int_eq(access(fixture_path(&fixture, "out/.gpt-prepare.state"), F_OK), 0);
    expect_between(&fixture, dir);
    spec.seed = 3;
    ck_assert_int_eq(prepare_run(fixture.mem, &spec, &again), GT_USAGE);
    FIXTURE_SAYS(&fixture, "--seed 0, now 3");
    spec.seed = 0;
    ck_assert_int_eq(unlink(blocker), 0);
    ck_assert_int_eq(rmdir(fixture_path(&fixture, "out/val_000001.bin")), 0);
    ck_assert_int_eq(prepare_run(fixture.mem, &spec, &again), GT_OK);
    ck_assert(again.resumed && again.train_tokens == result.train_tokens && again.val_tokens == result.val_tokens);
    ck_assert(again.documents.document_count == 6 && again.counts.duplicates == 1 &&
              again.vocab_size == result.vocab_size);
    char *second = fixture_read(&fixture, "out/manifest.json", &count);
    ck_assert_str_eq(manifest, second);
    ck_assert_int_eq(prepared_folder_check(dir), GT_OK);
    ck_assert_int_ne(access(fixture_path(&fixture, "out/.gpt-prepare.state"), F_OK), 0);
    free(second);
    free(manifest);
    fixture_close(&fixture);
}

/* With any bit of the old manifest flipped, either all files of the old data set are removed, or it is an error and all
 * stay. */
TEST(prepare_damaged_manifest)
{
    struct data_fixture fixture;
    struct prepare_result result;
    char in[512], dir[512], command[2048];
    size_t count = 0, refusals = 0;
    const char *inputs[1] = {in};
    struct prepare_spec spec = many_open(&fixture, in, dir, inputs);
    ck_assert_int_eq(prepare_run(fixture.mem, &spec, &result), GT_OK);
    ck_assert_int_eq(access(fixture_path(&fixture, "out/merges.txt"), F_OK), 0);
    spec.tokenizer = TOKENIZER_BYTES;
    snprintf(command, sizeof command, "mv '%s' '%s/kept'", dir, fixture.folder);
    ck_assert_int_eq(system(command), 0);
    char *manifest = fixture_read(&fixture, "kept/manifest.json", &count);
    const size_t list = (size_t)(strstr(manifest, "\"tokenizer_files\"") - manifest);
    snprintf(command, sizeof command, "rm -rf '%s' && cp -R '%s/kept' '%s'", dir, fixture.folder, dir);
    for (size_t bit = 0; bit < 8 * (list + 120); bit += bit < 8 * list ? 61 : 11) {
        ck_assert_int_eq(system(command), 0);
        manifest[bit / 8] ^= (char)(1 << bit % 8);
        fixture_write(&fixture, "out/manifest.json", manifest, count);
        manifest[bit / 8] ^= (char)(1 << bit % 8);
        const enum gt_status status = prepare_run(fixture.mem, &spec, &result);
        refusals += status == GT_DATA;
        ck_assert_msg(status == GT_OK || status == GT_DATA, "bit %zu: %d", bit, status);
        ck_assert_msg((access(fixture_path(&fixture, "out/merges.txt"), F_OK) == 0) == (status == GT_DATA),
                      "bit %zu of the manifest, %zu of %s: status %d", bit, bit % 8, manifest + bit / 8, status);
    }
    ck_assert_uint_gt(refusals, 10);
    free(manifest);
    fixture_close(&fixture);
}

/* A new run that fails early in the same folder leaves no half of a data set without the state that marks it. */
TEST(prepare_half_commit_goes_with_its_state)
{
    struct data_fixture fixture;
    struct prepare_result result;
    char in[512], dir[512];
    const char *inputs[1] = {in};
    struct prepare_spec spec = many_open(&fixture, in, dir, inputs);
    fixture_make_folder(&fixture, "out");
    fixture_make_folder(&fixture, "out/val_000001.bin");
    fixture_write_text(&fixture, "out/val_000001.bin/x", "");
    ck_assert_int_eq(prepare_run(fixture.mem, &spec, &result), GT_IO);
    ck_assert_int_eq(access(fixture_path(&fixture, "out/train_000001.bin"), F_OK), 0);
    expect_between(&fixture, dir);
    fixture_write_text(&fixture, "in.jsonl", "no JSON\n");
    spec.restart = true;
    ck_assert_int_eq(prepare_run(fixture.mem, &spec, &result), GT_DATA);
    ck_assert_int_ne(access(fixture_path(&fixture, "out/.gpt-prepare.state"), F_OK), 0);
    ck_assert_int_ne(access(fixture_path(&fixture, "out/train_000001.bin"), F_OK), 0);
    fixture_close(&fixture);
}

/* A commit that has renamed and removed nothing leaves the old data set, with or without a manifest, to the next new
 * run. */
TEST(prepare_announced_commit_takes_nothing)
{
    struct data_fixture fixture;
    struct prepare_result result;
    char in[512], dir[512];
    size_t count;
    const char *inputs[1] = {in};
    struct prepare_spec spec = many_open(&fixture, in, dir, inputs);
    fixture_make_folder(&fixture, "out");
    fixture_make_folder(&fixture, "out/train_000001.bin");
    fixture_write_text(&fixture, "out/train_000001.bin/x", "");
    fixture_write_text(&fixture, "out/val_000001.bin", "old");
    ck_assert_int_eq(prepare_run(fixture.mem, &spec, &result), GT_IO);
    expect_between(&fixture, dir);
    fixture_write_text(&fixture, "in.jsonl", "no JSON\n");
    spec.restart = true;
    ck_assert_int_eq(prepare_run(fixture.mem, &spec, &result), GT_DATA);
    ck_assert_int_ne(access(fixture_path(&fixture, "out/.gpt-prepare.state"), F_OK), 0);
    char *old = fixture_read(&fixture, "out/val_000001.bin", &count);
    ck_assert(count == 3 && memcmp(old, "old", 3) == 0);
    free(old);
    fixture_close(&fixture);
}

/* For any state, no name in it is followed out of the folder. */
TEST(prepare_state_names_stay_inside)
{
    struct data_fixture fixture;
    struct prepare_result result;
    char in[512], dir[512], command[2048];
    fixture_open(&fixture);
    fixture_write_text(&fixture, "in.jsonl", many_lines);
    fixture_write_text(&fixture, "precious.bin", "mine");
    strcpy(in, fixture_path(&fixture, "in.jsonl"));
    strcpy(dir, fixture_path(&fixture, "out"));
    const char *inputs[1] = {in};
    struct prepare_spec spec = many_spec(inputs, dir);
    fixture_make_folder(&fixture, "out");
    fixture_make_folder(&fixture, "out/val_000001.bin");
    fixture_write_text(&fixture, "out/val_000001.bin/x", "");
    ck_assert_int_eq(prepare_run(fixture.mem, &spec, &result), GT_IO);
    static const char *const edits[] = {"s/\"commit\": \\[/\"commit\": [[\"..\\/precious.bin\"],/",
                                        "s/\"commit\": \\[/\"commit\": [[\"precious.bin\"],/",
                                        "s/\"train_000001.bin\"/\"..\\/precious.bin\"/",
                                        "s/\"manifest.json\"/\"..\\/precious.bin\"/"};
    snprintf(command, sizeof command, "cp -R '%s' '%s/kept'", dir, fixture.folder);
    ck_assert_int_eq(system(command), 0);
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        snprintf(command, sizeof command,
                 "cd '%s' && rm -rf out && cp -R kept out && rm -r out/val_000001.bin && "
                 "sed '%s' kept/.gpt-prepare.state >out/.gpt-prepare.state && "
                 "! cmp -s kept/.gpt-prepare.state out/.gpt-prepare.state",
                 fixture.folder, edits[i]);
        ck_assert_msg(system(command) == 0, "edit %zu changed nothing", i);
        ck_assert_int_eq(prepare_run(fixture.mem, &spec, &result), GT_DATA);
        FIXTURE_SAYS(&fixture, "field \"commit\" is damaged");
        ck_assert_int_eq(access(fixture_path(&fixture, "precious.bin"), F_OK), 0);
    }
    fixture_close(&fixture);
}

TEST(prepare_many_survives_failed_allocations)
{
    struct data_fixture fixture;
    struct prepare_result result;
    enum gt_status status = GT_NO_MEMORY;
    size_t n = 0;
    char in[512], dir[512];
    fixture_open(&fixture);
    fixture_write_text(&fixture, "in.jsonl", many_lines);
    strcpy(in, fixture_path(&fixture, "in.jsonl"));
    strcpy(dir, fixture_path(&fixture, "out"));
    const char *inputs[1] = {in};
    const struct prepare_spec spec = many_spec(inputs, dir);
    while (status == GT_NO_MEMORY && n < 200) {
        hostmem_fail_at(fixture.mem, ++n);
        status = prepare_run(fixture.mem, &spec, &result);
        if (status != GT_OK)
            ck_assert_int_ne(access(fixture_path(&fixture, "out"), F_OK), 0);
    }
    hostmem_fail_at(fixture.mem, 0);
    ck_assert_int_eq(status, GT_OK);
    ck_assert_uint_gt(n, 30);
    fixture_close(&fixture);
}

/* The numbers that nanoGPT's data/shakespeare_char/prepare.py prints. */
TEST(prepare_tinyshakespeare_matches_nanogpt)
{
    struct data_fixture fixture;
    struct prepare_result result;
    char path[1024], dir[512];
    const char *folder = getenv("TINYSHAKESPEARE_DIR"), *top = getenv("top_srcdir");
    if (folder != NULL)
        snprintf(path, sizeof path, "%s/input.txt", folder);
    else
        snprintf(path, sizeof path, "%s/../shared/data/tinyshakespeare/input.txt", top != NULL ? top : ".");
    if (access(path, R_OK) != 0) {
        unit_skip("prepare_tinyshakespeare_matches_nanogpt", "no tinyshakespeare; set TINYSHAKESPEARE_DIR");
        return;
    }
    fixture_open(&fixture);
    strcpy(dir, fixture_path(&fixture, "out"));
    const char *inputs[1] = {path};
    const struct prepare_spec spec = {
        .inputs = inputs, .input_count = 1, .out_dir = dir, .tokenizer = TOKENIZER_CHARS, .val_fraction = 0.1};
    ck_assert_int_eq(prepare_run(fixture.mem, &spec, &result), GT_OK);
    ck_assert_int_eq(result.train_tokens, 1003854);
    ck_assert_int_eq(result.val_tokens, 111540);
    ck_assert_int_eq(result.vocab_size, 65);
    fixture_close(&fixture);
}
