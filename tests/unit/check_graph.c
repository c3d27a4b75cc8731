/* Tests of graph.c and transformer.c: the size of tensors, sites of dropout. */

#include "model/model.h"
#include "model/model_create.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

struct fixture {
    struct hostmem *mem;
    struct graph *graph;
    struct log_capture log;
};

static void begin(struct fixture *fixture)
{
    ck_assert(hostmem_create(&fixture->mem) == GT_OK &&
              graph_create(fixture->mem, &fixture->graph) == GT_OK);
    log_capture_begin(&fixture->log);
}

static void end(struct fixture *fixture)
{
    log_capture_end();
    hostmem_free(fixture->graph);
    hostmem_destroy(fixture->mem);
}

TEST(tensors_beyond_63_bits_are_refused)
{
    struct fixture f;
    int32_t out = 77;
    begin(&f);
    struct tensor tensor = {.name = "huge", .dtype = DTYPE_F32, .rank = 2};
    tensor.dims[0] = INT64_C(1) << 40;
    tensor.dims[1] = INT64_C(1) << 40;
    log_capture_refused(&f.log, graph_tensor_add(f.graph, &tensor, &out), GT_USAGE, "huge");
    tensor.dims[0] = -1;
    ck_assert_int_eq(graph_tensor_add(f.graph, &tensor, &out), GT_USAGE);
    ck_assert_int_eq(out, 77);
    end(&f);
}

static struct model *small_model(struct hostmem *mem)
{
    struct model_options options = {.config = {.n_layer = 2,
                                               .n_head = 2,
                                               .n_kv_head = 2,
                                               .n_embd = 8,
                                               .block_size = 5,
                                               .vocab_size = 11,
                                               .padded_vocab_size = 11,
                                               .bias = true,
                                               .dropout = 0.1f},
                                    .train = true,
                                    .evaluate = true,
                                    .generate = true,
                                    .choice.micro_batch = 2,
                                    .micro_steps = 1,
                                    .choice.loss_chunk_rows = 4,
                                    .choice.evaluate_batch = 1,
                                    .generate_batch = 1,
                                    .prefill_time = 2,
                                    .correction_rows = 1};
    struct model *model;
    ck_assert_int_eq(model_create(mem, &options, &model), GT_OK);
    return model;
}

TEST(dropout_sites_are_all_different)
{
    struct fixture f;
    bool seen[64] = {false};
    int sites = 0;
    begin(&f);
    struct model *model = small_model(f.mem);
    const struct program *train = &model->graph->programs[model->train_first.program];
    for (int32_t i = 0; i < train->count; i++) {
        const struct op *op = &train->ops[i];
        if (op->pass != PASS_FORWARD || op->attrs.dropout == 0.0f)
            continue;
        ck_assert_int_ge(op->attrs.site, 0);
        ck_assert_int_lt(op->attrs.site, 64);
        ck_assert(!seen[op->attrs.site]);
        seen[op->attrs.site] = true;
        sites++;
    }
    ck_assert_int_eq(sites, 1 + 3 * 2);
    hostmem_free(model);
    end(&f);
}
