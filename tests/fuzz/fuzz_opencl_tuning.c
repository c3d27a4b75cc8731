/* Fuzzes the opencl backend's tuning results, a file in the user's cache.
 *
 * Accepted indices lie within the tables, and are written as the same text.
 */
#include <string.h>

#include "backends/opencl/opencl_tuning_text.h"
#include "tests/fuzz/fuzz_common.h"

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    (void)mem;
    const struct opencl_tuning_limits limits = {.gemm_shapes = 12, .matrix_shapes = 3};
    struct opencl_tuning tuning;
    char text[OPENCL_TUNING_TEXT_MAX];
    memset(&tuning, 0xff, sizeof tuning);
    if (!opencl_tuning_parse((const char *)data, size, limits, &tuning)) {
        FUZZ_CHECK(tuning.gemm_shape[DTYPE_F32] == -1); /* a rejected file changes nothing */
        return;
    }
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        FUZZ_CHECK(tuning.gemm_shape[dtype] >= 0 && tuning.gemm_shape[dtype] < limits.gemm_shapes);
        FUZZ_CHECK(tuning.matrix_shape[dtype] >= 0 && tuning.matrix_shape[dtype] < limits.matrix_shapes);
    }
    FUZZ_CHECK(opencl_tuning_write(&tuning, text) == size && memcmp(text, data, size) == 0);
}
