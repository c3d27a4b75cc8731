/* A 128-bit checksum of a document, used to find copies and to draw the split.
 *
 * SipHash-2-4 with 128 bits of output and a fixed key (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012,
 * and the authors' siphash128).  Among a billion documents, two different ones collide by chance with probability
 * 1e-21.  The key is public, so the checksum does not protect against documents that are crafted to collide.
 */
#ifndef GPT_TRAIN_DATA_DOCUMENT_HASH_H
#define GPT_TRAIN_DATA_DOCUMENT_HASH_H

#include <stddef.h>
#include <stdint.h>

struct document_hash {
    uint64_t low, high;
};

/* The key is 16 bytes, given as two little-endian words. */
struct document_hash document_hash_keyed(uint64_t key_low, uint64_t key_high, const void *bytes, size_t count);
/* Uses the project's key. */
struct document_hash document_hash_of(const void *bytes, size_t count);
/* Returns a number in [0, 1) that depends only on the document and `seed`.  Below val_fraction, the document goes to
 * validation. */
double document_hash_draw(struct document_hash hash, uint64_t seed);

#endif
