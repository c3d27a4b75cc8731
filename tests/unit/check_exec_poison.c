/* Tests of exec/exec_poison: planted uses of dead bytes and planted overflows are detected, and only in this mode. */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "exec/exec.h"
#include "exec/exec_poison.h"
#include "plan/plan_create.h"
#include "tests/unit/backend_fixture.h"
#include "tests/unit/graph_fixture.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

struct rig {
    struct hostmem *mem;
    struct graph *graph;
    struct plan *plan;
    struct fixture_backend backend;
    struct exec *exec;
};

static void rig_begin(struct rig *rig)
{
    memset(rig, 0, sizeof *rig);
    ck_assert_int_eq(hostmem_create(&rig->mem), GT_OK);
    ck_assert_int_eq(graph_create(rig->mem, &rig->graph), GT_OK);
    fixture_backend_init(&rig->backend);
}

static void rig_plan(struct rig *rig, uint32_t alignment_bytes, uint32_t guard_bytes)
{
    struct plan_options options = {
        .device = &rig->backend.base, .alignment_bytes = alignment_bytes, .guard_bytes = guard_bytes};
    rig->backend.alignment_bytes = alignment_bytes;
    ck_assert_int_eq(plan_create(rig->mem, rig->graph, &options, &rig->plan), GT_OK);
}

static void rig_exec(struct rig *rig, bool poison)
{
    ck_assert_int_eq(exec_create(rig->mem, &rig->backend.base, rig->plan, poison, &rig->exec), GT_OK);
}

static void rig_end(struct rig *rig)
{
    hostmem_free(rig->exec);
    hostmem_free(rig->plan);
    hostmem_free(rig->graph);
    hostmem_destroy(rig->mem);
    fixture_backend_release(&rig->backend);
}

/* Runs the program and expects one line that contains `words`. */
static void overwritten(struct rig *rig, int32_t program, const char *words)
{
    struct log_capture capture;
    log_capture_begin(&capture);
    log_capture_refused(&capture, exec_run(rig->exec, program), GT_FAILURE, words);
    log_capture_end();
}

/* run -> a (dies at op 1) -> b -> c = b + b -> out(run).  c takes a's place, so that a's bytes look alive. */
struct chain {
    struct rig rig;
    int32_t run, out, a, c, program;
};

static void chain_create(struct chain *chain, bool poison, uint32_t guard_bytes)
{
    rig_begin(&chain->rig);
    struct graph *g = chain->rig.graph;
    chain->run = fixture_tensor(g, "run", 1, 16, LIFETIME_RUN, CATEGORY_PARAMETER);
    chain->out = fixture_tensor(g, "out", 1, 16, LIFETIME_RUN, CATEGORY_PARAMETER);
    chain->program = fixture_program(g, PROGRAM_TRAIN_FIRST);
    chain->a = fixture_copy(g, chain->program, chain->run, TENSOR_NONE, false);
    int32_t b = fixture_copy(g, chain->program, chain->a, TENSOR_NONE, false);
    chain->c = fixture_residual(g, chain->program, b, b, TENSOR_NONE);
    fixture_copy(g, chain->program, chain->c, chain->out, false);
    rig_plan(&chain->rig, 64, guard_bytes);
    rig_exec(&chain->rig, poison);
    float ones[16];
    for (int32_t i = 0; i < 16; i++)
        ones[i] = 1.0f;
    ck_assert_int_eq(exec_upload(chain->rig.exec, chain->run, 0, ones, 16), GT_OK);
}

static float chain_result(struct chain *chain)
{
    float out[16];
    ck_assert_int_eq(exec_run(chain->rig.exec, chain->program), GT_OK);
    ck_assert_int_eq(exec_download(chain->rig.exec, chain->out, 0, out, 16), GT_OK);
    return out[7];
}

TEST(patterns_are_nans_in_every_float)
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

TEST(a_read_of_dead_bytes_gives_nan)
{
    struct chain chain;
    chain_create(&chain, false, 0);
    ck_assert_float_eq(chain_result(&chain), 2.0f);
    chain.rig.backend.first_seen = false;
    chain.rig.backend.defect = DEFECT_STALE_READ;
    ck_assert_float_eq(chain_result(&chain), 2.0f); /* the plain run does not detect it */
    rig_end(&chain.rig);
    chain_create(&chain, true, 0);
    ck_assert_float_eq(chain_result(&chain), 2.0f);
    chain.rig.backend.first_seen = false;
    chain.rig.backend.defect = DEFECT_STALE_READ;
    ck_assert(isnan(chain_result(&chain)));
    rig_end(&chain.rig);
}

TEST(dead_bytes_hold_the_dead_pattern)
{
    struct chain chain;
    chain_create(&chain, true, 64);
    ck_assert_float_eq(chain_result(&chain), 2.0f);
    uint32_t words[16];
    ck_assert_int_eq(exec_download(chain.rig.exec, chain.c, 0, words, 16), GT_OK);
    for (int32_t i = 0; i < 16; i++)
        ck_assert_uint_eq(words[i], POISON_DEAD);
    rig_end(&chain.rig);
}

