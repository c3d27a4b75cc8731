/* The fixture of the cpu backend's tests; see the header.
 *
 * The arena is filled with NaN before each run, which exposes kernels that read bytes they have not
 * written.
 */
#include "tests/unit/cpu_fixture.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend_registry.h"
#include "base/rng.h"
#include "base/size.h"
#include "ops/infer.h"

bool cpu_fixture_open(const char *isa, int32_t threads, size_t arena_bytes, struct cpu_fixture *out)
{
    if (isa != NULL)
        setenv("GPT_TRAIN_CPU_ISA", isa, 1);
    else
        unsetenv("GPT_TRAIN_CPU_ISA");
    const struct backend_ops *ops = backend_find("cpu");
    ck_assert_ptr_nonnull(ops);
    const struct backend_open_options options = {.threads = threads};
    const enum gt_status status = ops->open(&options, &out->backend);
    unsetenv("GPT_TRAIN_CPU_ISA");
    if (status != GT_OK)
        return false;
    const struct backend_segment segment = {SPACE_DEVICE, arena_bytes};
    ck_assert_int_eq(out->backend->ops->arena(out->backend, &segment, 1), GT_OK);
    out->arena_bytes = arena_bytes;
    out->image = malloc(arena_bytes);
    ck_assert_ptr_nonnull(out->image);
    return true;
}

void cpu_fixture_close(struct cpu_fixture *fixture)
{
    fixture->backend->ops->close(fixture->backend);
    free(fixture->image);
}

size_t cpu_fixture_layout(struct cpu_fixture *fixture, struct op_call *call)
{
    ck_assert(op_infer(call));
    const struct backend_ops *ops = fixture->backend->ops;
    size_t used = 0;
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++) {
        if (!call->operand[slot].present)
            continue;
        call->operand[slot].at = (struct address){.space = SPACE_DEVICE, .offset_bytes = used};
        used += size_round_up(operand_bytes(&call->operand[slot]), 64);
    }
    ck_assert(ops->supports(fixture->backend, call));
    call->workspace = (struct address){.space = SPACE_DEVICE, .offset_bytes = used};
    call->workspace_bytes = ops->workspace_bytes(fixture->backend, call);
    ck_assert_uint_le(used + call->workspace_bytes, fixture->arena_bytes);
    memset(fixture->image, 0xff, fixture->arena_bytes);
    return used;
}

void *cpu_fixture_operand(struct cpu_fixture *fixture, const struct op_call *call, int32_t slot)
{
    ck_assert(call->operand[slot].present);
    return fixture->image + call->operand[slot].at.offset_bytes;
}

void cpu_fixture_run(struct cpu_fixture *fixture, const struct op_call *call)
{
    const struct backend_ops *ops = fixture->backend->ops;
    const struct address begin = {.space = SPACE_DEVICE};
    ck_assert_int_eq(ops->upload(fixture->backend, begin, fixture->image, fixture->arena_bytes),
                     GT_OK);
    ck_assert_int_eq(ops->run(fixture->backend, call, 1), GT_OK);
    ck_assert_int_eq(ops->sync(fixture->backend), GT_OK);
    ck_assert_int_eq(ops->download(fixture->backend, fixture->image, begin, fixture->arena_bytes),
                     GT_OK);
}

void cpu_fixture_fill(float *values, int64_t count, uint64_t seed, float scale)
{
    const struct philox_key key = philox_key_make(seed, RNG_INIT);
    for (int64_t i = 0; i < count; i++) {
        const struct philox_block counter = {{(uint32_t)i, (uint32_t)(i >> 32), 0, 0}};
        const struct philox_block block = philox4x32_10(key, counter);
        values[i] = scale * (2.0f * (float)(block.word[0] >> 8) * 0x1p-24f - 1.0f);
    }
}

struct operand cpu_fixture_tensor(enum dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d)
{
    struct operand operand = {.present = true, .dtype = dtype, .dims = {a, b, c, d}};
    while (operand.rank < OP_RANK_MAX && operand.dims[operand.rank] > 0)
        operand.rank++;
    return operand;
}
