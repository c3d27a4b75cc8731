/* Tests gemm and attention in 16 bits with every variant of the matrix product that this build and
 * processor have: elements against fp64 over odd shapes and long sums, bytes that do not depend on
 * the number of threads, the bound of the workspace, and the choice of the variant.  opcheck judges
 * the default variant in detail; here all of them run. AMX products also run on emulated
 * instructions (amx_emulation.h), because few machines have AMX.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "tests/ops/op_test.h"
#include "tests/unit/cpu_fixture.h"
#include "tests/unit/unit_main.h"

#define ARENA_BYTES ((size_t)4 << 20)
#define ARENA_LARGE_BYTES ((size_t)12 << 20)
#define WORKSPACE_THREAD_MAX ((size_t)4 << 20)
#define SETS 6
#define KERNEL_SETS 3 /* the others differ only in gemm */
#define EMULATED 5

static const char *const sets[SETS] = {"generic",     "avx2", "avx512",
                                       "avx512_bf16", "amx",  "amx, emulated"};
static const enum dtype halves[] = {DTYPE_BF16, DTYPE_F16};
static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};

enum { TRANSPOSE_A = 1, TRANSPOSE_B = 2, BIAS = 4, ACCUMULATE = 8, WIDE_D = 16, VARIANTS = 32 };

struct product {
    int64_t m, n, k;
    enum dtype dtype;
    int variant;
};

#ifdef HAVE_X86_SIMD
extern const struct cpu_gemm_path
    cpu_gemm_path_amx_emulated; /* cpu_gemm_amx.c, compiled with amx_emulation.h */

static bool emulated_open(int32_t threads, size_t arena_bytes, struct cpu_fixture *out)
{
    if (!cpu_fixture_open("avx512", threads, arena_bytes, out)) {
        unit_skip("amx_emulated", "the processor has no AVX-512, which packing uses");
        return false;
    }
    ((struct cpu_backend *)(void *)out->backend)->bf16 = &cpu_gemm_path_amx_emulated;
    return true;
}
#else
static bool emulated_open(int32_t threads, size_t arena_bytes, struct cpu_fixture *out)
{
    (void)threads, (void)arena_bytes, (void)out;
    return false;
}
#endif

/* Returns false when this processor or build has no such set. */
static bool set_open(int set, int32_t threads, size_t arena_bytes, struct cpu_fixture *out)
{
    return set == EMULATED ? emulated_open(threads, arena_bytes, out)
                           : cpu_fixture_open(sets[set], threads, arena_bytes, out);
}

static bool variant_exists(int variant)
{
    return (variant & (BIAS | ACCUMULATE)) != (BIAS | ACCUMULATE);
}

static struct op_call product_call(const struct product *p)
{
    struct op_call call = {.kind = OP_GEMM};
    struct operand *o = call.operand;
    const bool ta = (p->variant & TRANSPOSE_A) != 0, tb = (p->variant & TRANSPOSE_B) != 0;
    call.attrs.transpose_a = ta;
    call.attrs.transpose_b = tb;
    call.attrs.accumulate = (p->variant & ACCUMULATE) != 0 ? 1u << GEMM_D : 0u;
    o[GEMM_A] = cpu_fixture_tensor(p->dtype, ta ? p->k : p->m, ta ? p->m : p->k, 0, 0);
    o[GEMM_B] = cpu_fixture_tensor(p->dtype, tb ? p->n : p->k, tb ? p->k : p->n, 0, 0);
    if ((p->variant & BIAS) != 0)
        o[GEMM_BIAS] = cpu_fixture_tensor(p->k % 2 == 0 ? p->dtype : DTYPE_F32, p->n, 0, 0, 0);
    o[GEMM_D] =
        cpu_fixture_tensor((p->variant & WIDE_D) != 0 ? DTYPE_F32 : p->dtype, p->m, p->n, 0, 0);
    return call;
}

/* Random values, rounded to the operand's dtype. */
static void operand_fill(struct cpu_fixture *fixture, const struct op_call *call, int32_t slot,
                         float scale)
{
    const struct operand *operand = &call->operand[slot];
    if (!operand->present)
        return;
    const int64_t count = operand_elements(operand);
    float *values = malloc((size_t)count * sizeof *values);
    ck_assert_ptr_nonnull(values);
    cpu_fixture_fill(values, count, unit_seed() + (uint64_t)slot, scale);
    dtype_convert(cpu_fixture_operand(fixture, call, slot), operand->dtype, values, DTYPE_F32,
                  (size_t)count);
    free(values);
}

