/* trainer_state.json: the commit record of a checkpoint.
 *
 * It names the files of one generation with their sizes and checksums, and holds everything that a resumed run needs
 * besides them.  A generation exists from the moment that this file has been renamed into place; files that it does not
 * name are leftovers.  doc/checkpoint.md describes the fields.
 */
#ifndef GPT_TRAIN_IO_CHECKPOINT_RECORD_H
#define GPT_TRAIN_IO_CHECKPOINT_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"

#define CHECKPOINT_RECORD_NAME "trainer_state.json"
#define CHECKPOINT_FORMAT "gpt-train-checkpoint"
#define CHECKPOINT_VERSION 1
#define CHECKPOINT_RECORD_CRC "record_crc32c" /* the field of the record's own checksum */
#define CHECKPOINT_FILE_NAME_MAX 64
#define CHECKPOINT_RECORD_BYTES_MAX ((size_t)16 << 20)

enum checkpoint_file { CHECKPOINT_FILE_MODEL, CHECKPOINT_FILE_OPTIMIZER, CHECKPOINT_FILES };

/* Where a run stands.  The json_t are opaque here: borrowed while saving; after opening they belong to the checkpoint.
 * NULL where there is none. */
struct checkpoint_state {
    int64_t iter;         /* updates asked for so far; the next one has this number */
    int64_t adam_step;    /* updates applied, skipped ones not counted */
    int64_t seed;         /* >= 0 */
    int64_t samples_seen; /* the data's position: sequences read for training */
    int64_t tokens_seen;
    int64_t evaluations;  /* done so far: the counter of the evaluation batches */
    double best_val_loss; /* not finite: none yet; stored as null, read back as infinity */
    const json_t *data;   /* what the data position means: dataset, sampler, ... */
    const json_t *plan;   /* micro-batch, recompute, chunk, algorithms */
    const json_t *configuration;
    const json_t *loss_scaler;
};

/* One file of the generation. */
struct checkpoint_file_record {
    char name[CHECKPOINT_FILE_NAME_MAX]; /* a plain name: "model-000040.safetensors" */
    uint64_t size_bytes;
    uint32_t crc32c;        /* of the whole file */
    uint32_t header_crc32c; /* of everything before the data */
    const json_t *tensors;  /* {NAME: CRC-32C as 8 hexadecimal digits}; borrowed as in checkpoint_state */
};

struct checkpoint_record {
    json_t *root; /* owns what the pointers below point into, when parsed */
    struct checkpoint_state state;
    const json_t *hf_config; /* what config.json says */
    struct checkpoint_file_record files[CHECKPOINT_FILES];
};

/* The record as JSON; release with json_decref().  record->root is not looked at.  Errors: GT_NO_MEMORY. */
enum gt_status checkpoint_record_make(const struct checkpoint_record *record, json_t **out);
/* The inverse; takes `root` over on success (release with checkpoint_record_release()).  Errors: GT_DATA naming file and
 * field; GT_UNSUPPORTED for a version that is not ours. */
enum gt_status checkpoint_record_parse(json_t *root, const char *source, struct checkpoint_record *out);
/* Reads FOLDER/trainer_state.json.  Errors: GT_IO and those of checkpoint_record_parse(). */
enum gt_status checkpoint_record_read(const char *folder, struct checkpoint_record *out);
void checkpoint_record_release(struct checkpoint_record *record);

/* The 8 digits of a checksum into `text`, and back; the latter is false for anything else. */
void checkpoint_crc_text(char text[static 9], uint32_t crc32c);
bool checkpoint_crc_parse(const char *text, uint32_t *out);
/* The checksum of a tensor.  `source` is the record's path.  Errors: GT_DATA when the record does not list it. */
enum gt_status checkpoint_record_tensor_crc(const struct checkpoint_file_record *file, const char *source,
                                            const char *tensor, uint32_t *out);

/* "model-000040.safetensors", or "model-000040-2.safetensors" for attempt 2, ...  `attempt` counts from 1. */
void checkpoint_file_name(char text[static CHECKPOINT_FILE_NAME_MAX], enum checkpoint_file file, int64_t iter,
                          int attempt);
/* Whether `name` is one that checkpoint_file_name() makes for `file`. */
bool checkpoint_file_name_valid(const char *name, enum checkpoint_file file);

#endif
