/* The cpu backend: OpenMP kernels over host memory, CBLAS for matrix products without a kernel of
 * their own.
 *
 * There are three tables of the same kernels, compiled for different instruction sets; open() picks
 * the widest that this processor supports.  On top of the widest, bf16 products may use AMX or
 * AVX512-BF16. GPT_TRAIN_CPU_ISA=generic|avx2|avx512|avx512_bf16|amx lowers the choice, for tests.
 * All spaces are host memory, and every call has finished when it returns.  The BLAS library is set
 * to one thread, because our threads call it, tile by tile.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include <cblas.h>
#include <errno.h>
#include <math.h>
#include <sys/mman.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/cpu_gemm.h"
#include "backends/cpu/cpu_memory.h"
#ifdef __linux__
#include <sys/syscall.h>
#endif
#include <unistd.h>
#ifdef HAVE_X86_SIMD
#include <cpuid.h>
#endif

#include "base/clock.h"
#include "base/system_memory.h"
#include "base/thread.h"

extern const struct cpu_op *const cpu_table_generic[OP_KIND_COUNT];
#ifdef HAVE_X86_SIMD
extern const struct cpu_op *const cpu_table_avx2[OP_KIND_COUNT];
extern const struct cpu_op *const cpu_table_avx512[OP_KIND_COUNT];
#endif

/* The library for matrix products, and how to set it to one thread; not every library's header
 * declares that. */
#if defined(HAVE_OPENBLAS_SET_NUM_THREADS)
#define BLAS_NAME "OpenBLAS"
#define BLAS_SERIAL() openblas_set_num_threads(1)
void openblas_set_num_threads(int threads);
#elif defined(HAVE_BLI_THREAD_SET_NUM_THREADS)
#define BLAS_NAME "BLIS"
#define BLAS_SERIAL() bli_thread_set_num_threads(1)
void bli_thread_set_num_threads(int64_t threads);
#elif defined(HAVE_MKL_SET_NUM_THREADS)
#define BLAS_NAME "MKL"
#define BLAS_SERIAL() MKL_Set_Num_Threads(1)
void MKL_Set_Num_Threads(int threads);
#else
#define BLAS_NAME "CBLAS"
#define BLAS_SERIAL() (void)0
#endif

struct cpu_isa {
    const char *name, *kernels;
    const struct cpu_op *const *table;
    const struct cpu_gemm_path *bf16;
    bool supported;
};

#ifdef HAVE_X86_SIMD
/* Includes the fp16 conversions (F16C), which are a separate feature that not every compiler can
 * test. */
static bool has_avx2(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool has_f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
    return has_f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

#ifdef HAVE_X86_BF16
#define LEAF7_EDX_AMX_BF16 (1u << 22)
#define LEAF7_EDX_AMX_TILE (1u << 24)
/* ARCH_REQ_XCOMP_PERM; missing in the headers of older systems. */
#define REQUEST_STATE_PERMISSION 0x1023
#define STATE_TILE_DATA 18

/* Returns true when AMX, which not every compiler can test, can be used.  The state of its tiles is
 * large, so Linux saves it only for processes that request it.  The request covers all threads; it
 * fails if the system has not enabled AMX or a thread's signal stack is too small.
 * Intel SDM vol. 2, CPUID leaf 7; Linux Documentation/arch/x86/xstate.rst */
static bool has_amx_bf16(void)
{
    const unsigned wanted = LEAF7_EDX_AMX_BF16 | LEAF7_EDX_AMX_TILE;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & wanted) != wanted)
        return false;
#if defined(__linux__) && defined(SYS_arch_prctl)
    return syscall(SYS_arch_prctl, REQUEST_STATE_PERMISSION, STATE_TILE_DATA) == 0;
#else
    return false;
#endif
}
#endif

/* Picks the widest set, or the one that the environment names.  Errors: GT_DEVICE for a name that
 * is unknown, not built or not supported here. */
