/* Tests attention on shapes that opcheck's cases do not have, over several bands; check_cpu_gemm
 * has products over several tiles.  opcheck tests each op on small shapes in each instruction set,
 * and that the number of threads changes no byte.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "tests/unit/cpu_fixture.h"
#include "tests/unit/unit_main.h"

#define ARENA_BYTES ((size_t)24 << 20)

static struct operand f32(int64_t a, int64_t b)
{
    return cpu_fixture_tensor(DTYPE_F32, a, b, 0, 0);
}

static struct operand i32(int64_t a)
{
    return cpu_fixture_tensor(DTYPE_I32, a, 0, 0, 0);
}

/* Fills sixteen words with values as in a training step. */
static void scalars_fill(union scalar_word *word)
{
    memset(word, 0, SCALAR_WORDS * sizeof *word);
    word[SCALAR_LEARNING_RATE].f = 1e-3f;
    word[SCALAR_LOSS_GRADIENT].f = 1.0f / 64.0f;
    word[SCALAR_UNSCALE].f = word[SCALAR_CLIP].f = 0.5f;
    word[SCALAR_ADAM_STEP].i = 2;
    word[SCALAR_STEP].i = 9;
    word[SCALAR_SEED_LO].u = 12345u;
    word[SCALAR_SAMPLE_BASE].i = 4;
    word[SCALAR_POSITION].i = 7;
}

/* Returns where the document of row t begins: documents begin within tiles and bands, and span
 * them. */
static int32_t document_of(int64_t t)
{
    return t < 100 ? 0 : t < 101 ? 100 : t < 270 ? 101 : 270;
}

/* Computes attention_forward in fp64, for one row and head of a call without dropout; returns lse.
 */
static double attention_row(const float *qkv, const struct op_call *call, int64_t sample, int64_t t,
                            int64_t head, int64_t size, double *y)
{
    const int64_t row = call->operand[0].dims[1], heads = call->attrs.heads,
                  kv = call->attrs.kv_heads;
    const float *rows = qkv + sample * call->attrs.time * row, *q = rows + t * row + head * size;
    const int64_t k_column = (heads + head / (heads / kv)) * size, v_column = k_column + kv * size;
    double sum = 0.0;
    memset(y, 0, (size_t)size * sizeof *y);
    for (int64_t j = call->operand[ATTENTION_FORWARD_FIRST].present ? document_of(t) : 0; j <= t;
         j++) {
        double score = 0.0;
        for (int64_t d = 0; d < size; d++)
            score += (double)q[d] * (double)rows[j * row + k_column + d];
        const double weight = exp(score * (double)call->attrs.softmax_scale);
        sum += weight;
        for (int64_t d = 0; d < size; d++)
            y[d] += weight * (double)rows[j * row + v_column + d];
    }
    for (int64_t d = 0; d < size; d++)
        y[d] /= sum;
    return log(sum);
}

TEST_LOOP(attention_spans_bands, 2)
{
    struct cpu_fixture fixture;
    ck_assert(cpu_fixture_open(NULL, 2, ARENA_BYTES, &fixture));
    struct op_call call = {.kind = OP_ATTENTION_FORWARD,
                           .attrs = {.time = 301, .heads = 6, .kv_heads = 2, .softmax_scale = 0.3f},
                           .operand = {[ATTENTION_FORWARD_QKV] = f32(602, 190),
                                       [ATTENTION_FORWARD_SCALARS] = i32(SCALAR_WORDS)}};
    if (_i == 1)
        call.operand[ATTENTION_FORWARD_FIRST] = i32(602);
    cpu_fixture_layout(&fixture, &call);
    for (int64_t n = 0; n < 602 && _i == 1; n++)
        ((int32_t *)cpu_fixture_operand(&fixture, &call, ATTENTION_FORWARD_FIRST))[n] =
            document_of(n % 301);
    cpu_fixture_fill(cpu_fixture_operand(&fixture, &call, ATTENTION_FORWARD_QKV), 602 * 190,
                     unit_seed(), 1.5f);
    scalars_fill(cpu_fixture_operand(&fixture, &call, ATTENTION_FORWARD_SCALARS));
    cpu_fixture_run(&fixture, &call);
    const float *qkv = cpu_fixture_operand(&fixture, &call, ATTENTION_FORWARD_QKV);
    const float *y = cpu_fixture_operand(&fixture, &call, ATTENTION_FORWARD_Y);
    const float *lse = cpu_fixture_operand(&fixture, &call, ATTENTION_FORWARD_LSE);
    for (int64_t item = 0; item < 2 * 6 * 301; item += 5) {
        const int64_t sample = item / (6 * 301), head = item / 301 % 6, t = item % 301;
        double expected[19];
        const double expected_lse = attention_row(qkv, &call, sample, t, head, 19, expected);
        ck_assert(fabs((double)lse[item] - expected_lse) <=
                  32.0 * 0x1p-24 * (1.0 + fabs(expected_lse)));
        for (int64_t d = 0; d < 19;
             d++) /* scores of size up to 13 carry 19 u 13 into the weights; values up to 1.5 */
            ck_assert(fabs((double)y[((sample * 301 + t) * 6 + head) * 19 + d] - expected[d]) <=
                      400.0 * 0x1p-24);
    }
    cpu_fixture_close(&fixture);
}
