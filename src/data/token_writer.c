/* Writes token files.
 *
 * Each split has one open file and a list of the earlier ones.  Tokens go through a buffer to write(2), and the
 * checksum is updated on the way.  The header of a shard is written first, as that of a full shard.  If the last shard
 * is shorter, its header is replaced at the end, and its checksum is computed by reading it again; so is that of a file
 * that the boundary between the splits cuts in two.  Only token_file_settle() renames files or shortens finished ones.
 */
#include "data/token_writer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

/* Fuzzing uses a smaller buffer. */
#ifndef TOKEN_WRITER_BYTES
#define TOKEN_WRITER_BYTES 1048576
#endif
#define BUFFER_BYTES ((size_t)TOKEN_WRITER_BYTES)

struct writer_split {
    struct token_shard_state *shards; /* the last one is open */
    size_t shard_count, shard_capacity;
    int fd; /* of the last shard, or -1 */
    int64_t tokens;
    unsigned char *buffer;
    size_t buffered;
};

struct token_writer {
    struct hostmem *mem; /* borrowed; outlives the writer */
    struct token_writer_spec spec;
    bool has_header;
    struct writer_split splits[TOKEN_WRITER_SPLITS];
    struct token_file *files; /* set by token_writer_finish() */
    size_t file_count;
};

/* ---- names ---- */

/* "train.bin", or "train_000001.bin" for shard 0 of several. */
static void shard_name(char out[static TOKEN_WRITER_NAME_BYTES], const struct token_writer_spec *spec,
                       enum token_split split, size_t shard, const char *ending)
{
    int length;
    if (spec->shard_tokens == 0)
        length = snprintf(out, TOKEN_WRITER_NAME_BYTES, "%s.bin%s", token_split_name(split), ending);
    else
        length = snprintf(out, TOKEN_WRITER_NAME_BYTES, "%s_%06zu.bin%s", token_split_name(split), shard + 1, ending);
    assert(length > 0 && length < TOKEN_WRITER_NAME_BYTES);
    (void)length;
}

bool token_writer_is_name(const char *name)
{
    for (int split = 0; split < TOKEN_WRITER_SPLITS; split++) {
        const char *word = token_split_name((enum token_split)split);
        if (strncmp(name, word, strlen(word)) != 0)
            continue;
        const char *rest = name + strlen(word);
        if (rest[0] == '_' && strspn(rest + 1, "0123456789") == 6)
            rest += 7;
        if (strcmp(rest, ".bin") == 0 || strcmp(rest, ".bin" TOKEN_WRITER_PARTIAL) == 0)
            return true;
    }
    return false;
}

static enum gt_status shard_path(char out[static FILE_PATH_MAX], const struct token_writer *writer,
                                 enum token_split split, size_t shard)
{
    char name[TOKEN_WRITER_NAME_BYTES];
    shard_name(name, &writer->spec, split, shard, TOKEN_WRITER_PARTIAL);
    return file_join(out, writer->spec.folder, name);
}

/* ---- bytes ---- */

static enum gt_status fail_io(const char *path, const char *verb)
{
    log_error("%s: cannot %s: %s", path, verb, strerror(errno));
    return GT_IO;
}

/* Writes all of bytes[count] at the descriptor's offset. */
static enum gt_status write_all(int fd, const char *path, const unsigned char *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t got = write(fd, bytes, count);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_io(path, "write");
        bytes += got;
        count -= (size_t)got;
    }
    return GT_OK;
}

static void header_make(unsigned char out[static TOKEN_SHARD_HEADER_BYTES], size_t width_bytes, int64_t tokens)
{
    const uint32_t words[3] = {width_bytes == 4 ? TOKEN_SHARD_MAGIC_U32 : TOKEN_SHARD_MAGIC_U16,
                               width_bytes == 4 ? TOKEN_SHARD_VERSION_U32 : TOKEN_SHARD_VERSION_U16, (uint32_t)tokens};
    memset(out, 0, TOKEN_SHARD_HEADER_BYTES);
    for (size_t i = 0; i < sizeof words; i++)
        out[i] = (unsigned char)(words[i / 4] >> 8 * (i % 4) & 0xFF);
}

