/* Tests of base/log: prefixes, counts, escaping, cutting, the default sink's streams and folding,
 * numbers. */
#define _XOPEN_SOURCE 700 /* posix_openpt */
#include "base/status.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

TEST(lines_begin_with_program_and_level)
{
    struct log_capture capture;
    log_capture_begin(&capture);
    log_error("bare %d", 1);
    ck_assert_str_eq(capture.text, "error: bare 1");
    log_program_set("gpt-train");
    log_error("%s is %d", "x", 3);
    ck_assert_str_eq(capture.text, "gpt-train: error: x is 3");
    ck_assert_int_eq(capture.level, LOG_ERROR);
    log_warning("w");
    ck_assert_str_eq(capture.text, "gpt-train: warning: w");
    ck_assert_int_eq(capture.level, LOG_WARNING);
    log_note("n");
    ck_assert_str_eq(capture.text, "gpt-train: n");
    ck_assert_int_eq(capture.level, LOG_NOTE);
    log_result("iter %d: loss %.1f", 10, 4.25);
    ck_assert_str_eq(capture.text, "iter 10: loss 4.2");
    ck_assert_int_eq(capture.level, LOG_RESULT);
    ck_assert_int_eq(capture.lines, 5);
    ck_assert_uint_eq(log_count(LOG_ERROR), 2);
    ck_assert_uint_eq(log_count(LOG_WARNING), 1);
}

static const struct {
    const char *given;
    const char *shown;
} escapes[] = {
    {"a\nfake: error: b", "a\\nfake: error: b"},
    {"\r\t\x1b[2J\x7f\x01", "\\r\\t\\x1b[2J\\x7f\\x01"},
    {"Zürich 日本 \xf0\x9f\x99\x82", "Zürich 日本 \xf0\x9f\x99\x82"},
    {"\xc2\x9b"
     "31m",
     "\\xc2\\x9b31m"},                            /* C1 control sequence introducer */
    {"\xc2\xa0", "\xc2\xa0"},                     /* the first character after C1 */
    {"\x9b", "\\x9b"},                            /* a continuation byte alone */
    {"\xc0\xaf", "\\xc0\\xaf"},                   /* overlong */
    {"\xe0\x80\xaf", "\\xe0\\x80\\xaf"},          /* overlong */
    {"\xed\xa0\x80", "\\xed\\xa0\\x80"},          /* surrogate */
    {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, /* above U+10FFFF */
    {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},     /* U+10FFFF */
    {"end \xe6\x97", "end \\xe6\\x97"},           /* ends inside a character */
    {"100% \\ \"", "100% \\ \""},
};

TEST_LOOP(control_characters_are_escaped, (int)(sizeof escapes / sizeof escapes[0]))
{
    struct log_capture capture;
    log_capture_begin(&capture);
    log_result("%s", escapes[_i].given);
    ck_assert_str_eq(capture.text, escapes[_i].shown);
    log_error("x: %s", escapes[_i].given);
    ck_assert_str_eq(capture.text + strlen("error: x: "), escapes[_i].shown);
    ck_assert_int_eq(capture.lines, 2);
}

/* Lines of every length around the limit, of one-byte, three-byte and escaped characters. */
TEST_LOOP(long_lines_are_cut, 3)
{
    static const char *const units[] = {"x", "日", "\n"};
    struct log_capture capture;
    log_capture_begin(&capture);
    char text[6000];
    for (size_t length = 900; length < sizeof text; length++) {
        const char *unit = units[_i];
        size_t used = 0;
        while (used + strlen(unit) <= length) {
            memcpy(text + used, unit, strlen(unit));
            used += strlen(unit);
        }
        text[used] = '\0';
        log_result("%.*s%s", (int)(length % 3), "zz", text); /* characters start at any offset */
        const size_t shown = strlen(capture.text);
        ck_assert_uint_lt(shown, 4096);
        const size_t needed = (unit[0] == '\n' ? 2 * used : used) + length % 3;
        if (needed < 4090) {
            ck_assert_uint_eq(shown, needed);
        } else if (needed >= 4096) {
            ck_assert_str_eq(capture.text + shown - 3, "...");
            ck_assert_uint_gt(shown, 4080);
            ck_assert_ptr_null(
                strstr(capture.text, "\\x")); /* no half character is left before the dots */
        }
    }
}

TEST(a_nan_has_no_sign)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%g %g %g", log_number((double)-NAN), log_number((double)NAN),
                   log_number(-2.0));
    ck_assert_str_eq(text, "nan nan -2");
}

