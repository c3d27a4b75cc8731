/* Tests of GPT-2's tensors: names, order and shapes, and files with missing, additional or other tensors. */
#include "io/checkpoint_load.h"

#include "io/safetensors_table.h"
#include "model/parameters.h"
#include "tests/unit/io_case.h"

static struct model_config config;

static void setup(void)
{
    io_setup();
    config = io_config(2, 4, 2, true);
}

TEST_FIXTURE(setup, io_teardown)

TEST(lists_gpt2)
{
    struct parameter_shape tensor;
    int64_t elements = 0;
    config = io_config(12, 768, 12, true);
    config.vocab_size = 50257;
    config.block_size = 1024;
    ck_assert_uint_eq(parameters_count(&config), 148);
    for (size_t i = 0; i < 148; i++) {
        parameters_shape(&config, i, &tensor);
        elements += (int64_t)parameter_elements(&tensor);
        ck_assert_int_eq(tensor.bias, strstr(tensor.name, ".bias") != NULL);
        ck_assert_int_eq(tensor.position_table, i == 1);
    }
    ck_assert_int_eq(elements, 124439808); /* the model known as 124M */
    parameters_shape(&config, 0, &tensor);
    ck_assert_str_eq(tensor.name, "wte.weight");
    ck_assert_int_eq(tensor.dims[0], 50257);
    parameters_shape(&config, 2 + 3 * 12 + 2, &tensor);
    ck_assert_str_eq(tensor.name, "h.3.attn.c_attn.weight");
    ck_assert_int_eq(tensor.dims[0], 768);
    ck_assert_int_eq(tensor.dims[1], 2304);
    parameters_shape(&config, 2 + 11 * 12 + 10, &tensor);
    ck_assert_str_eq(tensor.name, "h.11.mlp.c_proj.weight");
    ck_assert_int_eq(tensor.dims[0], 3072);
    parameters_shape(&config, 147, &tensor);
    ck_assert_str_eq(tensor.name, "ln_f.bias");
    ck_assert_int_eq(tensor.rank, 1);
}

/* Writes a header with the layout's tensors; `change` may edit or drop one, `extra` is appended. */
struct change {
    size_t index;
    const char *name; /* NULL: drop */
    int64_t dims[2];
};

static void file_write(const char *prefix, const struct change *change, const char *extra)
{
    char header[16384];
    size_t data_bytes = 0;
    char *next = header;
    *next++ = '{';
    for (size_t i = 0; i < parameters_count(&config); i++) {
        struct parameter_shape tensor;
        parameters_shape(&config, i, &tensor);
        if (change != NULL && change->index == i) {
            if (change->name == NULL)
                continue;
            (void)snprintf(tensor.name, sizeof tensor.name, "%s", change->name);
            memcpy(tensor.dims, change->dims, sizeof tensor.dims);
        }
        char shape[SAFETENSORS_SHAPE_TEXT_MAX];
        const size_t end_bytes = data_bytes + 4 * parameter_elements(&tensor);
        next += sprintf(next, "%s\"%s%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                        next == header + 1 ? "" : ",", prefix, tensor.name,
                        safetensors_shape_text(shape, tensor.dims, tensor.rank), data_bytes, end_bytes);
        data_bytes = end_bytes;
    }
    next += sprintf(next, extra, data_bytes, data_bytes + 4);
    (void)strcpy(next, "}");
    io_safetensors_write(path, header, data_bytes + (extra[0] != '\0' ? 4 : 0));
}

#define EXTRA(name) ",\"" name "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}"

static enum gt_status check(void)
{
    struct safetensors *file;
    ck_assert_int_eq(safetensors_open(mem, path, true, &file), GT_OK);
    enum gt_status status = hf_layout_check(file, &config);
    hostmem_free(file);
    return status;
}

TEST(accepts_both_namings)
{
    static const char *const fine[] = {"",
                                       EXTRA("lm_head.weight"),
                                       EXTRA("h.0.attn.bias"),
                                       EXTRA("h.17.attn.masked_bias"),
                                       EXTRA("model.layers.0.self_attn.rotary_emb.inv_freq"),
                                       EXTRA("position_ids"),
                                       EXTRA("transformer.position_ids")};
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        file_write("", NULL, fine[i]);
        ck_assert_int_eq(check(), GT_OK);
        file_write("transformer.", NULL, fine[i]);
        ck_assert_int_eq(check(), GT_OK);
    }
    file_write("transformer.", NULL, EXTRA("transformer.h.1.attn.bias"));
    ck_assert_int_eq(check(), GT_OK);
    const struct change longer = {1, "wpe.weight", {9, 4}};
    file_write("", &longer, "");
    ck_assert_int_eq(check(), GT_OK);
    ck_assert_int_eq(capture.lines, 0);
}

TEST(names_the_wrong_tensor)
{
    static const char *const strange[] = {EXTRA("h.2.ln_1.weight"), EXTRA("score.weight"), EXTRA("h.0.xattn.bias"),
                                          EXTRA("transformer.wpe.weight"), EXTRA("h.0.attn.bias2")};
    static const char *const words[] = {"h.2.ln_1.weight", "score.weight", "h.0.xattn.bias", "transformer.wpe.weight",
                                        "h.0.attn.bias2"};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        file_write("", NULL, strange[i]);
        log_capture_refused(&capture, check(), GT_DATA, words[i]);
    }
    for (size_t i = 0; i < parameters_count(&config); i++) {
        struct parameter_shape tensor;
        parameters_shape(&config, i, &tensor);
        const struct change dropped = {i, NULL, {0, 0}};
        file_write("", &dropped, "");
        log_capture_refused(&capture, check(), GT_DATA, tensor.name);
        struct change reshaped = {i, tensor.name, {tensor.dims[0], tensor.dims[1]}};
        reshaped.dims[i == 1 ? 1 : 0]++;
        file_write("", &reshaped, "");
        log_capture_refused(&capture, check(), GT_DATA, tensor.name);
    }
    const struct change shape = {4, "h.0.attn.c_attn.weight", {4, 11}};
    file_write("", &shape, "");
    ck_assert_int_eq(check(), GT_DATA);
    log_capture_one_error(&capture, "h.0.attn.c_attn.weight is [4,11]; the model needs [4,12]");
    const struct change shorter = {1, "wpe.weight", {3, 4}};
    file_write("", &shorter, "");
    log_capture_refused(&capture, check(), GT_DATA, "wpe.weight is [3,4]");
}

/* A configuration of millions of layers for a small file ends at the first missing tensor. */
TEST(absurd_depth_ends_early)
{
    file_write("", NULL, "");
    config.n_layer = 16777216;
    log_capture_refused(&capture, check(), GT_DATA, "h.2.ln_1.weight is missing");
}