static enum gt_status isa_choose(struct cpu_backend *cpu)
{
    const struct cpu_isa sets[] = {
#ifdef HAVE_X86_SIMD
#ifdef HAVE_X86_BF16
        {"amx", "avx512", cpu_table_avx512, &cpu_gemm_path_amx, has_avx512() && has_amx_bf16()},
        {"avx512_bf16", "avx512", cpu_table_avx512, &cpu_gemm_path_packed_avx512_bf16,
         has_avx512() && __builtin_cpu_supports("avx512bf16")},
#endif
        {"avx512", "avx512", cpu_table_avx512, NULL, has_avx512()},
        {"avx2", "avx2", cpu_table_avx2, NULL, has_avx2()},
#endif
        {"generic", "generic", cpu_table_generic, NULL, true},
    };
    const char *wanted = getenv("GPT_TRAIN_CPU_ISA");
    if (wanted != NULL && wanted[0] == '\0')
        wanted = NULL;
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        if (sets[i].supported && (wanted == NULL || strcmp(wanted, sets[i].name) == 0)) {
            cpu->base.ops = &cpu_backend_ops;
            cpu->table = sets[i].table;
            cpu->isa = sets[i].kernels;
            cpu->bf16 = sets[i].bf16;
            cpu->isa_lowered = wanted != NULL;
            return GT_OK;
        }
    }
    return FAIL(
        GT_DEVICE,
        "GPT_TRAIN_CPU_ISA=%s: expected generic, avx2, avx512, avx512_bf16 or amx, if the build and "
        "the processor support it",
        wanted);
}

#ifdef _OPENMP
/* Returns one thread per core, because a core's hyperthreads share the units that products need. If
 * OpenMP binds threads (OMP_PROC_BIND), this thread's affinity mask is one place by now, and OpenMP
 * knows the number of places. */
static int32_t threads_default(void)
{
    const char *wanted =
        getenv("OMP_NUM_THREADS"); /* "4", or "4,2" for nested loops, which we do not use */
    const long number = wanted != NULL ? strtol(wanted, NULL, 10) : 0;
    if (number > 0)
        return number < CPU_THREADS_MAX ? (int32_t)number : CPU_THREADS_MAX;
    int count = thread_count_cores(THREAD_CORES_FOLDER);
    if (omp_get_proc_bind() != omp_proc_bind_false && omp_get_num_places() > count)
        count = thread_count_limited(omp_get_num_places());
    return count < CPU_THREADS_MAX ? count : CPU_THREADS_MAX;
}
#endif

/* The trial product: two operands that all threads share, and one result per thread; all elements
 * are zero. */
#define TRIAL_ROWS 512
#define TRIAL_COLUMNS 192
#define TRIAL_DEPTH 384
#define TRIAL_SHARED ((size_t)(TRIAL_ROWS + TRIAL_COLUMNS) * TRIAL_DEPTH)
#define TRIAL_OWN ((size_t)TRIAL_ROWS * TRIAL_COLUMNS)
#define TRIALS_TIMED 3
/* Of one thread with AVX2; OpenBLAS reaches 30e9 and more there, the plain loops of Netlib 1e9
 * to 3e9. */
#define SLOW_FLOPS 8e9

static void trial_multiply(float *memory, int32_t thread)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, TRIAL_ROWS, TRIAL_COLUMNS, TRIAL_DEPTH,
                1.0f, memory, TRIAL_DEPTH, memory + (size_t)TRIAL_ROWS * TRIAL_DEPTH, TRIAL_COLUMNS,
                0.0f, memory + TRIAL_SHARED + (size_t)thread * TRIAL_OWN, TRIAL_COLUMNS);
}

/* Warns about a slow library, which makes a step many times slower.  Only the user can fix that,
 * because the library was chosen at configure time. */
