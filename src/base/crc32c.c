/* CRC-32C, by the processor's instruction if it has one (x86-64 with SSE 4.2), else by tables; and
 * the CRC-32 of zip archives, by tables.
 *
 * The instruction takes 8 bytes in three cycles.  The tables take about four times as long, which
 * is noticeable in checkpoints of gigabytes.
 */
#include "base/crc32c.h"

#include "base/bytes.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_INSTRUCTION 1
#include <nmmintrin.h>
#endif

/* Eight bytes per step ("slicing-by-8", Kounavis and Berry, 2008).  Table k maps a byte to its
 * remainder after k further zero bytes.  The map is linear over GF(2), so a table is determined by
 * its values at the eight powers of two, and the compiler computes the rest. */
#define CRC_BIT(n, bit, value) (((n) >> (bit)&1u) != 0u ? (value) : 0u)
#define CRC_1(n, b0, b1, b2, b3, b4, b5, b6, b7)                                     \
    (CRC_BIT(n, 0, b0) ^ CRC_BIT(n, 1, b1) ^ CRC_BIT(n, 2, b2) ^ CRC_BIT(n, 3, b3) ^ \
     CRC_BIT(n, 4, b4) ^ CRC_BIT(n, 5, b5) ^ CRC_BIT(n, 6, b6) ^ CRC_BIT(n, 7, b7))
#define CRC_4(n, ...)                                                                    \
    CRC_1((n), __VA_ARGS__), CRC_1((n) + 1u, __VA_ARGS__), CRC_1((n) + 2u, __VA_ARGS__), \
        CRC_1((n) + 3u, __VA_ARGS__)
#define CRC_16(n, ...)                                                                   \
    CRC_4((n), __VA_ARGS__), CRC_4((n) + 4u, __VA_ARGS__), CRC_4((n) + 8u, __VA_ARGS__), \
        CRC_4((n) + 12u, __VA_ARGS__)
#define CRC_64(n, ...)                                                                        \
    CRC_16((n), __VA_ARGS__), CRC_16((n) + 16u, __VA_ARGS__), CRC_16((n) + 32u, __VA_ARGS__), \
        CRC_16((n) + 48u, __VA_ARGS__)
#define CRC_TABLE(...)                                                                \
    {                                                                                 \
        CRC_64(0u, __VA_ARGS__), CRC_64(64u, __VA_ARGS__), CRC_64(128u, __VA_ARGS__), \
            CRC_64(192u, __VA_ARGS__)                                                 \
    }

static const uint32_t crc32c_table[8][256] = {
    CRC_TABLE(0xf26b8303u, 0xe13b70f7u, 0xc79a971fu, 0x8ad958cfu, 0x105ec76fu, 0x20bd8edeu,
              0x417b1dbcu, 0x82f63b78u),
    CRC_TABLE(0x13a29877u, 0x274530eeu, 0x4e8a61dcu, 0x9d14c3b8u, 0x3fc5f181u, 0x7f8be302u,
              0xff17c604u, 0xfbc3faf9u),
    CRC_TABLE(0xa541927eu, 0x4f6f520du, 0x9edea41au, 0x38513ec5u, 0x70a27d8au, 0xe144fb14u,
              0xc76580d9u, 0x8b277743u),
    CRC_TABLE(0xdd45aab8u, 0xbf672381u, 0x7b2231f3u, 0xf64463e6u, 0xe964b13du, 0xd725148bu,
              0xaba65fe7u, 0x52a0c93fu),
    CRC_TABLE(0x38116facu, 0x7022df58u, 0xe045beb0u, 0xc5670b91u, 0x8f2261d3u, 0x1ba8b557u,
              0x37516aaeu, 0x6ea2d55cu),
    CRC_TABLE(0xef306b19u, 0xdb8ca0c3u, 0xb2f53777u, 0x6006181fu, 0xc00c303eu, 0x85f4168du,
              0x0e045bebu, 0x1c08b7d6u),
    CRC_TABLE(0x68032cc8u, 0xd0065990u, 0xa5e0c5d1u, 0x4e2dfd53u, 0x9c5bfaa6u, 0x3d5b83bdu,
              0x7ab7077au, 0xf56e0ef4u),
    CRC_TABLE(0x493c7d27u, 0x9278fa4eu, 0x211d826du, 0x423b04dau, 0x847609b4u, 0x0d006599u,
              0x1a00cb32u, 0x34019664u),
};

