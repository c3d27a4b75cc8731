/* Reads the directory of a zip archive.
 *
 * The directory at the end is authoritative; a member's local header is read only for its length.  All sizes and
 * offsets are untrusted: each is checked against the file before it is used, sums cannot wrap, and members may not
 * overlap.  Compressed members are rejected.  Contents are read only to compare their checksums.
 */
#include "io/zip_stored.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"

enum {
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    MEMBER_BYTES = 46,
    LOCAL_BYTES = 30,
    COMMENT_BYTES_MAX = 65535,
    PIECE_BYTES = 16384
};

#define SIGNATURE_END UINT32_C(0x06054b50)
#define SIGNATURE_LOCATOR UINT32_C(0x07064b50)
#define SIGNATURE_END64 UINT32_C(0x06064b50)
#define SIGNATURE_MEMBER UINT32_C(0x02014b50)
#define SIGNATURE_LOCAL UINT32_C(0x04034b50)
#define EXTRA_ZIP64 1u

/* The file and the location of its directory. */
struct archive {
    int fd;
    const char *path;
    uint64_t size_bytes;
    uint64_t directory_offset, directory_bytes, count;
};

static uint64_t little_endian(const unsigned char *bytes, size_t count)
{
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static uint32_t u16_at(const unsigned char *bytes)
{
    return (uint32_t)little_endian(bytes, 2);
}

static uint32_t u32_at(const unsigned char *bytes)
{
    return (uint32_t)little_endian(bytes, 4);
}

static enum gt_status damaged(const struct archive *archive, const char *what)
{
    log_error("%s: zip archive: %s; the file is cut short or damaged", archive->path, what);
    return GT_DATA;
}

/* Reads the 64-bit sizes of the Zip64 end record, when those of the end record do not suffice. */
static enum gt_status end64_read(struct archive *archive, uint64_t end_offset)
{
    unsigned char locator[LOCATOR_BYTES], end[END64_BYTES];
    if (end_offset < LOCATOR_BYTES)
        return damaged(archive, "no Zip64 locator");
    TRY(file_read_at(archive->fd, archive->path, end_offset - LOCATOR_BYTES, locator, sizeof locator));
    const uint64_t at = little_endian(locator + 8, 8);
    if (u32_at(locator) != SIGNATURE_LOCATOR || at > end_offset || end_offset - at < END64_BYTES + LOCATOR_BYTES)
        return damaged(archive, "no Zip64 end record where the locator says");
    TRY(file_read_at(archive->fd, archive->path, at, end, sizeof end));
    if (u32_at(end) != SIGNATURE_END64)
        return damaged(archive, "no Zip64 end record where the locator says");
    archive->count = little_endian(end + 32, 8);
    archive->directory_bytes = little_endian(end + 40, 8);
    archive->directory_offset = little_endian(end + 48, 8);
    return GT_OK;
}

/* Parses the end record, whose first byte is at `end_offset`. */
static enum gt_status end_parse(struct archive *archive, const unsigned char *end, uint64_t end_offset)
{
    archive->count = u16_at(end + 10);
    archive->directory_bytes = u32_at(end + 12);
    archive->directory_offset = u32_at(end + 16);
    if (archive->count == UINT16_MAX || archive->directory_bytes == UINT32_MAX ||
        archive->directory_offset == UINT32_MAX)
        TRY(end64_read(archive, end_offset));
    if (archive->directory_offset > end_offset || archive->directory_bytes > end_offset - archive->directory_offset)
        return damaged(archive, "the directory lies outside the file");
    if (archive->count <= ZIP_ENTRIES_MAX && archive->directory_bytes <= ZIP_DIRECTORY_BYTES_MAX)
        return GT_OK;
    log_error("%s: zip archive: %" PRIu64 " members in a directory of %" PRIu64
              " bytes; at most %d in %zu are accepted",
              archive->path, archive->count, archive->directory_bytes, ZIP_ENTRIES_MAX, ZIP_DIRECTORY_BYTES_MAX);
    return GT_DATA;
}

/* Finds the end record: the last position with its signature and a comment that reaches the end of the file. */
static enum gt_status end_find(struct hostmem *mem, struct archive *archive)
{
    const size_t most = END_BYTES + COMMENT_BYTES_MAX;
    const size_t count = archive->size_bytes < most ? (size_t)archive->size_bytes : most;
    unsigned char *tail;
    if (count < END_BYTES)
        return damaged(archive, "no end record");
    TRY(HOSTMEM_NEW(mem, count, "end of a zip archive", &tail));
    const uint64_t first = archive->size_bytes - count;
    enum gt_status status = file_read_at(archive->fd, archive->path, first, tail, count);
    size_t at = count - END_BYTES;
    while (at > 0 && (u32_at(tail + at) != SIGNATURE_END || u16_at(tail + at + 20) != count - at - END_BYTES))
        at--;
    if (status == GT_OK && (u32_at(tail + at) != SIGNATURE_END || u16_at(tail + at + 20) != count - at - END_BYTES))
        status = damaged(archive, "no end record");
    else if (status == GT_OK)
        status = end_parse(archive, tail + at, first + at);
    hostmem_free(mem, tail);
    return status;
}

/* Replaces each *wanted[i] that is UINT32_MAX by the next value of the Zip64 field.  Returns false if one is
 * missing. */
static bool extra_parse(const unsigned char *extra, size_t count, uint64_t *const wanted[3])
{
    size_t at = 0;
    while (count - at >= 4) {
        const uint32_t kind = u16_at(extra + at), bytes = u16_at(extra + at + 2);
        at += 4;
        if (bytes > count - at)
            return false;
        if (kind == EXTRA_ZIP64) {
            uint32_t used = 0;
            for (int i = 0; i < 3; i++) {
                if (*wanted[i] != UINT32_MAX)
                    continue;
                if (bytes - used < 8)
                    return false;
                *wanted[i] = little_endian(extra + at + used, 8);
                used += 8;
            }
            return true;
        }
        at += bytes;
    }
    return *wanted[0] != UINT32_MAX && *wanted[1] != UINT32_MAX && *wanted[2] != UINT32_MAX;
}

/* Parses the entry of the directory at `at`, where `left` bytes remain; *used is its length. */
static enum gt_status member_parse(const struct archive *archive, const unsigned char *at, size_t left,
                                   struct zip_entry *entry, size_t *used)
{
    if (left < MEMBER_BYTES || u32_at(at) != SIGNATURE_MEMBER)
        return damaged(archive, "the directory ends early");
    const size_t name = u16_at(at + 28), extra = u16_at(at + 30), comment = u16_at(at + 32);
    if (name + extra + comment > left - MEMBER_BYTES)
        return damaged(archive, "the directory ends early");
    uint64_t packed = u32_at(at + 20), size = u32_at(at + 24), offset = u32_at(at + 42);
    uint64_t *const wanted[3] = {&size, &packed, &offset};
    if (!extra_parse(at + MEMBER_BYTES + name, extra, wanted))
        return damaged(archive, "a member has no sizes");
    *entry = (struct zip_entry){.name = (const char *)at + MEMBER_BYTES,
                                .name_bytes = name,
                                .header_bytes = offset,
                                .size_bytes = size,
                                .crc32 = u32_at(at + 16)};
    *used = MEMBER_BYTES + name + extra + comment;
    if (u16_at(at + 10) == 0 && (u16_at(at + 8) & 1u) == 0 && packed == size)
        return GT_OK;
    log_error("%s: zip archive: member %.*s is compressed or encrypted, which torch.save() never does", archive->path,
              (int)(name < 100 ? name : 100), entry->name);
    return GT_UNSUPPORTED;
}

/* Finds the content of a member, which follows its local header. */
static enum gt_status content_find(const struct archive *archive, struct zip_entry *entry)
{
    unsigned char local[LOCAL_BYTES];
    const uint64_t end = archive->directory_offset;
    if (entry->header_bytes > end || end - entry->header_bytes < LOCAL_BYTES)
        return damaged(archive, "a member lies outside the file");
    TRY(file_read_at(archive->fd, archive->path, entry->header_bytes, local, sizeof local));
    const uint64_t skip = LOCAL_BYTES + (uint64_t)u16_at(local + 26) + u16_at(local + 28);
    if (u32_at(local) != SIGNATURE_LOCAL || skip > end - entry->header_bytes ||
        entry->size_bytes > end - entry->header_bytes - skip)
        return damaged(archive, "a member lies outside the file");
    entry->offset_bytes = entry->header_bytes + skip;
    return GT_OK;
}

static int by_place(const void *left, const void *right)
{
    const struct zip_entry *a = left, *b = right;
    return a->header_bytes < b->header_bytes ? -1 : a->header_bytes > b->header_bytes;
}

static int names_compare(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    const int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return order != 0 ? order : a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

static int by_name(const void *left, const void *right)
{
    const struct zip_entry *a = left, *b = right;
    return names_compare(a->name, a->name_bytes, b->name, b->name_bytes);
}

/* Checks that no two members share bytes or a name.  Sorts by name. */
static enum gt_status members_compare(const struct archive *archive, struct zip *zip)
{
    if (zip->count == 0)
        return GT_OK;
    qsort(zip->entries, zip->count, sizeof zip->entries[0], by_place);
    for (size_t i = 1; i < zip->count; i++) {
        if (zip->entries[i].header_bytes < zip->entries[i - 1].offset_bytes + zip->entries[i - 1].size_bytes)
            return damaged(archive, "two members share bytes");
    }
    qsort(zip->entries, zip->count, sizeof zip->entries[0], by_name);
    for (size_t i = 1; i < zip->count; i++) {
        if (by_name(&zip->entries[i - 1], &zip->entries[i]) == 0)
            return damaged(archive, "two members have the same name");
    }
    return GT_OK;
}

static enum gt_status members_read(const struct archive *archive, struct zip *zip)
{
    size_t at = 0;
    for (uint64_t i = 0; i < archive->count; i++) {
        size_t used;
        struct zip_entry *entry = &zip->entries[zip->count];
        TRY(member_parse(archive, zip->directory + at, (size_t)archive->directory_bytes - at, entry, &used));
        TRY(content_find(archive, entry));
        at += used;
        zip->count++;
    }
    return members_compare(archive, zip);
}

enum gt_status zip_open(struct hostmem *mem, int fd, const char *path, uint64_t size_bytes, struct zip *out)
{
    struct archive archive = {.fd = fd, .path = path, .size_bytes = size_bytes};
    struct zip zip = {.mem = mem};
    enum gt_status status;
    TRY(end_find(mem, &archive));
    TRY_GOTO(status, fail, HOSTMEM_NEW(mem, (size_t)archive.directory_bytes, "zip directory", &zip.directory));
    TRY_GOTO(status, fail, HOSTMEM_NEW(mem, (size_t)archive.count, "zip members", &zip.entries));
    TRY_GOTO(status, fail,
             file_read_at(fd, path, archive.directory_offset, zip.directory, (size_t)archive.directory_bytes));
    TRY_GOTO(status, fail, members_read(&archive, &zip));
    *out = zip;
    return GT_OK;
fail:
    zip_close(&zip);
    return status;
}

void zip_close(struct zip *zip)
{
    if (zip->mem == NULL)
        return;
    hostmem_free(zip->mem, zip->entries);
    hostmem_free(zip->mem, zip->directory);
    *zip = (struct zip){0};
}

const struct zip_entry *zip_find(const struct zip *zip, const char *name, size_t name_bytes)
{
    size_t low = 0, high = zip->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct zip_entry *entry = &zip->entries[middle];
        const int order = names_compare(entry->name, entry->name_bytes, name, name_bytes);
        if (order == 0)
            return entry;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

enum gt_status zip_verify(const struct zip *zip, int fd, const char *path, const struct zip_entry *entry)
{
    char piece[PIECE_BYTES];
    uint32_t crc = 0;
    if (entry->is_verified || entry->crc32 == 0)
        return GT_OK;
    for (uint64_t at = 0; at < entry->size_bytes; at += sizeof piece) {
        const uint64_t left = entry->size_bytes - at;
        const size_t count = left < sizeof piece ? (size_t)left : sizeof piece;
        TRY(file_read_at(fd, path, entry->offset_bytes + at, piece, count));
        crc = file_crc32(crc, piece, count);
    }
    if (crc != entry->crc32) {
        log_error("%s: member %.*s has checksum %08" PRIx32 ", but the archive says %08" PRIx32 "; the file is damaged",
                  path, (int)(entry->name_bytes < 100 ? entry->name_bytes : 100), entry->name, crc, entry->crc32);
        return GT_DATA;
    }
    zip->entries[entry - zip->entries].is_verified = true;
    return GT_OK;
}
