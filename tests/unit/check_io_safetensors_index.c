/* Tests of weights in several files: valid and invalid indices, tensors that come from the file
 * that the index names, and failed allocations that are passed on. */
#include "io/safetensors.h"

#include "io/safetensors_table.h"
#include "tests/unit/io_case.h"

#define FIRST "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}   "
#define SECOND                                                         \
    "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}," \
    "\"c\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[4,8]}}  "
#define INDEX(map) "{\"metadata\":{\"total_size\":16},\"weight_map\":{" map "}}"
#define GOOD "\"a\":\"x-1.safetensors\",\"b\":\"x-2.safetensors\",\"c\":\"x-2.safetensors\""

static void put(const char *name, const char *text)
{
    io_file_write(io_at(folder, name), text, strlen(text));
}

static void setup(void)
{
    io_setup();
    io_safetensors_write(io_at(folder, "x-1.safetensors"), FIRST, 8);
    io_safetensors_write(io_at(folder, "x-2.safetensors"), SECOND, 8);
}

TEST_FIXTURE(setup, io_teardown)

TEST(joins_the_files)
{
    const float a[2] = {1.5f, -2.0f}, b = 3.25f;
    struct safetensors *table;
    float values[2];
    size_t index;
    put(SAFETENSORS_INDEX_NAME, INDEX(GOOD));
    int fd = open(io_at(folder, "x-1.safetensors"), O_RDWR);
    ck_assert_int_eq(pwrite(fd, a, sizeof a, (off_t)(8 + strlen(FIRST))), sizeof a);
    (void)close(fd);
    fd = open(io_at(folder, "x-2.safetensors"), O_RDWR);
    ck_assert_int_eq(pwrite(fd, &b, sizeof b, (off_t)(8 + strlen(SECOND))), sizeof b);
    (void)close(fd);

    ck_assert_int_eq(safetensors_index_open(mem, folder, &table), GT_OK);
    ck_assert_uint_eq(table->count, 3);
    ck_assert(safetensors_find(table, "a", &index));
    ck_assert_int_eq(safetensors_read(table, index, 0, 2, values, DTYPE_F32, NULL), GT_OK);
    ck_assert_mem_eq(values, a, sizeof a);
    ck_assert(safetensors_find(table, "b", &index));
    ck_assert_int_eq(safetensors_read(table, index, 0, 1, values, DTYPE_F32, NULL), GT_OK);
    ck_assert_float_eq(values[0], b);
    ck_assert(safetensors_find(table, "c", &index));
    ck_assert_int_eq(table->tensors[index].dtype, DTYPE_F16);
    ck_assert_int_eq(capture.lines, 0);
    hostmem_free(table);
}

static const struct {
    const char *index, *words;
} bad[] = {
    {"[]", "expected an object"},
    {"{}", "weight_map"},
    {"{\"weight_map\":[]}", "weight_map"},
    {"{\"weight_map\":{\"a\":", "index.json"},
    {INDEX("\"a\":7"), "tensor a: \"\" is not the name"},
    {INDEX("\"a\":\"../x-1.safetensors\""), "not the name of a safetensors file"},
    {INDEX("\"a\":\"/etc/x.safetensors\""), "not the name of a safetensors file"},
    {INDEX("\"a\":\".safetensors\""), "not the name of a safetensors file"},
    {INDEX("\"a\":\".hidden.safetensors\""), "not the name of a safetensors file"},
    {INDEX("\"a\":\"x-1.bin\""), "not the name of a safetensors file"},
    {INDEX("\"a\":\"\""), "not the name of a safetensors file"},
    {INDEX("\"a\":\"x-3.safetensors\""), "x-3.safetensors"},
    {INDEX("\"a\":\"x-1.safetensors\",\"b\":\"x-2.safetensors\""),
     "tensor c: the index says nothing about it"},
    {INDEX("\"a\":\"x-1.safetensors\",\"b\":\"x-1.safetensors\",\"c\":\"x-2.safetensors\""),
     "tensor b: the index says x-1.safetensors"},
    {INDEX(GOOD ",\"d\":\"x-1.safetensors\""), "tensor d is not in x-1.safetensors"},
};

TEST_LOOP(refuses_what_is_wrong, (int)(sizeof bad / sizeof bad[0]))
{
    struct safetensors *table;
    put(SAFETENSORS_INDEX_NAME, bad[_i].index);
    ck_assert_int_ne(safetensors_index_open(mem, folder, &table), GT_OK);
    log_capture_one_error(&capture, bad[_i].words);
}
