/* progress.c: silent where standard error is no terminal; one line that is redrawn and erased where it is one. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/unit_main.h"
#include "train/progress.h"

/* Runs `draw` with standard error in a file and returns what was written. */
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

START_TEST(a_file_stays_clean)
{
    char text[1000];
    captured(draw_in_a_file, text, sizeof text);
    ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(a_terminal_shows_one_line)
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
END_TEST

Suite *progress_suite(void)
{
    Suite *suite = suite_create("progress");
    TCase *tests = tcase_create("progress");
    tcase_add_test(tests, a_file_stays_clean);
    tcase_add_test(tests, a_terminal_shows_one_line);
    suite_add_tcase(suite, tests);
    return suite;
}

UNIT_MAIN(progress)
