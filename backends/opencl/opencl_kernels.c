/* Helpers shared by the ops' host files: options, arguments, ranges.
 *
 * Group sizes follow from the device's limits and are part of a program's options, so that kernels can size local
 * memory by them.  Nothing here depends on an op.
 */
#include "backends/opencl/opencl_kernels.h"

#include <inttypes.h>
#include <stdio.h>

#define GROUP_ITEMS_MAX 256

int32_t opencl_group_items(const struct backend *backend)
{
    const size_t most = opencl_from(backend)->device.work_group_max;
    int32_t items = GROUP_ITEMS_MAX;
    while (items > 1 && (size_t)items > most)
        items /= 2;
    return items;
}

void opencl_group_begin(struct opencl_launch *launch, struct backend *backend, const struct opencl_source *source,
                        const char *kernel)
{
    char options[OPENCL_OPTIONS_MAX];
    const bool exact = opencl_from(backend)->device.has_exact_division;
    snprintf(options, sizeof options, "-DGT_GROUP=%" PRId32 "%s", opencl_group_items(backend),
             exact ? " -DGT_EXACT_DIVISION -cl-fp32-correctly-rounded-divide-sqrt" : "");
    opencl_launch_begin(launch, backend, source, options, kernel);
}

void opencl_arg_tensor(struct opencl_launch *launch, const struct op_call *call, int32_t slot)
{
    const struct operand *operand = &call->operand[slot];
    opencl_arg_operand(launch, call, slot);
    opencl_arg_i32(launch, operand->present ? (int32_t)operand->dtype : -1);
}

struct opencl_parts opencl_parts_of(int64_t rows)
{
    const int64_t wanted = min_i64((rows + OPENCL_PART_ROWS - 1) / OPENCL_PART_ROWS, OPENCL_PARTS_MAX);
    const int64_t part_rows = (rows + wanted - 1) / wanted;
    return (struct opencl_parts){.rows = rows, .parts = (rows + part_rows - 1) / part_rows, .part_rows = part_rows};
}

void opencl_arg_adamw(struct opencl_launch *launch, const struct op_call *call, int32_t corrections)
{
    const struct op_attrs *attrs = &call->attrs;
    opencl_arg_f32(launch, attrs->beta1);
    opencl_arg_f32(launch, 1.0f - attrs->beta1);
    opencl_arg_f32(launch, attrs->beta2);
    opencl_arg_f32(launch, 1.0f - attrs->beta2);
    opencl_arg_f32(launch, attrs->epsilon);
    opencl_arg_f32(launch, attrs->weight_decay);
    opencl_arg_i64(launch, call->operand[corrections].dims[0]);
}

enum gt_status opencl_run_elements(struct opencl_launch *launch, int64_t count)
{
    const size_t items = (size_t)opencl_group_items(&launch->cl->base);
    const struct opencl_range range = {.dims = 1, .global = {opencl_round_up((size_t)count, items)}, .local = {items}};
    return opencl_launch_run(launch, range);
}

enum gt_status opencl_run_groups(struct opencl_launch *launch, int64_t groups, double flops)
{
    const size_t items = (size_t)opencl_group_items(&launch->cl->base);
    const struct opencl_range range = {.dims = 1, .global = {(size_t)groups * items}, .local = {items}, .flops = flops};
    return opencl_launch_run(launch, range);
}

enum gt_status opencl_run_columns(struct opencl_launch *launch, int64_t columns, int64_t rows, double flops)
{
    const size_t most = launch->cl->device.work_group_max;
    const size_t items = most < OPENCL_COLUMN_ITEMS ? 1 : OPENCL_COLUMN_ITEMS;
    const size_t groups = ((size_t)columns + items - 1) / items * (size_t)rows;
    const struct opencl_range range = {.dims = 1, .global = {groups * items}, .local = {items}, .flops = flops};
    assert(groups <= UINT32_MAX); /* gt_column() counts in 32 bits */
    return opencl_launch_run(launch, range);
}

enum gt_status opencl_run_parts_sum(struct backend *backend, const struct op_call *call, size_t first_bytes,
                                    int64_t parts, int32_t out)
{
    struct opencl_launch launch;
    const int64_t columns = op_elements(call, out);
    opencl_group_begin(&launch, backend, &opencl_source_bias, "gt_columns_sum");
    opencl_arg_workspace(&launch, call, first_bytes, sizeof(float));
    opencl_arg_tensor(&launch, call, out);
    opencl_arg_i32(&launch, op_accumulates(call, out));
    opencl_arg_i64(&launch, parts);
    opencl_arg_i64(&launch, columns);
    return opencl_run_elements(&launch, columns);
}

bool opencl_floats_supported(const struct backend *backend, const struct op_call *call)
{
    const unsigned dtypes = 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16 | 1u << DTYPE_I32;
    (void)backend;
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++) {
        const struct operand *operand = &call->operand[slot];
        if (operand->present && (dtypes >> operand->dtype & 1u) == 0)
            return false;
    }
    return true;
}

bool opencl_exact_supported(const struct backend *backend, const struct op_call *call)
{
    (void)call;
    return opencl_from(backend)->device.has_subnormals;
}
