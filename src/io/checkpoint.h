/* Checkpoints: saving, publishing, repairing, opening and loading a run.
 *
 * out_dir is both a model that transformers opens (config.json, model.safetensors) and a run that can be resumed
 * (trainer_state.json, which names model-NNNNNN.safetensors and optimizer-NNNNNN.safetensors).  A save that is killed
 * at any point leaves the old checkpoint or the new one.  One process at a time writes a folder: the caller holds its
 * lock (file_lock) during checkpoint_save() and checkpoint_repair().  Callbacks transfer the device's data in pieces.
 * doc/checkpoint.md describes the format, the protocol and the reasons.  Hosts are little-endian.
 */
#ifndef GPT_TRAIN_IO_CHECKPOINT_H
#define GPT_TRAIN_IO_CHECKPOINT_H

#include "data/tokenizer.h"
#include "io/hf_config.h"
#include "io/safetensors.h"
#include "model/parameters.h"
#include "model/plan_choice.h"

#define CHECKPOINT_MODEL_NAME "model.safetensors"
#define CHECKPOINT_CONFIG_NAME "config.json"
#define CHECKPOINT_JSON_INDENT 2
#define CHECKPOINT_BASE_FORM                                                                                           \
    "%s: only a model in Hugging Face's form or a GGUF file, or a run of gpt-train without adapters, can be the base " \
    "of an adapter; make one with gpt-export --format=hf"

/* ---- trainer_state.json: the commit record ----
 *
 * It names the files of one generation with their sizes and checksums, and contains everything else that a resumed run
 * needs.  A generation exists once this file has been renamed into place; files that it does not name are leftovers.
 * doc/checkpoint.md describes the fields. */

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

/* Convert a checksum to 8 hexadecimal digits, and back.  The latter returns false for any other text. */
#define CHECKPOINT_CRC_TEXT(crc32c) TEXT(9, "%08" PRIx32, crc32c)
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

/* ---- saving ---- */

/* The saved parts of a parameter.  Scales are the exponents of 8-bit moments (op.h, state_*), [2, blocks]. */
enum checkpoint_part { CHECKPOINT_PARAMETER, CHECKPOINT_M, CHECKPOINT_V, CHECKPOINT_SCALES, CHECKPOINT_PARTS };

/* A parameter of the running model.  Borrowed for the call. */
struct checkpoint_tensor {
    const char *name; /* as in model.h: "h.0.attn.c_attn.weight" */
    int32_t index;    /* chosen by the caller; passed to the callbacks */
    /* The dtypes in which the parts are saved, bit for bit. */
    enum dtype dtype;  /* of the parameter: DTYPE_F32 or DTYPE_BF16; while loading also DTYPE_F16 */
    enum dtype moment; /* of m and v: DTYPE_F32, DTYPE_BF16, or DTYPE_U8 with scales */
    enum dtype used;   /* in which ops read the parameter; loading refuses a value that becomes infinite in it */
    bool no_second;    /* there is no v */
};

/* out[count] = elements first ... of a part of the parameter `index`, in its saved dtype. */
typedef enum gt_status checkpoint_read_fn(void *context, enum checkpoint_part part, int32_t index, size_t first,
                                          size_t count, void *out);
/* Transfers elements first ... to the device.  values[count] has type `dtype`: the dtype of the tensor here if the
 * file's is the same, or DTYPE_U8; else fp32.  Scales come before m, and m before v. */
typedef enum gt_status checkpoint_write_fn(void *context, enum checkpoint_part part, int32_t index, size_t first,
                                           size_t count, const void *values, enum dtype dtype);

struct checkpoint_save_options {
    const char *out_dir; /* exists */
    const struct model_config *config;
    const char *base;     /* the model that the adapters of `config`, if it has any, were made for, */
    uint32_t base_crc32c; /* and its checksum from checkpoint_load() */
    struct checkpoint_state state;
    const struct checkpoint_tensor *tensors; /* exactly the trained parameters; without biases if config has none */
    size_t tensor_count;
    checkpoint_read_fn *read;
    void *read_context;
    void *staging; /* aligned to 4 bytes; 4 MiB is a good size */
    size_t staging_bytes;
};

/* Checks that a model of this shape can be saved and read back.  Call it at start-up, not after the first hours.
 * Errors: GT_UNSUPPORTED. */
enum gt_status checkpoint_config_check(const struct model_config *config);

/* Saves the run.  Allocates only JSON text, about 100 bytes per tensor, and releases it before returning.  Refuses a
 * value that is not finite, so that it never replaces a good checkpoint.  Errors: GT_IO, GT_NO_MEMORY, GT_DIVERGED (a
 * value that is not finite), errors of `read`.  The last checkpoint can still be
 * loaded then.  After a failure in PUBLISH or CONFIG the new one is complete, and checkpoint_repair() or the next save
 * finishes publishing it. */
enum gt_status checkpoint_save(const struct checkpoint_save_options *options);

/* Repairs a folder after a kill: removes temporary files, a kept checkpoint that is half made or half removed, and
 * generations that trainer_state.json does not name, and makes model.safetensors and config.json match the record (one
 * note for each).  Without a record it only removes files.  Call it under the folder's lock, before probing.  Errors:
 * GT_IO, GT_DATA (a damaged record: no generation is removed then). */
