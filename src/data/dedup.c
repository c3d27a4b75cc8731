/* The set of documents seen so far: linear probing in a table that doubles, and an append-only file.
 *
 * A zero entry marks an empty slot, so a document whose checksum is zero (chance 2^-128) always counts as new.  The
 * table is at most 7/8 full.  The file is written in blocks, and contains 16 little-endian bytes per entry in the order
 * of adding.
 */
#include "data/dedup.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "data/little_endian.h"

#define ENTRY_BYTES ((size_t)16)
/* Fuzzing uses smaller values. */
#ifndef DEDUP_BLOCK_ENTRIES
#define DEDUP_BLOCK_ENTRIES 4096
#define DEDUP_SLOTS_FIRST 65536
#endif
#define BLOCK_ENTRIES ((size_t)DEDUP_BLOCK_ENTRIES)
#define SLOTS_FIRST ((size_t)DEDUP_SLOTS_FIRST)

struct dedup {
    const char *path; /* borrowed until destroy */
    int fd;
    struct document_hash *slots;
    size_t slot_count, slot_count_max; /* powers of two */
    uint64_t count;
    uint32_t crc32c; /* of all entries, in the order of adding */
    size_t pending;  /* entries in the block */
    bool full;
    unsigned char block[BLOCK_ENTRIES * ENTRY_BYTES];
};

/* ---- checksums ---- */

/* Words are read as little-endian bytes, so the result is the same on every machine. */
struct sip_state {
    uint64_t v[4];
};

static uint64_t rotate(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

static void sip_round(struct sip_state *state)
{
    uint64_t *v = state->v;
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

static void sip_absorb(struct sip_state *state, uint64_t word)
{
    state->v[3] ^= word;
    sip_round(state);
    sip_round(state);
    state->v[0] ^= word;
}

static uint64_t sip_squeeze(struct sip_state *state)
{
    for (int i = 0; i < 4; i++)
        sip_round(state);
    return state->v[0] ^ state->v[1] ^ state->v[2] ^ state->v[3];
}

struct document_hash document_hash_keyed(uint64_t key_low, uint64_t key_high, const void *bytes, size_t count)
{
    const unsigned char *next = bytes;
    struct sip_state state = {{key_low ^ UINT64_C(0x736f6d6570736575),
                               key_high ^ UINT64_C(0x646f72616e646f6d) ^ UINT64_C(0xee),
                               key_low ^ UINT64_C(0x6c7967656e657261), key_high ^ UINT64_C(0x7465646279746573)}};
    size_t left = count;
    for (; left >= 8; left -= 8, next += 8)
        sip_absorb(&state, le_read(next, 8));
    sip_absorb(&state, (uint64_t)(count & 0xFF) << 56 | le_read(next, left));
    struct document_hash hash;
    state.v[2] ^= 0xee;
    hash.low = sip_squeeze(&state);
    state.v[1] ^= 0xdd;
    hash.high = sip_squeeze(&state);
    return hash;
}

struct document_hash document_hash_of(const void *bytes, size_t count)
{
    return document_hash_keyed(UINT64_C(0x6770742d74726169), UINT64_C(0x6e20646f63756d65), bytes, count);
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
static struct document_hash *slot_find(struct document_hash *slots, size_t slot_count, struct document_hash hash)
{
    size_t at = (size_t)hash.low & (slot_count - 1);
    while ((slots[at].low | slots[at].high) != 0 && (slots[at].low != hash.low || slots[at].high != hash.high))
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
        log_warning("--dedup remembers %" PRIu64 " documents: later ones are compared with these, but not with one "
                    "another",
                    dedup->count);
    dedup->full = true;
    return GT_OK;
}

/* ---- the file ---- */

static enum gt_status block_write(struct dedup *dedup)
{
    TRY(file_write_all(dedup->fd, dedup->path, dedup->block, dedup->pending * ENTRY_BYTES));
    dedup->pending = 0;
    return GT_OK;
}

enum gt_status dedup_sync(struct dedup *dedup)
{
    TRY(block_write(dedup));
    return fsync(dedup->fd) == 0 ? GT_OK : file_error(dedup->path, "sync");
}

static enum gt_status block_take(struct dedup *dedup, size_t entries)
{
    for (size_t i = 0; i < entries; i++) {
        const unsigned char *entry = dedup->block + i * ENTRY_BYTES;
        const struct document_hash hash = {le_read(entry, 8), le_read(entry + 8, 8)};
        TRY(table_reserve(dedup));
        if (dedup->full || (hash.low | hash.high) == 0)
            return FAIL(GT_DATA, "%s: entry %" PRIu64 " is damaged", dedup->path, dedup->count);
        *slot_find(dedup->slots, dedup->slot_count, hash) = hash;
        dedup->count++;
    }
    return GT_OK;
}

/* Reads the first entries, one block at a time; the file continues after them. */
static enum gt_status file_restore(struct dedup *dedup, const struct dedup_entries *begun)
{
    const uint64_t count = begun->count;
    for (uint64_t done = 0; done < count;) {
        const uint64_t left = count - done;
        const size_t entries = left < BLOCK_ENTRIES ? (size_t)left : BLOCK_ENTRIES;
        TRY(file_read_at(dedup->fd, dedup->path, done * ENTRY_BYTES, dedup->block, entries * ENTRY_BYTES));
        dedup->crc32c = file_crc32c(dedup->crc32c, dedup->block, entries * ENTRY_BYTES);
        TRY(block_take(dedup, entries));
        done += entries;
    }
    if (dedup->crc32c != begun->crc32c)
        return FAIL(GT_DATA,
                    "%s: its first %" PRIu64
                    " entries changed after the stopped run wrote them; start again with --restart",
                    dedup->path, count);
    const off_t end = (off_t)(count * ENTRY_BYTES);
    if (ftruncate(dedup->fd, end) == 0 && lseek(dedup->fd, end, SEEK_SET) == end)
        return GT_OK;
    return FAIL(GT_IO, "%s: cannot cut to %" PRIu64 " entries: %s", dedup->path, count, strerror(errno));
}

/* ---- the set ---- */

static void dedup_close(void *object)
{
    struct dedup *dedup = object;
    if (dedup->fd >= 0)
        close(dedup->fd);
}

enum gt_status dedup_create(const void *owner, const char *path, struct dedup_entries entries, size_t table_bytes_max,
                            struct dedup **out)
{
    assert(table_bytes_max >= SLOTS_FIRST * sizeof(struct document_hash));
    struct dedup *dedup;
    TRY(HOSTMEM_NEW(owner, 1, "set of documents", &dedup));
    hostmem_at_free(dedup, dedup_close);
    dedup->path = path;
    dedup->slot_count_max = table_bytes_max / sizeof(struct document_hash);
    dedup->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    enum gt_status status = dedup->fd < 0 ? file_error(path, "open") : table_grow(dedup);
    THEN(status, file_restore(dedup, &entries));
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
    unsigned char *entry = dedup->block + dedup->pending * ENTRY_BYTES;
    le_write(entry, hash.low, 8);
    le_write(entry + 8, hash.high, 8);
    dedup->crc32c = file_crc32c(dedup->crc32c, entry, ENTRY_BYTES);
    dedup->pending++;
    return dedup->pending < BLOCK_ENTRIES ? GT_OK : block_write(dedup);
}

struct dedup_entries dedup_entries_get(const struct dedup *dedup)
{
    return (struct dedup_entries){.count = dedup->count, .crc32c = dedup->crc32c};
}
