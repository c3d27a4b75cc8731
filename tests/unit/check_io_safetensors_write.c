/* Tests of writing safetensors: exact bytes, checksums, and that a failure leaves the old file. */
#include <signal.h>
#include <sys/resource.h>

#include "base/crc32c.h"
#include "io/safetensors_table.h"
#include "tests/unit/io_case.h"

struct source {
    struct safetensors_tensor tensors[4];
    size_t count;
    uint32_t crcs[4];
    size_t fail_index; /* fill of this tensor fails */
    size_t calls, count_max;
};

static struct source data;

static bool describe(void *context, size_t index, struct safetensors_tensor *out)
{
    const struct source *source = context;
    *out = source->tensors[index];
    return source->tensors[index].dtype != DTYPE_COUNT;
}

static enum gt_status fill(void *context, size_t index, size_t first, size_t count, void *out)
{
    struct source *source = context;
    if (index == source->fail_index)
        return GT_DEVICE;
    source->calls++;
    source->count_max = count > source->count_max ? count : source->count_max;
    const size_t element_bytes = dtype_size_bytes(source->tensors[index].dtype);
    unsigned char *bytes = out;
    for (size_t i = 0; i < count * element_bytes; i++)
        bytes[i] = (unsigned char)(index * 17 + first * element_bytes + i);
    return GT_OK;
}

static enum gt_status written(void *context, size_t index, uint32_t crc32c)
{
    struct source *source = context;
    source->crcs[index] = crc32c;
    return GT_OK;
}

static enum gt_status write_data(struct safetensors_result *out)
{
    uint32_t staging[3];
    const struct safetensors_source source = {&data, data.count, describe, fill, written, NULL};
    return safetensors_write(path, &source, staging, sizeof staging, out);
}

static void setup(void)
{
    io_setup();
    const struct source fresh = {
        .tensors = {{.name = "b", .dtype = DTYPE_F32, .rank = 2, .dims = {2, 5}},
                    {.name = "a", .dtype = DTYPE_BF16, .rank = 1, .dims = {7}},
                    {.name = "empty", .dtype = DTYPE_F32, .rank = 1, .dims = {0}},
                    {.name = "scalar", .dtype = DTYPE_U8, .rank = 0}},
        .count = 4,
        .fail_index = SIZE_MAX,
    };
    data = fresh;
}

TEST_FIXTURE(setup, io_teardown)

TEST(writes_exact_bytes)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[2,5],\"data_offsets\":[0,40]},"
        "\"a\":{\"dtype\":\"BF16\",\"shape\":[7],\"data_offsets\":[40,54]},"
        "\"empty\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[54,54]},"
        "\"scalar\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[54,55]}}";
    struct safetensors_result result;
    size_t count;
    ck_assert_int_eq(write_data(&result), GT_OK);
    char *bytes = io_file_read(path, &count);
    const size_t length = sizeof header - 1, padded = (length + 7) / 8 * 8;
    ck_assert_uint_eq(count, 8 + padded + 55);
    ck_assert_uint_eq((unsigned char)bytes[0] + 256u * (unsigned char)bytes[1], padded);
    ck_assert_mem_eq(bytes + 8, header, length);
    for (size_t i = length; i < padded; i++)
        ck_assert_int_eq(bytes[8 + i], ' ');
    for (size_t i = 0; i < 40; i++)
        ck_assert_uint_eq((unsigned char)bytes[8 + padded + i], i);
    for (size_t i = 0; i < 14; i++)
        ck_assert_uint_eq((unsigned char)bytes[8 + padded + 40 + i], 17 + i);
    ck_assert_uint_eq(result.size_bytes, count);
    ck_assert_uint_eq(result.crc32c, file_crc32c(0, bytes, count));
    ck_assert_uint_eq(result.header_crc32c, file_crc32c(0, bytes, 8 + padded));
    ck_assert_uint_eq(data.crcs[0], file_crc32c(0, bytes + 8 + padded, 40));
    ck_assert_uint_eq(data.crcs[1], file_crc32c(0, bytes + 8 + padded + 40, 14));
    ck_assert_uint_eq(data.crcs[2], 0);
    ck_assert_uint_eq(data.crcs[3], file_crc32c(0, bytes + 8 + padded + 54, 1));
    ck_assert_uint_eq(data.calls, 4 + 2 + 0 + 1); /* through 12 bytes of staging */
    free(bytes);
}

/* Headers of every length modulo 8 stay aligned and readable. */
TEST(pads_any_header)
{
    struct safetensors_result result;
    struct safetensors *file;
    for (size_t length = 1; length <= 17; length++) {
        memset(data.tensors[0].name, 'n', length);
        data.tensors[0].name[length] = '\0';
        ck_assert_int_eq(write_data(&result), GT_OK);
        ck_assert_int_eq(safetensors_open(mem, path, true, &file), GT_OK);
        ck_assert_uint_eq(file->tensors[0].offset_bytes % 8, 0);
        hostmem_free(file);
    }
}
