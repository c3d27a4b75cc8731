/* Tests of plan/plan_verify: sound plans pass, and it detects every way to spoil one that we can
 * think of.
 *
 * Random plans are spoilt one at a time and restored, so that each rejection is due to the one
 * change.
 */
#include <stdio.h>
#include <string.h>

#include "plan/plan_create.h"
#include "plan/plan_item.h"
#include "plan/plan_verify.h"
#include "tests/unit/backend_fixture.h"
#include "tests/unit/graph_fixture.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

enum { RANDOM_GRAPHS = 100 };

struct bench {
    struct hostmem *mem;
    struct graph *graph;
    struct plan *plan;
    int rejected;
};

static void bench_create(struct bench *b, uint64_t seed, uint32_t guard_bytes)
{
    memset(b, 0, sizeof *b);
    ck_assert_int_eq(hostmem_create(&b->mem), GT_OK);
    b->graph = fixture_random_graph(b->mem, seed);
    struct plan_options options = {
        .device = fixture_backend(), .alignment_bytes = 64, .guard_bytes = guard_bytes};
    ck_assert_int_eq(plan_create(b->mem, b->graph, &options, &b->plan), GT_OK);
    ck_assert(plan_verify(b->plan));
}

static void bench_destroy(struct bench *b)
{
    hostmem_free(b->plan);
    hostmem_free(b->graph);
    hostmem_destroy(b->mem);
}

/* Expects that the current plan is rejected with one line. */
static void rejected(struct bench *b, const char *what)
{
    struct log_capture capture;
    log_capture_begin(&capture);
    bool good = plan_verify(b->plan);
    log_capture_end();
    ck_assert_msg(!good, "not found: %s", what);
    ck_assert_int_eq(capture.lines, 1);
    b->rejected++;
}

/* Gives a storage and its views another address. */
static void storage_move(struct bench *b, int32_t storage, struct address to)
{
    for (int32_t t = TENSOR_FIRST; t < b->plan->tensor_count; t++) {
        if (graph_storage(b->graph, t) != storage)
            continue;
        b->plan->tensor[t] = to;
        b->plan->tensor[t].offset_bytes +=
            (uint64_t)b->graph->tensors[t].view_offset * sizeof(float);
    }
}

static void move_is_rejected(struct bench *b, int32_t storage, struct address to, const char *what)
{
    struct address from = b->plan->tensor[storage];
    if (from.segment == to.segment && from.offset_bytes == to.offset_bytes)
        return;
    storage_move(b, storage, to);
    rejected(b, what);
    storage_move(b, storage, from);
}

static int32_t write_slot(const struct op *op)
{
    return op->kind == OP_FILL ? FILL_Y : op->kind == OP_COPY ? COPY_Y : RESIDUAL_R;
}

static int32_t written_by(const struct bench *b, const struct op *op)
{
    return graph_storage(b->graph, op->operand[write_slot(op)]);
}

/* Puts the operands of one op on the same bytes, and its workspace on each of them.  Whole storages
 * only: parts of two tensors may have the same start and not overlap. */
static void spoil_op(struct bench *b, int32_t program, int32_t i)
{
    const struct op *op = &b->graph->programs[program].ops[i];
    int32_t to = op->operand[write_slot(op)], from = op->operand[0];
    if (op->kind == OP_FILL || b->graph->tensors[to].base != TENSOR_NONE ||
        b->graph->tensors[from].base != TENSOR_NONE)
        return;
    if (from != to)
        move_is_rejected(b, to, b->plan->tensor[from], "an op that writes over what it reads");
    if (b->plan->workspace_bytes[program][i] == 0)
        return;
    struct address workspace = b->plan->workspace[program][i];
    b->plan->workspace[program][i] = b->plan->tensor[from];
    rejected(b, "a workspace over an input");
    b->plan->workspace[program][i] = b->plan->tensor[to];
    rejected(b, "a workspace over an output");
    b->plan->workspace[program][i] = workspace;
    b->plan->workspace[program][i].offset_bytes += 4;
    rejected(b, "a workspace that is not aligned");
    b->plan->workspace[program][i] = workspace;
    b->plan->workspace_bytes[program][i]--;
    rejected(b, "a workspace smaller than the backend asked for");
    b->plan->workspace_bytes[program][i]++;
}

