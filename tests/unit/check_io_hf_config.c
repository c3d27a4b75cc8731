/* Tests of config.json: the written fields, the accepted ones, and that everything else is refused
 * by field. */
#include <math.h>

#include "io/hf_config.h"

#include "tests/unit/io_case.h"

#define SIZES \
    "\"model_type\":\"gpt2\",\"vocab_size\":50257,\"n_positions\":1024,\"n_embd\":768,\"n_layer\":12,\"n_head\":12"

static enum gt_status parse(const char *text, struct model_config *config,
                            struct hf_config_rest *rest)
{
    json_t *root;
    ck_assert_msg(json_parse(text, strlen(text), "config.json", &root) == GT_OK, "%s", text);
    enum gt_status status = hf_config_parse(root, "config.json", config, rest);
    json_decref(root);
    return status;
}

TEST_FIXTURE(io_setup, io_teardown)

TEST(makes_what_it_parses)
{
    for (int variant = 0; variant < 4; variant++) {
        struct model_config config = io_config(3, 8, 2, (variant & 1) != 0), back;
        struct hf_config_rest rest;
        config.gelu = (variant & 2) != 0 ? GELU_TANH : GELU_ERF;
        json_t *root;
        ck_assert_int_eq(hf_config_make(&config, variant == 0 ? -1 : 0, 4, &root), GT_OK);
        ck_assert_int_eq(hf_config_parse(root, "x", &back, &rest), GT_OK);
        ck_assert_int_eq(back.n_layer, 3);
        ck_assert_int_eq(back.n_head, 2);
        ck_assert_int_eq(back.n_kv_head, 2);
        ck_assert_int_eq(back.n_embd, 8);
        ck_assert_int_eq(back.block_size, 4);
        ck_assert_int_eq(back.vocab_size, 5);
        ck_assert_int_eq(back.padded_vocab_size, 5);
        ck_assert_int_eq(back.bias, config.bias);
        ck_assert_int_eq(back.gelu, config.gelu);
        ck_assert_float_eq(back.dropout, config.dropout);
        ck_assert_double_eq(back.norm_epsilon, config.norm_epsilon);
        ck_assert(rest.tied);
        ck_assert_int_eq(rest.bos_token, variant == 0 ? -1 : 0);
        ck_assert_int_eq(rest.eos_token, 4);
        json_decref(root);
    }
    ck_assert_int_eq(capture.lines, 0);
}

/* The fields that transformers reads, with its names. */
TEST(writes_the_words_of_transformers)
{
    struct model_config config = io_config(1, 4, 1, false);
    json_t *root;
    ck_assert_int_eq(hf_config_make(&config, -1, -1, &root), GT_OK);
    ck_assert_str_eq(json_string_value(json_array_get(json_object_get(root, "architectures"), 0)),
                     "GPT2LMHeadModel");
    ck_assert_str_eq(json_string_value(json_object_get(root, "activation_function")), "gelu");
    ck_assert_str_eq(json_string_value(json_object_get(root, "torch_dtype")), "float32");
    ck_assert(json_is_null(json_object_get(root, "n_inner")));
    ck_assert(json_is_null(json_object_get(root, "bos_token_id")));
    ck_assert(json_is_true(json_object_get(root, "tie_word_embeddings")));
    ck_assert_double_eq(json_real_value(json_object_get(root, "layer_norm_epsilon")), 1e-5);
    ck_assert_double_eq(json_real_value(json_object_get(root, "attn_pdrop")), 0.1);
    ck_assert_int_eq(json_integer_value(json_object_get(root, "n_ctx")), 4);
    json_decref(root);
    config.gelu = GELU_TANH;
    ck_assert_int_eq(hf_config_make(&config, -1, -1, &root), GT_OK);
    ck_assert_str_eq(json_string_value(json_object_get(root, "activation_function")), "gelu_new");
    json_decref(root);
}

