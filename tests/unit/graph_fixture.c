/* The graphs of the plan's and exec's tests; see the header.
 *
 * A random program has a list of readable tensors: persistent tensors, inputs, finished temporaries
 * and views of them. A base that is written row by row through views joins the list after its last
 * row is written.
 */
#include "tests/unit/graph_fixture.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"

enum { READABLE_MAX = 512, PENDING_MAX = 4 };

int32_t fixture_below(struct fixture_random *random, int32_t bound)
{
    struct philox_block counter = {
        {(uint32_t)random->draws, (uint32_t)(random->draws >> 32), 0, 0}};
    random->draws++;
    struct philox_block block = philox4x32_10(philox_key_make(random->seed, RNG_SAMPLE), counter);
    return (int32_t)philox_below(block.word[0], block.word[1], (uint64_t)bound);
}

int32_t fixture_tensor(struct graph *graph, const char *name, int64_t rows, int64_t columns,
                       enum tensor_lifetime lifetime, enum tensor_category category)
{
    struct tensor proto = {
        .dtype = DTYPE_F32,
        .rank = 2,
        .dims = {rows, columns},
        .category = category,
        .lifetime = lifetime,
        .phase = PHASE_TRAIN,
    };
    snprintf(proto.name, sizeof proto.name, "%s", name);
    int32_t tensor = TENSOR_NONE;
    ck_assert_int_eq(graph_tensor_add(graph, &proto, &tensor), GT_OK);
    return tensor;
}

int32_t fixture_program(struct graph *graph, enum program_kind kind)
{
    int32_t program = -1;
    ck_assert_int_eq(graph_program_add(graph, kind, &program), GT_OK);
    return program;
}

static int32_t op_add(struct graph *graph, int32_t program, enum op_kind kind,
                      union op_arguments *arguments)
{
    int32_t out = TENSOR_NONE;
    struct graph_pen pen = {.graph = graph, .program = program, .pass = PASS_FORWARD, .layer = -1};
    char name[32];
    snprintf(name, sizeof name, "p%d.%d", (int)program, (int)graph->programs[program].count);
    ck_assert_int_eq(graph_op_add(&pen, kind, name, arguments, &out), GT_OK);
    return out;
}

int32_t fixture_fill(struct graph *graph, int32_t program, int32_t to, float value)
{
    return op_add(graph, program, OP_FILL, OP_ARGUMENTS(FILL, .y = to, .attrs.value = value));
}

int32_t fixture_copy(struct graph *graph, int32_t program, int32_t from, int32_t to,
                     bool accumulate)
{
    const uint32_t added = accumulate ? 1u << COPY_Y : 0;
    return op_add(graph, program, OP_COPY,
                  OP_ARGUMENTS(COPY, .x = from, .y = to, .attrs.accumulate = added));
}

int32_t fixture_residual(struct graph *graph, int32_t program, int32_t x, int32_t y, int32_t to)
{
    return op_add(graph, program, OP_RESIDUAL, OP_ARGUMENTS(RESIDUAL, .x = x, .y = y, .r = to));
}

struct pending {
    int32_t base;
    int64_t next_row;
};

struct maker {
    struct graph *graph;
    struct fixture_random random;
    int32_t program;
    int32_t readable[READABLE_MAX];
    int32_t readable_count;
    struct pending pending[PENDING_MAX];
    int32_t pending_count;
};

static int32_t below(struct maker *maker, int32_t bound)
{
    return fixture_below(&maker->random, bound);
}

static void readable_add(struct maker *maker, int32_t tensor)
{
    if (maker->readable_count < READABLE_MAX)
        maker->readable[maker->readable_count++] = tensor;
}

static int32_t random_tensor(struct maker *maker, const char *what, enum tensor_lifetime lifetime)
{
    static const int64_t columns[] = {3, 17, 64, 400};
    static const enum tensor_category categories[] = {CATEGORY_PARAMETER, CATEGORY_GRADIENT,
                                                      CATEGORY_TEMPORARY};
    char name[48];
    snprintf(name, sizeof name, "%s%d", what, (int)maker->graph->tensor_count);
    return fixture_tensor(maker->graph, name, 1 + below(maker, 5), columns[below(maker, 4)],
                          lifetime, categories[lifetime]);
}

/* Returns one of the readable tensors; recent ones more often, so that most lifetimes are short. */
static int32_t random_readable(struct maker *maker)
{
    int32_t back = below(maker, 3)
                       ? below(maker, maker->readable_count < 6 ? maker->readable_count : 6)
                       : below(maker, maker->readable_count);
    return maker->readable[maker->readable_count - 1 - back];
}

/* Returns a readable tensor of the same shape, with another storage than `than` unless `or_self`;
 * TENSOR_NONE when there is none. */
static int32_t random_like(struct maker *maker, int32_t than, bool or_self)
{
    const struct tensor *model = &maker->graph->tensors[than];
    int32_t start = below(maker, maker->readable_count);
    for (int32_t i = 0; i < maker->readable_count; i++) {
        int32_t tensor = maker->readable[(start + i) % maker->readable_count];
        const struct tensor *t = &maker->graph->tensors[tensor];
        bool same = graph_storage(maker->graph, tensor) == graph_storage(maker->graph, than);
        if (t->dims[0] == model->dims[0] && t->dims[1] == model->dims[1] && (!same || or_self))
            return tensor;
    }
    return TENSOR_NONE;
}

