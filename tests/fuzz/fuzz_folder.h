/* Shared code of the targets that need a folder: it is created once and removed at the end, and
 * contains a foreign file that must survive.
 */
#ifndef GPT_TRAIN_FUZZ_FOLDER_H
#define GPT_TRAIN_FUZZ_FOLDER_H

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/fuzz/fuzz_common.h"

#define FUZZ_FOREIGN_NAME "mine.txt"

/* `above` is the temporary folder; `folder` is a subfolder of it, or the same path. */
static struct {
    char above[64], folder[128];
} fuzz_place;

static inline void fuzz_path(char path[static FILE_PATH_MAX], const char *name)
{
    file_join(path, fuzz_place.folder, name);
}

static inline void fuzz_file_put(const char *path, const void *data, size_t size)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
}

/* Removes all files except the foreign one. */
static inline void fuzz_folder_empty(void)
{
    DIR *entries = opendir(fuzz_place.folder);
    FUZZ_CHECK(entries != NULL);
    for (const struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries))
        if (entry->d_type == DT_REG && strcmp(entry->d_name, FUZZ_FOREIGN_NAME) != 0)
            unlinkat(dirfd(entries), entry->d_name, 0);
    closedir(entries);
}

static inline void fuzz_folder_remove(void)
{
    char path[FILE_PATH_MAX];
    fuzz_folder_empty();
    fuzz_path(path, FUZZ_FOREIGN_NAME);
    unlink(path);
    rmdir(fuzz_place.folder);
    if (strcmp(fuzz_place.folder, fuzz_place.above) == 0)
        return;
    *strrchr(fuzz_place.folder, '/') = '\0'; /* a cache's folder is two levels deep */
    rmdir(fuzz_place.folder);
    rmdir(fuzz_place.above);
}

/* Creates the folder at the first input.  `below` is a path of at most two folders, or "". */
static inline void fuzz_folder_make(const char *below)
{
    char path[FILE_PATH_MAX];
    if (fuzz_place.above[0] != '\0')
        return;
    snprintf(fuzz_place.above, sizeof fuzz_place.above, "%s/gpt-train-fuzz-XXXXXX", fuzz_folder());
    FUZZ_CHECK(mkdtemp(fuzz_place.above) != NULL);
    snprintf(fuzz_place.folder, sizeof fuzz_place.folder, "%s%s%s", fuzz_place.above,
             below[0] != '\0' ? "/" : "", below);
    FUZZ_CHECK(file_make_folders(fuzz_place.folder) == GT_OK);
    fuzz_path(path, FUZZ_FOREIGN_NAME);
    fuzz_file_put(path, "mine", 4);
    FUZZ_CHECK(atexit(fuzz_folder_remove) == 0);
}

/* Checks that the foreign file is unchanged. */
static inline void fuzz_folder_check(void)
{
    struct stat status;
    char path[FILE_PATH_MAX];
    fuzz_path(path, FUZZ_FOREIGN_NAME);
    FUZZ_CHECK(lstat(path, &status) == 0 && status.st_size == 4);
}

#endif
