/* Checkpoints: saving, publishing, repairing, opening and loading a run.
 *
 * out_dir is a model that transformers opens (config.json, model.safetensors) and a run that can be resumed
 * (trainer_state.json, which names model-NNNNNN.safetensors and optimizer-NNNNNN.safetensors).  A save that is killed at
 * any point leaves the old checkpoint or the new one.  One process writes a folder at a time: the caller holds its lock
 * (file_lock) during checkpoint_save() and checkpoint_repair().  Device data go through callbacks, in pieces.
 * doc/checkpoint.md has the format, the protocol and the reasons.  Hosts are little-endian.
 */
#ifndef GPT_TRAIN_IO_CHECKPOINT_H
#define GPT_TRAIN_IO_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "io/checkpoint_record.h"
#include "io/safetensors.h"
#include "model/model.h"

/* What is saved of a parameter.  Scales are the exponents of 8-bit moments (op.h, state_*), [2, blocks]. */
enum checkpoint_part { CHECKPOINT_PARAMETER, CHECKPOINT_M, CHECKPOINT_V, CHECKPOINT_SCALES, CHECKPOINT_PARTS };

/* A parameter of the running model.  Borrowed for the call. */
struct checkpoint_tensor {
    const char *name; /* as in model.h: "h.0.attn.c_attn.weight" */
    int32_t index;    /* the caller's; given to the callbacks */
    int32_t rank;     /* 1 or 2 */
    int64_t dims[2];  /* as saved: V rows of wte, not Vp */
    /* How the parts are saved, without a change of any bit. */
    enum dtype dtype;  /* of the parameter: DTYPE_F32 or DTYPE_BF16; while loading also DTYPE_F16 */
    enum dtype moment; /* of m and v: DTYPE_F32, DTYPE_BF16, or DTYPE_U8 with scales */
    bool no_second;    /* there is no v */
};

/* out[count] = elements first ... of a part of the parameter `index`, in the dtype that it is saved in. */
typedef enum gt_status checkpoint_read_fn(void *context, enum checkpoint_part part, int32_t index, size_t first,
                                          size_t count, void *out);
/* The same towards the device: elements first ... are values[count] of `dtype`: that of the tensor here where the file has
 * it too, or DTYPE_U8; else fp32.  Scales come before m, and m before v. */
typedef enum gt_status checkpoint_write_fn(void *context, enum checkpoint_part part, int32_t index, size_t first,
                                           size_t count, const void *values, enum dtype dtype);

/* The steps of a save, in order; each leaves a folder that opens. */
enum checkpoint_step {
    CHECKPOINT_STEP_MODEL,     /* model-NNNNNN.safetensors is in place */
    CHECKPOINT_STEP_OPTIMIZER, /* optimizer-NNNNNN.safetensors is in place */
    CHECKPOINT_STEP_RECORD,    /* trainer_state.json is in place: the new checkpoint exists */
    CHECKPOINT_STEP_PUBLISH,   /* model.safetensors is the new model */
    CHECKPOINT_STEP_CONFIG,    /* config.json is up to date */
    CHECKPOINT_STEP_CLEAN,     /* the files of the previous generation are gone */
};

struct checkpoint_save_options {
    const char *out_dir; /* exists */
    const struct model_config *config;
    int32_t bos_token, eos_token; /* -1: unknown */
    struct checkpoint_state state;
    const struct checkpoint_tensor *tensors; /* all parameters, and only those; without biases where config has none */
    size_t tensor_count;
    checkpoint_read_fn *read;
    void *read_context;
    void *staging; /* aligned to 4 bytes; 4 MiB is a good size */
    size_t staging_bytes;
    void (*after_step)(void *context, enum checkpoint_step step); /* for tests; may be NULL */
    void *after_step_context;
};

/* Whether a model of this shape can be saved and read back: to be asked at start-up, not after the first hours.
 * Errors: GT_UNSUPPORTED. */
enum gt_status checkpoint_config_check(const struct model_config *config);

