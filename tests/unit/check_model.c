/* model.c and parameters.c: refusals, counts against GPT-2's published ones, names, shapes and initial values. */
#include <math.h>
#include <string.h>

#include "model/model.h"
#include "model/parameters.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

static struct model_config gpt2_124m(bool bias)
{
    return (struct model_config){.n_layer = 12,
                                 .n_head = 12,
                                 .n_kv_head = 12,
                                 .n_embd = 768,
                                 .block_size = 1024,
                                 .vocab_size = 50257,
                                 .padded_vocab_size = 50304,
                                 .bias = bias,
                                 .layernorm_epsilon = 1e-5f};
}

static struct model_config tiny(bool bias)
{
    struct model_config config = gpt2_124m(bias);
    config.n_layer = 3;
    config.n_head = config.n_kv_head = 2;
    config.n_embd = 8;
    config.block_size = 5;
    config.vocab_size = 11;
    config.padded_vocab_size = 16;
    return config;
}

START_TEST(counts_are_those_of_gpt2)
{
    struct model_config config = gpt2_124m(true);
    ck_assert_int_eq(model_parameter_count(&config), 124439808);
    ck_assert_int_eq(model_parameter_count_no_positions(&config), 124439808 - 1024 * 768);
    double flops = 6.0 * (124439808.0 - 1024 * 768) + 12.0 * 12 * 768 * 1024;
    ck_assert(fabs(model_flops_per_token(&config) - flops) <= 1e-9 * flops);
    for (int bias = 0; bias < 2; bias++) {
        struct hostmem *mem;
        struct graph *graph;
        struct parameter_list list;
        int64_t total = 0;
        struct model_config small = tiny(bias);
        ck_assert(hostmem_create(&mem) == GT_OK && graph_create(mem, &graph) == GT_OK);
        ck_assert_int_eq(parameters_create(graph, &small, true, &list), GT_OK);
        for (int32_t i = 0; i < list.count; i++) {
            const struct tensor *tensor = &graph->tensors[list.at[i].tensor];
            total += list.at[i].saved_rows * (tensor->rank > 1 ? tensor->dims[1] : 1);
        }
        ck_assert_int_eq(total, model_parameter_count(&small));
        parameters_destroy(graph, &list);
        graph_destroy(graph);
        hostmem_destroy(mem);
    }
}
END_TEST

START_TEST(corrections_end_where_they_are_one)
{
    int32_t rows = model_correction_rows(0.9f, 0.95f, 1000000);
    ck_assert_int_gt(rows, 100);
    ck_assert((float)(1.0 - pow((double)0.95f, rows)) == 1.0f);
    ck_assert((float)(1.0 - pow((double)0.95f, rows - 1)) != 1.0f);
    ck_assert_int_eq(model_correction_rows(0.9f, 0.95f, 7), 7);
    ck_assert_int_eq(model_correction_rows(0.0f, 0.0f, 100), 1);
    ck_assert_int_eq(model_correction_rows(0.9f, 0.95f, 0), 1);
}
END_TEST

struct bad_field {
    size_t offset;
    int32_t value;
    const char *words;
};

START_TEST(impossible_shapes_are_named)
{
    static const struct bad_field fields[] = {
        {offsetof(struct model_config, n_layer), 0, "n_layer"},
        {offsetof(struct model_config, n_head), 0, "n_head"},
        {offsetof(struct model_config, n_head), 3, "n_embd (8) must be a multiple of n_head (3)"},
        {offsetof(struct model_config, n_embd), 0, "n_embd"},
        {offsetof(struct model_config, block_size), 0, "block_size"},
        {offsetof(struct model_config, block_size), -4, "it is -4"},
        {offsetof(struct model_config, vocab_size), 0, "vocab_size"},
        {offsetof(struct model_config, padded_vocab_size), 10, "padded"},
        {offsetof(struct model_config, n_kv_head), 0, "n_kv_head"},
        {offsetof(struct model_config, n_kv_head), 4, "n_kv_head (4)"},
    };
    struct log_capture capture;
    struct model_config good = tiny(true);
    log_capture_begin(&capture);
    ck_assert_int_eq(model_config_check(&good), GT_OK);
    ck_assert_int_eq(capture.lines, 0);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        struct model_config config = good;
        memcpy((char *)&config + fields[i].offset, &fields[i].value, sizeof(int32_t));
        ck_assert_int_eq(model_config_check(&config), GT_USAGE);
        log_capture_one_error(&capture, fields[i].words);
    }
    struct model_config config = good;
    config.dropout = NAN;
    ck_assert_int_eq(model_config_check(&config), GT_USAGE);
    log_capture_one_error(&capture, "dropout");
    config.n_layer = 0; /* all problems at once */
    ck_assert_int_eq(model_config_check(&config), GT_USAGE);
    ck_assert_int_eq(capture.lines, 2);
    log_capture_end();
}
END_TEST

