/* Reads any part of a checkpoint's tensors, in any dtype, transposed if needed.  All writers of
 * exports share this.
 *
 * A writer writes options->output, replacing it if it exists.  Its errors are those of
 * export_run().
 */
#ifndef GPT_TRAIN_IO_EXPORT_WEIGHTS_H
#define GPT_TRAIN_IO_EXPORT_WEIGHTS_H

#include "io/export_options.h"
#include "io/safetensors_table.h"
#include "model/parameters.h"

#define EXPORT_VALUES ((size_t)1 << 20) /* elements in each of the two buffers */

struct export_adapter {
    char tensor[2 * PARAMETER_NAME_MAX]; /* the last one looked for, by PEFT's name */
    bool found;
    float *factors; /* A [rank, in], then B [out, rank]; or NULL */
};

struct export_weights {
    const struct checkpoint *checkpoint; /* outlives this struct */
    size_t capacity; /* elements in each buffer: whole rows of n_embd, where one fits; tests lower
                        it */
    int threads;     /* that encode blocks */
    float *values;   /* [capacity] as read */
    float *turned;   /* [capacity] as written */
    struct export_adapter *adapter; /* of the last tensor */
};

/* The owner of all of `out` is out->values.  Errors: GT_NO_MEMORY. */
enum gt_status export_weights_open(const void *owner, const struct checkpoint *checkpoint,
                                   struct export_weights *out);
/* Reads the whole checkpoint once and verifies checksums, finiteness and biases.  Errors: those of
 * checkpoint_load(). */
enum gt_status export_weights_verify(const struct export_weights *weights);

/* out[count] = elements first ... of `tensor`, transposed if `turned`, rounded to `dtype`.  `count`
 * is at most the capacity, and `out` is not weights->values.  Errors: GT_IO, GT_DATA;
 * GT_UNSUPPORTED for a value beyond the dtype's largest, naming the tensor. */
enum gt_status export_weights_read(const struct export_weights *weights,
                                   const struct parameter_shape *tensor, bool turned, size_t first,
                                   size_t count, enum dtype dtype, void *out);

/* Reads elements first ... in the form of a file into weights->turned.  Errors: as above, also for
 * a value that the form cannot hold. */
enum gt_status export_weights_gather(const struct export_weights *weights,
                                     const struct parameter_shape *tensor, bool turned,
                                     const struct tensor_form *form, size_t first, size_t count,
                                     enum dtype dtype);

/* Appends the tensor to `file` in a form; a linear layer's weight is transposed to [out, in].  Rows
 * are whole blocks of `type`.  Errors: as above, and GT_IO. */
enum gt_status export_weights_write(const struct export_weights *weights,
                                    const struct parameter_shape *tensor,
                                    const struct tensor_form *form, enum ggml_type type,
                                    struct file_replacement *file);

/* Returns the token that ends a text for readers of the export: the chat template's, else that of
 * an imported config.json, else the end-of-text token; -1 if unknown. */
int32_t export_end_token(const struct export_options *options);

/* Appends `count` zero bytes.  Errors: GT_IO. */
enum gt_status export_zeros_write(struct file_replacement *file, size_t count);

#endif
