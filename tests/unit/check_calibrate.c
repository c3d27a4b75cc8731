/* Tests of calibrate.c: rates timed on the cpu, interrupted timings, and their cache. */
#include "plan/calibrate.h"

#include <math.h>
#include <stdlib.h>

#include "backend/backend_registry.h"
#include "base/clock.h"
#include "base/file.h"
#include "model/model_create.h"
#include "plan/plan_create.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/scratch.h"
#include "tests/unit/unit_main.h"

static struct hostmem *mem;
static struct backend *device;
static struct model_options options;
static struct model *model;
static struct plan *plan;
static struct backend_info info;
static char folder[FILE_PATH_MAX];

static void device_start(bool arena)
{
    struct backend_open_options open = {.threads = 1};
    ck_assert_int_eq(backend_find("cpu")->open(&open, &device), GT_OK);
    ck_assert_int_eq(device->ops->info(device, &info), GT_OK);
    struct plan_options how = {.device = device, .alignment_bytes = info.alignment_bytes};
    ck_assert_int_eq(model_create(mem, &options, &model), GT_OK);
    ck_assert_int_eq(plan_create(mem, model->graph, &how, &plan), GT_OK);
    if (arena)
        ck_assert_int_eq(device->ops->arena(device, plan->segment, plan->segment_count), GT_OK);
}

static void device_stop(void)
{
    hostmem_free(plan);
    hostmem_free(model);
    device->ops->close(device);
}

static void setup(void)
{
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    options = (struct model_options){.config = {.n_layer = 3,
                                                .n_head = 2,
                                                .n_kv_head = 2,
                                                .n_embd = 64,
                                                .block_size = 128,
                                                .vocab_size = 200,
                                                .padded_vocab_size = 200,
                                                .bias = true,
                                                .dropout = 0.1f,
                                                .norm_epsilon = 1e-5},
                                     .train = true,
                                     .evaluate = true,
                                     .choice.micro_batch = 4,
                                     .micro_steps = 1,
                                     .choice.loss_chunk_rows = 512,
                                     .choice.evaluate_batch = 4,
                                     .prefill_time = 8,
                                     .beta1 = 0.9f,
                                     .beta2 = 0.95f,
                                     .adam_epsilon = 1e-8f,
                                     .correction_rows = 3};
    scratch_make(folder);
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", folder, 1), 0);
}

static void teardown(void)
{
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    hostmem_destroy(mem);
    scratch_remove(folder);
}

static enum gt_status measure(double seconds, struct plan_rates *out)
{
    struct calibrate_request request = {
        .device = device, .plan = plan, .options = &options, .seconds = seconds};
    bool settled;
    return calibrate_measure(mem, &request, out, &settled);
}

static void rates_are_possible(const struct plan_rates *rates)
{
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        ck_assert_double_gt(rates->bytes_per_s[kind], 1e3);
        ck_assert_double_lt(rates->bytes_per_s[kind], 1e14);
        for (int dtype = 0; dtype < PLAN_MATRIX_DTYPES; dtype++)
            ck_assert(isfinite(rates->flops_per_s[kind][dtype]) &&
                      rates->flops_per_s[kind][dtype] >= 0.0);
    }
    ck_assert_double_gt(rates->flops_per_s[OP_GEMM][DTYPE_F32], 1e6);
    ck_assert_double_gt(rates->flops_per_s[OP_ATTENTION_FORWARD][DTYPE_F32], 1e5);
    ck_assert_double_gt(rates->flops_per_s[OP_ATTENTION_BACKWARD][DTYPE_F32], 1e5);
    ck_assert_double_ge(rates->ramp_rows, 0.0);
    ck_assert_double_le(rates->ramp_rows, 4096.0);
}

TEST_FIXTURE(setup, teardown)

/* Later ops of a program reuse the bytes of ids and targets.  Unless each pass writes them again,
 * kernels look up words that are not ids; their asserts and AddressSanitizer detect that. */
TEST(ids_stay_ids)
{
    static const struct {
        int32_t embd, block, vocab, batch;
        float dropout;
    } shapes[] = {{64, 32, 27, 4, 0.1f}, {128, 64, 256, 2, 0.0f}, {32, 128, 65, 4, 0.1f}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct plan_rates rates;
        struct hostmem_counters before, after;
        options.config.n_embd = shapes[i].embd;
        options.config.block_size = shapes[i].block;
        options.config.vocab_size = options.config.padded_vocab_size = shapes[i].vocab;
        options.config.dropout = shapes[i].dropout;
        options.choice.micro_batch = options.choice.evaluate_batch = shapes[i].batch;
        options.choice.loss_chunk_rows = shapes[i].batch * shapes[i].block;
        device_start(true);
        hostmem_counters_get(mem, &before);
        ck_assert_int_eq(measure(0.05, &rates), GT_OK);
        hostmem_counters_get(mem, &after);
        ck_assert_uint_eq(after.live_bytes, before.live_bytes);
        rates_are_possible(&rates);
        device_stop();
    }
}

