/* Tests of adapter_config.json and of the parameters that it describes: what is written is read,
 * and a field that changes the mathematics is refused by name. */
#include "io/peft.h"
#include "io/peft_targets.h"

#include "model/parameters.h"
#include "tests/unit/io_case.h"

#define REST "\"peft_type\":\"LORA\",\"base_model_name_or_path\":\"b\",\"r\":4,\"lora_alpha\":8"
#define FIELDS REST ",\"bias\":\"none\",\"target_modules\":[\"q_proj\",\"up_proj\"]"

static struct model_config llama(void)
{
    struct model_config config = io_config(3, 8, 2, false);
    config.norm = NORM_RMSNORM;
    config.position = POSITION_ROPE;
    config.mlp = MLP_SWIGLU;
    config.untied = true;
    return config;
}

/* The targets are those of a GPT-2 or of a Llama, each of three blocks. */
static enum gt_status parse_for(const struct model_config *config, const char *text,
                                struct lora_config *out)
{
    const char *base;
    json_t *root;
    ck_assert_msg(json_parse(text, strlen(text), "a", &root) == GT_OK, "%s", text);
    enum gt_status status = peft_config_parse(root, "a", out, &base);
    THEN(status, peft_config_targets(root, "a", config, &out->targets));
    json_decref(root);
    return status;
}

static enum gt_status parse(const char *text, struct lora_config *out)
{
    const struct model_config config = llama();
    return parse_for(&config, text, out);
}

TEST_FIXTURE(io_setup, io_teardown)

TEST(makes_what_it_parses)
{
    struct model_config config = llama();
    struct lora_config back;
    const char *base;
    json_t *root;
    config.lora = (struct lora_config){.rank = 2, .alpha = 3.5};
    ck_assert_int_eq(peft_targets_read("v_proj,down_proj", &config, &config.lora.targets), GT_OK);
    ck_assert_int_eq(peft_config_make(&config, "owner/name", &root), GT_OK);
    ck_assert_int_eq(peft_config_parse(root, "a", &back, &base), GT_OK);
    ck_assert_int_eq(peft_config_targets(root, "a", &config, &back.targets), GT_OK);
    ck_assert_str_eq(base, "owner/name");
    ck_assert_int_eq(back.rank, 2);
    ck_assert_double_eq(back.alpha, 3.5);
    ck_assert_uint_eq(back.targets, config.lora.targets);
    ck_assert(json_is_false(json_object_get(root, "fan_in_fan_out")));
    json_decref(root);
    struct model_config gpt2 =
        io_config(3, 8, 2, true); /* whose linear layers are stored [in, out] */
    gpt2.lora = (struct lora_config){.rank = 2, .alpha = 2.0};
    ck_assert_int_eq(peft_targets_read("c_attn", &gpt2, &gpt2.lora.targets), GT_OK);
    ck_assert_int_eq(peft_config_make(&gpt2, "b", &root), GT_OK);
    ck_assert(json_is_true(json_object_get(root, "fan_in_fan_out")));
    json_decref(root);
    ck_assert_int_eq(
        parse("{" FIELDS ",\"use_dora\":false,\"rank_pattern\":{},\"lora_dropout\":0.1}", &back),
        GT_OK);
}

TEST(accepts_what_changes_nothing)
{
    struct lora_config out;
    ck_assert_int_eq(
        parse(
            "{" FIELDS ",\"rank_pattern\":{\"^q\":4},\"alpha_pattern\":{\"up_proj\":8.0},"
            "\"init_lora_weights\":\"eva\",\"eva_config\":{\"rho\":2},\"layers_to_transform\":null,"
            "\"inference_mode\":true,\"peft_version\":\"0.21.2\",\"lora_bias\":false}",
            &out),
        GT_OK);
    ck_assert_double_eq(out.alpha, 8.0);
    ck_assert_int_eq(parse("{" FIELDS ",\"use_rslora\":true}", &out), GT_OK);
    ck_assert_double_eq(out.alpha / out.rank, 8.0 / sqrt(4.0));
}

