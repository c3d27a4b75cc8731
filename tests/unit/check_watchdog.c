/* Tests of the watchdog: a device that hangs ends the process with the op's name; a device that answers any number of
 * calls does not. */
#include "session/watchdog.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend_call.h"
#include "backend/backend_registry.h"
#include "base/status.h"
#include "tests/unit/unit_main.h"

static int message_fd;

static void sink_pipe(void *context, enum log_level level, const char *line)
{
    (void)context;
    if (level == LOG_ERROR)
        (void)!write(message_fd, line, strlen(line));
}

static enum gt_status sync_hangs(struct backend *backend)
{
    (void)backend;
    bool forever = true;
    while (forever)
        pause();
    return GT_OK;
}

static void close_hangs(struct backend *backend)
{
    (void)sync_hangs(backend);
}

/* Opens a recorded cpu backend with these replacements of sync() and close(); NULL leaves the original. */
static struct backend *device_open(enum gt_status (*sync)(struct backend *), void (*close)(struct backend *))
{
    static struct backend_ops ops;
    static struct backend_record record;
    const struct backend_open_options options = {.threads = 1};
    const struct backend_segment segment = {SPACE_DEVICE, 4096};
    struct backend *backend = NULL;
    ck_assert_int_eq(backend_find("cpu")->open(&options, &backend), GT_OK);
    ops = *backend->ops;
    if (sync != NULL)
        ops.sync = sync;
    if (close != NULL)
        ops.close = close;
    backend->ops = &ops;
    backend->record = &record;
    ck_assert_int_eq(backend_arena(backend, &segment, 1), GT_OK);
    return backend;
}

static struct op_call fill_call(void)
{
    struct op_call call = {.kind = OP_FILL, .attrs = {.value = 2.5f}};
    call.operand[FILL_Y] = (struct operand){.present = true, .dtype = DTYPE_F32, .rank = 1, .dims = {8}};
    return call;
}

/* Runs an op `looks` times, 20 ms apart, under a watchdog of one second; ends the process. */
static void child(enum gt_status (*sync)(struct backend *), void (*close)(struct backend *), int looks)
{
    struct hostmem *mem;
    struct watchdog watchdog = {0};
    const struct op_call call = fill_call();
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    struct backend *device = device_open(sync, close);
    log_sink_set(sink_pipe, NULL);
    ck_assert_int_eq(watchdog_start(&watchdog, mem, device, "some-folder", 1), GT_OK);
    for (int i = 0; i < looks; i++) {
        ck_assert_int_eq(backend_run(device, &call, 1), GT_OK);
        ck_assert_int_eq(backend_sync(device), GT_OK);
        usleep(20000);
    }
    backend_close(device);
    ticker_stop(watchdog.ticker);
    hostmem_destroy(mem);
    _exit(0);
}

/* Returns the exit status of a child, and its error line in `text`. */
static int child_run(enum gt_status (*sync)(struct backend *), void (*close_device)(struct backend *), int looks,
                     char text[static 512])
{
    int pipes[2], status;
    size_t used = 0;
    ck_assert_int_eq(pipe(pipes), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        message_fd = pipes[1];
        child(sync, close_device, looks);
    }
    close(pipes[1]);
    for (ssize_t count = 1; count > 0 && used<511; used += count> 0 ? (size_t)count : 0)
        count = read(pipes[0], text + used, 511 - used);
    text[used] = '\0';
    close(pipes[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST_LIMIT(60)

TEST(a_hang_ends_the_process)
{
    char text[512];
    ck_assert_int_eq(child_run(sync_hangs, NULL, 1, text), 1);
    ck_assert_msg(strstr(text, "cpu has not answered for 1 s (waiting for ") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "waiting for sync of op fill") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "some-folder") != NULL, "%s", text);
}

TEST(a_hang_at_the_end_too)
{
    char text[512];
    ck_assert_int_eq(child_run(NULL, close_hangs, 1, text), 1);
    ck_assert_msg(strstr(text, "waiting for close") != NULL, "%s", text);
}

/* The calls together are longer than the limit, each one is shorter. */
TEST(work_does_not)
{
    char text[512];
    ck_assert_int_eq(child_run(NULL, NULL, 100, text), 0);
    ck_assert_str_eq(text, "");
}

/* Takes some tenths of a second, not counting the time that the process is stopped. */
static enum gt_status sync_slow(struct backend *backend)
{
    (void)backend;
    for (int i = 0; i < 60; i++) {
        usleep(10000);
        if (i == 30)
            (void)!write(message_fd, "", 1);
    }
    return GT_OK;
}

TEST(a_stop_is_not_the_devices)
{
    int pipes[2], status;
    char byte;
    ck_assert_int_eq(pipe(pipes), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        message_fd = pipes[1];
        child(sync_slow, NULL, 1);
    }
    ck_assert_int_eq(read(pipes[0], &byte, 1), 1); /* the watchdog now sees a wait for the device */
    ck_assert_int_eq(kill(pid, SIGSTOP), 0);
    usleep(1200000);
    ck_assert_int_eq(kill(pid, SIGCONT), 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", (unsigned)status);
    close(pipes[0]);
    close(pipes[1]);
}

TEST(no_watch_without_seconds)
{
    struct watchdog watchdog = {0};
    struct backend *device = device_open(NULL, NULL);
    ticker_stop(watchdog.ticker);
    ck_assert_int_eq(watchdog_start(&watchdog, NULL, device, "", 0), GT_OK);
    ck_assert_ptr_null(watchdog.ticker);
    ticker_stop(watchdog.ticker);
    backend_close(device);
}

static const char *seen_call;
static int seen_op;

static enum gt_status sync_looks(struct backend *backend)
{
    seen_call = atomic_load(&backend->record->call);
    seen_op = atomic_load(&backend->record->op);
    return GT_OK;
}

TEST(what_is_waited_for)
{
    struct op_call calls[3] = {fill_call(), fill_call(), {.kind = OP_COPY}};
    calls[2].operand[COPY_X] = calls[2].operand[COPY_Y] = calls[0].operand[FILL_Y];
    calls[2].operand[COPY_Y].at.offset_bytes = 256;
    struct backend *device = device_open(sync_looks, NULL);
    const struct backend_record *record = device->record;
    ck_assert_ptr_null(atomic_load(&record->call));
    ck_assert_int_eq(backend_run(device, calls, 1), GT_OK);
    ck_assert_int_eq(backend_sync(device), GT_OK);
    ck_assert_str_eq(seen_call, "sync");
    ck_assert_int_eq(seen_op, OP_FILL);
    const uint64_t number = atomic_load(&record->number);
    ck_assert_int_eq(backend_run(device, calls, 2), GT_OK);
    ck_assert_int_eq(backend_sync(device), GT_OK);
    ck_assert_int_eq(seen_op, OP_FILL); /* both ops are fills */
    ck_assert_uint_eq(atomic_load(&record->number), number + 2);
    ck_assert_int_eq(backend_run(device, calls, 3), GT_OK);
    ck_assert_int_eq(backend_sync(device), GT_OK);
    ck_assert_int_lt(seen_op, 0); /* unknown: one of three ops */
    ck_assert_ptr_null(atomic_load(&record->call));
    backend_close(device);
    ck_assert_ptr_null(atomic_load(&record->call)); /* the record outlives the backend */
}
