/* Allocations that fail, in the programs of the project: the linker puts these functions in the place of the library's
 * (--wrap, FAULTY_WRAPPED in local.mk), wherever code of the project calls them, and jansson is told to use them.
 *
 * GPT_FAULT_ALLOCATION=N makes the N-th of them, in the order of the calls, find no memory; N+ every one from the N-th on.
 * GPT_FAULT_ALLOCATIONS names a file for their number, written when the process exits.
 */
#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

static atomic_uint_fast64_t calls;
static uint64_t first; /* that fails; 0 is none */
static bool is_for_ever;

/* True when this call fails. */
static bool fails(void)
{
    const uint64_t number = atomic_fetch_add(&calls, 1) + 1;
    if (first == 0 || number < first || (number > first && !is_for_ever))
        return false;
    errno = ENOMEM;
    return true;
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

void *__real_mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    return fails() ? (void *)-1 : __real_mmap64(address, size, protection, flags, fd, offset);
}

FILE *__real_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode)
{
    return fails() ? NULL : __real_fopen64(path, mode);
}

DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
DIR *__wrap_opendir(const char *path)
{
    return fails() ? NULL : __real_opendir(path);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    return fails() ? EAGAIN : __real_pthread_create(thread, attributes, run, argument);
}

__attribute__((constructor)) static void begin(void)
{
    const char *fault = getenv("GPT_FAULT_ALLOCATION");
    char more = '\0';
    if (fault != NULL && sscanf(fault, "%" SCNu64 "%c", &first, &more) == 0)
        abort();
    is_for_ever = more == '+';
    json_set_alloc_funcs(__wrap_malloc, free);
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("GPT_FAULT_ALLOCATIONS");
    FILE *file = path != NULL ? __real_fopen64(path, "w") : NULL;
    if (file != NULL) {
        fprintf(file, "%" PRIu64 "\n", (uint64_t)atomic_load(&calls));
        fclose(file);
    }
}
