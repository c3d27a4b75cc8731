/* Tests of saving: the contents of the folder afterwards, and that a kill, a full disk or a failing
 * device at any point leaves the old checkpoint or the new one. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "io/checkpoint.h"
#include "io/checkpoint_folder.h"
#include "io/checkpoint_save.h"
#include "io/hf_config.h"
#include "io/safetensors_table.h"
#include "tests/unit/io_case.h"

#define OLD_SALT 1
#define NEW_SALT 2
#define OLD_ITER 10
#define NEW_ITER 20

static char copy[FILE_PATH_MAX];
static struct io_model model, reader;
static struct model_config config;

static void setup(void)
{
    io_setup();
    io_folder_make(copy);
    config = io_config(1, 4, 2, false);
    io_model_init(&model, &config, OLD_SALT);
    io_model_init(&reader, &config, 0);
}

static void teardown(void)
{
    io_folder_remove(copy);
    io_teardown();
}

/* Expects that the folder opens as the old or as the new checkpoint, complete; returns true for the
 * new one. */
static bool opens_as_new(const char *where)
{
    int64_t iter = -1;
    memset(reader.loaded, 0, sizeof reader.loaded);
    ck_assert_msg(io_open_load(&reader, where, true, &iter) == GT_OK, "%s", capture.text);
    ck_assert(iter == OLD_ITER || iter == NEW_ITER);
    ck_assert(io_loaded_is(&reader, iter == NEW_ITER ? NEW_SALT : OLD_SALT, true));
    return iter == NEW_ITER;
}

TEST_FIXTURE(setup, teardown)

TEST(saves_a_folder_of_five_files)
{
    static const char *const names[] = {"config.json", "model.safetensors", "trainer_state.json",
                                        "model-000010.safetensors", "optimizer-000010.safetensors"};
    ck_assert_int_eq(io_save(&model, folder, OLD_ITER), GT_OK);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ck_assert_msg(file_exists(io_at(folder, names[i])), "%s", names[i]);
    }
    ck_assert_int_eq(io_folder_count(folder, ""), 5);
    ck_assert(checkpoint_publish_is_link(folder, "model-000010.safetensors"));
    ck_assert(!opens_as_new(folder));
    ck_assert_int_eq(capture.lines, 0);
}

TEST(equal_runs_save_equal_bytes)
{
    static const char *const names[] = {"config.json", "trainer_state.json",
                                        "model-000010.safetensors", "optimizer-000010.safetensors"};
    ck_assert_int_eq(io_save(&model, folder, 3), GT_OK); /* one of the runs saved earlier */
    ck_assert_int_eq(io_save(&model, folder, OLD_ITER), GT_OK);
    ck_assert_int_eq(io_save(&model, copy, OLD_ITER), GT_OK);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t count_a, count_b;
        char *a = io_file_read(io_at(folder, names[i]), &count_a);
        char *b = io_file_read(io_at(copy, names[i]), &count_b);
        ck_assert_uint_eq(count_a, count_b);
        ck_assert_mem_eq(a, b, count_a);
        free(a);
        free(b);
    }
}

TEST(zero_biases_stand_in_the_file)
{
    struct safetensors *file;
    float values[16];
    size_t index;
    ck_assert_int_eq(io_save(&model, folder, OLD_ITER), GT_OK);
    ck_assert_int_eq(safetensors_open(mem, io_at(folder, "model.safetensors"), true, &file), GT_OK);
    ck_assert_uint_eq(file->count, 16);
    ck_assert(safetensors_find(file, "transformer.h.0.mlp.c_fc.bias", &index));
    ck_assert_int_eq(safetensors_read(file, index, 0, 16, values, DTYPE_F32, NULL), GT_OK);
    for (int i = 0; i < 16; i++)
        ck_assert(values[i] == 0.0f);
    hostmem_free(file);
    ck_assert_int_eq(
        safetensors_open(mem, io_at(folder, "optimizer-000010.safetensors"), true, &file), GT_OK);
    ck_assert_uint_eq(file->count, 2 * model.tensor_count);
    ck_assert_str_eq(file->tensors[0].name,
                     "m.transformer.wte.weight"); /* first moments come first */
    ck_assert_str_eq(file->tensors[model.tensor_count].name, "v.transformer.wte.weight");
    ck_assert(safetensors_find(file, "v.transformer.ln_f.weight", &index));
    ck_assert(!safetensors_find(file, "m.transformer.ln_f.bias", &index));
    hostmem_free(file);
}

TEST(models_with_biases_too)
{
    int64_t iter;
    config.bias = true;
    io_model_init(&model, &config, OLD_SALT);
    ck_assert_uint_eq(model.tensor_count, 16);
    ck_assert_int_eq(io_save(&model, folder, OLD_ITER), GT_OK);
    ck_assert_int_eq(io_open_load(&model, folder, true, &iter), GT_OK);
    ck_assert(io_loaded_is(&model, OLD_SALT, true));
}

struct kill {
    size_t calls, kill_at;
};

TEST(values_that_are_not_finite_are_not_saved)
{
    ck_assert_int_eq(io_save(&model, folder, OLD_ITER), GT_OK);
    model.poison = (float)NAN;
    log_capture_refused(&capture, io_save(&model, folder, NEW_ITER), GT_DIVERGED,
                        "second moment of wte.weight");
    model.poison = (float)INFINITY;
    log_capture_refused(&capture, io_save(&model, folder, NEW_ITER), GT_DIVERGED, "not finite");
    ck_assert(!opens_as_new(folder));
    ck_assert_int_eq(io_folder_count(folder, ""), 5);
}
