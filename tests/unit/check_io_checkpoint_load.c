/* Tests of loading: damage is named (tests/reliability/check_flips.c shows that it is detected),
 * and folders in Hugging Face's layout. */
#include "io/checkpoint_load.h"
#include "io/checkpoint_open.h"
#include "io/hf_config.h"
#include "io/safetensors_table.h"
#include "model/parameters.h"
#include "tests/unit/io_case.h"

static struct io_model model;
static struct model_config config;

static void setup(void)
{
    io_setup();
    config = io_config(1, 4, 2, false);
    io_model_init(&model, &config, 5);
}

TEST_FIXTURE(setup, io_teardown)

TEST(damage_names_file_and_tensor)
{
    int64_t iter;
    struct safetensors *file;
    size_t index;
    ck_assert_int_eq(io_save(&model, folder, 1), GT_OK);
    io_path(path, folder, "model-000001.safetensors");
    ck_assert_int_eq(safetensors_open(mem, path, true, &file), GT_OK);
    ck_assert(safetensors_find(file, "transformer.h.0.mlp.c_fc.weight", &index));
    /* Flips bits of the exponent, so that the value is a NaN: still reported as damage. */
    const size_t at = (size_t)file->tensors[index].offset_bytes;
    hostmem_free(file);
    const int fd = open(path, O_RDWR);
    ck_assert_int_eq(pwrite(fd, "\xff\xff\xff\x7f", 4, (off_t)at), 4);
    (void)close(fd);
    ck_assert_int_eq(io_open_load(&model, folder, true, &iter), GT_DATA);
    ck_assert_ptr_nonnull(strstr(capture.text, path));
    log_capture_one_error(&capture, "tensor transformer.h.0.mlp.c_fc.weight: the checksum is");
}

TEST(a_missing_checksum_is_an_error)
{
    int64_t iter;
    json_t *root;
    ck_assert_int_eq(io_save(&model, folder, 1), GT_OK);
    io_path(path, folder, CHECKPOINT_RECORD_NAME);
    ck_assert_int_eq(json_parse_file(path, 1 << 20, &root), GT_OK);
    json_t *sums = json_object_get(json_array_get(json_object_get(root, "files"), 1), "tensors");
    ck_assert_int_eq(json_object_del(sums, "v.transformer.wpe.weight"), 0);
    ck_assert_int_eq(json_object_del(root, CHECKPOINT_RECORD_CRC), 0);
    ck_assert_int_eq(json_replace_file(path, root, 2), GT_OK);
    json_decref(root);
    log_capture_refused(&capture, io_open_load(&model, folder, true, &iter), GT_DATA,
                        "v.transformer.wpe.weight");
    ck_assert_int_eq(io_open_load(&model, folder, false, &iter), GT_OK);
}

TEST(the_model_must_be_the_checkpoints)
{
    int64_t iter;
    ck_assert_int_eq(io_save(&model, folder, 1), GT_OK);
    config = io_config(2, 4, 2, false);
    io_model_init(&model, &config, 5);
    log_capture_refused(&capture, io_open_load(&model, folder, true, &iter), GT_DATA, "n_layer=1");
    config = io_config(1, 4, 1, false);
    io_model_init(&model, &config, 5);
    log_capture_refused(&capture, io_open_load(&model, folder, true, &iter), GT_DATA, "n_head=2");
    config = io_config(1, 6, 2, false);
    io_model_init(&model, &config, 5);
    ck_assert_int_eq(io_open_load(&model, folder, false, &iter), GT_DATA);
    log_capture_one_error(&capture, "wte.weight is [5,4]; the model needs [5,6]");
    config = io_config(1, 4, 2, true);
    io_model_init(&model, &config, 5);
    log_capture_refused(&capture, io_open_load(&model, folder, true, &iter), GT_DATA, "bias=0");
    ck_assert_int_eq(io_open_load(&model, folder, false, &iter),
                     GT_OK); /* zero biases for a new run */
    ck_assert_int_eq(capture.lines, 0);
}

