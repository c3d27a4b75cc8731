/* C++'s operator new in the programs whose allocations fail (faulty_memory.c): it always finds memory.
 *
 * The emulation of a card is in C++ and none of the project's code that is tested, and does without memory no better than a
 * driver.  Where C++'s library is linked statically, its operator new would call the wrapped malloc.  ThreadSanitizer has
 * an operator new of its own, which does not call it, and which clang links statically: two would be one too many.
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

/* Of which the compiler knows the size; by default it calls the other one too, and is said to be missing without this. */
void operator delete(void *block, std::size_t) noexcept
{
    __real_free(block);
}
#endif
