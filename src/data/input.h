/* One file of a corpus as a sequence of texts, read once from front to back.
 *
 * A plain file and standard input are one text.  A compressed file contains one text (FILE.gz), an
 * archive has members (FILE.tar, FILE.tar.xz).  A member may itself be compressed or an archive, as
 * in OpenWebText's download: a tar.xz of .xz files that are tars of texts.  The reader follows up
 * to INPUT_DEPTH_MAX levels.  It extracts nothing: members' names appear in messages and determine
 * the format, and are never used as paths.  It still refuses an archive with a name that is
 * absolute or contains "..", because that is a sign of a bad archive.  It skips folders, links,
 * special files and hidden names.  libarchive reads these files; a build without it refuses them.
 *
 * A plain file that begins like a Parquet file is one text of JSON lines, which another program
 * writes: converter.h.
 *
 * The checksum of the file's bytes is updated on the way, and covers the whole file once
 * input_next() has reported the end.
 */
#ifndef GPT_TRAIN_DATA_INPUT_H
#define GPT_TRAIN_DATA_INPUT_H

#include "base/hostmem.h"
#include "data/corpus.h"

#define INPUT_DEPTH_MAX 4

struct input;

/* Returns the length of `name` without a suffix of compression or tar (.gz .xz .zst .bz2 .tar .tgz
 * .txz .tzst .tbz2 .tbz): "x.jsonl.gz" -> the length of "x.jsonl". */
size_t input_name_stem(const char *name);
/* Returns true when files of this name are compressed or an archive. */
bool input_name_is_packed(const char *name);
/* Returns true when they are an archive, which may be compressed. */
bool input_name_is_archive(const char *name);
/* Returns true when the name, without such a suffix, ends in .jsonl or .ndjson. */
bool input_name_is_jsonl(const char *name);
/* Returns true when the name ends in .parquet. */
bool input_name_is_parquet(const char *name);
/* Returns true when it ends in .jsonl, .ndjson, .json, .csv or .tsv, which may hold records of
 * conversations; not for datasets' files about them. */
bool input_name_has_records(const char *name);

/* With `converts`, a Parquet file is one text of JSON lines; else its bytes are the text.  `file`
 * and `stdin_path` are borrowed until close.  Standard input is read from the file `stdin_path`
 * unless that is NULL.  The checksum continues from `crc32c`.  Errors: GT_UNSUPPORTED (a build
 * without libarchive, or one whose libarchive lacks a compression; Parquet without a program that
 * reads it), GT_DATA (neither compressed nor an archive), GT_IO, GT_NO_MEMORY. */
enum gt_status input_open(const void *owner, const struct corpus_file *file, const char *stdin_path,
                          uint32_t crc32c, bool converts, struct input **out);

/* Steps to the next text; *out_found is false at the end, when the whole file has been read.
 * Errors: GT_DATA (an archive that is broken, cut short, has a name that leaves it, or too many
 * levels), GT_IO, GT_NO_MEMORY. */
enum gt_status input_next(struct input *input, bool *out_found);
/* Reads up to `capacity` bytes of the text; *out_count is 0 at its end.  Errors: as above. */
enum gt_status input_read(struct input *input, unsigned char *out, size_t capacity,
                          size_t *out_count);

/* The current text, and what has been read of the file. */
struct input_info {
    const char *label; /* "FILE", "FILE: member NAME" or "standard input", for messages */
    const char *name;  /* of the member or file, without a suffix of compression; valid until the
                          next text */
    bool is_member;    /* of an archive */
    bool is_converted; /* the text is JSON lines that another program writes from a Parquet file */
    uint64_t file_bytes;
    uint32_t crc32c;
};
const struct input_info *input_info_get(const struct input *input);

#endif
