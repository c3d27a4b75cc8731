/* The ops of the cuda backend, by name: each family's file defines its own, cuda_table.c puts them in order. */
#ifndef GPT_TRAIN_CUDA_CUDA_TABLE_H
#define GPT_TRAIN_CUDA_CUDA_TABLE_H

#include "backend/backend.h"

#define OP_BEGIN(KIND, name, text) extern const struct op_impl cuda_##name;
#define OPERAND(KIND, SLOT, name, direction, flags)
#define OP_END(KIND, name)
#include "model/ops.def"
#undef OP_BEGIN
#undef OPERAND
#undef OP_END

#endif
