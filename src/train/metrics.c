/* metrics.jsonl.
 *
 * Lines are written with one write() each, so that a kill leaves whole lines and at most one torn one,
 * which the next open cuts off.  Numbers that are not finite are written as null: JSON has no word for them. */
#include "train/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

#define LINE_MAX_BYTES 1024

/* Whether a line belongs to the part that the resumed run will write again, or is torn. */
static bool line_is_stale(const char *line, int64_t resume_iter, bool evaluated)
{
    static const char head[] = "{\"iter\":";
    size_t length = strlen(line);
    if (length == 0 || line[length - 1] != '\n' || strncmp(line, head, sizeof head - 1) != 0)
        return true;
    int64_t iter = strtoll(line + sizeof head - 1, NULL, 10);
    bool kept_here = evaluated && strstr(line, "\"val_loss\"") != NULL;
    return kept_here ? iter > resume_iter : iter >= resume_iter;
}

static enum gt_status read_error(const char *path)
{
    log_error("%s: cannot be read: %s; what it holds of the run so far would be lost", path, strerror(errno));
    return GT_IO;
}

/* The offset of the first stale line; 0 where there is no file. */
static enum gt_status stale_offset(const char *path, int64_t resume_iter, bool evaluated, long *out)
{
    char line[LINE_MAX_BYTES];
    *out = 0;
    if (resume_iter == 0)
        return GT_OK;
    FILE *file = fopen(path, "re");
    if (!file)
        return errno == ENOENT ? GT_OK : read_error(path);
    while (*out >= 0 && fgets(line, sizeof line, file) && !line_is_stale(line, resume_iter, evaluated))
        *out = ftell(file);
    const enum gt_status status = *out < 0 || ferror(file) ? read_error(path) : GT_OK;
    fclose(file);
    return status;
}

/* Puts the file of an earlier run aside, where it has anything. */
static enum gt_status old_keep(const char *path, const char *out_dir)
{
    char old[FILE_PATH_MAX];
    struct stat status;
    TRY(file_join(old, out_dir, METRICS_OLD_NAME));
    if (lstat(path, &status) != 0)
        return errno == ENOENT ? GT_OK : read_error(path);
    if (status.st_size == 0 || rename(path, old) == 0)
        return GT_OK;
    log_error("%s: cannot be renamed to %s: %s", path, METRICS_OLD_NAME, strerror(errno));
    return GT_IO;
}

enum gt_status metrics_open(struct metrics *metrics, const char *out_dir, int64_t resume_iter, bool evaluated)
{
    char path[FILE_PATH_MAX];
    metrics->fd = -1;
    TRY(file_join(path, out_dir, METRICS_NAME));
    if (resume_iter == 0)
        TRY(old_keep(path, out_dir));
    long offset;
    TRY(stale_offset(path, resume_iter, evaluated, &offset));
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0 || ftruncate(fd, offset) != 0) {
        log_error("%s: cannot be opened for writing: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return GT_IO;
    }
    metrics->fd = fd;
    return GT_OK;
}

void metrics_close(struct metrics *metrics)
{
    if (metrics->fd >= 0)
        close(metrics->fd);
    metrics->fd = -1;
}

static enum gt_status line_write(struct metrics *metrics, const char *line, size_t length)
{
    if (metrics->fd < 0)
        return GT_OK;
    ssize_t written;
    do
        written = write(metrics->fd, line, length);
    while (written < 0 && errno == EINTR);
    if (written == (ssize_t)length)
        return GT_OK;
    log_warning("%s: cannot be written: %s; training goes on without it", METRICS_NAME,
                written < 0 ? strerror(errno) : "only a part of a line fitted");
    metrics_close(metrics);
    return GT_IO;
}

static const char *number_text(char text[static 32], double value)
{
    if (isfinite(value))
        snprintf(text, 32, "%.17g", value);
    else
        snprintf(text, 32, "null");
    return text;
}

enum gt_status metrics_step_write(struct metrics *metrics, const struct metrics_step *step)
{
    char line[LINE_MAX_BYTES], loss[32], lr[32], norm[32], ms[32], rate[32], mfu[32], scale[64] = "", number[32];
    if (step->loss_scale > 0.0)
        snprintf(scale, sizeof scale, "\"loss_scale\":%s,", number_text(number, step->loss_scale));
    int length = snprintf(line, sizeof line,
                          "{\"iter\":%" PRId64 ",\"loss\":%s,\"lr\":%s,\"grad_norm\":%s,\"time_ms\":%s,"
                          "\"tokens_per_s\":%s,\"mfu\":%s,\"skipped\":%" PRId64 ",%s\"planned_bytes\":%" PRIu64
                          ",\"allocated_bytes\":%" PRIu64 "}\n",
                          step->iter, number_text(loss, step->loss), number_text(lr, step->lr),
                          number_text(norm, step->grad_norm), number_text(ms, step->time_ms),
                          number_text(rate, step->tokens_per_s), number_text(mfu, step->mfu), step->skipped, scale,
                          step->planned_bytes, step->allocated_bytes);
    return line_write(metrics, line, (size_t)length);
}

enum gt_status metrics_evaluation_write(struct metrics *metrics, int64_t iter, double train_loss, double val_loss)
{
    char line[LINE_MAX_BYTES], train[32], val[32];
    int length = snprintf(line, sizeof line, "{\"iter\":%" PRId64 ",\"train_loss\":%s,\"val_loss\":%s}\n", iter,
                          number_text(train, train_loss), number_text(val, val_loss));
    return line_write(metrics, line, (size_t)length);
}
