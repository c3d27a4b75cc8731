/* Reads the directory of a zip archive.
 *
 * The directory at the end is authoritative; a member's local header is read only for its length.
 * All sizes and offsets are untrusted: each is checked against the file before it is used, and sums
 * cannot wrap.  Compressed members are rejected.  Contents are read only to compare their
 * checksums.
 */
#include "io/zip_stored.h"

#include "base/crc32c.h"
#include "base/file.h"
#include "base/size.h"

enum {
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    MEMBER_BYTES = 46,
    LOCAL_BYTES = 30,
    PIECE_BYTES = 16384
};

#define SIGNATURE_END UINT32_C(0x06054b50)
#define SIGNATURE_LOCATOR UINT32_C(0x07064b50)
#define SIGNATURE_END64 UINT32_C(0x06064b50)
#define SIGNATURE_MEMBER UINT32_C(0x02014b50)
#define SIGNATURE_LOCAL UINT32_C(0x04034b50)
#define EXTRA_ZIP64 1u

static uint32_t u16_at(const unsigned char *bytes)
{
    return (uint32_t)le_read(bytes, 2);
}

static uint32_t u32_at(const unsigned char *bytes)
{
    return (uint32_t)le_read(bytes, 4);
}

static enum gt_status damaged(const struct zip *zip, const char *what)
{
    return FAIL(GT_DATA, "%s: zip archive: %s; the file is cut short or damaged", zip->path, what);
}

/* Reads the 64-bit sizes of the Zip64 end record, when those of the end record do not suffice. */
static enum gt_status end64_read(struct zip *zip, uint64_t end_offset)
{
    unsigned char locator[LOCATOR_BYTES], end[END64_BYTES];
    if (end_offset < LOCATOR_BYTES)
        return damaged(zip, "no Zip64 locator");
    TRY(file_read_at(zip->fd, zip->path, end_offset - LOCATOR_BYTES, locator, sizeof locator));
    const uint64_t at = le_read(locator + 8, 8);
    if (u32_at(locator) != SIGNATURE_LOCATOR || at > end_offset ||
        end_offset - at < END64_BYTES + LOCATOR_BYTES)
        return damaged(zip, "no Zip64 end record where the locator says");
    TRY(file_read_at(zip->fd, zip->path, at, end, sizeof end));
    if (u32_at(end) != SIGNATURE_END64)
        return damaged(zip, "no Zip64 end record where the locator says");
    zip->count = le_read(end + 32, 8);
    zip->directory_bytes = le_read(end + 40, 8);
    zip->directory_offset = le_read(end + 48, 8);
    return GT_OK;
}

/* Reads the end record, which ends the file: torch.save() writes no comment after it. */
static enum gt_status end_read(struct zip *zip)
{
    unsigned char end[END_BYTES];
    if (zip->size_bytes < END_BYTES)
        return damaged(zip, "no end record");
    const uint64_t at = zip->size_bytes - END_BYTES;
    TRY(file_read_at(zip->fd, zip->path, at, end, sizeof end));
    if (u32_at(end) != SIGNATURE_END)
        return damaged(zip, "no end record");
    zip->count = u16_at(end + 10);
    zip->directory_bytes = u32_at(end + 12);
    zip->directory_offset = u32_at(end + 16);
    if (zip->count == UINT16_MAX || zip->directory_bytes == UINT32_MAX ||
        zip->directory_offset == UINT32_MAX)
        TRY(end64_read(zip, at));
    if (zip->directory_offset > at || zip->directory_bytes > at - zip->directory_offset)
        return damaged(zip, "the directory lies outside the file");
    if (zip->count <= ZIP_ENTRIES_MAX && zip->directory_bytes <= ZIP_DIRECTORY_BYTES_MAX)
        return GT_OK;
    return FAIL(GT_DATA,
                "%s: zip archive: %" PRIu64 " members in a directory of %" PRIu64
                " bytes; at most %d in %zu are accepted",
                zip->path, zip->count, zip->directory_bytes, ZIP_ENTRIES_MAX,
                ZIP_DIRECTORY_BYTES_MAX);
}

/* Replaces each *wanted[i] that is UINT32_MAX by the next value of the Zip64 field.  Returns false
 * if one is missing. */
static bool extra_parse(const unsigned char *extra, size_t count, uint64_t *const wanted[3])
{
    const unsigned char *field = NULL;
    size_t left = 0;
    for (size_t at = 0; field == NULL && count - at >= 4;) {
        const size_t bytes = u16_at(extra + at + 2);
        if (bytes > count - at - 4)
            return false;
        if (u16_at(extra + at) == EXTRA_ZIP64) {
            field = extra + at + 4;
            left = bytes;
        }
        at += 4 + bytes;
    }
    for (int i = 0; i < 3; i++) {
        if (*wanted[i] != UINT32_MAX)
            continue;
        if (left < 8)
            return false;
        *wanted[i] = le_read(field, 8);
        field += 8;
        left -= 8;
    }
    return true;
}

