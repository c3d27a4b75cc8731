/* Checksums of documents, and the set of documents seen so far, used to drop exact copies.
 *
 * The set stores 128-bit checksums in an open-addressed table that grows up to
 * DEDUP_TABLE_BYTES_MAX, enough for about 29 million documents; growing temporarily needs half as
 * much again.  When the table is full, new documents are still looked up but no longer added, and
 * one log line reports this.
 */
#ifndef GPT_TRAIN_DATA_DEDUP_H
#define GPT_TRAIN_DATA_DEDUP_H

#include "base/hostmem.h"

#define DEDUP_TABLE_BYTES_MAX ((size_t)512 << 20)

/* A 128-bit checksum of a document, used to find copies and to draw the split: SipHash-2-4 with 128
 * bits of output (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012, and the authors'
 * siphash128).  Among a billion documents, two different ones collide by chance with probability
 * 1e-21.  The project's key is public, so the checksum does not protect against documents that are
 * crafted to collide. */
struct document_hash {
    uint64_t low, high;
};

/* Uses the project's key. */
struct document_hash document_hash_of(const void *bytes, size_t count);
/* Returns a number in [0, 1) that depends only on the document and `seed`.  Below val_fraction, the
 * document goes to validation. */
double document_hash_draw(struct document_hash hash, uint64_t seed);

struct dedup;

/* `table_bytes_max` is a power of two; only tests pass anything other than DEDUP_TABLE_BYTES_MAX.
 * Errors: GT_NO_MEMORY. */
enum gt_status dedup_create(const void *owner, size_t table_bytes_max, struct dedup **out);

/* Adds a document unless the set already contains it, in which case *out_known is true.  Errors:
 * GT_NO_MEMORY. */
enum gt_status dedup_add(struct dedup *dedup, struct document_hash hash, bool *out_known);

#endif