/* For a read of a whole storage at op k: no other storage that an op writes between its last write
 * and k may overlap it. */
static void spoil_between(struct bench *b, int32_t program, int32_t k)
{
    const struct program *p = &b->graph->programs[program];
    const struct op *reader = &p->ops[k];
    int32_t storage = reader->operand[0];
    if (reader->kind == OP_FILL || b->graph->tensors[storage].base != TENSOR_NONE)
        return;
    for (int32_t j = k - 1; j >= 0 && written_by(b, &p->ops[j]) != storage; j--) {
        int32_t other = p->ops[j].operand[write_slot(&p->ops[j])];
        const struct tensor *tensor = &b->graph->tensors[other];
        if (tensor->base == TENSOR_NONE && tensor->lifetime == LIFETIME_PROGRAM && !tensor->input)
            move_is_rejected(b, other, b->plan->tensor[storage],
                             "a write over bytes that are read later");
    }
}

static void spoil_storage(struct bench *b, int32_t t)
{
    struct address at = b->plan->tensor[t];
    if (at.offset_bytes == PLAN_UNPLACED)
        return;
    struct address to = at;
    to.offset_bytes += 4;
    move_is_rejected(b, t, to, "a tensor that is not aligned");
    to.offset_bytes = b->plan->segment[0].size_bytes;
    move_is_rejected(b, t, to, "a tensor at the end of the arena");
    to.offset_bytes = UINT64_MAX - 63;
    move_is_rejected(b, t, to, "an offset that wraps");
    to = at;
    to.segment = 1;
    move_is_rejected(b, t, to, "a segment that does not exist");
}

TEST(spoilt_random_plans_are_rejected)
{
    int rejections = 0;
    for (uint64_t n = 0; n < RANDOM_GRAPHS; n++) {
        struct bench b;
        bench_create(&b, unit_seed() + 1000 + n, n % 2 ? 64 : 0);
        struct fixture_random random = {.seed = unit_seed() + n};
        for (int32_t tries = 0; tries < 6; tries++) {
            int32_t program = fixture_below(&random, b.graph->program_count);
            int32_t op = fixture_below(&random, b.graph->programs[program].count);
            spoil_op(&b, program, op);
            spoil_between(&b, program, op);
            int32_t t = TENSOR_FIRST + fixture_below(&random, b.graph->tensor_count - TENSOR_FIRST);
            if (b.graph->tensors[t].base == TENSOR_NONE)
                spoil_storage(&b, t);
        }
        ck_assert(plan_verify(b.plan)); /* restored */
        rejections += b.rejected;
        bench_destroy(&b);
    }
    printf("spoilt plans: %d, all rejected\n", rejections);
    ck_assert_int_gt(rejections, 20 * RANDOM_GRAPHS);
}

/* A plan small enough to spoil each part by name. */
struct hand {
    struct bench b;
    int32_t run, phase, in, a, view, out, other_phase, program;
};

static void hand_create(struct hand *h, uint32_t guard_bytes)
{
    memset(h, 0, sizeof *h);
    ck_assert_int_eq(hostmem_create(&h->b.mem), GT_OK);
    ck_assert_int_eq(graph_create(h->b.mem, &h->b.graph), GT_OK);
    struct graph *g = h->b.graph;
    h->run = fixture_tensor(g, "run", 2, 16, LIFETIME_RUN, CATEGORY_PARAMETER);
    h->phase = fixture_tensor(g, "phase", 2, 16, LIFETIME_PHASE, CATEGORY_GRADIENT);
    h->other_phase = fixture_tensor(g, "cache", 2, 16, LIFETIME_PHASE, CATEGORY_CACHE);
    g->tensors[h->other_phase].phase = PHASE_GENERATE;
    h->in = fixture_tensor(g, "in", 2, 16, LIFETIME_PROGRAM, CATEGORY_DATA);
    g->tensors[h->in].input = true;
    h->program = fixture_program(g, PROGRAM_TRAIN_FIRST);
    h->a = fixture_copy(g, h->program, h->run, TENSOR_NONE, false);
    h->out = fixture_residual(g, h->program, h->a, h->in, TENSOR_NONE);
    g->tensors[h->out].output = true;
    ck_assert_int_eq(graph_view_add(g, h->a, 1, 1, &h->view), GT_OK);
    int32_t row = fixture_copy(g, h->program, h->view, TENSOR_NONE, false);
    fixture_copy(g, h->program, row, TENSOR_NONE, false);
    int32_t generate = fixture_program(g, PROGRAM_DECODE);
    fixture_fill(g, generate, h->other_phase, 0.0f);
    fixture_fill(g, h->program, h->phase, 0.0f);
    struct plan_options options = {.alignment_bytes = 64, .guard_bytes = guard_bytes};
    ck_assert_int_eq(plan_create(h->b.mem, g, &options, &h->b.plan), GT_OK);
    ck_assert(plan_verify(h->b.plan));
}

