/* The parts of a parameter in the optimizer's file: moments, and the scales of 8-bit ones. */
#ifndef GPT_TRAIN_IO_CHECKPOINT_PARTS_H
#define GPT_TRAIN_IO_CHECKPOINT_PARTS_H

#include "io/checkpoint.h"
#include "io/hf_layout.h"

/* "", "m.", "v." or "s.": what stands before a tensor's name in the file that holds the part. */
const char *checkpoint_part_prefix(enum checkpoint_part part);
/* The part's name and shape, of the parameter `tensor`. */
void checkpoint_part_tensor(const struct hf_tensor *tensor, enum checkpoint_part part, struct hf_tensor *out);
/* Checks that the optimizer's file has what it must of every parameter, and nothing else: m; v, but of matrices of blocks
 * whose optimizer has one moment; scales where the moments have 8 bits.  Errors: GT_DATA, naming the tensor. */
enum gt_status checkpoint_parts_check(const struct safetensors *file, const struct model_config *config);

#endif
