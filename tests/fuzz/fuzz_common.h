/* Shared code of the fuzzing targets: memory, a silent log, the input as a file, and an assertion.
 *
 * Each target is one function that libFuzzer calls with arbitrary bytes.  It must accept or reject them without a
 * crash, and release everything that it allocated.
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

/* An assertion that is independent of NDEBUG. */
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

/* Creates the host memory for one input, and switches off the log. */
static inline struct hostmem *fuzz_open(void)
{
    struct hostmem *mem = NULL;
    log_sink_set(fuzz_silence, NULL);
    FUZZ_CHECK(hostmem_create(&mem) == GT_OK);
    return mem;
}

/* Prefers a folder in memory: creating and removing files on a disk takes longer than reading most inputs. */
static inline const char *fuzz_folder(void)
{
    return access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
}

/* Stores the input in an unnamed file, which each input overwrites.  Returns a path that opens it. */
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

/* Checks that everything has been released. */
static inline void fuzz_close(struct hostmem *mem)
{
    struct hostmem_counters counters;
    hostmem_counters_get(mem, &counters);
    FUZZ_CHECK(counters.live_bytes == 0 && counters.allocations == counters.releases);
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    hostmem_destroy(mem);
}

#endif
