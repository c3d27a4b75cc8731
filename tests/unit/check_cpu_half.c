/* Tests 16-bit storage on the cpu: the conversions of every instruction set against base/dtype, bit
 * for bit, and that gelu_backward may write its gradient over the one that it reads, as programs
 * with a GELU do.
 *
 * The conversions are tested through `copy`, which is compiled once per instruction set.  All
 * 65,536 patterns are widened.  The words to be rounded contain each value of either dtype with its
 * neighbours, the midpoints between two values with theirs, and random words.  Short copies test
 * the ends of the vector loops.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/rng.h"
#include "tests/unit/cpu_fixture.h"
#include "tests/unit/unit_main.h"

#define ARENA_BYTES ((size_t)8 << 20)
#define PATTERNS 65536
#define AROUND 6 /* words near a value */
#define RANDOM_WORDS 262144
#define WORDS (AROUND * PATTERNS + RANDOM_WORDS)
#define SHORT_MAX 70

static const char *const sets[] = {"generic", "avx2", "avx512"};
static const enum dtype halves[] = {DTYPE_BF16, DTYPE_F16};

#define COUNT(table) ((int)(sizeof(table) / sizeof(table)[0]))
#define RUNS (COUNT(sets) * COUNT(halves))

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float half_value(enum dtype dtype, uint16_t half)
{
    return dtype == DTYPE_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

static uint16_t half_bits(enum dtype dtype, float value)
{
    return dtype == DTYPE_BF16 ? bf16_from_f32(value) : f16_from_f32(value);
}

/* Fills words[WORDS]: for each pattern its value and the midpoint to the next pattern, each with
 * both neighbours; then random words. */
static void words_fill(enum dtype dtype, uint32_t *words)
{
    const struct philox_key key = philox_key_make(unit_seed(), RNG_INIT);
    for (uint32_t half = 0; half < PATTERNS; half++) {
        const uint32_t value = bits_of(half_value(dtype, (uint16_t)half));
        double next = (double)half_value(dtype, (uint16_t)(half + 1));
        if (isinf(next) &&
            isfinite(float_of(value))) /* the limit above which values round to infinity */
            next = copysign(dtype == DTYPE_BF16 ? 0x1p128 : 0x1p16, next);
        const uint32_t middle = bits_of((float)(0.5 * ((double)float_of(value) + next)));
        for (uint32_t i = 0; i < 3; i++) {
            words[AROUND * half + i] = value + i - 1;
            words[AROUND * half + 3 + i] = middle + i - 1;
        }
    }
    for (uint32_t i = 0; i < RANDOM_WORDS; i++)
        words[AROUND * PATTERNS + i] =
            philox4x32_10(key, (struct philox_block){{i, 0, 0, 0}}).word[0];
}

/* Opens the backend with instruction set `set`; skips the test when the processor or build has
 * none. */
static bool set_open(int set, struct cpu_fixture *fixture)
{
    if (cpu_fixture_open(sets[set], 2, ARENA_BYTES, fixture))
        return true;
    unit_skip("cpu_half_isa", "this processor or build lacks an instruction set");
    return false;
}

/* y = copy of x[count], where both begin `shift` elements after an aligned place of the image;
 * returns y. */
static const void *copied(struct cpu_fixture *fixture, enum dtype from, enum dtype to,
                          const void *x, int64_t count, int64_t shift)
{
    struct op_call call = {.kind = OP_COPY};
    call.operand[COPY_X] = cpu_fixture_tensor(from, count + shift, 0, 0, 0);
    call.operand[COPY_Y] = cpu_fixture_tensor(to, count + shift, 0, 0, 0);
    cpu_fixture_layout(fixture, &call);
    for (int32_t slot = COPY_X; slot <= COPY_Y; slot++) {
        call.operand[slot].dims[0] = count;
        call.operand[slot].at.offset_bytes +=
            (uint64_t)shift * dtype_size_bytes(call.operand[slot].dtype);
    }
    memcpy(cpu_fixture_operand(fixture, &call, COPY_X), x, (size_t)count * dtype_size_bytes(from));
    cpu_fixture_run(fixture, &call);
    return cpu_fixture_operand(fixture, &call, COPY_Y);
}

TEST_LOOP(every_pattern_widens, RUNS)
{
    struct cpu_fixture fixture;
    if (!set_open(_i / COUNT(halves), &fixture))
        return;
    const enum dtype dtype = halves[_i % COUNT(halves)];
    uint16_t *pattern = malloc(PATTERNS * sizeof *pattern);
    ck_assert_ptr_nonnull(pattern);
    for (uint32_t half = 0; half < PATTERNS; half++)
        pattern[half] = (uint16_t)half;
    const float *wide = copied(&fixture, dtype, DTYPE_F32, pattern, PATTERNS, 0);
    for (uint32_t half = 0; half < PATTERNS; half++)
        ck_assert_msg(bits_of(wide[half]) == bits_of(half_value(dtype, (uint16_t)half)),
                      "%s 0x%04x becomes 0x%08x", dtype_name(dtype), half, bits_of(wide[half]));
    free(pattern);
    cpu_fixture_close(&fixture);
}

TEST_LOOP(every_place_rounds, RUNS)
{
    struct cpu_fixture fixture;
    if (!set_open(_i / COUNT(halves), &fixture))
        return;
    const enum dtype dtype = halves[_i % COUNT(halves)];
    uint32_t *words = malloc(WORDS * sizeof *words);
    ck_assert_ptr_nonnull(words);
    words_fill(dtype, words);
    const uint16_t *rounded = copied(&fixture, DTYPE_F32, dtype, words, WORDS, 0);
    for (int i = 0; i < WORDS; i++)
        ck_assert_msg(rounded[i] == half_bits(dtype, float_of(words[i])),
                      "0x%08x becomes %s 0x%04x, expected 0x%04x", words[i], dtype_name(dtype),
                      rounded[i], half_bits(dtype, float_of(words[i])));
    free(words);
    cpu_fixture_close(&fixture);
}

/* Copies lengths around those of the vectors, from and to unaligned places, between all pairs of
 * dtypes. */
TEST_LOOP(short_runs_convert, COUNT(sets) * 9)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    static uint32_t words[WORDS];
    struct cpu_fixture fixture;
    if (!set_open(_i / 9, &fixture))
        return;
    const enum dtype from = dtypes[_i % 9 / 3], to = dtypes[_i % 3];
    words_fill(from == DTYPE_F32 ? DTYPE_F16 : from, words);
    fixture.arena_bytes = 4096;
    for (int64_t count = 1; count <= SHORT_MAX; count++) {
        const char *x = (const char *)words + 4 * (count * 7919 % (WORDS - SHORT_MAX));
        uint32_t expected[SHORT_MAX];
        const void *y = copied(&fixture, from, to, x, count, count % 5);
        dtype_convert(expected, to, x, from, (size_t)count);
        ck_assert_msg(memcmp(y, expected, (size_t)count * dtype_size_bytes(to)) == 0,
                      "%d elements from %s to %s", (int)count, dtype_name(from), dtype_name(to));
    }
    fixture.arena_bytes = ARENA_BYTES;
    cpu_fixture_close(&fixture);
}

