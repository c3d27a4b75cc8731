/* Compressed files and tar archives as a sequence of texts, with libarchive's streaming reader.
 *
 * Each level has its own reader.  The first reads the file; the others read the current member of the level above.
 * Only gzip, bzip2, xz, zstd, tar and "raw" (a single compressed text) are enabled, and only where libarchive
 * implements them itself, because it would start a program for a compression that it was built without.  After the
 * first level ends, the rest of the file is read, so that the checksum covers all of it.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "data/archive_stream.h"

#include <string.h>

#include "base/log.h"

static const char *const endings[] = {".gz", ".xz", ".zst", ".bz2", ".tar", ".tgz", ".txz", ".tzst", ".tbz2", ".tbz"};

size_t archive_name_stem(const char *name)
{
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const size_t ending = strlen(endings[i]);
        if (length > ending && strcmp(name + length - ending, endings[i]) == 0)
            return length - ending;
    }
    return length;
}

bool archive_name_is_packed(const char *name)
{
    return archive_name_stem(name) < strlen(name);
}

#ifndef HAVE_LIBARCHIVE

enum gt_status archive_stream_open(struct hostmem *mem, const char *path, uint32_t crc32c, struct archive_stream **out)
{
    (void)mem;
    (void)crc32c;
    (void)out;
    log_error("%s: this gpt-prepare was built without libarchive and cannot read compressed files or archives; "
              "decompress it, or pipe it in: xz -dc FILE | gpt-prepare -",
              path);
    return GT_UNSUPPORTED;
}

void archive_stream_close(struct archive_stream *stream)
{
    (void)stream;
}

enum gt_status archive_stream_next(struct archive_stream *stream, const char **out_name, bool *out_is_member)
{
    (void)stream;
    (void)out_name;
    (void)out_is_member;
    return GT_UNSUPPORTED;
}

enum gt_status archive_stream_read(struct archive_stream *stream, unsigned char *out, size_t capacity,
                                   size_t *out_count)
{
    (void)stream;
    (void)out;
    (void)capacity;
    (void)out_count;
    return GT_UNSUPPORTED;
}

const char *archive_stream_label(const struct archive_stream *stream)
{
    (void)stream;
    return "";
}

uint64_t archive_stream_file_bytes(const struct archive_stream *stream)
{
    (void)stream;
    return 0;
}

uint32_t archive_stream_file_crc32c(const struct archive_stream *stream)
{
    (void)stream;
    return 0;
}

#else

#include <archive.h>
#include <archive_entry.h>
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"

/* Fuzzing uses a smaller block. */
#ifndef ARCHIVE_BLOCK_BYTES
#define ARCHIVE_BLOCK_BYTES ((size_t)1 << 16)
#endif
#define NAME_BYTES 1024
/* libarchive's error for a name that cannot be converted. */
#ifdef EFTYPE
#define NAME_ERRNO EFTYPE
#else
#define NAME_ERRNO EILSEQ
#endif
#define LABEL_BYTES (FILE_PATH_MAX + (size_t)ARCHIVE_DEPTH_MAX * (NAME_BYTES + 16))

struct archive_level {
    struct archive_stream *stream;
    struct archive *archive;
    uint64_t members; /* seen so far */
    char name[NAME_BYTES];
    unsigned char block[ARCHIVE_BLOCK_BYTES];
};

struct archive_stream {
    struct hostmem *mem; /* borrowed; outlives the stream */
    const char *path;    /* borrowed until close */
    int fd;
    bool ended;
    uint64_t file_bytes;
    uint32_t crc32c;
    enum gt_status file_status; /* of reading the file; already logged */
    struct archive_level levels[ARCHIVE_DEPTH_MAX];
    size_t depth; /* open levels */
    char label[LABEL_BYTES];
};

static enum gt_status level_open(struct archive_stream *stream);

/* ---- opening and closing ---- */

