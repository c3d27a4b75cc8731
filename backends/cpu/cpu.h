/* State of the cpu backend, and the interface that every kernel file needs: addresses, threads,
 * names.
 *
 * Kernels are compiled once per instruction set (CPU_ISA = generic, avx2 or avx512 on the
 * compiler's command line) and named after it: CPU_NAME(cpu_gemm) is cpu_gemm_avx2.  A kernel file
 * defines only static functions and CPU_NAME functions, so that the linker never substitutes code
 * of a wider instruction set for the generic one.
 */
#ifndef GPT_TRAIN_CPU_CPU_H
#define GPT_TRAIN_CPU_CPU_H

#include "backend/backend.h"
#include "base/size.h"
#include "ops/op.h"

#ifdef _OPENMP
#include <omp.h>
#define CPU_OMP(text) _Pragma(#text)
#else
#define CPU_OMP(text)
#endif
/* A loop over i = 0 .. count - 1, as vectors. */
#define CPU_SIMD(i, count) CPU_OMP(omp simd) for (int64_t i = 0; i < (count); i++)
/* The same for a loop that sums into the variables `...`, each in several lanes. */
#define CPU_SIMD_SUM(i, count, ...) \
    CPU_OMP(omp simd reduction(+ : __VA_ARGS__)) for (int64_t i = 0; i < (count); i++)
/* A loop over 0 .. count - 1 in steps.  The threads of `cpu` share it if its `work` is enough
 * (cpu_threads_for). */
#define CPU_PARALLEL(i, count, step, work)                                             \
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu_threads_for(cpu, work))) \
    for (int64_t i = 0; i < (count); i += (step))

#ifndef CPU_ISA
#define CPU_ISA generic
#endif
#define CPU_PASTE_(a, b) a##_##b
#define CPU_PASTE(a, b) CPU_PASTE_(a, b)
#define CPU_NAME(name) CPU_PASTE(name, CPU_ISA)

#define CPU_ALIGNMENT_BYTES 64
#define CPU_THREADS_MAX 1024
/* For at most this many element operations, one thread is faster than waking the others. */
#define CPU_SERIAL_WORK_MAX 8192
/* Elementwise kernels run in blocks of this many elements, so that an element's place in its block,
 * and with it the instruction that computes it, never depends on the number of threads.  A multiple
 * of 8 (dropout's groups). */
#define CPU_BLOCK 1024

struct cpu_segment {
    enum memory_space space;
    void *memory;
    size_t size_bytes;
};

struct cpu_backend;
struct cpu_gemm_path;

/* The implementation of an op.  run() is only called with operands that supports() accepted, and
 * cannot fail. */
struct cpu_op {
    bool (*supports)(
        const struct op_call *call); /* NULL: everything that the op's shape rule accepts */
    size_t (*workspace_bytes)(const struct cpu_backend *cpu,
                              const struct op_call *call); /* NULL: none */
    void (*run)(const struct cpu_backend *cpu, const struct op_call *call);
};

/* The ops, which the kernel files define, and their table. */
#define OP(KIND, name, operands) extern const struct cpu_op CPU_NAME(cpu_##name);
#include "ops/ops.def"
#undef OP
extern const struct cpu_op *const CPU_NAME(cpu_table)[OP_KIND_COUNT];

struct cpu_backend {
    struct backend base; /* must be first */
    const struct cpu_op *const *table;
    const char *isa;  /* instruction set of the kernels: "generic", "avx2" or "avx512" */
    bool isa_lowered; /* by GPT_TRAIN_CPU_ISA */
    const struct cpu_gemm_path
        *bf16; /* path for bf16 products; NULL: the path that every processor has */
    int32_t threads;
    int32_t segments;
    struct cpu_segment segment[BACKEND_SEGMENTS_MAX];
};

extern const struct backend_ops cpu_backend_ops;

static inline const struct cpu_backend *cpu_from(const struct backend *backend)
{
    return (const struct cpu_backend *)(const void *)backend;
}

/* Returns the memory of the `bytes` bytes at an address. */
static inline void *cpu_address(const struct cpu_backend *cpu, struct address at, size_t bytes)
{
    const struct cpu_segment *segment = &cpu->segment[at.segment];
    assert(at.segment < cpu->segments && at.space == segment->space);
    assert(at.offset_bytes <= segment->size_bytes &&
           bytes <= segment->size_bytes - at.offset_bytes);
    (void)bytes;
    return (char *)segment->memory + at.offset_bytes;
}

/* Returns the memory of an operand, or NULL when it is absent. */
static inline void *cpu_operand(const struct cpu_backend *cpu, const struct op_call *call,
                                int32_t slot)
{
    const struct operand *operand = &call->operand[slot];
    return operand->present ? cpu_address(cpu, operand->at, operand_bytes(operand)) : NULL;
}

static inline void *cpu_workspace(const struct cpu_backend *cpu, const struct op_call *call,
                                  size_t need_bytes)
{
    assert(call->workspace_bytes >= need_bytes);
    return cpu_address(cpu, call->workspace, need_bytes);
}

/* Returns the threads for a job of `work` element operations: all or one, because libgomp ends and
 * restarts threads when the size of its team changes otherwise.  Results never depend on it. */
static inline int cpu_threads_for(const struct cpu_backend *cpu, int64_t work)
{
    return work <= CPU_SERIAL_WORK_MAX ? 1 : (int)cpu->threads;
}

static inline int cpu_thread_index(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/* Returns the number of parts in a sum over `rows` rows: determined by the shape, and enough for
 * many threads. */
#define CPU_PARTS_MAX 32
#define CPU_PART_ROWS 16

static inline int64_t cpu_parts(int64_t rows)
{
    return min_i64(size_ceil_div(rows, CPU_PART_ROWS), CPU_PARTS_MAX);
}

/* Returns the first row of part `part`; for part == parts, returns `rows`. */
static inline int64_t cpu_part_begin(int64_t rows, int64_t parts, int64_t part)
{
    return rows / parts * part + min_i64(part, rows % parts);
}

_Static_assert((int)ADAMW_SCALARS == (int)ADAMW_LEAN_SCALARS, "one function serves both ops");
_Static_assert((int)ADAMW_CORRECTIONS == (int)ADAMW_LEAN_CORRECTIONS,
               "one function serves both ops");

/* Returns false when the update must be skipped: clip_factor found an infinity. */
static inline bool cpu_adamw_step_read(const struct cpu_backend *cpu, const struct op_call *call,
                                       struct adamw_step *out)
{
    const union scalar_word *scalars = cpu_operand(cpu, call, ADAMW_SCALARS);
    const struct op_attrs *attrs = &call->attrs;
    if (scalars[SCALAR_FOUND_INF].i != 0)
        return false;
    assert(scalars[SCALAR_ADAM_STEP].i >= 1);
    *out = adamw_step_of(scalars, cpu_operand(cpu, call, ADAMW_CORRECTIONS),
                         op_rows(call, ADAMW_CORRECTIONS), attrs->alpha, attrs->beta1, attrs->beta2,
                         attrs->epsilon, attrs->weight_decay);
    return true;
}

#endif
