/* Tests of pickles as data: values, shared and cyclic ones, tensors, and refusals; no code in a
 * pickle is run. */
#include "io/pickle.h"
#include "tests/unit/io_case.h"

#define BYTES(text) (const unsigned char *)(text), sizeof(text) - 1
/* ('storage', torch.FloatStorage, '0', 'cpu', 6) as a persistent id. */
#define STORAGE                                        \
    "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" \
    "0X\3\0\0\0cpuK\6tQ"
#define REBUILD "ctorch._utils\n_rebuild_tensor_v2\n"

static struct pickle pickle;

static void setup(void)
{
    io_setup();
    pickle = (struct pickle){.owner = NULL};
}

static void teardown(void)
{
    pickle_release(&pickle);
    io_teardown();
}

static enum gt_status read_pickle(const unsigned char *bytes, size_t count)
{
    pickle_release(&pickle);
    return pickle_read(mem, bytes, count, "x.pkl", "", &pickle);
}

TEST_FIXTURE(setup, teardown)

TEST(integers_are_read)
{
    static const struct {
        const char *text;
        size_t count;
        int64_t value;
    } cases[] = {
        {"\x80\2K\xff.", 5, 255},
        {"\x80\2M\1\2.", 6, 513},
        {"\x80\2J\xfe\xff\xff\xff.", 8, -2},
        {"\x80\2\x8a\0.", 5, 0},
        {"\x80\2\x8a\1\xff.", 6, -1},
        {"\x80\2\x8a\5\0\0\0\0\1.", 10, INT64_C(1) << 32},
        {"\x80\2\x8a\x08\0\0\0\0\0\0\0\x80.", 13, INT64_MIN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_int_eq(read_pickle((const unsigned char *)cases[i].text, cases[i].count), GT_OK);
        ck_assert(json_is_integer(pickle.root));
        ck_assert_int_eq(json_integer_value(pickle.root), cases[i].value);
    }
    ck_assert_int_eq(read_pickle(BYTES("\x80\2G\x3f\xf8\0\0\0\0\0\0.")), GT_OK);
    ck_assert_double_eq(json_real_value(pickle.root), 1.5);
    ck_assert_int_eq(read_pickle(BYTES("\x80\2G\x7f\xf0\0\0\0\0\0\0.")), GT_OK); /* infinity */
    ck_assert(json_is_null(pickle.root));
    ck_assert_int_eq(read_pickle(BYTES("\x80\2\x88.")), GT_OK);
    ck_assert(json_is_true(pickle.root));
    ck_assert_int_eq(read_pickle(BYTES("\x80\2N.")), GT_OK);
    ck_assert(json_is_null(pickle.root));
}

TEST(dicts_are_read)
{
    ck_assert_int_eq(
        read_pickle(BYTES("\x80\4\x95\x11\0\0\0\0\0\0\0}(\x8c\1a\x94K\1K\7h\0\x8c\1aK\2u.")),
        GT_OK);
    ck_assert_uint_eq(json_object_size(pickle.root), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(pickle.root, "a")),
                     2); /* the last one counts */
    ck_assert_str_eq(json_string_value(json_object_get(pickle.root, "7")), "a");
    ck_assert_int_eq(read_pickle(BYTES("\x80\2ccollections\nOrderedDict\n)R}K\1K\2sb.")), GT_OK);
    ck_assert(json_is_object(pickle.root) && json_object_size(pickle.root) == 0);
}

TEST(tensors_are_read)
{
    ck_assert_int_eq(
        read_pickle(BYTES("\x80\2" REBUILD "(" STORAGE "K\2K\2K\2\x86K\2K\1\x86\x89NtR.")), GT_OK);
    const struct pickle_tensor *tensor = pickle_tensor_of(&pickle, pickle.root);
    ck_assert_ptr_nonnull(tensor);
    ck_assert(tensor->rank == 2 && tensor->dims[0] == 2 && tensor->dims[1] == 2 &&
              tensor->first == 2);
    ck_assert_int_eq(tensor->elements, 4);
    ck_assert_int_eq(tensor->dtype, DTYPE_F32);
    ck_assert_int_eq(tensor->storage_elements, 6);
    ck_assert_int_eq(read_pickle(BYTES("\x80\2" REBUILD "(" STORAGE "K\0)"
                                       ")\x89NtR.")),
                     GT_OK); /* rank 0 */
    ck_assert_int_eq(pickle_tensor_of(&pickle, pickle.root)->elements, 1);
    ck_assert_int_eq(read_pickle(BYTES("\x80\2}X\x11\0\0\0index of a tensorK\0s.")), GT_OK);
    ck_assert_ptr_null(pickle_tensor_of(&pickle, pickle.root));
}

TEST(what_could_run_is_refused_by_name)
{
    log_capture_refused(&capture, read_pickle(BYTES("\x80\2cposix\nsystem\nX\1\0\0\0x\x85R.")),
                        GT_UNSUPPORTED, "posix.system");
    ck_assert_int_eq(read_pickle(BYTES("\x80\4\x8c\x08"
                                       "builtins\x8c\4eval\x93.")),
                     GT_UNSUPPORTED);
    log_capture_one_error(&capture, "builtins.eval");
    log_capture_refused(&capture, read_pickle(BYTES("\x80\2ctorch._utils\n_rebuild_tensor_v3\n.")),
                        GT_UNSUPPORTED, "_rebuild_tensor_v3");
    static const char refused[] = "iodPIFLS01lg\x81\x82\x83\x84\x90\x91\x92\x96\x97\x98"
                                  "B";
    for (size_t i = 0; i < sizeof refused - 1; i++) {
        const unsigned char text[] = {0x80, 2, ']', (unsigned char)refused[i], 0, 0, '.'};
        log_capture_refused(&capture, read_pickle(text, sizeof text), GT_UNSUPPORTED, "opcode 0x");
    }
}
