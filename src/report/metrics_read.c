/* Reads metrics.jsonl.
 *
 * A run may be writing the file: a last line without its newline is left for the next call.  Lines that are longer than
 * the trainer writes, that are no JSON object, or that have no iteration are counted and left out.
 */
#include "report/metrics_read.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

enum gt_status metrics_file_find(const char *run, struct metrics_file *out)
{
    *out = (struct metrics_file){.offset = 0};
    return file_is_folder(run) ? file_join(out->path, run, METRICS_NAME) : file_join(out->path, "", run);
}

static enum gt_status line_take(struct metrics_file *file, const char *line, size_t count, metrics_line_fn *take,
                                void *context)
{
    json_error_t error;
    json_t *root = NULL;
    enum gt_status status = count > 0 ? json_load(line, count, 0, &error, &root) : GT_DATA;
    if (status == GT_OK && json_is_integer(json_object_get(root, "iter")))
        status = take(context, root);
    else
        file->unreadable++;
    json_decref(root);
    return status == GT_DATA ? GT_OK : status;
}

/* Reads lines up to the end of the file. */
static enum gt_status lines_read(struct metrics_file *file, FILE *stream, metrics_line_fn *take, void *context)
{
    char line[METRICS_LINE_MAX];
    bool longer = false; /* this piece continues a line that is too long */
    while (fgets(line, sizeof line, stream)) {
        const size_t count = strlen(line);
        const bool whole = count > 0 && line[count - 1] == '\n';
        file->torn = !whole;
        if (whole) {
            TRY(line_take(file, line, longer ? 0 : count, take, context));
            file->offset = ftell(stream);
        }
        longer = !whole;
    }
    return ferror(stream) ? file_error(file->path, "read") : GT_OK;
}

enum gt_status metrics_read(struct metrics_file *file, metrics_line_fn *take, void *context)
{
    int fd;
    uint64_t size_bytes;
    TRY(file_open_read_if_there(file->path, &fd, &size_bytes));
    if (fd < 0) {
        log_error("%s: no such file; name the folder of a run of gpt-train", file->path);
        return GT_DATA;
    }
    FILE *stream = fdopen(fd, "r");
    if (!stream || fseek(stream, file->offset, SEEK_SET) != 0) {
        const enum gt_status status = file_error(file->path, "open");
        if (stream)
            fclose(stream);
        else
            close(fd);
        return status;
    }
    const enum gt_status status = lines_read(file, stream, take, context);
    fclose(stream);
    return status;
}