/* Returns what a child process writes that logs these lines to a terminal of `columns`. */
static void terminal_output(unsigned short columns, const char *result, const char *error,
                            char out[static 800])
{
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    const struct winsize size = {.ws_row = 24, .ws_col = columns};
    ck_assert_int_ge(terminal, 0);
    ck_assert(grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    ck_assert_int_eq(ioctl(terminal, TIOCSWINSZ, &size), 0);
    const int end =
        open(ptsname(terminal), O_RDWR | O_NOCTTY); /* stays open, so that reads do not fail */
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        (void)dup2(end, STDOUT_FILENO);
        (void)dup2(end, STDERR_FILENO);
        log_sink_set(NULL, NULL);
        log_program_set("p");
        log_result("%s", result);
        log_error("%s", error);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    struct pollfd ready = {.fd = terminal, .events = POLLIN};
    size_t count = 0;
    while (count < 799 && poll(&ready, 1, 200) > 0) { /* what was written arrives in parts */
        const ssize_t got = read(terminal, out + count, 799 - count);
        ck_assert_int_gt(got, 0);
        count += (size_t)got;
    }
    out[count] = '\0';
    (void)close(end);
    (void)close(terminal);
}

TEST(lines_fold_at_the_terminals_width)
{
    char out[800];
    terminal_output(40, "estimate: 1 min 40 s, until Saturday at four (100 steps)",
                    "x.py: a word-that-is-longer-than-the-whole-terminal-is-wide stays whole", out);
    ck_assert_str_eq(
        out, "estimate: 1 min 40 s, until Saturday at\r\n    four (100 steps)\r\n"
             "p: error: x.py: a\r\n    word-that-is-longer-than-the-whole-terminal-is-wide\r\n"
             "    stays whole\r\n");
    terminal_output(40, "iter 250: loss 2.3456, time 1234.56ms, mfu 12.34%",
                    "as wide as the terminal is: 40 columns", out);
    ck_assert_str_eq(out, "iter 250: loss 2.3456, time 1234.56ms, mfu 12.34%\r\n"
                          "p: error: as wide as the terminal is: 40\r\n    columns\r\n");
    terminal_output(30, "Continue: gpt-train --init_from=resume --out_dir=out",
                    "ä ö ü ä ö ü ä ö ü ä ö", out);
    ck_assert_str_eq(out, "Continue: gpt-train --init_from=resume --out_dir=out\r\n"
                          "p: error: ä ö ü ä ö ü ä ö ü ä\r\n    ö\r\n");
    terminal_output(10, "too narrow to fold anything", "e", out);
    ck_assert_str_eq(out, "too narrow to fold anything\r\np: error: e\r\n");
}

static const struct {
    double bytes;
    const char *text;
} byte_texts[] = {
    {0, "0 B"},
    {512, "512 B"},
    {1023, "1023 B"},
    {1024, "1.0 KiB"},
    {100663296, "96.0 MiB"},
    {1048575, "1.0 MiB"}, /* not "1024.0 KiB" */
    {12240656794, "11.40 GiB"},
    {6593445888, "6.14 GiB"},
    {-5242880, "-5.0 MiB"},
    {1.5 * 1099511627776, "1.50 TiB"},
};

TEST_LOOP(byte_counts, (int)(sizeof byte_texts / sizeof byte_texts[0]))
{
    char text[24];
    ck_assert_ptr_eq(log_bytes(text, byte_texts[_i].bytes), text);
    ck_assert_str_eq(text, byte_texts[_i].text);
    ck_assert_uint_lt(strlen(log_bytes(text, 1e300)), 24);
    ck_assert_uint_lt(strlen(log_bytes(text, -1e300)), 24);
}
