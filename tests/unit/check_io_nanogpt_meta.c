/* Tests of nanoGPT's meta.pkl: the characters are read with their ids; other tables are refused;
 * failing allocations are handled. */
#include "io/nanogpt.h"

#include "tests/unit/io_case.h"

#define BEGIN "\x80\2}X\4\0\0\0itos}("
#define A "K\0X\1\0\0\0a"
#define SHARP_S "K\1X\2\0\0\0\xc3\x9f"
#define KANJI "M\2\0X\3\0\0\0\xe6\x97\xa5"
#define END "us."
#define META(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }

struct meta {
    const char *text;
    size_t count;
};

static struct tokenizer *tokenizer;

static void setup(void)
{
    io_setup();
    io_path(path, folder, "meta.pkl");
    tokenizer = NULL;
}

static void teardown(void)
{
    hostmem_free(tokenizer);
    io_teardown();
}

static enum gt_status open_meta(const struct meta *meta)
{
    io_file_write(path, meta->text, meta->count);
    return nanogpt_meta_open(mem, path, &tokenizer);
}

TEST_FIXTURE(setup, teardown)

TEST(reads_characters)
{
    static const struct meta good = META(BEGIN A SHARP_S KANJI END);
    ck_assert_int_eq(open_meta(&good), GT_OK);
    ck_assert_int_eq(tokenizer->vocab_size, 3);
    ck_assert_int_eq(tokenizer_id_of(tokenizer, 'a'), 0);
    ck_assert_int_eq(tokenizer_id_of(tokenizer, 0xDF), 1);
    ck_assert_int_eq(tokenizer_id_of(tokenizer, 0x65E5), 2);
}

TEST(refuses_other_tables)
{
    static const struct meta bad[] = {
        META("\x80\2}."),                           /* no itos */
        META("\x80\2K\1."),                         /* not a dict */
        META("\x80\2}X\4\0\0\0itosK\1s."),          /* a number */
        META("\x80\2}X\4\0\0\0itos}s."),            /* empty */
        META(BEGIN SHARP_S A END),                  /* another order */
        META(BEGIN A "K\1X\1\0\0\0a" END),          /* a character twice */
        META(BEGIN A "K\1X\1\0\0\0A" END),          /* characters that descend */
        META(BEGIN A "K\2X\1\0\0\0b" END),          /* a missing id */
        META(BEGIN "K\0X\2\0\0\0ab" END),           /* two characters */
        META(BEGIN "K\0X\0\0\0\0" END),             /* an empty character */
        META(BEGIN "K\0K\1" END),                   /* not a text */
        META(BEGIN "K\0X\3\0\0\0\xed\xa0\x80" END), /* a surrogate */
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_msg(open_meta(&bad[i]) == GT_DATA, "table %zu", i);
        ck_assert_ptr_null(tokenizer);
        ck_assert_ptr_nonnull(strstr(capture.text, "meta.pkl: "));
    }
}
