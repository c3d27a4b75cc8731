/* Token files: finds, validates and reads the shards of a split.
 *
 * Opening lists the files, reads each header once and checks it against the size of its file;
 * positions are then a prefix sum over shards.  Reading goes through a fixed staging buffer of
 * bytes and is byte-order independent.  At most TOKEN_FILES_OPEN_MAX files are open at a time: the
 * oldest is closed for a new one, so that a thousand shards do not hit the limit on descriptors.
 * The sampler chooses the positions that a step reads.
 */
#include "data/tokens.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/json.h"
#include "base/size.h"

/* Fuzzing uses a smaller buffer. */
#ifndef STAGING_BYTES
#define STAGING_BYTES 65536
#endif
#define SAMPLE_PIECES 16
#define SAMPLE_PIECE_BYTES 256
#define DIGEST_PIECES 16
#define DIGEST_PIECE 1024 /* ids */

const char *token_split_name(enum token_split split)
{
    return split == TOKEN_TRAIN ? "train" : "val";
}

/* ---- listing ---- */

static enum gt_status source_add_path(struct token_source *source, const char *path)
{
    TRY(HOSTMEM_GROW(source, &source->shards, source->shard_count + 1, "token shards"));
    struct token_shard *shard = &source->shards[source->shard_count];
    TRY(hostmem_strdup(source, path, &shard->path));
    shard->fd = -1;
    source->shard_count++;
    return GT_OK;
}

/* Matches "train.bin", "train_01.bin", "train-a.bin", "train7.bin", "NAME_train.bin",
 * "NAME_train_000001.bin", or the same with another ending. */
static bool shard_name_matches(const char *name, const char *split, const char *ending)
{
    const size_t length = strlen(name), split_length = strlen(split);
    if (name[0] == '.' || length < 4 || strcmp(name + length - 4, ending) != 0)
        return false;
    if (strncmp(name, split, split_length) == 0)
        return true;
    for (const char *at = strchr(name, '_'); at != NULL; at = strchr(at + 1, '_')) {
        const bool same = strncmp(at + 1, split, split_length) == 0;
        if (same && (at[1 + split_length] == '_' || at[1 + split_length] == '.'))
            return true;
    }
    return false;
}

static int shard_compare(const void *a, const void *b)
{
    return strcmp(((const struct token_shard *)a)->path, ((const struct token_shard *)b)->path);
}

/* Counts the matching files of a folder, and adds them to `source` unless that is NULL. */
static enum gt_status source_scan_ending(struct token_source *source, const char *folder,
                                         const char *split, const char *ending, size_t *out_count)
{
    DIR *dir = NULL;
    enum gt_status status = GT_OK;
    *out_count = 0;
    for (const char *name; (name = file_next(folder, &dir, &status)) != NULL;) {
        if (!shard_name_matches(name, split, ending))
            continue;
        ++*out_count;
        if (source != NULL)
            status = source_add_path(source, FILE_IN(folder, name));
    }
    return status;
}

/* NumPy's files count only if there are no others. */
static enum gt_status source_scan_folder(struct token_source *source, const char *folder,
                                         const char *split, size_t *out_count)
{
    TRY(source_scan_ending(source, folder, split, ".bin", out_count));
    return *out_count > 0 ? GT_OK : source_scan_ending(source, folder, split, ".npy", out_count);
}

/* Sets `out` to the name of a file of the folder that may have tokens, or to "". */
static enum gt_status other_file_find(const char *folder, char out[static FILE_PATH_MAX])
{
    static const char *const endings[] = {".bin", ".npy", ".npz", ".arrow", ".parquet"};
    DIR *dir = NULL;
    enum gt_status status = GT_OK;
    out[0] = '\0';
    for (const char *name; (name = file_next(folder, &dir, &status)) != NULL;)
        for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
            const char *at = strrchr(name, '.');
            if (at != NULL && strcmp(at, endings[i]) == 0 &&
                (out[0] == '\0' || strcmp(name, out) < 0))
                (void)snprintf(out, FILE_PATH_MAX, "%s", name);
        }
    return status;
}