static void library_warn_slow(const struct cpu_backend *cpu, float *memory)
{
    if (strcmp(cpu->isa, "generic") == 0)
        return; /* the expected rate is unknown */
    double seconds = INFINITY;
    for (int i = 0; i < TRIALS_TIMED; i++) {
        const int64_t began = clock_monotonic_ns();
        trial_multiply(memory, 0);
        seconds = fmin(seconds, (double)(clock_monotonic_ns() - began) / 1e9);
    }
    const double flops = 2.0 * TRIAL_ROWS * TRIAL_COLUMNS * TRIAL_DEPTH / seconds;
    if (flops < SLOW_FLOPS)
        log_warning(
            "cpu: the library for matrix products (%s) does %.1f GFLOP/s per thread, others do tens; install OpenBLAS "
            "(Debian: libopenblas-dev), then configure and build again",
            BLAS_NAME, flops / 1e9);
}

/* OpenBLAS maps this much for each concurrent thread, and retries forever if the system refuses. */
#define LIBRARY_THREAD_BYTES ((size_t)128 << 20)

static enum gt_status library_space_check(const struct cpu_backend *cpu)
{
#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
    const size_t size = (size_t)cpu->threads * LIBRARY_THREAD_BYTES;
    /* Tests with one large mapping instead of many small ones, which is equivalent with
     * MAP_NORESERVE, except under strict overcommit, which counts such mappings too. */
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(
            GT_NO_MEMORY,
            "cpu: the library for matrix products (%s) needs %zu B of address space for %" PRId32
            " threads: %s; lower --threads, or raise the limit (ulimit -v, overcommit)",
            BLAS_NAME, size, cpu->threads, strerror(errno));
    munmap(memory, size);
#endif
    (void)cpu;
    return GT_OK;
}

/* Multiplies once per thread, so that the library's own buffers are touched before step 1, not when
 * a thread meets its first product.  The first step touches the buffers of wider products.  Best
 * effort: does nothing without memory. */
static void library_touch(const struct cpu_backend *cpu)
{
    float *memory = calloc(TRIAL_SHARED + (size_t)cpu->threads * TRIAL_OWN, sizeof *memory);
    if (memory == NULL)
        return;
    CPU_OMP(omp parallel for schedule(static) num_threads(cpu->threads))
    for (int32_t thread = 0; thread < cpu->threads; thread++)
        trial_multiply(memory, thread);
    library_warn_slow(cpu, memory);
    free(memory);
}

static void cpu_devices(bool automatic, struct backend_devices *out)
{
    (void)automatic;
    *out = (struct backend_devices){.count = 1, .first = 0};
}

static enum gt_status cpu_open(const struct backend_open_options *options, struct backend **out)
{
    if (options->device != 0)
        return FAIL(GT_DEVICE, "cpu: device %" PRId32 " does not exist; the only one is 0",
                    options->device);
    if (options->threads < 0 || options->threads > CPU_THREADS_MAX)
        return FAIL(GT_DEVICE, "cpu: threads: expected 0 to %d, found %" PRId32, CPU_THREADS_MAX,
                    options->threads);
    struct cpu_backend *cpu = calloc(1, sizeof *cpu);
    if (cpu == NULL)
        return FAIL(GT_NO_MEMORY, "cpu: no memory for %zu B", sizeof *cpu);
    const enum gt_status status = isa_choose(cpu);
    if (status != GT_OK) {
        free(cpu);
        return status;
    }
#ifdef _OPENMP
    cpu->threads = options->threads > 0 ? options->threads : threads_default();
    omp_set_dynamic(0);
    omp_set_num_threads(cpu->threads);
#else
    cpu->threads = 1;
#endif
    BLAS_SERIAL();
    *out = &cpu->base;
    return GT_OK;
}

static struct cpu_backend *cpu_backend_of(struct backend *backend)
{
    return (struct cpu_backend *)(void *)backend;
}

static void cpu_close(struct backend *backend)
{
    if (backend == NULL)
        return;
    cpu_memory_unmap(cpu_backend_of(backend));
    free(cpu_backend_of(backend));
}

/* Writes the name from /proc/cpuinfo, such as "AMD EPYC 7B13", else "CPU". */
static void processor_name(char name[static 81])
{
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(name, 81, "CPU");
    while (file != NULL && fgets(line, sizeof line, file) != NULL &&
           sscanf(line, "model name : %80[^\n]", name) != 1)
        continue;
    if (file != NULL)
        fclose(file);
}

