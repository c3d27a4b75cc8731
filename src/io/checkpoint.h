/* Checkpoints: saving, publishing, repairing, opening and loading a run.
 *
 * out_dir is both a model that transformers opens (config.json, model.safetensors) and a run that
 * can be resumed (trainer_state.json, which names model-NNNNNN.safetensors and
 * optimizer-NNNNNN.safetensors).  A save that is killed at any point leaves the old checkpoint or
 * the new one.  One process at a time writes a folder: the caller holds its lock (file_lock) during
 * checkpoint_save() and checkpoint_repair().  Callbacks transfer the device's data in pieces.
 * doc/checkpoint.md describes the format, the protocol and the reasons.  Hosts are little-endian.
 */
#ifndef GPT_TRAIN_IO_CHECKPOINT_H
#define GPT_TRAIN_IO_CHECKPOINT_H

#include "data/tokenizer.h"
#include "io/hf_config.h"
#include "io/safetensors.h"
#include "io/safetensors_table.h"
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
 * It names the files of one generation with their sizes and checksums, and contains everything else
 * that a resumed run needs.  A generation exists once this file has been renamed into place; files
 * that it does not name are leftovers. doc/checkpoint.md describes the fields. */

#define CHECKPOINT_RECORD_NAME "trainer_state.json"
#define CHECKPOINT_FORMAT "gpt-train-checkpoint"
#define CHECKPOINT_VERSION 1
#define CHECKPOINT_RECORD_CRC "record_crc32c" /* the field with the record's own checksum */
/* The field of `adapter` with the checksum of the base's parameters. */
#define CHECKPOINT_BASE_CRC "base_crc32c"
#define CHECKPOINT_FILE_NAME_MAX 64
#define CHECKPOINT_RECORD_BYTES_MAX ((size_t)16 << 20)

enum checkpoint_file { CHECKPOINT_FILE_MODEL, CHECKPOINT_FILE_OPTIMIZER, CHECKPOINT_FILES };

/* The progress of a run.  The json_t are opaque here: borrowed while saving; owned by the
 * checkpoint after opening. NULL if absent. */
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
    const json_t
        *tensors; /* {NAME: CRC-32C as 8 hexadecimal digits}; borrowed as in checkpoint_state */
};

struct checkpoint_record {
    json_t *root; /* if parsed, owns the targets of the pointers below */
    struct checkpoint_state state;
    const json_t *hf_config; /* the content of config.json */
    const json_t *adapter;   /* of a run that trains an adapter: PEFT's adapter_config.json and the
                                base's checksum; or NULL */
    struct checkpoint_file_record files[CHECKPOINT_FILES];
};

/* The saved parts of a parameter.  Scales are the exponents of 8-bit moments (op.h, state_*), [2,
 * blocks]. */
enum checkpoint_array {
    CHECKPOINT_PARAMETER,
    CHECKPOINT_M,
    CHECKPOINT_V,
    CHECKPOINT_SCALES,
    CHECKPOINT_ARRAYS
};

/* A parameter of the running model.  Borrowed for the call. */
struct checkpoint_tensor {
    const char *name; /* as in model.h: "h.0.attn.c_attn.weight" */
    int32_t index;    /* chosen by the caller; passed to the callbacks */
    /* The dtypes in which the parts are saved, bit for bit. */
    enum dtype dtype;  /* of the parameter: DTYPE_F32 or DTYPE_BF16; while loading also DTYPE_F16 */
    enum dtype moment; /* of m and v: DTYPE_F32, DTYPE_BF16, or DTYPE_U8 with scales */
    enum dtype used;   /* that ops read the parameter in; loading refuses a value that becomes
                          infinite in it */
    bool no_second;    /* there is no v */
};

enum checkpoint_kind {
    CHECKPOINT_NONE, /* no checkpoint */
    CHECKPOINT_OURS, /* trainer_state.json: can be resumed */
    CHECKPOINT_HF, /* config.json and model.safetensors, or the index of its shards: weights only */
    CHECKPOINT_LLMC,    /* a model file of llm.c: weights only */
    CHECKPOINT_GGUF,    /* a GGUF file: weights only */
    CHECKPOINT_NANOGPT, /* ckpt.pt: can be continued */
    CHECKPOINT_PEFT, /* adapter_config.json and adapter_model.safetensors: weights of adapters only
                      */
};

/* An open checkpoint; the fields are read-only. */
struct checkpoint {
    enum checkpoint_kind kind;
    struct model_config config; /* of the weights; padded_vocab_size is vocab_size */
    struct hf_config_rest rest; /* the other fields of config.json, read or implied */
    struct checkpoint_record
        record; /* OURS: all of it; NANOGPT: only record.state, the progress of the run */
    struct safetensors *model;     /* with adapters also the arrays of their base */
    char base[FILE_PATH_MAX];      /* the name of the base; "" without adapters */
    struct safetensors *optimizer; /* NULL unless opened with it */
    char source[FILE_PATH_MAX];    /* the file that describes the model, for error lines */
};

#endif
