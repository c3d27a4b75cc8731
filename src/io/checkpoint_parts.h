/* The parts of a parameter in the optimizer's file: moments, and the scales of 8-bit ones. */
#ifndef GPT_TRAIN_IO_CHECKPOINT_PARTS_H
#define GPT_TRAIN_IO_CHECKPOINT_PARTS_H

#include "io/checkpoint.h"
#include "io/hf_layout.h"

/* Sets the name, with the prefix "", "m.", "v." or "s.", and the shape of a part of a parameter in a file. */
void checkpoint_part_tensor(const struct parameter_shape *tensor, enum checkpoint_part part,
                            struct parameter_shape *out);
/* Checks that the optimizer's file has exactly the required parts of every parameter: m; v, unless it is a block's
 * matrix whose optimizer has one moment; scales if the moments have 8 bits.  Errors: GT_DATA, naming the tensor. */
enum gt_status checkpoint_parts_check(const struct safetensors *file, const struct model_config *config);

#endif