static enum gt_status cpu_info(struct backend *backend, struct backend_info *out)
{
    const struct cpu_backend *cpu = cpu_from(backend);
    struct backend_info info = {
        .alignment_bytes = CPU_ALIGNMENT_BYTES,
        .dtypes = 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16,
        .threads = cpu->threads,
        .host_memory = true,
    };
    TRY(cpu_memory_read(&info.total_bytes, &info.free_bytes));
    info.largest_allocation_bytes = info.total_bytes;
    char name[81];
    processor_name(name);
    snprintf(info.device, sizeof info.device, "%s, %" PRId32 " thread%s", name, cpu->threads,
             cpu->threads == 1 ? "" : "s");
#ifdef _OPENMP
    const char *threading = "OpenMP";
#else
    const char *threading = "no OpenMP";
#endif
    snprintf(info.detail, sizeof info.detail, "%s, %s, %s kernels%s%s%s", BLAS_NAME, threading,
             cpu->isa, cpu->bf16 != NULL ? ", bf16: " : "",
             cpu->bf16 != NULL ? cpu->bf16->name : "",
             cpu->isa_lowered ? " (GPT_TRAIN_CPU_ISA)" : "");
    *out = info;
    return GT_OK;
}

static void cpu_holders(struct backend *backend, struct backend_holders *out)
{
    (void)backend;
    if (!system_memory_space_is_limit()) /* else no other process is to blame */
        cpu_memory_holders("/proc", getpid(), out);
}

static enum gt_status cpu_arena(struct backend *backend, const struct backend_segment *segments,
                                int32_t count)
{
    struct cpu_backend *cpu = cpu_backend_of(backend);
    assert(cpu->segments == 0 && count >= 0 && count <= BACKEND_SEGMENTS_MAX);
    TRY(library_space_check(cpu));
    library_touch(cpu);
    return cpu_memory_map(cpu, segments, count);
}

static void *cpu_memory(struct backend *backend, struct address at, size_t bytes)
{
    return cpu_address(cpu_backend_of(backend), at, bytes);
}

static enum gt_status cpu_upload(struct backend *backend, struct address to, const void *from,
                                 size_t bytes)
{
    if (bytes > 0)
        memcpy(cpu_address(cpu_backend_of(backend), to, bytes), from, bytes);
    return GT_OK;
}

static enum gt_status cpu_download(struct backend *backend, void *to, struct address from,
                                   size_t bytes)
{
    if (bytes > 0)
        memcpy(to, cpu_address(cpu_backend_of(backend), from, bytes), bytes);
    return GT_OK;
}

static enum gt_status cpu_run(struct backend *backend, const struct op_call *calls, size_t count)
{
    const struct cpu_backend *cpu = cpu_from(backend);
    for (size_t i = 0; i < count; i++)
        cpu->table[calls[i].kind]->run(cpu, &calls[i]);
    return GT_OK;
}

static enum gt_status cpu_sync(struct backend *backend)
{
    (void)backend;
    return GT_OK;
}

static bool cpu_supports(const struct backend *backend, const struct op_call *call)
{
    const struct cpu_op *op = cpu_from(backend)->table[call->kind];
    return op->run != NULL && (op->supports == NULL || op->supports(call));
}

static size_t cpu_workspace_bytes(const struct backend *backend, const struct op_call *call)
{
    const struct cpu_op *op = cpu_from(backend)->table[call->kind];
    return op->workspace_bytes == NULL ? 0 : op->workspace_bytes(cpu_from(backend), call);
}

const struct backend_ops cpu_backend_ops = {
    .name = "cpu",
    .devices = cpu_devices,
    .open = cpu_open,
    .close = cpu_close,
    .info = cpu_info,
    .holders = cpu_holders,
    .arena = cpu_arena,
    .memory = cpu_memory,
    .upload = cpu_upload,
    .download = cpu_download,
    .run = cpu_run,
    .sync = cpu_sync,
    .supports = cpu_supports,
    .workspace_bytes = cpu_workspace_bytes,
};
