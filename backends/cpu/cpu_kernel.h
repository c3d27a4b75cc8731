/* Each kernel file defines a `const struct cpu_op CPU_NAME(cpu_NAME)` for each of its ops; expanding ops.def declares
 * all of them here. */
#ifndef GPT_TRAIN_CPU_CPU_KERNEL_H
#define GPT_TRAIN_CPU_CPU_KERNEL_H

#include "backends/cpu/cpu.h"

#ifndef CPU_ISA
#define CPU_ISA generic
#endif
#define CPU_PASTE_(a, b) a##_##b
#define CPU_PASTE(a, b) CPU_PASTE_(a, b)
#define CPU_NAME(name) CPU_PASTE(name, CPU_ISA)

#define OP(KIND, name, ...) extern const struct cpu_op CPU_NAME(cpu_##name);
#include "ops/ops.def"
#undef OP

extern const struct cpu_op *const CPU_NAME(cpu_table)[OP_KIND_COUNT];

#endif
