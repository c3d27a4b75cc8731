/* The op table of the backend: every op of ops.def, those without kernels as not supported. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_TABLE_H
#define GPT_TRAIN_OPENCL_OPENCL_TABLE_H

#include "backends/opencl/opencl.h"

extern const struct op_impl opencl_table[OP_KIND_COUNT];

#endif
