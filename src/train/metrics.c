/* metrics.jsonl.
 *
 * Each line is written with one write(), so that a kill leaves whole lines and at most one torn
 * one, which the next open cuts off.
 *
 * A run that starts over leaves the old checkpoint in place until it saves, and with it the
 * checkpoint's lines, set aside as metrics-XXXXXXXX.jsonl, where X is the checksum of the old
 * record's file.  While that record is the current one, a resume restores the lines.  The first
 * save moves both into the folder of the earlier run.  Lines whose record is gone, and those of a
 * run that saved nothing, become metrics-old.jsonl.
 */
#include "train/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "io/checkpoint.h"
#include "report/run_record.h"

#define RECENT_STEPS 11

/* Returns true when the resumed run will write the line again, or it is torn. */
static bool line_is_stale(const char *line, int64_t resume_iter, bool evaluated)
{
    static const char head[] = "{\"iter\":";
    size_t length = strlen(line);
    if (length == 0 || line[length - 1] != '\n' || strncmp(line, head, sizeof head - 1) != 0)
        return true;
    int64_t iter = strtoll(line + sizeof head - 1, NULL, 10);
    bool kept_here = evaluated && strstr(line, "val_loss\"") != NULL;
    return kept_here ? iter > resume_iter : iter >= resume_iter;
}

static enum gt_status read_error(const char *path)
{
    return FAIL(GT_IO, "%s cannot be read: %s; not continuing, to keep what it holds of the run",
                path, strerror(errno));
}

/* Opens a file of lines; *out is NULL when there is none. */
static enum gt_status lines_open(const char *path, FILE **out)
{
    uint64_t size_bytes;
    int fd;
    TRY(file_open_read_if_there(path, &fd, &size_bytes));
    *out = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (fd < 0 || *out != NULL)
        return GT_OK;
    const enum gt_status status = read_error(path);
    close(fd);
    return status;
}

/* Finds the offset of the first stale line; 0 when there is no file. */
static enum gt_status stale_offset(const char *path, int64_t resume_iter, bool evaluated, long *out)
{
    char line[METRICS_LINE_MAX];
    FILE *file = NULL;
    long at = 0;
    *out = 0;
    if (resume_iter > 0)
        TRY(lines_open(path, &file));
    if (file == NULL)
        return GT_OK;
    while (at >= 0 && fgets(line, sizeof line, file) &&
           !line_is_stale(line, resume_iter, evaluated)) {
        at = ftell(file);
        if (!strstr(line, ",\"start\":")) /* start lines that nothing follows are written again */
            *out = at;
    }
    const enum gt_status status = at < 0 || ferror(file) ? read_error(path) : GT_OK;
    fclose(file);
    return status;
}

static int number_compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

double metrics_rate_recent(const char *out_dir)
{
    static const char field[] = "\"tokens_per_s\":";
    char line[METRICS_LINE_MAX];
    double last[RECENT_STEPS];
    int64_t count = 0;
    FILE *file;
    if (lines_open(FILE_IN(out_dir, METRICS_NAME), &file) != GT_OK || file == NULL)
        return 0.0;
    while (fgets(line, sizeof line, file)) {
        const char *at = strstr(line, field);
        const double rate = at != NULL ? strtod(at + sizeof field - 1, NULL) : 0.0;
        if (isfinite(rate) && rate > 0.0)
            last[count++ % RECENT_STEPS] = rate;
    }
    fclose(file);
    count = count < RECENT_STEPS ? count : RECENT_STEPS;
    qsort(last, (size_t)count, sizeof last[0], number_compare);
    return count > 0 ? last[count / 2] : 0.0;
}

/* Returns the set-aside name for the lines of the checkpoint in `out_dir`; empty when there is no
 * checkpoint. */
static enum gt_status kept_name(const char *out_dir, char out[static METRICS_KEPT_BYTES])
{
    char *text;
    size_t count;
    bool exists;
    out[0] = '\0';
    const char *path = FILE_IN(out_dir, CHECKPOINT_RECORD_NAME);
    TRY(file_stat_exists(path, &exists));
    if (!exists)
        return GT_OK;
    TRY(file_read_all(path, CHECKPOINT_RECORD_BYTES_MAX, &text, &count));
    snprintf(out, METRICS_KEPT_BYTES, "metrics-%08" PRIx32 ".jsonl", file_crc32c(0, text, count));
    free(text);
    return GT_OK;
}

static bool is_kept_name(const char *name)
{
    return strlen(name) == METRICS_KEPT_BYTES - 1 && strncmp(name, "metrics-", 8) == 0 &&
           strspn(name + 8, "0123456789abcdef") == 8 && strcmp(name + 16, ".jsonl") == 0;
}

static enum gt_status move(const char *out_dir, const char *from, const char *to)
{
    const char *old = FILE_IN(out_dir, from);
    const char *new = FILE_IN(out_dir, to);
    if (rename(old, new) == 0)
        return file_sync_folder(
            out_dir); /* or a power cut might keep the next file of that name, and lose this one */
    return FAIL(GT_IO, "%s cannot be renamed to %s: %s", old, to, strerror(errno));
}

/* Sets *out to true when the lines of the current checkpoint are set aside under the name `today`.
 * Renames those of checkpoints that are gone to metrics-old.jsonl. */
