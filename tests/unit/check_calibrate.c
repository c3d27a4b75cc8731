/* Tests of calibrate.c and calibrate_cache.c: rates timed on the cpu, interrupted timings, and a cache that verifies
 * its files. */
#include "plan/calibrate.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

static struct hostmem *mem;
static struct backend *device;
static struct model_options options;
static struct model *model;
static struct plan *plan;
static struct backend_info info;
static char folder[64];

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
    plan_destroy(plan);
    model_destroy(model);
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
                                                .layernorm_epsilon = 1e-5f},
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
    snprintf(folder, sizeof folder, "/tmp/gpt-train-cache-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", folder, 1), 0);
}

static void teardown(void)
{
    char command[FILE_PATH_MAX];
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    hostmem_destroy(mem);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

static enum gt_status measure(double seconds, struct plan_rates *out)
{
    struct calibrate_request request = {.device = device, .plan = plan, .options = &options, .seconds = seconds};
    return calibrate_measure(mem, &request, out);
}

static void rates_are_possible(const struct plan_rates *rates)
{
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        ck_assert_double_gt(rates->bytes_per_s[kind], 1e3);
        ck_assert_double_lt(rates->bytes_per_s[kind], 1e14);
        for (int dtype = 0; dtype < PLAN_MATRIX_DTYPES; dtype++)
            ck_assert(isfinite(rates->flops_per_s[kind][dtype]) && rates->flops_per_s[kind][dtype] >= 0.0);
    }
    ck_assert_double_gt(rates->flops_per_s[OP_GEMM][DTYPE_F32], 1e6);
    ck_assert_double_gt(rates->flops_per_s[OP_ATTENTION_FORWARD][DTYPE_F32], 1e5);
    ck_assert_double_gt(rates->flops_per_s[OP_ATTENTION_BACKWARD][DTYPE_F32], 1e5);
    ck_assert_double_ge(rates->ramp_rows, 0.0);
    ck_assert_double_le(rates->ramp_rows, 4096.0);
}

START_TEST(the_device_is_timed)
{
    struct plan_rates rates;
    struct hostmem_counters before, after;
    device_start(true);
    hostmem_counters_get(mem, &before);
    int64_t start_ns = clock_monotonic_ns();
    ck_assert_int_eq(measure(0.2, &rates), GT_OK);
    double seconds = (double)(clock_monotonic_ns() - start_ns) * 1e-9;
    ck_assert_msg(seconds < 60.0, "%g s", seconds); /* instrumented builds are slow, but must end */
    hostmem_counters_get(mem, &after);
    ck_assert_uint_eq(after.live_bytes, before.live_bytes);
    rates_are_possible(&rates);
    /* Twice the work must be modelled as at least as long. */
    double step = plan_cost_seconds(model->graph, model->train_first.program, &rates);
    ck_assert_double_gt(step, 0.0);
    ck_assert(isfinite(step));
    device_stop();
}
END_TEST

/* Later ops of a program reuse the bytes of ids and targets.  Unless each pass writes them again, kernels look up words
 * that are not ids; their asserts and AddressSanitizer detect that. */
START_TEST(ids_stay_ids)
{
    static const struct {
        int32_t embd, block, vocab, batch;
        float dropout;
    } shapes[] = {{64, 32, 27, 4, 0.1f}, {64, 32, 256, 4, 0.0f}, {128, 64, 256, 2, 0.0f}, {32, 128, 65, 4, 0.1f}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct plan_rates rates;
        options.config.n_embd = shapes[i].embd;
        options.config.block_size = shapes[i].block;
        options.config.vocab_size = options.config.padded_vocab_size = shapes[i].vocab;
        options.config.dropout = shapes[i].dropout;
        options.choice.micro_batch = options.choice.evaluate_batch = shapes[i].batch;
        options.choice.loss_chunk_rows = shapes[i].batch * shapes[i].block;
        device_start(true);
        ck_assert_int_eq(measure(0.2, &rates), GT_OK);
        rates_are_possible(&rates);
        device_stop();
    }
}
END_TEST

START_TEST(no_time_is_time_for_one_pass)
{
    struct plan_rates rates;
    device_start(true);
    ck_assert_int_eq(measure(1e-9, &rates), GT_OK);
    rates_are_possible(&rates);
    device_stop();
}
END_TEST

