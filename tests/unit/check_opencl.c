/* Tests of the opencl backend apart from its kernels: names, codes, expected units; on a device also arena, copies,
 * refusals.
 *
 * Tests that need a device are skipped when none can be opened.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/opencl/opencl_clblast.h"
#include "backends/opencl/opencl_device.h"
#include "backends/opencl/opencl_error.h"
#include "backends/opencl/opencl_gemm.h"
#include "backends/opencl/opencl_matrix.h"
#include "base/status.h"
#include "tests/unit/unit_main.h"

static void sink_silent(void *context, enum log_level level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
}

TEST(names_are_cleaned)
{
    char name[] = "  NVIDIA\tGeForce \x1b[31m RTX  3060\n";
    opencl_name_clean(name);
    ck_assert_str_eq(name, "NVIDIA GeForce [31m RTX 3060");
}

TEST(codes_have_names)
{
    char text[OPENCL_CODE_TEXT_MAX];
    ck_assert_str_eq(opencl_code_text(text, CL_OUT_OF_RESOURCES), "CL_OUT_OF_RESOURCES");
    ck_assert_str_eq(opencl_code_text(text, -1001), "CL_PLATFORM_NOT_FOUND_KHR");
    ck_assert_str_eq(opencl_code_text(text, -9999), "code -9999");
}

/* Returns the candidate for a device with these properties; no backend is opened. */
static struct opencl_matrix candidate_of(int32_t nvidia_capability, const char *name, bool has_fp16)
{
    struct opencl_device device = {.nvidia_capability = nvidia_capability, .has_fp16_arithmetic = has_fp16};
    snprintf(device.name, sizeof device.name, "%s", name);
    return opencl_matrix_candidate(&device);
}

TEST(matrix_units_are_expected_by_generation)
{
    const uint32_t bf16 = 1u << DTYPE_BF16, f16 = 1u << DTYPE_F16;
    const struct {
        int32_t capability;
        const char *name;
        bool has_fp16;
        enum opencl_unit unit;
        uint32_t dtypes;
    } cases[] = {
        {120, "NVIDIA GeForce RTX 5080", false, OPENCL_UNIT_MMA_16, bf16 | f16},
        {86, "NVIDIA GeForce RTX 3060", false, OPENCL_UNIT_MMA_16, bf16 | f16},
        {80, "NVIDIA A100", false, OPENCL_UNIT_MMA_16, bf16 | f16},
        {75, "NVIDIA GeForce RTX 2070", false, OPENCL_UNIT_MMA_8, f16},
        {70, "NVIDIA TITAN V", false, OPENCL_UNIT_NONE, 0},
        {0, "gfx1100", true, OPENCL_UNIT_WMMA, bf16 | f16},
        {0, "gfx1151", false, OPENCL_UNIT_WMMA, bf16},
        {0, "gfx1030", true, OPENCL_UNIT_NONE, 0},
        {0, "gfx1201", true, OPENCL_UNIT_NONE, 0},
        {0, "Intel Arc B580", true, OPENCL_UNIT_NONE, 0},
    };
    unsetenv("GPT_TRAIN_OPENCL_MATRIX");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct opencl_matrix matrix = candidate_of(cases[i].capability, cases[i].name, cases[i].has_fp16);
        ck_assert_msg(matrix.unit == cases[i].unit && matrix.dtypes == cases[i].dtypes && !matrix.is_emulated,
                      "%s: unit %d, dtypes %x", cases[i].name, (int)matrix.unit, matrix.dtypes);
        ck_assert_int_eq(matrix.lost[0] == '\0', cases[i].unit != OPENCL_UNIT_NONE);
    }
    setenv("GPT_TRAIN_OPENCL_MATRIX", "0", 1);
    ck_assert_int_eq(candidate_of(86, "NVIDIA GeForce RTX 3060", false).unit, OPENCL_UNIT_NONE);
    setenv("GPT_TRAIN_OPENCL_MATRIX", "emulated-wmma/64", 1);
    const struct opencl_matrix emulated = candidate_of(0, "a processor", false);
    ck_assert(emulated.unit == OPENCL_UNIT_WMMA && emulated.is_emulated && emulated.tile == 64);
    setenv("GPT_TRAIN_OPENCL_MATRIX", "emulated-", 1);
    ck_assert_int_eq(candidate_of(0, "a processor", false).unit, OPENCL_UNIT_NONE);
    unsetenv("GPT_TRAIN_OPENCL_MATRIX");
}

