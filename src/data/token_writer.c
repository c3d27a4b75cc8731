/* Writes token files.
 *
 * Each split has one open file, the last of its shards; all shards before it are full.  Tokens go
 * through a buffer to write(2).  The header of a shard is written first, as that of a full shard,
 * and replaced at the end if the last shard is shorter.  At the end every file is read once for its
 * checksum; what was written is often still in the page cache. Only token_file_finish() renames
 * files or shortens finished ones.
 */
#include "data/token_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/size.h"

/* Fuzzing uses a smaller buffer. */
#ifndef TOKEN_WRITER_BYTES
#define TOKEN_WRITER_BYTES 1048576
#endif
#define BUFFER_BYTES ((size_t)TOKEN_WRITER_BYTES)

struct writer_split {
    int fd;                   /* of the last shard, or -1 */
    char path[FILE_PATH_MAX]; /* of the last shard */
    int64_t tokens;
    unsigned char *buffer;
    size_t buffered;
};

struct token_writer {
    struct token_writer_spec spec;
    struct writer_split splits[TOKEN_WRITER_SPLITS];
    struct token_file *files; /* set by token_writer_finish() */
    size_t file_count;
};

/* ---- names ---- */

/* "train.bin", or "train_000001.bin" for shard 0 of several. */
static void shard_name(char out[static TOKEN_WRITER_NAME_BYTES],
                       const struct token_writer_spec *spec, enum token_split split, size_t shard,
                       const char *ending)
{
    const char *number = spec->shard_tokens > 0 ? TEXT(24, "_%06zu", shard + 1) : "";
    (void)snprintf(out, TOKEN_WRITER_NAME_BYTES, "%s%s.%s%s", token_split_name(split), number,
                   spec->mask_row > 0 ? "mask" : "bin", ending);
}

bool token_writer_is_name(const char *name)
{
    static const char *const endings[] = {".bin", ".bin" TOKEN_WRITER_PARTIAL, ".mask",
                                          ".mask" TOKEN_WRITER_PARTIAL};
    for (int split = 0; split < TOKEN_WRITER_SPLITS; split++) {
        const char *word = token_split_name((enum token_split)split);
        if (strncmp(name, word, strlen(word)) != 0)
            continue;
        const char *rest = name + strlen(word);
        if (rest[0] == '_' && strspn(rest + 1, "0123456789") == 6)
            rest += 7;
        for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
            if (strcmp(rest, endings[i]) == 0)
                return true;
    }
    return false;
}

static const char *shard_path(char out[static FILE_PATH_MAX], const struct token_writer *writer,
                              enum token_split split, size_t shard)
{
    char name[TOKEN_WRITER_NAME_BYTES];
    shard_name(name, &writer->spec, split, shard, TOKEN_WRITER_PARTIAL);
    return file_join(out, writer->spec.folder, name);
}

/* ---- bytes ---- */

/* Returns the size of the header: 0 for nanoGPT's format. */
static size_t header_bytes(const struct token_writer_spec *spec)
{
    if (spec->mask_row > 0)
        return TOKEN_MASK_HEADER_BYTES;
    return spec->shard_tokens > 0 || spec->width_bytes == 4 ? TOKEN_SHARD_HEADER_BYTES : 0;
}

static void header_make(unsigned char out[static TOKEN_SHARD_HEADER_BYTES],
                        const struct token_writer_spec *spec, int64_t tokens)
{
    memset(out, 0, TOKEN_SHARD_HEADER_BYTES);
    if (spec->mask_row > 0) {
        le_write(out, TOKEN_MASK_MAGIC, 8);
        le_write(out + 8, (uint64_t)spec->mask_row, 8);
        return;
    }
    le_write(out, spec->width_bytes == 4 ? TOKEN_SHARD_MAGIC_U32 : TOKEN_SHARD_MAGIC_U16, 4);
    le_write(out + 4, spec->width_bytes == 4 ? TOKEN_SHARD_VERSION_U32 : TOKEN_SHARD_VERSION_U16,
             4);
    le_write(out + 8, (uint64_t)tokens, 4);
}

static uint64_t file_size(const struct token_writer_spec *spec, int64_t tokens)
{
    return header_bytes(spec) + (uint64_t)tokens * spec->width_bytes;
}

static enum gt_status sync_and_close(int fd, const char *path)
{
    const bool synced = fsync(fd) == 0;
    const int cause = errno;
    const bool closed = close(fd) == 0 || errno == EINTR;
    if (synced && closed)
        return GT_OK;
    errno = synced ? errno : cause;
    return file_error(path, synced ? "close" : "sync");
}

