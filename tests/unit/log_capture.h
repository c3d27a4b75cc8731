/* Captures the log's lines in a test, so that it can assert "one line, with these words".
 *
 * log_capture_begin(&capture) replaces the sink until log_capture_end().  The test owns the struct.
 */
#ifndef GPT_TRAIN_UNIT_LOG_CAPTURE_H
#define GPT_TRAIN_UNIT_LOG_CAPTURE_H

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

struct log_capture {
    int lines;
    enum log_level level; /* of the last line */
    char text[5000];      /* the last line */
    char before[5000];    /* the line before it */
};

static inline void log_capture_sink(void *context, enum log_level level, const char *line)
{
    struct log_capture *capture = context;
    capture->lines++;
    capture->level = level;
    memcpy(capture->before, capture->text, sizeof capture->before);
    (void)snprintf(capture->text, sizeof capture->text, "%s", line);
}

static inline void log_capture_begin(struct log_capture *capture)
{
    memset(capture, 0, sizeof *capture);
    log_sink_set(log_capture_sink, capture);
}

static inline void log_capture_end(void)
{
    log_sink_set(NULL, NULL);
}

/* Fails unless exactly one error line with `words` was logged since the last call or begin; then
 * starts again. */
static inline void log_capture_one_error(struct log_capture *capture, const char *words)
{
    ck_assert_msg(capture->lines == 1, "%d lines instead of one, the last: %.500s", capture->lines,
                  capture->text);
    ck_assert_int_eq(capture->level, LOG_ERROR);
    ck_assert_msg(strstr(capture->text, words) != NULL, "\"%s\" is not in: %.500s", words,
                  capture->text);
    capture->lines = 0;
}

/* Fails unless `call` returns `status` and logs exactly one error line with `words`. */
#define log_capture_refused(capture, call, status, words) \
    do {                                                  \
        ck_assert_int_eq(call, status);                   \
        log_capture_one_error(capture, words);            \
    } while (0)

#endif
