/* One file of a corpus as a sequence of texts.
 *
 * Plain files and standard input are read with read(2); names with a suffix of compression or tar
 * go through libarchive's streaming reader.  Each level of compression or archive has its own
 * reader.  The first reads the file; the others read the current member of the level above.  Only
 * gzip, bzip2, xz, zstd, tar and "raw" (a single compressed text) are enabled, and only where
 * libarchive implements them itself, because it would start a program for a compression that it was
 * built without.  After the first level ends, the rest of the file is read, so that the checksum
 * covers all of it.  documents.c decides which texts are documents and where each one ends.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "data/input.h"

#include <errno.h>
#include <unistd.h>

#ifdef HAVE_LIBARCHIVE
#include <archive.h>
#include <archive_entry.h>
#endif

#include "base/crc32c.h"
#include "base/file.h"
#include "data/converter.h"

struct packed;

struct input {
    const struct corpus_file *file;
    struct packed *packed;       /* NULL for a plain file */
    struct converter *converter; /* of a Parquet file, or NULL */
    struct input_info info;
    int fd; /* STDIN_FILENO, or owned */
    bool started;
};

/* ---- names ---- */

/* Returns the length of name[count] without the first ending in the list that it has, or `count`.
 * The list ends with NULL. */
static size_t name_without(const char *name, size_t count, const char *const *endings)
{
    for (; *endings != NULL; endings++) {
        const size_t ending = strlen(*endings);
        if (count > ending && memcmp(name + count - ending, *endings, ending) == 0)
            return count - ending;
    }
    return count;
}

size_t input_name_stem(const char *name)
{
    static const char *const endings[] = {".gz",  ".xz",   ".zst",  ".bz2", ".tar", ".tgz",
                                          ".txz", ".tzst", ".tbz2", ".tbz", NULL};
    return name_without(name, strlen(name), endings);
}

bool input_name_is_packed(const char *name)
{
    return input_name_stem(name) < strlen(name);
}

/* The suffixes of compressed archives are the ones that begin with a t. */
bool input_name_is_archive(const char *name)
{
    static const char *const endings[] = {".tar", NULL};
    const size_t stem = input_name_stem(name);
    return strncmp(name + stem, ".t", 2) == 0 || name_without(name, stem, endings) < stem;
}

bool input_name_is_jsonl(const char *name)
{
    static const char *const endings[] = {".jsonl", ".ndjson", NULL};
    const size_t stem = input_name_stem(name);
    return name_without(name, stem, endings) < stem;
}

bool input_name_is_parquet(const char *name)
{
    static const char *const endings[] = {".parquet", NULL};
    return name_without(name, strlen(name), endings) < strlen(name);
}

bool input_name_has_records(const char *name)
{
    static const char *const endings[] = {".jsonl", ".ndjson", ".json", ".csv", ".tsv", NULL};
    /* what the library datasets writes about the data */
    static const char *const about[] = {"dataset_info.json", "dataset_infos.json",
                                        "dataset_dict.json"};
    const size_t stem = input_name_stem(name);
    for (size_t i = 0; i < sizeof about / sizeof about[0]; i++)
        if (strcmp(file_name_of(name), about[i]) == 0)
            return false;
    return name_without(name, stem, endings) < stem;
}

/* ---- the file's bytes ---- */