TEST(has_the_defaults_of_gpt2)
{
    struct model_config config;
    struct hf_config_rest rest;
    ck_assert_int_eq(parse("{" SIZES "}", &config, &rest), GT_OK);
    ck_assert(config.bias && config.gelu == GELU_TANH && rest.tied);
    ck_assert_float_eq(config.dropout, 0.1f);
    ck_assert_double_eq(config.norm_epsilon, 1e-5);
    ck_assert_int_eq(config.vocab_size, 50257);
    ck_assert_int_eq(rest.bos_token, -1);
    ck_assert_int_eq(
        parse("{" SIZES
              ",\"activation_function\":\"gelu_pytorch_tanh\",\"n_inner\":3072,\"n_ctx\":1024,"
              "\"resid_pdrop\":0,\"layer_norm_epsilon\":1e-6,\"bos_token_id\":50256,"
              "\"gpt_train\":{\"bias\":false},\"summary_type\":\"cls_index\",\"unknown\":[]}",
              &config, &rest),
        GT_OK);
    ck_assert(!config.bias && config.gelu == GELU_TANH);
    ck_assert_float_eq(config.dropout, 0.0f);
    ck_assert_double_eq(config.norm_epsilon, 1e-6);
    ck_assert_int_eq(rest.bos_token, 50256);
    ck_assert_int_eq(parse("{" SIZES
                           ",\"activation_function\":\"gelu\",\"tie_word_embeddings\":false}",
                           &config, &rest),
                     GT_OK);
    ck_assert(config.gelu == GELU_ERF && !rest.tied);
    ck_assert_int_eq(capture.lines, 0);
}

#define LLAMA_SIZES                                                                                \
    "\"vocab_size\":9,\"max_position_embeddings\":64,\"hidden_size\":12,\"intermediate_size\":20," \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4"
#define LLAMA "\"model_type\":\"llama\"," LLAMA_SIZES

/* Every class, and a mixture that none holds, comes back as it was written. */
TEST(makes_what_it_parses_of_llamas_family)
{
    static const struct {
        const char *type, *lacks;
        bool bias, qkv_bias;
        enum norm_kind norm;
        enum mlp_kind mlp;
        enum qk_norm_kind qk_norm;
        enum norm_place_kind norm_place;
    } kinds[] = {
        {"llama", NULL, false, false, NORM_RMSNORM, MLP_SWIGLU, QK_NORM_NONE, 0},
        {"llama", NULL, true, false, NORM_RMSNORM, MLP_SWIGLU, QK_NORM_NONE, 0},
        {"qwen2", NULL, false, true, NORM_RMSNORM, MLP_SWIGLU, QK_NORM_NONE, 0},
        {"qwen3", NULL, false, false, NORM_RMSNORM, MLP_SWIGLU, QK_NORM_HEAD, 0},
        {"olmo2", NULL, false, false, NORM_RMSNORM, MLP_SWIGLU, QK_NORM_FULL, NORM_PLACE_POST},
        {"gpt_train", "norm_place='post' in qwen3's blocks", false, false, NORM_RMSNORM, MLP_SWIGLU,
         QK_NORM_HEAD, NORM_PLACE_POST},
        {"gpt_train", "norm='layernorm' in llama's blocks", true, false, NORM_LAYERNORM, MLP_SWIGLU,
         QK_NORM_NONE, 0},
        {"gpt_train", "mlp='gelu' in llama's blocks", false, false, NORM_RMSNORM, MLP_GELU,
         QK_NORM_NONE, 0},
        {"gpt_train", "qk_norm='full' in llama's blocks", false, false, NORM_RMSNORM, MLP_SWIGLU,
         QK_NORM_FULL, 0},
        {"gpt_train", "qk_norm='head' in qwen2's blocks", false, true, NORM_RMSNORM, MLP_SWIGLU,
         QK_NORM_HEAD, 0},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct model_config config = io_config(2, 12, 4, kinds[i].bias), back;
        struct hf_config_rest rest;
        json_t *root;
        config.n_kv_head = 2;
        config.head_dim = 6;
        config.n_inner = 20;
        config.untied = i % 2 == 0;
        config.qkv_bias = kinds[i].qkv_bias;
        config.norm = kinds[i].norm;
        config.position = POSITION_ROPE;
        config.mlp = kinds[i].mlp;
        config.qk_norm = kinds[i].qk_norm;
        config.norm_place = kinds[i].norm_place;
        config.norm_epsilon = 1e-6;
        config.rope = (struct rope_config){.theta = 5e5,
                                           .scaling = ROPE_SCALING_LLAMA3,
                                           .factor = 32.0,
                                           .low_freq_factor = 1.0,
                                           .high_freq_factor = 4.0,
                                           .original_context = 8192};
        config.max_positions = 77;
        ck_assert_int_eq(hf_config_make(&config, 1, -1, &root), GT_OK);
        ck_assert_str_eq(json_string_value(json_object_get(root, "model_type")), kinds[i].type);
        ck_assert((kinds[i].lacks == NULL) == (json_object_get(root, "architectures") != NULL));
        char lacks[HF_LACKS_MAX];
        ck_assert_pstr_eq(hf_config_lacks(&config, lacks), kinds[i].lacks);
        ck_assert_int_eq(hf_config_parse(root, "x", &back, &rest), GT_OK);
        ck_assert_int_eq(back.block_size, 77); /* the positions of the source, not this run's */
        back.block_size = config.block_size;
        back.gelu = config.gelu;
        ck_assert(back.bias == config.bias && back.qkv_bias == config.qkv_bias &&
                  back.untied == config.untied);
        ck_assert(back.norm == config.norm && back.mlp == config.mlp &&
                  back.qk_norm == config.qk_norm);
        ck_assert_int_eq(back.norm_place, config.norm_place);
        ck_assert(back.n_kv_head == 2 && back.head_dim == 6 && back.n_inner == 20 &&
                  back.position == POSITION_ROPE);
        ck_assert(back.norm_epsilon == 1e-6 && back.dropout == config.dropout);
        char text[ROPE_SCALING_TEXT_MAX];
        ck_assert_str_eq(rope_scaling_text(text, &back.rope), "llama3:32,1,4,8192");
        ck_assert(back.rope.theta == 5e5);
        json_decref(root);
    }
}

