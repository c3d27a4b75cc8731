/* Tests of exec/exec_poison: planted uses of dead bytes and planted overflows are detected, and only in this mode. */
#include "exec/exec_poison.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "exec/exec.h"
#include "tests/unit/backend_fixture.h"
#include "tests/unit/graph_fixture.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

/* run -> a (dies at op 1) -> b -> c = b + b -> out(run).  c takes a's place, so that a's bytes look alive. */
struct chain {
    struct hostmem *mem;
    struct graph *graph;
    struct plan *plan;
    struct fixture_backend backend;
    struct exec *exec;
    int32_t run, out, a, c, program;
};

static void chain_create(struct chain *chain, bool poison, uint32_t guard_bytes)
{
    memset(chain, 0, sizeof *chain);
    ck_assert_int_eq(hostmem_create(&chain->mem), GT_OK);
    ck_assert_int_eq(graph_create(chain->mem, &chain->graph), GT_OK);
    struct graph *g = chain->graph;
    chain->run = fixture_tensor(g, "run", 1, 16, LIFETIME_RUN, CATEGORY_PARAMETER);
    chain->out = fixture_tensor(g, "out", 1, 16, LIFETIME_RUN, CATEGORY_PARAMETER);
    chain->program = fixture_program(g, "chain", PHASE_TRAIN);
    chain->a = fixture_copy(g, chain->program, chain->run, TENSOR_NONE, false);
    int32_t b = fixture_copy(g, chain->program, chain->a, TENSOR_NONE, false);
    chain->c = fixture_residual(g, chain->program, b, b, TENSOR_NONE);
    fixture_copy(g, chain->program, chain->c, chain->out, false);
    fixture_backend_init(&chain->backend);
    struct plan_options options = {.device = &chain->backend.base, .alignment_bytes = 64, .guard_bytes = guard_bytes};
    ck_assert_int_eq(plan_create(chain->mem, g, &options, &chain->plan), GT_OK);
    struct exec_options exec_options = {.poison = poison};
    ck_assert_int_eq(exec_create(chain->mem, &chain->backend.base, chain->plan, &exec_options, &chain->exec), GT_OK);
    float ones[16];
    for (int32_t i = 0; i < 16; i++)
        ones[i] = 1.0f;
    ck_assert_int_eq(exec_upload(chain->exec, chain->run, 0, ones, 16), GT_OK);
}

static void chain_destroy(struct chain *chain)
{
    exec_destroy(chain->exec);
    plan_destroy(chain->plan);
    graph_destroy(chain->graph);
    hostmem_destroy(chain->mem);
    fixture_backend_release(&chain->backend);
}

static float chain_result(struct chain *chain)
{
    float out[16];
    ck_assert_int_eq(exec_run(chain->exec, chain->program), GT_OK);
    ck_assert_int_eq(exec_download(chain->exec, chain->out, 0, out, 16), GT_OK);
    return out[7];
}

START_TEST(patterns_are_nans_in_every_float)
{
    static const uint32_t patterns[] = {POISON_FRESH, POISON_DEAD, POISON_GUARD};
    for (size_t i = 0; i < 3; i++) {
        float f;
        memcpy(&f, &patterns[i], sizeof f);
        ck_assert(isnan(f));
        ck_assert_uint_eq(patterns[i] >> 16, patterns[i] & 0xffffu);
        ck_assert(isnan(bf16_to_f32((uint16_t)patterns[i])));
        ck_assert(isnan(f16_to_f32((uint16_t)patterns[i])));
        ck_assert_uint_gt(patterns[i], 1u << 30); /* as an index, far outside */
    }
}
END_TEST

START_TEST(a_read_of_dead_bytes_gives_nan)
{
    struct chain chain;
    chain_create(&chain, false, 0);
    ck_assert_float_eq(chain_result(&chain), 2.0f);
    chain.backend.first_seen = false;
    chain.backend.defect = DEFECT_STALE_READ;
    ck_assert_float_eq(chain_result(&chain), 2.0f); /* the plain run does not detect it */
    chain_destroy(&chain);
    chain_create(&chain, true, 0);
    ck_assert_float_eq(chain_result(&chain), 2.0f);
    chain.backend.first_seen = false;
    chain.backend.defect = DEFECT_STALE_READ;
    ck_assert(isnan(chain_result(&chain)));
    chain_destroy(&chain);
}
END_TEST

