/* Tests of model.c and parameters.c: refusals, counts against GPT-2's published ones, and the
 * shares of ranks. */
#include <math.h>
#include <string.h>

#include "model/model.h"
#include "model/model_create.h"
#include "model/parameters.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

static const struct parameter_options with_states = {
    .dtype = DTYPE_F32, .states = true, .parts = 1, .ranks = 1};

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
                                 .norm_epsilon = 1e-5};
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

TEST(counts_are_those_of_gpt2)
{
    struct model_config config = gpt2_124m(true);
    ck_assert_int_eq(model_parameter_count(&config), 124439808);
    ck_assert_int_eq(model_parameter_count_no_positions(&config), 124439808 - 1024 * 768);
    double flops = 6.0 * (124439808.0 - 1024 * 768) + 12.0 * 12 * 768 * 1024;
    ck_assert(fabs(model_flops_per_token(&config) - flops) <= 1e-9 * flops);
    /* Of 12 blocks 9 have S [32, 32] for each of 6 heads, which three products read or write. */
    struct model_config linear = config;
    linear.full_attention_interval = 4;
    linear.linear_num_key_heads = linear.linear_num_value_heads = 6;
    linear.linear_value_head_dim = 32;
    linear.linear_conv_kernel_dim = 4;
    const double products = 3.0 * 2.0 * 3.0 * 32 * 32 * 6;
    flops = 6.0 * (double)model_parameter_count_no_positions(&linear) + 12.0 * 3 * 768 * 1024 +
            9.0 * products;
    ck_assert(fabs(model_flops_per_token(&linear) - flops) <= 1e-9 * flops);
    for (int bias = 0; bias < 2; bias++) {
        struct hostmem *mem;
        struct graph *graph;
        struct parameter_list list;
        int64_t total = 0;
        struct model_config small = tiny(bias);
        ck_assert(hostmem_create(&mem) == GT_OK && graph_create(mem, &graph) == GT_OK);
        ck_assert_int_eq(parameters_create(graph, &small, &with_states, &list), GT_OK);
        for (int32_t i = 0; i < list.count; i++) {
            const struct tensor *tensor = &graph->tensors[list.at[i].tensor];
            total += list.at[i].saved_rows * (tensor->rank > 1 ? tensor->dims[1] : 1);
        }
        ck_assert_int_eq(total, model_parameter_count(&small));
        hostmem_free(list.at);
        hostmem_free(graph);
        hostmem_destroy(mem);
    }
}

struct bad_field {
    size_t offset;
    int32_t value;
    const char *words;
};

TEST(impossible_shapes_are_named)
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
        log_capture_refused(&capture, model_config_check(&config), GT_USAGE, fields[i].words);
    }
    /* A row of the table of angles must fit the staging buffer. */
    for (int32_t size = 7; size <= 1 << 21; size += (1 << 21) - 7) {
        struct model_config config = good;
        config.position = POSITION_ROPE;
        config.head_dim = size;
        log_capture_refused(&capture, model_config_check(&config), GT_USAGE, "head_dim");
    }
    struct model_config config = good;
    config.dropout = NAN;
    log_capture_refused(&capture, model_config_check(&config), GT_USAGE, "dropout");
    config.n_layer = 0; /* all problems at once */
    ck_assert_int_eq(model_config_check(&config), GT_USAGE);
    ck_assert_int_eq(capture.lines, 2);
    log_capture_end();
}

static struct model_options options_make(void)
{
    return (struct model_options){.config = tiny(true),
                                  .train = true,
                                  .evaluate = true,
                                  .generate = true,
                                  .choice.micro_batch = 2,
                                  .micro_steps = 3,
                                  .choice.remainder_batch = 1,
                                  .choice.loss_chunk_rows = 4,
                                  .choice.evaluate_batch = 2,
                                  .generate_batch = 1,
                                  .prefill_time = 2,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.95f,
                                  .rates = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f},
                                  .correction_rows = 3};
}

