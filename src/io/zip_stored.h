/* Zip archives with uncompressed members, which torch.save() writes.
 *
 * Source: PKWARE's APPNOTE.TXT 6.3, sections 4.3 and 4.5.3 (Zip64).
 */
#ifndef GPT_TRAIN_IO_ZIP_STORED_H
#define GPT_TRAIN_IO_ZIP_STORED_H

#include "base/hostmem.h"

#define ZIP_DIRECTORY_BYTES_MAX ((size_t)4 << 20)
#define ZIP_ENTRIES_MAX 16384

struct zip_entry {
    const char *name; /* not terminated; owned by the archive */
    size_t name_bytes;
    uint64_t offset_bytes; /* of its content, from the beginning of the file */
    uint64_t size_bytes;
    uint32_t crc32;
    bool is_verified;
};

struct zip {
    int fd;           /* borrowed */
    const char *path; /* borrowed */
    uint64_t size_bytes;
    uint64_t directory_offset, directory_bytes, count;
    unsigned char *directory;
    struct zip_entry *entries; /* [count] */
};

/* Reads the directory of the archive `fd` of `size_bytes` bytes into memory of `owner`.  Checks
 * that every member is inside the file.  Errors: GT_IO, GT_NO_MEMORY; GT_DATA and GT_UNSUPPORTED
 * (compressed or encrypted members) with one line that names file and member. */
enum gt_status zip_open(const void *owner, int fd, const char *path, uint64_t size_bytes,
                        struct zip *out);
/* Returns NULL when there is none. */
struct zip_entry *zip_find(const struct zip *zip, const char *name);
/* Reads a member once and compares its CRC-32 with the directory's.  A stored CRC-32 of 0 is not
 * compared: torch.save() writes it after torch.serialization.set_crc32_options(False).  Errors:
 * GT_IO; GT_DATA, naming file and member. */
enum gt_status zip_verify(const struct zip *zip, struct zip_entry *entry);

#endif
