/* The numbers in files, and hashes of bytes. */
#ifndef GPT_TRAIN_BASE_BYTES_H
#define GPT_TRAIN_BASE_BYTES_H

#include "base/status.h"

/* A hash for tables, file names and identities: 64-bit FNV-1a (Fowler, Noll, Vo).  It is the same
 * on every machine and in every release.  It does not resist deliberate collisions; callers also
 * compare the whole key. */
static inline uint64_t hash_fnv1a(const void *bytes, size_t count)
{
    const unsigned char *byte = bytes;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Maps a hash of 0 to 1, for fields in which 0 means "none". */
static inline uint64_t hash_identity(uint64_t hash)
{
    return hash != 0 ? hash : 1;
}

/* ---- little-endian numbers: configure refuses processors with another order ---- */

/* Returns the number in bytes[count], count <= 8. */
static inline uint64_t le_read(const unsigned char *bytes, size_t count)
{
    uint64_t value = 0;
    memcpy(&value, bytes, count);
    return value;
}

/* Writes the low 8 * count bits. */
static inline void le_write(unsigned char *out, uint64_t value, size_t count)
{
    memcpy(out, &value, count);
}

#endif
