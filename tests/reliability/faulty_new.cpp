/* C++'s operator new for the programs with failing allocations (faulty_memory.c): it never fails.
 *
 * The emulated card is in C++, is not code under test, and handles a lack of memory no better than a driver.  In a
 * statically linked C++ library operator new would call the wrapped malloc.  ThreadSanitizer has its own operator new,
 * which does not call it and which clang links statically: two definitions would conflict.
 */
#include <cstdlib>
#include <new>

#ifndef __has_feature
#define __has_feature(name) 0
#endif
#if !__has_feature(thread_sanitizer)

extern "C" void *__real_malloc(std::size_t size);
extern "C" void __real_free(void *block);

void *operator new(std::size_t size)
{
    void *block = __real_malloc(size > 0 ? size : 1);
    if (block == nullptr)
        abort();
    return block;
}

void operator delete(void *block) noexcept
{
    __real_free(block);
}

/* The sized variant: by default it calls the other one, but the compiler warns when it is missing. */
void operator delete(void *block, std::size_t) noexcept
{
    __real_free(block);
}
#endif
