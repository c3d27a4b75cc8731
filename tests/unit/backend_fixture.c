/* The backend of the tests of plans; see the header. */
#include "tests/unit/backend_fixture.h"

static bool supports(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    for (int32_t s = 0; s < OP_OPERANDS_MAX; s++) {
        if (call->operand[s].present && call->operand[s].dtype != DTYPE_F32)
            return false;
    }
    return call->kind == OP_FILL || call->kind == OP_COPY || call->kind == OP_RESIDUAL;
}

static size_t workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    return call->kind == OP_FILL ? 0 : (size_t)operand_elements(&call->operand[0]) % 5 * 37;
}

struct backend *fixture_backend(void)
{
    static const struct backend_ops ops = {
        .name = "fixture", .supports = supports, .workspace_bytes = workspace_bytes};
    static struct backend backend = {.ops = &ops};
    return &backend;
}