START_TEST(a_small_arena_is_no_error)
{
    struct plan_rates rates;
    struct log_capture capture;
    options.config.block_size = 4; /* the run's plan is now smaller than the plan of 64 rows */
    options.choice.micro_batch = 1;
    options.choice.evaluate_batch = 1;
    options.choice.loss_chunk_rows = 4;
    options.config.n_layer = 1;
    device_start(true);
    log_capture_begin(&capture);
    ck_assert_int_eq(measure(0.1, &rates), GT_NO_FIT);
    ck_assert_int_eq(capture.lines, 0);
    log_capture_end();
    device_stop();
}
END_TEST

enum faulty_call { FAULTY_UPLOAD, FAULTY_RUN, FAULTY_SYNC, FAULTY_COUNT };
static const struct backend_ops *cpu;
static uint64_t fails_in[FAULTY_COUNT]; /* 1: the next call fails; 0: none does */

static bool fails_now(enum faulty_call call)
{
    if (fails_in[call] == 0 || --fails_in[call] > 0)
        return false;
    log_error("injected fault");
    return true;
}

static enum gt_status faulty_upload(struct backend *backend, int32_t queue, struct address to, const void *from,
                                    size_t bytes)
{
    return fails_now(FAULTY_UPLOAD) ? GT_DEVICE : cpu->upload(backend, queue, to, from, bytes);
}

static enum gt_status faulty_run(struct backend *backend, int32_t queue, const struct op_call *calls, size_t count)
{
    return fails_now(FAULTY_RUN) ? GT_DEVICE : cpu->run(backend, queue, calls, count);
}

static enum gt_status faulty_sync(struct backend *backend, int32_t queue)
{
    return fails_now(FAULTY_SYNC) ? GT_DEVICE : cpu->sync(backend, queue);
}

START_TEST(a_failing_device_is_passed_on)
{
    struct plan_rates rates;
    struct log_capture capture;
    struct hostmem_counters before, after;
    device_start(true);
    cpu = device->ops;
    struct backend_ops faulty = *cpu;
    faulty.upload = faulty_upload;
    faulty.run = faulty_run;
    faulty.sync = faulty_sync;
    device->ops = &faulty;
    hostmem_counters_get(mem, &before);
    for (int i = 0; i < FAULTY_COUNT; i++) {
        for (uint64_t n = 1; n < 100; n += 23) {
            fails_in[i] = n;
            log_capture_begin(&capture);
            enum gt_status status = measure(0.01, &rates);
            ck_assert_msg(status == GT_DEVICE || n > 1, "call %d", i);
            ck_assert_int_eq(capture.lines, status != GT_OK);
            log_capture_end();
            fails_in[i] = 0;
        }
    }
    hostmem_counters_get(mem, &after);
    ck_assert_uint_eq(after.live_bytes, before.live_bytes);
    device_stop();
}
END_TEST

START_TEST(failing_allocations_are_passed_on)
{
    struct plan_rates rates;
    struct log_capture capture;
    struct hostmem_counters before, after;
    device_start(true);
    hostmem_counters_get(mem, &before);
    for (size_t n = 1; n < 400; n += 13) {
        hostmem_fail_at(mem, n);
        log_capture_begin(&capture);
        enum gt_status status = measure(0.005, &rates);
        log_capture_end();
        hostmem_fail_at(mem, 0);
        ck_assert(status == GT_OK || status == GT_NO_MEMORY);
    }
    hostmem_counters_get(mem, &after);
    ck_assert_uint_eq(after.live_bytes, before.live_bytes);
    device_stop();
}
END_TEST

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

/* Finds the only file of the cache. */
static void cache_path(char out[static FILE_PATH_MAX])
{
    char cache[FILE_PATH_MAX];
    ck_assert_int_eq(file_join(cache, folder, "gpt-train"), GT_OK);
    DIR *dir = opendir(cache);
    ck_assert_ptr_nonnull(dir);
    const struct dirent *entry;
    int found = 0;
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        found++;
        ck_assert_int_eq(strncmp(entry->d_name, "calibration-", 12), 0);
        ck_assert_int_eq(file_join(out, cache, entry->d_name), GT_OK);
    }
    closedir(dir);
    ck_assert_int_eq(found, 1);
}

