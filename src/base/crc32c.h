/* Checksums of files' bytes. */
#ifndef GPT_TRAIN_BASE_CRC32C_H
#define GPT_TRAIN_BASE_CRC32C_H

#include "base/size.h"
#include "base/status.h"

/* CRC-32C (Castagnoli) of `count` bytes, continued from `crc` (0 to start). */
uint32_t file_crc32c(uint32_t crc, const void *bytes, size_t count);
/* The same without the processor's CRC instruction. */
uint32_t file_crc32c_portable(uint32_t crc, const void *bytes, size_t count);
/* CRC-32 (IEEE 802.3) as in zip archives, with the same arguments. */
uint32_t file_crc32(uint32_t crc, const void *bytes, size_t count);

/* Continues a CRC-32C with a number of four bytes. */
static inline uint32_t le_crc32c(uint32_t crc, uint32_t value)
{
    return file_crc32c(crc, &value, sizeof value);
}

#endif