static uint64_t file_size(const struct token_writer_spec *spec, bool has_header, int64_t tokens)
{
    return (has_header ? TOKEN_SHARD_HEADER_BYTES : 0) + (uint64_t)tokens * spec->width_bytes;
}

static bool spec_has_header(const struct token_writer_spec *spec)
{
    return spec->shard_tokens > 0 || spec->width_bytes == 4;
}

static enum gt_status sync_and_close(int fd, const char *path)
{
    const bool synced = fsync(fd) == 0;
    const int cause = errno;
    const bool closed = close(fd) == 0 || errno == EINTR;
    if (synced && closed)
        return GT_OK;
    errno = synced ? errno : cause;
    return fail_io(path, synced ? "close" : "sync");
}

/* ---- creation ---- */

enum gt_status token_writer_create(struct hostmem *mem, const struct token_writer_spec *spec, struct token_writer **out)
{
    assert(spec->width_bytes == 2 || spec->width_bytes == 4);
    assert(spec->shard_tokens >= 0 && spec->shard_tokens <= INT32_MAX);
    void *memory = NULL;
    TRY(hostmem_alloc(mem, 1, sizeof(struct token_writer), "token writer", &memory));
    struct token_writer *writer = memory;
    writer->mem = mem;
    writer->spec = *spec;
    writer->has_header = spec_has_header(spec);
    enum gt_status status = GT_OK;
    for (int i = 0; i < TOKEN_WRITER_SPLITS; i++)
        writer->splits[i].fd = -1;
    for (int i = 0; i < TOKEN_WRITER_SPLITS && status == GT_OK; i++) {
        status = hostmem_alloc(mem, BUFFER_BYTES, 1, "writing", &memory);
        if (status == GT_OK)
            writer->splits[i].buffer = memory;
    }
    if (status == GT_OK)
        *out = writer;
    else
        token_writer_destroy(writer);
    return status;
}

void token_writer_destroy(struct token_writer *writer)
{
    if (writer == NULL)
        return;
    for (int i = 0; i < TOKEN_WRITER_SPLITS; i++) {
        if (writer->splits[i].fd >= 0)
            close(writer->splits[i].fd);
        hostmem_free(writer->mem, writer->splits[i].buffer);
        hostmem_free(writer->mem, writer->splits[i].shards);
    }
    hostmem_free(writer->mem, writer->files);
    hostmem_free(writer->mem, writer);
}

size_t token_writer_shards(const struct token_writer *writer, enum token_split split,
                           const struct token_shard_state **out)
{
    *out = writer->splits[split].shards;
    return writer->splits[split].shard_count;
}

int64_t token_writer_tokens(const struct token_writer *writer, enum token_split split)
{
    return writer->splits[split].tokens;
}

/* ---- shards ---- */

static enum gt_status shard_list_add(struct token_writer *writer, struct writer_split *split)
{
    if (split->shard_count == TOKEN_WRITER_SHARDS_MAX) {
        log_error("%s: more than %d shards; give a larger --shard-tokens", writer->spec.folder,
                  TOKEN_WRITER_SHARDS_MAX);
        return GT_UNSUPPORTED;
    }
    if (split->shard_count == split->shard_capacity) {
        void *memory = NULL;
        const size_t capacity = split->shard_capacity == 0 ? 16 : 2 * split->shard_capacity;
        TRY(hostmem_alloc(writer->mem, capacity, sizeof split->shards[0], "list of shards", &memory));
        if (split->shard_count > 0)
            memcpy(memory, split->shards, split->shard_count * sizeof split->shards[0]);
        hostmem_free(writer->mem, split->shards);
        split->shards = memory;
        split->shard_capacity = capacity;
    }
    split->shards[split->shard_count++] = (struct token_shard_state){.tokens = 0};
    return GT_OK;
}

