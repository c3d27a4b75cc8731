/* Makes allocations of the project's programs fail.  The linker substitutes these functions for the library's (--wrap,
 * FAULTY_WRAPPED in local.mk) in all calls from the project's code, and jansson is configured to use them.  Allocations
 * before and after main() neither fail nor count: statically linked libraries start and end there, and some cannot
 * handle a failure (CUDA's).
 *
 * GPT_FAULT_ALLOCATION=N makes the N-th allocation fail; N+ every one from the N-th on.  GPT_FAULT_ALLOCATIONS names a
 * file for the number of allocations, of blocks not released and of open files above standard error, written when the
 * process exits.  GPT_FAULT_TRACE names a file for the call stack of each allocation: its number and the addresses of
 * the calls above it, in hexadecimal digits for addr2line.
 */
#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#define BLOCKS_BITS 20
#define BLOCKS_MASK (((size_t)1 << BLOCKS_BITS) - 1)
#define FILES_MAX 256
#define FRAMES_MAX 32
#define ADDRESS_DIGITS 20

static atomic_uint_fast64_t calls;
static uint64_t first; /* number of the first failing call; 0: none */
static bool is_for_ever;
static atomic_bool is_running; /* main() is running */
static int trace_fd = -1;
static pid_t traced; /* the traced process; its forked children close its files */

/* Writes one line with one call. */
static void trace(uint64_t number)
{
    void *frame[FRAMES_MAX];
    char line[(FRAMES_MAX + 1) * ADDRESS_DIGITS];
    if (trace_fd < 0 || getpid() != traced)
        return;
    const int frames = backtrace(frame, FRAMES_MAX);
    int length = snprintf(line, sizeof line, "%" PRIu64, number);
    for (int i = 0; i < frames; i++) /* a return address is behind the call instruction */
        length += snprintf(line + length, sizeof line - (size_t)length, " %" PRIxPTR,
                           (uintptr_t)frame[i] - 1 - (uintptr_t)_r_debug.r_map->l_addr);
    line[length++] = '\n';
    if (write(trace_fd, line, (size_t)length) != length)
        abort();
}

/* Counts the call.  Returns true, with errno set, when it must fail. */
static bool fails(void)
{
    if (!atomic_load(&is_running))
        return false;
    const uint64_t number = atomic_fetch_add(&calls, 1) + 1;
    trace(number);
    if (first == 0 || number < first || (number > first && !is_for_ever))
        return false;
    errno = ENOMEM;
    return true;
}

/* The blocks that are not released yet: a table with linear probing, at most half full. */
static const void *blocks[BLOCKS_MASK + 1];
static size_t block_count;
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t block_home(const void *block)
{
    return (size_t)((uintptr_t)block * UINT64_C(0x9e3779b97f4a7c15) >> (64 - BLOCKS_BITS));
}

static size_t block_place(const void *block)
{
    size_t at = block_home(block);
    while (blocks[at] != NULL && blocks[at] != block)
        at = (at + 1) & BLOCKS_MASK;
    return at;
}

static void *block_add(void *block)
{
    if (block == NULL || !atomic_load(&is_running))
        return block;
    pthread_mutex_lock(&blocks_lock);
    if (2 * block_count > BLOCKS_MASK)
        abort();
    const size_t at = block_place(block);
    block_count += blocks[at] == NULL;
    blocks[at] = block;
    pthread_mutex_unlock(&blocks_lock);
    return block;
}

/* Blocks that a library allocated are not in the table.  Later entries that would no longer be found move up. */
static void block_remove(const void *block)
{
    if (block == NULL)
        return;
    pthread_mutex_lock(&blocks_lock);
    size_t gap = block_place(block);
    if (blocks[gap] != NULL) {
        block_count--;
        for (size_t at = (gap + 1) & BLOCKS_MASK; blocks[at] != NULL; at = (at + 1) & BLOCKS_MASK) {
            if (((at - block_home(blocks[at])) & BLOCKS_MASK) < ((at - gap) & BLOCKS_MASK))
                continue;
            blocks[gap] = blocks[at];
            gap = at;
        }
        blocks[gap] = NULL;
    }
    pthread_mutex_unlock(&blocks_lock);
}

void __real_free(void *block);
void __wrap_free(void *block);
void __wrap_free(void *block)
{
    block_remove(block);
    __real_free(block);
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : block_add(__real_malloc(size));
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : block_add(__real_calloc(count, size));
}

void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size)
{
    if (fails())
        return NULL;
    block_remove(old); /* before another thread can get the same address */
    void *block = __real_realloc(old, size);
    block_add(block != NULL ? block : old);
    return block;
}

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : block_add(__real_aligned_alloc(alignment, size));
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

static void begin(void)
{
    const char *fault = getenv("GPT_FAULT_ALLOCATION"), *trace_path = getenv("GPT_FAULT_TRACE");
    char more = '\0';
    if (fault != NULL && sscanf(fault, "%" SCNu64 "%c", &first, &more) == 0)
        abort();
    is_for_ever = more == '+';
    traced = getpid();
    trace_fd = trace_path != NULL ? open(trace_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    json_set_alloc_funcs(__wrap_malloc, __wrap_free);
}

int __real_main(int count, char **words);
int __wrap_main(int count, char **words);
int __wrap_main(int count, char **words)
{
    begin();
    atomic_store(&is_running, true);
    const int status = __real_main(count, words);
    atomic_store(&is_running, false);
    return status;
}

/* Counts open files with one call that no test makes fail. */
static int files_open(void)
{
    struct pollfd files[FILES_MAX];
    int count = 0;
    for (int i = 0; i < FILES_MAX; i++)
        files[i] = (struct pollfd){.fd = 3 + i};
    if (poll(files, FILES_MAX, 0) < 0)
        abort();
    for (int i = 0; i < FILES_MAX; i++)
        count += (files[i].revents & POLLNVAL) == 0;
    return count;
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("GPT_FAULT_ALLOCATIONS");
    const int open_files = files_open();
    FILE *file = path != NULL ? __real_fopen64(path, "w") : NULL;
    if (file != NULL) {
        fprintf(file, "%" PRIu64 " %zu %d\n", (uint64_t)atomic_load(&calls), block_count, open_files);
        fclose(file);
    }
}