TEST(a_plan_that_lays_one_tensor_on_another_shows)
{
    struct chain chain;
    chain_create(&chain, true, 0);
    ck_assert_uint_eq(chain.rig.plan->tensor[chain.a].offset_bytes, chain.rig.plan->tensor[chain.c].offset_bytes);
    rig_end(&chain.rig);
    struct rig rig;
    rig_begin(&rig);
    int32_t run = fixture_tensor(rig.graph, "run", 1, 16, LIFETIME_RUN, CATEGORY_PARAMETER);
    int32_t program = fixture_program(rig.graph, PROGRAM_TRAIN_FIRST);
    int32_t a = fixture_copy(rig.graph, program, run, TENSOR_NONE, false);
    int32_t b = fixture_copy(rig.graph, program, a, TENSOR_NONE, false);
    fixture_residual(rig.graph, program, a, b, run);
    rig_plan(&rig, 64, 0);
    rig.plan->tensor[b] = rig.plan->tensor[a];
    rig_exec(&rig, true);
    float values[16] = {0};
    ck_assert_int_eq(exec_upload(rig.exec, run, 0, values, 16), GT_OK);
    ck_assert_int_eq(exec_run(rig.exec, program), GT_OK);
    ck_assert_int_eq(exec_download(rig.exec, run, 0, values, 16), GT_OK);
    ck_assert(isnan(values[0]) && isnan(values[15]));
    rig_end(&rig);
}

TEST(a_write_beyond_a_tensor_is_found)
{
    struct chain chain;
    chain_create(&chain, true, 64);
    ck_assert_float_eq(chain_result(&chain), 2.0f);
    chain.rig.backend.defect = DEFECT_OVERFLOW;
    overwritten(&chain.rig, chain.program, "op 3 (copy): the guard of p0.2.r was overwritten 0 bytes beyond its end");
    rig_end(&chain.rig);
}

TEST(a_write_beyond_a_persistent_tensor_is_found)
{
    struct chain chain;
    chain_create(&chain, true, 64);
    struct address guard = chain.rig.plan->tensor[chain.run];
    guard.offset_bytes += 64 + 8;
    float value = 3.0f;
    ck_assert_int_eq(fixture_backend_ops.upload(&chain.rig.backend.base, guard, &value, sizeof value), GT_OK);
    overwritten(&chain.rig, chain.program, "the guard of run was overwritten 8 bytes beyond its end");
    rig_end(&chain.rig);
}

TEST(a_write_beyond_a_workspace_is_found)
{
    struct rig rig;
    rig_begin(&rig);
    int32_t x = fixture_tensor(rig.graph, "x", 1, 64, LIFETIME_RUN, CATEGORY_PARAMETER); /* 64 % 5 * 37 = 148 bytes */
    int32_t program = fixture_program(rig.graph, PROGRAM_TRAIN_FIRST);
    int32_t r = fixture_residual(rig.graph, program, x, x, TENSOR_NONE);
    rig.graph->tensors[r].output = true;
    rig.backend.defect = DEFECT_WORKSPACE_OVERFLOW;
    rig_plan(&rig, 4, 8);
    ck_assert_uint_eq(rig.plan->workspace_bytes[program][0], 148);
    rig_exec(&rig, true);
    overwritten(&rig, program, "the guard of the op's workspace was overwritten 0 bytes beyond its end");
    rig_end(&rig);
}

/* Gradients are cleared when training begins again after an evaluation; uploads by the host in between stay. */
TEST(phase_tensors_start_fresh_with_their_phase)
{
    struct rig rig;
    rig_begin(&rig);
    struct graph *g = rig.graph;
    int32_t grad = fixture_tensor(g, "grad", 1, 4, LIFETIME_PHASE, CATEGORY_GRADIENT);
    int32_t ids = fixture_tensor(g, "ids", 1, 4, LIFETIME_PHASE, CATEGORY_DATA);
    int32_t sum = fixture_tensor(g, "sum", 1, 4, LIFETIME_RUN, CATEGORY_PARAMETER);
    int32_t train = fixture_program(g, PROGRAM_TRAIN_FIRST), evaluate = fixture_program(g, PROGRAM_EVALUATE);
    fixture_residual(g, train, grad, ids, sum);
    fixture_fill(g, evaluate, sum, 0.0f);
    rig_plan(&rig, 64, 0);
    rig_exec(&rig, true);
    static const float ones[4] = {1, 1, 1, 1};
    float got[4];
    ck_assert_int_eq(exec_upload(rig.exec, grad, 0, ones, 4), GT_OK);
    ck_assert_int_eq(exec_upload(rig.exec, ids, 0, ones, 4), GT_OK);
    ck_assert_int_eq(exec_run(rig.exec, train), GT_OK);
    ck_assert_int_eq(exec_download(rig.exec, sum, 0, got, 4), GT_OK);
    ck_assert_float_eq(got[2], 2.0f);
    ck_assert_int_eq(exec_run(rig.exec, evaluate), GT_OK);
    ck_assert_int_eq(exec_upload(rig.exec, ids, 0, ones, 4), GT_OK);
    ck_assert_int_eq(exec_run(rig.exec, train), GT_OK);
    ck_assert_int_eq(exec_download(rig.exec, sum, 0, got, 4), GT_OK);
    ck_assert(isnan(got[2])); /* no op wrote grad in this phase */
    ck_assert_int_eq(exec_download(rig.exec, ids, 0, got, 4), GT_OK);
    ck_assert_float_eq(got[2], 1.0f);
    rig_end(&rig);
}