/* Returns the first tile shape of products that fits. */
static const char *tiles_of(bool is_cpu, size_t work_group_max, uint64_t local_bytes)
{
    const struct opencl_backend cl = {
        .device = {.is_cpu = is_cpu, .work_group_max = work_group_max, .local_bytes = local_bytes}};
    for (int32_t i = 0; i < opencl_gemm_shape_count; i++) {
        if (opencl_shape_fits(&cl, &opencl_gemm_shapes[i]))
            return opencl_gemm_shapes[i].name;
    }
    return "";
}

TEST(tiles_fit_the_device)
{
    ck_assert_str_eq(tiles_of(true, 4096, 2 << 20), "64x64 by 1");
    ck_assert_str_eq(tiles_of(true, 1024, 32 << 10), "32x32 by 1");
    ck_assert_str_eq(tiles_of(true, 32, 4096), "16x16 by 16");
    ck_assert_str_eq(tiles_of(false, 1024, 48 << 10), "64x64 by 256");
    ck_assert_str_eq(tiles_of(false, 128, 32 << 10), "64x64 by 64");
    ck_assert_str_eq(tiles_of(false, 32, 4096), "16x16 by 16");
}

/* Opens device number 0; returns NULL when there is none. */
static struct backend *device_open(void)
{
    const struct backend_open_options options = {.device = 0};
    struct backend *backend = NULL;
    struct backend_devices devices;
    log_sink_set(sink_silent, NULL);
    opencl_backend_ops.devices(false, &devices);
    if (devices.count == 0) {
        ck_assert_int_eq(devices.first, -1);
        ck_assert_str_ne(devices.reason, "");
        return NULL;
    }
    ck_assert_int_eq(opencl_backend_ops.open(&options, &backend), GT_OK);
    return backend;
}

TEST(auto_takes_a_card)
{
    const uint64_t gib = UINT64_C(1) << 30;
    struct opencl_listing listing = {
        .count = 5,
        .device = {{.name = "FPGA Emulation Device", .global_bytes = 64 * gib, .is_host_memory = true},
                   {.name = "UHD 770", .global_bytes = 50 * gib, .is_gpu = true, .is_host_memory = true},
                   {.name = "gfx1100", .global_bytes = 8 * gib, .is_gpu = true},
                   {.name = "Arc A770", .global_bytes = 16 * gib, .is_gpu = true},
                   {.name = "Clover", .global_bytes = 24 * gib, .is_gpu = true, .lacks = "OpenCL 1.2"}}};
    ck_assert_int_eq(opencl_card_choose(&listing), 3);
    listing.device[2].global_bytes = 16 * gib; /* the first of equals */
    ck_assert_int_eq(opencl_card_choose(&listing), 2);
    listing.count = 2;
    ck_assert_int_eq(opencl_card_choose(&listing), 1);
    listing.count = 1;
    ck_assert_int_eq(opencl_card_choose(&listing), -1);
}

/* Returns true when CLBlast takes d [rows, columns] = a [rows, 64] b [64, columns], with d at an offset. */
static bool clblast_takes(int64_t rows, int64_t columns, uint64_t offset_bytes)
{
    int stand_in = 0;
    struct opencl_backend cl = {.device.alignment_bytes = 512, .tuning.gemm_clblast = true};
    struct op_call call = {.kind = OP_GEMM};
    memcpy(&cl.clblast, &(int *){&stand_in}, sizeof cl.clblast);
    call.operand[GEMM_A] = (struct operand){.present = true, .dtype = DTYPE_F32, .rank = 2, .dims = {rows, 64}};
    call.operand[GEMM_B] = (struct operand){.present = true, .dtype = DTYPE_F32, .rank = 2, .dims = {64, columns}};
    call.operand[GEMM_D] = (struct operand){.present = true, .dtype = DTYPE_F32, .rank = 2, .dims = {rows, columns}};
    call.operand[GEMM_D].at.offset_bytes = offset_bytes;
    return opencl_clblast_usable(&cl, &call);
}