/* As check_target_module_exists() of PEFT 0.21.2 chooses. */
TEST(targets_are_chosen_as_peft_does)
{
    static const struct {
        bool gpt2;
        const char *fields, *targets; /* NULL: refused */
    } cases[] = {
        {false, "\"target_modules\":\"all-linear\"",
         "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"},
        {false, "\"target_modules\":\"All-Linear\",\"exclude_modules\":[\"gate_proj\"]",
         "q_proj,k_proj,v_proj,o_proj,up_proj,down_proj"},
        {false, "\"target_modules\":\".*\\\\.(q|v)_proj\"", "q_proj,v_proj"},
        {false,
         "\"target_modules\":\"model\\\\.layers\\\\.\\\\d+\\\\.(self_attn|mlp)\\\\.(?P<name>up|q)_proj\"",
         "q_proj,up_proj"},
        {false, "\"target_modules\":\"q_proj\"", NULL}, /* the whole name must match */
        {false, "\"target_modules\":\".*q_proj.\"", NULL},
        {false, "\"target_modules\":\".*[012].*q_proj\"", "q_proj"},
        {false, "\"target_modules\":\".*[01].*q_proj\"", NULL},
        {false, "\"target_modules\":\"(\"", NULL},
        {false, "\"target_modules\":\"((.*)*)*x\"", NULL},
        {false, "\"target_modules\":[\"self_attn.q_proj\",\"mlp.up_proj\"]", "q_proj,up_proj"},
        {false, "\"target_modules\":[\"q_proj\",\"query_key_value\"]", "q_proj"},
        {false, "\"target_modules\":[\"proj\"]", NULL},
        {false, "\"target_modules\":[\"query_key_value\"]", NULL},
        {false, "\"target_modules\":[]", NULL},
        {false, "\"target_modules\":null", NULL},
        {false, "\"target_modules\":[\"layers.0.self_attn.q_proj\"]", NULL},
        {false, "\"target_modules\":[\"q_proj\",\"v_proj\"],\"exclude_modules\":\".*v_proj\"",
         "q_proj"},
        {false, "\"target_modules\":[\"q_proj\"],\"layers_to_transform\":[0,1,2]", "q_proj"},
        {false,
         "\"target_modules\":[\"q_proj\"],\"layers_to_transform\":[0,1,2],\"layers_pattern\":\"layers\"",
         "q_proj"},
        {false,
         "\"target_modules\":[\"q_proj\"],\"layers_to_transform\":[0,1,2],\"layers_pattern\":[\"h\"]",
         NULL},
        {false, "\"target_modules\":[\"q_proj\"],\"layers_to_transform\":1", NULL},
        {false, "\"target_modules\":[\"q_proj\"],\"layers_to_transform\":0", NULL},
        {true, "\"target_modules\":[\"c_attn\"]", "c_attn"},
        {true, "\"target_modules\":[\"c_proj\",\"c_fc\"]", "c_proj,c_fc"},
        {true, "\"target_modules\":[\"attn.c_proj\"]", NULL},
        {true, "\"target_modules\":\"transformer\\\\.h\\\\..*c_attn\"", "c_attn"},
        {true, "\"target_modules\":\"h\\\\..*c_attn\"", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config config = cases[i].gpt2 ? io_config(3, 8, 2, true) : llama();
        char text[PEFT_TARGETS_TEXT_MAX];
        const char *fields = TEXT(512, "{" REST ",%s}", cases[i].fields);
        const enum gt_status status = parse_for(&config, fields, &config.lora);
        if (cases[i].targets == NULL) {
            log_capture_refused(&capture, status, status, "target_modules");
            continue;
        }
        ck_assert_msg(status == GT_OK, "%s", fields);
        const char *targets = peft_targets_text(text, &config);
        ck_assert_msg(strcmp(targets, cases[i].targets) == 0 ||
                          (strcmp(targets, "all-linear") == 0 && strlen(cases[i].targets) > 50),
                      "%s: %s", fields, targets);
    }
}

TEST(targets_are_those_of_the_blocks)
{
    struct model_config modern = llama(), gpt2 = io_config(3, 8, 2, true);
    char text[PEFT_TARGETS_TEXT_MAX];
    uint32_t targets;
    ck_assert_int_eq(peft_targets_read("all-linear", &modern, &modern.lora.targets), GT_OK);
    ck_assert_str_eq(peft_targets_text(text, &modern), "all-linear");
    ck_assert_int_eq(peft_targets_read("up_proj,q_proj", &modern, &modern.lora.targets), GT_OK);
    ck_assert_str_eq(peft_targets_text(text, &modern), "q_proj,up_proj");
    log_capture_refused(&capture, peft_targets_read("q_proj,c_fc", &modern, &targets), GT_USAGE,
                        "no 'c_fc'; it has q_proj,k_proj");
    log_capture_refused(&capture, peft_targets_read("q_proj", &gpt2, &targets), GT_USAGE,
                        "it has c_attn,c_proj,c_fc");
    log_capture_refused(&capture, peft_targets_read("", &gpt2, &targets), GT_USAGE, "no ''");
}

/* Every target has an A and a B in a file, and those alone are the tensors of a checkpoint. */
TEST(adapters_have_the_names_and_shapes_of_peft)
{
    struct model_config config = llama(), base = config;
    struct parameter_shape shape;
    config.lora = (struct lora_config){.rank = 2, .alpha = 2.0};
    ck_assert_int_eq(peft_targets_read("k_proj,v_proj,down_proj", &config, &config.lora.targets),
                     GT_OK);
    ck_assert_uint_eq(parameters_file_count(&config), parameters_file_count(&base) + 3 * 3 * 2);
    ck_assert_uint_eq(parameters_count(&config), parameters_count(&base) + 3 * 2 * 2);
    config.lora.alone = true;
    ck_assert_uint_eq(parameters_file_count(&config), 3 * 3 * 2);
    parameters_file_shape(&config, 1, &shape);
    ck_assert_str_eq(shape.name, "model.layers.0.self_attn.v_proj.lora_A.weight");
    ck_assert_str_eq(shape.prefix, "base_model.model.");
    ck_assert(shape.dims[0] == 2 && shape.dims[1] == 8 && shape.first == 16);
    parameters_file_shape(&config, 11, &shape);
    ck_assert_str_eq(shape.name, "model.layers.1.mlp.down_proj.lora_B.weight");
    ck_assert(shape.dims[0] == 8 && shape.dims[1] == 2 && shape.first == 0);
}