/* block_size may be reduced for a new run, but not for a resumed one; the checksum still covers the
 * rest of the table. */
TEST(positions_may_be_cut)
{
    int64_t iter;
    ck_assert_int_eq(io_save(&model, folder, 1), GT_OK);
    config.block_size = 3;
    io_model_init(&model, &config, 5);
    ck_assert_int_eq(io_open_load(&model, folder, false, &iter), GT_OK);
    ck_assert(io_loaded_is(&model, 5, false));
    ck_assert(model.loaded[CHECKPOINT_PARAMETER][model.tensors[1].index][12] == 0.0f);
    log_capture_refused(&capture, io_open_load(&model, folder, true, &iter), GT_DATA,
                        "block_size=4");
    config.block_size = 5;
    io_model_init(&model, &config, 5);
    ck_assert_int_eq(io_open_load(&model, folder, false, &iter), GT_DATA);
    log_capture_one_error(&capture, "wpe.weight is [4,4]; the model needs [5,4]");
}

/* ---- folders in Hugging Face's layout ---- */
struct hf_file {
    const char *prefix;
    enum dtype dtype;
    int head;      /* lm_head.weight: 0 none, 1 equal to wte, 2 not equal */
    bool masks;    /* h.0.attn.bias, as old versions of transformers saved it */
    float bias;    /* value of every bias */
    float special; /* unless 0, the first element of ln_f.weight */
};

static size_t hf_count(const struct hf_file *hf)
{
    return parameters_count(&config) + (hf->head != 0) + hf->masks;
}

static bool hf_describe(void *context, size_t index, struct safetensors_tensor *out)
{
    const struct hf_file *hf = context;
    const size_t count = parameters_count(&config);
    struct parameter_shape tensor = {.rank = 1, .dims = {2, 0}};
    const char *prefix = hf->prefix;
    if (index < count) {
        parameters_shape(&config, index, &tensor);
    } else if (index == count && hf->head != 0) {
        parameters_shape(&config, 0, &tensor);
        (void)snprintf(tensor.name, sizeof tensor.name, "lm_head.weight");
        prefix = "";
    } else {
        (void)snprintf(tensor.name, sizeof tensor.name, "h.0.attn.bias");
    }
    (void)snprintf(out->name, sizeof out->name, "%s%.60s", prefix, tensor.name);
    out->dtype = index < count ? hf->dtype : DTYPE_F32;
    if (strcmp(out->name, "lm_head.weight") == 0)
        out->dtype = hf->dtype;
    out->rank = tensor.rank;
    memcpy(out->dims, tensor.dims, sizeof tensor.dims);
    return true;
}

/* Values that are exact in fp16 and bf16. */
static float hf_value(const struct hf_file *hf, size_t index, size_t element)
{
    struct parameter_shape tensor;
    const size_t count = parameters_count(&config);
    if (index == count && hf->head != 0)
        return hf_value(hf, 0, element) + (hf->head == 2 && element == 19 ? 1.0f : 0.0f);
    if (index >= count)
        return -10000.0f;
    parameters_shape(&config, index, &tensor);
    if (index == count - 2 && element == 0 && hf->special != 0.0f)
        return hf->special;
    return tensor.bias ? hf->bias : (float)(int)((index * 37 + element * 11) % 127 - 63) * 0.125f;
}

static enum gt_status hf_fill(void *context, size_t index, size_t first, size_t count, void *out)
{
    const struct hf_file *hf = context;
    struct safetensors_tensor tensor;
    hf_describe(context, index, &tensor);
    for (size_t i = 0; i < count; i++) {
        const float value = hf_value(hf, index, first + i);
        dtype_convert((char *)out + i * dtype_size_bytes(tensor.dtype), tensor.dtype, &value,
                      DTYPE_F32, 1);
    }
    return GT_OK;
}

