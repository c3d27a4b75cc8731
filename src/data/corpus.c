/* A corpus: walking folders without recursion, and chunked reading.
 *
 * Folders found on the way go to the end of a list that the walk runs along, so its depth is no matter; the files of
 * one input are sorted when its walk ends, which makes the order independent of the file system's.  Paths are kept,
 * contents never: files are read through one buffer.
 */
#include "data/corpus.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/size.h"

/* Where a walk is. */
struct corpus_walk {
    struct corpus *corpus;
    const struct corpus_spec *spec;
    size_t input;
    bool out_known; /* out_dir exists, and is this: */
    dev_t out_device;
    ino_t out_inode;
    char **folders; /* visited and to be visited */
    size_t folder_count, folder_capacity;
};

static enum gt_status walk_input(struct corpus_walk *walk, const char *path);
static void walk_release(struct corpus_walk *walk);

enum gt_status corpus_create(struct hostmem *mem, const struct corpus_spec *spec, struct corpus **out)
{
    void *memory = NULL;
    TRY(hostmem_alloc(mem, 1, sizeof(struct corpus), "corpus", &memory));
    struct corpus *corpus = memory;
    corpus->mem = mem;
    struct corpus_walk walk = {.corpus = corpus, .spec = spec};
    struct stat info;
    if (spec->out_dir != NULL && stat(spec->out_dir, &info) == 0) {
        walk.out_known = true;
        walk.out_device = info.st_dev;
        walk.out_inode = info.st_ino;
    }
    enum gt_status status = GT_OK;
    for (walk.input = 0; walk.input < spec->input_count && status == GT_OK; walk.input++)
        status = walk_input(&walk, spec->inputs[walk.input]);
    walk_release(&walk);
    if (status == GT_OK)
        *out = corpus;
    else
        corpus_destroy(corpus);
    return status;
}

void corpus_destroy(struct corpus *corpus)
{
    if (corpus == NULL)
        return;
    for (size_t i = 0; i < corpus->file_count; i++)
        hostmem_free(corpus->mem, corpus->files[i].path);
    hostmem_free(corpus->mem, corpus->files);
    hostmem_free(corpus->mem, corpus);
}

/* ---- growing lists ---- */

/* Makes room for one more element of `size` bytes. */
static enum gt_status list_grow(struct hostmem *mem, size_t size, size_t count, size_t *capacity, void **list)
{
    if (count < *capacity)
        return GT_OK;
    void *larger = NULL;
    const size_t capacity_next = *capacity < 64 ? 64 : *capacity + *capacity / 2;
    TRY(hostmem_alloc(mem, capacity_next, size, "list of files", &larger));
    if (count > 0)
        memcpy(larger, *list, count * size);
    hostmem_free(mem, *list);
    *list = larger;
    *capacity = capacity_next;
    return GT_OK;
}

static enum gt_status walk_add_file(struct corpus_walk *walk, const char *path, uint64_t size_bytes, bool from_folder)
{
    struct corpus *corpus = walk->corpus;
    void *list = corpus->files;
    TRY(list_grow(corpus->mem, sizeof corpus->files[0], corpus->file_count, &corpus->file_capacity, &list));
    corpus->files = list;
    struct corpus_file *file = &corpus->files[corpus->file_count];
    *file = (struct corpus_file){.size_bytes = size_bytes, .input = walk->input, .from_folder = from_folder};
    TRY(hostmem_strdup(corpus->mem, path, &file->path));
    corpus->file_count++;
    corpus->size_bytes += size_bytes;
    return GT_OK;
}

static enum gt_status walk_add_folder(struct corpus_walk *walk, const char *path)
{
    void *list = walk->folders;
    TRY(list_grow(walk->corpus->mem, sizeof walk->folders[0], walk->folder_count, &walk->folder_capacity, &list));
    walk->folders = list;
    TRY(hostmem_strdup(walk->corpus->mem, path, &walk->folders[walk->folder_count]));
    walk->folder_count++;
    return GT_OK;
}

static void walk_release(struct corpus_walk *walk)
{
    for (size_t i = 0; i < walk->folder_count; i++)
        hostmem_free(walk->corpus->mem, walk->folders[i]);
    hostmem_free(walk->corpus->mem, walk->folders);
    walk->folders = NULL;
    walk->folder_count = walk->folder_capacity = 0;
}

/* ---- walking ---- */

static bool walk_is_out_dir(const struct corpus_walk *walk, const struct stat *info)
{
    return walk->out_known && info->st_dev == walk->out_device && info->st_ino == walk->out_inode;
}

