/* Compressed files and tar archives as a sequence of texts, read once from front to back.
 *
 * A file contains one text (FILE.gz) or members (FILE.tar, FILE.tar.xz).  A member may itself be compressed or an
 * archive, as in OpenWebText's download: a tar.xz of .xz files that are tars of texts.  The reader follows up to
 * ARCHIVE_DEPTH_MAX levels.  It extracts nothing: member names appear in messages and determine the format, and are
 * never used as paths.  It still refuses an archive with a name that is absolute or contains "..", because that is a
 * sign of a bad archive.  It skips folders, links, special files and hidden names.  Reading is done by libarchive; a
 * build without it refuses these files.
 */
#ifndef GPT_TRAIN_DATA_ARCHIVE_STREAM_H
#define GPT_TRAIN_DATA_ARCHIVE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"

#define ARCHIVE_DEPTH_MAX 4

struct archive_stream;

/* Returns true when files of this name (.gz .xz .zst .bz2 .tar .tgz .txz .tzst .tbz2 .tbz) are read by this module. */
bool archive_name_is_packed(const char *name);
/* Returns the length of `name` without its compression suffix: "x.jsonl.gz" -> the length of "x.jsonl". */
size_t archive_name_stem(const char *name);

/* Opens a file.  The checksum of its bytes continues from `crc32c`.  Errors: GT_UNSUPPORTED (a build without
 * libarchive, or one whose libarchive lacks a compression), GT_DATA (neither compressed nor an archive), GT_IO,
 * GT_NO_MEMORY. */
enum gt_status archive_stream_open(struct hostmem *mem, const char *path, uint32_t crc32c, struct archive_stream **out);
/* Accepts NULL. */
void archive_stream_close(struct archive_stream *stream);

/* Steps to the next text.  Sets *out_name to NULL at the end, when the whole file has been read, and otherwise to the
 * member's name (*out_is_member is true) or the file's own name without its suffix; the name is valid until the next
 * call.  Errors: GT_DATA (broken, cut short, a name that leaves the archive, too many levels), GT_IO, GT_NO_MEMORY. */
enum gt_status archive_stream_next(struct archive_stream *stream, const char **out_name, bool *out_is_member);
/* Reads up to `capacity` bytes of the text; *out_count is 0 at its end.  Errors: as above. */
enum gt_status archive_stream_read(struct archive_stream *stream, unsigned char *out, size_t capacity,
                                   size_t *out_count);
/* Returns "FILE" or "FILE: member A" for messages. */
const char *archive_stream_label(const struct archive_stream *stream);

/* Return the number of bytes of the file that have been read, and their checksum. */
uint64_t archive_stream_file_bytes(const struct archive_stream *stream);
uint32_t archive_stream_file_crc32c(const struct archive_stream *stream);

#endif
