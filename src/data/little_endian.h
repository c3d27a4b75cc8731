/* Numbers in files and checksums, as little-endian bytes on every machine. */
#ifndef GPT_TRAIN_DATA_LITTLE_ENDIAN_H
#define GPT_TRAIN_DATA_LITTLE_ENDIAN_H

#include "base/file.h"

/* Returns the number in bytes[count], count <= 8. */
static inline uint64_t le_read(const unsigned char *bytes, size_t count)
{
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++)
        value |= (uint64_t)bytes[i] << 8 * i;
    return value;
}

/* Writes the low 8 * count bits. */
static inline void le_write(unsigned char *out, uint64_t value, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (unsigned char)(value >> 8 * i & 0xFF);
}

/* Continues a CRC-32C with a number of four bytes. */
static inline uint32_t le_crc32c(uint32_t crc, uint32_t value)
{
    unsigned char bytes[4];
    le_write(bytes, value, sizeof bytes);
    return file_crc32c(crc, bytes, sizeof bytes);
}

#endif
