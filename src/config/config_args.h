/* Reads a command line as nanoGPT does: files and --key=value from left to right; the last setting
 * wins. */
#ifndef GPT_TRAIN_CONFIG_CONFIG_ARGS_H
#define GPT_TRAIN_CONFIG_CONFIG_ARGS_H

#include "config/config.h"

/* Returns how many tasks MPI's launcher started, or 1 without one; sets *first to true in one of
 * them. */
int64_t config_tasks(bool *first);

/* Reads argv[1..] from left to right into `config`, which must hold the defaults, then calls
 * config_check() and config_notes().  An argument without dashes is a file; `--key=value` and
 * `--key value` set a key; the last setting wins.  If --help, -h or --version occurs anywhere, the
 * function sets that field, ignores everything else and returns GT_OK, so that help is available
 * even when other arguments are wrong.  argv must outlive `config`. Errors: GT_USAGE, after every
 * problem has been logged, one line each. */
enum gt_status config_parse_args(struct config *config, int argc, char *const argv[]);

/* Reads the file that `compare` names; the flags of `config` apply to it too.  `config` must
 * outlive `out`. Errors: as config_parse_file() and config_check(). */
enum gt_status config_compared(const struct config *config, struct config *out);

#endif
