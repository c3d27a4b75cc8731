/* Tests of src/data/token_kind.c: files of 16-bit ids that resemble others are accepted, and others
 * are not. */
#include "data/token_kind.h"

#include <math.h>

#include "base/file.h"
#include "data/tokens.h"
#include "tests/unit/data_fixture.h"

#define COUNT 6000

/* A number from 0 to `end` - 1 that depends on `i`. */
static uint32_t draw(uint32_t i, uint32_t end)
{
    uint64_t x = (i + UINT64_C(1)) * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
    return (uint32_t)((x >> 32) % end);
}

/* An id of text in a byte-pair encoding: small ones are frequent. */
static uint32_t draw_word(uint32_t i)
{
    return draw(i, 3) > 0 ? draw(i, 900) : draw(i, 50257);
}

/* Writes train.bin: `head`, then the ids of `bytes`. */
static enum gt_status open_file(struct data_fixture *fixture, const void *head, size_t head_size,
                                const void *bytes, size_t size, int64_t *out_length)
{
    struct token_source *source = NULL;
    unsigned char *all = malloc(head_size + size + 1);
    const struct token_source_spec spec = {.folder = fixture->folder, .split = TOKEN_TRAIN};
    ck_assert_ptr_nonnull(all);
    memcpy(all, head, head_size);
    memcpy(all + head_size, bytes, size);
    fixture_write(fixture, "train.bin", all, head_size + size);
    free(all);
    const enum gt_status status = token_source_open(fixture->mem, &spec, &source);
    if (status == GT_OK)
        *out_length = source->length;
    hostmem_free(source);
    return status;
}

static void refused(struct data_fixture *fixture, const char *what, const void *bytes, size_t size,
                    const char *said)
{
    int64_t length = 0;
    const size_t lines = log_count(LOG_ERROR);
    ck_assert_msg(open_file(fixture, "", 0, bytes, size, &length) == GT_DATA, "%s was accepted",
                  what);
    ck_assert_uint_eq(log_count(LOG_ERROR), lines + 1);
    ck_assert_msg(strstr(fixture->line, said) != NULL, "%s: %s", what, fixture->line);
}

/* Writes `count` numbers of a type, as NumPy names it. */
static size_t put(unsigned char *out, const char *type, uint32_t (*id)(uint32_t i), uint32_t count)
{
    const size_t width = (size_t)(type[2] - '0');
    for (uint32_t i = 0; i < count; i++) {
        const double real = id(i);
        const float single = (float)real;
        uint64_t bits = id(i);
        if (type[1] == 'f')
            memcpy(&bits, width == 8 ? (const void *)&real : &single, width);
        for (size_t b = 0; b < width; b++)
            out[width * i + (type[0] == '>' ? width - 1 - b : b)] = (unsigned char)(bits >> 8 * b);
    }
    return width * count;
}

static uint32_t of_characters(uint32_t i)
{
    return draw(i, 65);
}
static uint32_t of_digits(uint32_t i)
{
    return draw(i, 10);
}
static uint32_t of_any(uint32_t i)
{
    return draw(i, 50257);
}
static uint32_t of_bases(uint32_t i)
{
    return draw(i, 4);
}
static uint32_t of_large(uint32_t i)
{
    return draw(i, 3) > 0 ? draw(i, 900) : draw(i, 151936);
}
static uint32_t of_padded(uint32_t i)
{
    return i < 3000 ? 0 : draw_word(i);
}

TEST(arrays_of_other_types_are_refused_by_name)
{
    static const struct {
        const char *type, *said, *load;
    } types[] = {{"<i4", "32-bit whole numbers,", "<i4"},
                 {"<i8", "64-bit whole numbers,", "<i8"},
                 {">i4", "32-bit whole numbers, big-endian", ">i4"},
                 {">i8", "64-bit whole numbers, big-endian", ">i8"},
                 {"<f4", "32-bit floating point", "<f4"},
                 {"<f8", "64-bit floating point", "<f8"},
                 {">u2", "16-bit numbers, big-endian", ">u2"},
                 {"<u1", "8-bit numbers", "u1"}};
    uint32_t (*const vocabularies[])(uint32_t) = {of_bases, of_digits, of_characters, draw_word,
                                                  of_any,   of_large,  of_padded};
    static unsigned char bytes[COUNT * 8];
    struct data_fixture fixture;
    fixture_open(&fixture);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (size_t v = 0; v < sizeof vocabularies / sizeof vocabularies[0]; v++) {
            const bool narrow = types[t].type[2] <= '2', byte = types[t].type[2] == '1';
            if ((narrow && (v == 0 || v >= 5)) || (byte && v > 2) ||
                (v == 6 && types[t].type[1] == 'f'))
                continue;
            refused(&fixture, types[t].type, bytes,
                    put(bytes, types[t].type, vocabularies[v], COUNT), types[t].said);
            FIXTURE_SAYS(&fixture, TEXT(64, "np.fromfile(p, \"%s\")", types[t].load));
        }
    fixture_close(&fixture);
}

