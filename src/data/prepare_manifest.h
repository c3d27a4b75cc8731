/* manifest.json: the sources of a data set, the options, and the contents; and the state of an
 * unfinished run. */
#ifndef GPT_TRAIN_DATA_PREPARE_MANIFEST_H
#define GPT_TRAIN_DATA_PREPARE_MANIFEST_H

#include "data/prepare_state.h"

/* prepare_state_load() sets phase, state and stopped, and refuses different options or inputs.
 * prepare_state_shards() gives the token files to the writers.  prepare_state_refuse() logs that a
 * field is damaged and returns GT_DATA. */
enum gt_status prepare_manifest_save(const struct prepare *prep, const char *path);
enum gt_status prepare_state_load(struct prepare *prep);
enum gt_status prepare_state_check_tokenizer(const struct prepare *prep);
enum gt_status prepare_state_shards(const struct prepare *prep);
enum gt_status prepare_state_save(struct prepare *prep, enum prepare_phase phase);
enum gt_status prepare_state_refuse(const struct prepare *prep, const char *field);

/* Returns the end of the tokenizer's files to write, which begin with TOKENIZER_FILE_OURS. */
int prepare_tokenizer_files(const struct prepare *prep);
/* Logs one line about the JSON of `what` and returns GT_NO_MEMORY when `value` is NULL or
 * `failures` is not 0. */
enum gt_status prepare_json_check(const json_t *value, int failures, const char *what);

#endif
