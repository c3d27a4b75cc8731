/* What the fuzzing targets share: memory, silence, the input as a file, and a check that aborts.
 *
 * Each target is one function that libFuzzer calls with bytes of its choice.  It must accept or refuse them without a
 * crash, and release what it took.
 */
#ifndef GPT_TRAIN_FUZZ_COMMON_H
#define GPT_TRAIN_FUZZ_COMMON_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/hostmem.h"
#include "base/log.h"
#include "base/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An assertion that stays when NDEBUG is set. */
#define FUZZ_CHECK(condition)                                               \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                        \
        }                                                                   \
    } while (0)

static inline void fuzz_silence(void *context, enum log_level level, const char *line)
{
    (void)context, (void)level, (void)line;
}

/* Host memory for one input; the log is switched off. */
static inline struct hostmem *fuzz_open(void)
{
    struct hostmem *mem = NULL;
    log_sink_set(fuzz_silence, NULL);
    FUZZ_CHECK(hostmem_create(&mem) == GT_OK);
    return mem;
}

/* A folder in memory where there is one: creating and removing files on a disk takes longer than reading most inputs. */
static inline const char *fuzz_folder(void)
{
    return access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
}

/* The input as a file: one that has no name and is written anew for each input.  Returns a path that opens it. */
static inline const char *fuzz_file(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        snprintf(path, sizeof path, "%s/gpt-train-fuzz-XXXXXX", fuzz_folder());
        fd = mkstemp(path);
        FUZZ_CHECK(fd >= 0 && unlink(path) == 0);
        snprintf(path, sizeof path, "/dev/fd/%d", fd);
    }
    FUZZ_CHECK(pwrite(fd, data, size, 0) == (ssize_t)size && ftruncate(fd, (off_t)size) == 0);
    return path;
}

/* Everything must have been released. */
static inline void fuzz_close(struct hostmem *mem)
{
    struct hostmem_counters counters;
    hostmem_counters_get(mem, &counters);
    FUZZ_CHECK(counters.live_bytes == 0 && counters.allocations == counters.releases);
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    hostmem_destroy(mem);
}

#endif
