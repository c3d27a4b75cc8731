/* Tests of reading safetensors: accepted and refused files, by tables, by every flipped bit and by
 * every truncation. */
#include "io/safetensors.h"

#include "base/crc32c.h"
#include "io/safetensors_table.h"
#include "tests/unit/io_case.h"

#define GOOD                                                                    \
    "{\"__metadata__\":{\"format\":\"pt\"},"                                    \
    "\"b.weight\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[16,22]}," \
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"        \
    "\"c\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[22,24]},"          \
    "\"d\":{\"dtype\":\"I64\",\"shape\":[0,9],\"data_offsets\":[24,24]}}  "
#define GOOD_DATA 24

TEST_FIXTURE(io_setup, io_teardown)

TEST(reads_what_is_there)
{
    struct safetensors *file;
    float values[4];
    size_t index;
    io_safetensors_write(path, GOOD, GOOD_DATA);
    const float a[4] = {1.0f, -2.5f, 3e-40f, 7.0f};
    const uint16_t b[3] = {bf16_from_f32(1.5f), bf16_from_f32(-3.0f), bf16_from_f32(0.0f)},
                   c = f16_from_f32(0.1f);
    const int fd = open(path, O_RDWR);
    const off_t at = (off_t)(8 + strlen(GOOD));
    ck_assert_int_eq(pwrite(fd, a, sizeof a, at), sizeof a);
    ck_assert_int_eq(pwrite(fd, b, sizeof b, at + 16), sizeof b);
    ck_assert_int_eq(pwrite(fd, &c, sizeof c, at + 22), sizeof c);
    (void)close(fd);

    ck_assert_int_eq(safetensors_open(mem, path, true, &file), GT_OK);
    ck_assert_uint_eq(file->count, 4);
    ck_assert(safetensors_find(file, "a", &index));
    ck_assert_uint_eq(file->tensors[0].offset_bytes, (uint64_t)at);
    ck_assert_uint_eq(index, 0); /* the order of the data, not of the header */
    ck_assert_int_eq(file->tensors[0].rank, 2);
    ck_assert_int_eq(file->tensors[0].dims[1], 2);
    uint32_t crc = 0;
    ck_assert_int_eq(safetensors_read(file, 0, 0, 1, values, DTYPE_F32, &crc), GT_OK);
    ck_assert_int_eq(safetensors_read(file, 0, 1, 3, values + 1, DTYPE_F32, &crc), GT_OK);
    ck_assert_mem_eq(values, a, sizeof a);
    ck_assert_uint_eq(crc, file_crc32c(0, a, sizeof a));
    ck_assert(safetensors_find(file, "b.weight", &index));
    crc = 0;
    ck_assert_int_eq(safetensors_read(file, index, 0, 3, values, DTYPE_F32, &crc), GT_OK);
    ck_assert_float_eq(values[0], 1.5f);
    ck_assert_float_eq(values[1], -3.0f);
    ck_assert_uint_eq(crc, file_crc32c(0, b, sizeof b));
    ck_assert(safetensors_find(file, "c", &index));
    ck_assert_uint_eq(file->tensors[index].elements, 1);
    ck_assert_int_eq(safetensors_read(file, index, 0, 1, values, DTYPE_F32, NULL), GT_OK);
    ck_assert_float_eq(values[0], f16_to_f32(c));
    ck_assert(!safetensors_find(file, "e", &index));
    ck_assert_int_eq(capture.lines, 0);
    ck_assert(safetensors_find(file, "d", &index));
    log_capture_refused(&capture, safetensors_read(file, index, 0, 0, values, DTYPE_F32, NULL),
                        GT_UNSUPPORTED, "tensor d");
    hostmem_free(file);
}