/* A file that has the sizes only is of the class that its type names. */
TEST(absent_fields_give_the_classs_shape)
{
    for (int kind = 0; kind < ARCH_gpt_train; kind++) {
        const struct arch *arch = arch_get((enum arch_kind)kind);
        struct model_config config;
        struct hf_config_rest rest;
        const char *text = arch->family == FAMILY_GPT2
                               ? "{" SIZES "}"
                               : TEXT(400, "{\"model_type\":\"%s\",%s,\"num_key_value_heads\":2}",
                                      arch_model_type(arch), LLAMA_SIZES);
        ck_assert_int_eq(parse(text, &config, &rest), GT_OK);
        ck_assert_str_eq(arch_of(&config.shape)->name, arch->name);
    }
}

/* Releases of transformers since 5.0 write rope_parameters; a list of end tokens begins with the
 * usual one. */
TEST(reads_llamas_other_spellings)
{
    struct model_config config;
    struct hf_config_rest rest;
    ck_assert_int_eq(
        parse(
            "{" LLAMA
            ",\"rope_parameters\":{\"rope_theta\":1e5,\"rope_type\":\"linear\",\"factor\":2},"
            "\"eos_token_id\":[7,3],\"num_key_value_heads\":null,\"head_dim\":null,\"sliding_window\":8}",
            &config, &rest),
        GT_OK);
    ck_assert(config.rope.theta == 1e5 && config.rope.scaling == ROPE_SCALING_LINEAR &&
              config.rope.factor == 2.0);
    ck_assert(config.n_kv_head == 4 && config.head_dim == 0 && config.norm_epsilon == 1e-6 &&
              config.untied);
    ck_assert(rest.eos_token == 7 && config.block_size == 64);
    ck_assert_int_eq(capture.lines, 0);
}