enum gt_status checkpoint_repair(const char *out_dir);

/* ---- opening and loading ---- */

enum checkpoint_kind {
    CHECKPOINT_NONE,    /* no checkpoint */
    CHECKPOINT_OURS,    /* trainer_state.json: can be resumed */
    CHECKPOINT_HF,      /* config.json and model.safetensors, or the index of its shards: weights only */
    CHECKPOINT_LLMC,    /* a model file of llm.c: weights only */
    CHECKPOINT_GGUF,    /* a GGUF file: weights only */
    CHECKPOINT_NANOGPT, /* ckpt.pt: can be continued */
    CHECKPOINT_PEFT,    /* adapter_config.json and adapter_model.safetensors: weights of adapters only */
};

/* Detects the kind of checkpoint at `path`: a folder by its file names (such as ckpt.pt), a file by its first bytes.  A
 * missing path is CHECKPOINT_NONE.  Errors: GT_UNSUPPORTED when there are only pickled weights (pytorch_model.bin) or a
 * pickle outside of a zip archive; the line says what to do.  GT_DATA when it is another file. */
enum gt_status checkpoint_probe(const char *path, enum checkpoint_kind *out);

/* An open checkpoint; the fields are read-only. */
struct checkpoint {
    enum checkpoint_kind kind;
    struct model_config config;      /* of the weights; padded_vocab_size is vocab_size */
    struct hf_config_rest rest;      /* what else config.json says, or would say */
    struct checkpoint_record record; /* OURS: all of it; NANOGPT: only record.state, the progress of the run */
    struct safetensors *model;       /* with adapters also the arrays of their base */
    char base[FILE_PATH_MAX];        /* the name of the base; "" without adapters */
    struct safetensors *optimizer;   /* NULL unless opened with it */
    char source[FILE_PATH_MAX];      /* the file that describes the model, for error lines */
};

/* Opens the checkpoint at `path` and checks everything except the content of the arrays: the record, sizes, headers,
 * names and shapes.  An lm_head.weight where config.json ties the output layer is compared with the token embedding.
 * Adapters are opened together with their base.  `with_optimizer` requires a checkpoint of ours or of nanoGPT.
 * Errors: GT_IO, GT_NO_MEMORY, GT_DATA (including when nothing is there), GT_UNSUPPORTED; one line naming file and
 * field or tensor. */
enum gt_status checkpoint_open(const void *owner, const char *path, bool with_optimizer, struct checkpoint **out);

/* Logs a note if the file has quantised tensors, which become numbers as they are loaded. */
void checkpoint_blocks_log(const struct checkpoint *checkpoint);

/* The record contains the hash of the tokenizer that a checkpoint was trained with: of its behaviour, not of the file
 * that it was read from.  Rejects a tokenizer other than the checkpoint's; `what` names it in the message.  Succeeds
 * when the record has no hash or either argument is NULL.  Errors: GT_DATA. */
enum gt_status checkpoint_tokenizer_check(const struct checkpoint *checkpoint, const struct tokenizer *tokenizer,
                                          const char *what);

struct checkpoint_load_options {
    const struct model_config *config;       /* of the running model: the checkpoint's, but block_size may be smaller */
    const struct checkpoint_tensor *tensors; /* as for saving */
    size_t tensor_count;
    checkpoint_write_fn *write; /* NULL: only verify; `tensors` is not used then */
    void *write_context;
    void *staging; /* aligned to 4 bytes */
    size_t staging_bytes;
    uint32_t *base_crc32c; /* set to the checksum of all parameters that are no adapters; or NULL */
    bool convert;          /* allow moments, and weights of a checkpoint with moments, in another dtype than here */
};

/* Reads all parameters, and m and v if the checkpoint was opened with its optimizer.  Verifies checksums (in a
 * checkpoint of ours), finiteness, the range of scales, dtypes unless they may be converted, that biases are zero if
 * the model has none, and that the base of adapters of ours is the one that they were trained on.  Refuses a weight
 * that overflows in the dtype of the ops.  Values are passed on before their tensor is completely verified, so the
 * model must be discarded after a failure.  Errors: GT_IO, GT_DATA naming file and tensor, GT_UNSUPPORTED, errors of
 * `write`. */
enum gt_status checkpoint_load(const struct checkpoint *checkpoint, const struct checkpoint_load_options *options);

/* ---- checkpoints that a save does not replace: those of an earlier run, and the last few of the current run ----
 *
 * Each is a subfolder of out_dir that is an out_dir itself: earlier-NNN of an earlier run, checkpoint-NNNNNN of
 * iteration NNNNNN.  It is made of hard links before the save that would remove the files, so that a kill leaves
 * out_dir's checkpoint unchanged, perhaps together with the new folder.  Callers of functions that write hold out_dir's
 * lock. */