TEST(arrays_of_real_numbers_are_refused)
{
    static float single[COUNT];
    static double real[COUNT];
    struct data_fixture fixture;
    fixture_open(&fixture);
    for (uint32_t i = 0; i < COUNT; i++) {
        real[i] = (draw(i, 1 << 20) - 524288.0) / 3e6;
        single[i] = (float)real[i];
    }
    refused(&fixture, "float32", single, sizeof single, "an array of real numbers");
    refused(&fixture, "float64", real, sizeof real, "an array of real numbers");
    fixture_close(&fixture);
}

TEST(floating_point_of_16_bits_is_refused)
{
    uint32_t (*const vocabularies[])(uint32_t) = {of_characters, draw_word, of_padded};
    static uint16_t words[COUNT];
    struct data_fixture fixture;
    fixture_open(&fixture);
    for (size_t v = 0; v < 3; v++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            int power = 0;
            const uint32_t id = vocabularies[v](i);
            const double part = frexp(id, &power); /* from 0.5 to 1 */
            const double bits = id == 0 ? 0.0 : (power + 14) * 1024 + floor((part - 0.5) * 2048);
            words[i] = (uint16_t)bits;
        }
        refused(&fixture, "<f2", words, sizeof words, "16-bit floating point, which rounds");
    }
    fixture_close(&fixture);
}

TEST(files_of_other_kinds_are_refused_by_name)
{
    static const struct {
        size_t length;
        const char *head, *said;
    } kinds[] = {
        {44, "version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"},
        {8, "MMIDIDX\0", "index of a Megatron data set"},
        {8, "PAR1\x15\4\x15\x80", "a Parquet file"},
        {12, "\x1f\x8b\x08\x08\x12\x34\x56\x78\2\3tr", "gunzip"},
        {12, "\x1f\x8b\x08\0\0\0\0\0\0\xff\x63\x64", "gunzip"},
        {8, "\3757zXZ\0\0\4", "unxz"},
        {8, "\x28\xb5\x2f\xfd\xa4\0\1\2", "unzstd"},
        {12, "BZh91AY&SY\1\2", "bunzip2"},
        {18, "\x80\4\x95\x10\0\0\0\0\0\0\0\x94\x8c\5numpy", "a Python pickle"},
        {18, "\x80\5\x95\x10\0\0\0\0\0\0\0}\x94\x8c\5vocab", "dictionary"},
        {18, "\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\2M", "torch.save()"},
        {42, "PK\3\4\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0b\0\0\0ar/data.pklX",
         "torch.save()"},
        {42, "PK\3\4\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0b\0\0\0ids_x_0.npyX",
         "np.load(p)"},
        {42, "PK\3\4\x14\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0b\0\0\0train_x.txtX",
         "unzip"},
        {24, "\x20\0\0\0\0\0\0\0{\"__metadata__\":", "safetensors"},
        {10, "\x93NUMPY\1\0\x10\0", "np.load(p)"},
        {8, "\xcb\x99\x9f\x10\1\0\0", "NeMo token file whose ids have neither"},
        {8, "\x01\x34\xd8\x88\0\0\0\1", "np.fromfile(p, \">u2\")[512:]"},
        {8, "\x01\x34\xd9\xa1\0\0\0\7", "np.fromfile(p, \">i4\")[256:]"},
        {12, "\xff\xff\xff\xff\xf8\0\0\0\x10\0\0", "a stream of Arrow"},
        {28, "BIN.TOK\n\2\0\0\0\4\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0", "llmq with a mask"},
    };
    static uint16_t rest[COUNT];
    struct data_fixture fixture;
    int64_t length = 0;
    fixture_open(&fixture);
    put((unsigned char *)rest, "<u2", of_any, COUNT);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        ck_assert_msg(open_file(&fixture, kinds[i].head, kinds[i].length, rest, sizeof rest,
                                &length) == GT_DATA,
                      "%s was accepted", kinds[i].said);
        FIXTURE_SAYS(&fixture, kinds[i].said);
        FIXTURE_SAYS(&fixture, "not 16-bit token ids");
    }
    fixture_close(&fixture);
}

TEST(texts_are_refused_by_name)
{
    static const char sentence[] =
        "A quick brown fox: \xc3\xa9\xe4\xb8\xad jumps over the lazy dog, again!\r\n";
    static const char *const begins[][2] = {{"", "gpt-prepare --out-dir"},
                                            {"\xef\xbb\xbf", "gpt-prepare --out-dir"},
                                            {"{\"text\": \"", "--format=jsonl"},
                                            {"\n<!DOCTYPE html>", "web page"},
                                            {"<HTML>\n", "web page"},
                                            {"<?xml version", "web page"}};
    struct data_fixture fixture;
    char text[9000];
    fixture_open(&fixture);
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++) {
        size_t used = (size_t)snprintf(text, sizeof text, "%s", begins[i][0]);
        while (used < 8000)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s", sentence);
        refused(&fixture, begins[i][0], text, used, begins[i][1]);
        refused(&fixture, begins[i][0], text, used / 2 * 2, begins[i][1]);
        refused(&fixture, begins[i][0], text, 4001, begins[i][1]);
        refused(&fixture, begins[i][0], text, 84, begins[i][1]);
    }
    refused(&fixture, "a short answer", "Entry not found", 15, "text");
    for (size_t i = 0; i < 4000; i++)
        memcpy(text + 2 * i, (char[2]){sentence[i % 18], 0}, 2);
    memcpy(text, "\xff\xfe", 2);
    refused(&fixture, "UTF-16", text, 8000, "UTF-16");
    fixture_close(&fixture);
}