TEST(what_persists_may_not_be_written_by_others)
{
    struct hand h;
    hand_create(&h, 0);
    const struct plan *plan = h.b.plan;
    move_is_rejected(&h.b, h.a, plan->tensor[h.run], "a temporary over a run tensor");
    move_is_rejected(&h.b, h.out, plan->tensor[h.phase],
                     "a temporary over a phase tensor that was written before");
    move_is_rejected(&h.b, h.phase, plan->tensor[h.run], "a phase tensor over a run tensor");
    move_is_rejected(&h.b, h.in, plan->tensor[h.run], "an input over a run tensor");
    move_is_rejected(&h.b, h.in, plan->tensor[h.a],
                     "an input that is overwritten before it is read");
    bench_destroy(&h.b);
}

/* All bytes of an operand belong to it when it is read, not only the first ones. */
TEST(the_end_of_an_operand_counts)
{
    struct bench b = {.graph = NULL};
    ck_assert_int_eq(hostmem_create(&b.mem), GT_OK);
    ck_assert_int_eq(graph_create(b.mem, &b.graph), GT_OK);
    const int32_t program = fixture_program(b.graph, PROGRAM_TRAIN_FIRST);
    const int32_t wide =
        fixture_tensor(b.graph, "wide", 4, 16, LIFETIME_PROGRAM, CATEGORY_TEMPORARY);
    const int32_t narrow =
        fixture_tensor(b.graph, "narrow", 1, 16, LIFETIME_PROGRAM, CATEGORY_TEMPORARY);
    fixture_fill(b.graph, program, wide, 1.0f);
    fixture_fill(b.graph, program, narrow, 2.0f);
    fixture_copy(b.graph, program, wide, TENSOR_NONE, false);
    fixture_copy(b.graph, program, narrow, TENSOR_NONE, false);
    struct plan_options options = {.device = fixture_backend(), .alignment_bytes = 64};
    ck_assert_int_eq(plan_create(b.mem, b.graph, &options, &b.plan), GT_OK);
    ck_assert(plan_verify(b.plan));
    for (uint64_t part = 0; part < 4; part++) {
        struct address to = b.plan->tensor[wide];
        to.offset_bytes += 64 * part;
        move_is_rejected(&b, narrow, to, "a temporary over a part of one that is still to be read");
    }
    ck_assert_int_eq(b.rejected, 4);
    bench_destroy(&b);
}

TEST(outputs_survive_to_the_end)
{
    struct hand h;
    hand_create(&h, 0);
    /* The last temporary is written after the output, and no op of the program reads the output. */
    int32_t last = h.b.graph->programs[h.program].ops[3].operand[COPY_Y];
    move_is_rejected(&h.b, last, h.b.plan->tensor[h.out], "a temporary over an output");
    h.b.graph->tensors[h.out].output = false;
    struct address from = h.b.plan->tensor[last];
    storage_move(&h.b, last, h.b.plan->tensor[h.out]);
    ck_assert(plan_verify(h.b.plan)); /* allowed once it is not an output */
    storage_move(&h.b, last, from);
    bench_destroy(&h.b);
}

TEST(guards_are_bytes_of_their_own)
{
    struct hand h;
    hand_create(&h, 64);
    struct address at = h.b.plan->tensor[h.run];
    at.offset_bytes += 128; /* moves its guard */
    move_is_rejected(&h.b, h.a, at, "a temporary over a guard");
    at = h.b.plan->tensor[h.a];
    at.offset_bytes += 128;
    move_is_rejected(&h.b, h.out, at, "an output over the guard of its op's input");
    bench_destroy(&h.b);
}