static const uint32_t crc32_table[8][256] = {
    CRC_TABLE(0x77073096u, 0xee0e612cu, 0x076dc419u, 0x0edb8832u, 0x1db71064u, 0x3b6e20c8u,
              0x76dc4190u, 0xedb88320u),
    CRC_TABLE(0x191b3141u, 0x32366282u, 0x646cc504u, 0xc8d98a08u, 0x4ac21251u, 0x958424a2u,
              0xf0794f05u, 0x3b83984bu),
    CRC_TABLE(0x01c26a37u, 0x0384d46eu, 0x0709a8dcu, 0x0e1351b8u, 0x1c26a370u, 0x384d46e0u,
              0x709a8dc0u, 0xe1351b80u),
    CRC_TABLE(0xb8bc6765u, 0xaa09c88bu, 0x8f629757u, 0xc5b428efu, 0x5019579fu, 0xa032af3eu,
              0x9b14583du, 0xed59b63bu),
    CRC_TABLE(0x3d6029b0u, 0x7ac05360u, 0xf580a6c0u, 0x30704bc1u, 0x60e09782u, 0xc1c12f04u,
              0x58f35849u, 0xb1e6b092u),
    CRC_TABLE(0xcb5cd3a5u, 0x4dc8a10bu, 0x9b914216u, 0xec53826du, 0x03d6029bu, 0x07ac0536u,
              0x0f580a6cu, 0x1eb014d8u),
    CRC_TABLE(0xa6770bb4u, 0x979f1129u, 0xf44f2413u, 0x33ef4e67u, 0x67de9cceu, 0xcfbd399cu,
              0x440b7579u, 0x8816eaf2u),
    CRC_TABLE(0xccaa009eu, 0x4225077du, 0x844a0efau, 0xd3e51bb5u, 0x7cbb312bu, 0xf9766256u,
              0x299dc2edu, 0x533b85dau),
};

static uint32_t crc_by_table(const uint32_t table[8][256], uint32_t crc, const void *bytes,
                             size_t count)
{
    const unsigned char *next = bytes;
    uint32_t state = ~crc;
    for (; count >= 8; count -= 8, next += 8) {
        const uint32_t low = (uint32_t)le_read(next, 4) ^ state;
        const uint32_t high = (uint32_t)le_read(next + 4, 4);
        state = table[7][low & 255u] ^ table[6][low >> 8 & 255u] ^ table[5][low >> 16 & 255u] ^
                table[4][low >> 24] ^ table[3][high & 255u] ^ table[2][high >> 8 & 255u] ^
                table[1][high >> 16 & 255u] ^ table[0][high >> 24];
    }
    for (; count > 0; count--, next++)
        state = table[0][(state ^ *next) & 255u] ^ state >> 8;
    return ~state;
}

uint32_t file_crc32c_portable(uint32_t crc, const void *bytes, size_t count)
{
    return crc_by_table(crc32c_table, crc, bytes, count);
}

uint32_t file_crc32(uint32_t crc, const void *bytes, size_t count)
{
    return crc_by_table(crc32_table, crc, bytes, count);
}

#ifdef HAS_INSTRUCTION
__attribute__((target("sse4.2"))) static uint32_t crc32c_instruction(uint32_t crc,
                                                                     const void *bytes,
                                                                     size_t count)
{
    const unsigned char *next = bytes;
    uint64_t state = ~crc;
    for (; count >= 8; count -= 8, next += 8) {
        uint64_t word;
        memcpy(&word, next, sizeof word);
        state = _mm_crc32_u64(state, word);
    }
    for (; count > 0; count--, next++)
        state = _mm_crc32_u8((uint32_t)state, *next);
    return ~(uint32_t)state;
}
#endif

uint32_t file_crc32c(uint32_t crc, const void *bytes, size_t count)
{
#ifdef HAS_INSTRUCTION
    if (__builtin_cpu_supports("sse4.2"))
        return crc32c_instruction(crc, bytes, count);
#endif
    return file_crc32c_portable(crc, bytes, count);
}
