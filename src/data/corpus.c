/* A corpus: walks folders without recursion.
 *
 * The walk appends the folders it finds to the list that it iterates over, so depth is unlimited.
 * The files of one input are sorted when its walk ends, which makes the order independent of the
 * file system.  input.c reads them.
 */
#include "data/corpus.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/platform.h"

/* The state of a walk. */
struct corpus_walk {
    struct corpus *corpus;
    const struct corpus_spec *spec;
    size_t input;
    bool out_known; /* out_dir exists; the next two fields identify it */
    dev_t out_device;
    ino_t out_inode;
    char **folders; /* visited and pending */
    size_t folder_count;
};

/* Identifies the output folder, so that outputs are not taken for inputs.  A folder that does not
 * exist has no identity. */
static enum gt_status out_dir_know(struct corpus_walk *walk, const char *out_dir)
{
    struct stat info;
    if (out_dir == NULL)
        return GT_OK;
    walk->out_known = stat(out_dir, &info) == 0;
    if (!walk->out_known)
        return errno == ENOENT || errno == ENOTDIR ? GT_OK : file_error(out_dir, "access it");
    walk->out_device = info.st_dev;
    walk->out_inode = info.st_ino;
    return GT_OK;
}

/* ---- lists ---- */

/* Times before 1677 and from 2262 on wrap around, since they are only compared. */
static int64_t changed_ns_of(const struct stat *info)
{
    return (int64_t)((uint64_t)info->PLATFORM_MTIM.tv_sec * 1000000000 +
                     (uint64_t)info->PLATFORM_MTIM.tv_nsec);
}

/* Adds a file; `info` is NULL for standard input. */
static enum gt_status walk_add_file(struct corpus_walk *walk, const char *path,
                                    const struct stat *info, bool from_folder)
{
    struct corpus_file file = {
        .input = walk->input, .from_folder = from_folder, .is_stdin = info == NULL};
    struct corpus *corpus = walk->corpus;
    TRY(HOSTMEM_GROW(corpus, &corpus->files, corpus->file_count + 1, "list of files"));
    file.size_bytes = info != NULL ? (uint64_t)info->st_size : 0;
    file.changed_ns = info != NULL ? changed_ns_of(info) : 0;
    file.path = strdup(path); /* hostmem's headers would double the memory of a million paths */
    if (file.path == NULL)
        return FAIL(GT_NO_MEMORY, "out of memory for the list of files");
    corpus->files[corpus->file_count++] = file;
    corpus->size_bytes += file.size_bytes;
    return GT_OK;
}

static enum gt_status walk_add_stdin(struct corpus_walk *walk)
{
    if (walk->corpus->has_stdin)
        return FAIL(GT_USAGE, "INPUT %s: standard input can be given only once", CORPUS_STDIN);
    walk->corpus->has_stdin = true;
    return walk_add_file(walk, CORPUS_STDIN, NULL, false);
}

static enum gt_status walk_add_folder(struct corpus_walk *walk, const char *path)
{
    TRY(HOSTMEM_GROW(walk, &walk->folders, walk->folder_count + 1, "list of files"));
    TRY(hostmem_strdup(walk, path, &walk->folders[walk->folder_count]));
    walk->folder_count++;
    return GT_OK;
}

/* ---- walking ---- */

static bool walk_is_out_dir(const struct corpus_walk *walk, const struct stat *info)
{
    return walk->out_known && info->st_dev == walk->out_device && info->st_ino == walk->out_inode;
}

