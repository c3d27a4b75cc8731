/* Tests of stop.c: the first signal requests a stop, the second ends the process; an ignored signal stays ignored. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "session/stop.h"
#include "tests/unit/unit_main.h"

/* Returns the status of a child that runs `body` and exits with its result. */
static int child_status(int (*body)(int), int number)
{
    int status;
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        _exit(body(number));
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return status;
}

static int once(int number)
{
    stop_install();
    if (stop_requested() != 0)
        return 100;
    raise(number);
    return stop_requested() == number ? 0 : 101;
}

static int two_times(int number)
{
    stop_install();
    raise(number);
    raise(number);
    return 102;
}

static int ignored(int number)
{
    signal(number, SIG_IGN);
    stop_install();
    raise(number);
    return stop_requested();
}

TEST_LOOP(a_signal_is_a_request, 3)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    int status = child_status(once, numbers[_i]);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    status = child_status(two_times, numbers[_i]);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 128 + numbers[_i]);
    status = child_status(ignored, numbers[_i]);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}

/* A closed pipe and a limit on file sizes give failed writes, but do not kill the process. */
static int broken_writes(int unused)
{
    int ends[2];
    (void)unused;
    stop_ignore_writes();
    if (pipe(ends) != 0 || close(ends[0]) != 0 || write(ends[1], "x", 1) != -1)
        return 103;
    char path[] = "/tmp/gpt-train-stop-XXXXXX";
    int fd = mkstemp(path);
    struct rlimit limit = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
    if (fd < 0 || unlink(path) != 0 || setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 104;
    return write(fd, "x", 1) == -1 ? 0 : 105;
}

TEST(failed_writes_are_no_deaths)
{
    int status = child_status(broken_writes, 0);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}
