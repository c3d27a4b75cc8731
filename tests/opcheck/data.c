/* What a case needs on the host: values before the run, the oracle's and the naive results, and three images.
 *
 * Test code: memory that cannot be had ends the program.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

static void *take(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL)
        abort();
    return memory;
}

static double *duplicate(const double *values, size_t count)
{
    double *copy = take(count, sizeof *copy);
    memcpy(copy, values, count * sizeof *copy);
    return copy;
}

void case_data_make(const struct check_case *check, struct case_data *data)
{
    *data = (struct case_data){.before = NULL};
    for (int32_t slot = 0; slot < op_declaration(check->call.kind)->operands; slot++) {
        if (check->call.operand[slot].present)
            data->initial[slot] = take((size_t)operand_elements(&check->call.operand[slot]), sizeof(double));
    }
    inputs_fill(check, data->initial);
    for (int32_t slot = 0; slot < op_declaration(check->call.kind)->operands; slot++) {
        size_t count = (size_t)operand_elements(&check->call.operand[slot]);
        if (data->initial[slot] == NULL)
            continue;
        data->naive[slot] = duplicate(data->initial[slot], count);
        data->ref.value[slot] = duplicate(data->initial[slot], count);
        data->ref.term[slot] = take(count, sizeof(double));
    }
    data->before = take(check->image_bytes, 1);
    data->after = take(check->image_bytes, 1);
    data->naive_image = take(check->image_bytes, 1);
    image_prepare(check, data->initial, data->before);
    memcpy(data->naive_image, data->before, check->image_bytes);
    ref_run(&check->call, &data->ref);
    naive_run(&check->call, data->naive, DEFECT_NONE);
    for (int32_t slot = 0; slot < op_declaration(check->call.kind)->operands; slot++) {
        if (data->naive[slot] == NULL || op_direction(check->call.kind, &check->call.attrs, slot) == OPERAND_IN)
            continue;
        for (int64_t i = 0; i < operand_elements(&check->call.operand[slot]); i++)
            image_encode(check, slot, i, data->naive[slot][i], false, data->naive_image);
    }
}

void case_data_free(struct case_data *data)
{
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++) {
        free(data->initial[slot]);
        free(data->naive[slot]);
        free(data->ref.value[slot]);
        free(data->ref.term[slot]);
    }
    free(data->before);
    free(data->after);
    free(data->naive_image);
}
