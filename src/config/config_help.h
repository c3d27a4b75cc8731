/* --help, from the table of keys. */
#ifndef GPT_TRAIN_CONFIG_CONFIG_HELP_H
#define GPT_TRAIN_CONFIG_CONFIG_HELP_H

#include "config/config.h"

/* Prints --help: the common keys, or all of them, grouped, with defaults, in 80 columns.
 * doc/man_page.sh turns the second form into the man pages' lists. */
void config_print_help(FILE *stream, enum config_program program, bool all);

#endif