/* Starts the shard with the header of a full one; the shard's checksum starts with the header's. */
static enum gt_status shard_begin_header(struct token_writer *writer, struct writer_split *split)
{
    unsigned char header[TOKEN_SHARD_HEADER_BYTES];
    if (!writer->has_header)
        return GT_OK;
    header_make(header, writer->spec.width_bytes, writer->spec.shard_tokens);
    memcpy(split->buffer, header, sizeof header);
    split->buffered = sizeof header;
    split->shards[split->shard_count - 1].crc32c = file_crc32c(0, header, sizeof header);
    return GT_OK;
}

static enum gt_status shard_begin(struct token_writer *writer, enum token_split which)
{
    char path[FILE_PATH_MAX];
    struct writer_split *split = &writer->splits[which];
    assert(split->fd < 0 && split->buffered == 0);
    TRY(shard_list_add(writer, split));
    TRY(shard_path(path, writer, which, split->shard_count - 1));
    if (unlink(path) != 0 && errno != ENOENT)
        return fail_io(path, "remove what an earlier run left");
    split->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (split->fd < 0)
        return fail_io(path, "create");
    return shard_begin_header(writer, split);
}

static enum gt_status shard_flush(struct token_writer *writer, enum token_split which)
{
    char path[FILE_PATH_MAX];
    struct writer_split *split = &writer->splits[which];
    if (split->buffered == 0)
        return GT_OK;
    TRY(shard_path(path, writer, which, split->shard_count - 1));
    const size_t count = split->buffered;
    split->buffered = 0;
    return write_all(split->fd, path, split->buffer, count);
}

/* Ends the open shard. */
static enum gt_status shard_end(struct token_writer *writer, enum token_split which)
{
    char path[FILE_PATH_MAX];
    struct writer_split *split = &writer->splits[which];
    if (split->fd < 0)
        return GT_OK;
    TRY(shard_flush(writer, which));
    TRY(shard_path(path, writer, which, split->shard_count - 1));
    const int fd = split->fd;
    split->fd = -1;
    return sync_and_close(fd, path);
}

/* Returns how many more tokens fit in the open shard. */
static int64_t shard_room(const struct token_writer *writer, const struct writer_split *split)
{
    const int64_t tokens = split->shards[split->shard_count - 1].tokens;
    if (writer->spec.shard_tokens > 0)
        return writer->spec.shard_tokens - tokens;
    return writer->has_header ? INT32_MAX - tokens : INT64_MAX / 8 - tokens;
}

/* Appends as many tokens as fit in the buffer and the open shard. */
static enum gt_status shard_append(struct token_writer *writer, enum token_split which, const unsigned char *bytes,
                                   int64_t count, int64_t *out_taken)
{
    struct writer_split *split = &writer->splits[which];
    struct token_shard_state *shard = &split->shards[split->shard_count - 1];
    const size_t width = writer->spec.width_bytes;
    const int64_t room = shard_room(writer, split);
    const int64_t free_tokens = (int64_t)((BUFFER_BYTES - split->buffered) / width);
    int64_t taken = count < room ? count : room;
    taken = taken < free_tokens ? taken : free_tokens;
    const size_t size = (size_t)taken * width;
    memcpy(split->buffer + split->buffered, bytes, size);
    split->buffered += size;
    shard->crc32c = file_crc32c(shard->crc32c, bytes, size);
    shard->tokens += taken;
    split->tokens += taken;
    *out_taken = taken;
    return BUFFER_BYTES - split->buffered < width ? shard_flush(writer, which) : GT_OK;
}

enum gt_status token_writer_put(struct token_writer *writer, enum token_split which, const unsigned char *bytes,
                                int64_t count)
{
    struct writer_split *split = &writer->splits[which];
    assert(writer->files == NULL);
    for (int64_t done = 0; done < count;) {
        int64_t taken = 0;
        if (split->fd >= 0 && writer->spec.shard_tokens > 0 && shard_room(writer, split) == 0)
            TRY(shard_end(writer, which));
        if (split->fd < 0)
            TRY(shard_begin(writer, which));
        TRY(shard_append(writer, which, bytes + (size_t)done * writer->spec.width_bytes, count - done, &taken));
        if (taken == 0 && shard_room(writer, split) == 0 && writer->spec.shard_tokens == 0) {
            log_error("%s: %s has more than %d tokens of 32 bits, which one file of "
                      "llm.c's format cannot count; give "
                      "--shard-tokens",
                      writer->spec.folder, token_split_name(which), INT32_MAX);
            return GT_UNSUPPORTED;
        }
        done += taken;
    }
    return GT_OK;
}

