/* Tests of exports with buffers of a few values, so that every tensor takes several pieces and strips; and of failed
 * allocations. */
#include "io/export.h"

#include "io/checkpoint_open.h"
#include "io/export_options.h"
#include "io/export_weights.h"
#include "model/parameters.h"
#include "tests/unit/io_case.h"

#define SALT 5

static char output[FILE_PATH_MAX], target[FILE_PATH_MAX];
static struct io_model model;
static struct checkpoint *checkpoint;
static struct export_weights weights;

static void setup(void)
{
    io_setup();
    const struct model_config config = io_config(2, 6, 2, true);
    io_folder_make(target);
    io_path(output, target, "file");
    io_model_init(&model, &config, SALT);
    ck_assert_int_eq(io_save(&model, folder, 3), GT_OK);
    ck_assert_int_eq(checkpoint_open(mem, folder, false, &checkpoint), GT_OK);
}

static void teardown(void)
{
    hostmem_free(checkpoint);
    io_folder_remove(target);
    io_teardown();
}

/* Returns element (row, column) of tensor `layout` of the saved model. */
static float value_at(size_t layout, size_t element)
{
    return io_value(SALT, CHECKPOINT_PARAMETER, model.tensors[layout].index, element);
}

static float *written(size_t layout, size_t capacity, size_t *out_count)
{
    struct file_replacement file;
    weights.capacity = capacity;
    ck_assert_int_eq(file_replacement_begin(&file, output, NULL), GT_OK);
    ck_assert_int_eq(export_weights_write(&weights, &model.layout[layout], 0, GGML_F32, &file), GT_OK);
    ck_assert_int_eq(file_replacement_end(&file, GT_OK), GT_OK);
    return (float *)(void *)io_file_read(output, out_count);
}

TEST_FIXTURE(setup, teardown)

/* Exports every tensor, with capacities from less than a row up: linear ones transposed, the others unchanged. */
TEST(writes_in_pieces)
{
    static const size_t capacities[] = {5, 24, 25, 47, 48, 100, 1000};
    ck_assert_int_eq(export_weights_open(mem, checkpoint, &weights), GT_OK);
    ck_assert_uint_eq(weights.capacity, EXPORT_VALUES / 6 * 6); /* whole rows */
    for (size_t c = 0; c < sizeof capacities / sizeof capacities[0]; c++) {
        for (size_t layout = 0; layout < model.tensor_count; layout++) {
            const struct parameter_shape *tensor = &model.layout[layout];
            const bool linear = tensor->linear;
            const size_t rows = (size_t)tensor->dims[0], columns = tensor->rank == 2 ? (size_t)tensor->dims[1] : 1;
            size_t bytes;
            float *found = written(layout, capacities[c], &bytes);
            ck_assert_uint_eq(bytes, rows * columns * sizeof(float));
            ck_assert_int_eq(linear, tensor->rank == 2 && layout >= 2);
            for (size_t i = 0; i < rows * columns; i++) {
                const size_t from = linear ? i % rows * columns + i / rows : i;
                ck_assert(found[i] == value_at(layout, from));
            }
            free(found);
        }
    }
    weights.capacity = EXPORT_VALUES;
    hostmem_free(weights.values);
}

static enum gt_status run(enum export_format format)
{
    const struct export_options options = {.mem = mem,
                                           .format = format,
                                           .checkpoint = checkpoint,
                                           .output = output,
                                           .name = "model",
                                           .run = target,
                                           .dtype = DTYPE_F32};
    return export_run(&options);
}

/* Each allocation fails once: one line, nothing written, nothing leaked. */
TEST_LOOP(survives_every_refused_allocation, EXPORT_PEFT) /* which this model has nothing for */
{
    struct hostmem_counters before, after;
    hostmem_counters_get(mem, &before);
    size_t failures = 0;
    enum gt_status status = GT_NO_MEMORY;
    for (size_t n = 1; status == GT_NO_MEMORY && n < 50; n++) {
        const size_t errors = log_count(LOG_ERROR);
        hostmem_fail_at(mem, n);
        status = run((enum export_format)_i);
        hostmem_counters_get(mem, &after);
        ck_assert_uint_eq(after.live_bytes, before.live_bytes);
        failures += status == GT_NO_MEMORY;
        ck_assert_uint_eq(log_count(LOG_ERROR) - errors, status == GT_OK ? 0 : 1);
        ck_assert_int_eq(io_folder_count(target, ""), status == GT_OK);
    }
    hostmem_fail_at(mem, 0);
    ck_assert_int_eq(status, GT_OK);
    ck_assert_uint_ge(failures, 2);
    if (_i == EXPORT_HF) {
        io_folder_remove(output);
    }
}

TEST(names_formats)
{
    ck_assert_str_eq(export_format_words[EXPORT_HF], "hf");
    ck_assert_str_eq(export_format_words[EXPORT_GGUF], "gguf");
    ck_assert_str_eq(export_format_words[EXPORT_LLMC], "llmc");
}
