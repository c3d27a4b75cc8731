/* Exports of every type pass the comparison with their model; exchanged tensors, rows in another
 * order and a wrong scale do not. */
#include "io/export_compare.h"

#include "io/export.h"
#include "io/gguf.h"
#include "io/hf_config.h"
#include "io/safetensors_table.h"
#include "tests/unit/io_case.h"

#define TENSOR "blk.1.ffn_up.weight"
#define OTHER "blk.0.ffn_up.weight"
#define COLUMNS 256 /* of both */
#define BYTES_MAX ((size_t)COLUMNS * 1024 * sizeof(float))

static const char *const configs[] = {
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 2, \"n_embd\": 256, "
    "\"n_positions\": 8, \"vocab_size\": 40, \"activation_function\": \"gelu_new\"}",
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
    "\"hidden_size\": 256, \"intermediate_size\": 512, \"max_position_embeddings\": 8, "
    "\"vocab_size\": 40, \"num_key_value_heads\": 1}"};
static struct model_config config;
static struct checkpoint *checkpoint;
static float spread; /* of the weights: their values are spread * x^3, x between -1 and 1 */

TEST_FIXTURE(io_setup, io_teardown)

static bool describe(void *context, size_t index, struct safetensors_tensor *out)
{
    struct parameter_shape shape;
    (void)context;
    if (index >= parameters_file_count(&config))
        return false;
    parameters_file_shape(&config, index, &shape);
    memcpy(out->name, shape.name, sizeof out->name);
    out->dtype = DTYPE_F32;
    out->rank = shape.rank;
    memcpy(out->dims, shape.dims, sizeof shape.dims);
    return true;
}

static enum gt_status fill(void *context, size_t index, size_t first, size_t count, void *out)
{
    (void)context;
    for (size_t i = 0; i < count; i++) {
        const float value = io_value(7, CHECKPOINT_PARAMETER, (int32_t)index, first + i);
        ((float *)out)[i] = spread * value * value * value;
    }
    return GT_OK;
}

static void model_make(int model, float size)
{
    struct hf_config_rest rest;
    json_t *root;
    float staging[1024];
    struct safetensors_result result;
    spread = size;
    scratch_write(io_at(folder, "config.json"), configs[model], strlen(configs[model]));
    ck_assert_int_eq(json_parse(configs[model], strlen(configs[model]), "x", &root), GT_OK);
    ck_assert_int_eq(hf_config_parse(root, "x", &config, &rest), GT_OK);
    json_decref(root);
    const struct safetensors_source source = {
        .count = parameters_file_count(&config), .describe = describe, .fill = fill};
    ck_assert_int_eq(safetensors_write(io_at(folder, "model.safetensors"), &source, staging,
                                       sizeof staging, &result),
                     GT_OK);
    ck_assert_int_eq(checkpoint_open(mem, folder, false, &checkpoint), GT_OK);
}

static struct export_options options_of(enum export_format format, int type)
{
    return (struct export_options){.mem = mem,
                                   .format = format,
                                   .checkpoint = checkpoint,
                                   .output = path,
                                   .name = "x",
                                   .run = folder,
                                   .dtype = type < DTYPE_COUNT ? (enum dtype)type : DTYPE_BF16,
                                   .mixture = type < DTYPE_COUNT
                                                  ? GGUF_NO_MIXTURE
                                                  : (enum gguf_mixture)(type - DTYPE_COUNT + 1),
                                   .force = true};
}

#define TYPES (DTYPE_COUNT + GGUF_MIXTURES - 1)
static bool is_type(int type)
{
    return type >= DTYPE_COUNT || type == DTYPE_F32 || type == DTYPE_BF16 || type == DTYPE_F16;
}