/* Logs why a folder cannot be opened, and where a relative name was looked for. */
static enum gt_status folder_refuse(const char *folder, int error)
{
    char here[FILE_PATH_MAX], quoted[FILE_PATH_MAX];
    const bool relative = folder[0] != '/' && getcwd(here, sizeof here) != NULL;
    file_shell_quote(quoted, sizeof quoted, folder);
    return FAIL(GT_DATA,
                ERROR_NO_DATA
                "%s: cannot open this dataset folder%s%s: %s; gpt-prepare --out-dir=%s INPUT makes "
                "it, and --dataset=PATH names one elsewhere",
                folder, relative ? " in " : "", relative ? here : "", strerror(error), quoted);
}

static enum gt_status source_list_folder(struct token_source *source, const char *folder,
                                         enum token_split split)
{
    const char *name = token_split_name(split);
    const char *single = FILE_IN(folder, TEXT(16, "%s.bin", name));
    TRY(prepared_folder_check(folder));
    bool exists;
    TRY(file_stat_exists(single, &exists));
    if (exists)
        return source_add_path(source, single);
    if (access(folder, R_OK | X_OK) != 0)
        return folder_refuse(folder, errno);
    size_t count;
    TRY(source_scan_folder(source, folder, name, &count));
    if (count == 0) {
        char other[FILE_PATH_MAX];
        TRY(other_file_find(folder, other));
        return FAIL(GT_DATA,
                    ERROR_NO_DATA
                    "%s: no %s tokens in this folder (looked for %s.bin, %s*.bin, *_%s*.bin and "
                    "such .npy); %sgpt-prepare --out-dir=%s INPUT makes them",
                    folder, name, name, name, name,
                    other[0] == '\0'
                        ? ""
                        : TEXT(FILE_PATH_MAX + 64, "if %s has token ids, name it %s%s; ", other,
                               name, strcmp(strrchr(other, '.'), ".npy") == 0 ? ".npy" : ".bin"),
                    folder);
    }
    qsort(source->shards, source->shard_count, sizeof source->shards[0], shard_compare);
    return GT_OK;
}

enum gt_status token_split_exists(const char *folder, enum token_split split, bool *out)
{
    size_t count = 0;
    bool exists;
    TRY(file_stat_exists(folder, &exists));
    if (exists)
        TRY(source_scan_folder(NULL, folder, token_split_name(split), &count));
    *out = count > 0;
    return GT_OK;
}

/* ---- headers ---- */

/* Opens the shard's file if it is closed; closes the oldest one when too many are open.  The size
 * of a file that was open before must be the same. */
static enum gt_status shard_ensure_open(struct token_source *source, size_t index)
{
    struct token_shard *shard = &source->shards[index];
    const uint64_t size_bytes = shard->size_bytes;
    if (shard->fd >= 0)
        return GT_OK;
    TRY(file_open_read(shard->path, &shard->fd, &shard->size_bytes));
    if (source->open_count == TOKEN_FILES_OPEN_MAX) {
        struct token_shard *oldest = &source->shards[source->open_ring[source->open_next]];
        assert(oldest->fd >= 0 && oldest != shard);
        close(oldest->fd);
        oldest->fd = -1;
    } else {
        source->open_count++;
    }
    source->open_ring[source->open_next] = index;
    source->open_next = (source->open_next + 1) % TOKEN_FILES_OPEN_MAX;
    if (size_bytes == 0 || size_bytes == shard->size_bytes)
        return GT_OK;
    return FAIL(GT_DATA,
                "%s: the file had %" PRIu64 " bytes when it was opened and has %" PRIu64 " now",
                shard->path, size_bytes, shard->size_bytes);
}

