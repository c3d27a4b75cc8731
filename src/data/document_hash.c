/* A 128-bit checksum of a document: SipHash-2-4 with the 128-bit finalisation.
 *
 * Words are read as little-endian bytes, so the result is the same on every machine.  The draw hashes the checksum once
 * more with the seed as the key and takes 53 bits.  None of this is meant to withstand an attacker.
 */
#include "data/document_hash.h"

#include "data/little_endian.h"

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

double document_hash_draw(struct document_hash hash, uint64_t seed)
{
    unsigned char bytes[16];
    le_write(bytes, hash.low, 8);
    le_write(bytes + 8, hash.high, 8);
    return (double)(document_hash_keyed(seed, 1, bytes, sizeof bytes).low >> 11) * 0x1p-53;
}