START_TEST(parameters_are_in_the_checkpoints_order)
{
    static const char *const names[] = {"wte.weight",
                                        "wpe.weight",
                                        "h.0.ln_1.weight",
                                        "h.0.ln_1.bias",
                                        "h.0.attn.c_attn.weight",
                                        "h.0.attn.c_attn.bias",
                                        "h.0.attn.c_proj.weight",
                                        "h.0.attn.c_proj.bias",
                                        "h.0.ln_2.weight",
                                        "h.0.ln_2.bias",
                                        "h.0.mlp.c_fc.weight",
                                        "h.0.mlp.c_fc.bias",
                                        "h.0.mlp.c_proj.weight",
                                        "h.0.mlp.c_proj.bias",
                                        "h.1.ln_1.weight"};
    struct hostmem *mem;
    struct graph *graph;
    struct parameter_list list;
    struct model_config config = tiny(true);
    ck_assert(hostmem_create(&mem) == GT_OK && graph_create(mem, &graph) == GT_OK);
    ck_assert_int_eq(parameters_create(graph, &config, true, &list), GT_OK);
    ck_assert_int_eq(list.count, 4 + 3 * 12);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        ck_assert_str_eq(list.at[i].name, names[i]);
    ck_assert_str_eq(list.at[list.count - 1].name, "ln_f.bias");
    struct block_parameters block = parameters_block(&config, 2);
    ck_assert_str_eq(list.at[block.mlp_proj].name, "h.2.mlp.c_proj.weight");
    ck_assert_str_eq(list.at[block.c_attn_bias].name, "h.2.attn.c_attn.bias");
    ck_assert_str_eq(list.at[parameters_outside(&config).ln_f_gain].name, "ln_f.weight");
    const struct tensor *wte = &graph->tensors[list.at[0].tensor];
    ck_assert_int_eq(wte->dims[0], 16); /* padded; 11 rows are saved */
    ck_assert_int_eq(list.at[0].saved_rows, 11);
    for (int32_t i = 0; i < list.count; i++) {
        const struct parameter *parameter = &list.at[i];
        const struct tensor *tensor = &graph->tensors[parameter->tensor];
        bool bias = strstr(parameter->name, ".bias") != NULL, gain = strstr(parameter->name, "ln_") != NULL && !bias;
        bool projection = strstr(parameter->name, "c_proj.weight") != NULL;
        ck_assert_int_eq(parameter->decay, tensor->rank >= 2);
        ck_assert_int_eq(tensor->rank, bias || gain ? 1 : 2);
        ck_assert_int_eq(parameter->init, bias ? INIT_ZERO : gain ? INIT_ONE : INIT_NORMAL);
        if (parameter->init == INIT_NORMAL)
            ck_assert(fabs((double)parameter->init_std - (projection ? 0.02 / sqrt(6.0) : 0.02)) < 1e-9);
        ck_assert_int_eq(graph->tensors[parameter->gradient].lifetime, LIFETIME_PHASE);
        ck_assert_int_eq(graph->tensors[parameter->m].category, CATEGORY_MOMENT);
        ck_assert_int_eq(graph_tensor_elements(graph, parameter->v), graph_tensor_elements(graph, parameter->tensor));
    }
    parameters_destroy(graph, &list);
    config.bias = false;
    ck_assert_int_eq(parameters_create(graph, &config, false, &list), GT_OK);
    ck_assert_int_eq(list.count, 3 + 3 * 6);
    ck_assert_int_eq(list.at[0].gradient, TENSOR_NONE);
    ck_assert_int_eq(parameters_block(&config, 0).ln_1_bias, -1);
    ck_assert_str_eq(list.at[parameters_block(&config, 1).c_fc].name, "h.1.mlp.c_fc.weight");
    parameters_destroy(graph, &list);
    graph_destroy(graph);
    hostmem_destroy(mem);
}
END_TEST

