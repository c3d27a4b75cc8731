/* A 128-bit checksum of a document, by which copies are found and the split is drawn.
 *
 * SipHash-2-4 with 128 bits of output and a fixed key (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012,
 * and the authors' siphash128): two different documents among a billion agree by chance with a probability of 1e-21.
 * The key is public, so it is no protection against documents that somebody made to collide.
 */
#ifndef GPT_TRAIN_DATA_DOCUMENT_HASH_H
#define GPT_TRAIN_DATA_DOCUMENT_HASH_H

#include <stddef.h>
#include <stdint.h>

struct document_hash {
    uint64_t low, high;
};

/* The key is 16 bytes as two little-endian words. */
struct document_hash document_hash_keyed(uint64_t key_low, uint64_t key_high, const void *bytes, size_t count);
/* With the project's key. */
struct document_hash document_hash_of(const void *bytes, size_t count);
/* A number in [0, 1) that depends on the document and on `seed` only: below val_fraction, it is for validation. */
double document_hash_draw(struct document_hash hash, uint64_t seed);

#endif