static enum gt_status kept_find(const char *out_dir, const char *today, bool *out)
{
    enum gt_status status = GT_OK;
    DIR *dir = NULL;
    *out = false;
    for (const char *name; (name = file_next(out_dir, &dir, &status)) != NULL;) {
        if (strcmp(name, today) == 0)
            *out = true;
        else if (is_kept_name(name))
            status = move(out_dir, name, METRICS_OLD_NAME);
    }
    return status;
}

/* Moves the existing lines out of the way of a run that starts over. */
static enum gt_status old_keep(struct metrics *metrics, const char *path, bool found)
{
    struct stat status;
    if (lstat(path, &status) != 0)
        return errno == ENOENT ? GT_OK : read_error(path);
    if (status.st_size == 0)
        return GT_OK;
    /* If lines are set aside already, these belong to a run that saved nothing. */
    const bool waits = !found && metrics->kept[0] != '\0';
    return move(metrics->out_dir, METRICS_NAME, waits ? metrics->kept : METRICS_OLD_NAME);
}

/* Sets aside or restores the lines of other runs. */
static enum gt_status old_lines_move(struct metrics *metrics, const char *path, bool anew)
{
    bool found;
    TRY(kept_name(metrics->out_dir, metrics->kept));
    TRY(kept_find(metrics->out_dir, metrics->kept, &found));
    if (anew)
        return old_keep(metrics, path, found);
    if (found)
        TRY(move(metrics->out_dir, metrics->kept, METRICS_NAME));
    metrics->kept[0] = '\0';
    return GT_OK;
}

/* Starts the file with the set-aside lines that come before an iteration. */
static enum gt_status head_copy(const struct metrics *metrics, const char *path, int64_t iter,
                                bool evaluated)
{
    long offset;
    if (metrics->kept[0] == '\0')
        return GT_OK;
    const char *from = FILE_IN(metrics->out_dir, metrics->kept);
    TRY(stale_offset(from, iter, evaluated, &offset));
    return offset > 0 ? file_copy(from, path, (uint64_t)offset) : GT_OK;
}

enum gt_status metrics_open(struct metrics *metrics, const char *out_dir, int64_t resume_iter,
                            bool evaluated, bool anew)
{
    long offset;
    struct stat info;
    *metrics = (struct metrics){.fd = -1, .out_dir = out_dir};
    const char *path = FILE_IN(out_dir, METRICS_NAME);
    TRY(old_lines_move(metrics, path, anew));
    if (anew)
        TRY(head_copy(metrics, path, resume_iter, evaluated));
    TRY(stale_offset(path, resume_iter, evaluated, &offset));
    /* Without O_NONBLOCK the open of a FIFO would wait for a reader. */
    int fd = open(
        path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666);
    const bool special = fd >= 0 && fstat(fd, &info) == 0 && !S_ISREG(info.st_mode);
    if (special || fd < 0 || ftruncate(fd, offset) != 0) {
        log_error("%s cannot be opened for writing: %s", path,
                  special ? "it is not a regular file" : strerror(errno));
        if (fd >= 0)
            close(fd);
        return GT_IO;
    }
    metrics->fd = fd;
    metrics->line.out = fmemopen(metrics->text, sizeof metrics->text, "w");
    return metrics->line.out != NULL ? GT_OK : FAIL(GT_NO_MEMORY, "out of memory");
}

static void warn_once(struct metrics *metrics, const char *why)
{
    if (!metrics->warned)
        log_warning(
            "%s cannot be written: %s; training continues, but lines may be missing from it",
            METRICS_NAME, why);
    metrics->warned = true;
}

void metrics_sync(struct metrics *metrics)
{
    if (metrics->fd >= 0 && fsync(metrics->fd) != 0 && errno != EINTR && errno != EINVAL)
        warn_once(metrics, strerror(errno));
}

void metrics_saved(struct metrics *metrics)
{
    if (metrics->kept[0] != '\0')
        (void)unlink(FILE_IN(metrics->out_dir, metrics->kept));
    metrics->kept[0] = '\0';
}

void metrics_close(struct metrics *metrics)
{
    if (metrics->fd >= 0)
        close(metrics->fd);
    if (metrics->line.out != NULL)
        fclose(metrics->line.out);
    metrics->fd = -1;
    metrics->line.out = NULL;
}

struct json_put *metrics_line(struct metrics *metrics, int64_t iter, const char *start)
{
    metrics->line =
        (struct json_put){.out = metrics->line.out, .one_line = true, .text_max = METRICS_TEXT_MAX};
    if (metrics->line.out != NULL)
        rewind(metrics->line.out);
    json_put(&metrics->line, ":{ iter:i", iter);
    if (start != NULL)
        json_put(&metrics->line, "start:s", start);
    return &metrics->line;
}

enum gt_status metrics_line_write(struct metrics *metrics)
{
    struct stat info;
    ssize_t written;
    if (metrics->line.out == NULL)
        return GT_OK;
    while (metrics->line.depth > 0)
        json_put(&metrics->line, "}");
    fputc('\n', metrics->line.out);
    const long length = ftell(metrics->line.out);
    assert(length < METRICS_LINE_MAX);
    fflush(metrics->line.out);
    do
        written = write(metrics->fd, metrics->text, (size_t)length);
    while (written < 0 && errno == EINTR);
    if (written == length)
        return GT_OK;
    warn_once(metrics, written < 0 ? strerror(errno) : "only a part of a line fitted");
    /* A partly written line would corrupt the next one. */
    if (written > 0 &&
        (fstat(metrics->fd, &info) != 0 || ftruncate(metrics->fd, info.st_size - written) != 0))
        metrics_close(metrics);
    return GT_IO;
}