TEST(accepts_sound_exports)
{
    static const float sizes[] = {0.05f, 30.0f, 1e-7f};
    for (int i = 0; i < 3; i++) {
        model_make(i % 2, sizes[i]);
        for (int type = 0; type < TYPES; type++) {
            struct export_options options = options_of(EXPORT_GGUF, type);
            double share = -1.0;
            if (!is_type(type))
                continue;
            ck_assert_int_eq(export_run(&options), GT_OK);
            ck_assert_msg(export_compare(&options, path, &share) == GT_OK, "model %d, type %d", i,
                          type);
            ck_assert(share >= 0.0 && (sizes[i] < 1e-3f || share < 0.15) &&
                      (share == 0.0) == (type == DTYPE_F32));
        }
        if (i % 2 == 0) {
            struct export_options options = options_of(EXPORT_LLMC, DTYPE_BF16);
            double share;
            ck_assert_int_eq(export_run(&options), GT_OK);
            ck_assert_int_eq(export_compare(&options, path, &share), GT_OK);
        }
        hostmem_free(checkpoint);
    }
}

/* ---- wrong files ---- */
struct place {
    const struct ggml_block *block;
    off_t at;
    size_t bytes;
};

static struct place place_of(const char *name)
{
    struct gguf *gguf;
    enum ggml_type type;
    ck_assert_int_eq(gguf_open(mem, path, &gguf), GT_OK);
    const struct gguf_tensor *tensor = gguf_tensor_find(gguf, name);
    ck_assert(tensor != NULL && ggml_type_find(tensor->number, &type));
    const struct place place = {&ggml_blocks[type], (off_t)tensor->offset_bytes,
                                ggml_bytes(type, (size_t)(tensor->dims[0] * tensor->dims[1]))};
    hostmem_free(gguf);
    ck_assert_uint_le(place.bytes, BYTES_MAX);
    return place;
}

static unsigned char one[BYTES_MAX], two[BYTES_MAX];

static void read_at(const struct place *place, unsigned char *out)
{
    const int fd = open(path, O_RDONLY);
    ck_assert_int_eq(pread(fd, out, place->bytes, place->at), (ssize_t)place->bytes);
    (void)close(fd);
}

static void write_at(const struct place *place, const unsigned char *bytes)
{
    const int fd = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(fd, bytes, place->bytes, place->at), (ssize_t)place->bytes);
    (void)close(fd);
}

static void tensors_exchange(void)
{
    const struct place first = place_of(TENSOR), second = place_of(OTHER);
    ck_assert(first.bytes == second.bytes);
    read_at(&first, one);
    read_at(&second, two);
    write_at(&first, two);
    write_at(&second, one);
}

static void rows_reverse(void)
{
    const struct place place = place_of(TENSOR);
    const size_t row = ggml_bytes((enum ggml_type)(place.block - ggml_blocks), COLUMNS);
    read_at(&place, one);
    for (size_t at = 0; at < place.bytes; at += row)
        memcpy(two + at, one + place.bytes - row - at, row);
    write_at(&place, two);
}

/* Doubles the tensor: 1 is added to the exponents of its numbers, or of its blocks' scales. */
static void scale_double(void)
{
    const struct place place = place_of(TENSOR);
    const struct ggml_block *block = place.block;
    const bool blocks = block->dtype == DTYPE_COUNT, half = blocks || block->dtype == DTYPE_F16;
    const size_t numbers = blocks ? block->scales : 1;
    read_at(&place, one);
    for (size_t at = 0; at < place.bytes; at += block->bytes) {
        for (size_t k = 0; k < numbers; k++) {
            unsigned char *top = one + at + (blocks ? block->at + 2 * k : block->bytes - 2);
            uint16_t bits;
            memcpy(&bits, top, 2);
            bits = (uint16_t)(bits + ((bits & 0x7fff) == 0 ? 0 : half ? 1 << 10 : 1 << 7));
            memcpy(top, &bits, 2);
        }
    }
    write_at(&place, one);
}

TEST(finds_wrong_files)
{
    static void (*const damages[])(void) = {tensors_exchange, rows_reverse, scale_double};
    for (int model = 0; model < 2; model++) {
        model_make(model, 0.05f);
        for (int type = 0; type < TYPES; type++) {
            struct export_options options = options_of(EXPORT_GGUF, type);
            for (int i = 0; i < 3 && is_type(type); i++) {
                double share;
                ck_assert_int_eq(export_run(&options), GT_OK);
                damages[i]();
                capture.lines = 0;
                ck_assert_msg(export_compare(&options, path, &share) == GT_FAILURE,
                              "model %d, type %d, damage %d", model, type, i);
                log_capture_one_error(&capture, "is not the model's");
            }
        }
        hostmem_free(checkpoint);
    }
}
