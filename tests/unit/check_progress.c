/* Tests of progress.c: it is silent when standard error is not a terminal or is a dumb one; otherwise it redraws and
 * erases one line, which is never wider than the terminal. */
#define _XOPEN_SOURCE 700 /* posix_openpt */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/progress.h"
#include "tests/unit/unit_main.h"

/* Runs `draw` with standard error in a file; returns the output in `text`. */
static void captured(void (*draw)(void), char *text, size_t size)
{
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    ck_assert_ptr_nonnull(file);
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    draw();
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    size_t count = fread(text, 1, size - 1, file);
    text[count] = '\0';
    fclose(file);
}

static void draw_in_a_file(void)
{
    struct progress progress;
    progress_init(&progress);
    progress_show(&progress, "train", 1, 2, "loss 1", 3.0);
    progress_clear(&progress);
}

static void draw_on_a_terminal(void)
{
    struct progress progress = {.terminal = true};
    progress_show(&progress, "train", 225, 500, "loss 1.93", 70.0);
    progress_show(&progress, "train", 226, 500, "too soon", 70.0);
    progress_show(&progress, "train", 500, 500, "", -1.0);
    progress_clear(&progress);
    progress_clear(&progress);
    progress_show(&progress, "nothing to do", 0, 0, "", 0.0);
}

TEST(a_file_stays_clean)
{
    char text[1000];
    captured(draw_in_a_file, text, sizeof text);
    ck_assert_str_eq(text, "");
}

TEST(a_terminal_shows_one_line)
{
    char text[2000];
    captured(draw_on_a_terminal, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "\r\033[Ktrain ["));
    ck_assert_ptr_nonnull(strstr(text, "45.0 %  225/500  loss 1.93"));
    ck_assert_ptr_nonnull(strstr(text, " left"));
    ck_assert_ptr_null(strstr(text, "too soon"));
    ck_assert_ptr_nonnull(strstr(text, "100.0 %  500/500"));
    ck_assert_ptr_null(strstr(text, "nothing to do"));
    ck_assert_ptr_null(strchr(text, '\n'));
    size_t length = strlen(text);
    ck_assert_str_eq(text + length - 4, "\r\033[K");
}

/* A chroot may have no /dev/pts. */
static bool has_terminals(void)
{
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    const bool has = master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0 && access(ptsname(master), F_OK) == 0;
    if (master >= 0)
        close(master);
    if (!has)
        unit_skip("progress_terminal", "no pseudo-terminals here (/dev/pts)");
    return has;
}

/* Captures what `draw` writes to a terminal with so many columns (0: unknown) and the environment's TERM=`term`. */
static void on_terminal(void (*draw)(void), unsigned short columns, const char *term, char *text, size_t size)
{
    const struct winsize window = {.ws_row = 24, .ws_col = columns};
    const int master = posix_openpt(O_RDWR | O_NOCTTY), saved = dup(STDERR_FILENO);
    ck_assert(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    const int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    ck_assert(slave >= 0 && ioctl(slave, TIOCSWINSZ, &window) == 0);
    ck_assert(term != NULL ? setenv("TERM", term, 1) == 0 : unsetenv("TERM") == 0);
    dup2(slave, STDERR_FILENO);
    draw();
    fputc('!', stderr); /* gives the reader at least one byte */
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    size_t used = 0;
    for (ssize_t count = 1; count > 0 && (used == 0 || text[used - 1] != '!'); used += (size_t)count)
        count = read(master, text + used, size - 1 - used);
    text[used] = '\0';
    close(saved);
    close(slave);
    close(master);
}

static void draw_wide(void)
{
    struct progress progress;
    progress_init(&progress);
    progress_show(&progress, "train", 123456, 600001, "loss 10.9312  123456 tok/s", 3e9);
}

static void draw_unknown(void)
{
    struct progress progress;
    progress_init(&progress);
    progress_draw(&progress,
                  &(struct progress_view){
                      .what = "gpt-prepare", .fraction = -1.0, .count = "1.2 GiB", .note = "", .seconds_left = -1.0});
}

/* Tests any width; one that the terminal does not report is taken as 80.  A line that fills the last column would
 * wrap. */
TEST(a_line_is_never_wider_than_the_terminal)
{
    if (!has_terminals())
        return;
    for (unsigned short columns = 0; columns <= 200; columns++) {
        char text[2000];
        on_terminal(draw_wide, columns, "xterm", text, sizeof text);
        const size_t used = strlen(text) - strlen("\r\033[K!");
        ck_assert_msg(strncmp(text, "\r\033[K", 4) == 0 && used < (columns > 0 ? columns : 80u), "%d: %s", columns,
                      text);
        ck_assert(columns < 34 || strstr(text, " 20.6 %") != NULL);
        ck_assert(columns < 34 || strstr(text, " left!") != NULL);
        ck_assert_msg((columns > 0 && columns < 76) || strstr(text, "tok/s") != NULL, "%d: %s", columns, text);
        ck_assert(columns < 110 || strstr(text, "[====>                   ]") != NULL);
    }
}

TEST(an_unknown_share_has_no_bar)
{
    if (!has_terminals())
        return;
    char text[2000];
    on_terminal(draw_unknown, 80, "xterm", text, sizeof text);
    ck_assert_str_eq(text, "\r\033[Kgpt-prepare 1.2 GiB  !");
}

TEST(a_dumb_terminal_gets_nothing)
{
    if (!has_terminals())
        return;
    const char *const terms[] = {"dumb", "", NULL};
    for (int i = 0; i < 3; i++) {
        char text[2000];
        on_terminal(draw_wide, 80, terms[i], text, sizeof text);
        ck_assert_str_eq(text, "!");
    }
}