TEST(views_segments_and_addresses_are_checked)
{
    struct hand h;
    hand_create(&h, 0);
    struct plan *plan = h.b.plan;
    plan->tensor[h.view].offset_bytes += 64;
    rejected(&h.b, "a view that left its base");
    plan->tensor[h.view].offset_bytes -= 64;
    plan->segment[0].size_bytes -= 64;
    rejected(&h.b, "segments that do not add up");
    plan->arena_bytes -= 64;
    rejected(&h.b, "an arena too small for its tensors");
    plan->arena_bytes += 64;
    plan->segment[0].size_bytes += 64;
    plan->options.largest_segment_bytes = plan->segment[0].size_bytes - 1;
    rejected(&h.b, "a segment that the device cannot have");
    plan->options.largest_segment_bytes = 0;
    struct address from = plan->tensor[h.out];
    plan->tensor[h.out].offset_bytes = PLAN_UNPLACED;
    rejected(&h.b, "an operand without an address");
    plan->tensor[h.out] = from;
    h.b.graph->tensors[h.phase].phase = PHASE_GENERATE;
    h.b.graph->tensors[h.other_phase].phase = PHASE_TRAIN;
    rejected(&h.b, "a tensor of another phase");
    bench_destroy(&h.b);
}

/* Host memory is for fetch and store alone. */
TEST(each_memory_has_its_tensors)
{
    struct bench b = {.graph = NULL};
    ck_assert_int_eq(hostmem_create(&b.mem), GT_OK);
    ck_assert_int_eq(graph_create(b.mem, &b.graph), GT_OK);
    const int32_t home = fixture_tensor(b.graph, "state", 4, 16, LIFETIME_RUN, CATEGORY_MOMENT);
    const int32_t other = fixture_tensor(b.graph, "other", 4, 16, LIFETIME_RUN, CATEGORY_MOMENT);
    b.graph->tensors[home].home = b.graph->tensors[other].home = SPACE_HOST;
    const struct graph_pen pen = {.graph = b.graph,
                                  .program = fixture_program(b.graph, PROGRAM_UPDATE)};
    int32_t copied;
    ck_assert_int_eq(GRAPH_ADD(FETCH, &pen, "state", &copied, .x = home), GT_OK);
    ck_assert_int_eq(GRAPH_ADD(WAIT, &pen, "state", NULL, .x = home, .y = copied), GT_OK);
    const int32_t sum = fixture_copy(b.graph, pen.program, copied, TENSOR_NONE, false);
    ck_assert_int_eq(GRAPH_ADD(STORE, &pen, "state", NULL, .x = sum, .y = other), GT_OK);
    ck_assert_int_eq(GRAPH_ADD(WAIT, &pen, "state", NULL, .x = sum, .y = other), GT_OK);
    const struct plan_options options = {.alignment_bytes = 64};
    ck_assert_int_eq(plan_create(b.mem, b.graph, &options, &b.plan), GT_OK);
    ck_assert(plan_verify(b.plan));
    ck_assert_uint_eq(b.plan->arena_bytes, 2 * 256);
    ck_assert_uint_eq(b.plan->host_bytes, 2 * 256);
    ck_assert_int_eq(b.plan->segment_count, 2);
    ck_assert_int_eq(b.plan->device_segments, 1);
    struct op *copy = &b.graph->programs[pen.program].ops[2],
              *last = &b.graph->programs[pen.program].ops[3];
    copy->operand[COPY_X] = home;
    rejected(&b, "an op that reads host memory");
    copy->operand[COPY_X] = copied;
    last->operand[STORE_Y] = copied;
    rejected(&b, "a store to the device's memory");
    last->operand[STORE_Y] = other;
    move_is_rejected(&b, other, b.plan->tensor[home], "a state over another");
    b.plan->tensor[home].space = SPACE_DEVICE;
    rejected(&b, "a state on the device that lives in host memory");
    b.plan->tensor[home].space = SPACE_HOST;
    b.plan->segment[1].space = SPACE_DEVICE;
    rejected(&b, "a segment in the wrong memory");
    b.plan->segment[1].space = SPACE_HOST;
    b.plan->host_bytes += 64;
    rejected(&b, "an arena that is not the sum of its segments");
    bench_destroy(&b);
}

static void ops_swap(struct op *a, struct op *b)
{
    const struct op first = *a;
    *a = *b;
    *b = first;
}