static double *operand_values(struct cpu_fixture *fixture, const struct op_call *call, int32_t slot)
{
    const struct operand *operand = &call->operand[slot];
    if (!operand->present)
        return NULL;
    const size_t count = (size_t)operand_elements(operand);
    float *values = malloc(count * sizeof *values);
    double *out = malloc(count * sizeof *out);
    ck_assert_ptr_nonnull(values);
    ck_assert_ptr_nonnull(out);
    dtype_convert(values, DTYPE_F32, cpu_fixture_operand(fixture, call, slot), operand->dtype,
                  count);
    for (size_t i = 0; i < count; i++)
        out[i] = (double)values[i];
    free(values);
    return out;
}

static void product_fill(struct cpu_fixture *fixture, const struct op_call *call, float scale)
{
    for (int32_t slot = 0; slot < GEMM_OPERANDS; slot++)
        operand_fill(fixture, call, slot,
                     slot == GEMM_BIAS || slot == GEMM_D ? scale * scale : scale);
}

/* Judges every element of d by opcheck's rule: one rounding to d's dtype, and sums in fp32. */
static void product_judge(struct cpu_fixture *fixture, const struct product *p,
                          const struct op_call *call, const double *a, const double *b,
                          const double *bias, const double *old)
{
    double *d = operand_values(fixture, call, GEMM_D);
    const enum dtype dtype = call->operand[GEMM_D].dtype;
    const double u = dtype_unit_roundoff(dtype), floor = dtype == DTYPE_F16 ? 0x1p-24 : 0x1p-133;
    for (int64_t i = 0; i < p->m * p->n; i++) {
        const int64_t row = i / p->n, column = i % p->n;
        double sum = bias != NULL ? bias[column] : old != NULL ? old[i] : 0.0, size = fabs(sum);
        for (int64_t l = 0; l < p->k; l++) {
            const double product =
                a[(p->variant & TRANSPOSE_A) != 0 ? l * p->m + row : row * p->k + l] *
                b[(p->variant & TRANSPOSE_B) != 0 ? column * p->k + l : l * p->n + column];
            sum += product;
            size += fabs(product);
        }
        const double bound =
            u * fabs(sum) * (1.0 + 0x1p-8) + 8.0 * sqrt((double)p->k) * 0x1p-24 * size + floor;
        if (!(fabs(d[i] - sum) <= bound)) /* Check's own macros write a line on every call */
            ck_abort_msg("%s, %d x %d x %d, variant %d, [%d,%d]: %g, expected %g within %g",
                         dtype_name(p->dtype), (int)p->m, (int)p->n, (int)p->k, p->variant,
                         (int)row, (int)column, d[i], sum, bound);
    }
    free(d);
}

/* Runs the product; d must be right, and every byte outside of d and the workspace unchanged. */
static void product_check(struct cpu_fixture *fixture, const struct product *p, float scale)
{
    struct op_call call = product_call(p);
    const size_t used = cpu_fixture_layout(fixture, &call), end = used + call.workspace_bytes;
    product_fill(fixture, &call, scale);
    double *a = operand_values(fixture, &call, GEMM_A), *b = operand_values(fixture, &call, GEMM_B);
    double *bias = operand_values(fixture, &call, GEMM_BIAS);
    double *old = call.attrs.accumulate != 0 ? operand_values(fixture, &call, GEMM_D) : NULL;
    unsigned char *before = malloc(fixture->arena_bytes);
    ck_assert_ptr_nonnull(before);
    memcpy(before, fixture->image, fixture->arena_bytes);
    cpu_fixture_run(fixture, &call);
    const struct operand *d = &call.operand[GEMM_D];
    memcpy(before + d->at.offset_bytes, fixture->image + d->at.offset_bytes, operand_bytes(d));
    ck_assert_msg(memcmp(before, fixture->image, used) == 0, "%d x %d x %d: a byte outside of d",
                  (int)p->m, (int)p->n, (int)p->k);
    ck_assert_msg(memcmp(before + end, fixture->image + end, fixture->arena_bytes - end) == 0,
                  "%d x %d x %d: a byte beyond the workspace", (int)p->m, (int)p->n, (int)p->k);
    product_judge(fixture, p, &call, a, b, bias, old);
    free(a);
    free(b);
    free(bias);
    free(old);
    free(before);
}

