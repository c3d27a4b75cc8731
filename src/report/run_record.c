/* Reads metrics.jsonl, and collects its lines into series of at most RUN_POINTS_MAX points.
 *
 * A run may be writing the file: a last line without its newline is left for the next call.  Lines
 * that are longer than the trainer writes, that are no JSON object, or that have no iteration are
 * counted and left out.  A point takes `stride` successive records.  When all points are full,
 * neighbours are joined and the stride doubles; each point knows the mean, the least and the
 * greatest of its values.
 */
#include "report/run_record.h"

#include <math.h>
#include <unistd.h>

/* ---- lines ---- */

void metrics_file_find(const char *run, struct metrics_file *out)
{
    *out = (struct metrics_file){.offset = 0};
    const bool is_folder = file_is_folder(run);
    file_join(out->path, is_folder ? run : "", is_folder ? METRICS_NAME : run);
}

static enum gt_status line_convert(struct metrics_file *file, const char *line, size_t count,
                                   metrics_line_fn *on_line, void *context)
{
    json_error_t error;
    json_t *root = NULL;
    enum gt_status status = count > 0 ? json_load(line, count, 0, &error, &root) : GT_DATA;
    if (status == GT_OK && json_is_integer(json_object_get(root, "iter")))
        status = on_line(context, root);
    else
        file->unreadable++;
    json_decref(root);
    return status == GT_DATA ? GT_OK : status;
}

/* Reads lines up to the end of the file. */
static enum gt_status lines_read(struct metrics_file *file, FILE *stream, metrics_line_fn *on_line,
                                 void *context)
{
    char line[METRICS_LINE_MAX];
    bool longer = false; /* this piece continues a line that is too long */
    while (fgets(line, sizeof line, stream)) {
        const size_t count = strlen(line);
        const bool whole = count > 0 && line[count - 1] == '\n';
        file->torn = !whole;
        if (whole) {
            TRY(line_convert(file, line, longer ? 0 : count, on_line, context));
            file->offset = ftell(stream);
        }
        longer = !whole;
    }
    return ferror(stream) ? file_error(file->path, "read") : GT_OK;
}

enum gt_status metrics_read(struct metrics_file *file, metrics_line_fn *on_line, void *context)
{
    int fd;
    uint64_t size_bytes;
    TRY(file_open_read_if_there(file->path, &fd, &size_bytes));
    if (fd < 0)
        return FAIL(GT_DATA, "%s: no such file; name the folder of a run of gpt-train", file->path);
    FILE *stream = fdopen(fd, "r");
    const bool ready = stream && fseek(stream, file->offset, SEEK_SET) == 0;
    const enum gt_status status =
        ready ? lines_read(file, stream, on_line, context) : file_error(file->path, "open");
    if (stream)
        fclose(stream);
    else
        close(fd);
    return status;
}

/* ---- records ---- */

#define FACTS_MAX 500 /* no release writes as many */

static const char *const names[RUN_FIELDS] = {"loss",         "lr",         "grad_norm",
                                              "tokens_per_s", "train_loss", "val_loss"};

enum gt_status run_record_open(struct run_record *record, const char *path, const char *name)
{
    memset(record, 0, sizeof *record);
    record->name = name;
    record->series[0].stride = record->series[1].stride = 1;
    record->until = INT64_MAX;
    record->last_iter = -1;
    record->best = record->tokens = record->start_time = record->seconds = (double)NAN;
    record->planned_bytes = record->allocated_bytes = (double)NAN;
    for (int f = 0; f < RUN_FIELDS; f++)
        record->last[f] = (double)NAN;
    metrics_file_find(path, &record->file);
    record->facts = json_object();
    record->samples = json_array();
    if (record->facts && record->samples)
        return GT_OK;
    return FAIL(GT_NO_MEMORY, "out of memory: a run's record");
}

void run_record_close(struct run_record *record)
{
    json_decref(record->facts);
    json_decref(record->samples);
}

double run_number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    const double number = json_number_value(value); /* 0 for what is no number */
    return json_is_number(value) && fabs(number) < 1e30 ? number : (double)NAN;
}

static void points_join(struct run_point *to, const struct run_point *from)
{
    for (int a = 0; a < RUN_AXES; a++)
        to->x[a] = (to->x[a] * (double)to->records + from->x[a] * (double)from->records) /
                   (double)(to->records + from->records);
    for (int f = 0; f < RUN_FIELDS; f++) {
        const bool first = to->y[f].finite == 0, none = from->y[f].finite == 0;
        to->y[f].low =
            first || (!none && from->y[f].low < to->y[f].low) ? from->y[f].low : to->y[f].low;
        to->y[f].high =
            first || (!none && from->y[f].high > to->y[f].high) ? from->y[f].high : to->y[f].high;
        to->y[f].sum += from->y[f].sum;
        to->y[f].finite += from->y[f].finite;
        to->y[f].not_finite += from->y[f].not_finite;
    }
    to->records += from->records;
}