enum faulty_call { FAULTY_UPLOAD, FAULTY_RUN, FAULTY_SYNC, FAULTY_COUNT };
static const struct backend_ops *cpu;

static double delay_s;

/* Waits longer each time, as a machine does on which more and more programs run. */
static enum gt_status slowing_sync(struct backend *backend)
{
    const int64_t end_ns = clock_monotonic_ns() + (int64_t)(delay_s * 1e9);
    delay_s += 5e-7;
    while (clock_monotonic_ns() < end_ns)
        continue;
    return cpu->sync(backend);
}

TEST(a_disturbed_timing_does_not_settle)
{
    struct plan_rates rates, first;
    struct calibrate_request request = {.options = &options, .seconds = 1e-9};
    bool settled = true;
    device_start(true);
    cpu = device->ops;
    struct backend_ops slowing = *cpu;
    slowing.sync = slowing_sync;
    device->ops = &slowing;
    request.device = device;
    request.plan = plan;
    delay_s = 1e-4;
    ck_assert_int_eq(calibrate_measure(mem, &request, &rates, &settled), GT_OK);
    ck_assert(!settled);
    ck_assert_double_gt(delay_s, 5e-4); /* it was tried more than twice */
    ck_assert_int_eq(calibrate_measure(mem, &request, &first, &settled), GT_OK);
    ck_assert_double_gt(rates.bytes_per_s[OP_RESIDUAL],
                        first.bytes_per_s[OP_RESIDUAL]); /* the fastest was kept */
    calibrate_scale(&first, 0.5);
    ck_assert_double_gt(plan_cost_seconds(model->graph, model->train_first.program, &first),
                        1.5 * plan_cost_seconds(model->graph, model->train_first.program, &rates));
    device_stop();
}

/* ---- the cache ---- */

static struct plan_rates some_rates(void)
{
    struct plan_rates rates = {.ramp_rows = 12.5};
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        rates.bytes_per_s[kind] = 1e9 + kind;
        for (int dtype = 0; dtype < PLAN_MATRIX_DTYPES; dtype++)
            rates.flops_per_s[kind][dtype] = 1e10 / 3.0 * (kind + dtype);
    }
    return rates;
}

/* check_user_cache.c tests several keys, and what is damaged, foreign or cannot be read. */
TEST(what_is_stored_is_loaded)
{
    struct plan_rates rates = some_rates(), again;
    struct log_capture capture;
    log_capture_begin(&capture);
    ck_assert(!calibrate_load("a key", &again));
    calibrate_store("a key", &rates);
    ck_assert(calibrate_load("a key", &again));
    ck_assert_mem_eq(&again, &rates, sizeof rates);
    ck_assert_int_eq(capture.lines, 0);
    log_capture_end();
}

TEST(keys_tell_devices_and_widths_apart)
{
    char key[CALIBRATE_KEY_MAX], other[CALIBRATE_KEY_MAX];
    struct backend_info first = {.device = "A", .detail = "driver 1"}, second = first;
    calibrate_key(key, &first, &options);
    ck_assert_str_eq(calibrate_key(other, &second, &options), key);
    snprintf(second.detail, sizeof second.detail, "driver 2");
    ck_assert_str_ne(calibrate_key(other, &second, &options), key);
    struct model_options wider = options;
    wider.config.n_embd *= 2;
    ck_assert_str_ne(calibrate_key(other, &first, &wider), key);
    wider = options;
    wider.config.n_layer++;
    wider.choice.micro_batch++;
    ck_assert_str_eq(calibrate_key(other, &first, &wider), key);
    wider.dtype = DTYPE_BF16;
    ck_assert_str_ne(calibrate_key(other, &first, &wider), key);
    wider = options;
    wider.muon = true; /* its ops are timed in its own runs only */
    ck_assert_str_ne(calibrate_key(other, &first, &wider), key);
    wider.muon = false;
    wider.states = STATE_SR;
    ck_assert_str_ne(calibrate_key(other, &first, &wider), key);
}
