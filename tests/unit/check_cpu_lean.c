/* Tests of the exact ops of the cpu backend: known answers, in every instruction set.
 *
 * The hashes (FNV-1a of a tensor's bytes) were computed by a Python program from the text of op.h,
 * with fp32 arithmetic emulated in fp64, without any code of this repository.  Inputs depend only
 * on the element.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "tests/unit/cpu_fixture.h"
#include "tests/unit/unit_main.h"

#define ELEMENTS 600 /* two whole blocks and part of a third */
#define UPDATES 3
#define INDEX_BASE INT64_C(1000000005)
#define SEED UINT64_C(0x0123456789abcd)
#define FIRST_STEP 7
#define ARENA_BYTES ((size_t)4 << 20)

static const char *const sets[] = {"generic", "avx2", NULL};
#define SETS ((int)(sizeof sets / sizeof sets[0]))

static uint32_t mixed(uint32_t i, uint32_t salt)
{
    uint32_t x = i * 2654435761u + salt * 40503u;
    x ^= x >> 15;
    x *= 2246822519u;
    return x ^ x >> 13;
}

/* Returns a multiple of 2^-(10 + i mod 24) up to a thousand, so that blocks span seven powers of
 * ten. */
static float gradient(uint32_t i, uint32_t update)
{
    return ldexpf((float)(int)(mixed(i, 10 + update) % 2001) - 1000.0f, -(10 + (int)(i % 24)));
}