/* Returns the kind of an llm.c file that is not a token file, for the message. */
static const char *llmc_kind_of(uint32_t magic)
{
    static const struct {
        uint32_t magic;
        const char *kind;
    } kinds[] = {{20240326, "model"},
                 {20240328, "tokenizer"},
                 {20240522, "multiple-choice evaluation"},
                 {20240527, "optimizer state"}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].magic == magic)
            return kinds[i].kind;
    return NULL;
}

static enum gt_status shard_read_header(struct token_shard *shard, const unsigned char *header)
{
    const uint32_t magic = (uint32_t)le_read(header, 4), version = (uint32_t)le_read(header + 4, 4);
    const uint32_t count = (uint32_t)le_read(header + 8, 4);
    const uint32_t expected =
        magic == TOKEN_SHARD_MAGIC_U16 ? TOKEN_SHARD_VERSION_U16 : TOKEN_SHARD_VERSION_U32;
    if (version != expected)
        return FAIL(GT_DATA,
                    "%s: header[1] (version) is %" PRIu32 "; magic %" PRIu32
                    " goes with version %" PRIu32,
                    shard->path, version, magic, expected);
    if (count == 0 || count > INT32_MAX)
        return FAIL(GT_DATA, "%s: header[2] (token count) is %" PRId64 "; it must be positive",
                    shard->path, (int64_t)(int32_t)count);
    shard->width_bytes = magic == TOKEN_SHARD_MAGIC_U16 ? 2 : 4;
    shard->data_offset = TOKEN_SHARD_HEADER_BYTES;
    shard->length = (int64_t)count;
    const uint64_t need = TOKEN_SHARD_HEADER_BYTES + (uint64_t)count * shard->width_bytes;
    if (shard->size_bytes != need)
        return FAIL(GT_DATA,
                    "%s: header[2] says %" PRIu32
                    " tokens of %zu bytes, which makes a file of %" PRIu64
                    " bytes; it has %" PRIu64,
                    shard->path, count, shard->width_bytes, need, shard->size_bytes);
    return GT_OK;
}

/* Sets width, offset and length from a header of another program. */
static enum gt_status shard_lay_out(struct token_shard *shard, const struct token_layout *layout)
{
    const uint64_t most = (uint64_t)INT64_MAX / 8,
                   count = layout->count < most ? layout->count : most;
    const uint64_t need = layout->offset_bytes + count * layout->width_bytes;
    if (count == 0 || shard->size_bytes != need)
        return FAIL(GT_DATA,
                    "%s: %s whose header says %" PRIu64 " ids of %zu bytes, from byte %" PRIu64
                    " on, has %" PRIu64 " bytes; this file has %" PRIu64,
                    shard->path, layout->format, layout->count, layout->width_bytes,
                    layout->offset_bytes, need, shard->size_bytes);
    shard->width_bytes = layout->width_bytes;
    shard->data_offset = layout->offset_bytes;
    shard->length = (int64_t)count;
    return GT_OK;
}

/* Sets *out_listed to whether the manifest in the file's folder lists the file with this size. */
static enum gt_status manifest_lists(const struct token_shard *shard, bool *out_listed)
{
    char folder[FILE_PATH_MAX];
    json_t *root = NULL;
    file_folder_of(folder, shard->path);
    const char *path = FILE_IN(folder, PREPARE_MANIFEST_NAME);
    *out_listed = false;
    bool exists;
    TRY(file_stat_exists(path, &exists));
    if (!exists)
        return GT_OK;
    TRY(json_parse_file(path, PREPARE_MANIFEST_BYTES_MAX, &root));
    for (int split = TOKEN_TRAIN; split <= TOKEN_VAL; split++) {
        const json_t *files = json_object_get(
            json_object_get(root, token_split_name((enum token_split)split)), "files");
        for (size_t i = 0; i < json_array_size(files); i++) {
            const json_t *file = json_array_get(files, i);
            const char *name = json_string_value(json_object_get(file, "file"));
            *out_listed |= name != NULL && strcmp(name, file_name_of(shard->path)) == 0 &&
                           json_integer_value(json_object_get(file, "size_bytes")) ==
                               (json_int_t)shard->size_bytes;
        }
    }
    json_decref(root);
    return GT_OK;
}

