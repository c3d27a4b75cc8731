/* Writes and parses the line of a tuning.
 *
 * Each tuning has exactly one text: the parser writes the result again and compares, so signs, spaces, leading zeros
 * and trailing characters need no rules of their own.
 */
#include "backends/opencl/opencl_tuning_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

size_t opencl_tuning_write(const struct opencl_tuning *tuning, char text[static OPENCL_TUNING_TEXT_MAX])
{
    const int32_t *gemm = tuning->gemm_shape, *matrix = tuning->matrix_shape;
    const int length =
        snprintf(text, OPENCL_TUNING_TEXT_MAX,
                 "gemm %" PRId32 " %" PRId32 " %" PRId32 " matrix %" PRId32 " %" PRId32 " %" PRId32 " clblast %d",
                 gemm[DTYPE_F32], gemm[DTYPE_BF16], gemm[DTYPE_F16], matrix[DTYPE_F32], matrix[DTYPE_BF16],
                 matrix[DTYPE_F16], tuning->gemm_clblast);
    return (size_t)length;
}

static bool shapes_valid(const int32_t shape[static DTYPE_COUNT], int32_t count)
{
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        if (shape[dtype] < 0 || shape[dtype] >= count)
            return false;
    return true;
}

bool opencl_tuning_parse(const char *text, size_t bytes, struct opencl_tuning_limits limits, struct opencl_tuning *out)
{
    struct opencl_tuning tuning = {.gemm_clblast = false};
    int32_t *gemm = tuning.gemm_shape, *matrix = tuning.matrix_shape;
    char line[OPENCL_TUNING_TEXT_MAX] = "", again[OPENCL_TUNING_TEXT_MAX];
    int clblast = 0;
    if (bytes >= sizeof line)
        return false;
    memcpy(line, text, bytes);
    /* The width bounds the digits, because sscanf() is undefined for numbers that do not fit into an int. */
    if (sscanf(line,
               "gemm %6" SCNd32 " %6" SCNd32 " %6" SCNd32 " matrix %6" SCNd32 " %6" SCNd32 " %6" SCNd32 " clblast %6d",
               &gemm[DTYPE_F32], &gemm[DTYPE_BF16], &gemm[DTYPE_F16], &matrix[DTYPE_F32], &matrix[DTYPE_BF16],
               &matrix[DTYPE_F16], &clblast) != 7)
        return false;
    tuning.gemm_clblast = clblast != 0;
    if (!shapes_valid(gemm, limits.gemm_shapes) || !shapes_valid(matrix, limits.matrix_shapes) ||
        opencl_tuning_write(&tuning, again) != bytes || memcmp(again, text, bytes) != 0)
        return false;
    *out = tuning;
    return true;
}