/* ---- creation ---- */

static void writer_close(void *object)
{
    struct token_writer *writer = object;
    for (int i = 0; i < TOKEN_WRITER_SPLITS; i++)
        if (writer->splits[i].fd >= 0)
            close(writer->splits[i].fd);
}

enum gt_status token_writer_create(const void *owner, const struct token_writer_spec *spec,
                                   struct token_writer **out)
{
    assert(spec->width_bytes == 2 || spec->width_bytes == 4 || spec->mask_row > 0);
    assert(spec->shard_tokens >= 0 && spec->shard_tokens <= INT32_MAX);
    struct token_writer *writer;
    TRY(HOSTMEM_NEW(owner, 1, "token writer", &writer));
    hostmem_at_free(writer, writer_close);
    writer->spec = *spec;
    enum gt_status status = GT_OK;
    for (int i = 0; i < TOKEN_WRITER_SPLITS; i++) {
        writer->splits[i].fd = -1;
        THEN(status, HOSTMEM_NEW(writer, BUFFER_BYTES, "writing", &writer->splits[i].buffer));
    }
    return FINISH(status, out, writer, hostmem_free);
}

int64_t token_writer_tokens(const struct token_writer *writer, enum token_split split)
{
    return writer->splits[split].tokens;
}

/* ---- shards ---- */

/* Returns how many tokens fit in a shard. */
static int64_t shard_capacity(const struct token_writer_spec *spec)
{
    if (spec->shard_tokens > 0)
        return spec->shard_tokens;
    return header_bytes(spec) > 0 && spec->mask_row == 0 ? INT32_MAX : INT64_MAX / 8;
}

static size_t shard_count(const struct token_writer *writer, enum token_split split)
{
    return (size_t)size_ceil_div(writer->splits[split].tokens, shard_capacity(&writer->spec));
}

/* Returns how many tokens a shard has now. */
static int64_t shard_tokens(const struct token_writer *writer, enum token_split split, size_t shard)
{
    const int64_t capacity = shard_capacity(&writer->spec);
    return min_i64(writer->splits[split].tokens - (int64_t)shard * capacity, capacity);
}

/* Starts a file, with the header of a full shard if it has one. */
static enum gt_status shard_begin(struct token_writer *writer, enum token_split which)
{
    struct writer_split *split = &writer->splits[which];
    const size_t shard = shard_count(writer, which);
    assert(split->fd < 0 && split->buffered == 0);
    if (shard == TOKEN_WRITER_SHARDS_MAX)
        return FAIL(GT_UNSUPPORTED, "%s: more than %d shards; give a larger --shard-tokens",
                    writer->spec.folder, TOKEN_WRITER_SHARDS_MAX);
    shard_path(split->path, writer, which, shard);
    if (unlink(split->path) != 0 && errno != ENOENT)
        return file_error(split->path, "remove what an earlier run left");
    split->fd = open(split->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (split->fd < 0)
        return file_error(split->path, "create");
    header_make(split->buffer, &writer->spec, writer->spec.shard_tokens);
    split->buffered = header_bytes(&writer->spec);
    return GT_OK;
}

static enum gt_status shard_flush(struct writer_split *split)
{
    const size_t count = split->buffered;
    split->buffered = 0;
    return file_write_all(split->fd, split->path, split->buffer, count);
}

/* Ends the open shard. */
static enum gt_status shard_end(struct writer_split *split)
{
    if (split->fd < 0)
        return GT_OK;
    TRY(shard_flush(split));
    const int fd = split->fd;
    split->fd = -1;
    return sync_and_close(fd, split->path);
}

enum gt_status token_writer_put(struct token_writer *writer, enum token_split which,
                                const unsigned char *bytes, int64_t count)
{
    struct writer_split *split = &writer->splits[which];
    const size_t width = writer->spec.width_bytes;
    const int64_t capacity = shard_capacity(&writer->spec);
    for (int64_t done = 0; done < count;) {
        const int64_t used = split->tokens % capacity;
        if (used == 0 && split->tokens > 0 && writer->spec.shard_tokens == 0)
            return FAIL(
                GT_UNSUPPORTED,
                "%s: %s has more than %d tokens of 32 bits, which one file of llm.c's format cannot "
                "count; give --shard-tokens",
                writer->spec.folder, token_split_name(which), INT32_MAX);
        if (used == 0) {
            TRY(shard_end(split));
            TRY(shard_begin(writer, which));
        }
        const int64_t room =
            min_i64(capacity - used, (int64_t)((BUFFER_BYTES - split->buffered) / width));
        const int64_t taken = min_i64(count - done, room);
        memcpy(split->buffer + split->buffered, bytes + (size_t)done * width,
               (size_t)taken * width);
        split->buffered += (size_t)taken * width;
        split->tokens += taken;
        done += taken;
        if (BUFFER_BYTES - split->buffered < width)
            TRY(shard_flush(split));
    }
    return GT_OK;
}

enum gt_status token_writer_sync(struct token_writer *writer)
{
    for (int i = 0; i < TOKEN_WRITER_SPLITS; i++) {
        struct writer_split *split = &writer->splits[i];
        if (split->fd < 0)
            continue;
        TRY(shard_flush(split));
        if (fsync(split->fd) != 0)
            return file_error(split->path, "sync");
    }
    return file_sync_folder(writer->spec.folder);
}

/* ---- resuming ---- */

/* Checks that a shard exists; opens the last one and truncates it to the saved length. */
static enum gt_status shard_reopen(struct token_writer *writer, enum token_split which,
                                   size_t shard)
{
    struct stat info;
    struct writer_split *split = &writer->splits[which];
    const bool last = shard + 1 == shard_count(writer, which);
    const char *path = shard_path(split->path, writer, which, shard);
    const uint64_t size = file_size(&writer->spec, shard_tokens(writer, which, shard));
    if (stat(path, &info) != 0)
        return file_error(path, "find what the stopped run wrote");
    if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size < size ||
        (!last && (uint64_t)info.st_size != size))
        return FAIL(GT_DATA, "%s: has %lld bytes; the stopped run had written %" PRIu64, path,
                    (long long)info.st_size, size);
    if (!last)
        return GT_OK;
    split->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (split->fd < 0)
        return file_error(path, "open");
    if (ftruncate(split->fd, (off_t)size) != 0 || lseek(split->fd, 0, SEEK_END) != (off_t)size)
        return file_error(path, "cut");
    return GT_OK;
}

