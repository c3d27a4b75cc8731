/* The child process: one request in, one answer out, through two pipes.
 *
 * It is a fork without exec, made while this process has one thread of ours and no driver, so it inherits nothing but
 * memory.  It closes all files (a lock of the parent must not outlive it), points the standard streams at /dev/null,
 * and puts error lines into the answer's reason.  It ends by _exit().
 */
#include "backends/opencl/opencl_child.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/opencl/opencl.h"
#include "backends/opencl/opencl_matrix.h"
#include "base/clock.h"
#include "base/log.h"

#define FILES_MAX 4096
#define REAP_SECONDS 10

/* bytes_write() and bytes_read() return false when the other side is gone.  Reading stops at `deadline_ns`, unless that
 * is 0. */
static bool bytes_write(int fd, const void *bytes, size_t count)
{
    const char *at = bytes;
    while (count > 0) {
        const ssize_t done = write(fd, at, count);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        at += done;
        count -= (size_t)done;
    }
    return true;
}

static bool readable_before(int fd, int64_t deadline_ns)
{
    if (deadline_ns == 0)
        return true;
    for (;;) {
        const int64_t left_ms = (deadline_ns - clock_monotonic_ns()) / 1000000;
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        const int ready = left_ms > 0 ? poll(&poll_fd, 1, (int)left_ms) : 0;
        if (ready >= 0 || errno != EINTR)
            return ready > 0;
    }
}

static bool bytes_read(int fd, void *bytes, size_t count, int64_t deadline_ns)
{
    char *at = bytes;
    while (count > 0) {
        if (!readable_before(fd, deadline_ns))
            return false;
        const ssize_t done = read(fd, at, count);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        at += done;
        count -= (size_t)done;
    }
    return true;
}

/* Keeps the first error line, without "gpt-train: error: ", which the parent's log adds again. */
static void reason_sink(void *context, enum log_level level, const char *line)
{
    struct opencl_answer *answer = context;
    const char *text = strstr(line, "opencl: ");
    if (level == LOG_ERROR && answer->reason[0] == '\0')
        snprintf(answer->reason, sizeof answer->reason, "%s", text != NULL ? text : line);
}

static enum gt_status request_serve(const struct opencl_request *request, struct opencl_answer *answer)
{
    struct backend *backend = NULL;
    const char *name = request->name[0] != '\0' ? request->name : NULL;
    if (request->task == OPENCL_TASK_LIST) {
        struct opencl_api api;
        TRY(opencl_api_open(&api));
        return opencl_devices_list(&api, &answer->listing);
    }
    TRY(opencl_open_here(request->device, name, &backend));
    answer->has_opened = true;
    struct opencl_backend *cl = opencl_own(backend);
    if (request->task == OPENCL_TASK_MATRIX)
        opencl_matrix_open(cl, OPENCL_MATRIX_ALL, "");
    else
        opencl_matrix_candidate(cl, &cl->matrix);
    answer->matrix = cl->matrix;
    answer->matrix_is_known = opencl_matrix_is_known(cl);
    cl->is_clblast_proven = true; /* the parent proves it */
    if (request->task == OPENCL_TASK_COMMIT)
        TRY(backend->ops->arena(backend, request->segment, request->segments));
    return GT_OK;
}

static _Noreturn void child_run(int request_fd, int answer_fd)
{
    static struct opencl_answer answer; /* too large for the stack */
    struct opencl_request request;
    const int null_fd = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3 && null_fd >= 0; fd++)
        (void)dup2(null_fd, fd);
    for (int fd = 3; fd < FILES_MAX; fd++) {
        if (fd != request_fd && fd != answer_fd)
            (void)close(fd);
    }
    (void)signal(SIGINT, SIG_IGN); /* the parent decides; if it ends, the pipe closes */
    (void)signal(SIGTERM, SIG_DFL);
    (void)signal(SIGABRT, SIG_DFL);
    if (bytes_read(request_fd, &request, sizeof request, 0)) {
        log_sink_set(reason_sink, &answer);
        answer.status = request_serve(&request, &answer);
        (void)bytes_write(answer_fd, &answer, sizeof answer);
    }
    _exit(0);
}

