/* A hash of bytes, for tables, names of files and identities: FNV-1a of 64 bits (Fowler, Noll, Vo).
 *
 * It is the same on every machine and from release to release: files are named by it.  Not for data that somebody may have
 * made to collide: whoever uses it compares the whole key as well.
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

/* A hash that is kept where 0 stands for none: never 0. */
static inline uint64_t hash_identity(uint64_t hash)
{
    return hash != 0 ? hash : 1;
}

#endif