/* Reads the next bytes of the file; *out_count is 0 at its end. */
static enum gt_status file_pull(struct input *input, unsigned char *out, size_t capacity,
                                size_t *out_count)
{
    ssize_t got;
    do {
        got = read(input->fd, out, capacity);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return file_error(input->file->is_stdin ? "standard input" : input->file->path, "read");
    input->info.crc32c = file_crc32c(input->info.crc32c, out, (size_t)got);
    input->info.file_bytes += (uint64_t)got;
    *out_count = (size_t)got;
    return GT_OK;
}

/* ---- compressed files and archives ---- */

#ifdef HAVE_LIBARCHIVE

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
#define LABEL_BYTES (FILE_PATH_MAX + (size_t)INPUT_DEPTH_MAX * (NAME_BYTES + 16))

struct packed_level {
    struct input *input;
    struct archive *archive;
    uint64_t members; /* seen so far */
    char name[NAME_BYTES];
    unsigned char block[ARCHIVE_BLOCK_BYTES];
};

struct packed {
    enum gt_status file_status; /* of reading the file; already logged */
    bool ended;
    struct packed_level levels[INPUT_DEPTH_MAX];
    size_t depth; /* open levels */
    char label[LABEL_BYTES];
};

static struct packed_level *level_last(const struct input *input)
{
    return &input->packed->levels[input->packed->depth - 1];
}

/* libarchive's read callback: level 0 reads the file, the others read the current member of the
 * level above. */
static la_ssize_t level_pull(struct archive *archive, void *context, const void **out_block)
{
    struct packed_level *level = context;
    struct packed *packed = level->input->packed;
    *out_block = level->block;
    if (level == &packed->levels[0]) {
        size_t count = 0;
        if (packed->file_status == GT_OK) /* libarchive may call again after an error */
            packed->file_status =
                file_pull(level->input, level->block, ARCHIVE_BLOCK_BYTES, &count);
        if (packed->file_status != GT_OK)
            archive_set_error(archive, EIO, "the file cannot be read");
        return packed->file_status == GT_OK ? (la_ssize_t)count : ARCHIVE_FATAL;
    }
    struct archive *above = level[-1].archive;
    const la_ssize_t got = archive_read_data(above, level->block, ARCHIVE_BLOCK_BYTES);
    if (got < 0)
        archive_set_error(archive, archive_errno(above), "%s", archive_error_string(above));
    return got < 0 ? ARCHIVE_FATAL : got;
}

/* Logs libarchive's error in one line, unless reading the file failed, which is already logged. */
static enum gt_status level_refuse(const struct input *input)
{
    struct archive *archive = level_last(input)->archive;
    const char *text = archive_error_string(archive);
    if (input->packed->file_status != GT_OK)
        return input->packed->file_status;
    log_error("%s: broken archive or compressed file, at byte %llu: %s", input->info.label,
              (unsigned long long)input->info.file_bytes, text != NULL ? text : "no reason given");
    return archive_errno(archive) == ENOMEM ? GT_NO_MEMORY : GT_DATA;
}

/* Enables the formats and compressions.  Refuses one that libarchive would run an external program
 * for. */
static enum gt_status level_enable(const struct input *input, struct archive *archive)
{
    static const struct {
        const char *name;
        int (*enable)(struct archive *archive);
    } parts[] = {
        {"gzip", archive_read_support_filter_gzip},  {"bzip2", archive_read_support_filter_bzip2},
        {"xz", archive_read_support_filter_xz},      {"zstd", archive_read_support_filter_zstd},
        {"tar", archive_read_support_format_tar},    {"raw", archive_read_support_format_raw},
        {"empty", archive_read_support_format_empty}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].enable(archive) != ARCHIVE_OK)
            return FAIL(
                GT_UNSUPPORTED,
                "%s: this system's libarchive was built without %s; decompress it, or pipe it in",
                input->info.label, parts[i].name);
    return GT_OK;
}

static enum gt_status level_open(struct input *input)
{
    struct packed *packed = input->packed;
    if (packed->depth == INPUT_DEPTH_MAX)
        return FAIL(GT_DATA, "%s: archives in archives are followed to a depth of %d",
                    input->info.label, INPUT_DEPTH_MAX);
    struct packed_level *level = &packed->levels[packed->depth];
    level->input = input;
    level->members = 0;
    level->name[0] = '\0';
    level->archive = archive_read_new();
    if (level->archive == NULL)
        return FAIL(GT_NO_MEMORY, "%s: out of memory for an archive reader", input->info.label);
    packed->depth++; /* from here on, packed_close() releases it */
    TRY(level_enable(input, level->archive));
    if (archive_read_open(level->archive, level, NULL, level_pull, NULL) != ARCHIVE_OK)
        return level_refuse(input);
    return GT_OK;
}

static enum gt_status packed_open(struct input *input)
{
    uint64_t size_bytes = 0;
    TRY(HOSTMEM_NEW(input, 1, "reading an archive", &input->packed));
    TRY(file_open_read(input->file->path, &input->fd, &size_bytes));
    if (size_bytes > 0)
        return level_open(input);
    return FAIL(GT_DATA, "%s: the file is empty, neither a compressed file nor an archive",
                input->info.label);
}

static void packed_close(struct input *input)
{
    while (input->packed != NULL && input->packed->depth > 0)
        archive_read_free(input->packed->levels[--input->packed->depth].archive);
}

/* Returns false for absolute names and names with a "..", which can only be meant to leave the
 * archive.  *out_hidden is true when any part of the name begins with a dot, except "." itself. */
