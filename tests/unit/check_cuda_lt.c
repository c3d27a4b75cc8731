/* Tests of cuda_lt.c: a cuBLASLt that is missing or too old gives one line.  Needs no card and no toolkit: the test
 * chooses the library's name, and the declarations are those of the emulated backend. */
static const char *library_name;
#define CUDA_LT_LIBRARY library_name
#include "backends/cuda/cuda_lt.c"

#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

static enum gt_status opened(const char *name, struct log_capture *capture)
{
    struct cuda_lt lt = {.cublasLtCreate = NULL};
    library_name = name;
    log_capture_begin(capture);
    const enum gt_status status = cuda_lt_open(&lt);
    log_capture_end();
    ck_assert_ptr_null((void *)(uintptr_t)lt.cublasLtCreate);
    return status;
}

TEST(a_missing_library_is_named)
{
    struct log_capture capture;
    ck_assert_int_eq(opened("libcublasLt.so.none", &capture), GT_DEVICE);
    ck_assert_int_eq(capture.lines, 1);
    ck_assert_ptr_nonnull(strstr(capture.text, "cuBLASLt cannot be opened: libcublasLt.so.none"));
    ck_assert_ptr_nonnull(strstr(capture.text, "CUDA toolkit"));
}

TEST(a_library_without_the_functions_is_named)
{
    struct log_capture capture;
    ck_assert_int_eq(opened("libm.so.6", &capture), GT_DEVICE);
    ck_assert_int_eq(capture.lines, 1);
    ck_assert_ptr_nonnull(strstr(capture.text, "libm.so.6 has no cublasLtCreate"));
}