/* Saves the run.  Nothing of ours is allocated but JSON text of about 100 bytes per tensor, released before the return.
 * A value that is not finite is refused, so that it never replaces a good checkpoint.  Errors: GT_IO, GT_NO_MEMORY,
 * GT_FAILURE (a value that is not finite; tensors that do not fit config), what `read` returns.  The last checkpoint
 * still loads then.  After a failure in PUBLISH or CONFIG the new one is complete, and checkpoint_repair() or the next
 * save does the rest. */
enum gt_status checkpoint_save(const struct checkpoint_save_options *options);

/* Puts a folder in order after a kill: removes files aside and generations that trainer_state.json does not name, and
 * makes model.safetensors and config.json say what it says (one note for each).  Does nothing more without a record.
 * Call it under the folder's lock, before probing.  Errors: GT_IO, GT_DATA (a damaged record: nothing is removed then). */
enum gt_status checkpoint_repair(const char *out_dir);

enum checkpoint_kind {
    CHECKPOINT_NONE,    /* neither of the two */
    CHECKPOINT_OURS,    /* trainer_state.json: can be resumed */
    CHECKPOINT_HF,      /* config.json and model.safetensors, or the index of its shards: weights only */
    CHECKPOINT_LLMC,    /* a model file of llm.c: weights only */
    CHECKPOINT_NANOGPT, /* ckpt.pt: can be continued */
};

/* What `path` holds: a folder by the names in it (ckpt.pt among them), a file by its first bytes; what does not exist holds
 * nothing.  Errors: GT_UNSUPPORTED when all that there is are pickles of weights (pytorch_model.bin) or a pickle outside of
 * a zip archive; the line names the way out.  GT_DATA when it is another file. */
enum gt_status checkpoint_probe(const char *path, enum checkpoint_kind *out);

/* An open checkpoint; fields are for reading. */
struct checkpoint {
    struct hostmem *mem; /* outlives the checkpoint */
    enum checkpoint_kind kind;
    struct model_config config; /* of the weights; padded_vocab_size is vocab_size */
    bool tied;
    int32_t bos_token, eos_token;    /* -1: unknown */
    struct checkpoint_record record; /* OURS; of NANOGPT record.state alone: where the run stood */
    struct safetensors *model;
    struct safetensors *optimizer; /* NULL unless opened with it */
    char source[FILE_PATH_MAX];    /* the file that says what the model is, for error lines */
};

/* Opens what `path` holds and checks everything but the arrays' content: the record, sizes, headers, names and shapes.
 * `with_optimizer` needs a checkpoint of ours or of nanoGPT's.  Errors: GT_IO, GT_NO_MEMORY, GT_DATA (nothing there included),
 * GT_UNSUPPORTED; one line naming file and field or tensor. */
enum gt_status checkpoint_open(struct hostmem *mem, const char *path, bool with_optimizer, struct checkpoint **out);
/* Accepts NULL. */
void checkpoint_close(struct checkpoint *checkpoint);

struct checkpoint_load_options {
    const struct model_config *config; /* of the running model: as the checkpoint's, but that block_size may be less */
    const struct checkpoint_tensor *tensors; /* as for saving */
    size_t tensor_count;
    checkpoint_write_fn *write;
    void *write_context;
    void *staging; /* aligned to 4 bytes */
    size_t staging_bytes;
    bool convert; /* moments, and weights of a checkpoint with moments, may be stored as another dtype than here */
};

/* Reads all parameters, and m and v when the checkpoint was opened with its optimizer, and verifies checksums (of a
 * checkpoint of ours), finiteness, scales within their range, the dtypes unless they may be converted, zero biases where the model has none, and an lm_head that is not tied.  Values are
 * handed over before the tensor is verified as a whole, so after a failure the model is to be thrown away.  Errors:
 * GT_IO, GT_DATA naming file and tensor, GT_UNSUPPORTED, what `write` returns. */
enum gt_status checkpoint_load(const struct checkpoint *checkpoint, const struct checkpoint_load_options *options);

#endif
