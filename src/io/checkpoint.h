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

#include <sys/types.h>

#include "base/hostmem.h"
#include "data/tokenizer.h"
#include "io/checkpoint_record.h"
#include "io/safetensors.h"
#include "model/parameters.h"

#define CHECKPOINT_MODEL_NAME "model.safetensors"
#define CHECKPOINT_CONFIG_NAME "config.json"
#define CHECKPOINT_JSON_INDENT 2
#define CHECKPOINT_BASE_FORM                                                                                           \
    "%s: only a model in Hugging Face's form, or a run of gpt-train without adapters, can be the base of an adapter; " \
    "make one with gpt-export --format=hf"

/* The saved parts of a parameter.  Scales are the exponents of 8-bit moments (op.h, state_*), [2, blocks]. */
enum checkpoint_part { CHECKPOINT_PARAMETER, CHECKPOINT_M, CHECKPOINT_V, CHECKPOINT_SCALES, CHECKPOINT_PARTS };

/* A parameter of the running model.  Borrowed for the call. */
struct checkpoint_tensor {
    const char *name; /* as in model.h: "h.0.attn.c_attn.weight" */
    int32_t index;    /* chosen by the caller; passed to the callbacks */
    int32_t rank;     /* 1 or 2 */
    int64_t dims[2];  /* as saved: V rows of wte, not Vp */
    /* The dtypes in which the parts are saved, bit for bit. */
    enum dtype dtype;  /* of the parameter: DTYPE_F32 or DTYPE_BF16; while loading also DTYPE_F16 */
    enum dtype moment; /* of m and v: DTYPE_F32, DTYPE_BF16, or DTYPE_U8 with scales */
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
    const char *base;             /* the model that the adapters of `config`, if it has any, were made for, */
    uint32_t base_crc32c;         /* and its checksum from checkpoint_load() */
    int32_t bos_token, eos_token; /* -1: unknown */
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
 * value that is not finite, so that it never replaces a good checkpoint.  Errors: GT_IO, GT_NO_MEMORY, GT_FAILURE (a
 * value that is not finite), errors of `read`.  The last checkpoint can still be
 * loaded then.  After a failure in PUBLISH or CONFIG the new one is complete, and checkpoint_repair() or the next save
 * finishes publishing it. */
enum gt_status checkpoint_save(const struct checkpoint_save_options *options);

/* Repairs a folder after a kill: removes temporary files and generations that trainer_state.json does not name, and
 * makes model.safetensors and config.json match the record (one note for each).  Without a record it only removes
 * files.  Call it under the folder's lock, before probing.  Errors: GT_IO, GT_DATA (a damaged record: no generation is
 * removed then). */
enum gt_status checkpoint_repair(const char *out_dir);

enum checkpoint_kind {
    CHECKPOINT_NONE,    /* no checkpoint */
    CHECKPOINT_OURS,    /* trainer_state.json: can be resumed */
    CHECKPOINT_HF,      /* config.json and model.safetensors, or the index of its shards: weights only */
    CHECKPOINT_LLMC,    /* a model file of llm.c: weights only */
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
    struct model_config config; /* of the weights; padded_vocab_size is vocab_size */
    bool tied;
    int32_t bos_token, eos_token;    /* -1: unknown */
    struct checkpoint_record record; /* OURS: all of it; NANOGPT: only record.state, the progress of the run */
    struct safetensors *model;       /* with adapters also the arrays of their base */
    char base[FILE_PATH_MAX];        /* the name of the base; "" without adapters */
    struct safetensors *optimizer;   /* NULL unless opened with it */
    char source[FILE_PATH_MAX];      /* the file that describes the model, for error lines */
};

/* Opens the checkpoint at `path` and checks everything except the content of the arrays: the record, sizes, headers,
 * names and shapes.  Adapters are opened together with their base.  `with_optimizer` requires a checkpoint of ours or
 * of nanoGPT.  Errors: GT_IO, GT_NO_MEMORY, GT_DATA (including when nothing is there), GT_UNSUPPORTED; one line naming
 * file and field or tensor. */
enum gt_status checkpoint_open(const void *owner, const char *path, bool with_optimizer, struct checkpoint **out);

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
 * the model has none, that lm_head equals the token embedding unless config.json ties them, and that the base of
 * adapters of ours is the one that they were trained on.  Values are passed on
 * before their tensor is completely verified, so the model must be discarded after a failure.  Errors: GT_IO, GT_DATA
 * naming file and tensor, GT_UNSUPPORTED, errors of `write`. */
enum gt_status checkpoint_load(const struct checkpoint *checkpoint, const struct checkpoint_load_options *options);

/* For the files of this folder. */

/* Sets the name, with the prefix "", "m.", "v." or "s.", and the shape of a part of a parameter in a file. */
void checkpoint_part_tensor(const struct parameter_shape *tensor, enum checkpoint_part part,
                            struct parameter_shape *out);
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
/* Removes the generation files in `folder` except the two named ("" keeps none).  Returns the number removed. */
size_t checkpoint_publish_clean(const char *folder, const char *model_name, const char *optimizer_name);
/* Returns true when the file at `path` is what json_replace_file() would write.  Logs nothing when it is absent. */
bool checkpoint_json_equals(const char *path, const json_t *value);

#endif
