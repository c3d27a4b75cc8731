/* The function that libFuzzer calls with arbitrary bytes, and the input as a file. */
#include "tests/fuzz/fuzz_common.h"

#include <unistd.h>

#include "base/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void silence(void *context, enum log_level level, const char *line)
{
    (void)context, (void)level, (void)line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hostmem *mem = NULL;
    struct hostmem_counters counters;
    log_sink_set(silence, NULL);
    FUZZ_CHECK(hostmem_create(&mem) == GT_OK);
    fuzz_one(mem, data, size);
    hostmem_counters_get(mem, &counters);
    FUZZ_CHECK(counters.live_bytes == 0 && counters.allocations == counters.releases);
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    hostmem_destroy(mem);
    return 0;
}

const char *fuzz_folder(void)
{
    return access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
}

const char *fuzz_file(const uint8_t *data, size_t size)
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