static uint16_t top_half(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static uint32_t hash(const void *bytes, size_t count)
{
    uint32_t value = 2166136261u;
    for (size_t i = 0; i < count; i++)
        value = (value ^ ((const unsigned char *)bytes)[i]) * 16777619u;
    return value;
}

static void scalars_fill(union scalar_word *scalars, int32_t step)
{
    memset(scalars, 0, SCALAR_WORDS * sizeof *scalars);
    scalars[SCALAR_LEARNING_RATE].f = 1e-3f;
    scalars[SCALAR_CLIP].f = 0.5f;
    scalars[SCALAR_STEP].i = step;
    scalars[SCALAR_SEED_LO].u = (uint32_t)SEED;
    scalars[SCALAR_SEED_HI].u = (uint32_t)(SEED >> 32);
}

static bool set_open(int set, int32_t threads, struct cpu_fixture *fixture)
{
    if (cpu_fixture_open(sets[set], threads, ARENA_BYTES, fixture))
        return true;
    unit_skip("cpu_half_isa", "this processor or build lacks an instruction set");
    return false;
}

static struct op_call lean_call(enum dtype moment, int64_t elements)
{
    struct op_call call = {.kind = OP_ADAMW_LEAN};
    call.attrs = (struct op_attrs){.beta1 = 0.9f,
                                   .beta2 = 0.95f,
                                   .epsilon = 1e-8f,
                                   .weight_decay = 0.1f,
                                   .alpha = 1.0f,
                                   .index_base = INDEX_BASE};
    call.operand[ADAMW_LEAN_GRAD] = cpu_fixture_tensor(DTYPE_BF16, elements, 0, 0, 0);
    call.operand[ADAMW_LEAN_PARAM] = cpu_fixture_tensor(DTYPE_BF16, elements, 0, 0, 0);
    call.operand[ADAMW_LEAN_M] = call.operand[ADAMW_LEAN_V] =
        cpu_fixture_tensor(moment, elements, 0, 0, 0);
    if (moment == DTYPE_U8)
        call.operand[ADAMW_LEAN_SCALES] =
            cpu_fixture_tensor(DTYPE_U8, 2, state_blocks(elements), 0, 0);
    call.operand[ADAMW_LEAN_SCALARS] = cpu_fixture_tensor(DTYPE_I32, SCALAR_WORDS, 0, 0, 0);
    call.operand[ADAMW_LEAN_CORRECTIONS] = cpu_fixture_tensor(DTYPE_F32, UPDATES, 2, 0, 0);
    return call;
}

/* Lays the call out with the parameters above and moments of zero. */
static void lean_begin(struct cpu_fixture *fixture, struct op_call *call)
{
    static const float corrections[UPDATES][2] = {
        {0.1f, 0.05f}, {0.19f, 0.0975f}, {0.271f, 0.142625f}};
    static const int32_t states[] = {ADAMW_LEAN_M, ADAMW_LEAN_V, ADAMW_LEAN_SCALES};
    cpu_fixture_layout(fixture, call);
    uint16_t *param = cpu_fixture_operand(fixture, call, ADAMW_LEAN_PARAM);
    for (int64_t i = 0; i < call->operand[ADAMW_LEAN_PARAM].dims[0]; i++)
        param[i] = top_half(ldexpf((float)(int)(mixed((uint32_t)i, 1) % 2001) - 1000.0f, -15));
    for (size_t k = 0; k < sizeof states / sizeof states[0]; k++) {
        if (call->operand[states[k]].present)
            memset(cpu_fixture_operand(fixture, call, states[k]), 0,
                   operand_bytes(&call->operand[states[k]]));
    }
    memcpy(cpu_fixture_operand(fixture, call, ADAMW_LEAN_CORRECTIONS), corrections,
           sizeof corrections);
}

static void lean_update(struct cpu_fixture *fixture, const struct op_call *call, uint32_t update)
{
    uint16_t *grad = cpu_fixture_operand(fixture, call, ADAMW_LEAN_GRAD);
    union scalar_word *scalars = cpu_fixture_operand(fixture, call, ADAMW_LEAN_SCALARS);
    for (int64_t i = 0; i < call->operand[ADAMW_LEAN_GRAD].dims[0]; i++)
        grad[i] = top_half(gradient((uint32_t)i, update));
    scalars_fill(scalars, FIRST_STEP + (int32_t)update);
    scalars[SCALAR_ADAM_STEP].i = 1 + (int32_t)update;
    cpu_fixture_run(fixture, call);
}

static uint32_t operand_hash(struct cpu_fixture *fixture, const struct op_call *call, int32_t slot)
{
    return hash(cpu_fixture_operand(fixture, call, slot), operand_bytes(&call->operand[slot]));
}

TEST_LOOP(updates_have_the_known_bits, SETS)
{
    struct cpu_fixture fixture;
    if (!set_open(_i, 2, &fixture))
        return;
    struct op_call codes = lean_call(DTYPE_U8, ELEMENTS), halves = lean_call(DTYPE_BF16, ELEMENTS);
    lean_begin(&fixture, &codes);
    for (uint32_t update = 0; update < UPDATES; update++)
        lean_update(&fixture, &codes, update);
    ck_assert_uint_eq(operand_hash(&fixture, &codes, ADAMW_LEAN_PARAM), 0x2df59550u);
    ck_assert_uint_eq(operand_hash(&fixture, &codes, ADAMW_LEAN_M), 0x6892f892u);
    ck_assert_uint_eq(operand_hash(&fixture, &codes, ADAMW_LEAN_V), 0x8c155ae0u);
    ck_assert_uint_eq(operand_hash(&fixture, &codes, ADAMW_LEAN_SCALES), 0x2e1979afu);
    lean_begin(&fixture, &halves);
    for (uint32_t update = 0; update < UPDATES; update++)
        lean_update(&fixture, &halves, update);
    ck_assert_uint_eq(operand_hash(&fixture, &halves, ADAMW_LEAN_PARAM), 0x05a2302du);
    ck_assert_uint_eq(operand_hash(&fixture, &halves, ADAMW_LEAN_M), 0xe2fa3179u);
    ck_assert_uint_eq(operand_hash(&fixture, &halves, ADAMW_LEAN_V), 0x688c880eu);
    cpu_fixture_close(&fixture);
}

TEST_LOOP(gradients_have_the_known_bits, SETS)
{
    struct cpu_fixture fixture;
    if (!set_open(_i, 2, &fixture))
        return;
    struct op_call call = {.kind = OP_GRADIENT_ROUND, .attrs = {.index_base = INDEX_BASE}};
    call.operand[GRADIENT_ROUND_X] = cpu_fixture_tensor(DTYPE_F32, ELEMENTS, 0, 0, 0);
    call.operand[GRADIENT_ROUND_Y] = cpu_fixture_tensor(DTYPE_BF16, ELEMENTS, 0, 0, 0);
    call.operand[GRADIENT_ROUND_SCALARS] = cpu_fixture_tensor(DTYPE_I32, SCALAR_WORDS, 0, 0, 0);
    cpu_fixture_layout(&fixture, &call);
    for (uint32_t step = 0; step < UPDATES; step++) {
        float *x = cpu_fixture_operand(&fixture, &call, GRADIENT_ROUND_X);
        union scalar_word *scalars = cpu_fixture_operand(&fixture, &call, GRADIENT_ROUND_SCALARS);
        for (uint32_t i = 0; i < ELEMENTS; i++)
            x[i] = gradient(i, step);
        scalars_fill(scalars, FIRST_STEP);
        scalars[SCALAR_MICRO_STEP].i = (int32_t)step;
        call.attrs.accumulate = step > 0 ? 1u << GRADIENT_ROUND_Y : 0u;
        cpu_fixture_run(&fixture, &call);
    }
    ck_assert_uint_eq(operand_hash(&fixture, &call, GRADIENT_ROUND_Y), 0xdf42e0dfu);
    cpu_fixture_close(&fixture);
}
