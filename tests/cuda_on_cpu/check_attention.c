/* Tests the attention kernels on the emulator, at sizes around their tiles.  Results are judged as in opcheck.
 *
 * opcheck's cases walk through shapes in one arena; here each operand is an allocation of exactly its size, so that the
 * sanitizers see every access beyond it.  Unused rows of a cache are NaN.  Times are 1, 63, 64, 65 and 200; head sizes
 * are the compiled ones and others between them; caches are long enough to be split into parts; dtypes are mixed; a
 * card of capability 7.5 takes the narrow products and one stage.  The cases rotate through the thread orders; cases
 * with time 65 run in all orders and must give the same bits.  16-bit cases with time >= 64 also run with the other
 * launch shapes that --tune may choose, and must give the same bits.  With one or two multiprocessors the backward
 * computes all gradients at once.
 * Options: --all (every time with every head size; minutes) and --only=TEXT (cases whose line contains TEXT).
 * The last line is "checks: P passed, F failed, 0 skipped"; exit status 0 or 1.
 */
#include "ops/infer.h"
#include "separate.h"

struct shape {
    enum op_kind kind;
    enum dtype dtype;
    enum dtype other; /* of y or the cache; DTYPE_COUNT: same as dtype */
    int32_t samples, time, heads, kv_heads, head_size;
    float dropout;
    int64_t capacity; /* of the cache */
    bool documents;
    const char *device;
};

static const char *const orders[ORDERS] = {"desc", "random:11", "asc,lockstep"};

static bool is_half(enum dtype dtype)
{
    return dtype == DTYPE_BF16 || dtype == DTYPE_F16;
}

static void operand_set(struct check_case *check, int32_t slot, enum dtype dtype, int32_t rank, const int64_t *dims)
{
    struct operand *operand = &check->call.operand[slot];
    *operand = (struct operand){.present = true, .dtype = dtype, .rank = rank};
    memcpy(operand->dims, dims, (size_t)rank * sizeof *dims);
}

static void matrix_set(struct check_case *check, int32_t slot, enum dtype dtype, int64_t rows, int64_t columns)
{
    operand_set(check, slot, dtype, 2, (const int64_t[]){rows, columns});
}

/* Builds the case of a shape.  Returns false when op_infer() rejects it. */
static bool case_of(const struct shape *shape, int32_t index, struct check_case *check)
{
    static const enum case_inputs flavours[] = {INPUTS_NORMAL, INPUTS_LARGE, INPUTS_NORMAL, INPUTS_SMALL, INPUTS_HUGE};
    const int64_t rows = (int64_t)shape->samples * shape->time, y = (int64_t)shape->heads * shape->head_size;
    const int64_t width = y + 2 * (int64_t)shape->kv_heads * shape->head_size, words = SCALAR_WORDS;
    const enum dtype other = shape->other == DTYPE_COUNT ? shape->dtype : shape->other;
    *check =
        (struct check_case){.call = {.kind = shape->kind}, .index = index, .seed = 77u + (uint64_t)(uint32_t)index};
    check->inputs = flavours[index % 5];
    check->call.attrs = (struct op_attrs){.time = shape->time,
                                          .heads = shape->heads,
                                          .kv_heads = shape->kv_heads,
                                          .site = 3 + index,
                                          .dropout = shape->dropout,
                                          .softmax_scale = (float)(1.0 / sqrt((double)shape->head_size))};
    if (shape->kind == OP_ATTENTION_FORWARD) {
        matrix_set(check, ATTENTION_FORWARD_QKV, shape->dtype, rows, width);
        operand_set(check, ATTENTION_FORWARD_SCALARS, DTYPE_I32, 1, &words);
        if (shape->other != DTYPE_COUNT)
            matrix_set(check, ATTENTION_FORWARD_Y, other, rows, y);
        if (shape->documents)
            operand_set(check, ATTENTION_FORWARD_FIRST, DTYPE_I32, 1, &rows);
    } else if (shape->kind == OP_ATTENTION_BACKWARD) {
        matrix_set(check, ATTENTION_BACKWARD_DY, other, rows, y);
        matrix_set(check, ATTENTION_BACKWARD_QKV, shape->dtype, rows, width);
        matrix_set(check, ATTENTION_BACKWARD_Y, other, rows, y);
        operand_set(check, ATTENTION_BACKWARD_LSE, DTYPE_F32, 3,
                    (const int64_t[]){shape->samples, shape->heads, shape->time});
        operand_set(check, ATTENTION_BACKWARD_SCALARS, DTYPE_I32, 1, &words);
        if (shape->documents)
            operand_set(check, ATTENTION_BACKWARD_FIRST, DTYPE_I32, 1, &rows);
    } else {
        matrix_set(check, ATTENTION_CACHED_QKV, shape->dtype, rows, width);
        operand_set(check, ATTENTION_CACHED_SCALARS, DTYPE_I32, 1, &words);
        operand_set(check, ATTENTION_CACHED_CACHE, other, 4,
                    (const int64_t[]){2, shape->samples, shape->capacity, (int64_t)shape->kv_heads * shape->head_size});
    }
    return op_infer(&check->call);
}

