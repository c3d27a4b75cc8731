/* Tests of device_profile.c's backend for planning: it has the profile's figures, enforces the caps and plans real
 * models. */
#include "model/model.h"
#include "model/model_create.h"
#include "plan/device_profile.h"
#include "plan/device_profile_file.h"
#include "plan/plan.h"
#include "plan/plan_create.h"
#include "plan/plan_verify.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

static struct hostmem *mem;

static void setup(void)
{
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
}

static void teardown(void)
{
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    hostmem_destroy(mem);
}

static struct backend *device_make(const char *id, struct device_profile *profile)
{
    struct backend *device;
    ck_assert_int_eq(device_profile_find(id, profile), GT_OK);
    ck_assert_int_eq(profile_device_open(profile, &device), GT_OK);
    return device;
}

TEST_FIXTURE(setup, teardown)

TEST(info_is_the_profile)
{
    struct device_profile profile;
    struct backend_info info;
    struct backend *device = device_make("rtx3060-12g", &profile);
    ck_assert_int_eq(device->ops->info(device, &info), GT_OK);
    ck_assert_str_eq(device->ops->name, "cuda");
    ck_assert_ptr_nonnull(strstr(info.device, "RTX 3060"));
    ck_assert_uint_eq(info.total_bytes, (uint64_t)(12288 - 380) << 20); /* as the driver reports it */
    ck_assert_uint_eq(info.free_bytes, info.total_bytes);
    ck_assert_uint_eq(info.free_bytes - info.context_bytes, profile.usable_bytes);
    ck_assert_uint_eq(info.dtypes, 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16);
    ck_assert_uint_eq(info.alignment_bytes, 256);
    device->ops->close(NULL);
    device->ops->close(device);
}

static struct op_call gemm_call(int64_t m, int64_t n, int64_t k, enum dtype dtype)
{
    struct op_call call = {.kind = OP_GEMM};
    call.operand[GEMM_A] = (struct operand){.present = true, .dtype = dtype, .rank = 2, .dims = {m, k}};
    call.operand[GEMM_B] = (struct operand){.present = true, .dtype = dtype, .rank = 2, .dims = {k, n}};
    call.operand[GEMM_D] = (struct operand){.present = true, .dtype = dtype, .rank = 2, .dims = {m, n}};
    return call;
}

TEST(dtypes_are_those_of_the_card)
{
    struct device_profile profile;
    struct backend *device = device_make("rtx2080-8g", &profile); /* no bf16 */
    static const struct {
        enum dtype dtype;
        bool supported;
    } cases[] = {{DTYPE_F32, true}, {DTYPE_F16, true}, {DTYPE_BF16, false}, {DTYPE_F64, false}, {DTYPE_I32, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct op_call call = gemm_call(8, 8, 8, cases[i].dtype);
        ck_assert_int_eq(device->ops->supports(device, &call), cases[i].supported);
    }
    device->ops->close(device);
}

TEST(workspaces_are_capped)
{
    struct device_profile profile;
    struct backend *device = device_make("rtx4090-24g", &profile);
    struct op_call call = gemm_call(65536, 50304, 768, DTYPE_BF16);
    ck_assert_uint_eq(device->ops->workspace_bytes(device, &call), OP_GEMM_WORKSPACE_BYTES);
    call = gemm_call(1, 1, 1, DTYPE_F32);
    ck_assert_uint_eq(device->ops->workspace_bytes(device, &call), 4);
    call = gemm_call(64, 32, 512, DTYPE_F32);
    ck_assert_uint_eq(device->ops->workspace_bytes(device, &call), 64 * 32 * 4 * 3);
    call = (struct op_call){.kind = OP_ATTENTION_BACKWARD, .attrs = {.time = 32, .heads = 3}};
    call.operand[ATTENTION_BACKWARD_Y] = (struct operand){.present = true, .rank = 2, .dims = {64, 48}};
    call.operand[ATTENTION_BACKWARD_LSE] = (struct operand){.present = true, .rank = 3, .dims = {2, 3, 32}};
    ck_assert_uint_eq(device->ops->workspace_bytes(device, &call), (64 * 3 * 32 + 2 * 3 * 32) * 4);
    call = (struct op_call){.kind = OP_RESIDUAL};
    ck_assert_uint_eq(device->ops->workspace_bytes(device, &call), 0);
    device->ops->close(device);
}

static struct model_options options_make(enum dtype dtype)
{
    return (struct model_options){.config = {.n_layer = 2,
                                             .n_head = 2,
                                             .n_kv_head = 2,
                                             .n_embd = 64,
                                             .block_size = 64,
                                             .vocab_size = 96,
                                             .padded_vocab_size = 96,
                                             .bias = true,
                                             .norm_epsilon = 1e-5},
                                  .dtype = dtype,
                                  .train = true,
                                  .evaluate = true,
                                  .choice.micro_batch = 4,
                                  .micro_steps = 2,
                                  .choice.loss_chunk_rows = 128,
                                  .choice.evaluate_batch = 4,
                                  .prefill_time = 8,
                                  .correction_rows = 1};
}

TEST(models_are_planned_on_it)
{
    static const char *const ids[] = {"rtx3060-12g", "rx6600-8g", "arc-a380-6g", "gtx1650-4g"};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
            struct device_profile profile;
            struct backend *device = device_make(ids[i], &profile);
            struct model_options options = options_make((enum dtype)dtype);
            struct model *model;
            struct plan *plan;
            struct plan_options how = {.device = device,
                                       .alignment_bytes = profile.alignment_bytes,
                                       .largest_segment_bytes = profile.largest_allocation_bytes};
            ck_assert_int_eq(model_create(mem, &options, &model), GT_OK);
            bool supported = (profile.dtypes >> dtype & 1u) != 0;
            struct log_capture capture;
            log_capture_begin(&capture);
            enum gt_status status = plan_create(mem, model->graph, &how, &plan);
            log_capture_end();
            ck_assert_int_eq(status, supported ? GT_OK : GT_UNSUPPORTED);
            if (supported) {
                ck_assert(plan_verify(plan));
                ck_assert_uint_gt(plan->arena_bytes, 0);
                hostmem_free(plan);
            }
            hostmem_free(model);
            device->ops->close(device);
        }
    }
}