/* Finds the content of a member, which follows its local header at `at`. */
static enum gt_status content_find(const struct zip *zip, uint64_t at, struct zip_entry *entry)
{
    unsigned char local[LOCAL_BYTES];
    const uint64_t end = zip->directory_offset;
    if (at > end || end - at < LOCAL_BYTES)
        return damaged(zip, "a member lies outside the file");
    TRY(file_read_at(zip->fd, zip->path, at, local, sizeof local));
    const uint64_t skip = LOCAL_BYTES + (uint64_t)u16_at(local + 26) + u16_at(local + 28);
    if (u32_at(local) != SIGNATURE_LOCAL || skip > end - at || entry->size_bytes > end - at - skip)
        return damaged(zip, "a member lies outside the file");
    entry->offset_bytes = at + skip;
    return GT_OK;
}

/* Parses the entry of the directory at *at, and steps to the next one. */
static enum gt_status member_parse(const struct zip *zip, size_t *at, struct zip_entry *entry)
{
    const unsigned char *bytes = zip->directory + *at;
    const size_t left = (size_t)zip->directory_bytes - *at;
    if (left < MEMBER_BYTES || u32_at(bytes) != SIGNATURE_MEMBER)
        return damaged(zip, "the directory ends early");
    const size_t name = u16_at(bytes + 28), extra = u16_at(bytes + 30),
                 comment = u16_at(bytes + 32);
    if (name + extra + comment > left - MEMBER_BYTES)
        return damaged(zip, "the directory ends early");
    uint64_t packed = u32_at(bytes + 20), size = u32_at(bytes + 24), offset = u32_at(bytes + 42);
    uint64_t *const wanted[3] = {&size, &packed, &offset};
    if (!extra_parse(bytes + MEMBER_BYTES + name, extra, wanted))
        return damaged(zip, "a member has no sizes");
    *at += MEMBER_BYTES + name + extra + comment;
    *entry = (struct zip_entry){.name = (const char *)bytes + MEMBER_BYTES,
                                .name_bytes = name,
                                .size_bytes = size,
                                .crc32 = u32_at(bytes + 16)};
    if (u16_at(bytes + 10) == 0 && (u16_at(bytes + 8) & 1u) == 0 && packed == size)
        return content_find(zip, offset, entry);
    return FAIL(
        GT_UNSUPPORTED,
        "%s: zip archive: member %.*s is compressed or encrypted, which torch.save() never does",
        zip->path, (int)size_min(name, 100), entry->name);
}

enum gt_status zip_open(const void *owner, int fd, const char *path, uint64_t size_bytes,
                        struct zip *out)
{
    struct zip zip = {.fd = fd, .path = path, .size_bytes = size_bytes};
    size_t at = 0;
    TRY(end_read(&zip));
    TRY(HOSTMEM_NEW(owner, (size_t)zip.directory_bytes, "zip directory", &zip.directory));
    TRY(HOSTMEM_NEW(owner, (size_t)zip.count, "zip members", &zip.entries));
    TRY(file_read_at(fd, path, zip.directory_offset, zip.directory, (size_t)zip.directory_bytes));
    for (uint64_t i = 0; i < zip.count; i++)
        TRY(member_parse(&zip, &at, &zip.entries[i]));
    *out = zip;
    return GT_OK;
}

struct zip_entry *zip_find(const struct zip *zip, const char *name)
{
    const size_t length = strlen(name);
    for (uint64_t i = 0; i < zip->count; i++)
        if (zip->entries[i].name_bytes == length && memcmp(zip->entries[i].name, name, length) == 0)
            return &zip->entries[i];
    return NULL;
}

enum gt_status zip_verify(const struct zip *zip, struct zip_entry *entry)
{
    char piece[PIECE_BYTES];
    uint32_t crc = 0;
    if (entry->is_verified || entry->crc32 == 0)
        return GT_OK;
    for (uint64_t at = 0; at < entry->size_bytes; at += sizeof piece) {
        const size_t count =
            entry->size_bytes - at < sizeof piece ? (size_t)(entry->size_bytes - at) : sizeof piece;
        TRY(file_read_at(zip->fd, zip->path, entry->offset_bytes + at, piece, count));
        crc = file_crc32(crc, piece, count);
    }
    if (crc != entry->crc32)
        return FAIL(GT_DATA,
                    "%s: member %.*s has checksum %08" PRIx32 ", but the archive says %08" PRIx32
                    "; the file is damaged",
                    zip->path, (int)size_min(entry->name_bytes, 100), entry->name, crc,
                    entry->crc32);
    entry->is_verified = true;
    return GT_OK;
}
