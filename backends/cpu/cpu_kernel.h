/* What a kernel file defines: for every op NAME three functions, CPU_NAME(cpu_NAME_supports),
 * CPU_NAME(cpu_NAME_workspace_bytes) and CPU_NAME(cpu_NAME_run), declared here by expansion of ops.def.
 */
#ifndef GPT_TRAIN_CPU_CPU_KERNEL_H
#define GPT_TRAIN_CPU_CPU_KERNEL_H

#include "backends/cpu/cpu.h"

#ifndef CPU_ISA
#define CPU_ISA generic
#endif
#define CPU_PASTE_(a, b) a##_##b
#define CPU_PASTE(a, b) CPU_PASTE_(a, b)
#define CPU_NAME(name) CPU_PASTE(name, CPU_ISA)

#define OP(KIND, name, ...)                                                                                   \
    bool CPU_NAME(cpu_##name##_supports)(const struct backend *backend, const struct op_call *call);          \
    size_t CPU_NAME(cpu_##name##_workspace_bytes)(const struct backend *backend, const struct op_call *call); \
    enum gt_status CPU_NAME(cpu_##name##_run)(struct backend * backend, int32_t queue, const struct op_call *call);
#include "ops/ops.def"
#undef OP

extern const struct op_impl CPU_NAME(cpu_table)[OP_KIND_COUNT];

/* The supports() of an op that has no rule beside the dtypes. */
#define CPU_SUPPORTS_ANY(name)                                                                      \
    bool CPU_NAME(cpu_##name##_supports)(const struct backend *backend, const struct op_call *call) \
    {                                                                                               \
        (void)backend;                                                                              \
        return cpu_operands_supported(call);                                                        \
    }

/* The workspace_bytes() of an op that needs none. */
#define CPU_WORKSPACE_NONE(name)                                                                             \
    size_t CPU_NAME(cpu_##name##_workspace_bytes)(const struct backend *backend, const struct op_call *call) \
    {                                                                                                        \
        (void)backend;                                                                                       \
        (void)call;                                                                                          \
        return 0;                                                                                            \
    }

#define CPU_OP_PLAIN(name) \
    CPU_SUPPORTS_ANY(name) \
    CPU_WORKSPACE_NONE(name)

#endif