static struct model_options options_make(void)
{
    return (struct model_options){.config = tiny(true),
                                  .train = true,
                                  .evaluate = true,
                                  .generate = true,
                                  .micro_batch = 2,
                                  .micro_steps = 3,
                                  .remainder_batch = 1,
                                  .loss_chunk_rows = 4,
                                  .evaluate_batch = 2,
                                  .generate_batch = 1,
                                  .prefill_time = 2,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.95f,
                                  .correction_rows = 3};
}

START_TEST(programs_are_those_that_were_asked_for)
{
    struct hostmem *mem;
    struct model *model;
    struct model_options options = options_make();
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    ck_assert_int_eq(model_create(mem, &options, &model), GT_OK);
    ck_assert_int_eq(model->graph->program_count, 7);
    ck_assert_int_eq(model->train_remainder.batch, 1);
    ck_assert_int_eq(model->decode.time, 1);
    ck_assert(graph_check(model->graph));
    const struct program *update = &model->graph->programs[model->update.program];
    ck_assert_int_eq(update->count, 2 * model->parameters.count + 1);
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const struct op *op = &update->ops[model->parameters.count + 1 + i];
        ck_assert_int_eq(op->kind, OP_ADAMW);
        ck_assert_int_eq(op->operand[ADAMW_PARAM], model->parameters.at[i].tensor);
    }
    model_destroy(model);
    options.micro_steps = 1;
    options.remainder_batch = 0;
    options.evaluate = options.generate = false;
    ck_assert_int_eq(model_create(mem, &options, &model), GT_OK);
    ck_assert_int_eq(model->graph->program_count, 2);
    ck_assert_int_eq(model->train_next.program, -1);
    ck_assert_int_eq(model->evaluate.ids, TENSOR_NONE);
    model_destroy(model);
    options.config.n_head = 3;
    struct log_capture capture;
    log_capture_begin(&capture);
    ck_assert_int_eq(model_create(mem, &options, &model), GT_USAGE);
    log_capture_one_error(&capture, "n_head");
    log_capture_end();
    hostmem_destroy(mem);
}
END_TEST

/* Every allocation of the model fails once.  The last two belong to graph_check(), which runs inside an assert. */
START_TEST(no_allocation_may_fail_badly)
{
    struct model_options options = options_make();
    struct log_capture capture;
    struct hostmem_counters counters;
    size_t allocations = 3;
    log_capture_begin(&capture);
    for (size_t n = 0; n + 2 <= allocations; n++) {
        struct hostmem *mem;
        struct model *model = NULL;
        ck_assert_int_eq(hostmem_create(&mem), GT_OK);
        hostmem_fail_at(mem, n);
        enum gt_status status = model_create(mem, &options, &model);
        hostmem_counters_get(mem, &counters);
        if (n == 0)
            allocations = counters.allocations;
        if (status == GT_OK)
            model_destroy(model);
        ck_assert_int_eq(status, n == 0 ? GT_OK : GT_NO_MEMORY);
        hostmem_counters_get(mem, &counters);
        ck_assert_uint_eq(counters.live_bytes, 0);
        hostmem_destroy(mem);
    }
    log_capture_end();
    ck_assert_uint_ge(allocations, 20);
}
END_TEST

Suite *model_suite(void)
{
    Suite *suite = suite_create("model");
    TCase *tests = tcase_create("model");
    tcase_add_test(tests, counts_are_those_of_gpt2);
    tcase_add_test(tests, corrections_end_where_they_are_one);
    tcase_add_test(tests, impossible_shapes_are_named);
    tcase_add_test(tests, parameters_are_in_the_checkpoints_order);
    tcase_add_test(tests, programs_are_those_that_were_asked_for);
    tcase_add_test(tests, no_allocation_may_fail_badly);
    suite_add_tcase(suite, tests);
    return suite;
}

UNIT_MAIN(model)