static void series_add(struct run_series *series, const struct run_point *point)
{
    const bool full =
        series->count == RUN_POINTS_MAX && series->at[RUN_POINTS_MAX - 1].records >= series->stride;
    for (int32_t i = 0; full && i < RUN_POINTS_MAX / 2; i++) {
        series->at[i] = series->at[2 * i];
        points_join(&series->at[i], &series->at[2 * i + 1]);
    }
    if (full) {
        series->count /= 2;
        series->stride *= 2;
    }
    if (series->count > 0 && series->at[series->count - 1].records < series->stride)
        points_join(&series->at[series->count - 1], point);
    else
        series->at[series->count++] = *point;
}

/* Merges a start line, and the keys in it, into `facts`. */
static enum gt_status start_line_add(struct run_record *record, const json_t *line)
{
    json_t *keys = json_object_get(line, "keys");
    if (json_object_get(line, "version")) { /* the first of several */
        json_object_clear(record->facts);
        record->starts++;
        record->step_ms = 0.0;
        record->steps = 0;
        record->start_time = run_number(line, "time");
        record->start_seconds = isfinite(record->seconds) ? record->seconds : 0.0;
    }
    if (json_object_size(record->facts) > FACTS_MAX)
        return GT_OK;
    const int failed = json_object_update(record->facts, (json_t *)line) ||
                       (json_is_object(keys) && json_object_update(record->facts, keys));
    return failed ? GT_NO_MEMORY : GT_OK;
}

/* Keeps the first sample and the last ones. */
static enum gt_status sample_line_add(struct run_record *record, const json_t *line)
{
    if (json_array_size(record->samples) == RUN_SAMPLES_MAX)
        (void)json_array_remove(record->samples, 1);
    return json_array_append(record->samples, (json_t *)line) == 0 ? GT_OK : GT_NO_MEMORY;
}

/* Fills a point from a line.  JSON has no NaN: the trainer writes null. */
static struct run_point point_of(struct run_record *record, const json_t *line)
{
    const double elapsed = run_number(line, "time") - record->start_time + record->start_seconds;
    struct run_point point = {.records = 1};
    if (!isfinite(record->seconds) || elapsed > record->seconds)
        record->seconds = elapsed;
    record->tokens = run_number(line, "tokens");
    record->last_iter = (int64_t)json_integer_value(json_object_get(line, "iter"));
    point.x[RUN_ITERATIONS] = (double)record->last_iter;
    point.x[RUN_TOKENS] = record->tokens;
    point.x[RUN_SECONDS] = record->seconds;
    for (int f = 0; f < RUN_FIELDS; f++) {
        const json_t *value = json_object_get(line, names[f]);
        const double number = run_number(line, names[f]);
        if (!value)
            continue;
        record->last[f] = number;
        point.y[f].finite = isfinite(number);
        point.y[f].not_finite = !isfinite(number);
        point.y[f].sum = point.y[f].low = point.y[f].high = isfinite(number) ? number : 0.0;
    }
    return point;
}

static enum gt_status record_line_add(void *context, const json_t *line)
{
    struct run_record *record = context;
    if (json_object_get(line, "start"))
        return start_line_add(record, line);
    if (json_integer_value(json_object_get(line, "iter")) > record->until)
        return GT_OK;
    const struct run_point point = point_of(record, line);
    const double val_loss = record->last[RUN_VAL_LOSS], step_ms = run_number(line, "time_ms");
    if (json_object_get(line, "val_loss")) {
        series_add(&record->series[1], &point);
        record->evaluated_iter = record->last_iter;
        if (val_loss < record->best || (isnan(record->best) && isfinite(val_loss))) {
            record->best = val_loss;
            record->best_iter = record->last_iter;
        }
        return json_is_string(json_object_get(line, "sample")) ? sample_line_add(record, line)
                                                               : GT_OK;
    }
    series_add(&record->series[0], &point);
    if (isfinite(step_ms) && record->steps++ > 0)
        record->step_ms += step_ms;
    record->planned_bytes = run_number(line, "planned_bytes");
    record->allocated_bytes = run_number(line, "allocated_bytes");
    return GT_OK;
}

enum gt_status run_record_update(struct run_record *record)
{
    return metrics_read(&record->file, record_line_add, record);
}
