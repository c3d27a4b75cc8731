/* The ops of the cuda backend, by name: each family's file defines its own, cuda_table.c puts them in order. */
#ifndef GPT_TRAIN_CUDA_CUDA_TABLE_H
#define GPT_TRAIN_CUDA_CUDA_TABLE_H

#include "backend/backend.h"

#define OP(KIND, name, ...) extern const struct op_impl cuda_##name;
#include "ops/ops.def"
#undef OP

#endif
