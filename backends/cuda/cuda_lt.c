/* Opens cuBLASLt and looks up the functions of cuda_lt.h in it.
 *
 * The library is the one of the toolkit that the program was built with: configure records that
 * folder in the program, and the file's name has the major version of the headers.  LD_LIBRARY_PATH
 * takes precedence, as for any library.
 */
#include "backends/cuda/cuda_lt.h"

#include <dlfcn.h>

#include "base/module.h"

#define TEXT_OF(number) #number
#define NAME_OF(major) "libcublasLt.so." TEXT_OF(major)
#ifndef CUDA_LT_LIBRARY /* tests define another */
#define CUDA_LT_LIBRARY NAME_OF(CUBLAS_VER_MAJOR)
#endif

#define ENTRY(function) {#function, offsetof(struct cuda_lt, function)},
static const struct library_entry entries[] = {CUDA_LT_FUNCTIONS(ENTRY)};

enum gt_status cuda_lt_open(struct cuda_lt *out)
{
    void *library = dlopen(CUDA_LT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    struct cuda_lt lt = {.cublasLtCreate = NULL};
    if (library == NULL)
        return FAIL(
            GT_DEVICE,
            "cuda: cuBLASLt cannot be opened: %s (it is part of the CUDA toolkit that this program was built with)",
            dlerror());
    const char *missing = library_table(library, entries, sizeof entries / sizeof entries[0], &lt);
    if (missing != NULL)
        return FAIL(GT_DEVICE, "cuda: %s has no %s: it is older than CUDA 11.8", CUDA_LT_LIBRARY,
                    missing);
    *out = lt;
    return GT_OK;
}
