/* The set of documents seen so far, so that exact copies are left out.
 *
 * Checksums of 128 bits in an open-addressed table that grows up to DEDUP_TABLE_BYTES_MAX, enough for about 29 million
 * documents; while it grows, half as much again is in use.  Once it is full, documents are still compared with it, but
 * new ones are no longer remembered, and one line says so.  What is added is also appended to a file, so that a run
 * that was stopped goes on with the same set.
 */
#ifndef GPT_TRAIN_DATA_DEDUP_H
#define GPT_TRAIN_DATA_DEDUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "data/document_hash.h"

#define DEDUP_TABLE_BYTES_MAX ((size_t)512 << 20)

struct dedup;

/* What the file holds: what a later dedup_create() is given. */
struct dedup_entries {
    uint64_t count;
    uint32_t crc32c;
    bool is_summed; /* else the checksum is not known: of a release that kept none */
};

/* Reads these entries of the file at `path` back (none: begins anew; the file is made or emptied) and cuts off what
 * follows them.  `table_bytes_max` is a power of two, DEDUP_TABLE_BYTES_MAX but for tests.  Errors: GT_IO, GT_DATA (the
 * file has fewer entries, or others), GT_NO_MEMORY. */
enum gt_status dedup_create(struct hostmem *mem, const char *path, struct dedup_entries entries, size_t table_bytes_max,
                            struct dedup **out);
/* Accepts NULL.  Leaves the file. */
void dedup_destroy(struct dedup *dedup);

/* *out_known tells whether the set has the document; if not, it has it from now on.  Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status dedup_add(struct dedup *dedup, struct document_hash hash, bool *out_known);
/* Entries so far. */
struct dedup_entries dedup_entries_get(const struct dedup *dedup);
bool dedup_is_full(const struct dedup *dedup);
/* Everything added is on the disk afterwards.  Errors: GT_IO. */
enum gt_status dedup_sync(struct dedup *dedup);

#endif
