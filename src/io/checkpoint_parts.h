/* The parts of a parameter in the optimizer's file: moments, and the scales of 8-bit ones. */
#ifndef GPT_TRAIN_IO_CHECKPOINT_PARTS_H
#define GPT_TRAIN_IO_CHECKPOINT_PARTS_H

#include "io/checkpoint.h"
#include "io/hf_layout.h"

/* Returns the prefix of a tensor's name in the file that contains the part: "", "m.", "v." or "s.". */
const char *checkpoint_part_prefix(enum checkpoint_part part);
/* Sets the name and shape of a part of the parameter `tensor`. */
void checkpoint_part_tensor(const struct hf_tensor *tensor, enum checkpoint_part part, struct hf_tensor *out);
/* Checks that the optimizer's file has exactly the required parts of every parameter: m; v, unless it is a block's
 * matrix whose optimizer has one moment; scales if the moments have 8 bits.  Errors: GT_DATA, naming the tensor. */
enum gt_status checkpoint_parts_check(const struct safetensors *file, const struct model_config *config);

#endif
