/* Tests of tables of arrays in other files: every piece of every array, and the arrays that are
 * refused. */
#include "io/safetensors.h"
#include "io/safetensors_table.h"
#include "tests/unit/io_case.h"

enum { ROWS = 5, COLUMNS = 7 };

static struct safetensors *table;
static const int32_t file = 0; /* its only one */

/* 3 unused floats, then [COLUMNS, ROWS] in fp32, then the same in bf16. */
static void setup(void)
{
    io_setup();
    float values[3 + ROWS * COLUMNS];
    uint16_t halves[ROWS * COLUMNS];
    unsigned char bytes[sizeof values + sizeof halves];
    for (int i = 0; i < 3 + ROWS * COLUMNS; i++)
        values[i] = (float)(i - 3);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        halves[i] = bf16_from_f32((float)i);
    memcpy(bytes, values, sizeof values);
    memcpy(bytes + sizeof values, halves, sizeof halves);
    scratch_write(path, bytes, sizeof bytes);
    ck_assert_int_eq(safetensors_create(mem, "a table", &table), GT_OK);
    ck_assert_int_eq(safetensors_file_add(table, path), GT_OK);
}

static void teardown(void)
{
    hostmem_free(table);
    io_teardown();
}

static enum gt_status add(const char *name, enum dtype dtype, int64_t rows, int64_t columns,
                          int32_t where, bool transposed, uint64_t offset)
{
    struct safetensors_tensor tensor = {.dtype = dtype,
                                        .rank = 2,
                                        .dims = {rows, columns},
                                        .file = where,
                                        .transposed = transposed,
                                        .offset_bytes = offset};
    (void)snprintf(tensor.name, sizeof tensor.name, "%s", name);
    return safetensors_add(table, &tensor);
}

TEST_FIXTURE(setup, teardown)

TEST(reads_every_piece)
{
    float out[ROWS * COLUMNS];
    ck_assert_int_eq(add("plain", DTYPE_F32, COLUMNS, ROWS, file, false, 12), GT_OK);
    ck_assert_int_eq(add("turned", DTYPE_F32, ROWS, COLUMNS, file, true, 12), GT_OK);
    ck_assert_int_eq(add("half", DTYPE_BF16, ROWS, COLUMNS, file, true, 12 + 4 * ROWS * COLUMNS),
                     GT_OK);
    ck_assert_int_eq(add("zeros", DTYPE_F32, ROWS, COLUMNS, SAFETENSORS_ZEROS, false, 0), GT_OK);
    for (size_t first = 0; first <= ROWS * COLUMNS; first++) {
        for (size_t count = 0; first + count <= ROWS * COLUMNS; count++) {
            for (size_t index = 0; index < 4; index++) {
                ck_assert_int_eq(safetensors_read(table, index, first, count, out, DTYPE_F32, NULL),
                                 GT_OK);
                for (size_t i = 0; i < count; i++) {
                    const size_t at = first + i, turned = at % COLUMNS * ROWS + at / COLUMNS;
                    const size_t expected[] = {at, turned, turned, 0};
                    ck_assert_float_eq(out[i], (float)expected[index]);
                }
            }
        }
    }
    uint16_t raw[2];
    ck_assert_int_eq(safetensors_read(table, 2, COLUMNS, 2, raw, table->tensors[2].dtype, NULL),
                     GT_OK);
    ck_assert_uint_eq(raw[0], bf16_from_f32(1.0f));
    ck_assert_uint_eq(raw[1], bf16_from_f32((float)(ROWS + 1)));
}

TEST(refuses_what_does_not_fit)
{
    log_capture_refused(&capture, add("a/b", DTYPE_F32, 1, 1, file, false, 0), GT_DATA, "a/b");
    log_capture_refused(&capture, add("..", DTYPE_F32, INT64_MAX, INT64_MAX, file, false, 0),
                        GT_DATA, "64 bits");
    log_capture_refused(&capture, add("long", DTYPE_F32, ROWS, COLUMNS, file, false, 84), GT_DATA,
                        path);
    log_capture_refused(&capture, add("beyond", DTYPE_F32, 1, 1, file, false, UINT64_MAX), GT_DATA,
                        "beyond");
    ck_assert_uint_eq(table->count, 0);
    for (int i = 0; i < SAFETENSORS_TENSORS_MAX; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "%d", i);
        ck_assert_int_eq(add(name, DTYPE_F32, 1, 1, file, false, 0), GT_OK);
    }
    log_capture_refused(&capture, add("7", DTYPE_F32, 1, 1, file, false, 0), GT_DATA, "twice");
    log_capture_refused(&capture, add("e", DTYPE_F32, 1, 1, file, false, 0), GT_DATA,
                        "one too many");
}

TEST(other_dtypes_are_listed_but_not_read)
{
    float out[1];
    ck_assert_int_eq(add("bytes", DTYPE_U8, 1, 1, file, false, 0), GT_OK);
    log_capture_refused(&capture, safetensors_read(table, 0, 0, 1, out, DTYPE_F32, NULL),
                        GT_UNSUPPORTED, "bytes");
}

TEST(a_file_that_shrinks_is_an_error)
{
    float out[2];
    ck_assert_int_eq(add("plain", DTYPE_F32, COLUMNS, ROWS, file, false, 12), GT_OK);
    ck_assert_int_eq(truncate(path, 12), 0);
    log_capture_refused(&capture, safetensors_read(table, 0, 0, 2, out, DTYPE_F32, NULL), GT_DATA,
                        path);
}
