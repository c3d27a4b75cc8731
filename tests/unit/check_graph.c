/* Tests of graph.c and transformer.c: tensors, views, ranges, sites of dropout. */
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "model/model_create.h"
#include "tests/unit/graph_fixture.h"
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

TEST(views_lie_inside_their_base)
{
    struct fixture f;
    int32_t inner;
    begin(&f);
    int32_t base = fixture_tensor(f.graph, "base", 10, 4, LIFETIME_PROGRAM, CATEGORY_TEMPORARY);
    ck_assert_int_eq(graph_view_add(f.graph, base, 2, 6, &inner), GT_OK);
    ck_assert_int_eq(graph_storage(f.graph, inner), base);
    ck_assert_int_eq(f.graph->tensors[inner].view_offset, 8);
    ck_assert_int_eq(graph_tensor_elements(f.graph, inner), 24);
    ck_assert_uint_eq(graph_tensor_bytes(f.graph, inner), 96);
    ck_assert_str_eq(f.graph->tensors[inner].name, "base[2:+6]");
    end(&f);
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

TEST(shapes_that_do_not_fit_are_refused)
{
    struct fixture f;
    begin(&f);
    int32_t program = fixture_program(f.graph, PROGRAM_TRAIN_FIRST);
    int32_t a = fixture_tensor(f.graph, "a", 3, 4, LIFETIME_RUN, CATEGORY_PARAMETER);
    int32_t b = fixture_tensor(f.graph, "b", 5, 6, LIFETIME_RUN, CATEGORY_PARAMETER);
    struct graph_pen pen = {
        .graph = f.graph, .program = program, .pass = PASS_FORWARD, .layer = -1};
    const int32_t tensors = f.graph->tensor_count;
    ck_assert_int_eq(GRAPH_ADD(GEMM, &pen, "product", NULL, .a = a, .b = b), GT_USAGE);
    ck_assert_int_eq(f.log.lines, 1);
    ck_assert_ptr_nonnull(strstr(f.log.text, "gemm"));
    ck_assert_int_eq(f.graph->programs[program].count, 0);
    ck_assert_int_eq(f.graph->tensor_count, tensors);
    end(&f);
}

TEST(ranges_reach_from_first_to_last_use)
{
    struct fixture f;
    begin(&f);
    int32_t program = fixture_program(f.graph, PROGRAM_TRAIN_FIRST);
    int32_t x = fixture_tensor(f.graph, "x", 4, 4, LIFETIME_PROGRAM, CATEGORY_DATA), view;
    f.graph->tensors[x].input = true;
    int32_t a = fixture_copy(f.graph, program, x, TENSOR_NONE, false); /* op 0 */
    int32_t b = fixture_residual(f.graph, program, a, a, TENSOR_NONE); /* op 1 */
    int32_t c = fixture_residual(f.graph, program, b, a, TENSOR_NONE); /* op 2 */
    ck_assert_int_eq(graph_view_add(f.graph, c, 1, 2, &view), GT_OK);
    int32_t d = fixture_copy(f.graph, program, view, TENSOR_NONE, false); /* op 3 */
    f.graph->tensors[d].output = true;
    struct tensor_range *ranges = calloc((size_t)f.graph->tensor_count, sizeof *ranges);
    ck_assert_ptr_nonnull(ranges);
    graph_ranges(f.graph, program, ranges);
    ck_assert_int_eq(ranges[x].first, -1);
    ck_assert_int_eq(ranges[x].last, 0);
    ck_assert_int_eq(ranges[a].first, 0);
    ck_assert_int_eq(ranges[a].last, 2);
    ck_assert_int_eq(ranges[c].last, 3);
    ck_assert_int_eq(ranges[view].first, ranges[c].first);
    ck_assert_int_eq(ranges[d].last, 4);
    free(ranges);
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