enum gt_status token_writer_sync(struct token_writer *writer)
{
    for (int i = 0; i < TOKEN_WRITER_SPLITS; i++) {
        char path[FILE_PATH_MAX];
        const enum token_split which = (enum token_split)i;
        const struct writer_split *split = &writer->splits[i];
        if (split->fd < 0)
            continue;
        TRY(shard_flush(writer, which));
        TRY(shard_path(path, writer, which, split->shard_count - 1));
        if (fsync(split->fd) != 0)
            return fail_io(path, "sync");
    }
    return file_sync_folder(writer->spec.folder);
}

/* ---- resuming ---- */

/* Checks that the shard exists; opens the last one and truncates it to the saved length. */
static enum gt_status shard_reopen(struct token_writer *writer, enum token_split which, bool last)
{
    char path[FILE_PATH_MAX];
    struct stat info;
    struct writer_split *split = &writer->splits[which];
    const struct token_shard_state *shard = &split->shards[split->shard_count - 1];
    const uint64_t size = file_size(&writer->spec, writer->has_header, shard->tokens);
    TRY(shard_path(path, writer, which, split->shard_count - 1));
    if (stat(path, &info) != 0)
        return fail_io(path, "find what the stopped run wrote");
    if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size < size || (!last && (uint64_t)info.st_size != size)) {
        log_error("%s: has %lld bytes; the stopped run had written %" PRIu64, path, (long long)info.st_size, size);
        return GT_DATA;
    }
    if (!last)
        return GT_OK;
    split->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (split->fd < 0)
        return fail_io(path, "open");
    if (ftruncate(split->fd, (off_t)size) != 0 || lseek(split->fd, 0, SEEK_END) != (off_t)size)
        return fail_io(path, "cut");
    return GT_OK;
}

enum gt_status token_writer_resume(struct token_writer *writer, enum token_split which,
                                   const struct token_shard_state *shards, size_t count)
{
    struct writer_split *split = &writer->splits[which];
    assert(split->shard_count == 0);
    for (size_t i = 0; i < count; i++) {
        TRY(shard_list_add(writer, split));
        split->shards[i] = shards[i];
        split->tokens += shards[i].tokens;
        TRY(shard_reopen(writer, which, i + 1 == count));
    }
    return GT_OK;
}

/* ---- the boundary of a split by position ---- */

/* A backward walk over the tokens, from the last to the first. */
struct border_walk {
    const int32_t *weights;
    int64_t vocab_size;
    int64_t weight_left; /* that val may still take */
    int64_t val_tokens;
    bool ended;
};

/* Walks backwards over tokens[count] in a buffer. */
static enum gt_status walk_buffer(struct border_walk *walk, const unsigned char *bytes, size_t width, size_t count,
                                  const char *path)
{
    for (size_t i = count; i > 0 && !walk->ended; i--) {
        uint32_t id = 0;
        for (size_t byte = 0; byte < width; byte++)
            id |= (uint32_t)bytes[(i - 1) * width + byte] << 8 * byte;
        if (id >= walk->vocab_size) {
            log_error("%s: id %" PRIu32 " is outside the vocabulary of %" PRId64 ": the file was changed", path, id,
                      walk->vocab_size);
            return GT_DATA;
        }
        walk->ended = walk->weight_left == 0 || walk->weights[id] > walk->weight_left;
        if (walk->ended)
            break;
        walk->weight_left -= walk->weights[id];
        walk->val_tokens++;
    }
    return GT_OK;
}

