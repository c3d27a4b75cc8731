/* Parquet files, read by an installed program, which writes their rows as JSON lines to a pipe.
 *
 * That program is duckdb, or a Python with pyarrow, polars or duckdb, found on PATH.  It receives
 * the file's name as an argument, without a shell, and ends when its reader does.  Rows that it
 * wrote before it failed are an error, never data.
 */
#ifndef GPT_TRAIN_DATA_CONVERTER_H
#define GPT_TRAIN_DATA_CONVERTER_H

#include "base/hostmem.h"

struct converter;

/* Returns true for the first bytes of a Parquet file. */
bool converter_is_parquet(const unsigned char *bytes, size_t count);

/* Starts the program on `path`, which is borrowed.  Errors: GT_UNSUPPORTED (no such program; the
 * message says what to install), GT_IO, GT_NO_MEMORY. */
enum gt_status converter_open(const void *owner, const char *path, struct converter **out);
/* Reads up to `capacity` bytes; *out_count is 0 at the end, when the program has ended without an
 * error.  Errors: GT_DATA (the program failed; the message quotes its last line), GT_FAILURE (a
 * signal ended it, or it ended within a line), GT_UNSUPPORTED (this Python has none of the
 * modules), GT_IO. */
enum gt_status converter_read(struct converter *converter, unsigned char *out, size_t capacity,
                              size_t *out_count);

#endif