/* Expects that nothing is loaded and no error logged; one note is logged when `said` is true. */
static void ignored(const char *key, bool said)
{
    struct plan_rates rates = {.ramp_rows = -1.0};
    struct log_capture capture;
    log_capture_begin(&capture);
    ck_assert(!calibrate_load(key, &rates));
    ck_assert_int_eq(capture.lines, said);
    ck_assert(!said || capture.level == LOG_NOTE);
    log_capture_end();
    ck_assert_double_eq(rates.ramp_rows, -1.0);
}

START_TEST(what_is_stored_is_loaded)
{
    struct plan_rates rates = some_rates(), again;
    struct stat status;
    char path[FILE_PATH_MAX];
    ignored("a key", false);
    calibrate_store("a key", &rates);
    ck_assert(calibrate_load("a key", &again));
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        ck_assert(again.bytes_per_s[kind] == rates.bytes_per_s[kind]);
        for (int dtype = 0; dtype < PLAN_MATRIX_DTYPES; dtype++)
            ck_assert(again.flops_per_s[kind][dtype] == rates.flops_per_s[kind][dtype]);
    }
    ck_assert(again.ramp_rows == 12.5);
    ignored("another key", false);
    snprintf(path, sizeof path, "%s/gpt-train", folder);
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_uint_eq(status.st_mode & 0777, 0700);
}
END_TEST

/* The next start would not trust a file that is writable by its group. */
START_TEST(the_umask_does_not_matter)
{
    static const mode_t umasks[] = {002, 000};
    for (size_t i = 0; i < sizeof umasks / sizeof umasks[0]; i++) {
        char path[FILE_PATH_MAX];
        struct stat status;
        struct plan_rates rates = some_rates();
        const mode_t before = umask(umasks[i]);
        calibrate_store("a key", &rates);
        (void)umask(before);
        ck_assert(calibrate_load("a key", &rates));
        cache_path(path);
        ck_assert_int_eq(stat(path, &status), 0);
        ck_assert_uint_eq(status.st_mode & 0777, 0600);
        ck_assert_int_eq(chmod(path, 0664), 0); /* as earlier releases made it: the next turn replaces it */
    }
}
END_TEST

/* Replaces the first occurrence of `from` in the file. */
static void file_change(const char *path, const char *from, const char *to)
{
    char *text, *changed;
    size_t count;
    ck_assert_int_eq(file_read_all(path, 100000, &text, &count), GT_OK);
    char *at = strstr(text, from);
    ck_assert_msg(at != NULL, "%s", from);
    changed = malloc(count + strlen(to) + 1);
    ck_assert_ptr_nonnull(changed);
    size_t before = (size_t)(at - text);
    memcpy(changed, text, before);
    snprintf(changed + before, count + strlen(to) + 1 - before, "%s%s", to, at + strlen(from));
    ck_assert_int_eq(file_replace(path, changed, strlen(changed)), GT_OK);
    free(changed);
    free(text);
}

START_TEST(what_is_damaged_is_said_once)
{
    static const struct {
        const char *from, *to;
    } damages[] = {
        {"\"schema\": 2", "\"schema\": 3"},
        {"\"schema\": 2", "\"schema\": \"2\""},
        {"\"entries\"", "\"entry\""},
        {"a key", "another"},
        {"12.5", "-12.5"},
        {"12.5", "\"12.5\""},
        {"1000000000.0", "0.0"},
        {"1000000000.0", "1e300"},
        {" 0.0,", " 1e-300,"}, /* an op would never end at this rate */
        {"\"bytes_per_s\"", "\"bytes\""},
        {" 0.0,", " 0.0, 1.0,"}, /* an array with one element more */
        {" 0.0,", ""},
        {"{", "["},
        {"{", "{ \"schema\": 2, \"schema\": 2, "},
        {"\"ops\"", "\"os\""},
        {"}", "} and more"},
    };
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        char path[FILE_PATH_MAX];
        struct plan_rates rates = some_rates();
        calibrate_store("a key", &rates);
        cache_path(path);
        file_change(path, damages[i].from, damages[i].to);
        ignored("a key", true);
        ignored("a key", false);
        ck_assert_int_ne(access(path, F_OK), 0);
    }
}
END_TEST

