/* A corpus: the list of files that a data set is made from, and reading one of them in pieces.
 *
 * Inputs are files and folders.  A folder stands for the regular files below it, sorted by path (by bytes, so on every
 * machine alike); hidden names, symbolic links and special files inside it are left out, and so is the folder that the
 * output goes to.  Inputs keep the order in which they were given.
 */
#ifndef GPT_TRAIN_DATA_CORPUS_H
#define GPT_TRAIN_DATA_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"

struct corpus_file {
    char *path;
    uint64_t size_bytes; /* when it was listed */
    size_t input;        /* the argument that it came from */
    bool from_folder;    /* found in a folder, not named */
};

struct corpus {
    struct hostmem *mem; /* borrowed; outlives the corpus */
    struct corpus_file *files;
    size_t file_count, file_capacity;
    uint64_t size_bytes; /* of all files */
};

struct corpus_spec {
    const char *const *inputs;
    size_t input_count;
    const char *out_dir;          /* left out when met inside an input folder; may not exist; NULL: none */
    const char *const *out_names; /* file names left out of out_dir when it is itself an input */
    size_t out_name_count;
};

/* Lists the files.  Errors: GT_USAGE (an input that does not exist, or is neither file nor folder), GT_IO (a folder
 * that cannot be read), GT_NO_MEMORY. */
enum gt_status corpus_create(struct hostmem *mem, const struct corpus_spec *spec, struct corpus **out);
/* Accepts NULL. */
void corpus_destroy(struct corpus *corpus);

/* Reading a file in pieces: after each fill, bytes[count] are the next ones.  The caller takes `used` of them, and what
 * it leaves (the beginning of a character) comes first in the next piece.  Struct and buffer are the caller's. */
struct corpus_reader {
    const char *path; /* borrowed until close */
    int fd;
    uint64_t size_bytes;
    uint64_t offset; /* in the file, of bytes[0] */
    unsigned char *bytes;
    size_t capacity;
    size_t count;
    size_t used;
    uint32_t crc32c; /* of all bytes read so far, continued from what open was given */
};

/* Errors: GT_IO. */
enum gt_status corpus_reader_open(struct corpus_reader *reader, const char *path, unsigned char *buffer,
                                  size_t capacity, uint32_t crc32c);
/* Drops what was used and reads more; count is 0 once everything was used.  It is an error of ours to use nothing of a
 * full buffer.  Errors: GT_IO, GT_DATA when the file became shorter. */
enum gt_status corpus_reader_fill(struct corpus_reader *reader);
/* True when the last piece reaches the end of the file. */
bool corpus_reader_at_end(const struct corpus_reader *reader);
void corpus_reader_close(struct corpus_reader *reader);

#endif