/* More 16-bit values than one conversion handles, from an odd start. */
TEST(converts_long_tensors)
{
    enum { COUNT = 10001 };
    static uint16_t bits[COUNT];
    static float values[COUNT];
    struct safetensors *file;
    char header[128];
    (void)snprintf(header, sizeof header,
                   "{\"t\":{\"dtype\":\"BF16\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", COUNT,
                   2 * COUNT);
    io_safetensors_write(path, header, sizeof bits);
    for (int i = 0; i < COUNT; i++)
        bits[i] = bf16_from_f32((float)i * 0.25f);
    const int fd = open(path, O_RDWR);
    ck_assert_int_eq(pwrite(fd, bits, sizeof bits, (off_t)(8 + strlen(header))), sizeof bits);
    (void)close(fd);
    ck_assert_int_eq(safetensors_open(mem, path, true, &file), GT_OK);
    ck_assert_int_eq(safetensors_read(file, 0, 3, COUNT - 3, values, DTYPE_F32, NULL), GT_OK);
    for (int i = 0; i < COUNT - 3; i++)
        ck_assert_float_eq(values[i], bf16_to_f32(bits[i + 3]));
    hostmem_free(file);
}

#define ENTRY(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *header;
    size_t data_bytes;
    const char *words; /* part of the one line that is logged */
} refused[] = {
    {" {}", 0, "begin with"},
    {"{]", 0, "not valid JSON"},
    {"{} x", 0, "not valid JSON"},
    {"{}", 4, "end at byte 0"},
    {"{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("a", "F32", "[1]", "[4,8]") "}", 8,
     "duplicate"},
    {"{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("b", "F32", "[1]", "[0,4]") "}", 4,
     "tensor b: begins"},
    {"{" ENTRY("a", "F32", "[2]", "[0,8]") "," ENTRY("b", "F32", "[2]", "[4,12]") "}", 12,
     "tensor b: begins"},
    {"{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("b", "F32", "[1]", "[8,12]") "}", 12,
     "tensor b: begins"},
    {"{" ENTRY("a", "F32", "[1]", "[4,8]") "}", 8, "tensor a: begins"},
    {"{" ENTRY("a", "F32", "[1]", "[0,4]") "}", 5, "the file ends at 5"},
    {"{" ENTRY("a", "F32", "[2]", "[0,8]") "}", 4, "is outside"},
    {"{" ENTRY("a", "F32", "[1]", "[4,0]") "}", 4, "is outside"},
    {"{" ENTRY("a", "F32", "[1]", "[0,3]") "}", 3, "3 bytes, but dtype"},
    {"{" ENTRY("a", "F32", "[2]", "[0,4]") "}", 4, "4 bytes, but dtype"},
    {"{" ENTRY("a", "F32", "[1]", "[0,8]") "}", 8, "8 bytes, but dtype"},
    {"{" ENTRY("a", "F32", "[-1]", "[0,4]") "}", 4, "\"shape\": item 0"},
    {"{" ENTRY("a", "F32", "[1.0]", "[0,4]") "}", 4, "\"shape\": item 0"},
    {"{" ENTRY("a", "F32", "[1]", "[-4,0]") "}", 4, "\"data_offsets\": item 0"},
    {"{" ENTRY("a", "F32", "[1]", "[0,true]") "}", 4, "\"data_offsets\": item 1"},
    {"{" ENTRY("a", "F32", "[1]", "[0,4,8]") "}", 4, "list of two"},
    {"{" ENTRY("a", "F32", "[1]", "{}") "}", 4, "list of two"},
    {"{" ENTRY("a", "F32", "7", "[0,4]") "}", 4, "\"shape\""},
    {"{" ENTRY("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "at most 8"},
    {"{" ENTRY("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "64 bits"},
    {"{" ENTRY("a", "F32", "[4611686018427387904]", "[0,0]") "}", 0, "0 bytes, but dtype"},
    {"{" ENTRY("a", "F32", "[9223372036854775808]", "[0,4]") "}", 4, "not valid JSON"},
    {"{" ENTRY("a", "F33", "[1]", "[0,4]") "}", 4, "\"F33\""},
    {"{" ENTRY("a", "float32", "[1]", "[0,4]") "}", 4, "\"float32\""},
    {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "\"dtype\""},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "expected an object of"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"offsets\":[0,4]}}", 4, "\"data_offsets\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
     "expected an object of"},
    {"{\"a\":[]}", 4, "tensor a"},
    {"{\"__metadata__\":{\"format\":1}}", 0, "__metadata__"},
    {"{\"__metadata__\":[]}", 0, "__metadata__"},
    {"{" ENTRY("", "F32", "[1]", "[0,4]") "}", 4, "tensor name \"\""},
    {"{" ENTRY("../x", "F32", "[1]", "[0,4]") "}", 4, "tensor name"},
    {"{" ENTRY("a/b", "F32", "[1]", "[0,4]") "}", 4, "tensor name"},
    {"{" ENTRY("a b", "F32", "[1]", "[0,4]") "}", 4, "tensor name"},
    {"{" ENTRY("a\\u001b[2J", "F32", "[1]", "[0,4]") "}", 4, "tensor name"},
    {"{" ENTRY("a\\u0000b", "F32", "[1]", "[0,4]") "}", 4, "not valid JSON"},
    {"{" ENTRY("a\nb", "F32", "[1]", "[0,4]") "}", 4, "not valid JSON"},
    {"{" ENTRY("\xc3\xa9", "F32", "[1]", "[0,4]") "}", 4, "tensor name"},
    {"{" ENTRY("\xff", "F32", "[1]", "[0,4]") "}", 4, "not valid JSON"},
};

TEST(refuses_bad_headers)
{
    struct safetensors *file = NULL;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        io_safetensors_write(path, refused[i].header, refused[i].data_bytes);
        enum gt_status status = safetensors_open(mem, path, true, &file);
        ck_assert_msg(status == GT_DATA, "case %zu: %s: %s", i, status_name(status),
                      refused[i].header);
        ck_assert_msg(strstr(capture.text, path) != NULL, "no path in: %s", capture.text);
        for (const char *c = capture.text; *c != '\0'; c++)
            ck_assert_msg((unsigned char)*c >= 32, "case %zu: a control character reached the log",
                          i);
        log_capture_one_error(&capture, refused[i].words);
    }
    ck_assert_ptr_null(file);
}

/* Files that claim more than they contain; none may cause an allocation of the claimed size. */
TEST(refuses_bad_lengths)
{
    static const unsigned char cases[][12] = {
        {0}, /* header length 0 */
        {1, 0, 0, 0, 0, 0, 0, 0, '{'},
        {5, 0, 0, 0, 0, 0, 0, 0, '{', '}', ' ', ' '},
        {255, 255, 255, 255, 255, 255, 255, 255, '{', '}'},
        {0, 0, 0, 0, 0, 0, 0, 128, '{', '}'},
    };
    struct safetensors *file;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scratch_write(path, cases[i], sizeof cases[i]);
        log_capture_refused(&capture, safetensors_open(mem, path, true, &file), GT_DATA,
                            "header length");
    }
    for (size_t count = 0; count < 8; count++) {
        scratch_write(path, cases[0], count);
        log_capture_refused(&capture, safetensors_open(mem, path, true, &file), GT_DATA,
                            "too short");
    }
    scratch_write(path, "<!DOCTYPE html>", 15);
    log_capture_refused(&capture, safetensors_open(mem, path, true, &file), GT_DATA, "a web page");
    struct hostmem_counters counters;
    hostmem_counters_get(mem, &counters);
    ck_assert_uint_lt(counters.live_bytes_max, 65536);
}

TEST(refuses_pickles)
{
    static const char zip[] = "PK\3\4\0\0\10\10\0\0\0\0archive/data.pkl",
                      pickle[] = "\x80\2}q\0(X\6\0\0\0";
    struct safetensors *file;
    scratch_write(path, zip, sizeof zip);
    log_capture_refused(&capture, safetensors_open(mem, path, true, &file), GT_UNSUPPORTED,
                        "pickle");
    scratch_write(path, pickle, sizeof pickle);
    log_capture_refused(&capture, safetensors_open(mem, path, true, &file), GT_UNSUPPORTED,
                        "pickle");
}

TEST(writes_shapes)
{
    char text[SAFETENSORS_SHAPE_TEXT_MAX];
    const int64_t dims[SAFETENSORS_RANK_MAX] = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX,
                                                INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
    const int64_t two[2] = {768, 2304};
    ck_assert_str_eq(safetensors_shape_text(text, two, 2), "[768,2304]");
    ck_assert_str_eq(safetensors_shape_text(text, two, 0), "[]");
    ck_assert_uint_eq(strlen(safetensors_shape_text(text, dims, SAFETENSORS_RANK_MAX)), 8 * 20 + 1);
}
