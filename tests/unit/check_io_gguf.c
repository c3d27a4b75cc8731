/* Tests of the parts of a GGUF file: bytes against hand-made ones, counting against writing, and failures that
 * persist. */
#include "io/gguf.h"

#include "tests/unit/io_fixture.h"

static char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
static struct file_replacement file;
static struct gguf gguf;

static void setup(void)
{
    io_folder_make(folder);
    io_path(path, folder, "file");
    ck_assert_int_eq(file_replacement_begin(&file, path), GT_OK);
    gguf = (struct gguf){.file = &file};
}

static void teardown(void)
{
    io_folder_remove(folder);
}

static void finish(const void *expected, size_t count)
{
    size_t found_count;
    ck_assert_int_eq(gguf_flush(&gguf), GT_OK);
    ck_assert_int_eq(file_replacement_commit(&file), GT_OK);
    char *found = io_file_read(path, &found_count);
    ck_assert_uint_eq(gguf.size_bytes, found_count);
    ck_assert_uint_eq(found_count, count);
    ck_assert_mem_eq(found, expected, count);
    free(found);
}

START_TEST(writes_keys)
{
    static const char expected[] = "\x01\0\0\0\0\0\0\0"
                                   "a\x04\0\0\0\xef\xbe\xad\xde"
                                   "\x02\0\0\0\0\0\0\0"
                                   "bc\x06\0\0\0\0\0\x80?"
                                   "\x01\0\0\0\0\0\0\0"
                                   "d\x07\0\0\0\x01"
                                   "\x01\0\0\0\0\0\0\0"
                                   "e\x08\0\0\0\x03\0\0\0\0\0\0\0xyz"
                                   "\x01\0\0\0\0\0\0\0"
                                   "f\x09\0\0\0\x05\0\0\0\x02\0\0\0\0\0\0\0\x07\0\0\0\x08\0\0\0";
    gguf_key_u32(&gguf, "a", 0xDEADBEEF);
    gguf_key_f32(&gguf, "bc", 1.0f);
    gguf_key_bool(&gguf, "d", true);
    gguf_key_string(&gguf, "e", "xyz");
    gguf_key_array(&gguf, "f", GGUF_INT32, 2);
    gguf_u32(&gguf, 7);
    gguf_u32(&gguf, 8);
    ck_assert_uint_eq(gguf.keys, 5);
    finish(expected, sizeof expected - 1);
}
END_TEST

START_TEST(pads_to_the_alignment)
{
    char expected[2 * GGUF_ALIGNMENT] = "A";
    expected[GGUF_ALIGNMENT] = 'B';
    gguf_align(&gguf);
    ck_assert_uint_eq(gguf.size_bytes, 0);
    gguf_bytes(&gguf, "A", 1);
    gguf_align(&gguf);
    gguf_align(&gguf);
    gguf_bytes(&gguf, "B", 1);
    gguf_align(&gguf);
    finish(expected, sizeof expected);
}
END_TEST

/* Writes more than the buffer, in pieces that do not divide it. */
START_TEST(gathers_and_hands_over)
{
    static char expected[7 * 10000];
    for (size_t i = 0; i < sizeof expected; i++)
        expected[i] = (char)(i * 31 % 251);
    for (size_t i = 0; i < sizeof expected; i += 7)
        gguf_bytes(&gguf, expected + i, 7);
    finish(expected, sizeof expected);
}
END_TEST

START_TEST(counts_without_a_file)
{
    file_replacement_abort(&file);
    gguf.file = NULL;
    gguf_key_string(&gguf, "general.architecture", "gpt2");
    gguf_key_u32(&gguf, "a", 1);
    ck_assert_uint_eq(gguf.keys, 2);
    ck_assert_uint_eq(gguf.size_bytes, 8 + 20 + 4 + 8 + 4 + 8 + 1 + 4 + 4);
    ck_assert_int_eq(gguf_flush(&gguf), GT_OK);
}
END_TEST

START_TEST(keeps_the_first_failure)
{
    struct log_capture capture;
    const int fd = file.fd;
    file.fd = open("/dev/null", O_RDONLY); /* writing fails */
    log_capture_begin(&capture);
    gguf_bytes(&gguf, "A", 1);
    ck_assert_int_eq(gguf_flush(&gguf), GT_IO);
    gguf_bytes(&gguf, "B", 1);
    ck_assert_int_eq(gguf_flush(&gguf), GT_IO);
    log_capture_end();
    log_capture_one_error(&capture, "cannot write");
    (void)close(file.fd);
    file.fd = fd;
    file_replacement_abort(&file);
}
END_TEST

START_TEST(numbers_of_dtypes)
{
    file_replacement_abort(&file);
    ck_assert_uint_eq(gguf_tensor_type(DTYPE_F32), 0);
    ck_assert_uint_eq(gguf_tensor_type(DTYPE_F16), 1);
    ck_assert_uint_eq(gguf_tensor_type(DTYPE_BF16), 30);
    ck_assert_uint_eq(gguf_file_type(DTYPE_BF16), 32);
}
END_TEST

UNIT_TESTS_WITH(io_gguf, setup, teardown, writes_keys, pads_to_the_alignment, gathers_and_hands_over,
                counts_without_a_file, keeps_the_first_failure, numbers_of_dtypes)