START_TEST(what_a_killed_process_left_is_removed)
{
    struct plan_rates rates = some_rates();
    const struct timespec then = {.tv_sec = time(NULL) - 7200};
    char path[FILE_PATH_MAX], left[FILE_PATH_MAX + 32];
    calibrate_store("a key", &rates);
    cache_path(path);
    snprintf(left, sizeof left, "%s.tmp-%d", path, INT_MAX); /* beyond any process id */
    ck_assert_int_eq(file_replace(left, "{", 1), GT_OK);
    ck_assert_int_eq(utimensat(AT_FDCWD, left, (const struct timespec[2]){then, then}, 0), 0);
    calibrate_store("a key", &rates);
    cache_path(path); /* finds exactly one file */
    ck_assert(calibrate_load("a key", &rates));
}
END_TEST

/* A good file that is unreadable for the moment is neither removed nor replaced. */
START_TEST(what_cannot_be_read_is_left_alone)
{
    struct plan_rates rates = some_rates(), again;
    struct rlimit files, none;
    calibrate_store("a key", &rates);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
    none = files;
    none.rlim_cur = 0;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    ignored("a key", true);
    calibrate_store("another key", &rates);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
    ck_assert(calibrate_load("a key", &again));
}
END_TEST

static size_t allocations, allocation_refused;
static bool for_ever;

static void *refuse(size_t size)
{
    allocations++;
    return allocations == allocation_refused || (for_ever && allocations > allocation_refused) ? NULL : malloc(size);
}

/* Returns true when the child loaded the rates, so that all its allocations were tried.  jansson 2.14 may abort the
 * child: it asserts that some of its allocations succeed. */
static bool loaded_by_a_child(void)
{
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct plan_rates rates;
        struct log_capture capture;
        log_capture_begin(&capture);
        (void)close(STDERR_FILENO);
        json_set_alloc_funcs(refuse, free);
        allocations = 0;
        const bool found = calibrate_load("a key", &rates);
        _exit(found && allocations < allocation_refused ? 1 : 0);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) || WTERMSIG(status) == SIGABRT);
    return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

START_TEST(what_there_is_no_memory_for_is_left_alone)
{
    struct plan_rates rates = some_rates();
    char path[FILE_PATH_MAX];
    calibrate_store("a key", &rates);
    cache_path(path);
    for (int turn = 0; turn < 2; turn++) {
        for_ever = turn == 1;
        allocation_refused = 1;
        for (; !loaded_by_a_child(); allocation_refused++)
            ck_assert_msg(access(path, F_OK) == 0, "allocation %zu", allocation_refused);
        ck_assert_uint_gt(allocation_refused, 20);
    }
}
END_TEST

/* A file of an earlier schema, or an entry without an op of this release, is not damage. */
START_TEST(earlier_releases_are_passed_over)
{
    static const struct {
        const char *from, *to;
    } earlier[] = {{"\"schema\": 2", "\"schema\": 1"}, {"\"gemm\"", "\"gemn\""}};
    for (size_t i = 0; i < sizeof earlier / sizeof earlier[0]; i++) {
        char path[FILE_PATH_MAX];
        struct plan_rates rates = some_rates(), again;
        calibrate_store("a key", &rates);
        cache_path(path);
        file_change(path, earlier[i].from, earlier[i].to);
        ignored("a key", false);
        ignored("a key", false);
        calibrate_store("a key", &rates);
        ck_assert(calibrate_load("a key", &again));
    }
}
END_TEST

START_TEST(a_device_has_one_file_of_few_shapes)
{
    char path[FILE_PATH_MAX], key[32];
    struct plan_rates rates = some_rates(), again;
    for (int i = 0; i < 11; i++) {
        snprintf(key, sizeof key, "a device | shape %d", i);
        rates.ramp_rows = i;
        calibrate_store(key, &rates);
        cache_path(path); /* finds exactly one file */
    }
    ignored("a device | shape 2", false);
    for (int i = 3; i < 11; i++) {
        snprintf(key, sizeof key, "a device | shape %d", i);
        ck_assert(calibrate_load(key, &again));
        ck_assert(again.ramp_rows == i);
    }
    rates.ramp_rows = 99.0;
    calibrate_store("a device | shape 3", &rates);
    ck_assert(calibrate_load("a device | shape 3", &again) && again.ramp_rows == 99.0);
    ck_assert(calibrate_load("a device | shape 4", &again));
}
END_TEST

