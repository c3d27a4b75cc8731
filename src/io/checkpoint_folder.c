/* The files of out_dir: publishes a generation and removes old ones; keeps checkpoints, as folders
 * of hard links inside out_dir; checkpoint_repair().
 *
 * model.safetensors is a hard link to the generation's file, so it takes no space and cannot differ
 * from it; on a file system without links it is a copy.  Every change is one rename, so a reader
 * sees the old file or the new one.  Only regular files whose names have exactly our form are
 * removed.  Sizes are compared before contents.
 *
 * A kept folder is filled under the name checkpoint.tmp, synced and renamed; it is renamed back
 * before its files are removed.  A folder with one of our final names is therefore complete.  Files
 * are linked, since no file of a checkpoint is written to once it is in place.  They are copied if
 * the file system refuses links; the metrics are always copied, since they are appended to. Nothing
 * is allocated except the JSON of records.
 */

#include "io/checkpoint_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "data/tokenizer.h"
#include "data/tokenizer_export.h"
#include "io/checkpoint_record.h"
#include "report/run_record.h"

#define ASIDE_NAME "checkpoint.tmp"
#define NAME_MAX_BYTES 64

/* ---- publishing ---- */

bool checkpoint_publish_is_link(const char *folder, const char *name)
{
    struct stat a, b;
    return lstat(FILE_IN(folder, CHECKPOINT_MODEL_NAME), &a) == 0 &&
           lstat(FILE_IN(folder, name), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

enum gt_status checkpoint_publish_model(const char *folder, const char *name, bool may_link)
{
    if (checkpoint_publish_is_link(folder, name))
        return GT_OK; /* a rename between two names of one file would do nothing */
    const char *from = FILE_IN(folder, name);
    const char *to = FILE_IN(folder, CHECKPOINT_MODEL_NAME);
    const char *aside = FILE_IN(folder, CHECKPOINT_MODEL_NAME
                                ".tmp-0"); /* file_remove_leftovers() knows this form */
    (void)unlink(aside);
    if (!may_link || link(from, aside) != 0)
        return file_copy(from, to, UINT64_MAX);
    if (rename(aside, to) == 0)
        return file_sync_folder(folder);
    const enum gt_status status = file_error(to, "rename the new file over it");
    (void)unlink(aside);
    return status;
}

/* Returns true when the file at `path` is what json_replace_file() would write.  Logs nothing when
 * it is absent. */
static bool json_equals(const char *path, const json_t *value)
{
    char *text;
    if (json_text(value, CHECKPOINT_JSON_INDENT, "\n", &text) != GT_OK)
        return false;
    const bool same = file_matches(path, strlen(text), file_crc32c(0, text, strlen(text)));
    free(text);
    return same;
}

enum gt_status checkpoint_publish_retract(const char *folder, const json_t *config)
{
    const char *path = FILE_IN(folder, CHECKPOINT_CONFIG_NAME);
    if (json_equals(path, config))
        return GT_OK;
    if (unlink(path) == 0)
        return file_sync_folder(folder);
    return errno == ENOENT ? GT_OK : file_error(path, "remove this file of another model");
}

enum gt_status checkpoint_publish_config(const char *folder, const json_t *config,
                                         bool *out_changed)
{
    const char *path = FILE_IN(folder, CHECKPOINT_CONFIG_NAME);
    mode_t mode;
    bool exists, is_known;
    if (json_equals(path, config)) {
        *out_changed = false;
        return GT_OK;
    }
    TRY(file_stat_exists(path, &exists));
    TRY(checkpoint_publish_mode(folder, CHECKPOINT_FILE_MODEL, &mode,
                                &is_known)); /* keeps the config of a private model private */
    return json_replace_file_keep_mode(path, config, CHECKPOINT_JSON_INDENT,
                                       !exists && is_known ? &mode : NULL, out_changed);
}

enum gt_status checkpoint_publish_mode(const char *folder, enum checkpoint_file which, mode_t *out,
                                       bool *out_found)
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

void checkpoint_publish_clean(const char *folder, const char *model_name,
                              const char *optimizer_name)
{
    DIR *dir = NULL;
    for (const char *name; (name = file_next(folder, &dir, NULL)) != NULL;) {
        struct stat info;
        const bool generation = checkpoint_file_name_valid(name, CHECKPOINT_FILE_MODEL) ||
                                checkpoint_file_name_valid(name, CHECKPOINT_FILE_OPTIMIZER);
        if (generation && strcmp(name, model_name) != 0 && strcmp(name, optimizer_name) != 0 &&
            fstatat(dirfd(dir), name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode))
            (void)unlinkat(dirfd(dir), name, 0);
    }
}

/* ---- kept folders ---- */

/* A kind of folder.  Its names are the prefix and a number with at least this many digits. */
struct family {
    const char *prefix;
    int digits;
};
static const struct family earlier_runs = {"earlier-", 3}, kept_ones = {"checkpoint-", 6};
static const struct family trainers_ones = {"checkpoint-", 1}; /* of transformers' Trainer */

#define NAME_OF(family, number) \
    TEXT(NAME_MAX_BYTES, "%s%0*" PRId64, (family)->prefix, (family)->digits, number)

/* Returns the highest number below `below` among the folders of a family; -1 if there is none. */
static int64_t number_below(const char *out_dir, const struct family *family, int64_t below)
{
    const size_t length = strlen(family->prefix);
    int64_t highest = -1;
    DIR *dir = NULL;
    for (const char *found; (found = file_next(out_dir, &dir, NULL)) != NULL;) {
        if (strncmp(found, family->prefix, length) != 0 || strlen(found) > length + 18)
            continue;
        const int64_t number = strtoll(found + length, NULL, 10);
        if (number > highest && number < below && strcmp(found, NAME_OF(family, number)) == 0)
            highest = number;
    }
    return highest;
}

static int64_t number_last(const char *out_dir, const struct family *family)
{
    return number_below(out_dir, family, INT64_MAX);
}

bool checkpoint_keep_belongs(const char *name)
{
    static const char *const names[] = {CHECKPOINT_RECORD_NAME, CHECKPOINT_MODEL_NAME,
                                        CHECKPOINT_CONFIG_NAME, SAFETENSORS_INDEX_NAME};
    static const char end[] = ".safetensors";
    const size_t length = strlen(name);
    bool found = (strncmp(name, "model-", 6) == 0 || strncmp(name, "optimizer-", 10) == 0) &&
                 length > sizeof end && strcmp(name + length - (sizeof end - 1), end) == 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        found = found || strcmp(name, names[i]) == 0;
    for (size_t i = 0; i < TOKENIZER_FILES; i++)
        found = found || strcmp(name, tokenizer_file_names[i]) == 0;
    return found;
}

/* ---- making and removing a folder ---- */

/* Removes a folder that contains only files. */
static void folder_remove(const char *path)
{
    struct stat info;
    DIR *dir = NULL;
    if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return;
    for (const char *name; (name = file_next(path, &dir, NULL)) != NULL;)
        (void)unlinkat(dirfd(dir), name, 0); /* fails for ".", ".." and folders */
    (void)rmdir(path);
}

/* Links a file into `folder`, or copies it.  The target of a symbolic link is copied too, since a
 * relative link would not reach it from here. */
static enum gt_status file_add(const char *out_dir, const char *name, const char *folder)
{
    struct stat info;
    const char *from = FILE_IN(out_dir, name);
    const char *to = FILE_IN(folder, name);
    if (lstat(from, &info) == 0 && S_ISREG(info.st_mode) && link(from, to) == 0)
        return GT_OK;
    return file_copy(from, to, UINT64_MAX);
}

static enum gt_status files_add(const char *out_dir, const char *folder)
{
    enum gt_status status = GT_OK;
    DIR *dir = NULL;
    for (const char *name; (name = file_next(out_dir, &dir, &status)) != NULL;)
        if (checkpoint_keep_belongs(name))
            status = file_add(out_dir, name, folder);
    return status;
}

static enum gt_status metrics_add(const char *out_dir, const char *metrics, const char *folder)
{
    bool exists = false;
    const char *from = FILE_IN(out_dir, metrics);
    if (metrics[0] != '\0')
        TRY(file_stat_exists(from, &exists));
    return exists ? file_copy(from, FILE_IN(folder, METRICS_NAME), UINT64_MAX) : GT_OK;
}

/* Creates the folder `path`, in out_dir, from the checkpoint in out_dir. */
static enum gt_status folder_make(const char *out_dir, const char *path, const char *metrics)
{
    struct stat info;
    const char *aside = FILE_IN(out_dir, ASIDE_NAME);
    folder_remove(aside);
    if (stat(out_dir, &info) != 0 || mkdir(aside, info.st_mode & 0777) != 0)
        return file_error(aside, "create the folder");
    enum gt_status status = files_add(out_dir, aside);
    THEN(status, metrics_add(out_dir, metrics, aside));
    THEN(status, file_sync_folder(aside));
    if (status == GT_OK && rename(aside, path) == 0)
        return file_sync_folder(out_dir); /* before a new record replaces this one */
    THEN(status, file_error(path, "rename the new folder to it"));
    folder_remove(aside);
    return status;
}

/* Returns true when out_dir's model is the one in this folder. */
static bool is_made(const char *out_dir, const struct family *family, int64_t number)
{
    return checkpoint_publish_is_link(out_dir,
                                      FILE_IN(NAME_OF(family, number), CHECKPOINT_MODEL_NAME));
}

/* Removes a kept checkpoint, unless its folder contains other files. */
static void kept_remove(const char *out_dir, int64_t iter)
{
    const char *path = FILE_IN(out_dir, NAME_OF(&kept_ones, iter)),
               *aside = FILE_IN(out_dir, ASIDE_NAME);
    enum gt_status status = GT_OK;
    bool ours = true;
    if (!file_is_folder(path))
        return;
    DIR *dir = NULL;
    for (const char *name; (name = file_next(path, &dir, &status)) != NULL;)
        ours = ours && (checkpoint_keep_belongs(name) || strspn(name, ".") == strlen(name));
    folder_remove(aside);
    if (status == GT_OK && ours && rename(path, aside) == 0)
        folder_remove(aside);
}

/* ---- checkpoints of an earlier run ---- */

/* Returns the number of the folder with out_dir's checkpoint if there is one (*made), else the next
 * number. */
static int64_t earlier_number(const char *out_dir, bool *made)
{
    const int64_t last = number_last(out_dir, &earlier_runs);
    *made = last > 0 && is_made(out_dir, &earlier_runs, last);
    return *made ? last : last < 0 ? 1 : last + 1;
}

bool checkpoint_keep_earlier_next(const char *out_dir, char path[static FILE_PATH_MAX])
{
    bool made;
    file_join(path, out_dir, NAME_OF(&earlier_runs, earlier_number(out_dir, &made)));
    return file_exists(FILE_IN(out_dir, CHECKPOINT_RECORD_NAME));
}

bool checkpoint_keep_earlier_last(const char *out_dir, char path[static FILE_PATH_MAX])
{
    const int64_t last = number_last(out_dir, &earlier_runs);
    file_join(path, out_dir, NAME_OF(&earlier_runs, last));
    return last >= 0 && file_exists(FILE_IN(path, CHECKPOINT_RECORD_NAME));
}

bool checkpoint_folder_of_trainer(const char *folder, char path[static FILE_PATH_MAX])
{
    const int64_t last = number_last(folder, &trainers_ones);
    file_join(path, folder, NAME_OF(&trainers_ones, last));
    return last >= 0 && file_is_folder(path);
}

/* Moves kept checkpoints of iterations after `after` into the folder of their run. */
static enum gt_status kept_move(const char *out_dir, int64_t after, const char *folder)
{
    int64_t iter;
    while ((iter = number_last(out_dir, &kept_ones)) > after) {
        const char *from = FILE_IN(out_dir, NAME_OF(&kept_ones, iter));
        if (rename(from, FILE_IN(folder, NAME_OF(&kept_ones, iter))) != 0)
            return file_error(from, "move it into the folder of the run that it is of");
    }
    TRY(file_sync_folder(folder));
    return file_sync_folder(out_dir);
}

enum gt_status checkpoint_keep_earlier(const char *out_dir, int64_t after, const char *metrics)
{
    char quoted[FILE_PATH_MAX];
    bool made;
    const char *folder = FILE_IN(out_dir, NAME_OF(&earlier_runs, earlier_number(out_dir, &made)));
    if (!file_exists(FILE_IN(out_dir, CHECKPOINT_RECORD_NAME)) &&
        !file_exists(FILE_IN(out_dir, CHECKPOINT_MODEL_NAME)) &&
        !file_exists(FILE_IN(out_dir, CHECKPOINT_CONFIG_NAME)) &&
        number_last(out_dir, &kept_ones) <= after)
        return GT_OK;
    if (!made)
        TRY(folder_make(out_dir, folder, metrics));
    TRY(kept_move(out_dir, after, folder));
    if (file_exists(FILE_IN(folder, CHECKPOINT_RECORD_NAME)))
        log_result(
            "the earlier run is in %s now; to resume it: gpt-train --out_dir=%s --init_from=resume",
            folder, file_shell_quote(quoted, sizeof quoted, folder));
    else
        log_result("the model that was in %s is in %s now", out_dir, folder);
    return GT_OK;
}

/* ---- checkpoints of this run ---- */

/* Reads a folder's record; *out_iter is -1 without one. */
static enum gt_status record_read_best(const char *folder, int64_t *out_iter, double *out_loss)
{
    struct checkpoint_record record;
    *out_iter = -1;
    *out_loss = INFINITY;
    if (!file_exists(FILE_IN(folder, CHECKPOINT_RECORD_NAME)))
        return GT_OK;
    TRY(checkpoint_record_read(folder, &record));
    *out_iter = record.state.iter;
    *out_loss = record.state.best_val_loss;
    checkpoint_record_release(&record);
    return GT_OK;
}

/* Returns the iteration with the lowest validation loss among the kept checkpoints and out_dir's;
 * -1 if there is none. A record contains the lowest loss so far, so the best checkpoint is the
 * first one with the lowest value. */
static int64_t best_iter(const char *out_dir)
{
    int64_t iter, best = -1;
    double loss, least = INFINITY;
    for (int64_t kept = number_last(out_dir, &kept_ones); kept >= 0;
         kept = number_below(out_dir, &kept_ones, kept)) {
        if (record_read_best(FILE_IN(out_dir, NAME_OF(&kept_ones, kept)), &iter, &loss) == GT_OK &&
            loss <= least && loss < INFINITY) {
            least = loss;
            best = iter;
        }
    }
    return record_read_best(out_dir, &iter, &loss) == GT_OK && loss < least ? iter : best;
}

/* Keeps the checkpoint that the next save replaces. */
static enum gt_status last_keep(const char *out_dir)
{
    int64_t iter;
    double loss;
    TRY(record_read_best(out_dir, &iter, &loss));
    if (iter < 0 || is_made(out_dir, &kept_ones, iter))
        return GT_OK;
    kept_remove(out_dir,
                iter); /* an older checkpoint of this iteration, which was saved again since */
    return folder_make(out_dir, FILE_IN(out_dir, NAME_OF(&kept_ones, iter)), "");
}

enum gt_status checkpoint_keep_last(const char *out_dir, int64_t keep)
{
    if (keep > 1)
        TRY(last_keep(out_dir));
    if ((int64_t)checkpoint_keep_count(out_dir) < keep)
        return GT_OK;
    const int64_t best = keep > 1 ? best_iter(out_dir) : -1;
    int64_t left = keep - 1;
    for (int64_t iter = number_last(out_dir, &kept_ones); iter >= 0;
         iter = number_below(out_dir, &kept_ones, iter))
        if (left-- <= 0 && iter != best)
            kept_remove(out_dir, iter);
    return GT_OK;
}

size_t checkpoint_keep_count(const char *out_dir)
{
    size_t count = 0;
    for (int64_t iter = number_last(out_dir, &kept_ones); iter >= 0;
         iter = number_below(out_dir, &kept_ones, iter))
        count++;
    return count;
}

/* Logs that there is no such checkpoint, and the existing ones. */
static enum gt_status find_error(const char *out_dir, const char *which, int64_t last)
{
    char text[256] = "";
    size_t length = last >= 0 ? (size_t)snprintf(text, sizeof text, "%" PRId64, last) : 0;
    for (int64_t iter = number_last(out_dir, &kept_ones); iter >= 0 && length + 24 < sizeof text;
         iter = number_below(out_dir, &kept_ones, iter))
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%" PRId64,
                                   length > 0 ? ", " : "", iter);
    return FAIL(GT_DATA, "--checkpoint=%s: %s holds no such checkpoint; it holds %s%s", which,
                out_dir, length > 0 ? "those of iterations " : "none", text);
}

enum gt_status checkpoint_keep_find(const char *out_dir, const char *which,
                                    char path[static FILE_PATH_MAX])
{
    const bool best = strcmp(which, "best") == 0;
    int64_t last;
    double loss;
    const size_t digits = strspn(which, "0123456789");
    if (!best && (digits == 0 || which[digits] != '\0' || digits > 18))
        return FAIL(GT_USAGE, "--checkpoint=%s: expected the number of an iteration, or best",
                    which);
    TRY(record_read_best(out_dir, &last, &loss));
    const int64_t iter = best ? best_iter(out_dir) : strtoll(which, NULL, 10);
    const bool is_last = iter == last;
    if (iter < 0 || (!is_last && number_below(out_dir, &kept_ones, iter + 1) != iter))
        return find_error(out_dir, which, last);
    file_join(path, is_last ? "" : out_dir, is_last ? out_dir : NAME_OF(&kept_ones, iter));
    return GT_OK;
}

/* ---- repairing ---- */

/* Returns true when the file exists with the recorded size. */
static bool is_whole(const char *out_dir, const struct checkpoint_file_record *file)
{
    struct stat info;
    return stat(FILE_IN(out_dir, file->name), &info) == 0 &&
           (uint64_t)info.st_size == file->size_bytes;
}

/* Does not publish a generation whose own file is missing or truncated; opening it will report the
 * error. */
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
    TRY(file_stat_exists(FILE_IN(out_dir, CHECKPOINT_RECORD_NAME), &has_record));
    file_remove_leftovers(out_dir, true);
    folder_remove(FILE_IN(out_dir, ASIDE_NAME));
    if (!has_record) {
        checkpoint_publish_clean(out_dir, "", "");
        return GT_OK;
    }
    TRY(checkpoint_record_read(out_dir, &record));
    const struct checkpoint_file_record *model = &record.files[CHECKPOINT_FILE_MODEL];
    const struct checkpoint_file_record *optimizer = &record.files[CHECKPOINT_FILE_OPTIMIZER];
    enum gt_status status = repair_model(out_dir, &record);
    if (record.adapter == NULL)
        THEN(status, checkpoint_publish_config(out_dir, record.hf_config, &changed));
    if (status == GT_OK && changed)
        log_note("%s/%s was updated to match %s", out_dir, CHECKPOINT_CONFIG_NAME,
                 CHECKPOINT_RECORD_NAME);
    /* Else the other files may be all that is left. */
    if (status == GT_OK && is_whole(out_dir, model) && is_whole(out_dir, optimizer))
        checkpoint_publish_clean(out_dir, model->name, optimizer->name);
    checkpoint_record_release(&record);
    return status;
}
