/* What the programs have in common: --version, --list-devices, and the spinning of threads. */
#ifndef GPT_TRAIN_CLI_PROGRAM_H
#define GPT_TRAIN_CLI_PROGRAM_H

#include <stdbool.h>

#include "base/status.h"
#include "config/config.h"

/* Reads the command line into `config`.  Answers --help, --version and --list-devices; *answered says so.
 * Errors: GT_USAGE, all problems logged. */
enum gt_status program_start(struct config *config, enum config_program program, const char *name, int argc,
                             char **argv, bool *answered);
/* Whether there is a model at `path`; says whether the folder is missing, a first checkpoint, or a model.
 * Errors: GT_DATA, those of checkpoint_probe(). */
enum gt_status program_model_check(const char *path);
/* Starts the program anew with a limit on how long GCC's OpenMP threads spin when they wait, and without
 * OpenBLAS's own threads; returns when there is one
 * already (GOMP_SPINCOUNT or OMP_WAIT_POLICY in the environment), where threads are bound (OMP_PROC_BIND, OMP_PLACES,
 * GOMP_CPU_AFFINITY), or nothing can be done.  Call it first: what was said before is said again. */
void program_spin_limit(char **argv);

#endif