static enum gt_status walk_entry(struct corpus_walk *walk, int fd, const char *folder,
                                 const char *name, bool in_out_dir)
{
    struct stat info;
    if (name[0] == '.' ||
        (in_out_dir && walk->spec->is_output != NULL && walk->spec->is_output(name)))
        return GT_OK;
    const char *path = FILE_IN(folder, name);
    if (fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return file_error(path, "access it");
    if (S_ISDIR(info.st_mode) && !walk_is_out_dir(walk, &info))
        return walk_add_folder(walk, path);
    if (S_ISREG(info.st_mode))
        return walk_add_file(walk, path, &info, true);
    return GT_OK;
}

static enum gt_status walk_folder(struct corpus_walk *walk, const char *path)
{
    struct stat info;
    DIR *dir = NULL;
    enum gt_status status = GT_OK;
    if (stat(path, &info) != 0)
        return file_error(path, "list this folder");
    if (file_exists(FILE_IN(path, "state.json")) && file_exists(FILE_IN(path, "dataset_info.json")))
        return FAIL(GT_USAGE,
                    "%s: this folder is a data set of the library datasets, whose rows are Arrow; "
                    "python3 -c 'import datasets, sys; "
                    "datasets.load_from_disk(sys.argv[1]).to_json(\"rows.jsonl\")' %s",
                    path, file_shell_quote((char[FILE_PATH_MAX]){0}, FILE_PATH_MAX, path));
    const bool in_out_dir = walk_is_out_dir(walk, &info);
    for (const char *name; (name = file_next(path, &dir, &status)) != NULL;)
        status = walk_entry(walk, dirfd(dir), path, name, in_out_dir);
    return status;
}

static int file_compare(const void *a, const void *b)
{
    return strcmp(((const struct corpus_file *)a)->path, ((const struct corpus_file *)b)->path);
}

/* Returns true when `path` is the name of an output in out_dir. */
static bool walk_is_output(const struct corpus_walk *walk, const char *path)
{
    struct stat info;
    char folder[FILE_PATH_MAX];
    if (walk->spec->is_output == NULL || !walk->spec->is_output(file_name_of(path)))
        return false;
    file_folder_of(folder, path);
    return stat(folder, &info) == 0 && walk_is_out_dir(walk, &info);
}

/* Adds a file that the user named, whatever its name.  Refuses one that the output would replace,
 * whether by this name or by the target of a link. */
static enum gt_status walk_input_file(struct corpus_walk *walk, const char *path,
                                      const struct stat *info)
{
    char *target = realpath(path, NULL);
    const bool is_output =
        walk_is_output(walk, path) ||
        (target != NULL && strlen(target) < FILE_PATH_MAX && walk_is_output(walk, target));
    free(target);
    if (!is_output)
        return walk_add_file(walk, path, info, false);
    return FAIL(
        GT_USAGE,
        "INPUT %s: the output would replace this file; choose another --out-dir, or move the file",
        path);
}

static enum gt_status walk_input(struct corpus_walk *walk, const char *path)
{
    struct stat info;
    if (strcmp(path, CORPUS_STDIN) == 0)
        return walk_add_stdin(walk);
    if (stat(path, &info) != 0 || strlen(path) >= FILE_PATH_MAX)
        return FAIL(GT_USAGE, "INPUT %s: %s", path,
                    strerror(strlen(path) >= FILE_PATH_MAX ? ENAMETOOLONG : errno));
    if (S_ISREG(info.st_mode))
        return walk_input_file(walk, path, &info);
    if (!S_ISDIR(info.st_mode))
        return FAIL(GT_USAGE,
                    "INPUT %s: neither a regular file nor a folder; to read a pipe, "
                    "connect it to standard input and give -",
                    path);
    const size_t first_file = walk->corpus->file_count;
    size_t next = walk->folder_count;
    TRY(walk_add_folder(walk, path));
    /* Bounded by the folders below `path`: links are not followed, so each folder is visited once.
     */
    for (; next < walk->folder_count; next++)
        TRY(walk_folder(walk, walk->folders[next]));
    const size_t found = walk->corpus->file_count - first_file;
    if (found > 0)
        qsort(walk->corpus->files + first_file, found, sizeof walk->corpus->files[0], file_compare);
    return GT_OK;
}

static void paths_free(void *object)
{
    struct corpus *corpus = object;
    for (size_t i = 0; i < corpus->file_count; i++)
        free((char *)corpus->files[i].path);
}

static enum gt_status corpus_walk(struct corpus *corpus, const struct corpus_spec *spec)
{
    struct corpus_walk *walk;
    TRY(HOSTMEM_NEW(corpus, 1, "list of folders", &walk));
    walk->corpus = corpus;
    walk->spec = spec;
    TRY(out_dir_know(walk, spec->out_dir));
    for (; walk->input < spec->input_count; walk->input++)
        TRY(walk_input(walk, spec->inputs[walk->input]));
    hostmem_free(walk);
    return GT_OK;
}

enum gt_status corpus_create(const void *owner, const struct corpus_spec *spec, struct corpus **out)
{
    struct corpus *corpus;
    TRY(HOSTMEM_NEW(owner, 1, "corpus", &corpus));
    hostmem_at_free(corpus, paths_free);
    enum gt_status status = corpus_walk(corpus, spec);
    return FINISH(status, out, corpus, hostmem_free);
}

enum gt_status corpus_file_check(const struct corpus_file *file)
{
    struct stat info;
    if (file->is_stdin)
        return GT_OK;
    if (stat(file->path, &info) != 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? FAIL(GT_DATA, "%s: the file was removed while it was read", file->path)
                   : file_error(file->path, "access it");
    if ((uint64_t)info.st_size == file->size_bytes && changed_ns_of(&info) == file->changed_ns)
        return GT_OK;
    return FAIL(GT_DATA,
                "%s: the file changed while it was read: it had %" PRIu64
                " bytes when it was listed, it has %" PRIu64 " now, or its time changed",
                file->path, file->size_bytes, (uint64_t)info.st_size);
}

uint32_t corpus_crc32c(const struct corpus *corpus)
{
    uint32_t crc = 0;
    for (size_t i = 0; i < corpus->file_count; i++) {
        const struct corpus_file *file = &corpus->files[i];
        crc = file_crc32c(crc, file->path, strlen(file->path) + 1);
        crc = file_crc32c(crc, &file->size_bytes, sizeof file->size_bytes);
        crc = file_crc32c(crc, &file->changed_ns, sizeof file->changed_ns);
    }
    return crc;
}