/* Returns true when this process has loaded the loader: a child would inherit a driver without its threads. */
static bool loader_is_loaded(void)
{
    const char *wanted = getenv("GPT_TRAIN_OPENCL_LIBRARY");
    void *library = dlopen(wanted != NULL && *wanted != '\0' ? wanted : OPENCL_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL)
        return false;
    dlclose(library);
    return true;
}

void opencl_child_start(struct opencl_child *out)
{
    const char *wanted = getenv("GPT_TRAIN_OPENCL_CHILD");
    int request[2], answer[2];
    *out = (struct opencl_child){.pid = 0};
    if ((wanted != NULL && strcmp(wanted, "0") == 0) || loader_is_loaded() || pipe(request) != 0)
        return;
    if (pipe(answer) != 0) {
        close(request[0]);
        close(request[1]);
        return;
    }
    for (int i = 0; i < 2; i++) {
        (void)fcntl(request[i], F_SETFD, FD_CLOEXEC);
        (void)fcntl(answer[i], F_SETFD, FD_CLOEXEC);
    }
    (void)fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        close(request[1]);
        close(answer[0]);
        child_run(request[0], answer[1]);
    }
    close(request[0]);
    close(answer[1]);
    if (pid < 0) {
        close(request[1]);
        close(answer[0]);
        return;
    }
    *out = (struct opencl_child){.pid = pid, .to_fd = request[1], .from_fd = answer[0]};
}

/* Closes the pipes, waits, and returns the status from waitpid(), or 0 if that takes longer than REAP_SECONDS, as it
 * may for a process killed inside a driver that hangs. */
static int child_reap(struct opencl_child *child)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    const int64_t deadline_ns = clock_monotonic_ns() + REAP_SECONDS * INT64_C(1000000000);
    int status = 0;
    pid_t reaped = 0;
    close(child->to_fd);
    close(child->from_fd);
    while (reaped == 0 && clock_monotonic_ns() < deadline_ns) {
        reaped = waitpid(child->pid, &status, WNOHANG);
        if (reaped == 0)
            (void)nanosleep(&pause, NULL);
    }
    child->pid = 0;
    return reaped > 0 ? status : 0;
}

void opencl_child_ask(struct opencl_child *child, const struct opencl_request *request, int seconds,
                      struct opencl_answer *out)
{
    const int64_t deadline_ns = clock_monotonic_ns() + (int64_t)seconds * INT64_C(1000000000);
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    (void)sigaction(SIGPIPE, &ignore, &before);
    bool answered = bytes_write(child->to_fd, request, sizeof *request);
    (void)sigaction(SIGPIPE, &before, NULL);
    answered = answered && bytes_read(child->from_fd, out, sizeof *out, deadline_ns);
    const bool late = clock_monotonic_ns() >= deadline_ns;
    if (!answered && late)
        (void)kill(child->pid, SIGKILL);
    const int status = child_reap(child);
    if (answered)
        return;
    memset(out, 0, sizeof *out);
    out->status = GT_DEVICE;
    out->is_dead = true;
    if (late)
        snprintf(out->reason, sizeof out->reason,
                 "opencl: the driver did not answer within %d s (tried in a child process)", seconds);
    else if (WIFSIGNALED(status))
        snprintf(out->reason, sizeof out->reason,
                 "opencl: the driver ended its process with signal %d, %s (tried in a child process)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(out->reason, sizeof out->reason,
                 "opencl: the driver ended its process with exit status %d (tried in a child process)",
                 WEXITSTATUS(status));
}

void opencl_child_end(struct opencl_child *child)
{
    if (child->pid > 0)
        (void)child_reap(child);
}