/* Finds out whether a file without a header, which begins with head[count], has something other
 * than 16-bit ids.  Reads more of the file only if the head leaves that possible. */
static enum gt_status shard_find_kind(const struct token_shard *shard, const unsigned char *head,
                                      size_t count, const struct token_kind **out)
{
    unsigned char sample[TOKEN_KIND_HEAD_BYTES + SAMPLE_PIECES * SAMPLE_PIECE_BYTES];
    size_t size = count / 8 * 8;
    *out = token_kind_of_head(head, count, shard->size_bytes);
    if (*out != NULL || token_kind_of_numbers(head, size, false) == NULL)
        return GT_OK;
    memcpy(sample, head, size);
    const uint64_t rest = (shard->size_bytes - count) / SAMPLE_PIECES / 8 * 8;
    for (uint64_t i = 0; i < SAMPLE_PIECES && rest >= SAMPLE_PIECE_BYTES; i++) {
        TRY(file_read_at(shard->fd, shard->path, size + i * rest,
                         sample + size + i * SAMPLE_PIECE_BYTES, SAMPLE_PIECE_BYTES));
    }
    size += rest >= SAMPLE_PIECE_BYTES ? (size_t)SAMPLE_PIECES * SAMPLE_PIECE_BYTES : 0;
    *out = token_kind_of_numbers(sample, size, true);
    return GT_OK;
}

static bool is_zero(const unsigned char *bytes, size_t count)
{
    while (count > 0 && bytes[count - 1] == 0)
        count--;
    return count == 0;
}

/* Warns of a file whose end is zeros, and refuses one that begins with as many: np.memmap() makes
 * a file of zeros, and a program that was stopped leaves the rest of them. */
static enum gt_status shard_check_filled(const struct token_shard *shard, const unsigned char *head,
                                         size_t count)
{
    unsigned char tail[TOKEN_KIND_HEAD_BYTES];
    if (shard->size_bytes < 2 * sizeof tail)
        return GT_OK;
    TRY(file_read_at(shard->fd, shard->path, shard->size_bytes - sizeof tail, tail, sizeof tail));
    if (!is_zero(tail, sizeof tail))
        return GT_OK;
    if (is_zero(head, count))
        return FAIL(GT_DATA,
                    "%s: its ids are 0 at the beginning and at the end: the program that "
                    "made the file did not fill it; make it again",
                    shard->path);
    log_warning("%s: the last %zu ids or more are 0, as if the program that made the file had been "
                "stopped; the model learns them",
                shard->path, sizeof tail / 2);
    return GT_OK;
}

/* Sets width, offset and length of a file without a header, if it has 16-bit ids. */
static enum gt_status shard_read_narrow(struct token_shard *shard, const unsigned char *head,
                                        size_t count)
{
    const struct token_kind *kind = NULL;
    bool listed = false;
    TRY(shard_find_kind(shard, head, count, &kind));
    if (kind != NULL)
        TRY(manifest_lists(shard, &listed));
    if (kind != NULL && !listed)
        return token_kind_refuse(kind, shard->path);
    if (shard->size_bytes % 2 != 0)
        return FAIL(GT_DATA,
                    "%s: a file of 16-bit tokens has an even size; this one has %" PRIu64 " bytes",
                    shard->path, shard->size_bytes);
    TRY(shard_check_filled(shard, head, count));
    shard->width_bytes = 2;
    shard->data_offset = 0;
    shard->length = (int64_t)(shard->size_bytes / 2);
    return GT_OK;
}

