/* Compressed files and tar archives as a sequence of texts, read once from front to back.
 *
 * A file holds one text (FILE.gz) or members (FILE.tar, FILE.tar.xz), and a member may be compressed or an archive
 * again, as in OpenWebText's download: a tar.xz of .xz files that are tars of texts.  Up to ARCHIVE_DEPTH_MAX levels are
 * followed.  Nothing is extracted: member names serve for messages and to tell the format, never as paths; one that
 * is absolute or has a ".." in it is refused all the same, as the sign of a bad archive.  Folders, links and special
 * files in an archive are passed over, and so are hidden names, as in folders.  By libarchive; a build without it
 * refuses these files.
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

/* True when a file of this name (.gz .xz .zst .bz2 .tar .tgz .txz .tzst .tbz2) is read through here. */
bool archive_name_is_packed(const char *name);
/* The length of `name` without the ending of its compression: "x.jsonl.gz" -> that of "x.jsonl". */
size_t archive_name_stem(const char *name);

/* Opens a file.  The checksum of its bytes continues from `crc32c`.  Errors: GT_UNSUPPORTED (a build without libarchive, or
 * one whose libarchive lacks a compression), GT_DATA (neither compressed nor an archive), GT_IO, GT_NO_MEMORY. */
enum gt_status archive_stream_open(struct hostmem *mem, const char *path, uint32_t crc32c, struct archive_stream **out);
/* Accepts NULL. */
void archive_stream_close(struct archive_stream *stream);

/* Steps to the next text.  *out_name is NULL at the end, when the whole file has been read; else the member's name, or
 * the file's own without its ending, valid until the next call.  `*out_is_member` tells which.  Errors: GT_DATA (broken,
 * cut short, a name that leaves the archive, too many levels), GT_IO, GT_NO_MEMORY. */
enum gt_status archive_stream_next(struct archive_stream *stream, const char **out_name, bool *out_is_member);
/* Up to `capacity` bytes of the text; 0 at its end.  Errors: as above. */
enum gt_status archive_stream_read(struct archive_stream *stream, unsigned char *out, size_t capacity,
                                   size_t *out_count);
/* "FILE" or "FILE: member A" for messages. */
const char *archive_stream_label(const struct archive_stream *stream);

/* Of the file itself: bytes read so far, their checksum, and the size when it was opened. */
uint64_t archive_stream_file_bytes(const struct archive_stream *stream);
uint32_t archive_stream_file_crc32c(const struct archive_stream *stream);

#endif
