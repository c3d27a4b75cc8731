/* Lines for people: as wide as the terminal, folded between words.  Lines for files and pipes are
 * never folded. */
#ifndef GPT_TRAIN_BASE_TERMINAL_H
#define GPT_TRAIN_BASE_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Returns the columns of the terminal behind `stream`: its own answer, else the variable COLUMNS,
 * else 80; 0 if it is no terminal. */
size_t terminal_columns(FILE *stream);

/* Writes `text` and a newline.  A line of more than `columns` characters is broken at its last
 * blank that fits, and goes on after `indent` blanks; a word that is too long has a line of its
 * own.  0 columns break nothing. */
void terminal_fold(FILE *stream, const char *text, size_t columns, int indent);

#endif
