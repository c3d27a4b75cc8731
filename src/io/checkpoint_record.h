/* trainer_state.json: the commit record of a checkpoint.
 *
 * It names the files of one generation with their sizes and checksums, and contains everything else that a resumed run
 * needs.  A generation exists once this file has been renamed into place; files that it does not name are leftovers.
 * doc/checkpoint.md describes the fields.
 */
#ifndef GPT_TRAIN_IO_CHECKPOINT_RECORD_H
#define GPT_TRAIN_IO_CHECKPOINT_RECORD_H

#include "base/json.h"
#include "model/plan_choice.h"

#define CHECKPOINT_RECORD_NAME "trainer_state.json"
#define CHECKPOINT_FORMAT "gpt-train-checkpoint"
#define CHECKPOINT_VERSION 1
#define CHECKPOINT_RECORD_CRC "record_crc32c" /* the field with the record's own checksum */
#define CHECKPOINT_BASE_CRC "base_crc32c"     /* the field of `adapter` with the checksum of the base's parameters */
#define CHECKPOINT_FILE_NAME_MAX 64
#define CHECKPOINT_RECORD_BYTES_MAX ((size_t)16 << 20)

enum checkpoint_file { CHECKPOINT_FILE_MODEL, CHECKPOINT_FILE_OPTIMIZER, CHECKPOINT_FILES };

/* The progress of a run.  The json_t are opaque here: borrowed while saving; owned by the checkpoint after opening.
 * NULL if absent. */
struct checkpoint_state {
    int64_t iter;         /* updates attempted so far; the next one has this number */
    int64_t adam_step;    /* updates applied, without skipped ones */
    int64_t seed;         /* >= 0 */
    int64_t samples_seen; /* the position in the data: sequences read for training */
    int64_t tokens_seen;
    int64_t evaluations;  /* completed so far: the counter of the evaluation batches */
    double best_val_loss; /* not finite: none yet; stored as null, read back as infinity */
    const json_t *data;   /* the context of the data position: dataset, sampler, ... */
    const json_t *plan;   /* micro-batch, recompute, chunk, algorithms */
    const json_t *configuration;
    const json_t *loss_scaler;
};

/* One file of the generation. */
struct checkpoint_file_record {
    char name[CHECKPOINT_FILE_NAME_MAX]; /* without a folder: "model-000040.safetensors" */
    uint64_t size_bytes;
    uint32_t crc32c;        /* of the whole file */
    uint32_t header_crc32c; /* of everything before the data */
    const json_t *tensors;  /* {NAME: CRC-32C as 8 hexadecimal digits}; borrowed as in checkpoint_state */
};

struct checkpoint_record {
    json_t *root; /* if parsed, owns the targets of the pointers below */
    struct checkpoint_state state;
    const json_t *hf_config; /* the content of config.json */
    const json_t *adapter;   /* of a run that trains one: PEFT's adapter_config.json and the base's checksum; or NULL */
    struct checkpoint_file_record files[CHECKPOINT_FILES];
};

/* Converts the record to JSON; release it with json_decref().  Ignores record->root.  Errors: GT_NO_MEMORY. */
enum gt_status checkpoint_record_make(const struct checkpoint_record *record, json_t **out);
/* The inverse.  On success it takes ownership of `root` (release it with checkpoint_record_release()).  Errors: GT_DATA
 * naming file and field; GT_UNSUPPORTED for an unknown version. */
enum gt_status checkpoint_record_parse(json_t *root, const char *source, struct checkpoint_record *out);
/* Reads FOLDER/trainer_state.json.  Errors: GT_IO and those of checkpoint_record_parse(). */
enum gt_status checkpoint_record_read(const char *folder, struct checkpoint_record *out);
void checkpoint_record_release(struct checkpoint_record *record);

/* Convert a checksum to 8 hexadecimal digits in `text`, and back.  The latter returns false for any other text. */
void checkpoint_crc_text(char text[static 9], uint32_t crc32c);
bool checkpoint_crc_parse(const char *text, uint32_t *out);
/* Looks up the checksum of a tensor.  `source` is the record's path.  Errors: GT_DATA when the record lacks it. */
enum gt_status checkpoint_record_tensor_crc(const struct checkpoint_file_record *file, const char *source,
                                            const char *tensor, uint32_t *out);

/* Writes "model-000040.safetensors", or "model-000040-2.safetensors" for attempt 2, ... `attempt` counts from 1. */
void checkpoint_file_name(char text[static CHECKPOINT_FILE_NAME_MAX], enum checkpoint_file file, int64_t iter,
                          int attempt);
/* Returns true when checkpoint_file_name() can produce `name` for `file`. */
bool checkpoint_file_name_valid(const char *name, enum checkpoint_file file);

/* Writes the keys of a choice to `object`; `layers` is the model's number of blocks.  Returns false without memory. */
bool plan_choice_write(json_t *object, const struct plan_choice *choice, int32_t layers);
/* Reads the keys that plan_choice_write() of this release or an earlier one wrote.  `source` names the file in error
 * messages.  Errors: GT_DATA, logged. */
enum gt_status plan_choice_read(const json_t *object, const char *source, int32_t layers, struct plan_choice *out);

#endif