/* Both objects of rotations, if they agree; an empty one counts as none. */
TEST(both_objects_of_rotations)
{
    static const char *const texts[] = {
        ",\"rope_theta\":1e5,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
        "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2,\"rope_theta\":1e5}}",
        ",\"rope_theta\":1e3,\"rope_scaling\":{},"
        "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2,\"rope_theta\":1e5}}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct model_config config;
        struct hf_config_rest rest;
        char text[1024];
        (void)snprintf(text, sizeof text, "{" LLAMA "%s", texts[i]);
        ck_assert_int_eq(parse(text, &config, &rest), GT_OK);
        ck_assert(config.rope.theta == 1e5 && config.rope.scaling == ROPE_SCALING_LINEAR &&
                  config.rope.factor == 2.0);
    }
}

#define KV ",\"num_key_value_heads\":2"
#define SCALED(type, fields) \
    "{\"model_type\":\"" type "\"," LLAMA_SIZES KV ",\"rope_scaling\":{" fields "}"

/* The attention factors are those of modeling_rope_utils.py of transformers 5.24. */
TEST(scalings_come_back)
{
    static const struct {
        const char *text, *scaling;
        double attention;
    } cases[] = {
        {SCALED("qwen2",
                "\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":16") "}",
         "yarn:4,16", 1.1386294361119891},
        {SCALED("llama", "\"rope_type\":\"yarn\",\"factor\":8,\"beta_fast\":20,\"mscale\":0.7,"
                         "\"mscale_all_dim\":0.4,\"truncate\":false") "}",
         "yarn:8,64,20,1,1.0575928109100559,0", 1.0575928109100559},
        {SCALED("llama", "\"type\":\"dynamic\",\"factor\":2") "}", "dynamic:2,64", 1.0},
        {SCALED("llama", "\"type\":\"longrope\",\"short_factor\":[1.5],\"long_factor\":[2.1],"
                         "\"factor\":4,\"original_max_position_embeddings\":16") "}",
         "longrope:16,1.2247448713915889,1.5,2.0999999", 1.2247448713915889},
        {SCALED(
             "phi3",
             "\"type\":\"su\",\"short_factor\":[1],\"long_factor\":[2]") ",\"original_max_position_embeddings\":32,\"partial_rotary_factor\":0.5}",
         "longrope:32,1.0954451150103321,1,2", 1.0954451150103321},
        /* Gemma 3's original context is that of the object. */
        {"{\"model_type\":\"gemma3_text\"," LLAMA_SIZES KV
         ",\"original_max_position_embeddings\":32,\"rope_parameters\":{\"full_attention\":{"
         "\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":16}}}",
         "yarn:4,16", 1.1386294361119891},
    };
    char text[ROPE_SCALING_TEXT_MAX];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config config;
        struct hf_config_rest rest;
        ck_assert_int_eq(parse(cases[i].text, &config, &rest), GT_OK);
        for (int again = 0; again < 2; again++) {
            json_t *root;
            ck_assert_str_eq(rope_scaling_text(text, &config.rope), cases[i].scaling);
            ck_assert(fabs(rope_attention(&config.rope) - cases[i].attention) < 1e-15);
            ck_assert_int_eq(hf_config_make(&config, -1, -1, &root), GT_OK);
            ck_assert_int_eq(hf_config_parse(root, "x", &config, &rest), GT_OK);
            json_decref(root);
        }
    }
}

#define LLAMA_OF(class) "{\"architectures\":[\"" class "\"]," LLAMA "}"
#define MISTRAL "{\"model_type\":\"mistral\"," LLAMA_SIZES KV
#define PHI3 "{\"model_type\":\"phi3\"," LLAMA_SIZES KV
#define QWEN2 "{\"model_type\":\"qwen2\"," LLAMA_SIZES KV
#define QWEN3 "{\"model_type\":\"qwen3\"," LLAMA_SIZES KV
#define SMOLLM3 "{\"model_type\":\"smollm3\"," LLAMA_SIZES KV