enum gt_status archive_stream_open(struct hostmem *mem, const char *path, uint32_t crc32c, struct archive_stream **out)
{
    void *memory = NULL;
    uint64_t size_bytes = 0;
    TRY(hostmem_alloc(mem, 1, sizeof(struct archive_stream), "reading an archive", &memory));
    struct archive_stream *stream = memory;
    stream->mem = mem;
    stream->path = path;
    stream->fd = -1;
    stream->crc32c = crc32c;
    snprintf(stream->label, sizeof stream->label, "%s", path);
    enum gt_status status = file_open_read(path, &stream->fd, &size_bytes);
    if (status == GT_OK && size_bytes == 0) {
        log_error("%s: the file is empty, neither a compressed file nor an archive", path);
        status = GT_DATA;
    }
    if (status == GT_OK)
        status = level_open(stream);
    if (status == GT_OK)
        *out = stream;
    else
        archive_stream_close(stream);
    return status;
}

void archive_stream_close(struct archive_stream *stream)
{
    if (stream == NULL)
        return;
    while (stream->depth > 0)
        archive_read_free(stream->levels[--stream->depth].archive);
    if (stream->fd >= 0)
        close(stream->fd);
    hostmem_free(stream->mem, stream);
}

const char *archive_stream_label(const struct archive_stream *stream)
{
    return stream->label;
}

uint64_t archive_stream_file_bytes(const struct archive_stream *stream)
{
    return stream->file_bytes;
}

uint32_t archive_stream_file_crc32c(const struct archive_stream *stream)
{
    return stream->crc32c;
}

/* ---- the bytes of a level ---- */

/* Reads the next bytes of the file; *out_count is 0 at its end. */
static enum gt_status stream_pull(struct archive_stream *stream, unsigned char *block, size_t *out_count)
{
    ssize_t got;
    do {
        got = read(stream->fd, block, ARCHIVE_BLOCK_BYTES);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        log_error("%s: cannot read: %s", stream->path, strerror(errno));
        return GT_IO;
    }
    stream->crc32c = file_crc32c(stream->crc32c, block, (size_t)got);
    stream->file_bytes += (uint64_t)got;
    *out_count = (size_t)got;
    return GT_OK;
}

/* libarchive's read callback: level 0 reads the file, the others read the current member of the level above. */
static la_ssize_t level_pull(struct archive *archive, void *context, const void **out_block)
{
    struct archive_level *level = context;
    struct archive_stream *stream = level->stream;
    *out_block = level->block;
    if (level == &stream->levels[0]) {
        size_t count = 0;
        if (stream->file_status == GT_OK) /* libarchive may call again after an error */
            stream->file_status = stream_pull(stream, level->block, &count);
        if (stream->file_status != GT_OK)
            archive_set_error(archive, EIO, "the file cannot be read");
        return stream->file_status == GT_OK ? (la_ssize_t)count : ARCHIVE_FATAL;
    }
    struct archive *above = level[-1].archive;
    const la_ssize_t got = archive_read_data(above, level->block, ARCHIVE_BLOCK_BYTES);
    if (got < 0)
        archive_set_error(archive, archive_errno(above), "%s", archive_error_string(above));
    return got < 0 ? ARCHIVE_FATAL : got;
}

/* Logs libarchive's error in one line, unless reading the file failed, which is already logged. */
static enum gt_status level_refuse(const struct archive_stream *stream, struct archive *archive)
{
    const char *text = archive_error_string(archive);
    if (stream->file_status != GT_OK)
        return stream->file_status;
    log_error("%s: broken archive or compressed file, at byte %llu: %s", stream->label,
              (unsigned long long)stream->file_bytes, text != NULL ? text : "no reason given");
    return archive_errno(archive) == ENOMEM ? GT_NO_MEMORY : GT_DATA;
}

/* Enables the formats and compressions.  Refuses one that libarchive would run an external program for. */
static enum gt_status level_enable(const struct archive_stream *stream, struct archive *archive)
{
    static const struct {
        const char *name;
        int (*enable)(struct archive *archive);
    } parts[] = {{"gzip", archive_read_support_filter_gzip},  {"bzip2", archive_read_support_filter_bzip2},
                 {"xz", archive_read_support_filter_xz},      {"zstd", archive_read_support_filter_zstd},
                 {"tar", archive_read_support_format_tar},    {"raw", archive_read_support_format_raw},
                 {"empty", archive_read_support_format_empty}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].enable(archive) != ARCHIVE_OK) {
            log_error("%s: this system's libarchive was built without %s; decompress it, or pipe it in", stream->label,
                      parts[i].name);
            return GT_UNSUPPORTED;
        }
    return GT_OK;
}