/* Sets width, offset and length from the first bytes and the size of the open file. */
static enum gt_status shard_recognise(struct token_shard *shard)
{
    unsigned char head[TOKEN_KIND_HEAD_BYTES] = {0};
    struct token_layout layout;
    if (shard->size_bytes == 0)
        return FAIL(GT_DATA, "%s: the file is empty", shard->path);
    const size_t available =
        shard->size_bytes < sizeof head ? (size_t)shard->size_bytes : sizeof head;
    TRY(file_read_at(shard->fd, shard->path, 0, head, available));
    const uint32_t magic = (uint32_t)le_read(head, 4);
    if (magic == TOKEN_SHARD_MAGIC_U16 || magic == TOKEN_SHARD_MAGIC_U32) {
        if (shard->size_bytes >= TOKEN_SHARD_HEADER_BYTES)
            return shard_read_header(shard, head);
        return FAIL(GT_DATA,
                    "%s: an llm.c token file has a header of %d bytes; this file has %" PRIu64,
                    shard->path, TOKEN_SHARD_HEADER_BYTES, shard->size_bytes);
    }
    if (llmc_kind_of(magic) != NULL)
        return FAIL(GT_DATA, "%s: magic %" PRIu32 " marks an llm.c %s file, not tokens",
                    shard->path, magic, llmc_kind_of(magic));
    if (token_layout_find(head, available, &layout))
        return shard_lay_out(shard, &layout);
    return shard_read_narrow(shard, head, available);
}

/* Checks that at least one shard is long enough for a sample; warns about the others. */
static enum gt_status source_check_lengths(const struct token_source *source, int64_t block_size)
{
    int64_t longest = 0;
    for (size_t i = 0; i < source->shard_count; i++)
        longest = max_i64(longest, source->shards[i].length);
    if (longest <= block_size)
        return FAIL(GT_DATA,
                    "%s: %" PRId64 " tokens%s are fewer than block_size + 1 = %" PRId64 "%s",
                    source->shards[0].path, longest,
                    source->shard_count > 1 ? " in the longest shard" : "", block_size + 1,
                    longest > 1 ? TEXT(64, "; --block_size=%" PRId64 " is the largest that fits",
                                       longest - 1)
                                : "");
    for (size_t i = 0; i < source->shard_count && block_size > 0; i++)
        if (source->shards[i].length <= block_size)
            log_warning("%s: %" PRId64 " tokens are fewer than block_size + 1 = %" PRId64
                        "; this shard is not used",
                        source->shards[i].path, source->shards[i].length, block_size + 1);
    return GT_OK;
}

/* Reads NAME.mask in the folder of NAME.bin, if it exists. */
static enum gt_status mask_read(struct token_source *source, struct token_shard *shard)
{
    const char *ending = strrchr(shard->path, '.');
    const int stem = (int)(ending != NULL ? ending - shard->path : 0);
    const char *path = TEXT(FILE_PATH_MAX, "%.*s.mask", stem, shard->path);
    const size_t bytes = (size_t)(shard->length + 7) / 8;
    size_t count = 0;
    bool exists;
    TRY(file_stat_exists(path, &exists));
    if (!exists)
        return GT_OK;
    TRY(file_read_all(path, SIZE_MAX / 2, &shard->mask, &count));
    const unsigned char *header = (const unsigned char *)shard->mask;
    const bool is_mask =
        count == TOKEN_MASK_HEADER_BYTES + bytes && le_read(header, 8) == TOKEN_MASK_MAGIC;
    source->row = is_mask ? (int64_t)(le_read(header + 8, 8) & INT32_MAX) : 0;
    if (source->row <= 0 || shard->length % source->row != 1 || source->shard_count != 1)
        return FAIL(GT_DATA, "%s: not a mask of %s; run gpt-prepare again", path, shard->path);
    int64_t at = 1; /* the first token is not a target */
    while (at < shard->length && token_source_mask(source, at, 1, NULL) == 0)
        at++;
    if (at < shard->length)
        return GT_OK;
    return FAIL(
        GT_DATA,
        "%s: no token of %s counts, so nothing can be learned or measured; run gpt-prepare again with a "
        "--block-size above %" PRId64 ", so that answers fit into the rows",
        path, shard->path, source->row);
}

