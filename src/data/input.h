/* One file of a corpus as a sequence of texts: a plain file or standard input is one text, an archive has many.
 *
 * A text is read once from front to back.  The checksum of the file's bytes is updated on the way, and covers the whole
 * file once input_next() has reported the end.
 */
#ifndef GPT_TRAIN_DATA_INPUT_H
#define GPT_TRAIN_DATA_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "data/corpus.h"

struct input;

/* `file` and `stdin_path` are borrowed until close.  Standard input is read from the file `stdin_path` unless that is
 * NULL.  Errors: those of archive_stream_open(); GT_IO, GT_NO_MEMORY. */
enum gt_status input_open(struct hostmem *mem, const struct corpus_file *file, const char *stdin_path, uint32_t crc32c,
                          struct input **out);
/* Accepts NULL. */
void input_close(struct input *input);

/* Steps to the next text; *out_found is false at the end of the file.  Errors: those of archive_stream_next(). */
enum gt_status input_next(struct input *input, bool *out_found);
/* Reads up to `capacity` bytes of the text; *out_count is 0 at its end.  Errors: GT_IO, GT_DATA (a broken archive),
 * GT_NO_MEMORY. */
enum gt_status input_read(struct input *input, unsigned char *out, size_t capacity, size_t *out_count);

/* Returns "FILE", "FILE: member NAME" or "standard input", for messages. */
const char *input_label(const struct input *input);
/* Returns true when the text is a member of an archive. */
bool input_is_member(const struct input *input);
/* Returns true for a member and for a file found in a folder: the user did not name it. */
bool input_is_unnamed(const struct input *input);
/* Returns the text's name without a compression suffix. */
const char *input_name(const struct input *input, size_t *out_length);
/* Returns true when the text's name ends in .jsonl or .ndjson. */
bool input_is_jsonl(const struct input *input);

/* Return the number of bytes of the file that have been read, and their checksum. */
uint64_t input_file_bytes(const struct input *input);
uint32_t input_file_crc32c(const struct input *input);

#endif
