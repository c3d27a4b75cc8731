/* The shapes that ops are checked with: 1, odd ones, ones off every tile, and those of a 124M model
 * kept cheap.
 *
 * A case is a pure function of (op, dtype, index, seed).  Low indices walk through the listed
 * sizes, higher ones draw from them.  Optional operands, transposes, accumulation and kinds change
 * with the index, so that every combination occurs.  The dtype is that of activations.  Tensors
 * that a model keeps in fp32 (gains, biases, gradients of parameters, masters, moments) are fp32 in
 * two cases of three, and have the activations' dtype in the third.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/infer.h"
#include "tests/opcheck/opcheck.h"

#define CASES_DEFAULT 100
#define CASES_WIDE 150 /* ops with transposes, heads or padding */

static const int64_t sizes[] = {1,  2,  3,  5,  7,  8,  15,  16,  17,  31,
                                32, 33, 48, 63, 64, 65, 100, 127, 128, 129};

uint32_t random_word(struct random *random)
{
    struct philox_key key = {{(uint32_t)random->seed, (uint32_t)(random->seed >> 32)}};
    struct philox_block counter = {{random->draws++, 0x6f706368u, 0u, 0u}};
    return philox4x32_10(key, counter).word[0];
}

int64_t random_below(struct random *random, int64_t bound)
{
    return (int64_t)((uint64_t)random_word(random) * (uint64_t)bound >> 32);
}

/* Returns the sum of eight uniform 16-bit numbers, scaled to variance 1.  All eight come from one
 * block, and no function of libm is involved, so that a seed gives the same values everywhere. */
double random_normal(struct random *random)
{
    struct philox_key key = {{(uint32_t)random->seed, (uint32_t)(random->seed >> 32)}};
    struct philox_block block =
        philox4x32_10(key, (struct philox_block){{random->draws++, 0x6e6f726du, 0u, 0u}});
    int64_t sum = -8 * 0x7fff - 4; /* minus the mean */
    for (int i = 0; i < 4; i++)
        sum += (int64_t)(block.word[i] >> 16) + (int64_t)(block.word[i] & 0xffffu);
    return (double)sum * (1.2247448713915890 * 0x1p-16); /* sqrt(12 / 8) */
}

int64_t case_size(struct maker *maker, int64_t max)
{
    int64_t size = maker->index < COUNT(sizes) ? sizes[maker->index]
                                               : sizes[random_below(&maker->random, COUNT(sizes))];
    return size <= max ? size : 1 + random_below(&maker->random, max);
}

int64_t case_any_size(struct maker *maker, int64_t max)
{
    int64_t size = sizes[random_below(&maker->random, COUNT(sizes))];
    return size <= max ? size : 1 + random_below(&maker->random, max);
}

void case_tensor(struct maker *maker, int32_t slot, enum dtype dtype, int64_t rows, int64_t columns)
{
    struct operand *operand = &maker->check->call.operand[slot];
    operand->present = true;
    operand->dtype = dtype;
    operand->rank = columns > 0 ? 2 : 1;
    operand->dims[0] = rows;
    operand->dims[1] = columns;
}

void case_scalars(struct maker *maker, int32_t slot)
{
    case_tensor(maker, slot, DTYPE_I32, SCALAR_WORDS, 0);
}

struct op_attrs *case_attrs(struct maker *maker)
{
    return &maker->check->call.attrs;
}

void case_accumulate(struct maker *maker, uint32_t mask)
{
    case_attrs(maker)->accumulate = mask;
}

/* The bases include odd ones and some beyond 32 bits. */
int64_t case_lean_elements(struct maker *maker)
{
    static const int64_t counts[] = {1, 7, 255, 256, 257, 511, 512, 513, 1000, 4099, 100};
    static const int64_t bases[] = {0, 3, 8, 1000000005, INT64_C(34359738367), 38597376};
    case_attrs(maker)->index_base = bases[maker->index / 2 % COUNT(bases)];
    return counts[maker->index % COUNT(counts)];
}

int32_t cases_count(enum op_kind kind, enum dtype dtype)
{
    const uint32_t floats = 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16;
    const struct op_test *test = op_test(kind);
    if (((test->dtypes != 0 ? test->dtypes : floats) >> dtype & 1u) == 0)
        return 0;
    return test->has_many_variants ? CASES_WIDE : CASES_DEFAULT;
}

/* Infers twice: the first pass makes the outputs, the second finds the accumulated ones bound. */
static bool case_infer(struct check_case *check)
{
    uint32_t accumulate = check->call.attrs.accumulate;
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++)
        if (!case_operand(check, slot)->present)
            check->call.attrs.accumulate &= ~(1u << slot);
    if (!op_infer(&check->call))
        return false;
    check->call.attrs.accumulate = accumulate;
    return op_infer(&check->call);
}

