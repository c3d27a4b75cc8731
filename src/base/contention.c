/* Reads /proc/self/task/ID/schedstat, a line of three numbers: nanoseconds on a processor, nanoseconds waiting for
 * one, and a count of time slices. */
#include "base/contention.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

void contention_read(struct contention *out)
{
    DIR *threads = opendir("/proc/self/task");
    out->count = 0;
    while (threads && out->count < CONTENTION_THREADS_MAX) {
        struct contention_thread *thread = &out->thread[out->count];
        const struct dirent *entry = readdir(threads);
        if (!entry)
            break;
        thread->id = strtoll(entry->d_name, NULL, 10);
        FILE *file = thread->id > 0 ? fopen(TEXT(300, "/proc/self/task/%s/schedstat", entry->d_name), "re") : NULL;
        out->count += file && fscanf(file, "%" SCNd64 " %" SCNd64, &thread->run_ns, &thread->wait_ns) == 2;
        if (file)
            fclose(file);
    }
    if (threads)
        closedir(threads);
    out->at_ns = clock_monotonic_ns();
}

double contention_share(const struct contention *before, const struct contention *after, int processors)
{
    const double passed_ns = (double)(after->at_ns - before->at_ns);
    double waited_ns = 0.0, ran_ns = 0.0;
    for (int32_t i = 0; i < after->count; i++) {
        struct contention_thread change = after->thread[i]; /* a new thread counts from its start */
        for (int32_t k = 0; k < before->count; k++) {
            change.run_ns -= before->thread[k].id == change.id ? before->thread[k].run_ns : 0;
            change.wait_ns -= before->thread[k].id == change.id ? before->thread[k].wait_ns : 0;
        }
        waited_ns = (double)change.wait_ns > waited_ns ? (double)change.wait_ns : waited_ns;
        ran_ns += (double)change.run_ns;
    }
    if (!(passed_ns > 0.0))
        return 0.0;
    const double waited = waited_ns / passed_ns, taken = processors - ran_ns / passed_ns;
    const double likely = taken * (1.0 + 1.0 / processors) / 2.0, share = waited < likely ? waited : likely;
    return share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;
}
