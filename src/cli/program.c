/* What programs that open a model have in common: threads that do not spin for long, and a line when there is no model.
 *
 * How all programs begin and end is in exit_status.c, the command line of those with a struct config in
 * program_start.c.
 */
#include "cli/program.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/exit_status.h"
#include "io/checkpoint.h"
#include "io/checkpoint_keep.h"

/* The library's default, 300,000 pauses, is 16 ms on recent processors: where another program wants the core, a step of
 * a tiny model then takes a second instead of 25 ms.  With 10,000 nothing is lost on an idle machine (median of 150
 * steps of config/shakespeare_char_cpu.py on two cores: 26.7 and 27.0 ms before, 26.5 and 25.4 ms after). */
#define SPIN_COUNT "10000"

void program_spin_limit(char **argv)
{
    char path[FILE_PATH_MAX];
    program_descriptors_hold(); /* the new start inherits them */
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY"))
        return;
    /* Bound by now, this thread would leave the new start no processor but its own. */
    if (getenv("OMP_PROC_BIND") || getenv("OMP_PLACES") || getenv("GOMP_CPU_AFFINITY"))
        return;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0 || setenv("GOMP_SPINCOUNT", SPIN_COUNT, 1) != 0)
        return;
    path[length] = '\0';
    /* Else OpenBLAS starts threads that we never use, of which each maps 128 MiB, or tries for ever (ulimit -v), at its
     * end too. */
    (void)setenv("OPENBLAS_NUM_THREADS", "1", 0);
    /* The library reads the variable before main() begins, hence the new start; without it everything works too. */
    execv(path, argv);
}

enum gt_status program_model_check(const char *path)
{
    char lock[FILE_PATH_MAX], earlier[FILE_PATH_MAX];
    enum checkpoint_kind kind;
    bool exists, begun;
    TRY(checkpoint_probe(path, &kind));
    if (kind != CHECKPOINT_NONE)
        return GT_OK;
    TRY(file_look(path, &exists));
    TRY(file_join(lock, path, "lock")); /* gpt-train's: a run has begun */
    TRY(file_look(lock, &begun));
    if (checkpoint_keep_earlier_last(path, earlier)) {
        log_error("%s: no model here; an earlier run is in %s", path, earlier);
        return GT_DATA;
    }
    log_error("%s: %s", path,
              !exists ? "no such folder; train a model with gpt-train, or use --out_dir"
              : begun ? "no checkpoint yet; gpt-train saves the first one after eval_interval iterations"
                      : "no model here; train one with gpt-train, or use --out_dir");
    return GT_DATA;
}
