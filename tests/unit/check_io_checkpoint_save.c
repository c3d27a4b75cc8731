/* Tests of saving: zero biases, and values that are not finite.  tests/reliability has kills, full
 * disks and failing devices. */
#include "io/checkpoint.h"
#include "io/checkpoint_save.h"
#include "io/safetensors_table.h"
#include "tests/unit/io_case.h"

#define SALT 1
#define ITER 10

static struct io_model model;

static void setup(void)
{
    io_setup();
    const struct model_config config = io_config(1, 4, 2, false);
    io_model_init(&model, &config, SALT);
}

TEST_FIXTURE(setup, io_teardown)

TEST(zero_biases_stand_in_the_file)
{
    struct safetensors *file;
    float values[16];
    size_t index;
    ck_assert_int_eq(io_save(&model, folder, ITER), GT_OK);
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

TEST(values_that_are_not_finite_are_not_saved)
{
    ck_assert_int_eq(io_save(&model, folder, ITER), GT_OK);
    model.poison = (float)NAN;
    log_capture_refused(&capture, io_save(&model, folder, 2 * ITER), GT_DIVERGED,
                        "second moment of wte.weight");
    model.poison = (float)INFINITY;
    log_capture_refused(&capture, io_save(&model, folder, 2 * ITER), GT_DIVERGED, "not finite");
    int64_t iter = 0;
    ck_assert_int_eq(io_open_load(&model, folder, true, &iter), GT_OK);
    ck_assert(iter == ITER && io_loaded_is(&model, SALT, true));
    ck_assert_int_eq(io_folder_count(folder, ""), 5);
}
