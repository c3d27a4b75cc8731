/* A corpus: the list of files that a data set is made from.
 *
 * Inputs are files, folders, and "-", which is standard input.  A folder stands for the regular
 * files below it, sorted by the bytes of their paths, so that the order is the same on every
 * machine.  Hidden names, symbolic links and special files inside a folder are skipped, and so is
 * the output folder.  Inputs keep the order in which they were given.
 */
#ifndef GPT_TRAIN_DATA_CORPUS_H
#define GPT_TRAIN_DATA_CORPUS_H

#include "base/hostmem.h"

#define CORPUS_STDIN "-"

struct corpus_file {
    const char *path;    /* owned by the corpus */
    uint64_t size_bytes; /* when it was listed; 0 for standard input */
    int64_t changed_ns;  /* modification time when it was listed */
    size_t input;        /* index of the argument that it came from */
    bool from_folder;    /* found in a folder, not named on the command line */
    bool is_stdin;
};

struct corpus {
    struct corpus_file *files;
    size_t file_count;
    uint64_t size_bytes; /* of all files except standard input */
    bool has_stdin;
};

/* Returns true for the name of a file that the program itself writes. */
typedef bool corpus_name_fn(const char *name);

struct corpus_spec {
    const char *const *inputs;
    size_t input_count;
    const char
        *out_dir; /* skipped when it lies inside an input folder; may not exist; NULL: none */
    corpus_name_fn *
        is_output; /* names to skip when out_dir is an input, and to refuse as inputs; NULL: none */
};

/* Lists the files.  Memory: 60 to 90 bytes plus the path for each.  Errors: GT_USAGE (an input that
 * does not exist, or is neither file nor folder, or would be replaced; "-" twice), GT_IO (a folder
 * that cannot be read), GT_NO_MEMORY. */
enum gt_status corpus_create(const void *owner, const struct corpus_spec *spec,
                             struct corpus **out);

/* Checks that a file has not changed since it was listed.  Standard input always passes.  Errors:
 * GT_DATA when its size or its modification time differs, or it is gone; GT_IO. */
enum gt_status corpus_file_check(const struct corpus_file *file);

/* Returns a checksum of the list: paths, sizes, times. */
uint32_t corpus_crc32c(const struct corpus *corpus);

#endif