/* 300 ids, and -1 in 16 bits. */
static uint32_t with_gaps(uint32_t i)
{
    return i % 50 == 0 ? UINT16_MAX : draw(i, 300);
}

static uint32_t half_filled(uint32_t i)
{
    return i < COUNT / 2 ? draw(i, 300) : 0;
}

static uint32_t nothing(uint32_t i)
{
    (void)i;
    return 0;
}

TEST(files_with_gaps_and_files_that_were_not_filled)
{
    struct data_fixture fixture;
    static unsigned char bytes[COUNT * 2];
    int64_t length = 0;
    fixture_open(&fixture);
    size_t size = put(bytes, "<u2", with_gaps, COUNT);
    ck_assert_int_eq(open_file(&fixture, "", 0, bytes, size, &length), GT_OK);
    ck_assert_uint_eq(log_count(LOG_WARNING), 0);
    size = put(bytes, "<u2", half_filled, COUNT);
    ck_assert_int_eq(open_file(&fixture, "", 0, bytes, size, &length), GT_OK);
    ck_assert_uint_eq(log_count(LOG_WARNING), 1);
    FIXTURE_SAYS(&fixture, "the last 2048 ids or more are 0");
    size = put(bytes, "<u2", nothing, COUNT);
    refused(&fixture, "zeros", bytes, size, "did not fill it");
    fixture_close(&fixture);
}

/* Opens a file of 1,000 ids below 900, in a format with a header, and compares what is read. */
static void is_read(struct data_fixture *fixture, const char *what, const void *head,
                    size_t head_size, const char *type)
{
    unsigned char bytes[4000];
    struct token_source *source = NULL;
    int64_t length = 0;
    int32_t ids[1000];
    const struct token_source_spec spec = {.folder = fixture->folder, .split = TOKEN_TRAIN};
    const size_t size = put(bytes, type, of_characters, 1000);
    const enum gt_status status = open_file(fixture, head, head_size, bytes, size, &length);
    ck_assert_msg(status == GT_OK && length == 1000, "%s: %s", what, fixture->line);
    ck_assert_int_eq(token_source_open(fixture->mem, &spec, &source), GT_OK);
    ck_assert_int_eq(token_source_read(source, 0, 1000, ids), GT_OK);
    for (uint32_t i = 0; i < 1000; i++)
        ck_assert_int_eq(ids[i], (int32_t)of_characters(i));
    hostmem_free(source);
    ck_assert_int_eq(open_file(fixture, head, head_size, bytes, size - 8, &length), GT_DATA);
    FIXTURE_SAYS(fixture, "1000 ids");
}

TEST(known_headers_are_read)
{
    char head[1024] = "BIN.TOK\n";
    struct data_fixture fixture;
    fixture_open(&fixture);
    for (uint32_t version = 1; version <= 2; version++) {
        const uint32_t fields[] = {version, 4, 1000, 65, 0};
        memcpy(head + 8, fields, sizeof fields);
        is_read(&fixture, "llmq", head, sizeof head, "<u4");
    }
    for (uint32_t width = 2; width <= 4; width += 2) {
        const uint32_t fields[] = {278895051, 1, 1000, width, 0};
        memcpy(head, fields, sizeof fields);
        is_read(&fixture, "NeMo", head, sizeof head, width == 2 ? "<u2" : "<u4");
    }
    for (int code = 4; code <= 8; code += 4) {
        memcpy(head, "LITPKDS\1\0\0\0\0\0\0\0", 15);
        head[15] = (char)code;
        memcpy(head + 16, "\xe8\3\0\0\0\0\0\0", 8);
        is_read(&fixture, "lit-gpt", head, 24, code == 4 ? "<u4" : "<u2");
    }
    for (int version = 1; version <= 2; version++) {
        static const char *const types[] = {"<u2", "<u4", "<i4"};
        for (size_t i = 0; i < 3; i++) {
            const int begin = version == 1 ? 10 : 12;
            memset(head, 0, sizeof head);
            memcpy(head, "\x93NUMPY", 6);
            head[6] = (char)version;
            head[8] = (char)(128 - begin);
            snprintf(
                head + begin, sizeof head - 12, "%-*s\n", 127 - begin,
                TEXT(64, "{'descr': '%s', 'fortran_order': False, 'shape': (1000,), }", types[i]));
            is_read(&fixture, "npy", head, 128, types[i]);
        }
    }
    fixture_close(&fixture);
}