/* The defaults are those of transformers 5.24 for fields that are absent. */
TEST(windows_and_absent_fields)
{
    static const struct {
        const char *text;
        int32_t windows[2]; /* of the layers */
    } cases[] = {
        {MISTRAL ",\"sliding_window\":8}", {8, 8}},
        {MISTRAL ",\"sliding_window\":64}", {64, 64}}, /* as long as the context */
        {MISTRAL ",\"sliding_window\":null}", {0, 0}},
        {MISTRAL "}", {4096, 4096}},
        {MISTRAL
         ",\"sliding_window\":8,\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
         {0, 8}},
        {PHI3
         ",\"sliding_window\":8,\"layer_types\":[\"sliding_attention\",\"sliding_attention\"]}",
         {8, 8}},
        {PHI3 ",\"sliding_window\":null,\"layer_types\":[\"full_attention\",\"full_attention\"]}",
         {0, 0}},
        {QWEN2 ",\"sliding_window\":8,\"use_sliding_window\":false,\"max_window_layers\":0}",
         {0, 0}},
        {QWEN2 ",\"sliding_window\":8,\"use_sliding_window\":true}", {0, 0}}, /* from layer 28 on */
        {QWEN2 ",\"sliding_window\":8,\"use_sliding_window\":true,\"max_window_layers\":2}",
         {0, 0}},
        {QWEN2 ",\"sliding_window\":8,\"use_sliding_window\":true,\"max_window_layers\":1}",
         {0, 8}},
        {QWEN3
         ",\"sliding_window\":8,\"use_sliding_window\":true,\"layer_types\":[\"full_attention\",\"full_attention\"],"
         "\"max_window_layers\":0}",
         {0, 0}},
        {QWEN3
         ",\"sliding_window\":8,\"use_sliding_window\":true,\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
         {0, 8}},
        {QWEN3
         ",\"sliding_window\":8,\"use_sliding_window\":true,\"layer_types\":[\"sliding_attention\",\"full_attention\"]}",
         {8, 0}},
    };
    struct model_config config;
    struct hf_config_rest rest;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_int_eq(parse(cases[i].text, &config, &rest), GT_OK);
        for (int32_t again = 0; again < 2; again++) { /* and again from what was written */
            json_t *root;
            for (int32_t layer = 0; layer < 2; layer++)
                ck_assert_msg(shape_window(&config.shape, layer) == cases[i].windows[layer],
                              "%s: layer %d, %d", cases[i].text, (int)layer,
                              (int)shape_window(&config.shape, layer));
            ck_assert(config.max_positions == 64 && config.block_size == 64);
            ck_assert_int_eq(hf_config_make(&config, -1, -1, &root), GT_OK);
            if (arch_of(&config.shape)->class_name != NULL)
                ck_assert_int_eq(json_object_get(root, "sliding_window") != NULL,
                                 config.sliding_window > 0);
            ck_assert_int_eq(hf_config_parse(root, "x", &config, &rest), GT_OK);
            json_decref(root);
        }
    }
    ck_assert_int_eq(config.head_dim, 128); /* Qwen3's */
    ck_assert_int_eq(
        parse(
            "{\"model_type\":\"mistral\",\"vocab_size\":9,\"max_position_embeddings\":64,\"hidden_size\":32,"
            "\"intermediate_size\":20,\"num_hidden_layers\":2,\"num_attention_heads\":16}",
            &config, &rest),
        GT_OK);
    ck_assert(config.n_kv_head == 8 && config.head_dim == 0);
    ck_assert_int_eq(capture.lines, 0);
}

/* A field that is set and not known is named; those that change nothing, or say that they are not
 * used, are not. */
TEST(names_unknown_fields)
{
    static const struct {
        const char *text, *named;
    } cases[] = {
        {"{" LLAMA
         ",\"mup_scale\":0.5,\"use_cache\":true,\"_name_or_path\":\"x\",\"off\":false,\"none\":null,\"zero\":0,"
         "\"empty\":[],\"extra_norm\":true,\"kinds\":[1]}",
         "\"mup_scale\": 0.5, \"extra_norm\": true, \"kinds\": [...]: not known here and ignored"},
        {"{" SIZES
         ",\"parallel_block\":true,\"n_ctx\":1024,\"summary_first_dropout\":0.1,\"temperature\":0.7}",
         "config.json: \"parallel_block\": true: not known"},
        {"{" LLAMA
         ",\"embedding_multiplier\":1.0,\"num_experts\":0,\"torch_dtype\":\"bfloat16\",\"unsloth_version\":\"2025.1\","
         "\"pretraining_tp\":1,\"initializer_range\":0.02,\"pad_token_id\":3,\"architectures\":[\"LlamaForCausalLM\"]}",
         NULL},
        {"{" LLAMA ",\"gpt_train\":{\"dropout\":0.1,\"later_scale\":3,\"later_off\":false}}",
         "config.json: \"later_scale\": 3: not known"},
    };
    struct model_config config;
    struct hf_config_rest rest;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_int_eq(parse(cases[i].text, &config, &rest), GT_OK);
        ck_assert_int_eq(capture.lines, cases[i].named != NULL);
        ck_assert_msg(cases[i].named == NULL || (capture.level == LOG_WARNING &&
                                                 strstr(capture.text, cases[i].named) != NULL),
                      "%s", capture.text);
        capture.lines = 0;
    }
}

