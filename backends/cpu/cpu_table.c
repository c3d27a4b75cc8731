/* The op table of one instruction set, expanded from ops.def; an op without a kernel fails to link.
 *
 * Compiled once per instruction set, like the kernels.
 */
#include "backends/cpu/cpu.h"

#define OP(KIND, name, operands) [OP_##KIND] = &CPU_NAME(cpu_##name),
const struct cpu_op *const CPU_NAME(cpu_table)[OP_KIND_COUNT] = {
#include "ops/ops.def"
};
#undef OP