/* Call it before the first save of a run that does not continue out_dir's checkpoint.  It keeps the current contents as
 * out_dir/earlier-NNN, NNN being the next number, with the file `metrics` ("" or missing: none) as metrics.jsonl, moves
 * the kept checkpoints of iterations after `after` into it, and logs its path.  Does nothing if there is nothing to
 * keep.  Errors: GT_IO, GT_USAGE. */
enum gt_status checkpoint_keep_earlier(const char *out_dir, int64_t after, const char *metrics);
/* Give the folder that checkpoint_keep_earlier() would use, and the last one that exists.  Return false when out_dir,
 * or that folder, has no trainer_state.json. */
bool checkpoint_keep_earlier_next(const char *out_dir, char path[static FILE_PATH_MAX]);
bool checkpoint_keep_earlier_last(const char *out_dir, char path[static FILE_PATH_MAX]);

/* Call it before a save.  If keep > 1, it makes out_dir/checkpoint-NNNNNN from the current checkpoint.  Then it removes
 * kept checkpoints except the last keep - 1 and the best.  A folder that contains other files is not removed.  Errors:
 * GT_IO, GT_DATA. */
enum gt_status checkpoint_keep_last(const char *out_dir, int64_t keep);
/* The number of kept checkpoints, not counting out_dir's own. */
size_t checkpoint_keep_count(const char *out_dir);

/* Returns true when a file of this name is part of a checkpoint, or of a model that another program put there. */
bool checkpoint_keep_belongs(const char *name);

/* Finds the folder of the checkpoint `which`: an iteration, or "best" (the lowest validation loss).  Gives out_dir for
 * its own checkpoint.  Errors: GT_USAGE when `which` is neither; GT_DATA when there is no such checkpoint, listing the
 * existing ones. */
enum gt_status checkpoint_keep_find(const char *out_dir, const char *which, char path[static FILE_PATH_MAX]);

/* ---- for the files of this folder ---- */

/* Sets the name, with the prefix "", "m.", "v." or "s.", and the shape of a part of a parameter in a file. */
void checkpoint_part_tensor(const struct parameter_shape *tensor, enum checkpoint_part part,
                            struct parameter_shape *out);
#define HF_PREFIX "transformer."
/* Finds `tensor` in `file`, whose names all have HF_PREFIX (save_pretrained of a GPT2LMHeadModel) or all lack it (the
 * hub's files).  The shapes must match, except that a position table may have more rows.  Errors: GT_DATA with
 * "FILE: h.3.attn.c_attn.weight is [768,2300]; the model needs [768,2304]", or "is missing". */
enum gt_status hf_layout_find(const struct safetensors *file, const struct parameter_shape *tensor, size_t *out_index);
/* Returns true for a name that old versions of transformers gave to what is no weight: the causal mask and its fill
 * value, the frequencies of rotary positions, the numbers of positions.  Source: _keys_to_ignore_on_load_unexpected. */
bool hf_layout_is_buffer(const char *name);
/* Checks that `file` contains exactly the tensors of `config`; the only others allowed are lm_head.weight, which is not
 * listed if it is the token embedding, and old buffers.  transformers' GPT-2 always
 * has biases, so the file of one without them has zeros, which have no effect.  Source: transformers modeling_gpt2.py,
 * GPT2Model and GPT2Block; modeling_llama.py.  Errors: GT_DATA, naming the tensor. */
enum gt_status hf_layout_check(const struct safetensors *file, const struct model_config *config);
/* Checks that the optimizer's file has exactly the required parts of every parameter: m; v, unless it is a block's
 * matrix whose optimizer has one moment; scales if the moments have 8 bits.  Errors: GT_DATA, naming the tensor. */
enum gt_status checkpoint_parts_check(const struct safetensors *file, const struct model_config *config);

/* The public files of the folder, kept consistent with the record.  The caller holds the folder's lock. */

/* Call it before replacing the model by one with `config`.  It removes a config.json with other content, so that in
 * between a reader finds no model rather than one model's weights with another's shape.  Errors: GT_IO. */
enum gt_status checkpoint_publish_retract(const char *folder, const json_t *config);
/* Makes FOLDER/model.safetensors a hard link to FOLDER/`name` in one rename; a copy if the file system refuses links or
 * `may_link` is false.  Errors: GT_IO; the old file is in place then. */
enum gt_status checkpoint_publish_model(const char *folder, const char *name, bool may_link);
/* Returns true when FOLDER/model.safetensors and FOLDER/`name` are the same file. */
bool checkpoint_publish_is_link(const char *folder, const char *name);
/* Replaces FOLDER/config.json unless it is up to date; *out_changed is whether it was replaced.  Errors: GT_IO,
 * GT_NO_MEMORY. */
enum gt_status checkpoint_publish_config(const char *folder, const json_t *config, bool *out_changed);
/* Sets *out to the permissions for a new file of a generation: the intersection of those of the files of this kind in
 * `folder`.  *out_found is false when there are none.  Errors: GT_IO when they cannot be determined. */
enum gt_status checkpoint_publish_mode(const char *folder, enum checkpoint_file which, mode_t *out, bool *out_found);
/* Removes the generation files in `folder` except the two named ("" keeps none). */
void checkpoint_publish_clean(const char *folder, const char *model_name, const char *optimizer_name);

#endif
