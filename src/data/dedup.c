/* The set of documents seen so far: linear probing in a table that doubles.
 *
 * A zero entry marks an empty slot, so a document whose checksum is zero (chance 2^-128) always
 * counts as new.  The table is at most 7/8 full.
 */
#include "data/dedup.h"

#include "base/file.h"

#define SLOTS_FIRST ((size_t)65536)

struct dedup {
    struct document_hash *slots;
    size_t slot_count, slot_count_max; /* powers of two */
    uint64_t count;
    bool full;
};

/* ---- checksums ---- */

/* Words are read as little-endian bytes, so the result is the same on every machine. */
static uint64_t rotate(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

static void sip_round(uint64_t v[static 4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32) + v[3];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

static void sip_absorb(uint64_t v[static 4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

static uint64_t sip_squeeze(uint64_t v[static 4])
{
    for (int i = 0; i < 4; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* The key is 16 bytes, given as two little-endian words. */
static struct document_hash document_hash_keyed(uint64_t key_low, uint64_t key_high,
                                                const void *bytes, size_t count)
{
    const unsigned char *next = bytes;
    uint64_t v[4] = {key_low ^ UINT64_C(0x736f6d6570736575),
                     key_high ^ UINT64_C(0x646f72616e646f6d) ^ UINT64_C(0xee),
                     key_low ^ UINT64_C(0x6c7967656e657261),
                     key_high ^ UINT64_C(0x7465646279746573)};
    size_t left = count;
    for (; left >= 8; left -= 8, next += 8)
        sip_absorb(v, le_read(next, 8));
    sip_absorb(v, (uint64_t)(count & 0xFF) << 56 | le_read(next, left));
    struct document_hash hash;
    v[2] ^= 0xee;
    hash.low = sip_squeeze(v);
    v[1] ^= 0xdd;
    hash.high = sip_squeeze(v);
    return hash;
}

struct document_hash document_hash_of(const void *bytes, size_t count)
{
    return document_hash_keyed(UINT64_C(0x6770742d74726169), UINT64_C(0x6e20646f63756d65), bytes,
                               count);
}

/* Hashes the checksum once more, with the seed as the key, and takes 53 bits. */
double document_hash_draw(struct document_hash hash, uint64_t seed)
{
    unsigned char bytes[16];
    le_write(bytes, hash.low, 8);
    le_write(bytes + 8, hash.high, 8);
    return (double)(document_hash_keyed(seed, 1, bytes, sizeof bytes).low >> 11) * 0x1p-53;
}

/* ---- the table ---- */

/* Returns the slot of the entry, or the empty slot for it.  Bounded: the table is never full. */
static struct document_hash *slot_find(struct document_hash *slots, size_t slot_count,
                                       struct document_hash hash)
{
    size_t at = (size_t)hash.low & (slot_count - 1);
    while ((slots[at].low | slots[at].high) != 0 &&
           (slots[at].low != hash.low || slots[at].high != hash.high))
        at = (at + 1) & (slot_count - 1);
    return &slots[at];
}

static enum gt_status table_grow(struct dedup *dedup)
{
    struct document_hash *larger;
    const size_t larger_count = dedup->slots == NULL ? SLOTS_FIRST : 2 * dedup->slot_count;
    TRY(HOSTMEM_NEW(dedup, larger_count, "checksums of documents", &larger));
    for (size_t i = 0; i < dedup->slot_count; i++)
        if ((dedup->slots[i].low | dedup->slots[i].high) != 0)
            *slot_find(larger, larger_count, dedup->slots[i]) = dedup->slots[i];
    hostmem_free(dedup->slots);
    dedup->slots = larger;
    dedup->slot_count = larger_count;
    return GT_OK;
}

/* Makes room for one more entry, unless the table has reached its maximum size. */
static enum gt_status table_reserve(struct dedup *dedup)
{
    if (dedup->count < dedup->slot_count / 8 * 7)
        return GT_OK;
    if (dedup->slot_count < dedup->slot_count_max)
        return table_grow(dedup);
    if (!dedup->full)
        log_warning("--dedup remembers %" PRIu64
                    " documents: later ones are compared with these, but not with one "
                    "another",
                    dedup->count);
    dedup->full = true;
    return GT_OK;
}

/* ---- the set ---- */

enum gt_status dedup_create(const void *owner, size_t table_bytes_max, struct dedup **out)
{
    assert(table_bytes_max >= SLOTS_FIRST * sizeof(struct document_hash));
    struct dedup *dedup;
    TRY(HOSTMEM_NEW(owner, 1, "set of documents", &dedup));
    dedup->slot_count_max = table_bytes_max / sizeof(struct document_hash);
    const enum gt_status status = table_grow(dedup);
    return FINISH(status, out, dedup, hostmem_free);
}

enum gt_status dedup_add(struct dedup *dedup, struct document_hash hash, bool *out_known)
{
    *out_known = false;
    if ((hash.low | hash.high) == 0)
        return GT_OK;
    struct document_hash *slot = slot_find(dedup->slots, dedup->slot_count, hash);
    *out_known = (slot->low | slot->high) != 0;
    if (*out_known)
        return GT_OK;
    TRY(table_reserve(dedup));
    if (dedup->full)
        return GT_OK;
    *slot_find(dedup->slots, dedup->slot_count, hash) = hash;
    dedup->count++;
    return GT_OK;
}