TEST(clblast_counts_in_32_bits_and_wants_aligned_operands)
{
    ck_assert(clblast_takes(32768, 50304, 512));
    ck_assert(!clblast_takes(43000, 50304, 512));
    ck_assert(!clblast_takes(INT64_C(1) << 40, INT64_C(1) << 40, 0));
    ck_assert(!clblast_takes(64, 64, 256));
}

/* Returns true when CLBlast is opened on a device with this capability, with `wanted` in the environment. */
static bool clblast_opens(int32_t nvidia_capability, const char *wanted)
{
    struct opencl_backend cl = {.device.nvidia_capability = nvidia_capability};
    if (wanted != NULL)
        (void)setenv("GPT_TRAIN_OPENCL_CLBLAST", wanted, 1);
    else
        (void)unsetenv("GPT_TRAIN_OPENCL_CLBLAST");
    opencl_clblast_open(&cl);
    const bool opened = cl.clblast != NULL;
    opencl_clblast_close(&cl);
    return opened;
}

TEST(clblast_is_left_alone_where_the_driver_dies_of_it)
{
    ck_assert(!clblast_opens(90, NULL));
    ck_assert(!clblast_opens(0, "0"));
    if (!clblast_opens(0, NULL)) {
        unit_skip("opencl_clblast", "CLBlast is not installed (Debian: libclblast1)");
        return;
    }
    ck_assert(clblast_opens(90, "1"));
}

TEST_LIMIT(120)

TEST(device_keeps_bytes)
{
    struct backend *backend = device_open();
    struct backend_info info;
    if (backend == NULL) {
        unit_skip("opencl_device", "no OpenCL device here (Debian: pocl-opencl-icd)");
        return;
    }
    ck_assert_int_eq(backend->ops->info(backend, &info), GT_OK);
    ck_assert_uint_ge(info.total_bytes, info.largest_allocation_bytes);
    ck_assert_uint_ge(info.alignment_bytes, 512);
    const struct backend_segment segments[2] = {{.space = SPACE_DEVICE, .size_bytes = 1 << 20},
                                                {.space = SPACE_DEVICE, .size_bytes = 12345}};
    ck_assert_int_eq(backend->ops->arena(backend, segments, 2), GT_OK);
    char bytes[100], back[100];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 7);
    const struct address end = {.space = SPACE_DEVICE, .segment = 1, .offset_bytes = 12345 - sizeof bytes};
    ck_assert_int_eq(backend->ops->upload(backend, end, bytes, sizeof bytes), GT_OK);
    ck_assert_int_eq(backend->ops->sync(backend), GT_OK);
    ck_assert_int_eq(backend->ops->download(backend, back, end, sizeof back), GT_OK);
    ck_assert_mem_eq(bytes, back, sizeof bytes);
    backend->ops->close(backend);
}

TEST(device_refuses_what_it_has_not)
{
    struct backend *backend = device_open(), *other = NULL;
    struct backend_info info;
    if (backend == NULL) {
        unit_skip("opencl_device", "no OpenCL device here (Debian: pocl-opencl-icd)");
        return;
    }
    ck_assert_int_eq(backend->ops->info(backend, &info), GT_OK);
    struct backend_segment segment = {.space = SPACE_DEVICE, .size_bytes = info.largest_allocation_bytes + 1};
    ck_assert_int_lt(backend->ops->arena(backend, &segment, 1), GT_OK);
    segment.size_bytes = UINT64_MAX;
    ck_assert_int_eq(backend->ops->arena(backend, &segment, 1), GT_NO_FIT);
    backend->ops->close(backend);
    const size_t errors = log_count(LOG_ERROR);
    const struct backend_open_options far = {.device = 1000}, unnamed = {.name = "no such device"};
    ck_assert_int_eq(opencl_backend_ops.open(&far, &other), GT_DEVICE);
    ck_assert_int_eq(opencl_backend_ops.open(&unnamed, &other), GT_USAGE);
    ck_assert_ptr_null(other);
    ck_assert_uint_eq(log_count(LOG_ERROR) - errors, 2);
}
