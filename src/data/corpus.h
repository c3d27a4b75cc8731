/* A corpus: the list of files that a data set is made from.
 *
 * Inputs are files, folders, and "-", which is standard input.  A folder stands for the regular files below it,
 * sorted by path (by bytes, so on every machine alike); hidden names, symbolic links and special files inside it are
 * left out, and so is the folder that the output goes to.  Inputs keep the order in which they were given.
 */
#ifndef GPT_TRAIN_DATA_CORPUS_H
#define GPT_TRAIN_DATA_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "data/document_hash.h"

#define CORPUS_STDIN "-"

struct corpus_file {
    const char *path;    /* the corpus's */
    uint64_t size_bytes; /* when it was listed; 0 for standard input */
    int64_t changed_ns;  /* its time of modification then */
    size_t input;        /* the argument that it came from */
    uint32_t crc32c;     /* for the user of the list: a checksum from an earlier reading */
    bool from_folder;    /* found in a folder, not named */
    bool is_stdin;
};

struct corpus_paths;

struct corpus {
    struct hostmem *mem; /* borrowed; outlives the corpus */
    struct corpus_file *files;
    size_t file_count, file_capacity;
    uint64_t size_bytes; /* of all files but standard input */
    bool has_stdin;
    struct corpus_paths *paths; /* the text of all paths */
};

/* True for the name of a file that the program itself writes. */
typedef bool corpus_name_fn(const char *name);

struct corpus_spec {
    const char *const *inputs;
    size_t input_count;
    const char *out_dir; /* left out when met inside an input folder; may not exist; NULL: none */
    corpus_name_fn
        *is_output; /* names left out of out_dir when it is itself an input, and refused as inputs there; NULL: none */
};

/* Lists the files.  Memory: 48 bytes and the path for each.  Errors: GT_USAGE (an input that does not exist, or is
 * neither file nor folder, or would be replaced; "-" twice), GT_IO (a folder that cannot be read), GT_NO_MEMORY. */
enum gt_status corpus_create(struct hostmem *mem, const struct corpus_spec *spec, struct corpus **out);
/* Accepts NULL. */
void corpus_destroy(struct corpus *corpus);

/* Whether a file is still what was listed: GT_DATA where its size or its time of modification is another, or it is gone.
 * Standard input always is.  Errors: GT_IO too. */
enum gt_status corpus_file_check(const struct corpus_file *file);

/* A checksum of the list: paths, sizes, times. */
struct document_hash corpus_fingerprint(const struct corpus *corpus);

#endif
