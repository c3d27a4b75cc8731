/* The text of a log as a parser of messages reads it: in ASCII, without escape sequences and
 * without the prefixes that loggers put before each line.
 */
#ifndef GPT_TRAIN_PLAN_OOM_TEXT_H
#define GPT_TRAIN_PLAN_OOM_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Copies text[count] to out[count] without a terminal's escape sequences, and returns the number of
 * bytes written. UTF-16, which PowerShell writes, becomes ASCII, with '?' for other characters. */
size_t oom_text_plain(char *out, const char *text, size_t count);

/* Returns the length of the prefix that line[left] has in common with the beginning of another
 * line, first[count]: up to and including the last character there that is neither a letter nor a
 * digit.  All numbers count as equal, because time stamps differ. */
size_t oom_text_prefix(const char *first, size_t count, const char *line, size_t left);

#endif
