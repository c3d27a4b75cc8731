/* Tests of the checksums in src/data/dedup.c: the reference's results, and the draw. */
#include "data/dedup.h"

#include <math.h>

#include "tests/unit/unit_main.h"

/* SipHash-2-4-128 of the bytes 0, 1, ... with the key 00 01 .. 0f: vectors_sip128 of the authors' implementation. */
TEST(document_hash_known_answers)
{
    unsigned char bytes[16];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)i;
    const uint64_t low = UINT64_C(0x0706050403020100), high = UINT64_C(0x0f0e0d0c0b0a0908);
    struct document_hash hash = document_hash_keyed(low, high, bytes, 0);
    ck_assert(hash.low == UINT64_C(0xe6a825ba047f81a3) && hash.high == UINT64_C(0x930255c71472f66d));
    hash = document_hash_keyed(low, high, bytes, 1);
    ck_assert(hash.low == UINT64_C(0x44af996bd8c187da) && hash.high == UINT64_C(0x45fc229b11597634));
}

/* The hash depends on every length up to three words, and on every bit. */
TEST(document_hash_sees_every_bit)
{
    unsigned char bytes[24] = {0};
    for (size_t count = 0; count <= sizeof bytes; count++) {
        const struct document_hash plain = document_hash_of(bytes, count);
        for (size_t bit = 0; bit < 8 * count; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
            const struct document_hash other = document_hash_of(bytes, count);
            ck_assert(other.low != plain.low && other.high != plain.high);
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        if (count < sizeof bytes)
            ck_assert(document_hash_of(bytes, count + 1).low != plain.low);
    }
}

/* The draw is uniform (a chi-square test of 16 classes, 1e-6), and differs between seeds. */
TEST(document_hash_draw_is_uniform)
{
    enum { CLASSES = 16, DRAWS = 16000 };
    for (uint64_t seed = 0; seed < 3; seed++) {
        int counts[CLASSES] = {0}, changed = 0;
        for (uint32_t i = 0; i < DRAWS; i++) {
            const struct document_hash hash = document_hash_of(&i, sizeof i);
            const double draw = document_hash_draw(hash, seed);
            ck_assert(draw >= 0 && draw < 1);
            counts[(int)(draw * CLASSES)]++;
            changed += (draw < 0.5) != (document_hash_draw(hash, seed + 1) < 0.5);
        }
        double chi = 0;
        for (int i = 0; i < CLASSES; i++)
            chi += pow(counts[i] - DRAWS / CLASSES, 2) / (DRAWS / CLASSES);
        ck_assert(chi < 56.5);
        ck_assert(changed > DRAWS / 2 - 400 && changed < DRAWS / 2 + 400);
    }
}