/* Tests strips, blocks, portions and tiles that are full, nearly full, and just begun; all
 * variants, a quarter of them with each shape. */
TEST_LOOP(odd_shapes_are_right, SETS)
{
    static const int64_t shapes[][3] = {
        {1, 1, 1},      {1, 70, 33},   {3, 1, 257},    {2, 33, 2100},  {16, 32, 32},
        {17, 31, 31},   {33, 17, 64},  {31, 65, 300},  {8, 130, 1030}, {9, 130, 1030},
        {70, 513, 40},  {515, 66, 97}, {64, 64, 256},  {1, 3, 20001},  {9, 193, 17},
        {16, 240, 769}, {23, 209, 31}, {513, 243, 16}, {40, 2353, 35}};
    for (size_t dtype = 0; dtype < sizeof dtypes / sizeof dtypes[0]; dtype++) {
        struct cpu_fixture fixture;
        if (!set_open(_i, 2, ARENA_BYTES, &fixture))
            return;
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            for (int variant = 0; variant < VARIANTS; variant++) {
                const struct product p = {shapes[s][0], shapes[s][1], shapes[s][2], dtypes[dtype],
                                          variant};
                if (variant_exists(variant) && (variant + variant / 4 + (int)s) % 4 == 0)
                    product_check(&fixture, &p, 1.0f);
            }
        }
        cpu_fixture_close(&fixture);
    }
}

/* Products near the lower end of fp32's range, where bf16 values are still normal: nothing may be
 * lost. */
TEST_LOOP(small_values_count, SETS)
{
    struct cpu_fixture fixture;
    if (!set_open(_i, 1, ARENA_BYTES, &fixture))
        return;
    const struct product p = {40, 50, 60, DTYPE_BF16, TRANSPOSE_B};
    product_check(&fixture, &p, 0x1p-56f);
    cpu_fixture_close(&fixture);
}

/* Returns a product of several tiles and portions, or attention over several bands. */
static struct op_call large_call(enum op_kind kind, enum dtype dtype, int variant)
{
    if (kind == OP_GEMM) {
        const struct product p = {530, 700, 600, dtype, variant};
        return product_call(&p);
    }
    struct op_call call = {.kind = kind};
    struct operand *o = call.operand;
    call.attrs =
        (struct op_attrs){.heads = 6, .kv_heads = 2, .softmax_scale = 0.3f, .time = 301, .site = 5};
    call.attrs.dropout = kind == OP_ATTENTION_CACHED ? 0.0f : 0.2f;
    const struct operand qkv = cpu_fixture_tensor(dtype, 2 * 301, 10 * 19, 0, 0);
    const struct operand scalars = cpu_fixture_tensor(DTYPE_I32, SCALAR_WORDS, 0, 0, 0);
    if (kind == OP_ATTENTION_BACKWARD) {
        o[ATTENTION_BACKWARD_SCALARS] = scalars;
        o[ATTENTION_BACKWARD_QKV] = qkv;
        o[ATTENTION_BACKWARD_DY] = o[ATTENTION_BACKWARD_Y] =
            cpu_fixture_tensor(dtype, 2 * 301, 6 * 19, 0, 0);
        o[ATTENTION_BACKWARD_LSE] = cpu_fixture_tensor(DTYPE_F32, 2, 6, 301, 0);
        return call;
    }
    o[ATTENTION_FORWARD_QKV] = qkv;
    o[ATTENTION_FORWARD_SCALARS] = scalars;
    if (kind == OP_ATTENTION_CACHED) /* the other dtype: rows are converted as they are read */
        o[ATTENTION_CACHED_CACHE] =
            cpu_fixture_tensor(dtype == DTYPE_BF16 ? DTYPE_F16 : DTYPE_BF16, 2, 2, 320, 2 * 19);
    return call;
}

static void large_fill(struct cpu_fixture *fixture, const struct op_call *call)
{
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++) {
        const struct operand *operand = &call->operand[slot];
        if (operand->present && operand->dtype == DTYPE_I32)
            memset(cpu_fixture_operand(fixture, call, slot), 0, operand_bytes(operand));
        else
            operand_fill(fixture, call, slot, 1.0f);
    }
}