static enum gt_status walk_shard(const struct token_writer *writer, size_t shard, struct border_walk *walk)
{
    char path[FILE_PATH_MAX];
    int fd = -1;
    uint64_t size_bytes = 0;
    const size_t width = writer->spec.width_bytes;
    enum gt_status status = GT_OK;
    TRY(shard_path(path, writer, TOKEN_TRAIN, shard));
    TRY(file_open_read(path, &fd, &size_bytes));
    int64_t left = writer->splits[TOKEN_TRAIN].shards[shard].tokens;
    while (left > 0 && !walk->ended && status == GT_OK) {
        unsigned char *buffer = writer->splits[0].buffer; /* shard_end() has flushed it */
        const int64_t most = (int64_t)(BUFFER_BYTES / width);
        const int64_t count = left < most ? left : most;
        const uint64_t offset = file_size(&writer->spec, writer->has_header, left - count);
        status = file_read_at(fd, path, offset, buffer, (size_t)count * width);
        if (status == GT_OK)
            status = walk_buffer(walk, buffer, width, (size_t)count, path);
        left -= count;
    }
    close(fd);
    return status;
}

enum gt_status token_writer_border(struct token_writer *writer, const int32_t *weights, int64_t vocab_size,
                                   int64_t val_weight, int64_t *out_train_tokens)
{
    struct border_walk walk = {.weights = weights, .vocab_size = vocab_size, .weight_left = val_weight};
    TRY(shard_end(writer, TOKEN_TRAIN));
    for (size_t i = writer->splits[TOKEN_TRAIN].shard_count; i > 0 && !walk.ended; i--)
        TRY(walk_shard(writer, i - 1, &walk));
    *out_train_tokens = writer->splits[TOKEN_TRAIN].tokens - walk.val_tokens;
    return GT_OK;
}

/* ---- finishing ---- */

/* Computes the checksum of a final file: `header` (NULL: none) and the tokens first .. first + tokens - 1 of an
 * existing file.  With `copy_fd` >= 0, also writes both to it. */
struct shard_pass {
    const char *path;
    const unsigned char *header;
    int64_t first, tokens;
    int copy_fd;
    const char *copy_path;
};

static enum gt_status shard_pass_run(struct token_writer *writer, int fd, const struct shard_pass *pass,
                                     uint32_t *out_crc32c)
{
    unsigned char *buffer = writer->splits[0].buffer; /* both buffers are empty by now */
    const size_t width = writer->spec.width_bytes;
    uint64_t offset = (pass->header != NULL ? TOKEN_SHARD_HEADER_BYTES : 0) + (uint64_t)pass->first * width;
    uint64_t left = (uint64_t)pass->tokens * width;
    uint32_t crc32c = 0;
    if (pass->header != NULL)
        crc32c = file_crc32c(0, pass->header, TOKEN_SHARD_HEADER_BYTES);
    if (pass->header != NULL && pass->copy_fd >= 0)
        TRY(write_all(pass->copy_fd, pass->copy_path, pass->header, TOKEN_SHARD_HEADER_BYTES));
    while (left > 0) {
        const size_t count = left < BUFFER_BYTES ? (size_t)left : BUFFER_BYTES;
        TRY(file_read_at(fd, pass->path, offset, buffer, count));
        crc32c = file_crc32c(crc32c, buffer, count);
        if (pass->copy_fd >= 0)
            TRY(write_all(pass->copy_fd, pass->copy_path, buffer, count));
        offset += count;
        left -= count;
    }
    *out_crc32c = crc32c;
    return GT_OK;
}

/* Reads tokens of a shard again for the checksum, and copies them if requested. */
static enum gt_status shard_reread(struct token_writer *writer, struct shard_pass *pass, uint32_t *out_crc32c)
{
    unsigned char header[TOKEN_SHARD_HEADER_BYTES];
    int fd = -1;
    uint64_t size_bytes = 0;
    header_make(header, writer->spec.width_bytes, pass->tokens);
    pass->header = writer->has_header ? header : NULL;
    TRY(file_open_read(pass->path, &fd, &size_bytes));
    const enum gt_status status = shard_pass_run(writer, fd, pass, out_crc32c);
    close(fd);
    return status;
}