static enum gt_status hf_load(const struct hf_file *hf, const char *more_config)
{
    char text[2048];
    float staging[8];
    int64_t iter;
    struct safetensors_result result;
    const struct safetensors_source source = {
        (void *)(uintptr_t)hf, hf_count(hf), hf_describe, hf_fill, NULL, NULL};
    io_path(path, folder, "model.safetensors");
    ck_assert_int_eq(safetensors_write(path, &source, staging, sizeof staging, &result), GT_OK);
    (void)snprintf(
        text, sizeof text,
        "{\"model_type\":\"gpt2\",\"vocab_size\":5,\"n_positions\":4,\"n_embd\":4,\"n_layer\":1,"
        "\"n_head\":2%s}",
        more_config);
    scratch_write(io_at(folder, "config.json"), text, strlen(text));
    memset(model.loaded, 0, sizeof model.loaded);
    return io_open_load(&model, folder, false, &iter);
}

static bool hf_loaded_is(const struct hf_file *hf)
{
    for (size_t t = 0; t < parameters_count(&config); t++) {
        struct parameter_shape tensor;
        parameters_shape(&config, t, &tensor);
        for (size_t k = 0; k < model.tensor_count; k++) {
            if (strcmp(model.tensors[k].name, tensor.name) != 0)
                continue;
            for (size_t i = 0; i < parameter_elements(&tensor); i++) {
                if (model.loaded[CHECKPOINT_PARAMETER][model.tensors[k].index][i] !=
                    hf_value(hf, t, i))
                    return false;
            }
        }
    }
    return true;
}

TEST(heads_must_be_tied)
{
    config.bias = true;
    io_model_init(&model, &config, 5);
    struct hf_file hf = {.prefix = "transformer.", .dtype = DTYPE_F32, .head = 2};
    log_capture_refused(&capture, hf_load(&hf, ""), GT_UNSUPPORTED,
                        "remove lm_head.weight from the file");
    log_capture_refused(&capture, hf_load(&hf, ",\"tie_word_embeddings\":false"), GT_UNSUPPORTED,
                        "lm_head.weight differs from wte.weight");
    hf.head = 1;
    ck_assert_int_eq(hf_load(&hf, ",\"tie_word_embeddings\":false"), GT_OK);
    hf.head = 0;
    log_capture_refused(&capture, hf_load(&hf, ",\"tie_word_embeddings\":false"), GT_UNSUPPORTED,
                        "missing");
}

TEST(refuses_wrong_values)
{
    struct hf_file hf = {.prefix = "", .dtype = DTYPE_F32};
    ck_assert_int_eq(hf_load(&hf, ",\"gpt_train\":{\"bias\":false}"), GT_OK);
    ck_assert(hf_loaded_is(&hf));
    hf.bias = 1e-30f;
    log_capture_refused(&capture, hf_load(&hf, ",\"gpt_train\":{\"bias\":false}"), GT_DATA,
                        "tensor h.0.ln_1.bias: is not zero");
    hf.bias = 0.0f;
    hf.special = (float)NAN;
    log_capture_refused(&capture, hf_load(&hf, ""), GT_DATA,
                        "tensor ln_f.weight: holds a value that is not finite, nan at [");
    hf.special = (float)INFINITY;
    hf.dtype = DTYPE_F16;
    ck_assert_int_eq(hf_load(&hf, ""), GT_DATA);
    ck_assert_ptr_nonnull(strstr(capture.text, path));
    log_capture_one_error(&capture, "tensor ln_f.weight: holds a value that is not finite");
}

/* Our own folder without its record is a folder in Hugging Face's layout, and still has no biases.
 */
TEST(our_own_without_a_record)
{
    int64_t iter;
    ck_assert_int_eq(io_save(&model, folder, 1), GT_OK);
    ck_assert_int_eq(unlink(io_at(folder, CHECKPOINT_RECORD_NAME)), 0);
    ck_assert_int_eq(io_open_load(&model, folder, false, &iter), GT_OK);
    ck_assert(io_loaded_is(&model, 5, false));
    io_path(path, folder, "config.json");
    scratch_write(path, "{", 1);
    log_capture_refused(&capture, io_open_load(&model, folder, false, &iter), GT_DATA, path);
}