TEST(programs_are_those_that_were_asked_for)
{
    struct hostmem *mem;
    struct model *model;
    struct model_options options = options_make();
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    ck_assert_int_eq(model_create(mem, &options, &model), GT_OK);
    ck_assert_int_eq(model->graph->program_count, 7);
    ck_assert_int_eq(model->train_remainder.batch, 1);
    ck_assert_int_eq(model->decode.time, 1);
    const struct program *update = &model->graph->programs[model->update.program];
    ck_assert_int_eq(update->count, 2 * model->parameters.count + 1);
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const struct op *op = &update->ops[model->parameters.count + 1 + i];
        ck_assert_int_eq(op->kind, OP_ADAMW);
        ck_assert_int_eq(op->operand[ADAMW_PARAM], model->parameters.at[i].tensor);
    }
    hostmem_free(model);
    options.micro_steps = 1;
    options.choice.remainder_batch = 0;
    options.evaluate = options.generate = false;
    ck_assert_int_eq(model_create(mem, &options, &model), GT_OK);
    ck_assert_int_eq(model->graph->program_count, 2);
    ck_assert_int_eq(model->train_next.program, -1);
    ck_assert_int_eq(model->evaluate.ids, TENSOR_NONE);
    hostmem_free(model);
    options.config.n_head = 3;
    struct log_capture capture;
    log_capture_begin(&capture);
    log_capture_refused(&capture, model_create(mem, &options, &model), GT_USAGE, "n_head");
    log_capture_end();
    hostmem_destroy(mem);
}

/* Checks that the shares of all ranks are the whole parameter, in order and without gaps; returns
 * the largest. */
static int64_t shares_check(const struct graph *graph, const struct parameter *parameter,
                            int32_t ranks)
{
    const int64_t elements = graph_tensor_elements(graph, parameter->tensor);
    int64_t next = 0, largest = 0;
    for (int32_t rank = 0; rank <= ranks; rank++) {
        const struct parameter_range share = parameters_share(graph, parameter, ranks, rank);
        if (share.count == 0)
            continue;
        ck_assert_int_eq(share.first, next);
        ck_assert_int_eq(share.first % STATE_BLOCK, 0);
        ck_assert(parameter->group != GROUP_VECTOR || rank == ranks);
        next += share.count;
        largest = share.count > largest ? share.count : largest;
    }
    ck_assert_int_eq(next, elements);
    return largest;
}

/* Each element has one owner: with AdamW of a range, with Muon of whole matrices. */
TEST_LOOP(ranks_share_the_states, 6)
{
    const int32_t ranks = 2 + _i % 3;
    const bool muon = _i >= 3;
    struct hostmem *mem;
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    int64_t held[4] = {0}, all = 0;
    for (int32_t rank = 0; rank < ranks; rank++) {
        struct model_config config = tiny(true);
        config.n_embd = 70; /* blocks do not divide evenly */
        struct parameter_options options = {.dtype = DTYPE_BF16,
                                            .states = true,
                                            .muon = muon,
                                            .parts = 2 * ranks,
                                            .ranks = ranks,
                                            .rank = rank};
        struct parameter_list list;
        struct graph *graph;
        ck_assert_int_eq(graph_create(mem, &graph), GT_OK);
        ck_assert_int_eq(parameters_create(graph, &config, &options, &list), GT_OK);
        for (int32_t i = 0; i < list.count; i++) {
            const struct parameter *parameter = &list.at[i];
            const struct parameter_range own = parameters_share(graph, parameter, ranks, rank);
            const int64_t largest = shares_check(graph, parameter, ranks);
            ck_assert_int_eq(parameter->first, own.first);
            if (parameter->owner == OWNER_UNITS) {
                ck_assert_int_eq(own.first, parameters_unit_first(graph, parameter, 2 * rank));
                ck_assert_int_eq(own.first + own.count,
                                 parameters_unit_first(graph, parameter, 2 * rank + 2));
                ck_assert(own.count == parameter->count && largest <= parameter->most);
            }
            ck_assert_int_eq(parameter->m != TENSOR_NONE,
                             own.count > 0 || parameter->owner == OWNER_ALL);
            if (parameter->m != TENSOR_NONE)
                ck_assert_int_eq(graph_tensor_elements(graph, parameter->m), parameter->count);
            ck_assert_int_eq(parameter->master != TENSOR_NONE,
                             parameter->m != TENSOR_NONE &&
                                 graph->tensors[parameter->tensor].dtype == DTYPE_BF16);
            if (parameter->group == GROUP_MUON)
                held[rank] += own.count;
            if (parameter->group == GROUP_MUON && rank == 0)
                all += graph_tensor_elements(graph, parameter->tensor);
        }
        hostmem_free(graph);
    }
    for (int32_t rank = 0; rank < ranks && muon; rank++)
        ck_assert(held[rank] >= all / ranks - 70 * 210 && held[rank] <= all / ranks + 70 * 210);
    hostmem_destroy(mem);
}
