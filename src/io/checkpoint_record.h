/* Reads and writes trainer_state.json. */
#ifndef GPT_TRAIN_IO_CHECKPOINT_RECORD_H
#define GPT_TRAIN_IO_CHECKPOINT_RECORD_H

#include "io/checkpoint.h"

/* Converts the record to JSON; release it with json_decref().  Ignores record->root.  Errors:
 * GT_NO_MEMORY. */
enum gt_status checkpoint_record_make(const struct checkpoint_record *record, json_t **out);
/* The inverse.  On success it takes ownership of `root` (release it with
 * checkpoint_record_release()).  Errors: GT_DATA naming file and field; GT_UNSUPPORTED for an
 * unknown version. */
enum gt_status checkpoint_record_parse(json_t *root, const char *source,
                                       struct checkpoint_record *out);
/* Reads FOLDER/trainer_state.json.  Errors: GT_IO and those of checkpoint_record_parse(). */
enum gt_status checkpoint_record_read(const char *folder, struct checkpoint_record *out);
void checkpoint_record_release(struct checkpoint_record *record);

/* Convert a checksum to 8 hexadecimal digits, and back.  The latter returns false for any other
 * text. */
#define CHECKPOINT_CRC_TEXT(crc32c) TEXT(9, "%08" PRIx32, crc32c)
bool checkpoint_crc_parse(const char *text, uint32_t *out);
/* Looks up the checksum of a tensor.  `source` is the record's path.  Errors: GT_DATA when the
 * record lacks it. */
enum gt_status checkpoint_record_tensor_crc(const struct checkpoint_file_record *file,
                                            const char *source, const char *tensor, uint32_t *out);

/* Writes "model-000040.safetensors", or "model-000040-2.safetensors" for attempt 2, ... `attempt`
 * counts from 1. */
void checkpoint_file_name(char text[static CHECKPOINT_FILE_NAME_MAX], enum checkpoint_file file,
                          int64_t iter, int attempt);
/* Returns true when checkpoint_file_name() can produce `name` for `file`. */
bool checkpoint_file_name_valid(const char *name, enum checkpoint_file file);

/* Writes the keys of a choice to `object`; `layers` is the model's number of blocks.  Returns false
 * without memory. */
bool plan_choice_write(json_t *object, const struct plan_choice *choice, int32_t layers);
/* Reads the keys that plan_choice_write() of this release or an earlier one wrote.  `source` names
 * the file in error messages.  Errors: GT_DATA, logged. */
enum gt_status plan_choice_read(const json_t *object, const char *source, int32_t layers,
                                struct plan_choice *out);

#endif
