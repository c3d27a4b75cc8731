/* Tests of the optimizer's file: of saving and loading 16-bit weights and 8-bit moments: every bit is restored, and
 * foreign parts are refused. */
#include "io/checkpoint_load.h"
#include "io/checkpoint_open.h"
#include "io/checkpoint_save.h"
#include "io/safetensors_table.h"
#include "tests/unit/io_case.h"

static struct io_model model;

/* The data that a load returned: a hash of the bytes, and the dtype, of each part of each parameter. */
struct handed {
    uint32_t hash[CHECKPOINT_PARTS][IO_TENSORS_MAX];
    enum dtype dtype[CHECKPOINT_PARTS][IO_TENSORS_MAX];
    size_t count[CHECKPOINT_PARTS][IO_TENSORS_MAX];
};
static struct handed saved, loaded;
static int8_t exponent_first; /* the scales are saved with it */

static enum dtype part_dtype(enum checkpoint_part part, int32_t index)
{
    for (size_t i = 0; i < model.tensor_count; i++) {
        if (model.tensors[i].index == index)
            return part == CHECKPOINT_PARAMETER ? model.tensors[i].dtype
                   : part == CHECKPOINT_SCALES  ? DTYPE_U8
                                                : model.tensors[i].moment;
    }
    ck_abort_msg("no tensor has index %d", (int)index);
    return DTYPE_F32;
}

