/* Compares an export's tensors with those of the model that it was made from. */
#ifndef GPT_TRAIN_IO_EXPORT_COMPARE_H
#define GPT_TRAIN_IO_EXPORT_COMPARE_H

#include "io/export_options.h"

/* Opens `exported` with the reader of such models, and checks that every block of every tensor
 * differs from the model's by no more than its type explains (ggml_is_near()).  Sets *out_share to
 * the root mean square over all matrices of a matrix's relative error: its error divided by its
 * values, both as root mean squares.  Memory: two buffers of 4 MiB.  Errors: GT_FAILURE, which
 * names the tensor; those of checkpoint_open() and export_weights_read(). */
enum gt_status export_compare(const struct export_options *options, const char *exported,
                              double *out_share);

#endif