static enum gt_status source_open_shards(struct token_source *source,
                                         const struct token_source_spec *spec)
{
    for (size_t i = 0; i < source->shard_count; i++) {
        struct token_shard *shard = &source->shards[i];
        TRY(shard_ensure_open(source, i));
        TRY(shard_recognise(shard));
        TRY(mask_read(source, shard));
        if (shard->length > INT64_MAX - source->length)
            return FAIL(GT_DATA, "%s: all shards together have more than %" PRId64 " tokens",
                        shard->path, INT64_MAX);
        shard->first = source->length;
        source->length += shard->length;
    }
    return source_check_lengths(source, spec->block_size);
}

/* ---- opening ---- */

static enum gt_status source_fill(struct token_source *source, const struct token_source_spec *spec)
{
    TRY(HOSTMEM_NEW(source, STAGING_BYTES, "token staging", &source->staging));
    if (spec->path_count == 0)
        TRY(source_list_folder(source, spec->folder, spec->split));
    for (size_t i = 0; i < spec->path_count; i++)
        TRY(source_add_path(source, spec->paths[i]));
    return source_open_shards(source, spec);
}

static void source_close(void *object)
{
    struct token_source *source = object;
    for (size_t i = 0; i < source->shard_count; i++) {
        if (source->shards[i].fd >= 0)
            close(source->shards[i].fd);
        free(source->shards[i].mask);
    }
}

enum gt_status token_source_open(const void *owner, const struct token_source_spec *spec,
                                 struct token_source **out)
{
    assert(spec->path_count > 0 || spec->folder != NULL);
    assert(spec->vocab_size >= 0 && spec->block_size >= 0);
    struct token_source *source;
    TRY(HOSTMEM_NEW(owner, 1, "token source", &source));
    hostmem_at_free(source, source_close);
    source->vocab_size = spec->vocab_size;
    source->id_limit = (uint32_t)INT32_MAX + 1u;
    if (spec->vocab_size > 0 && spec->vocab_size <= INT32_MAX)
        source->id_limit = (uint32_t)spec->vocab_size;
    const enum gt_status status = source_fill(source, spec);
    return FINISH(status, out, source, hostmem_free);
}

/* ---- reading ---- */

static enum gt_status shard_refuse_id(const struct token_source *source,
                                      const struct token_shard *shard, int64_t index, uint32_t id)
{
    if (source->vocab_size > 0)
        log_error(ERROR_BAD_TOKEN "%s: token %" PRId64 " is id %" PRIu32
                                  ", outside the vocabulary of %" PRId64,
                  shard->path, index, id, source->vocab_size);
    else
        log_error(ERROR_BAD_TOKEN "%s: token %" PRId64 " is id %" PRIu32
                                  ", above the largest possible, %" PRIu32,
                  shard->path, index, id, source->id_limit - 1);
    return GT_DATA;
}

/* Converts the staged bytes to out[count]; `index` is that of the first id in the shard. */
static enum gt_status shard_convert(const struct token_source *source,
                                    const struct token_shard *shard, int64_t index, int64_t count,
                                    int32_t *out)
{
    const unsigned char *bytes = source->staging;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t id = (uint32_t)(shard->width_bytes == 2 ? le_read(bytes + 2 * i, 2)
                                                               : le_read(bytes + 4 * i, 4));
        if (id >= source->id_limit)
            return shard_refuse_id(source, shard, index + i, id);
        out[i] = (int32_t)id;
    }
    return GT_OK;
}

/* Reads inside one shard, a staging buffer at a time. */
static enum gt_status shard_read(struct token_source *source, size_t shard_index, int64_t index,
                                 int64_t count, int32_t *out)
{
    const struct token_shard *shard = &source->shards[shard_index];
    TRY(shard_ensure_open(source, shard_index));
    const int64_t staged_max = (int64_t)(STAGING_BYTES / shard->width_bytes);
    for (int64_t done = 0; done < count; done += staged_max) {
        const int64_t part = min_i64(count - done, staged_max);
        const uint64_t offset = shard->data_offset + (uint64_t)(index + done) * shard->width_bytes;
        TRY(file_read_at(shard->fd, shard->path, offset, source->staging,
                         (size_t)part * shard->width_bytes));
        TRY(shard_convert(source, shard, index + done, part, out + done));
    }
    return GT_OK;
}

