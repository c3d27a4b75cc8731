/* The host data of a case: values before the run, the results of the oracle, and images.
 *
 * Values belong to the case, images to one layout of it (a backend's alignment and workspace). This
 * is test code: it aborts when an allocation fails.
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

static void initial_make(const struct check_case *check, struct case_data *data)
{
    for (int32_t slot = 0; slot < op_declaration(check->call.kind)->operands; slot++) {
        if (check->call.operand[slot].present)
            data->initial[slot] =
                take((size_t)operand_elements(&check->call.operand[slot]), sizeof(double));
    }
    inputs_fill(check, data->initial);
}

void case_values_make(const struct check_case *check, struct case_data *data)
{
    *data = (struct case_data){.before = NULL};
    initial_make(check, data);
    for (int32_t slot = 0; slot < op_declaration(check->call.kind)->operands; slot++) {
        size_t count = (size_t)operand_elements(&check->call.operand[slot]);
        if (data->initial[slot] == NULL)
            continue;
        data->ref.value[slot] = duplicate(data->initial[slot], count);
        data->ref.term[slot] = take(count, sizeof(double));
        data->ref.half_bound[slot] = take(count, sizeof(double));
        data->ref.half_square[slot] = take(count, sizeof(double));
        data->ref.drift[slot] = take(count, sizeof(double));
    }
    ref_run(&check->call, &data->ref);
}

uint8_t *case_image_make(const struct check_case *check)
{
    struct case_data data = {.before = take(check->image_bytes, 1)};
    initial_make(check, &data);
    image_prepare(check, data.initial, data.before);
    uint8_t *image = data.before;
    data.before = NULL;
    case_data_free(&data);
    return image;
}

static void outputs_encode(const struct check_case *check, const struct case_data *data)
{
    memcpy(data->ideal, data->before, check->image_bytes);
    for (int32_t slot = 0; slot < op_declaration(check->call.kind)->operands; slot++) {
        if (!case_is_output(check, slot))
            continue;
        for (int64_t i = 0, count = operand_elements(&check->call.operand[slot]); i < count; i++)
            image_encode(check, slot, i, data->ref.value[slot][i], data->ideal);
    }
}

void case_images_make(const struct check_case *check, struct case_data *data)
{
    data->before = take(check->image_bytes, 1);
    data->after = take(check->image_bytes, 1);
    data->ideal = take(check->image_bytes, 1);
    image_prepare(check, data->initial, data->before);
    outputs_encode(check, data);
}

void case_images_free(struct case_data *data)
{
    free(data->before);
    free(data->after);
    free(data->ideal);
    data->before = data->after = data->ideal = NULL;
}

void case_data_free(struct case_data *data)
{
    case_images_free(data);
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++) {
        free(data->initial[slot]);
        free(data->ref.value[slot]);
        free(data->ref.term[slot]);
        free(data->ref.half_bound[slot]);
        free(data->ref.half_square[slot]);
        free(data->ref.drift[slot]);
    }
}