static void handed_add(struct handed *handed, enum checkpoint_part part, int32_t index, size_t count, const void *bytes,
                       enum dtype dtype)
{
    uint32_t hash = handed->count[part][index] == 0 ? 2166136261u : handed->hash[part][index];
    for (size_t i = 0; i < count * dtype_size_bytes(dtype); i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 16777619u;
    handed->hash[part][index] = hash;
    handed->dtype[part][index] = dtype;
    handed->count[part][index] += count;
}

static enum gt_status parts_read(void *context, enum checkpoint_part part, int32_t index, size_t first, size_t count,
                                 void *out)
{
    const enum dtype dtype = part_dtype(part, index);
    (void)context;
    for (size_t i = 0; i < count; i++) {
        const float value = io_value(model.salt, part, index, first + i);
        if (part == CHECKPOINT_SCALES)
            ((int8_t *)out)[i] = first + i == 0 ? exponent_first : (int8_t)(value * 100.0f);
        else if (dtype == DTYPE_U8)
            ((uint8_t *)out)[i] = (uint8_t)(int)(127.0f + 127.0f * value);
        else if (dtype == DTYPE_BF16)
            ((uint16_t *)out)[i] = bf16_from_f32(value);
        else
            ((float *)out)[i] = value;
    }
    handed_add(&saved, part, index, count, out, dtype);
    return GT_OK;
}

static enum gt_status parts_write(void *context, enum checkpoint_part part, int32_t index, size_t first, size_t count,
                                  const void *values, enum dtype dtype)
{
    (void)context;
    ck_assert_uint_eq(first, loaded.count[part][index]);
    handed_add(&loaded, part, index, count, values, dtype);
    return GT_OK;
}

/* Uses bf16 weights, 8-bit moments for matrices, bf16 for other moments, and fp32 for all parts of layernorms. */
static void lean_model(void)
{
    const struct model_config config = io_config(2, 8, 2, false);
    io_model_init(&model, &config, 3);
    for (size_t i = 0; i < model.tensor_count; i++) {
        struct checkpoint_tensor *tensor = &model.tensors[i];
        const bool block = strncmp(tensor->name, "h.", 2) == 0;
        tensor->dtype = model.layout[i].rank == 2 ? DTYPE_BF16 : DTYPE_F32;
        tensor->moment = model.layout[i].rank == 1 ? DTYPE_F32 : block ? DTYPE_U8 : DTYPE_BF16;
    }
}

static void setup(void)
{
    io_setup();
    lean_model();
    memset(&saved, 0, sizeof saved);
    memset(&loaded, 0, sizeof loaded);
    exponent_first = -7;
}

static enum gt_status parts_save(void)
{
    struct checkpoint_save_options options = io_save_options(&model, folder, 1);
    options.read = parts_read;
    return checkpoint_save(&options);
}

static enum gt_status parts_load(bool convert)
{
    struct checkpoint *checkpoint;
    enum gt_status status = checkpoint_open(mem, folder, true, &checkpoint);
    if (status == GT_OK) {
        const struct checkpoint_load_options options = {
            .config = &model.config,
            .tensors = model.tensors,
            .tensor_count = model.tensor_count,
            .write = parts_write,
            .staging = model.staging,
            .staging_bytes = sizeof model.staging,
            .convert = convert,
        };
        status = checkpoint_load(checkpoint, &options);
        hostmem_free(checkpoint);
    }
    return status;
}

TEST_FIXTURE(setup, io_teardown)

TEST(every_bit_comes_back)
{
    ck_assert_int_eq(parts_save(), GT_OK);
    ck_assert_int_eq(parts_load(false), GT_OK);
    ck_assert_mem_eq(&saved, &loaded, sizeof saved);
    int scales = 0;
    for (int i = 0; i < IO_TENSORS_MAX; i++)
        scales += loaded.count[CHECKPOINT_SCALES][i] > 0;
    ck_assert_int_eq(scales, 8); /* four matrices in each of two blocks */
}

TEST(another_format_is_refused_or_converted)
{
    ck_assert_int_eq(parts_save(), GT_OK);
    for (size_t i = 0; i < model.tensor_count; i++)
        model.tensors[i].dtype = model.tensors[i].moment = DTYPE_F32;
    log_capture_refused(&capture, parts_load(false), GT_DATA,
                        "is stored as BF16, but the run's state format needs F32");
    memset(&loaded, 0, sizeof loaded);
    ck_assert_int_eq(parts_load(true), GT_OK);
    for (size_t i = 0; i < model.tensor_count; i++) {
        const int32_t index = model.tensors[i].index;
        const bool codes = loaded.count[CHECKPOINT_SCALES][index] > 0;
        ck_assert_int_eq(loaded.dtype[CHECKPOINT_PARAMETER][index], DTYPE_F32);
        ck_assert_int_eq(loaded.dtype[CHECKPOINT_V][index], codes ? DTYPE_U8 : DTYPE_F32);
    }
}

TEST(scales_have_a_range)
{
    exponent_first = -101;
    ck_assert_int_eq(parts_save(), GT_OK);
    log_capture_refused(&capture, parts_load(false), GT_DATA, "holds an exponent outside -100 to 126");
}

static enum gt_status infinite_read(void *context, enum checkpoint_part part, int32_t index, size_t first, size_t count,
                                    void *out)
{
    TRY(parts_read(context, part, index, first, count, out));
    if (part_dtype(part, index) == DTYPE_BF16)
        ((uint16_t *)out)[count - 1] = 0x7f80;
    return GT_OK;
}

TEST(halves_that_are_not_finite_are_not_saved)
{
    struct checkpoint_save_options options = io_save_options(&model, folder, 1);
    options.read = infinite_read;
    log_capture_refused(&capture, checkpoint_save(&options), GT_DIVERGED,
                        "wte.weight holds a value that is not finite (inf)");
}

/* A single moment, for every matrix in a block. */
TEST(matrices_may_have_one_moment)
{
    for (size_t i = 0; i < model.tensor_count; i++) {
        if (model.tensors[i].moment == DTYPE_U8) {
            model.tensors[i].moment = DTYPE_F32;
            model.tensors[i].no_second = true;
        }
    }
    ck_assert_int_eq(parts_save(), GT_OK);
    ck_assert_int_eq(parts_load(false), GT_OK);
    ck_assert_mem_eq(&saved, &loaded, sizeof saved);
    for (size_t i = 0; i < model.tensor_count; i++)
        model.tensors[i].no_second = false;
    memset(&loaded, 0, sizeof loaded);
    log_capture_refused(&capture, parts_load(false), GT_DATA, "v.transformer.h.0.attn.c_attn.weight is missing");
}

/* Saves, replaces the name of the first tensor of that name in the optimizer's header by another of equal length, and
 * checks the file. */
static enum gt_status renamed_check(const char *from, const char *to)
{
    size_t count;
    struct safetensors *file;
    ck_assert_int_eq(parts_save(), GT_OK);
    io_path(path, folder, "optimizer-000001.safetensors");
    char *bytes = io_file_read(path, &count);
    size_t at = 0;
    while (at + strlen(from) <= count && memcmp(bytes + at, from, strlen(from)) != 0)
        at++;
    ck_assert_uint_le(at + strlen(from), count);
    memcpy(bytes + at, to, strlen(to));
    io_file_write(path, bytes, count);
    free(bytes);
    enum gt_status status = safetensors_open(mem, path, true, &file);
    if (status == GT_OK) {
        status = checkpoint_parts_check(file, &model.config);
        hostmem_free(file);
    }
    return status;
}

TEST_LOOP(missing_parts_are_named, 3)
{
    static const struct {
        const char *from, *to, *line;
    } damages[] = {
        {"\"s.transformer.h.1.mlp.c_fc", "\"t.transformer.h.1.mlp.c_fc",
         "s.transformer.h.1.mlp.c_fc.weight is missing"},
        {"\"m.transformer.wpe", "\"n.transformer.wpe", "m.transformer.wpe.weight is missing"},
        {"\"v.transformer.ln_f", "\"w.transformer.ln_f", "v.transformer.ln_f.weight is missing"},
    };
    log_capture_refused(&capture, renamed_check(damages[_i].from, damages[_i].to), GT_DATA, damages[_i].line);
}