static const struct {
    const char *text;
    enum gt_status status;
    const char *words;
} refused[] = {
    {"[]", GT_DATA, "model_type"},
    {"{}", GT_DATA, "model_type"},
    {"{\"model_type\":\"mixtral\"}", GT_UNSUPPORTED, "\"mixtral\""},
    {"{\"model_type\":\"gpt2\"}", GT_DATA, "n_layer"},
    {"{\"model_type\":\"gpt2\",\"n_layer\":1,\"n_head\":1,\"n_embd\":1,\"vocab_size\":0}", GT_DATA,
     "vocab_size"},
    {"{\"model_type\":\"gpt2\",\"n_layer\":1,\"n_head\":1,\"n_embd\":1,\"vocab_size\":1e3}",
     GT_DATA, "vocab_size"},
    {"{\"model_type\":\"gpt2\",\"n_layer\":9999999999}", GT_DATA, "n_layer"},
    {"{\"model_type\":\"gpt2\",\"vocab_size\":5,\"n_positions\":4,\"n_embd\":6,\"n_layer\":1,\"n_head\":4}",
     GT_DATA, "n_head"},
    {"{\"model_type\":\"gpt2\",\"vocab_size\":5,\"n_positions\":4,\"n_embd\":6,\"n_layer\":-1,\"n_head\":4}",
     GT_DATA, "n_layer"},
    {"{" SIZES ",\"n_inner\":1024}", GT_UNSUPPORTED, "n_inner"},
    {"{" SIZES ",\"n_inner\":\"x\"}", GT_DATA, "n_inner"},
    {"{" SIZES ",\"activation_function\":\"relu\"}", GT_UNSUPPORTED, "\"relu\""},
    {"{" SIZES ",\"activation_function\":3}", GT_DATA, "activation_function"},
    {"{" SIZES ",\"layer_norm_epsilon\":0}", GT_DATA, "layer_norm_epsilon"},
    {"{" SIZES ",\"layer_norm_epsilon\":-1e-5}", GT_DATA, "layer_norm_epsilon"},
    {"{" SIZES ",\"resid_pdrop\":1.0}", GT_DATA, "resid_pdrop"},
    {"{" SIZES ",\"resid_pdrop\":\"0\"}", GT_DATA, "resid_pdrop"},
    {"{" SIZES ",\"scale_attn_weights\":false}", GT_UNSUPPORTED, "scale_attn_weights"},
    {"{" SIZES ",\"scale_attn_weights\":1}", GT_DATA, "scale_attn_weights"},
    {"{" SIZES ",\"scale_attn_by_inverse_layer_idx\":true}", GT_UNSUPPORTED,
     "scale_attn_by_inverse_layer_idx"},
    {"{" SIZES ",\"reorder_and_upcast_attn\":true}", GT_UNSUPPORTED, "reorder_and_upcast_attn"},
    {"{" SIZES ",\"add_cross_attention\":true}", GT_UNSUPPORTED, "add_cross_attention"},
    {"{" SIZES ",\"tie_word_embeddings\":0}", GT_DATA, "tie_word_embeddings"},
    {"{" SIZES ",\"bos_token_id\":-5}", GT_DATA, "bos_token_id"},
    {"{" SIZES ",\"gpt_train\":[]}", GT_DATA, "gpt_train"},
    {"{" SIZES ",\"gpt_train\":{}}", GT_DATA, "bias"},
    {"{\"model_type\":\"gemma2\"}", GT_UNSUPPORTED, "\"gemma2\" is not supported, since it scales"},
    {"{\"model_type\":\"gemma3n\"}", GT_UNSUPPORTED, "embedding of its own"},
    {"{\"model_type\":\"qwen3_5_text\"," LLAMA_SIZES ",\"linear_key_head_dim\":64}", GT_UNSUPPORTED,
     "linear_key_head_dim"},
    {"{\"model_type\":\"qwen3_5_text\"," LLAMA_SIZES ",\"layer_types\":[\"full_attention\"]}",
     GT_UNSUPPORTED, "every n-th layer"},
    {"{\"model_type\":\"qwen3_5_text\"," LLAMA_SIZES ",\"attn_output_gate\":false}", GT_UNSUPPORTED,
     "attn_output_gate"},
    {"{\"model_type\":\"gpt_oss\"}", GT_UNSUPPORTED, "is a mixture of experts; a model of about"},
    {"{\"model_type\":\"granitemoehybrid\"}", GT_UNSUPPORTED, "state space"},
    {"{\"model_type\":\"new_moe\",\"num_local_experts\":8}", GT_UNSUPPORTED,
     "is a mixture of experts"},
    {"{\"model_type\":\"new_vl\",\"vision_config\":{}}", GT_UNSUPPORTED, "since it reads images"},
    {"{\"model_type\":\"x\",\"architectures\":[\"XForConditionalGeneration\"]}", GT_UNSUPPORTED,
     "reads more than text"},
    {LLAMA_OF("LlamaForSequenceClassification"), GT_UNSUPPORTED,
     "\"LlamaForSequenceClassification\" is not supported, since it rates texts"},
    {LLAMA_OF("LlamaForTokenClassification"), GT_UNSUPPORTED, "rates texts"},
    {"{\"model_type\":\"x\"}", GT_UNSUPPORTED, "gemma3_text, qwen3_5_text and mistral are"},
    {"{\"model_type\":\"llama\"}", GT_DATA, "num_hidden_layers"},
    {"{" LLAMA ",\"num_key_value_heads\":3}", GT_DATA, "num_key_value_heads"},
    {"{\"model_type\":\"llama\",\"vocab_size\":9,\"max_position_embeddings\":64,\"hidden_size\":13,"
     "\"intermediate_size\":20,\"num_hidden_layers\":2,\"num_attention_heads\":4}",
     GT_DATA, "hidden_size"},
    {"{" LLAMA ",\"hidden_act\":\"gelu\"}", GT_UNSUPPORTED, "hidden_act"},
    {"{" LLAMA ",\"attention_bias\":true}", GT_UNSUPPORTED, "mlp_bias"},
    {"{\"model_type\":\"qwen3\"," LLAMA_SIZES ",\"num_key_value_heads\":2,\"attention_bias\":true}",
     GT_UNSUPPORTED, "attention_bias"},
    {"{" LLAMA ",\"embedding_multiplier\":2}", GT_UNSUPPORTED, "\"embedding_multiplier\": 2"},
    {"{" LLAMA ",\"rope_parameters\":{\"partial_rotary_factor\":0.5}}", GT_UNSUPPORTED,
     "partial_rotary_factor"},
    {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"ntk\",\"factor\":4}}", GT_UNSUPPORTED,
     "\"ntk\""},
    {"{" LLAMA ",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8}}", GT_DATA, "llama3:8,0,0,64"},
    {"{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"beta_fast\":0.5}}", GT_DATA,
     "yarn:4,64,0.5,1"},
    {"{" LLAMA
     ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1,2]}}",
     GT_DATA, "long_factor"},
    {"{" LLAMA
     ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[0],\"long_factor\":[2]}}",
     GT_DATA, "longrope:64,1,0,2"},
    {"{\"model_type\":\"phi3\"," LLAMA_SIZES ",\"partial_rotary_factor\":-0.5}", GT_DATA,
     "partial_rotary_factor"},
    {"{" LLAMA ",\"partial_rotary_factor\":0.5}", GT_UNSUPPORTED, "partial_rotary_factor"},
    {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
     "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1e6}}",
     GT_UNSUPPORTED, "\"rope_parameters\": differs from \"rope_scaling\""},
    {"{" LLAMA ",\"rope_scaling\":{\"type\":\"default\"},"
     "\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4}}",
     GT_UNSUPPORTED, "rope_parameters"},
    {"{\"model_type\":\"phi3\"," LLAMA_SIZES ",\"rope_scaling\":{\"partial_rotary_factor\":1},"
     "\"rope_parameters\":{\"partial_rotary_factor\":0.5}}",
     GT_UNSUPPORTED, "rope_parameters"},
    {"{\"model_type\":\"qwen3_5_text\"," LLAMA_SIZES ",\"hidden_act\":\"gelu_pytorch_tanh\"}",
     GT_UNSUPPORTED, "\"hidden_act\": \"gelu_pytorch_tanh\""},
    {"{" LLAMA ",\"final_logit_softcapping\":30}", GT_UNSUPPORTED, "final_logit_softcapping"},
    {"{" LLAMA ",\"quantization_config\":{\"bits\":4}}", GT_UNSUPPORTED, "quantization_config"},
    {"{" LLAMA ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]}", GT_UNSUPPORTED,
     "sliding_attention"},
    {PHI3 ",\"sliding_window\":8,\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
     GT_UNSUPPORTED, "layer_types"},
    {MISTRAL ",\"sliding_window\":0}", GT_DATA, "sliding_window"},
    {MISTRAL ",\"sliding_window\":-8}", GT_DATA, "sliding_window"},
    {QWEN3 ",\"use_sliding_window\":true,\"layer_types\":[\"full_attention\"]}", GT_DATA,
     "layer_types"},
    {"{\"model_type\":\"qwen3\",\"vocab_size\":9,\"max_position_embeddings\":64,\"hidden_size\":12,"
     "\"intermediate_size\":20,\"num_hidden_layers\":3,\"num_attention_heads\":4" KV
     ",\"use_sliding_window\":true,"
     "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"full_attention\"]}",
     GT_UNSUPPORTED, "layer_types"},
    {"{" LLAMA ",\"no_rope_layers\":[1,0]}", GT_UNSUPPORTED, "no_rope_layers"},
    {SMOLLM3 ",\"no_rope_layer_interval\":2,\"no_rope_layers\":[1,1]}", GT_UNSUPPORTED,
     "entry 1 is 1; only 0"},
    {SMOLLM3 ",\"no_rope_layer_interval\":0}", GT_DATA, "no_rope_layer_interval"},
    {SMOLLM3 ",\"use_sliding_window\":true}", GT_UNSUPPORTED, "use_sliding_window"},
    {"{\"model_type\":\"granite\"," LLAMA_SIZES ",\"logits_scaling\":0}", GT_DATA,
     "logits_scaling"},
    {"{" LLAMA ",\"rms_norm_eps\":0}", GT_DATA, "rms_norm_eps"},
    {"{" LLAMA ",\"eos_token_id\":\"x\"}", GT_DATA, "eos_token_id"},
    {"{\"model_type\":\"gpt_train\"," LLAMA_SIZES "}", GT_DATA, "gpt_train"},
    {"{\"model_type\":\"gpt_train\"," LLAMA_SIZES
     ",\"gpt_train\":{\"bias\":true,\"gelu\":\"erf\",\"norm\":\"batchnorm\"}}",
     GT_UNSUPPORTED, "batchnorm"},
};

TEST(refuses_by_field)
{
    struct model_config config = {.n_layer = 77};
    struct hf_config_rest rest;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        enum gt_status status = parse(refused[i].text, &config, &rest);
        ck_assert_msg(status == refused[i].status, "%s: %s", refused[i].text, status_name(status));
        ck_assert_ptr_nonnull(strstr(capture.text, "config.json"));
        log_capture_one_error(&capture, refused[i].words);
    }
    ck_assert_int_eq(config.n_layer, 77); /* written only on success */
}