/* With before == NULL fills the unwritten rows of a cache with NaN.  Otherwise returns true when these rows are still
 * NaN, and restores them from `before`. */
static bool cache_unused(const struct check_case *check, const struct case_data *data, uint8_t *cache,
                         const uint8_t *before)
{
    const struct operand *operand = &check->call.operand[ATTENTION_CACHED_CACHE];
    const int64_t used = (int64_t)data->initial[ATTENTION_CACHED_SCALARS][SCALAR_POSITION] + check->call.attrs.time;
    const size_t row = (size_t)operand->dims[3] * dtype_size_bytes(operand->dtype);
    bool kept = true;
    for (int64_t i = 0; i < 2 * operand->dims[1] * operand->dims[2]; i++) {
        uint8_t *at = cache + (size_t)i * row;
        if (i % operand->dims[2] < used)
            continue;
        for (size_t b = 0; b < row && before != NULL; b++)
            kept = kept && at[b] == 0xff;
        if (before != NULL)
            memcpy(at, before + (size_t)i * row, row);
        else
            memset(at, 0xff, row);
    }
    return kept;
}

/* The unwritten rows of a cache are NaN. */
static void unused_poison(const struct check_case *check, struct case_data *data)
{
    if (check->call.kind == OP_ATTENTION_CACHED)
        cache_unused(check, data, data->after + check->call.operand[ATTENTION_CACHED_CACHE].at.offset_bytes, NULL);
}

/* Runs the case once in one order of threads and judges the result. */
static bool order_check(const struct shape *shape, struct check_case *check, struct case_data *data, const char *order,
                        int32_t variant, char *reason)
{
    const struct setting setting = {.device = shape->device,
                                    .order = order,
                                    .multiprocessors = 1 + check->index / 2 % 2,
                                    .input = -1,
                                    .variant = variant};
    struct verdict verdict = {.passed = false};
    if (!case_run(&setting, check, data, unused_poison, reason))
        return false;
    if (check->call.kind == OP_ATTENTION_CACHED) {
        const size_t at = check->call.operand[ATTENTION_CACHED_CACHE].at.offset_bytes;
        if (!cache_unused(check, data, data->after + at, data->before + at))
            return snprintf(reason, OPCHECK_TEXT_MAX, "unused rows of the cache were written"), false;
    }
    judge(check, data, data->after, &verdict);
    memcpy(reason, verdict.reason, OPCHECK_TEXT_MAX);
    return verdict.passed;
}

/* Hashes all bytes of the outputs. */
static uint64_t outputs_hash(const struct check_case *check, const struct case_data *data)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (int32_t slot = 0; slot < op_declaration(check->call.kind)->operands; slot++) {
        const uint8_t *at = data->after + check->call.operand[slot].at.offset_bytes;
        for (size_t i = 0; i < operand_bytes(&check->call.operand[slot]); i++)
            hash = (hash ^ at[i]) * 0x100000001b3u;
    }
    return hash;
}

#define CARD "86:12g:Card"
#define OLD_CARD "75:8g:Old card"

/* Returns how many other launch shapes the card has for the case when tensor cores compute it. */
static int32_t other_launches(const struct shape *shape)
{
    const bool has = shape->kind != OP_ATTENTION_CACHED && is_half(shape->dtype) && shape->other == DTYPE_COUNT &&
                     shape->time >= 64 && strcmp(shape->device, CARD) == 0;
    return !has ? 0 : shape->kind == OP_ATTENTION_FORWARD ? 1 : 2;
}