/* Lists the first `tokens` of a shard as file number `number` of `split`. */
static enum gt_status file_add(struct token_writer *writer, enum token_split written_as, size_t shard,
                               enum token_split split, size_t number, int64_t tokens)
{
    char path[FILE_PATH_MAX];
    const struct token_shard_state *state = &writer->splits[written_as].shards[shard];
    struct token_file *file = &writer->files[writer->file_count++];
    shard_name(file->partial, &writer->spec, written_as, shard, TOKEN_WRITER_PARTIAL);
    shard_name(file->name, &writer->spec, split, number, "");
    file->split = split;
    file->tokens = tokens;
    file->size_bytes = file_size(&writer->spec, writer->has_header, tokens);
    file->crc32c = state->crc32c;
    if (tokens == state->tokens && (!writer->has_header || tokens == writer->spec.shard_tokens))
        return GT_OK;
    TRY(file_join(path, writer->spec.folder, file->partial));
    struct shard_pass pass = {.path = path, .tokens = tokens, .copy_fd = -1};
    return shard_reread(writer, &pass, &file->crc32c);
}

/* Copies the tokens of a shard of train from `first` on, as the first file of val. */
static enum gt_status file_add_copy(struct token_writer *writer, size_t shard, int64_t first)
{
    char path[FILE_PATH_MAX], copy[FILE_PATH_MAX];
    struct token_file *file = &writer->files[writer->file_count++];
    const int64_t tokens = writer->splits[TOKEN_TRAIN].shards[shard].tokens - first;
    shard_name(file->partial, &writer->spec, TOKEN_VAL, 0, TOKEN_WRITER_PARTIAL);
    shard_name(file->name, &writer->spec, TOKEN_VAL, 0, "");
    file->split = TOKEN_VAL;
    file->tokens = tokens;
    file->size_bytes = file_size(&writer->spec, writer->has_header, tokens);
    TRY(shard_path(path, writer, TOKEN_TRAIN, shard));
    TRY(file_join(copy, writer->spec.folder, file->partial));
    const int fd = open(copy, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return fail_io(copy, "create");
    struct shard_pass pass = {.path = path, .first = first, .tokens = tokens, .copy_fd = fd, .copy_path = copy};
    enum gt_status status = shard_reread(writer, &pass, &file->crc32c);
    if (status != GT_OK) {
        close(fd);
        return status;
    }
    return sync_and_close(fd, copy);
}

/* Lists the files of train up to the boundary, and those of val from there on. */
static enum gt_status finish_by_position(struct token_writer *writer, int64_t train_tokens)
{
    const struct writer_split *train = &writer->splits[TOKEN_TRAIN];
    int64_t first = 0;
    size_t val_count = 0;
    assert(writer->splits[TOKEN_VAL].shard_count == 0);
    for (size_t i = 0; i < train->shard_count; i++) {
        const int64_t tokens = train->shards[i].tokens;
        const int64_t before = train_tokens - first; /* tokens of this shard that stay in train */
        first += tokens;
        if (before <= 0) {
            TRY(file_add(writer, TOKEN_TRAIN, i, TOKEN_VAL, val_count++, tokens));
            continue;
        }
        TRY(file_add(writer, TOKEN_TRAIN, i, TOKEN_TRAIN, i, before < tokens ? before : tokens));
        if (before < tokens) {
            TRY(file_add_copy(writer, i, before));
            val_count++;
        }
    }
    return GT_OK;
}

static enum gt_status finish_by_document(struct token_writer *writer)
{
    for (int split = 0; split < TOKEN_WRITER_SPLITS; split++)
        for (size_t i = 0; i < writer->splits[split].shard_count; i++)
            TRY(file_add(writer, (enum token_split)split, i, (enum token_split)split, i,
                         writer->splits[split].shards[i].tokens));
    return GT_OK;
}

/* Refuses a headerless file whose first bytes look like llm.c's header, because readers would mistake it for one. */
static enum gt_status finish_check_magic(const struct token_writer *writer)
{
    for (size_t i = 0; !writer->has_header && i < writer->file_count; i++) {
        const struct token_file *file = &writer->files[i];
        char path[FILE_PATH_MAX];
        int fd = -1;
        uint64_t size_bytes = 0;
        unsigned char bytes[4] = {0};
        if (file->size_bytes < sizeof bytes)
            continue;
        TRY(file_join(path, writer->spec.folder, file->partial));
        TRY(file_open_read(path, &fd, &size_bytes));
        const enum gt_status status = file_read_at(fd, path, 0, bytes, sizeof bytes);
        close(fd);
        TRY(status);
        const uint32_t word =
            (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
        if (word / 1000 == TOKEN_SHARD_MAGIC_U16 / 1000 || word == TOKEN_SHARD_MAGIC_U32) {
            log_error("%s: its first two tokens look like the header of an llm.c file (%" PRIu32 "); give "
                      "--shard-tokens, which writes a header",
                      path, word);
            return GT_DATA;
        }
    }
    return GT_OK;
}

enum gt_status token_writer_finish(struct token_writer *writer, int64_t train_tokens,
                                   const struct token_file **out_files, size_t *out_count)
{
    void *memory = NULL;
    assert(writer->files == NULL);
    TRY(shard_end(writer, TOKEN_TRAIN));
    TRY(shard_end(writer, TOKEN_VAL));
    const size_t most = writer->splits[TOKEN_TRAIN].shard_count + writer->splits[TOKEN_VAL].shard_count + 1;
    TRY(hostmem_alloc(writer->mem, most, sizeof writer->files[0], "list of files", &memory));
    writer->files = memory;
    if (train_tokens >= 0)
        TRY(finish_by_position(writer, train_tokens));
    else
        TRY(finish_by_document(writer));
    assert(writer->file_count <= most);
    TRY(finish_check_magic(writer));
    *out_files = writer->files;
    *out_count = writer->file_count;
    return file_sync_folder(writer->spec.folder);
}

/* ---- settling ---- */

static enum gt_status settle_content(const struct token_writer_spec *spec, const struct token_file *file, int fd,
                                     const char *path)
{
    unsigned char header[TOKEN_SHARD_HEADER_BYTES];
    header_make(header, spec->width_bytes, file->tokens);
    if (ftruncate(fd, (off_t)file->size_bytes) != 0)
        return fail_io(path, "cut");
    if (spec_has_header(spec) && pwrite(fd, header, sizeof header, 0) != (ssize_t)sizeof header)
        return fail_io(path, "write the header");
    return GT_OK;
}

enum gt_status token_writer_is_named(const char *partial, const char *path, bool *out)
{
    bool is_partial, is_named;
    TRY(file_look(partial, &is_partial));
    TRY(file_look(path, &is_named));
    *out = !is_partial && is_named;
    return GT_OK;
}

/* Checks the length of a file that an earlier attempt renamed, because an older data set's file may be there
 * instead. */
static enum gt_status settled_check(const char *path, uint64_t size_bytes)
{
    int fd;
    uint64_t actual_bytes;
    TRY(file_open_read(path, &fd, &actual_bytes));
    close(fd);
    if (actual_bytes == size_bytes)
        return GT_OK;
    log_error("%s: has %" PRIu64 " bytes, not %" PRIu64 ": the prepared file is gone; start again with --restart", path,
              actual_bytes, size_bytes);
    return GT_DATA;
}

enum gt_status token_file_settle(const struct token_writer_spec *spec, const struct token_file *file)
{
    char partial[FILE_PATH_MAX], path[FILE_PATH_MAX];
    bool is_named;
    TRY(file_join(partial, spec->folder, file->partial));
    TRY(file_join(path, spec->folder, file->name));
    TRY(token_writer_is_named(partial, path, &is_named));
    if (is_named)
        return settled_check(path, file->size_bytes);
    const int fd = open(partial, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return fail_io(partial, "open");
    const enum gt_status status = settle_content(spec, file, fd, partial);
    if (status != GT_OK) {
        close(fd);
        return status;
    }
    TRY(sync_and_close(fd, partial));
    return rename(partial, path) == 0 ? GT_OK : fail_io(path, "rename the new file over it");
}