static void threads_check(int set, enum op_kind kind, enum dtype dtype, int variant)
{
    unsigned char *first = NULL;
    for (int32_t threads = 1; threads <= 3; threads += 2) {
        struct cpu_fixture fixture;
        if (!set_open(set, threads, ARENA_LARGE_BYTES, &fixture))
            return;
        struct op_call call = large_call(kind, dtype, variant);
        const size_t used = cpu_fixture_layout(&fixture, &call);
        large_fill(&fixture, &call);
        cpu_fixture_run(&fixture, &call);
        if (first == NULL) {
            first = malloc(used);
            ck_assert_ptr_nonnull(first);
            memcpy(first, fixture.image, used);
        }
        ck_assert_msg(memcmp(first, fixture.image, used) == 0,
                      "%s, %s, %s, variant %d: other bytes on %d threads", sets[set],
                      op_declaration(kind)->name, dtype_name(dtype), variant, (int)threads);
        cpu_fixture_close(&fixture);
    }
    free(first);
}

TEST_LOOP(threads_do_not_change_a_byte, SETS)
{
    static const int variants[2][2] = {{TRANSPOSE_B | BIAS, TRANSPOSE_A | WIDE_D | ACCUMULATE},
                                       {0, TRANSPOSE_A | TRANSPOSE_B | ACCUMULATE}};
    for (size_t v = 0; v < 2; v++)
        threads_check(_i, OP_GEMM, DTYPE_F32, variants[v][v]);
    for (size_t half = 0; half < 2; half++) {
        for (size_t v = 0; v < 2; v++)
            threads_check(_i, OP_GEMM, halves[half], variants[half][v]);
        if (_i >= KERNEL_SETS)
            continue;
        threads_check(_i, OP_ATTENTION_FORWARD, halves[half], 0);
        threads_check(_i, OP_ATTENTION_BACKWARD, halves[half], 0);
        threads_check(_i, OP_ATTENTION_CACHED, halves[half], 0);
    }
}

/* For any product, a thread gets a few MiB: no operand is ever converted as a whole. */
TEST_LOOP(workspace_is_bounded, SETS)
{
    static const int64_t shapes[][3] = {{4096, 50304, 768}, {4096, 768, 50304}, {50304, 768, 4096},
                                        {1, 50304, 768},    {90000, 1, 1},      {1, 90000, 1},
                                        {1, 1, 90000},      {2000000, 33, 700}, {33, 2000000, 700},
                                        {8, 700, 2000000},  {512, 512, 256},    {300, 300, 1}};
    struct cpu_fixture one, three;
    ck_assert(cpu_fixture_open(NULL, 1, 4096, &one));
    cpu_fixture_close(&one);
    if (!set_open(_i, 1, 4096, &one))
        return;
    ck_assert(set_open(_i, 3, 4096, &three));
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (int variant = 0; variant < VARIANTS; variant++) {
            const struct product p = {shapes[s][0], shapes[s][1], shapes[s][2],
                                      dtypes[(variant / 2 + s) % 3], variant};
            const struct op_call call = product_call(&p);
            const size_t bytes = one.backend->ops->workspace_bytes(one.backend, &call);
            ck_assert_uint_le(bytes, WORKSPACE_THREAD_MAX);
            ck_assert_uint_eq(bytes % 64, 0);
            const size_t of_three = three.backend->ops->workspace_bytes(three.backend, &call);
            ck_assert_uint_le(of_three, 3 * WORKSPACE_THREAD_MAX);
        }
    }
    cpu_fixture_close(&one);
    cpu_fixture_close(&three);
}

static bool detail_has(const char *set, const char *text)
{
    struct cpu_fixture fixture;
    struct backend_info info;
    if (!cpu_fixture_open(set, 1, 4096, &fixture))
        return false;
    ck_assert_int_eq(fixture.backend->ops->info(fixture.backend, &info), GT_OK);
    printf("%s: %s\n", set != NULL ? set : "default", info.detail);
    cpu_fixture_close(&fixture);
    return strstr(info.detail, text) != NULL;
}

TEST(way_is_chosen_and_named)
{
    const bool amx = detail_has("amx", "avx512 kernels, bf16: AMX (GPT_TRAIN_CPU_ISA)");
    const bool pairs =
        detail_has("avx512_bf16", "avx512 kernels, bf16: AVX512-BF16 (GPT_TRAIN_CPU_ISA)");
    ck_assert(!detail_has("avx512", "bf16"));
    ck_assert(!detail_has("generic", "bf16"));
    ck_assert(detail_has(NULL, "bf16: AMX") == amx);
    ck_assert(detail_has(NULL, "bf16: AVX512-BF16") == (pairs && !amx));
}
