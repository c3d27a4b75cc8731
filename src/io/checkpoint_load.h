/* Loads the arrays of an open checkpoint. */
#ifndef GPT_TRAIN_IO_CHECKPOINT_LOAD_H
#define GPT_TRAIN_IO_CHECKPOINT_LOAD_H

#include "io/checkpoint.h"
#include "io/safetensors_table.h"

/* Transfers elements first ... to the device.  values[count] has type `dtype`: the tensor's own if
 * the file has the same, or DTYPE_U8; else fp32.  Scales come before m, and m before v. */
typedef enum gt_status checkpoint_write_fn(void *context, enum checkpoint_array part, int32_t index,
                                           size_t first, size_t count, const void *values,
                                           enum dtype dtype);

struct checkpoint_load_options {
    const struct model_config
        *config; /* of the running model: the checkpoint's, but block_size may be smaller */
    const struct checkpoint_tensor *tensors; /* as for saving */
    size_t tensor_count;
    checkpoint_write_fn *write; /* NULL: only verify; `tensors` is not used then */
    void *write_context;
    void *staging; /* aligned to 4 bytes */
    size_t staging_bytes;
    uint32_t *base_crc32c; /* set to the checksum of all parameters except adapters; or NULL */
    bool convert; /* allow the file another dtype than the run's for moments, and for weights if it
                     has moments */
};

/* Reads all parameters, and m and v if the checkpoint was opened with its optimizer.  Verifies
 * checksums (in a checkpoint of ours), finiteness, the range of scales, dtypes unless they may be
 * converted, that biases are zero if the model has none, and that the base of adapters of ours is
 * the one that they were trained on.  Refuses a weight that overflows in the dtype of the ops.
 * Values are passed on before their tensor is completely verified, so the model must be discarded
 * after a failure.  Errors: GT_IO, GT_DATA naming file and tensor, GT_UNSUPPORTED, errors of
 * `write`. */
enum gt_status checkpoint_load(const struct checkpoint *checkpoint,
                               const struct checkpoint_load_options *options);

/* ---- for the files of this folder ---- */

/* Sets the name, with the prefix "", "m.", "v." or "s.", and the shape of a part of a parameter in
 * a file. */
void checkpoint_array_tensor(const struct parameter_shape *tensor, enum checkpoint_array part,
                             struct parameter_shape *out);
#define HF_PREFIX "transformer."
#define HF_HEAD "lm_head.weight"
/* Removes from a name what torch.compile(), DistributedDataParallel, FSDP, PEFT and Lightning add,
 * wherever it is. */
void hf_layout_name_unwrap(char name[static SAFETENSORS_NAME_MAX]);
/* Gives all tensors the names in a model of transformers: without wrappers, and with the "model."
 * that a model without an output layer lacks (AutoModel's). */
void hf_layout_names_plain(struct safetensors *file);
/* Finds `tensor` in `file`, whose names all have HF_PREFIX (save_pretrained of a GPT2LMHeadModel)
 * or all lack it (the hub's files).  The shapes must match, except that a position table may have
 * more rows.  Errors: GT_DATA with "FILE: h.3.attn.c_attn.weight is [768,2300]; the model needs
 * [768,2304]", or "is missing". */
enum gt_status hf_layout_find(const struct safetensors *file, const struct parameter_shape *tensor,
                              size_t *out_index);
/* Returns true for the name of a buffer that old versions of transformers saved like a weight: the
 * causal mask and its fill value, the frequencies of rotary positions, the numbers of positions.
 * Source: _keys_to_ignore_on_load_unexpected. */
bool hf_layout_is_buffer(const char *name);
/* Removes the tensors of vision and of multi-token prediction, logs the number of each, and renames
 * those of a text part like those of a model of its own. */
void hf_layout_part_keep(struct safetensors *file);
/* Logs that the tensors of multi-token prediction in a file are skipped, if there are any. */
void hf_layout_predicting_log(const char *path, size_t count);
/* Checks that `file` contains exactly the tensors of `config`; the only others allowed are
 * lm_head.weight, which is not listed if it is the token embedding, and old buffers.  transformers'
 * GPT-2 always has biases, so the file of one without them has zeros, which have no effect. Source:
 * transformers modeling_gpt2.py, GPT2Model and GPT2Block; modeling_llama.py.  Errors: GT_DATA,
 * naming the tensor. */
enum gt_status hf_layout_check(const struct safetensors *file, const struct model_config *config);
/* Checks that the optimizer's file has exactly the required parts of every parameter: m; v, unless
 * it is a block's matrix whose optimizer has one moment; scales if the moments have 8 bits. Errors:
 * GT_DATA, naming the tensor. */
enum gt_status checkpoint_arrays_check(const struct safetensors *file,
                                       const struct model_config *config);

#endif