static void pending_advance(struct maker *maker)
{
    if (maker->pending_count == 0)
        return;
    int32_t which = below(maker, maker->pending_count);
    struct pending *pending = &maker->pending[which];
    int32_t view = TENSOR_NONE;
    ck_assert_int_eq(graph_view_add(maker->graph, pending->base, pending->next_row, 1, &view),
                     GT_OK);
    fixture_fill(maker->graph, maker->program, view, (float)below(maker, 100));
    if (below(maker, 2))
        readable_add(maker, view);
    if (++pending->next_row < maker->graph->tensors[pending->base].dims[0])
        return;
    readable_add(maker, pending->base);
    maker->pending[which] = maker->pending[--maker->pending_count];
}

static void view_read(struct maker *maker)
{
    int32_t from = random_readable(maker), view = TENSOR_NONE;
    int64_t rows = maker->graph->tensors[from].dims[0];
    if (rows < 2)
        return;
    int64_t first = below(maker, (int32_t)rows), count = 1 + below(maker, (int32_t)(rows - first));
    ck_assert_int_eq(graph_view_add(maker->graph, from, first, count, &view), GT_OK);
    readable_add(maker, fixture_copy(maker->graph, maker->program, view, TENSOR_NONE, false));
}

static void op_random(struct maker *maker)
{
    struct graph *graph = maker->graph;
    int32_t x = random_readable(maker), y;
    switch (below(maker, 9)) {
    case 0:
        y = random_tensor(maker, "filled", LIFETIME_PROGRAM);
        readable_add(maker, fixture_fill(graph, maker->program, y, (float)below(maker, 100)));
        return;
    case 1:
    case 2:
        readable_add(maker, fixture_copy(graph, maker->program, x, TENSOR_NONE, false));
        return;
    case 3:
    case 4:
        y = random_like(maker, x, true);
        readable_add(maker, fixture_residual(graph, maker->program, x, y, TENSOR_NONE));
        return;
    case 5:
        y = random_like(maker, x, false);
        if (y != TENSOR_NONE)
            fixture_copy(graph, maker->program, x, y, below(maker, 2) == 0);
        return;
    case 6:
        if (maker->pending_count < PENDING_MAX)
            maker->pending[maker->pending_count++] =
                (struct pending){random_tensor(maker, "rows", LIFETIME_PROGRAM), 0};
        return;
    case 7:
        pending_advance(maker);
        return;
    default:
        view_read(maker);
        return;
    }
}

static void program_random(struct maker *maker)
{
    struct graph *graph = maker->graph;
    static const enum program_kind kinds[PHASE_COUNT] = {PROGRAM_TRAIN_FIRST, PROGRAM_EVALUATE,
                                                         PROGRAM_DECODE};
    const enum program_kind kind = kinds[below(maker, PHASE_COUNT)];
    const enum program_phase phase = program_kind_phase(kind);
    maker->program = fixture_program(graph, kind);
    maker->readable_count = maker->pending_count = 0;
    for (int32_t t = TENSOR_FIRST; t < graph->tensor_count; t++) {
        const struct tensor *tensor = &graph->tensors[t];
        if (tensor->base == TENSOR_NONE &&
            (tensor->lifetime == LIFETIME_RUN ||
             (tensor->lifetime == LIFETIME_PHASE && tensor->phase == phase)))
            readable_add(maker, t);
    }
    int32_t own = graph->tensor_count;
    for (int32_t i = below(maker, 3); i > 0; i--) {
        int32_t input = random_tensor(maker, "input", LIFETIME_PROGRAM);
        graph->tensors[input].input = true;
        readable_add(maker, input);
        readable_add(maker, fixture_copy(graph, maker->program, input, TENSOR_NONE, false));
    }
    for (int32_t i = 3 + below(maker, 60); i > 0; i--)
        op_random(maker);
    while (maker->pending_count > 0)
        pending_advance(maker);
    for (int32_t t = own; t < graph->tensor_count; t++) {
        graph->tensors[t].phase = phase;
        if (graph->tensors[t].base == TENSOR_NONE && below(maker, 8) == 0)
            graph->tensors[t].output = true;
    }
}

struct graph *fixture_random_graph(struct hostmem *mem, uint64_t seed)
{
    struct maker maker = {.random = {.seed = seed}};
    ck_assert_int_eq(graph_create(mem, &maker.graph), GT_OK);
    for (int32_t i = 1 + below(&maker, 4); i > 0; i--)
        random_tensor(&maker, "run", LIFETIME_RUN);
    for (int32_t i = below(&maker, 7); i > 0; i--) {
        int32_t tensor = random_tensor(&maker, "phase", LIFETIME_PHASE);
        maker.graph->tensors[tensor].phase = (enum program_phase)below(&maker, PHASE_COUNT);
    }
    int32_t programs = 1 + below(&maker, 5);
    for (int32_t p = 0; p < programs; p++)
        program_random(&maker);
    return maker.graph;
}
