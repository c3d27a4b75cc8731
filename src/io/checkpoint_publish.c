/* Publishes a generation and removes old ones; checkpoint_repair().
 *
 * model.safetensors is a hard link to the generation's file, so it takes no space and cannot differ from it; on a file
 * system without links it is a copy.  Every change is one rename, so a reader sees the old file or the new one.  Only
 * regular files whose names have exactly our form are removed.  Sizes are compared before contents.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/checkpoint.h"

bool checkpoint_publish_is_link(const char *folder, const char *name)
{
    struct stat a, b;
    return lstat(FILE_IN(folder, CHECKPOINT_MODEL_NAME), &a) == 0 && lstat(FILE_IN(folder, name), &b) == 0 &&
           a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

enum gt_status checkpoint_publish_model(const char *folder, const char *name, bool may_link)
{
    if (checkpoint_publish_is_link(folder, name))
        return GT_OK; /* a rename between two names of one file would do nothing */
    const char *from = FILE_IN(folder, name);
    const char *to = FILE_IN(folder, CHECKPOINT_MODEL_NAME);
    const char *aside = FILE_IN(folder, CHECKPOINT_MODEL_NAME ".tmp-0"); /* file_remove_leftovers() knows this form */
    (void)unlink(aside);
    if (!may_link || link(from, aside) != 0)
        return file_copy(from, to, UINT64_MAX);
    if (rename(aside, to) == 0)
        return file_sync_folder(folder);
    const enum gt_status status = file_error(to, "rename the new file over it");
    (void)unlink(aside);
    return status;
}

bool checkpoint_json_equals(const char *path, const json_t *value)
{
    char *text;
    if (json_file_text(value, CHECKPOINT_JSON_INDENT, &text) != GT_OK)
        return false;
    const bool same = file_matches(path, strlen(text), file_crc32c(0, text, strlen(text)));
    free(text);
    return same;
}

enum gt_status checkpoint_publish_retract(const char *folder, const json_t *config)
{
    const char *path = FILE_IN(folder, CHECKPOINT_CONFIG_NAME);
    if (checkpoint_json_equals(path, config))
        return GT_OK;
    if (unlink(path) == 0)
        return file_sync_folder(folder);
    return errno == ENOENT ? GT_OK : file_error(path, "remove this file of another model");
}

enum gt_status checkpoint_publish_config(const char *folder, const json_t *config, bool *out_changed)
{
    const char *path = FILE_IN(folder, CHECKPOINT_CONFIG_NAME);
    mode_t mode;
    bool exists, is_known;
    if (checkpoint_json_equals(path, config)) {
        *out_changed = false;
        return GT_OK;
    }
    TRY(file_look(path, &exists));
    TRY(checkpoint_publish_mode(folder, CHECKPOINT_FILE_MODEL, &mode,
                                &is_known)); /* the config of a private model is private too */
    return json_replace_file_told(path, config, CHECKPOINT_JSON_INDENT, !exists && is_known ? &mode : NULL,
                                  out_changed);
}

enum gt_status checkpoint_publish_mode(const char *folder, enum checkpoint_file which, mode_t *out, bool *out_found)
{
    struct stat info;
    DIR *dir = NULL;
    enum gt_status status = GT_OK;
    *out = 0777;
    *out_found = false;
    for (const char *name; (name = file_next(folder, &dir, &status)) != NULL;) {
        if (!checkpoint_file_name_valid(name, which) &&
            (which != CHECKPOINT_FILE_MODEL || strcmp(name, CHECKPOINT_MODEL_NAME) != 0))
            continue;
        if (fstatat(dirfd(dir), name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
            status = file_error(folder, "look at the files in this folder");
        } else if (S_ISREG(info.st_mode)) {
            *out &= info.st_mode & 0777;
            *out_found = true;
        }
    }
    return status;
}

size_t checkpoint_publish_clean(const char *folder, const char *model_name, const char *optimizer_name)
{
    size_t removed = 0;
    DIR *dir = NULL;
    for (const char *name; (name = file_next(folder, &dir, NULL)) != NULL;) {
        struct stat info;
        const bool generation = checkpoint_file_name_valid(name, CHECKPOINT_FILE_MODEL) ||
                                checkpoint_file_name_valid(name, CHECKPOINT_FILE_OPTIMIZER);
        if (!generation || strcmp(name, model_name) == 0 || strcmp(name, optimizer_name) == 0)
            continue;
        if (fstatat(dirfd(dir), name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) &&
            unlinkat(dirfd(dir), name, 0) == 0)
            removed++;
    }
    return removed;
}

/* Returns true when the file exists with the recorded size. */
static bool is_whole(const char *out_dir, const struct checkpoint_file_record *file)
{
    struct stat info;
    return stat(FILE_IN(out_dir, file->name), &info) == 0 && (uint64_t)info.st_size == file->size_bytes;
}

/* Does not publish a generation whose own file is missing or truncated; opening it will report the error. */
static enum gt_status repair_model(const char *out_dir, const struct checkpoint_record *record)
{
    const struct checkpoint_file_record *file = &record->files[CHECKPOINT_FILE_MODEL];
    const char *path = FILE_IN(out_dir, CHECKPOINT_MODEL_NAME);
    if (!is_whole(out_dir, file) || checkpoint_publish_is_link(out_dir, file->name) ||
        file_matches(path, file->size_bytes, file->crc32c))
        return GT_OK;
    TRY(checkpoint_publish_retract(out_dir, record->hf_config));
    TRY(checkpoint_publish_model(out_dir, file->name, true));
    log_note("%s was restored from %s", path, file->name);
    return GT_OK;
}

enum gt_status checkpoint_repair(const char *out_dir)
{
    struct checkpoint_record record;
    bool has_record, changed = false;
    TRY(file_look(FILE_IN(out_dir, CHECKPOINT_RECORD_NAME), &has_record));
    file_remove_leftovers(out_dir, true);
    if (!has_record) {
        (void)checkpoint_publish_clean(out_dir, "", "");
        return GT_OK;
    }
    TRY(checkpoint_record_read(out_dir, &record));
    enum gt_status status;
    const struct checkpoint_file_record *model = &record.files[CHECKPOINT_FILE_MODEL];
    const struct checkpoint_file_record *optimizer = &record.files[CHECKPOINT_FILE_OPTIMIZER];
    TRY_GOTO(status, release_record, repair_model(out_dir, &record));
    if (record.adapter == NULL)
        TRY_GOTO(status, release_record, checkpoint_publish_config(out_dir, record.hf_config, &changed));
    if (changed)
        log_note("%s/%s was updated to match %s", out_dir, CHECKPOINT_CONFIG_NAME, CHECKPOINT_RECORD_NAME);
    if (is_whole(out_dir, model) && is_whole(out_dir, optimizer)) /* else the other files may be all that is left */
        (void)checkpoint_publish_clean(out_dir, model->name, optimizer->name);
release_record:
    checkpoint_record_release(&record);
    return status;
}