START_TEST(what_others_may_write_is_ignored)
{
    char path[FILE_PATH_MAX], cache[FILE_PATH_MAX], moved[FILE_PATH_MAX + 8];
    struct plan_rates rates = some_rates();
    calibrate_store("a key", &rates);
    cache_path(path);
    snprintf(cache, sizeof cache, "%s/gpt-train", folder);
    ck_assert_int_eq(chmod(path, 0666), 0);
    ignored("a key", true);
    ck_assert_int_eq(chmod(path, 0600), 0);
    ck_assert_int_eq(chmod(cache, 0777), 0);
    ignored("a key", true);
    ck_assert_int_eq(chmod(cache, 0700), 0);
    ck_assert(calibrate_load("a key", &rates));
    snprintf(moved, sizeof moved, "%s.moved", path);
    ck_assert_int_eq(rename(path, moved), 0);
    ck_assert_int_eq(symlink(moved, path), 0);
    ignored("a key", true);
    ck_assert_int_eq(truncate(moved, 140000), 0);
    ck_assert_int_eq(rename(moved, path), 0);
    ignored("a key", true);
}
END_TEST

/* Where the cache cannot be written, nothing is, and no error is logged. */
START_TEST(a_cache_that_cannot_be_is_done_without)
{
    struct plan_rates rates = some_rates();
    struct log_capture capture;
    char name[FILE_PATH_MAX];
    snprintf(name, sizeof name, "%s/gpt-train", folder);
    ck_assert_int_eq(file_replace(name, "x", 1), GT_OK);
    ignored("a key", true);
    log_capture_begin(&capture);
    calibrate_store("a key", &rates);
    ck_assert_int_eq(capture.lines, 0); /* nothing is logged twice */
    log_capture_end();
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", "relative", 1), 0);
    ck_assert_int_eq(unsetenv("HOME"), 0);
    log_capture_begin(&capture);
    calibrate_store("a key", &rates);
    ck_assert_int_eq(capture.lines, 0);
    log_capture_end();
    ignored("a key", false);
}
END_TEST

START_TEST(keys_tell_devices_and_widths_apart)
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
}
END_TEST

Suite *calibrate_suite(void)
{
    Suite *suite = suite_create("calibrate");
    TCase *timing = tcase_create("timing"), *cache = tcase_create("cache");
    tcase_set_timeout(timing, 120);
    tcase_add_checked_fixture(timing, setup, teardown);
    tcase_add_test(timing, the_device_is_timed);
    tcase_add_test(timing, ids_stay_ids);
    tcase_add_test(timing, no_time_is_time_for_one_pass);
    tcase_add_test(timing, a_small_arena_is_no_error);
    tcase_add_test(timing, a_failing_device_is_passed_on);
    tcase_add_test(timing, failing_allocations_are_passed_on);
    suite_add_tcase(suite, timing);
    tcase_add_checked_fixture(cache, setup, teardown);
    tcase_add_test(cache, what_is_stored_is_loaded);
    tcase_add_test(cache, the_umask_does_not_matter);
    tcase_add_test(cache, what_is_damaged_is_said_once);
    tcase_add_test(cache, what_a_killed_process_left_is_removed);
    tcase_add_test(cache, what_cannot_be_read_is_left_alone);
    tcase_add_test(cache, what_there_is_no_memory_for_is_left_alone);
    tcase_add_test(cache, earlier_releases_are_passed_over);
    tcase_add_test(cache, a_device_has_one_file_of_few_shapes);
    tcase_add_test(cache, what_others_may_write_is_ignored);
    tcase_add_test(cache, a_cache_that_cannot_be_is_done_without);
    tcase_add_test(cache, keys_tell_devices_and_widths_apart);
    suite_add_tcase(suite, cache);
    return suite;
}

UNIT_MAIN(calibrate)