static enum gt_status level_open(struct archive_stream *stream)
{
    assert(stream->depth < ARCHIVE_DEPTH_MAX);
    struct archive_level *level = &stream->levels[stream->depth];
    level->stream = stream;
    level->members = 0;
    level->name[0] = '\0';
    level->archive = archive_read_new();
    if (level->archive == NULL) {
        log_error("%s: out of memory for an archive reader", stream->label);
        return GT_NO_MEMORY;
    }
    stream->depth++; /* from here on, archive_stream_close() releases it */
    TRY(level_enable(stream, level->archive));
    if (archive_read_open(level->archive, level, NULL, level_pull, NULL) != ARCHIVE_OK)
        return level_refuse(stream, level->archive);
    return GT_OK;
}

/* ---- members ---- */

/* Returns false for absolute names and names with a "..", which can only be meant to leave the archive. */
static bool name_is_safe(const char *name)
{
    if (name[0] == '/' || name[0] == '\0')
        return false;
    for (const char *at = name; *at != '\0';) {
        const size_t length = strcspn(at, "/");
        if (length == 2 && memcmp(at, "..", 2) == 0)
            return false;
        at += length + (at[length] == '/');
    }
    return true;
}

/* Returns true when any part of the name begins with a dot, except "." itself. */
static bool name_is_hidden(const char *name)
{
    for (const char *at = name; *at != '\0';) {
        const size_t length = strcspn(at, "/");
        if (length > 1 && at[0] == '.')
            return true;
        at += length + (at[length] == '/');
    }
    return false;
}

/* Sets the label to the path of members, down to the last level's current member if `with_last`. */
static void stream_set_label(struct archive_stream *stream, bool with_last)
{
    size_t used = (size_t)snprintf(stream->label, sizeof stream->label, "%s", stream->path);
    const size_t levels = with_last ? stream->depth : stream->depth - 1;
    for (size_t i = 0; i < levels && used < sizeof stream->label; i++)
        if (stream->levels[i].name[0] != '\0')
            used += (size_t)snprintf(stream->label + used, sizeof stream->label - used, ": member %s",
                                     stream->levels[i].name);
}

/* Stores the name of the member whose header was read.  *out_wanted is true for a regular file with no hidden name. */
static enum gt_status level_take_member(struct archive_stream *stream, struct archive_entry *entry, bool *out_wanted)
{
    struct archive_level *level = &stream->levels[stream->depth - 1];
    const char *name = archive_entry_pathname(entry);
    if (name == NULL)
        name = archive_entry_pathname_utf8(entry);
    level->members++;
    if (name != NULL)
        snprintf(level->name, sizeof level->name, "%s", name);
    else
        snprintf(level->name, sizeof level->name, "number-%llu", (unsigned long long)level->members);
    stream_set_label(stream, true);
    if (!name_is_safe(name != NULL ? name : level->name) || (name != NULL && strlen(name) >= NAME_BYTES)) {
        log_error("%s: the member's name is absolute, has a \"..\" in it, or has %d bytes or more; such an "
                  "archive is refused",
                  stream->label, NAME_BYTES);
        return GT_DATA;
    }
    *out_wanted = archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == NULL &&
                  !name_is_hidden(level->name);
    return GT_OK;
}

/* "x.tar", "x.tar.gz", "x.tgz": the suffixes of compressed archives are the ones that begin with a t. */
static bool name_is_tar(const char *name)
{
    const size_t stem = archive_name_stem(name), ending = strlen(".tar");
    return strncmp(name + stem, ".t", 2) == 0 || (stem > ending && memcmp(name + stem - ending, ".tar", ending) == 0);
}

/* Starts a single compressed text, named after the file or member that contains it, without the suffix.  An archive
 * with a damaged first header looks like one. */
