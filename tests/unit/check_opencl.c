/* Tests of the opencl backend apart from its kernels: names, codes, expected units; on a device
 * also arena, copies, refusals.
 *
 * Tests that need a device are skipped when none can be opened.
 */
#include <check.h>
#include <stdlib.h>

#include "backends/opencl/opencl_clblast.h"
#include "backends/opencl/opencl_device.h"
#include "backends/opencl/opencl_gemm.h"
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
        .device = {
            {.name = "FPGA Emulation Device", .global_bytes = 64 * gib, .is_host_memory = true},
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

/* Returns true when CLBlast is opened on a device with this capability, with `wanted` in the
 * environment. */
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

TEST(device_refuses_what_it_has_not)
{
    struct backend *backend = device_open(), *other = NULL;
    struct backend_info info;
    if (backend == NULL) {
        unit_skip("opencl_device", "no OpenCL device here (Debian: pocl-opencl-icd)");
        return;
    }
    ck_assert_int_eq(backend->ops->info(backend, &info), GT_OK);
    struct backend_segment segment = {.space = SPACE_DEVICE,
                                      .size_bytes = info.largest_allocation_bytes + 1};
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
