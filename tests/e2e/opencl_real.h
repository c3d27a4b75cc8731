/* Access to the real OpenCL loader, for libraries that tests insert between a program and it.
 *
 * Such a library is linked with libOpenCL.so.1 and has functions of the same names: dlsym() on the
 * loader's own handle finds the loader's.  Compiled with -I and the source folder.
 */
#ifndef GPT_TRAIN_OPENCL_REAL_H
#define GPT_TRAIN_OPENCL_REAL_H

#include <dlfcn.h>
#include <stdlib.h>

static inline void *real(const char *name)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    void *function = library != NULL ? dlsym(library, name) : NULL;
    if (function == NULL)
        abort();
    return function;
}

#endif