static bool name_is_safe(const char *name, bool *out_hidden)
{
    bool is_safe = name[0] != '/' && name[0] != '\0';
    *out_hidden = false;
    for (const char *at = name; *at != '\0';) {
        const size_t length = strcspn(at, "/");
        is_safe = is_safe && (length != 2 || memcmp(at, "..", 2) != 0);
        *out_hidden = *out_hidden || (length > 1 && at[0] == '.');
        at += length + (at[length] == '/');
    }
    return is_safe;
}

/* Sets the label to the path of the levels' current members. */
static void label_set(struct input *input)
{
    struct packed *packed = input->packed;
    size_t used = (size_t)snprintf(packed->label, sizeof packed->label, "%s", input->file->path);
    for (size_t i = 0; i < packed->depth && used < sizeof packed->label; i++)
        if (packed->levels[i].name[0] != '\0')
            used += (size_t)snprintf(packed->label + used, sizeof packed->label - used,
                                     ": member %s", packed->levels[i].name);
    input->info.label = packed->label;
}

/* Stores the name of the member whose header was read.  *out_wanted is true for a regular file with
 * no hidden name. */
static enum gt_status level_member_begin(struct input *input, struct archive_entry *entry,
                                         bool *out_wanted)
{
    struct packed_level *level = level_last(input);
    const char *name = archive_entry_pathname(entry);
    bool is_hidden;
    if (name == NULL)
        name = archive_entry_pathname_utf8(entry);
    level->members++;
    if (name != NULL)
        snprintf(level->name, sizeof level->name, "%s", name);
    else
        snprintf(level->name, sizeof level->name, "number-%llu",
                 (unsigned long long)level->members);
    label_set(input);
    if (!name_is_safe(name != NULL ? name : level->name, &is_hidden) ||
        (name != NULL && strlen(name) >= NAME_BYTES))
        return FAIL(
            GT_DATA,
            "%s: the member's name is absolute, has a \"..\" in it, or has %d bytes or more; such an "
            "archive is refused",
            input->info.label, NAME_BYTES);
    *out_wanted = archive_entry_filetype(entry) == AE_IFREG &&
                  archive_entry_hardlink(entry) == NULL && !is_hidden;
    return GT_OK;
}

/* Starts a single compressed text, named after the file or member that contains it, without the
 * suffix.  An archive with a damaged first header looks like one. */
static enum gt_status level_raw_begin(struct input *input)
{
    struct packed_level *level = level_last(input);
    const char *holder = input->packed->depth > 1 ? level[-1].name : input->file->path;
    if (archive_filter_count(level->archive) <= 1)
        return FAIL(GT_DATA,
                    "%s: is neither compressed nor a tar archive, although its name says so",
                    input->info.label);
    if (input_name_is_archive(holder))
        return FAIL(
            GT_DATA,
            "%s: holds no tar archive, although its name says so, or its first header is damaged",
            input->info.label);
    holder = file_name_of(holder);
    snprintf(level->name, sizeof level->name, "%.*s", (int)input_name_stem(holder), holder);
    return GT_OK;
}

/* Reads the rest of the file for its checksum.  When libarchive already has all the data it needs,
 * it treats a read error as the end of the file, so file_status is checked first. */
static enum gt_status packed_drain(struct input *input)
{
    size_t count = 1;
    TRY(input->packed->file_status);
    while (count > 0)
        TRY(file_pull(input, input->packed->levels[0].block, ARCHIVE_BLOCK_BYTES, &count));
    input->packed->ended = true;
    return GT_OK;
}

/* Returns true when a member's header is complete.  libarchive warns about a name that the locale
 * cannot represent, which is harmless, but also about an unreadable pax header, which loses a name
 * or a size.  After a header with a wrong checksum it would retry at the next block, which would
 * skip the member. */
static bool header_is_whole(struct archive *archive, int result)
{
    return result == ARCHIVE_OK || (result == ARCHIVE_WARN && archive_errno(archive) == NAME_ERRNO);
}

/* Reads the level's next entry; *out_found is true when it is a text.  Closes the level at its end.
 */
static enum gt_status level_step(struct input *input, bool *out_found)
{
    struct packed_level *level = level_last(input);
    struct archive_entry *entry = NULL;
    bool wanted = false;
    level->name[0] = '\0';
    label_set(input);
    const int result = archive_read_next_header(level->archive, &entry);
    if (result == ARCHIVE_EOF && input->packed->depth == 1)
        return packed_drain(input);
    if (result == ARCHIVE_EOF) {
        archive_read_free(level->archive);
        input->packed->depth--;
        return GT_OK;
    }
    if (!header_is_whole(level->archive, result))
        return level_refuse(input);
    input->info.name = level->name;
    if (archive_format(level->archive) == ARCHIVE_FORMAT_RAW) {
        input->info.is_member = input->packed->depth > 1;
        *out_found = true;
        return level_raw_begin(input);
    }
    TRY(level_member_begin(input, entry, &wanted));
    input->info.is_member = true;
    *out_found = wanted && !input_name_is_packed(level->name);
    return wanted && !*out_found ? level_open(input) : GT_OK;
}