enum gt_status token_writer_resume(struct token_writer *writer, enum token_split split,
                                   int64_t tokens)
{
    writer->splits[split].tokens = tokens;
    for (size_t i = 0; i < shard_count(writer, split); i++)
        TRY(shard_reopen(writer, split, i));
    return GT_OK;
}

/* ---- the boundary of a split by position ---- */

/* A backward walk over the tokens, from the last to the first. */
struct border_walk {
    const int32_t *weights;
    int64_t vocab_size;
    int64_t weight_left; /* that may still move to val */
    int64_t val_tokens;
    bool ended;
};

/* Walks backwards over tokens[count] in a buffer. */
static enum gt_status walk_buffer(struct border_walk *walk, const unsigned char *bytes,
                                  size_t width, int64_t count, const char *path)
{
    for (int64_t i = count - 1; i >= 0; i--) {
        const uint64_t id = le_read(bytes + (size_t)i * width, width);
        if (id >= (uint64_t)walk->vocab_size)
            return FAIL(GT_DATA,
                        "%s: id %" PRIu64 " is outside the vocabulary of %" PRId64
                        ": the file was changed",
                        path, id, walk->vocab_size);
        walk->ended = walk->weight_left == 0 || walk->weights[id] > walk->weight_left;
        if (walk->ended)
            break;
        walk->weight_left -= walk->weights[id];
        walk->val_tokens++;
    }
    return GT_OK;
}

/* Reads `count` tokens of a shard into the training split's buffer, which shard_end() has flushed.
 */
static enum gt_status shard_read(const struct token_writer *writer, const char *path, int64_t first,
                                 int64_t count)
{
    int fd = -1;
    uint64_t size_bytes = 0;
    TRY(file_open_read(path, &fd, &size_bytes));
    const enum gt_status status =
        file_read_at(fd, path, file_size(&writer->spec, first), writer->splits[0].buffer,
                     (size_t)count * writer->spec.width_bytes);
    close(fd);
    return status;
}

static enum gt_status walk_shard(const struct token_writer *writer, size_t shard,
                                 struct border_walk *walk)
{
    char path[FILE_PATH_MAX];
    const size_t width = writer->spec.width_bytes;
    shard_path(path, writer, TOKEN_TRAIN, shard);
    for (int64_t left = shard_tokens(writer, TOKEN_TRAIN, shard); left > 0 && !walk->ended;) {
        const int64_t count = min_i64(left, (int64_t)(BUFFER_BYTES / width));
        left -= count;
        TRY(shard_read(writer, path, left, count));
        TRY(walk_buffer(walk, writer->splits[0].buffer, width, count, path));
    }
    return GT_OK;
}

