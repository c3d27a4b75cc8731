/* The start of the programs that have a struct config: the command line, --help, --version and
 * --list-devices. */
#ifndef GPT_TRAIN_CLI_PROGRAM_START_H
#define GPT_TRAIN_CLI_PROGRAM_START_H

#include "cli/program.h"

/* Reads the command line into `config`.  Handles --help, --version and --list-devices, and sets
 * *answered if it did. Errors: GT_USAGE, all problems logged. */
enum gt_status program_start(struct config *config, enum config_program program, const char *name,
                             int argc, char **argv, bool *answered);

#endif
