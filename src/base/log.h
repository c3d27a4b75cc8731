/* The log: one line per event, to standard error (diagnostics) or standard output (results).
 *
 * The sink is the only mutable global of the program.  Control characters in the arguments are escaped, so that
 * text taken from an untrusted file cannot forge lines or drive the terminal.
 */
#ifndef GPT_TRAIN_BASE_LOG_H
#define GPT_TRAIN_BASE_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#if defined(__GNUC__)
#define LOG_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define LOG_PRINTF(fmt, args)
#endif

enum log_level { LOG_ERROR, LOG_WARNING, LOG_NOTE, LOG_RESULT, LOG_DEBUG };

/* Receives complete lines without the newline.  `context` is the one given to log_sink_set(). */
typedef void log_sink_fn(void *context, enum log_level level, const char *line);

/* Names the program in front of errors ("gpt-train: error: ...").  `name` must outlive the process's use of the log. */
void log_program_set(const char *name);

/* Replaces the sink; NULL restores the default (errors, warnings and notes to stderr, results to stdout). */
void log_sink_set(log_sink_fn *sink, void *context);

/* Lines above `level` are dropped; the default is LOG_RESULT. */
void log_level_set(enum log_level level);

void log_error(const char *format, ...) LOG_PRINTF(1, 2);   /* what failed, with the numbers */
void log_warning(const char *format, ...) LOG_PRINTF(1, 2); /* the run goes on, and the user should know */
void log_note(const char *format, ...) LOG_PRINTF(1, 2);    /* what was chosen or changed */
void log_result(const char *format, ...) LOG_PRINTF(1, 2);  /* what the user asked for: loss lines, plans */
void log_debug(const char *format, ...) LOG_PRINTF(1, 2);

/* The errno with which a part of standard output could not be written, of what was printed beside the log too; 0: all of it
 * was.  Flushes it. */
int log_output_error(void);

/* How many lines of `level` went out since the start; tests use it for "one line per error". */
size_t log_count(enum log_level level);

/* Formats a byte count as "11.40 GiB", "96.0 MiB" or "512 B" into `text` (at least 24 bytes); returns `text`. */
char *log_bytes(char text[static 24], double bytes);

#endif
