/* Folders of tests, below TMPDIR or /tmp, and files in them. */
#ifndef GPT_TRAIN_UNIT_SCRATCH_H
#define GPT_TRAIN_UNIT_SCRATCH_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static inline void scratch_make(char folder[static FILE_PATH_MAX])
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(folder, FILE_PATH_MAX, "%s/gpt-train-unit-XXXXXX", base != NULL ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

/* Removes the folder with everything in it. */
static inline void scratch_remove(const char *folder)
{
    char command[FILE_PATH_MAX + 16];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

static inline void scratch_write(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, count, file), count);
    ck_assert_int_eq(fclose(file), 0);
}

/* Writes `text` to FOLDER/NAME; makes the folders in between. */
static inline void scratch_put(const char *folder, const char *name, const char *text)
{
    char path[FILE_PATH_MAX];
    file_join(path, folder, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    ck_assert_int_eq(file_make_folders(path), GT_OK);
    *slash = '/';
    scratch_write(path, text, strlen(text));
}

#endif
