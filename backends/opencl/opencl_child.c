/* The child process: it waits for a byte in a pipe, finds the request in memory shared with the
 * parent, and leaves its answer there.
 *
 * It is a fork without exec, made while this process has one thread of ours and no driver, so it
 * inherits nothing but memory.  It closes all files (a lock of the parent must not outlive it),
 * points the standard streams at /dev/null, and puts error lines into the answer's reason.  It ends
 * by _exit().
 */

#include "backends/opencl/opencl_child.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/opencl/opencl_device.h"
#include "backends/opencl/opencl_gemm.h"
#include "backends/opencl/opencl_matrix.h"
#include "backends/opencl/opencl_open.h"
#include "base/clock.h"

#define FILES_MAX 4096
#define REAP_SECONDS 10

struct opencl_exchange {
    struct opencl_request request;
    struct opencl_answer answer; /* is_dead until the child has answered */
};

/* Keeps the first error line, without "gpt-train: error: opencl: ", which the parent's log adds
 * again. */
static void reason_sink(void *context, enum log_level level, const char *line)
{
    struct opencl_answer *answer = context;
    static const char own[] = "opencl: ";
    const char *text = strstr(line, own);
    if (level == LOG_ERROR && answer->reason[0] == '\0')
        snprintf(answer->reason, sizeof answer->reason, "%s",
                 text != NULL ? text + sizeof own - 1 : line);
}

static enum gt_status request_serve(const struct opencl_request *request,
                                    struct opencl_answer *answer)
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
    struct opencl_backend *cl = opencl_backend_of(backend);
    cl->is_clblast_proven = true; /* the parent proves it */
    if (request->task == OPENCL_TASK_COMMIT)
        return backend->ops->arena(backend, request->segment, request->segments);
    opencl_matrix_open(cl, OPENCL_MATRIX_ALL, "");
    answer->matrix = cl->matrix;
    return GT_OK;
}

static _Noreturn void child_run(int wake_fd, struct opencl_exchange *exchange)
{
    const int null_fd = open("/dev/null", O_RDWR);
    ssize_t woken = -1;
    char byte;
    for (int fd = 0; fd < 3 && null_fd >= 0; fd++)
        (void)dup2(null_fd, fd);
    for (int fd = 3; fd < FILES_MAX; fd++)
        if (fd != wake_fd)
            (void)close(fd);
    (void)signal(SIGINT, SIG_IGN); /* the parent decides; if it ends, the pipe closes */
    (void)signal(SIGTERM, SIG_DFL);
    (void)signal(SIGABRT, SIG_DFL);
    do
        woken = read(wake_fd, &byte, 1);
    while (woken < 0 && errno == EINTR);
    if (woken == 1) {
        log_sink_set(reason_sink, &exchange->answer);
        exchange->answer.status = request_serve(&exchange->request, &exchange->answer);
        exchange->answer.is_dead = false;
    }
    _exit(0);
}

/* Returns true when this process has loaded the loader: a child would inherit a driver without its
 * threads. */
static bool loader_is_loaded(void)
{
    void *library = opencl_loader_open(RTLD_NOLOAD);
    if (library == NULL)
        return false;
    dlclose(library);
    return true;
}

static void child_release(struct opencl_child *child)
{
    (void)close(child->wake_fd[0]);
    (void)close(child->wake_fd[1]);
    (void)munmap(child->exchange, sizeof *child->exchange);
    child->pid = 0;
}

void opencl_child_start(struct opencl_child *out)
{
    const char *wanted = getenv("GPT_TRAIN_OPENCL_CHILD");
    struct opencl_child child = {.pid = 0};
    *out = child;
    if ((wanted != NULL && strcmp(wanted, "0") == 0) || loader_is_loaded() ||
        pipe(child.wake_fd) != 0)
        return;
    for (int i = 0; i < 2; i++)
        (void)fcntl(child.wake_fd[i], F_SETFD, FD_CLOEXEC);
    child.exchange = mmap(NULL, sizeof *child.exchange, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)fflush(NULL);
    child.pid = child.exchange != MAP_FAILED ? fork() : -1;
    if (child.pid == 0)
        child_run(child.wake_fd[0], child.exchange);
    if (child.pid < 0)
        child_release(&child);
    *out = child;
}

/* Waits until the child ends, and writes the status from waitpid() to *out, or 0 when another
 * process reaped it. Returns false when the child takes longer than `seconds`. */
static bool child_await(const struct opencl_child *child, int seconds, int *out)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    const int64_t deadline_ns = clock_monotonic_ns() + seconds * INT64_C(1000000000);
    pid_t reaped = 0;
    while (reaped == 0 && clock_monotonic_ns() < deadline_ns) {
        reaped = waitpid(child->pid, out, WNOHANG);
        if (reaped == 0)
            (void)nanosleep(&pause, NULL);
    }
    return reaped != 0;
}

void opencl_child_ask(struct opencl_child *child, const struct opencl_request *request, int seconds,
                      struct opencl_answer *out)
{
    int status = 0;
    if (child->pid == 0) {
        assert(request->task == OPENCL_TASK_LIST);
        *out = (struct opencl_answer){.status = GT_OK};
        out->status = request_serve(request, out);
        return;
    }
    child->exchange->request = *request;
    child->exchange->answer.is_dead = true;
    bool late = write(child->wake_fd[1], "", 1) == 1 && !child_await(child, seconds, &status);
    if (late) {
        (void)kill(child->pid, SIGKILL);
        (void)child_await(child, REAP_SECONDS,
                          &status); /* in vain if the process is inside a driver that hangs */
    }
    *out = child->exchange->answer;
    child_release(child);
    if (!out->is_dead)
        return;
    *out =
        (struct opencl_answer){.status = GT_DEVICE, .is_dead = true, .has_opened = out->has_opened};
    if (late)
        snprintf(out->reason, sizeof out->reason,
                 "the driver did not answer within %d s (tried in a child process)", seconds);
    else if (WIFSIGNALED(status))
        snprintf(out->reason, sizeof out->reason,
                 "the driver ended its process with signal %d, %s (tried in a child process)",
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(out->reason, sizeof out->reason,
                 "the driver ended its process with exit status %d (tried in a child process)",
                 WEXITSTATUS(status));
}

void opencl_child_end(struct opencl_child *child)
{
    int status = 0;
    if (child->pid == 0)
        return;
    (void)close(child->wake_fd[1]);
    child->wake_fd[1] = -1;
    (void)child_await(child, REAP_SECONDS, &status);
    child_release(child);
}
