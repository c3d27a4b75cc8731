/* A hash for tables, file names and identities: 64-bit FNV-1a (Fowler, Noll, Vo).
 *
 * Files are named by it, so it must be the same on every machine and in every release.  It does not resist deliberate
 * collisions; callers also compare the whole key.
 */
#ifndef GPT_TRAIN_BASE_HASH_H
#define GPT_TRAIN_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

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

#endif