static enum gt_status packed_next(struct input *input, bool *out_found)
{
    *out_found = false;
    while (!input->packed->ended && !*out_found)
        TRY(level_step(input, out_found));
    return GT_OK;
}

static enum gt_status packed_read(struct input *input, unsigned char *out, size_t capacity,
                                  size_t *out_count)
{
    assert(!input->packed->ended && input->packed->depth > 0);
    const la_ssize_t got = archive_read_data(level_last(input)->archive, out, capacity);
    if (got < 0)
        return level_refuse(input);
    *out_count = (size_t)got;
    return GT_OK;
}

#else

static enum gt_status packed_open(struct input *input)
{
    return FAIL(
        GT_UNSUPPORTED,
        "%s: this gpt-prepare was built without libarchive and cannot read compressed files or archives; "
        "decompress it, or pipe it in: xz -dc FILE | gpt-prepare -",
        input->info.label);
}

/* Never called, because `packed` is NULL. */
#define packed_close(input) ((void)(input))
#define packed_next(input, found) GT_UNSUPPORTED
#define packed_read(input, out, capacity, count) GT_UNSUPPORTED

#endif

/* ---- Parquet ---- */

/* Starts a converter if the file is Parquet. */
static enum gt_status parquet_probe(struct input *input)
{
    unsigned char head[4];
    const ssize_t count = pread(input->fd, head, sizeof head, 0);
    input->info.is_converted = count > 0 && converter_is_parquet(head, (size_t)count);
    return input->info.is_converted ? converter_open(input, input->file->path, &input->converter)
                                    : GT_OK;
}

/* Reads rows, and after the last one the file itself, for the checksum. */
static enum gt_status parquet_read(struct input *input, unsigned char *out, size_t capacity,
                                   size_t *out_count)
{
    size_t count = 1;
    TRY(converter_read(input->converter, out, capacity, out_count));
    while (*out_count == 0 && count > 0)
        TRY(file_pull(input, out, capacity, &count));
    return GT_OK;
}

/* ---- all files ---- */

static enum gt_status input_open_file(struct input *input, const char *stdin_path, bool converts)
{
    const char *path = input->file->is_stdin ? stdin_path : input->file->path;
    uint64_t size_bytes = 0;
    input->fd = STDIN_FILENO;
    if (path == NULL)
        return GT_OK;
    if (!input->file->is_stdin && input_name_is_packed(path))
        return packed_open(input);
    TRY(file_open_read(path, &input->fd, &size_bytes));
    return converts && !input->file->is_stdin ? parquet_probe(input) : GT_OK;
}

static void input_close(void *object)
{
    struct input *input = object;
    packed_close(input);
    if (input->fd != STDIN_FILENO)
        close(input->fd);
}

enum gt_status input_open(const void *owner, const struct corpus_file *file, const char *stdin_path,
                          uint32_t crc32c, bool converts, struct input **out)
{
    struct input *input;
    TRY(HOSTMEM_NEW(owner, 1, "an input", &input));
    hostmem_at_free(input, input_close);
    input->file = file;
    input->info.label = file->is_stdin ? "standard input" : file->path;
    input->info.name = file->path;
    input->info.crc32c = crc32c;
    const enum gt_status status = input_open_file(input, stdin_path, converts);
    return FINISH(status, out, input, hostmem_free);
}

enum gt_status input_next(struct input *input, bool *out_found)
{
    const bool is_first = !input->started;
    input->started = true;
    if (input->packed != NULL)
        return packed_next(input, out_found);
    *out_found = is_first;
    return GT_OK;
}

enum gt_status input_read(struct input *input, unsigned char *out, size_t capacity,
                          size_t *out_count)
{
    assert(input->started && capacity > 0);
    if (input->converter != NULL)
        return parquet_read(input, out, capacity, out_count);
    return input->packed != NULL ? packed_read(input, out, capacity, out_count)
                                 : file_pull(input, out, capacity, out_count);
}

const struct input_info *input_info_get(const struct input *input)
{
    return &input->info;
}