static enum gt_status walk_back(struct token_writer *writer, struct border_walk *walk)
{
    for (size_t i = shard_count(writer, TOKEN_TRAIN); i > 0 && !walk->ended; i--)
        TRY(walk_shard(writer, i - 1, walk));
    return GT_OK;
}

enum gt_status token_writer_weight(struct token_writer *writer, const int32_t *weights,
                                   int64_t vocab_size, int64_t *out_weight)
{
    struct border_walk walk = {
        .weights = weights, .vocab_size = vocab_size, .weight_left = INT64_MAX};
    assert(writer->splits[TOKEN_TRAIN].buffered == 0);
    TRY(walk_back(writer, &walk));
    *out_weight = INT64_MAX - walk.weight_left;
    return GT_OK;
}

enum gt_status token_writer_border(struct token_writer *writer, const int32_t *weights,
                                   int64_t vocab_size, int64_t val_weight,
                                   int64_t *out_train_tokens)
{
    struct border_walk walk = {
        .weights = weights, .vocab_size = vocab_size, .weight_left = val_weight};
    struct writer_split *train = &writer->splits[TOKEN_TRAIN];
    TRY(shard_end(train));
    TRY(walk_back(writer, &walk));
    *out_train_tokens = train->tokens - walk.val_tokens;
    return GT_OK;
}

/* ---- finishing ---- */

/* Reads the tokens first .. first + tokens - 1 of a shard of `split`.  They continue *crc32c, or go
 * to val if that is NULL. */
static enum gt_status shard_reread(struct token_writer *writer, enum token_split split,
                                   size_t shard, int64_t first, int64_t tokens, uint32_t *crc32c)
{
    char path[FILE_PATH_MAX];
    unsigned char *buffer = writer->splits[TOKEN_TRAIN].buffer;
    const size_t width = writer->spec.width_bytes;
    shard_path(path, writer, split, shard);
    for (int64_t count; tokens > 0; first += count, tokens -= count) {
        count = min_i64(tokens, (int64_t)(BUFFER_BYTES / width));
        TRY(shard_read(writer, path, first, count));
        if (crc32c == NULL)
            TRY(token_writer_put(writer, TOKEN_VAL, buffer, count));
        else
            *crc32c = file_crc32c(*crc32c, buffer, (size_t)count * width);
    }
    return GT_OK;
}

/* Lists the first `tokens` tokens of a shard as file number `number` of `split`. */
static enum gt_status file_add(struct token_writer *writer, enum token_split written_as,
                               size_t shard, int64_t tokens, enum token_split split, size_t number)
{
    unsigned char header[TOKEN_SHARD_HEADER_BYTES];
    const struct token_writer_spec *spec = &writer->spec;
    struct token_file *file = &writer->files[writer->file_count++];
    shard_name(file->partial, spec, written_as, shard, TOKEN_WRITER_PARTIAL);
    shard_name(file->name, spec, split, number, "");
    file->split = split;
    file->tokens = tokens;
    file->size_bytes = file_size(spec, tokens);
    header_make(header, spec, tokens);
    file->crc32c = file_crc32c(0, header, header_bytes(spec));
    return shard_reread(writer, written_as, shard, 0, tokens, &file->crc32c);
}

/* Lists the files of both splits.  The tokens of train from position `train_tokens` on become val:
 * those of the shard with the boundary are copied, the shards after it get other names. */
static enum gt_status files_list(struct token_writer *writer, int64_t train_tokens)
{
    const size_t train_count = shard_count(writer, TOKEN_TRAIN);
    int64_t left = train_tokens; /* tokens that stay in train */
    size_t kept = 0;             /* shards with such tokens */
    for (; kept < train_count && left > 0; kept++) {
        const int64_t tokens = shard_tokens(writer, TOKEN_TRAIN, kept),
                      first = min_i64(left, tokens);
        TRY(file_add(writer, TOKEN_TRAIN, kept, first, TOKEN_TRAIN, kept));
        if (first < tokens)
            TRY(shard_reread(writer, TOKEN_TRAIN, kept, first, tokens - first, NULL));
        left -= first;
    }
    TRY(shard_end(&writer->splits[TOKEN_VAL]));
    const size_t val_count = shard_count(writer, TOKEN_VAL);
    for (size_t i = 0; i < val_count; i++)
        TRY(file_add(writer, TOKEN_VAL, i, shard_tokens(writer, TOKEN_VAL, i), TOKEN_VAL, i));
    for (size_t i = kept; i < train_count; i++)
        TRY(file_add(writer, TOKEN_TRAIN, i, shard_tokens(writer, TOKEN_TRAIN, i), TOKEN_VAL,
                     val_count + i - kept));
    return GT_OK;
}