START_TEST(dead_bytes_hold_the_dead_pattern)
{
    struct chain chain;
    chain_create(&chain, true, 64);
    ck_assert_float_eq(chain_result(&chain), 2.0f);
    uint32_t words[16];
    ck_assert_int_eq(exec_download(chain.exec, chain.c, 0, words, 16), GT_OK);
    for (int32_t i = 0; i < 16; i++)
        ck_assert_uint_eq(words[i], POISON_DEAD);
    chain_destroy(&chain);
}
END_TEST

START_TEST(a_plan_that_lays_one_tensor_on_another_shows)
{
    struct chain chain;
    chain_create(&chain, true, 0);
    ck_assert_uint_eq(chain.plan->tensor[chain.a].offset_bytes, chain.plan->tensor[chain.c].offset_bytes);
    chain_destroy(&chain);
    struct hostmem *mem;
    struct graph *g;
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    ck_assert_int_eq(graph_create(mem, &g), GT_OK);
    int32_t run = fixture_tensor(g, "run", 1, 16, LIFETIME_RUN, CATEGORY_PARAMETER);
    int32_t program = fixture_program(g, "overlap", PHASE_TRAIN);
    int32_t a = fixture_copy(g, program, run, TENSOR_NONE, false);
    int32_t b = fixture_copy(g, program, a, TENSOR_NONE, false);
    fixture_residual(g, program, a, b, run);
    struct plan_options options = {.alignment_bytes = 64};
    struct plan *plan;
    ck_assert_int_eq(plan_create(mem, g, &options, &plan), GT_OK);
    plan->tensor[b] = plan->tensor[a];
    struct fixture_backend backend;
    fixture_backend_init(&backend);
    struct exec_options exec_options = {.poison = true};
    struct exec *exec;
    ck_assert_int_eq(exec_create(mem, &backend.base, plan, &exec_options, &exec), GT_OK);
    float values[16] = {0};
    ck_assert_int_eq(exec_upload(exec, run, 0, values, 16), GT_OK);
    ck_assert_int_eq(exec_run(exec, program), GT_OK);
    ck_assert_int_eq(exec_download(exec, run, 0, values, 16), GT_OK);
    ck_assert(isnan(values[0]) && isnan(values[15]));
    exec_destroy(exec);
    plan_destroy(plan);
    graph_destroy(g);
    hostmem_destroy(mem);
    fixture_backend_release(&backend);
}
END_TEST

static void overflow_is_found(enum fixture_defect defect, const char *words)
{
    struct chain chain;
    chain_create(&chain, true, 64);
    ck_assert_float_eq(chain_result(&chain), 2.0f);
    chain.backend.defect = defect;
    struct log_capture capture;
    log_capture_begin(&capture);
    ck_assert_int_eq(exec_run(chain.exec, chain.program), GT_FAILURE);
    log_capture_one_error(&capture, words);
    log_capture_end();
    chain_destroy(&chain);
}

START_TEST(a_write_beyond_a_tensor_is_found)
{
    overflow_is_found(DEFECT_OVERFLOW, "op 3 (copy): the guard of p0.2.r was overwritten 0 bytes beyond its end");
}
END_TEST

START_TEST(a_write_beyond_a_persistent_tensor_is_found)
{
    struct chain chain;
    chain_create(&chain, true, 64);
    struct address guard = chain.plan->tensor[chain.run];
    guard.offset_bytes += 64 + 8;
    float value = 3.0f;
    ck_assert_int_eq(fixture_backend_ops.upload(&chain.backend.base, 0, guard, &value, sizeof value), GT_OK);
    struct log_capture capture;
    log_capture_begin(&capture);
    ck_assert_int_eq(exec_run(chain.exec, chain.program), GT_FAILURE);
    log_capture_one_error(&capture, "the guard of run was overwritten 8 bytes beyond its end");
    log_capture_end();
    chain_destroy(&chain);
}
END_TEST