enum gt_status token_source_read(struct token_source *source, int64_t position, int64_t count,
                                 int32_t *out)
{
    assert(position >= 0 && count >= 0);
    assert(position <= source->length && count <= source->length - position);
    int64_t done = 0;
    for (size_t i = 0; i < source->shard_count && done < count; i++) {
        const struct token_shard *shard = &source->shards[i];
        const int64_t index = position + done - shard->first;
        if (index >= shard->length)
            continue;
        const int64_t part = min_i64(shard->length - index, count - done);
        TRY(shard_read(source, i, index, part, out + done));
        done += part;
    }
    assert(done == count);
    return GT_OK;
}

int64_t token_source_mask(const struct token_source *source, int64_t position, int64_t count,
                          int32_t *targets)
{
    const char *mask = source->shards[0].mask; /* tokens with a mask are one file */
    int64_t counted = 0;
    if (mask == NULL)
        return count;
    for (int64_t at = position; at < position + count; at++) {
        const bool counts = (mask[TOKEN_MASK_HEADER_BYTES + at / 8] >> at % 8 & 1) != 0;
        counted += counts;
        if (targets != NULL && !counts)
            targets[at - position] = BATCH_TARGET_IGNORED;
    }
    return counted;
}

enum gt_status token_source_largest(struct token_source *source, int32_t *out)
{
    int32_t ids[DIGEST_PIECE], largest = 0;
    for (int64_t at = 0; at < source->length; at += DIGEST_PIECE) {
        const int64_t count = min_i64(source->length - at, DIGEST_PIECE);
        TRY(token_source_read(source, at, count, ids));
        for (int64_t i = 0; i < count; i++)
            largest = ids[i] > largest ? ids[i] : largest;
    }
    *out = largest;
    return GT_OK;
}

enum gt_status token_source_digest(struct token_source *source, uint32_t *out)
{
    int32_t ids[DIGEST_PIECE];
    uint32_t crc = 0;
    const int64_t size = min_i64(source->length, DIGEST_PIECE), rest = source->length - size;
    for (int64_t piece = 0; piece < DIGEST_PIECES; piece++) {
        TRY(token_source_read(source, rest / (DIGEST_PIECES - 1) * piece, size, ids));
        for (int64_t i = 0; i < size; i++)
            crc = le_crc32c(crc, (uint32_t)ids[i]);
        if (token_source_mask(source, rest / (DIGEST_PIECES - 1) * piece, size, ids) == size)
            continue;
        for (int64_t i = 0; i < size; i++)
            crc = le_crc32c(crc, (uint32_t)ids[i]);
    }
    *out = crc;
    return GT_OK;
}

/* The commit removes the old manifest first and renames the new one last, so a folder with a
 * manifest is complete. */
enum gt_status prepared_folder_check(const char *folder)
{
    bool is_whole, has_state;
    json_t *state = NULL;
    int64_t phase = 0;
    const char *path = FILE_IN(folder, PREPARE_STATE_NAME);
    TRY(file_stat_exists(FILE_IN(folder, PREPARE_MANIFEST_NAME), &is_whole));
    TRY(file_stat_exists(path, &has_state));
    if (is_whole || !has_state)
        return GT_OK;
    TRY(json_parse_file(path, PREPARE_STATE_BYTES_MAX, &state));
    const enum gt_status status =
        json_get_int(state, path, "phase", PREPARE_PHASE_ENCODE, PREPARE_PHASE_COMMIT, &phase);
    json_decref(state);
    if (phase != PREPARE_PHASE_COMMIT)
        return status;
    return FAIL(
        GT_DATA,
        "%s: gpt-prepare was stopped while it replaced this data set; give its command again",
        folder);
}
