/* The re-execution of the programs that compute or link with BLAS: two libraries read their
 * settings before main().
 *
 * It is separate from program.c because gpt-prepare must not start a program.
 */

#include "cli/restart.h"

#include <sys/types.h>
#include <unistd.h>

#include "base/file.h"

/* The library's default, 300,000 pauses, is 16 ms on recent processors.  If another program needs
 * the core, a step of a tiny model then takes a second instead of 25 ms.  With 10,000 nothing is
 * lost on an idle machine (median of 150 steps of config/shakespeare_char_cpu.py on two cores: 26.7
 * and 27.0 ms before, 26.5 and 25.4 ms after). */
#define SPIN_COUNT "10000"

void program_spin_limit(char **argv)
{
    char path[FILE_PATH_MAX];
    program_descriptors_hold(); /* the new process inherits them */
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY"))
        return;
    /* libgomp has already bound this thread, so the new process could use only its processor. */
    if (getenv("OMP_PROC_BIND") || getenv("OMP_PLACES") || getenv("GOMP_CPU_AFFINITY"))
        return;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0 || setenv("GOMP_SPINCOUNT", SPIN_COUNT, 1) != 0)
        return;
    path[length] = '\0';
    /* Otherwise OpenBLAS starts threads that we never use.  Each maps 128 MiB; under ulimit -v
     * OpenBLAS retries forever, also at exit. */
    (void)setenv("OPENBLAS_NUM_THREADS", "1", 0);
    /* libgomp reads the variable before main(), hence the re-execution.  If that fails, the program
     * still works. */
    execv(path, argv);
}