/* Refuses a headerless file whose first bytes look like llm.c's header, because readers would
 * mistake it for one. */
static enum gt_status file_check_magic(const struct token_writer *writer,
                                       const struct token_file *file)
{
    if (header_bytes(&writer->spec) > 0 || file->tokens < 2)
        return GT_OK;
    const char *path = FILE_IN(writer->spec.folder, file->partial);
    TRY(shard_read(writer, path, 0, 2));
    const uint32_t word = (uint32_t)le_read(writer->splits[TOKEN_TRAIN].buffer, 4);
    if (word / 1000 != TOKEN_SHARD_MAGIC_U16 / 1000 && word != TOKEN_SHARD_MAGIC_U32)
        return GT_OK;
    return FAIL(GT_DATA,
                "%s: its first two tokens look like the header of an llm.c file (%" PRIu32
                "); give "
                "--shard-tokens, which writes a header",
                path, word);
}

enum gt_status token_writer_finish(struct token_writer *writer, int64_t train_tokens,
                                   const struct token_file **out_files, size_t *out_count)
{
    struct writer_split *train = &writer->splits[TOKEN_TRAIN], *val = &writer->splits[TOKEN_VAL];
    assert(writer->file_count == 0 && (train_tokens < 0 || val->tokens == 0));
    TRY(shard_end(train));
    TRY(shard_end(val));
    const size_t most = shard_count(writer, TOKEN_TRAIN) + shard_count(writer, TOKEN_VAL) + 1;
    TRY(HOSTMEM_NEW(writer, most, "list of files", &writer->files));
    TRY(files_list(writer, train_tokens >= 0 ? train_tokens : train->tokens));
    assert(writer->file_count <= most);
    for (size_t i = 0; i < writer->file_count; i++)
        TRY(file_check_magic(writer, &writer->files[i]));
    *out_files = writer->files;
    *out_count = writer->file_count;
    return file_sync_folder(writer->spec.folder);
}

/* ---- finishing the files of a stopped run ---- */

static enum gt_status content_finish(const struct token_writer_spec *spec,
                                     const struct token_file *file, const char *path)
{
    unsigned char header[TOKEN_SHARD_HEADER_BYTES];
    const size_t count = header_bytes(spec);
    const int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    header_make(header, spec, file->tokens);
    if (fd < 0)
        return file_error(path, "open");
    enum gt_status status =
        ftruncate(fd, (off_t)file->size_bytes) == 0 ? GT_OK : file_error(path, "cut");
    if (status == GT_OK && count > 0 && pwrite(fd, header, count, 0) != (ssize_t)count)
        status = file_error(path, "write the header");
    if (status == GT_OK)
        return sync_and_close(fd, path);
    close(fd);
    return status;
}

/* Checks the length of a file that an earlier attempt renamed, because an older data set's file may
 * be there instead. */
static enum gt_status finished_check(const char *path, uint64_t size_bytes)
{
    int fd;
    uint64_t actual_bytes;
    TRY(file_open_read(path, &fd, &actual_bytes));
    close(fd);
    if (actual_bytes == size_bytes)
        return GT_OK;
    return FAIL(GT_DATA,
                "%s: has %" PRIu64 " bytes, not %" PRIu64
                ": the prepared file is gone; start again with --restart",
                path, actual_bytes, size_bytes);
}

enum gt_status token_file_finish(const struct token_writer_spec *spec,
                                 const struct token_file *file)
{
    bool is_partial, is_named;
    const bool is_tokens = file->size_bytes > 0;
    const char *partial = FILE_IN(spec->folder, file->partial);
    const char *path = FILE_IN(spec->folder, file->name);
    TRY(file_stat_exists(partial, &is_partial));
    TRY(file_stat_exists(path, &is_named));
    if (is_named && !is_partial)
        return is_tokens ? finished_check(path, file->size_bytes) : GT_OK;
    if (is_tokens)
        TRY(content_finish(spec, file, partial));
    return rename(partial, path) == 0 ? GT_OK : file_error(path, "rename the new file over it");
}
