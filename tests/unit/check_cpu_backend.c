/* Tests of the cpu backend apart from its kernels: choice of instruction set, arena, copies, info,
 * memory limits, errors.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backend/backend_holders.h"
#include "backend/backend_peak.h"
#include "backends/cpu/cpu.h"
#include "backends/cpu/cpu_memory.h"
#include "base/status.h"
#include "base/system_memory.h"
#include "tests/unit/scratch.h"
#include "tests/unit/unit_main.h"

static void sink_silent(void *context, enum log_level level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
}

static struct backend *open_with(const char *isa, int32_t threads)
{
    if (isa != NULL)
        setenv("GPT_TRAIN_CPU_ISA", isa, 1);
    else
        unsetenv("GPT_TRAIN_CPU_ISA");
    struct backend *backend = NULL;
    const struct backend_open_options options = {.threads = threads};
    const enum gt_status status = cpu_backend_ops.open(&options, &backend);
    ck_assert((status == GT_OK) == (backend != NULL));
    return backend;
}

/* An empty variable counts as none. */
TEST(isa_is_chosen)
{
    struct backend *generic = open_with("generic", 1), *best = open_with("", 1);
    ck_assert_ptr_nonnull(generic);
    ck_assert_ptr_nonnull(best);
    struct backend_info info;
    ck_assert_int_eq(generic->ops->info(generic, &info), GT_OK);
    ck_assert_ptr_nonnull(strstr(info.detail, "generic kernels (GPT_TRAIN_CPU_ISA)"));
    ck_assert_int_eq(best->ops->info(best, &info), GT_OK);
    ck_assert_ptr_null(strstr(info.detail, "GPT_TRAIN_CPU_ISA"));
    const bool wide = strstr(info.detail, "generic") == NULL;
    ck_assert((cpu_from(generic)->table != cpu_from(best)->table) == wide);
    generic->ops->close(generic);
    best->ops->close(best);
}

TEST(open_refuses)
{
    log_sink_set(sink_silent, NULL);
    const size_t errors = log_count(LOG_ERROR);
    ck_assert_ptr_null(open_with("mmx", 1));
    ck_assert_ptr_null(open_with(NULL, -1));
    ck_assert_ptr_null(open_with(NULL, 100000));
    struct backend *backend = NULL;
    const struct backend_open_options second = {.device = 1};
    ck_assert_int_eq(cpu_backend_ops.open(&second, &backend), GT_DEVICE);
    ck_assert_uint_eq(log_count(LOG_ERROR), errors + 4);
    cpu_backend_ops.close(NULL);
}

TEST(info_is_sane)
{
    struct backend *backend = open_with(NULL, 3);
    struct backend_info info;
    ck_assert_int_eq(backend->ops->info(backend, &info), GT_OK);
    printf("%s; %s\n", info.device, info.detail);
    ck_assert_int_eq(info.alignment_bytes, 64);
    ck_assert_uint_eq(info.dtypes, 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16);
    ck_assert_uint_gt(info.free_bytes, 0);
    ck_assert_uint_le(info.free_bytes, info.total_bytes);
    ck_assert_int_ge(info.threads, 1);
    ck_assert_ptr_nonnull(strstr(info.device, "thread"));
    backend->ops->close(backend);
}

/* ThreadSanitizer's shadow memory counts as memory of the process. */
#define HAS_SHADOW 0
#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#undef HAS_SHADOW
#define HAS_SHADOW 1
#endif
#endif

/* Returns the resident bytes of this process. */
static uint64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long size = 0, resident = 0;
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%lu %lu", &size, &resident), 2);
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

TEST(arena_is_committed_and_given_back)
{
    struct backend *backend = open_with(NULL, 2);
    const struct backend_segment segments[3] = {
        {SPACE_DEVICE, (uint64_t)40 << 20}, {SPACE_HOST, 12345}, {SPACE_HOST, 0}};
    const uint64_t before = resident_bytes();
    ck_assert_int_eq(backend->ops->arena(backend, segments, 3), GT_OK);
    const uint64_t with = resident_bytes();
    ck_assert_uint_ge(with - before, (uint64_t)40 << 20);
    if (!HAS_SHADOW)
        ck_assert_uint_le(with - before, (uint64_t)46 << 20);
    const struct address at = {.space = SPACE_HOST, .segment = 1, .offset_bytes = 12344};
    char in = 'x', out = 0;
    ck_assert_int_eq(backend->ops->upload(backend, at, &in, 1), GT_OK);
    ck_assert_int_eq(backend->ops->download(backend, &out, at, 1), GT_OK);
    ck_assert_int_eq(out, 'x');
    backend->ops->close(backend);
    ck_assert_uint_lt(resident_bytes(), before + ((uint64_t)8 << 20));
}