bool case_make(enum op_kind kind, enum dtype dtype, int32_t index, uint64_t seed,
               struct check_case *out)
{
    static const enum case_inputs flavours[] = {INPUTS_NORMAL, INPUTS_INTEGER, INPUTS_NORMAL,
                                                INPUTS_LARGE,  INPUTS_SMALL,   INPUTS_NORMAL,
                                                INPUTS_HUGE,   INPUTS_SPECIAL};
    struct maker maker = {.check = out, .dtype = dtype, .index = index};
    maker.kept = index / 2 % 3 != 0 ? DTYPE_F32 : dtype;
    *out = (struct check_case){.call = {.kind = kind}, .index = index};
    out->seed = seed ^ ((uint64_t)kind << 40) ^ ((uint64_t)(uint32_t)index << 20) ^ (uint64_t)dtype;
    out->inputs = flavours[(index + index / 8) %
                           COUNT(flavours)]; /* shifted, to meet every combination of attributes */
    maker.random.seed = out->seed;
    op_test(kind)->shape(&maker);
    return case_infer(out);
}

void bench_plain(struct maker *maker)
{
    const struct op_call *call = &maker->check->call;
    case_attrs(maker)->time = BENCH_TIME;
    for (int32_t slot = 0; slot < op_declaration(call->kind)->operands; slot++) {
        const struct operand *operand = &call->operand[slot];
        if (!operand->present || operand->dtype == DTYPE_I32)
            continue;
        if (operand->rank == 2)
            case_tensor(maker, slot, operand->dtype, BENCH_ROWS, BENCH_CHANNELS);
        else
            case_tensor(maker, slot, operand->dtype, BENCH_CHANNELS, 0);
    }
}

void bench_wide(struct maker *maker)
{
    const struct op_call *call = &maker->check->call;
    for (int32_t slot = 0; slot < op_declaration(call->kind)->operands; slot++) {
        if (call->operand[slot].present && call->operand[slot].dtype != DTYPE_I32)
            case_tensor(maker, slot, call->operand[slot].dtype, BENCH_ROWS, BENCH_WIDE);
    }
}

bool case_make_bench(enum op_kind kind, enum dtype dtype, int32_t product, struct check_case *out)
{
    struct maker maker = {.check = out,
                          .dtype = dtype,
                          .kept = DTYPE_F32,
                          .index = 1,
                          .random = {.seed = 1},
                          .product = product};
    *out = (struct check_case){.call = {.kind = kind}, .index = 1, .seed = 1};
    op_test(kind)->shape(&maker);
    out->call.attrs.accumulate = 0;
    out->call.attrs.transpose_a = out->call.attrs.transpose_b = false;
    op_test(kind)->bench(&maker);
    for (size_t i = 0; i < sizeof op_test(kind)->bench_dims / sizeof op_test(kind)->bench_dims[0];
         i++) {
        const int64_t *dims = op_test(kind)->bench_dims[i].dims;
        struct operand *operand = &out->call.operand[op_test(kind)->bench_dims[i].slot];
        for (int32_t d = 0; d < OP_RANK_MAX && dims[d] > 0; d++) {
            operand->dims[d] = dims[d];
            operand->rank = d + 1;
        }
    }
    return op_infer(&out->call);
}

void case_text(const struct check_case *check, char text[static OPCHECK_TEXT_MAX])
{
    static const char *const names[] = {"normal", "integer", "large", "small", "huge", "special"};
    static const char *const dtypes[DTYPE_COUNT] = {"f32", "bf16", "f16", "i32", "u8", "f64"};
    const struct op_declaration *declaration = op_declaration(check->call.kind);
    int used = snprintf(text, OPCHECK_TEXT_MAX, "%s case %" PRId32 " (%s)", declaration->name,
                        check->index, names[check->inputs]);
    for (int32_t slot = 0; slot < declaration->operands && used > 0 && used < OPCHECK_TEXT_MAX - 64;
         slot++) {
        const struct operand *operand = &check->call.operand[slot];
        if (!operand->present || strcmp(op_operand_name(check->call.kind, slot), "scalars") == 0)
            continue;
        used += snprintf(text + used, (size_t)(OPCHECK_TEXT_MAX - used), " %s %s",
                         op_operand_name(check->call.kind, slot), dtypes[operand->dtype]);
        for (int32_t i = 0; i < operand->rank; i++)
            used += snprintf(text + used, (size_t)(OPCHECK_TEXT_MAX - used), "%c%" PRId64,
                             i == 0 ? '[' : ',', operand->dims[i]);
        used += snprintf(text + used, (size_t)(OPCHECK_TEXT_MAX - used), "]");
    }
    if (used > 0 && used < OPCHECK_TEXT_MAX && check->call.attrs.accumulate != 0)
        snprintf(text + used, (size_t)(OPCHECK_TEXT_MAX - used), " acc 0x%" PRIx32,
                 check->call.attrs.accumulate);
}
