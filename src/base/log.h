/* The log: one line per event, to standard error (diagnostics) or standard output (results), folded
 * at the width of a terminal.
 *
 * Its state is global.  Control characters in a line are escaped, so that text from an untrusted
 * file cannot forge lines or control the terminal.  status.h includes this header.
 */
#ifndef GPT_TRAIN_BASE_LOG_H
#define GPT_TRAIN_BASE_LOG_H

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

enum log_level { LOG_ERROR, LOG_WARNING, LOG_NOTE, LOG_RESULT };

/* Receives complete lines without the newline.  `context` is the argument of log_sink_set(). */
typedef void log_sink_fn(void *context, enum log_level level, const char *line);

/* Sets the program name in front of diagnostics ("gpt-train: error: ...").  `name` must outlive all
 * use of the log. */
void log_program_set(const char *name);

/* Replaces the sink; NULL restores the default (results to stdout, everything else to stderr). */
void log_sink_set(log_sink_fn *sink, void *context);

/* Each begins the format of an error that --explain=ID explains: the line then starts with
 * "error[ID]: ". */
#define ERROR_NO_FIT "\1no-fit\2"
#define ERROR_UNKNOWN_KEY "\1unknown-key\2"
#define ERROR_BAD_VALUE "\1bad-value\2"
#define ERROR_NO_DATA "\1no-data\2"
#define ERROR_BAD_TOKEN "\1bad-token\2"
#define ERROR_NO_CHECKPOINT "\1no-checkpoint\2"
#define ERROR_OTHER_SHAPE "\1other-shape\2"
#define ERROR_NO_DEVICE "\1no-device\2"
#define ERROR_LOCKED "\1locked\2"
#define ERROR_DIVERGED "\1diverged\2"

void log_error(const char *format, ...) LOG_PRINTF(1, 2); /* a failure, with the numbers */
void log_warning(const char *format, ...)
    LOG_PRINTF(1, 2);                                    /* a problem that does not stop the run */
void log_note(const char *format, ...) LOG_PRINTF(1, 2); /* a choice or a change */
void log_result(const char *format, ...)
    LOG_PRINTF(1, 2); /* the requested output: loss lines, plans */

/* Flushes standard output.  Returns 0 when everything written to it so far, by the log or
 * otherwise, succeeded, else the errno of the failed write. */
int log_output_error(void);

/* The number of lines logged at `level` since the start.  Tests use it to check for one line per
 * error. */
size_t log_count(enum log_level level);

/* Returns the length of the valid UTF-8 character at `text` if it may be shown unescaped, else 0.
 */
size_t log_character_length(const char *text);

/* Formats into `text`, cut at `size` bytes.  Returns `text`; the macro's lives as long as the
 * enclosing block. */
char *log_text(char *text, size_t size, const char *format, ...) LOG_PRINTF(3, 4);
#define TEXT(size, ...) log_text((char[size]){0}, size, __VA_ARGS__)
/* Returns `value`, but a NaN loses its sign, which C libraries print as "-nan". */
double log_number(double value);
/* Formats a byte count as "11.40 GiB", "96.0 MiB" or "512 B" into `text` (at least 24 bytes);
 * returns `text`. */
char *log_bytes(char text[24], double bytes);
/* The same in text that lives as long as the enclosing block. */
#define LOG_BYTES(bytes) log_bytes((char[24]){0}, (double)(bytes))

#endif