START_TEST(a_write_beyond_a_workspace_is_found)
{
    struct hostmem *mem;
    struct graph *g;
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    ck_assert_int_eq(graph_create(mem, &g), GT_OK);
    int32_t x = fixture_tensor(g, "x", 1, 64, LIFETIME_RUN, CATEGORY_PARAMETER); /* 64 % 5 * 37 = 148 bytes */
    int32_t program = fixture_program(g, "one", PHASE_TRAIN);
    int32_t r = fixture_residual(g, program, x, x, TENSOR_NONE);
    g->tensors[r].output = true;
    struct fixture_backend backend;
    fixture_backend_init(&backend);
    backend.defect = DEFECT_WORKSPACE_OVERFLOW;
    struct plan_options options = {.device = &backend.base, .alignment_bytes = 4, .guard_bytes = 8};
    struct plan *plan;
    ck_assert_int_eq(plan_create(mem, g, &options, &plan), GT_OK);
    ck_assert_uint_eq(plan->workspace_bytes[program][0], 148);
    struct exec_options exec_options = {.poison = true};
    struct exec *exec;
    backend.alignment_bytes = 4;
    ck_assert_int_eq(exec_create(mem, &backend.base, plan, &exec_options, &exec), GT_OK);
    struct log_capture capture;
    log_capture_begin(&capture);
    ck_assert_int_eq(exec_run(exec, program), GT_FAILURE);
    log_capture_one_error(&capture, "the guard of the op's workspace was overwritten 0 bytes beyond its end");
    log_capture_end();
    exec_destroy(exec);
    plan_destroy(plan);
    graph_destroy(g);
    hostmem_destroy(mem);
    fixture_backend_release(&backend);
}
END_TEST

/* Gradients are cleared when training begins again after an evaluation; uploads by the host in between stay. */
START_TEST(phase_tensors_start_fresh_with_their_phase)
{
    struct hostmem *mem;
    struct graph *g;
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    ck_assert_int_eq(graph_create(mem, &g), GT_OK);
    int32_t grad = fixture_tensor(g, "grad", 1, 4, LIFETIME_PHASE, CATEGORY_GRADIENT);
    int32_t ids = fixture_tensor(g, "ids", 1, 4, LIFETIME_PHASE, CATEGORY_DATA);
    int32_t sum = fixture_tensor(g, "sum", 1, 4, LIFETIME_RUN, CATEGORY_PARAMETER);
    int32_t train = fixture_program(g, "train", PHASE_TRAIN), evaluate = fixture_program(g, "eval", PHASE_EVALUATE);
    fixture_residual(g, train, grad, ids, sum);
    fixture_fill(g, evaluate, sum, 0.0f);
    struct plan_options options = {.alignment_bytes = 64};
    struct plan *plan;
    ck_assert_int_eq(plan_create(mem, g, &options, &plan), GT_OK);
    struct fixture_backend backend;
    fixture_backend_init(&backend);
    struct exec_options exec_options = {.poison = true};
    struct exec *exec;
    ck_assert_int_eq(exec_create(mem, &backend.base, plan, &exec_options, &exec), GT_OK);
    static const float ones[4] = {1, 1, 1, 1};
    float got[4];
    ck_assert_int_eq(exec_upload(exec, grad, 0, ones, 4), GT_OK);
    ck_assert_int_eq(exec_upload(exec, ids, 0, ones, 4), GT_OK);
    ck_assert_int_eq(exec_run(exec, train), GT_OK);
    ck_assert_int_eq(exec_download(exec, sum, 0, got, 4), GT_OK);
    ck_assert_float_eq(got[2], 2.0f);
    ck_assert_int_eq(exec_run(exec, evaluate), GT_OK);
    ck_assert_int_eq(exec_upload(exec, ids, 0, ones, 4), GT_OK);
    ck_assert_int_eq(exec_run(exec, train), GT_OK);
    ck_assert_int_eq(exec_download(exec, sum, 0, got, 4), GT_OK);
    ck_assert(isnan(got[2])); /* no op wrote grad in this phase */
    ck_assert_int_eq(exec_download(exec, ids, 0, got, 4), GT_OK);
    ck_assert_float_eq(got[2], 1.0f);
    exec_destroy(exec);
    plan_destroy(plan);
    graph_destroy(g);
    hostmem_destroy(mem);
    fixture_backend_release(&backend);
}
END_TEST

UNIT_TESTS(exec_poison, patterns_are_nans_in_every_float, a_read_of_dead_bytes_gives_nan,
           dead_bytes_hold_the_dead_pattern, a_plan_that_lays_one_tensor_on_another_shows,
           a_write_beyond_a_tensor_is_found, a_write_beyond_a_persistent_tensor_is_found,
           a_write_beyond_a_workspace_is_found, phase_tensors_start_fresh_with_their_phase)