static enum gt_status level_take_raw(struct archive_stream *stream)
{
    struct archive_level *level = &stream->levels[stream->depth - 1];
    const char *holder = stream->depth > 1 ? level[-1].name : stream->path;
    stream_set_label(stream, false);
    if (archive_filter_count(level->archive) <= 1) {
        log_error("%s: is neither compressed nor a tar archive, although its name says so", stream->label);
        return GT_DATA;
    }
    if (name_is_tar(holder)) {
        log_error("%s: holds no tar archive, although its name says so, or its first header is damaged", stream->label);
        return GT_DATA;
    }
    const char *slash = strrchr(holder, '/');
    holder = slash != NULL ? slash + 1 : holder;
    snprintf(level->name, sizeof level->name, "%.*s", (int)archive_name_stem(holder), holder);
    return GT_OK;
}

/* Reads the rest of the file for its checksum.  When libarchive already has all the data it needs, it treats a read
 * error as the end of the file, so file_status is checked first. */
static enum gt_status stream_drain(struct archive_stream *stream)
{
    size_t count = 1;
    TRY(stream->file_status);
    while (count > 0)
        TRY(stream_pull(stream, stream->levels[0].block, &count));
    stream->ended = true;
    return GT_OK;
}

/* Returns true when a member's header is complete.  libarchive warns about a name that the locale cannot represent,
 * which is harmless, but also about an unreadable pax header, which loses a name or a size.  After a header with a
 * wrong checksum it would retry at the next block, which would skip the member. */
static bool header_is_whole(struct archive *archive, int result)
{
    return result == ARCHIVE_OK || (result == ARCHIVE_WARN && archive_errno(archive) == NAME_ERRNO);
}

/* Reads the header of the level's next member; *out_entry is NULL at the end. */
static enum gt_status level_step(struct archive_stream *stream, struct archive_entry **out_entry, bool *out_raw)
{
    struct archive_level *level = &stream->levels[stream->depth - 1];
    struct archive_entry *entry = NULL;
    level->name[0] = '\0';
    stream_set_label(stream, false);
    const int result = archive_read_next_header(level->archive, &entry);
    if (result == ARCHIVE_EOF) {
        *out_entry = NULL;
        return GT_OK;
    }
    if (!header_is_whole(level->archive, result))
        return level_refuse(stream, level->archive);
    *out_raw = archive_format(level->archive) == ARCHIVE_FORMAT_RAW;
    *out_entry = entry;
    return GT_OK;
}

static enum gt_status level_too_deep(const struct archive_stream *stream)
{
    log_error("%s: archives in archives are followed to a depth of %d", stream->label, ARCHIVE_DEPTH_MAX);
    return GT_DATA;
}

enum gt_status archive_stream_next(struct archive_stream *stream, const char **out_name, bool *out_is_member)
{
    while (!stream->ended) {
        struct archive_level *level = &stream->levels[stream->depth - 1];
        struct archive_entry *entry = NULL;
        bool raw = false, wanted = false;
        TRY(level_step(stream, &entry, &raw));
        if (entry == NULL && stream->depth == 1) {
            TRY(stream_drain(stream));
            continue;
        }
        if (entry == NULL) {
            archive_read_free(level->archive);
            stream->depth--;
            continue;
        }
        if (raw) {
            TRY(level_take_raw(stream));
            *out_name = level->name;
            *out_is_member = stream->depth > 1;
            return GT_OK;
        }
        TRY(level_take_member(stream, entry, &wanted));
        if (!wanted)
            continue;
        *out_name = level->name;
        *out_is_member = true;
        if (!archive_name_is_packed(level->name))
            return GT_OK;
        if (stream->depth == ARCHIVE_DEPTH_MAX)
            return level_too_deep(stream);
        TRY(level_open(stream));
    }
    *out_name = NULL;
    return GT_OK;
}

enum gt_status archive_stream_read(struct archive_stream *stream, unsigned char *out, size_t capacity,
                                   size_t *out_count)
{
    assert(!stream->ended && stream->depth > 0);
    struct archive *archive = stream->levels[stream->depth - 1].archive;
    const la_ssize_t got = archive_read_data(archive, out, capacity);
    if (got < 0)
        return level_refuse(stream, archive);
    *out_count = (size_t)got;
    return GT_OK;
}

#endif