static bool walk_is_output_name(const struct corpus_walk *walk, const char *name)
{
    for (size_t i = 0; i < walk->spec->out_name_count; i++)
        if (strcmp(name, walk->spec->out_names[i]) == 0)
            return true;
    return false;
}

static enum gt_status walk_entry(struct corpus_walk *walk, int fd, const char *folder, const char *name,
                                 bool in_out_dir)
{
    struct stat info;
    char path[FILE_PATH_MAX];
    if (name[0] == '.' || (in_out_dir && walk_is_output_name(walk, name)))
        return GT_OK;
    TRY(file_join(path, folder, name));
    if (fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        log_error("%s: stat: %s", path, strerror(errno));
        return GT_IO;
    }
    if (S_ISDIR(info.st_mode) && !walk_is_out_dir(walk, &info))
        return walk_add_folder(walk, path);
    if (S_ISREG(info.st_mode))
        return walk_add_file(walk, path, (uint64_t)info.st_size, true);
    return GT_OK;
}

static enum gt_status walk_folder(struct corpus_walk *walk, const char *path)
{
    struct stat info;
    DIR *stream = opendir(path);
    if (stream == NULL || fstat(dirfd(stream), &info) != 0) {
        log_error("%s: cannot read this folder: %s", path, strerror(errno));
        if (stream != NULL)
            closedir(stream);
        return GT_IO;
    }
    const bool in_out_dir = walk_is_out_dir(walk, &info);
    enum gt_status status = GT_OK;
    errno = 0;
    const struct dirent *entry = readdir(stream);
    while (entry != NULL && status == GT_OK) {
        status = walk_entry(walk, dirfd(stream), path, entry->d_name, in_out_dir);
        errno = 0;
        entry = readdir(stream);
    }
    if (status == GT_OK && errno != 0) {
        log_error("%s: readdir: %s", path, strerror(errno));
        status = GT_IO;
    }
    closedir(stream);
    return status;
}

static int file_compare(const void *a, const void *b)
{
    return strcmp(((const struct corpus_file *)a)->path, ((const struct corpus_file *)b)->path);
}

static enum gt_status walk_input(struct corpus_walk *walk, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        log_error("INPUT %s: %s", path, strerror(errno));
        return GT_USAGE;
    }
    if (S_ISREG(info.st_mode))
        return walk_add_file(walk, path, (uint64_t)info.st_size, false);
    if (!S_ISDIR(info.st_mode)) {
        log_error("INPUT %s: neither a regular file nor a folder (inputs are read twice)", path);
        return GT_USAGE;
    }
    const size_t first_file = walk->corpus->file_count;
    size_t next = walk->folder_count;
    TRY(walk_add_folder(walk, path));
    /* Bounded by the folders below `path`: links are not followed, so no folder is met twice. */
    for (; next < walk->folder_count; next++)
        TRY(walk_folder(walk, walk->folders[next]));
    const size_t found = walk->corpus->file_count - first_file;
    if (found > 0)
        qsort(walk->corpus->files + first_file, found, sizeof walk->corpus->files[0], file_compare);
    return GT_OK;
}

/* ---- reading ---- */

enum gt_status corpus_reader_open(struct corpus_reader *reader, const char *path, unsigned char *buffer,
                                  size_t capacity, uint32_t crc32c)
{
    assert(capacity >= 4);
    *reader = (struct corpus_reader){.path = path, .fd = -1, .bytes = buffer, .capacity = capacity, .crc32c = crc32c};
    return file_open_read(path, &reader->fd, &reader->size_bytes);
}

enum gt_status corpus_reader_fill(struct corpus_reader *reader)
{
    assert(reader->used <= reader->count);
    const size_t kept = reader->count - reader->used;
    assert(kept < reader->capacity);
    memmove(reader->bytes, reader->bytes + reader->used, kept);
    reader->offset += reader->used;
    reader->used = 0;
    reader->count = kept;
    const uint64_t left = reader->size_bytes - reader->offset - kept;
    const size_t room = reader->capacity - kept;
    const size_t count = left < room ? (size_t)left : room;
    if (count == 0)
        return GT_OK;
    TRY(file_read_at(reader->fd, reader->path, reader->offset + kept, reader->bytes + kept, count));
    reader->crc32c = file_crc32c(reader->crc32c, reader->bytes + kept, count);
    reader->count = kept + count;
    return GT_OK;
}

bool corpus_reader_at_end(const struct corpus_reader *reader)
{
    return reader->offset + reader->count == reader->size_bytes;
}

void corpus_reader_close(struct corpus_reader *reader)
{
    if (reader->fd >= 0)
        close(reader->fd);
    reader->fd = -1;
}