static void shape_check(struct totals *totals, const struct shape *shape)
{
    char text[OPCHECK_TEXT_MAX], reason[OPCHECK_TEXT_MAX];
    struct check_case check;
    struct case_data data;
    const int32_t index = totals->cases++;
    const bool inferred = case_of(shape, index, &check);
    if (!case_begin(totals, inferred, &check, text))
        return;
    case_values_make(&check, &data);
    uint64_t first = 0;
    const int32_t in_orders = shape->time == 65 ? ORDERS : 1;
    for (int32_t i = 0; i < in_orders + other_launches(shape); i++) {
        const char *order = orders[(index + i) % ORDERS];
        const int32_t variant = i < in_orders ? 0 : i - in_orders + 1;
        bool passed = order_check(shape, &check, &data, order, variant, reason);
        const uint64_t hash = passed ? outputs_hash(&check, &data) : 0;
        if (passed && i > 0 && hash != first) {
            snprintf(reason, sizeof reason, "other bits than in the %s before", i >= in_orders ? "launch" : "order");
            passed = false;
        }
        first = hash;
        if (!passed)
            printf("FAIL %s, %s, order %s: %s\n", shape->device, text, order, reason);
        count(totals, passed);
        images_free(&data);
    }
    case_data_free(&data);
}

/* Forward and backward in every dtype. */
static void tiles_check(struct totals *totals)
{
    static const int32_t times[] = {1, 63, 64, 65, 200}, sizes[] = {32, 40, 42, 48, 64, 80, 96, 128, 37, 256, 160, 201};
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    static const int32_t heads[][2] = {{2, 1}, {1, 1}, {3, 3}, {4, 2}};
    for (int32_t i = 0; i < 5 * 12 * 3 * 2; i++) {
        const int32_t time = i / 6 % 5, size = i / 30, d = i / 2 % 3;
        const bool is_old = dtypes[d] != DTYPE_BF16 && size % 2 == 1;
        if (!totals->all && (time + size) % 4 != d)
            continue;
        shape_check(totals, &(struct shape){.kind = i % 2 == 0 ? OP_ATTENTION_FORWARD : OP_ATTENTION_BACKWARD,
                                            .dtype = dtypes[d],
                                            .other = DTYPE_COUNT,
                                            .samples = times[time] > 64 ? 1 : 2,
                                            .time = times[time],
                                            .heads = heads[(time + size + d) % 4][0],
                                            .kv_heads = heads[(time + size + d) % 4][1],
                                            .head_size = sizes[size],
                                            .dropout = times[time] > 1 && size % 3 == 0 ? 0.1f : 0.0f,
                                            .documents = (time + size) % 3 == 0,
                                            .device = is_old ? OLD_CARD : CARD});
    }
}

/* Caches longer than a part by one row, by a few and by many; in full caches the rows fill the capacity. */
static void caches_check(struct totals *totals)
{
    static const int32_t rows[][2] = {{1, 129},  {1, 300},  {3, 300}, {1, 4200},
                                      {15, 140}, {16, 200}, {64, 64}, {33, 150}};
    static const int32_t sizes[] = {64, 32, 128, 42, 256};
    for (int32_t i = 0; i < 24; i++) {
        const int32_t kind = i % 8, d = i / 8;
        const enum dtype dtype = d == 0 ? DTYPE_BF16 : d == 1 ? DTYPE_F16 : DTYPE_F32;
        shape_check(totals,
                    &(struct shape){.kind = OP_ATTENTION_CACHED,
                                    .dtype = dtype,
                                    .other = i % 5 == 4 ? (is_half(dtype) ? DTYPE_F32 : DTYPE_BF16) : DTYPE_COUNT,
                                    .samples = 1 + kind % 2,
                                    .time = rows[kind][0],
                                    .heads = 2,
                                    .kv_heads = 1 + i % 2,
                                    .head_size = sizes[(kind + d) % 5],
                                    .capacity = rows[kind][1],
                                    .device = CARD});
    }
}

static void mixtures_check(struct totals *totals)
{
    for (int32_t i = 0; i < 8; i++)
        shape_check(totals, &(struct shape){.kind = i % 2 == 0 ? OP_ATTENTION_FORWARD : OP_ATTENTION_BACKWARD,
                                            .dtype = i / 2 % 2 == 0 ? DTYPE_BF16 : DTYPE_F32,
                                            .other = i / 2 % 2 == 0 ? DTYPE_F32 : DTYPE_F16,
                                            .samples = 2,
                                            .time = 40,
                                            .heads = 2,
                                            .kv_heads = 1,
                                            .head_size = i < 4 ? 48 : 20,
                                            .dropout = 0.2f,
                                            .device = CARD});
}

int main(int argc, char **argv)
{
    struct totals totals = {.passed = 0};
    struct emulator_stats stats;
    if (!arguments_read(&totals, argc, argv))
        return 2;
    tiles_check(&totals);
    caches_check(&totals);
    mixtures_check(&totals);
    emulator_stats_get(&stats);
    printf("%" PRIu64 " products, %" PRIu64 " of %" PRIu64 " phases of ldmatrix with a bank conflict\n", stats.products,
           stats.conflicts, stats.matrix_rows);
    totals.failed += stats.conflicts > 0;
    return finish(&totals);
}