/* A program that passes eight slices of a state through three buffers, as the update does. */
TEST(copies_beside_computing_end_before_their_operands_are_used)
{
    enum { SLICES = 8, WAITS = 2 * SLICES };
    struct bench b = {.graph = NULL};
    int32_t host[SLICES], device[SLICES], home, found = 0;
    ck_assert_int_eq(hostmem_create(&b.mem), GT_OK);
    ck_assert_int_eq(graph_create(b.mem, &b.graph), GT_OK);
    home = fixture_tensor(b.graph, "state", SLICES, 64, LIFETIME_RUN, CATEGORY_MOMENT);
    b.graph->tensors[home].home = SPACE_HOST;
    const struct graph_pen pen = {.graph = b.graph,
                                  .program = fixture_program(b.graph, PROGRAM_UPDATE)};
    for (int32_t i = 0; i <= SLICES; i++) {
        if (i < SLICES) {
            ck_assert_int_eq(graph_view_add(b.graph, home, i, 1, &host[i]), GT_OK);
            ck_assert_int_eq(GRAPH_ADD(FETCH, &pen, "state", &device[i], .x = host[i]), GT_OK);
        }
        if (i == 0)
            continue;
        const int32_t from = host[i - 1], to = device[i - 1];
        ck_assert_int_eq(GRAPH_ADD(WAIT, &pen, "state", NULL, .x = from, .y = to), GT_OK);
        ck_assert_int_eq(GRAPH_ADD(COPY, &pen, "state", NULL, .x = to, .y = to), GT_OK);
        ck_assert_int_eq(GRAPH_ADD(STORE, &pen, "state", NULL, .x = to, .y = from), GT_OK);
        ck_assert_int_eq(GRAPH_ADD(WAIT, &pen, "state", NULL, .x = to, .y = from), GT_OK);
    }
    const struct plan_options options = {.alignment_bytes = 64};
    ck_assert_int_eq(plan_create(b.mem, b.graph, &options, &b.plan), GT_OK);
    ck_assert(plan_verify(b.plan));
    struct program *program = &b.graph->programs[pen.program];
    for (int32_t i = 0; i < program->count; i++) {
        struct op *op = &program->ops[i], kept = *op;
        if (op->kind != OP_WAIT)
            continue;
        found++;
        op->operand[WAIT_X] = op->operand[WAIT_Y] =
            device[0] == kept.operand[WAIT_Y] ? home : device[0];
        rejected(&b, "a wait that names another copy");
        *op = kept;
        if (kept.operand[WAIT_Y] == program->ops[i + 1].operand[COPY_X]) {
            ops_swap(op, op + 1);
            rejected(&b, "a wait after the use of what was fetched");
            ops_swap(op, op + 1);
        } else {
            ops_swap(op, op - 1);
            rejected(&b, "a wait before its store");
            ops_swap(op, op - 1);
        }
    }
    ck_assert_int_eq(found, WAITS);
    for (int32_t i = 0; i + 1 < SLICES; i++) {
        const struct address at = b.plan->tensor[device[i]];
        b.plan->tensor[device[i]] = b.plan->tensor[device[i + 1]];
        rejected(&b, "two slices in one buffer");
        b.plan->tensor[device[i]] = at;
        b.graph->tensors[host[i]].view_offset++;
        rejected(&b, "a slice that is off by one");
        b.graph->tensors[host[i]].view_offset--;
    }
    ck_assert(plan_verify(b.plan));
    bench_destroy(&b);
}

TEST(reads_before_writes_and_short_memory_fail)
{
    struct hand h;
    hand_create(&h, 0);
    h.b.graph->tensors[h.in].input = false;
    rejected(&h.b, "a read of what nobody wrote");
    h.b.graph->tensors[h.in].input = true;
    for (size_t n = 1; n <= 2; n++) {
        hostmem_fail_at(h.b.mem, n);
        rejected(&h.b, "no memory");
    }
    ck_assert(plan_verify(h.b.plan));
    struct hostmem_counters before, after;
    hostmem_counters_get(h.b.mem, &before);
    ck_assert(plan_verify(h.b.plan));
    hostmem_counters_get(h.b.mem, &after);
    ck_assert_uint_eq(before.live_bytes, after.live_bytes);
    bench_destroy(&h.b);
}