TEST(arena_too_large_is_refused)
{
    log_sink_set(sink_silent, NULL);
    struct backend *backend = open_with(NULL, 1);
    const struct backend_segment huge = {SPACE_DEVICE, (uint64_t)1 << 60};
    const struct backend_segment wraps[2] = {{SPACE_DEVICE, UINT64_MAX - 5}, {SPACE_DEVICE, 4096}};
    const size_t errors = log_count(LOG_ERROR);
    ck_assert_int_eq(backend->ops->arena(backend, &huge, 1), GT_NO_MEMORY);
    ck_assert_int_eq(backend->ops->arena(backend, wraps, 2), GT_NO_MEMORY);
    ck_assert_uint_eq(log_count(LOG_ERROR), errors + 2);
    const struct backend_segment small = {SPACE_DEVICE, 4096};
    ck_assert_int_eq(backend->ops->arena(backend, &small, 1), GT_OK);
    backend->ops->close(backend);
}

TEST(peak_is_measured)
{
    struct backend *backend = open_with(NULL, 1);
    const struct backend_segment segment = {SPACE_DEVICE, (uint64_t)4 << 20};
    ck_assert_int_eq(backend->ops->arena(backend, &segment, 1), GT_OK);
    double rate = 0.0;
    const struct address scratch = {.space = SPACE_DEVICE};
    for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
        ck_assert_int_eq(
            backend_peak_flops(backend, (enum dtype)dtype, scratch, (size_t)4 << 20, 0.1, &rate),
            GT_OK);
        printf("peak, %s: %.1f GFLOP/s\n", dtype_name((enum dtype)dtype), rate * 1e-9);
        ck_assert(rate > 1e8 && rate < 1e15);
    }
    log_sink_set(sink_silent, NULL);
    ck_assert_int_eq(backend_peak_flops(backend, DTYPE_F32, scratch, 100, 0.2, &rate), GT_NO_FIT);
    backend->ops->close(backend);
}

static struct {
    const struct backend_ops *ops;
    int products;
} disturbed;

/* Runs ops as the backend does, but the first two products wait for a processor. */
static enum gt_status run_disturbed(struct backend *backend, const struct op_call *calls,
                                    size_t count)
{
    if (calls[0].kind == OP_GEMM && disturbed.products++ < 2)
        usleep(30000);
    return disturbed.ops->run(backend, calls, count);
}

/* Other programs do not hide a peak from a measurement that has less time than they take. */
TEST(peak_is_measured_on_a_busy_machine)
{
    struct backend *backend = open_with(NULL, 1);
    const struct backend_segment segment = {SPACE_DEVICE, (uint64_t)4 << 20};
    const struct address scratch = {.space = SPACE_DEVICE};
    double rate = 0.0;
    ck_assert_int_eq(backend->ops->arena(backend, &segment, 1), GT_OK);
    disturbed.ops = backend->ops;
    struct backend_ops busy = *backend->ops;
    busy.run = run_disturbed;
    backend->ops = &busy;
    ck_assert_int_eq(backend_peak_flops(backend, DTYPE_F32, scratch, (size_t)4 << 20, 0.02, &rate),
                     GT_OK);
    backend->ops = disturbed.ops;
    ck_assert_int_gt(disturbed.products, 2);
    ck_assert_double_gt(rate, 1e8);
    backend->ops->close(backend);
}

/* Uses a made-up /sys/fs/cgroup: a limit on the parent, none on the child; and the v1 memory
 * controller. */
TEST(cgroup_limits_count)
{
    char root[FILE_PATH_MAX], membership[FILE_PATH_MAX];
    scratch_make(root);
    scratch_put(root, "a/memory.max", "1000000\n");
    scratch_put(root, "a/memory.current", "700000\n");
    scratch_put(root, "a/memory.stat", "anon 5\ninactive_file 200000\n");
    scratch_put(root, "a/b/memory.max", "max\n");
    scratch_put(root, "memory/c/memory.limit_in_bytes", "300000\n");
    scratch_put(root, "membership", "0::/a/b\n");
    file_join(membership, root, "membership");
    uint64_t total = 5000000, available = 4000000;
    system_memory_limit(membership, root, &total, &available);
    ck_assert_uint_eq(total, 1000000);
    ck_assert_uint_eq(available, 500000);
    scratch_put(root, "membership", "7:cpu,memory:/c\n");
    total = available = 5000000;
    system_memory_limit(membership, root, &total, &available);
    ck_assert_uint_eq(total, 300000);
    ck_assert_uint_eq(available, 300000);
    total = available = 42;
    system_memory_limit("no-such-file", root, &total, &available);
    ck_assert_uint_eq(available, 42);
    scratch_remove(root);
}
