/* The re-execution of the programs that compute or link with BLAS: two libraries read their
 * settings before main(). */
#ifndef GPT_TRAIN_CLI_RESTART_H
#define GPT_TRAIN_CLI_RESTART_H

#include "cli/program.h"

/* Re-executes the program with a limit on how long GCC's OpenMP threads spin while they wait, and
 * without OpenBLAS's own threads.  Returns without doing so if the environment already sets a
 * policy (GOMP_SPINCOUNT or OMP_WAIT_POLICY) or binds threads (OMP_PROC_BIND, OMP_PLACES,
 * GOMP_CPU_AFFINITY), or if re-execution fails.  Call it first: anything printed before it is
 * printed twice. */
void program_spin_limit(char **argv);

#endif