/* Runs gelu_backward on matrices of several blocks and a tail, and writes dx over dy when `over`;
 * `dx` receives its bytes. */
static void gelu_run(struct cpu_fixture *fixture, enum dtype dtype, bool over, uint16_t *dx)
{
    static const int32_t inputs[] = {GELU_BACKWARD_X, GELU_BACKWARD_DY};
    struct op_call call = {.kind = OP_GELU_BACKWARD, .attrs = {.gelu = GELU_TANH}};
    float values[61 * 67];
    for (int32_t slot = 0; slot < op_declaration(call.kind)->operands; slot++)
        call.operand[slot] = cpu_fixture_tensor(dtype, 61, 67, 0, 0);
    cpu_fixture_layout(fixture, &call);
    for (int i = 0; i < COUNT(inputs); i++) {
        cpu_fixture_fill(values, 61 * 67, unit_seed() + (uint64_t)i, 2.0f);
        dtype_convert(cpu_fixture_operand(fixture, &call, inputs[i]), dtype, values, DTYPE_F32,
                      61 * 67);
    }
    if (over)
        call.operand[GELU_BACKWARD_DX].at = call.operand[GELU_BACKWARD_DY].at;
    cpu_fixture_run(fixture, &call);
    memcpy(dx, cpu_fixture_operand(fixture, &call, GELU_BACKWARD_DX), 61 * 67 * sizeof *dx);
}

TEST_LOOP(gelu_backward_may_write_over_its_gradient, RUNS)
{
    struct cpu_fixture fixture;
    if (!set_open(_i / COUNT(halves), &fixture))
        return;
    const enum dtype dtype = halves[_i % COUNT(halves)];
    uint16_t apart[61 * 67], over[61 * 67];
    gelu_run(&fixture, dtype, false, apart);
    gelu_run(&fixture, dtype, true, over);
    ck_assert_msg(memcmp(apart, over, sizeof apart) == 0, "other bytes in %s", dtype_name(dtype));
    cpu_fixture_close(&fixture);
}
