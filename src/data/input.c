/* One file of a corpus as a sequence of texts.
 *
 * Plain files and standard input are read here with read(2); names with a suffix of compression or tar go to
 * archive_stream.c.  documents.c decides which texts are documents and where each one ends.
 */
#include "data/input.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "data/archive_stream.h"

struct input {
    struct hostmem *mem; /* borrowed; outlives the input */
    const struct corpus_file *file;
    struct archive_stream *archive; /* NULL for a plain file */
    const char *name;               /* of the current text */
    int fd;
    bool owns_fd;
    bool started;
    bool is_member;
    uint64_t file_bytes;
    uint32_t crc32c;
};

static enum gt_status input_open_file(struct input *input, const char *stdin_path)
{
    const struct corpus_file *file = input->file;
    uint64_t size_bytes = 0;
    input->fd = STDIN_FILENO;
    if (file->is_stdin && stdin_path == NULL)
        return GT_OK;
    if (!file->is_stdin && archive_name_is_packed(file->path))
        return archive_stream_open(input->mem, file->path, input->crc32c, &input->archive);
    TRY(file_open_read(file->is_stdin ? stdin_path : file->path, &input->fd, &size_bytes));
    input->owns_fd = true;
    return GT_OK;
}

enum gt_status input_open(struct hostmem *mem, const struct corpus_file *file, const char *stdin_path, uint32_t crc32c,
                          struct input **out)
{
    void *memory = NULL;
    TRY(hostmem_alloc(mem, 1, sizeof(struct input), "an input", &memory));
    struct input *input = memory;
    input->mem = mem;
    input->file = file;
    input->name = file->path;
    input->crc32c = crc32c;
    const enum gt_status status = input_open_file(input, stdin_path);
    if (status == GT_OK)
        *out = input;
    else
        input_close(input);
    return status;
}

void input_close(struct input *input)
{
    if (input == NULL)
        return;
    archive_stream_close(input->archive);
    if (input->owns_fd)
        close(input->fd);
    hostmem_free(input->mem, input);
}

enum gt_status input_next(struct input *input, bool *out_found)
{
    if (input->archive == NULL) {
        *out_found = !input->started;
    } else {
        TRY(archive_stream_next(input->archive, &input->name, &input->is_member));
        *out_found = input->name != NULL;
    }
    input->started = true;
    return GT_OK;
}

enum gt_status input_read(struct input *input, unsigned char *out, size_t capacity, size_t *out_count)
{
    assert(input->started && capacity > 0);
    if (input->archive != NULL)
        return archive_stream_read(input->archive, out, capacity, out_count);
    ssize_t got;
    do {
        got = read(input->fd, out, capacity);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        log_error("%s: cannot read: %s", input_label(input), strerror(errno));
        return GT_IO;
    }
    input->crc32c = file_crc32c(input->crc32c, out, (size_t)got);
    input->file_bytes += (uint64_t)got;
    *out_count = (size_t)got;
    return GT_OK;
}

const char *input_label(const struct input *input)
{
    if (input->archive != NULL)
        return archive_stream_label(input->archive);
    return input->file->is_stdin ? "standard input" : input->file->path;
}

bool input_is_member(const struct input *input)
{
    return input->is_member;
}

bool input_is_unnamed(const struct input *input)
{
    return input->file->from_folder || input->is_member;
}

const char *input_name(const struct input *input, size_t *out_length)
{
    *out_length = archive_name_stem(input->name);
    return input->name;
}

bool input_is_jsonl(const struct input *input)
{
    static const char *const endings[] = {".jsonl", ".ndjson"};
    const size_t length = archive_name_stem(input->name);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const size_t ending = strlen(endings[i]);
        if (length > ending && memcmp(input->name + length - ending, endings[i], ending) == 0)
            return true;
    }
    return false;
}

uint64_t input_file_bytes(const struct input *input)
{
    return input->archive != NULL ? archive_stream_file_bytes(input->archive) : input->file_bytes;
}

uint32_t input_file_crc32c(const struct input *input)
{
    return input->archive != NULL ? archive_stream_file_crc32c(input->archive) : input->crc32c;
}
