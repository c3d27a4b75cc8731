/* Writes the report: a page of HTML with charts in SVG.
 *
 * The page loads nothing and runs nothing, and its Content-Security-Policy says so.  All texts come
 * from files and are escaped.  Colours follow the reader's choice of light or dark.  One table
 * lists the charts; charts without data are left out, so that runs of different releases can be
 * compared.
 */
#include "report/report_page.h"

#include <math.h>
#include <time.h>

#include "base/clock.h"
#include "base/svg.h"
#include "report/run_record.h"

#define LEFT 62.0 /* of the plot, in a chart of 480 x 264 */
#define RIGHT 460.0
#define TOP 8.0
#define BOTTOM 222.0
#define DOTS_MAX 100
#define COLOURS 6 /* of runs, .r0 and so on */

struct page {
    const struct run_record *runs;
    size_t count;
    FILE *out;
};

static const struct chart {
    const char *title;
    enum run_axis axis;
    enum run_field field; /* RUN_LOSS: with RUN_VAL_LOSS; the axis of the others begins at 0 */
    const char *forecast; /* number of the start lines to compare with, or NULL */
} charts[] = {
    {"Loss by iteration", RUN_ITERATIONS, RUN_LOSS, NULL},
    {"Loss by tokens seen", RUN_TOKENS, RUN_LOSS, NULL},
    {"Loss by running time", RUN_SECONDS, RUN_LOSS, NULL},
    {"Learning rate", RUN_ITERATIONS, RUN_LR, NULL},
    {"Norm of the gradient", RUN_ITERATIONS, RUN_GRAD_NORM, NULL},
    {"Tokens per second (dashed: forecast)", RUN_ITERATIONS, RUN_TOKENS_PER_S, "tokens_per_s"},
};

/* ---- charts ---- */

struct range {
    double low, high;
};

struct axes {
    const struct chart *chart;
    struct range x, y;
};

static void range_extend(struct range *range, double value)
{
    range->low = value < range->low ? value : range->low;
    range->high = value > range->high ? value : range->high;
}

/* Makes a range wide enough to be divided, whatever values the file has. */
static void range_widen(struct range *range)
{
    const double least = 1e-6 * fmax(fabs(range->low), fabs(range->high));
    if (!(range->high - range->low > least))
        range->high = range->low + (least > 0.0 ? least : 1.0);
}

/* Returns the mean of a point's values; NaN if it has none. */
static double mean_of(const struct run_point *point, enum run_field field)
{
    return point->y[field].finite > 0 ? point->y[field].sum / (double)point->y[field].finite
                                      : (double)NAN;
}

static const struct run_series *series_of(const struct run_record *run, enum run_field field)
{
    return &run->series[field == RUN_VAL_LOSS];
}

static double chart_forecast(const struct chart *chart, const struct run_record *run)
{
    return chart->forecast ? run_number(run->facts, chart->forecast) : (double)NAN;
}

static void axes_extend(struct axes *axes, const struct run_record *run, enum run_field field)
{
    const struct run_series *series = series_of(run, field);
    for (int32_t i = 0; i < series->count; i++) {
        const double x = series->at[i].x[axes->chart->axis], y = mean_of(&series->at[i], field);
        if (isfinite(x + y)) {
            range_extend(&axes->x, x);
            range_extend(&axes->y, y);
        }
    }
}

/* Returns false when there is nothing to draw. */
static bool axes_find(const struct page *page, const struct chart *chart, struct axes *out)
{
    struct axes axes = {chart, {INFINITY, -INFINITY}, {INFINITY, -INFINITY}};
    for (size_t r = 0; r < page->count; r++) {
        axes_extend(&axes, &page->runs[r], chart->field);
        if (chart->field == RUN_LOSS)
            axes_extend(&axes, &page->runs[r], RUN_VAL_LOSS);
        range_extend(&axes.y, chart_forecast(chart, &page->runs[r]));
    }
    if (!isfinite(axes.x.low))
        return false;
    if (chart->field != RUN_LOSS)
        range_extend(&axes.y, 0.0);
    range_widen(&axes.x);
    range_widen(&axes.y);
    *out = axes;
    return true;
}

static double x_of(const struct axes *axes, double value)
{
    return LEFT + (RIGHT - LEFT) * (value - axes->x.low) / (axes->x.high - axes->x.low);
}

/* Values outside of the axis are drawn at its ends. */
static double y_of(const struct axes *axes, double value)
{
    const double share = (value - axes->y.low) / (axes->y.high - axes->y.low);
    return BOTTOM - (BOTTOM - TOP) * fmin(fmax(share, 0.0), 1.0);
}

/* Writes the name of the axis.  Returns the unit in which its numbers are short. */
static double axis_unit(enum run_axis axis, double high, char name[static 32])
{
    static const double units[2][4] = {{1.0, 1e3, 1e6, 1e9}, {1.0, 60.0, 3600.0, 86400.0}};
    static const char *const words[2][4] = {{"", "thousand ", "million ", "billion "},
                                            {"seconds", "minutes", "hours", "days"}};
    static const char *const nouns[RUN_AXES] = {"iterations", "tokens", ""};
    const bool is_time = axis == RUN_SECONDS;
    int at = 0;
    while (at < 3 && high >= 2.0 * units[is_time][at + 1])
        at++;
    snprintf(name, 32, "%s%s", words[is_time][at], nouns[axis]);
    return units[is_time][at];
}

static void axes_draw(const struct axes *axes, FILE *out)
{
    char name[32];
    const double unit = axis_unit(axes->chart->axis, axes->x.high, name);
    const double x_step = svg_step((axes->x.high - axes->x.low) / unit, 5) * unit;
    const double y_step = svg_step(axes->y.high - axes->y.low, 5);
    for (double at = ceil(axes->y.low / y_step); at * y_step <= axes->y.high; at++) {
        const double y = y_of(axes, at * y_step);
        svg_line(out, LEFT, y, RIGHT, y, SVG_FAINT, NULL);
        svg_text(out, LEFT - 6, y + 4, SVG_END, SVG_TEXT_SIZE, SVG_INK, "%g", at * y_step);
    }
    for (double at = ceil(axes->x.low / x_step); at * x_step <= axes->x.high; at++) {
        const double x = x_of(axes, at * x_step);
        svg_line(out, x, BOTTOM, x, BOTTOM + 5, SVG_FAINT, NULL);
        svg_text(out, x, BOTTOM + 19, SVG_MIDDLE, SVG_TEXT_SIZE, SVG_INK, "%g", at * x_step / unit);
    }
    svg_text(out, (LEFT + RIGHT) / 2, BOTTOM + 37, SVG_MIDDLE, SVG_TEXT_SIZE, SVG_INK, "%s", name);
}

enum mark { MARK_MEAN, MARK_EXTREMES, MARK_DOT, MARK_BAD };

/* Draws one kind of mark at each point of a series. */
static void marks_draw(const struct axes *axes, const struct run_series *series,
                       enum run_field field, enum mark mark, FILE *out)
{
    char move = 'M';
    for (int32_t i = 0; i < series->count; i++) {
        const struct run_point *point = &series->at[i];
        const double x = x_of(axes, point->x[axes->chart->axis]),
                     y = y_of(axes, mean_of(point, field));
        const bool drawn = isfinite(x) && point->y[field].finite > 0;
        if (mark == MARK_MEAN && drawn)
            fprintf(out, "%c%.1f %.1f", move, x, y);
        else if (mark == MARK_EXTREMES && drawn && point->y[field].finite > 1)
            fprintf(out, "M%.1f %.1fV%.1f", x, y_of(axes, point->y[field].low),
                    y_of(axes, point->y[field].high));
        else if (mark == MARK_DOT && drawn)
            fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>%.4g</title></circle>\n",
                    x, y, mean_of(point, field));
        else if (mark == MARK_BAD && isfinite(x) && point->y[field].not_finite > 0)
            fprintf(out,
                    "<path class=\"bad\" d=\"M%.1f %.1fl4 8h-8z\"><title>%" PRId64
                    " not finite</title></path>\n",
                    x, TOP, point->y[field].not_finite);
        move = drawn ? 'L' : 'M';
    }
}

static void curve_draw(const struct axes *axes, const struct run_record *run, enum run_field field,
                       FILE *out)
{
    const struct run_series *series = series_of(run, field);
    fputs("<path opacity=\"0.3\" d=\"", out);
    marks_draw(axes, series, field, MARK_EXTREMES, out);
    fprintf(out, "\"/>\n<path stroke-width=\"%d\" d=\"", field == RUN_VAL_LOSS ? 2 : 1);
    marks_draw(axes, series, field, MARK_MEAN, out);
    fputs("\"/>\n", out);
    if (series->count == 1 || (field == RUN_VAL_LOSS && series->count <= DOTS_MAX))
        marks_draw(axes, series, field, MARK_DOT, out);
    marks_draw(axes, series, field, MARK_BAD, out);
}

static void chart_draw(const struct page *page, const struct chart *chart)
{
    struct axes axes;
    FILE *out = page->out;
    if (!axes_find(page, chart, &axes))
        return;
    fprintf(
        out,
        "<figure><figcaption>%s</figcaption>\n<svg viewBox=\"0 0 480 264\" role=\"img\" aria-label=\"%s\">\n",
        chart->title, chart->title);
    axes_draw(&axes, out);
    for (size_t r = 0; r < page->count; r++) {
        const double forecast = chart_forecast(chart, &page->runs[r]);
        fprintf(out, "<g class=\"r%zu\">\n", r % COLOURS);
        curve_draw(&axes, &page->runs[r], chart->field, out);
        if (chart->field == RUN_LOSS)
            curve_draw(&axes, &page->runs[r], RUN_VAL_LOSS, out);
        if (isfinite(forecast))
            fprintf(out, "<path stroke-dasharray=\"6 4\" d=\"M%.1f %.1fH%.1f\"/>\n", LEFT,
                    y_of(&axes, forecast), RIGHT);
        fputs("</g>\n", out);
    }
    fputs("</svg></figure>\n", out);
}

/* ---- memory ---- */

bool report_memory_draw(const struct run_record *run, FILE *out)
{
    const json_t *categories = json_object_get(run->facts, "categories");
    double total = 0.0, x = 0.0, y = 66.0;
    size_t used = 0, index = 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)categories, name, value)
    {
        total += json_number_value(value);
        used += json_number_value(value) > 0.0;
    }
    if (!(total > 0.0 && total < 1e30))
        return false;
    fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 480 %zu\" font-family=\"sans-serif\">\n",
        60 + 20 * used);
    svg_text(out, 0, 14, SVG_START, SVG_TEXT_SIZE, SVG_INK, "%s at the peak of an update",
             LOG_BYTES(total));
    json_object_foreach((json_t *)categories, name, value)
    {
        const double bytes = json_number_value(value), width = 480.0 * bytes / total;
        const char *colour = svg_colours[index++ % SVG_COLOURS];
        if (!(bytes > 0.0))
            continue;
        fprintf(out, "<rect x=\"%.2f\" y=\"22\" width=\"%.2f\" height=\"24\" fill=\"%s\"/>\n", x,
                width, colour);
        fprintf(out, "<rect x=\"0\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", y - 11,
                colour);
        svg_text(out, 20, y, SVG_START, SVG_TEXT_SIZE, SVG_INK, "%s", name);
        svg_text(out, 250, y, SVG_END, SVG_TEXT_SIZE, SVG_INK, "%s", LOG_BYTES(bytes));
        svg_text(out, 330, y, SVG_END, SVG_TEXT_SIZE, SVG_INK, "%.1f %%", 100.0 * bytes / total);
        x += width;
        y += 20.0;
    }
    fputs("</svg>\n", out);
    return true;
}

static void memory_draw(const struct page *page)
{
    fputs("<h2>Memory</h2>\n<div class=\"charts\">\n", page->out);
    for (size_t r = 0; r < page->count; r++) {
        fputs("<figure><figcaption>", page->out);
        svg_escape(page->out, page->runs[r].name);
        fputs("</figcaption>\n", page->out);
        if (!report_memory_draw(&page->runs[r], page->out))
            fputs("<p>metrics.jsonl has no record of it.</p>\n", page->out);
        fputs("</figure>\n", page->out);
    }
    fputs("</div>\n", page->out);
}

/* ---- tables ---- */

static void cell_write(const struct page *page, const char *text)
{
    fputs("<td>", page->out);
    svg_escape(page->out, text);
}

/* Writes a cell, empty for NaN. */
static void number_write(const struct page *page, const char *format, double value)
{
    cell_write(page, isfinite(value) ? TEXT(32, format, value) : "");
}

static void run_name_write(const struct page *page, size_t r)
{
    fprintf(page->out, "<th><i class=\"r%zu\">&#9632;</i> ", r % COLOURS);
    svg_escape(page->out, page->runs[r].name);
}

/* Writes what a step took, what the forecast was, and the memory. */
static void measured_write(const struct page *page, const struct run_record *run)
{
    const double forecast = run_number(run->facts, "step_s"),
                 error = run_number(run->facts, "uncertainty");
    const double measured =
        run->steps > 1 ? run->step_ms / 1e3 / (double)(run->steps - 1) : (double)NAN;
    cell_write(page, isfinite(measured) ? CLOCK_DURATION(measured) : "");
    const char *about = error < 1.0 ? "" : "about ",
               *bounds = error < 1.0 ? TEXT(32, " ±%.0f %%", 100.0 * error) : "";
    cell_write(page,
               forecast > 0.0 ? TEXT(80, "%s%s%s", about, CLOCK_DURATION(forecast), bounds) : "");
    const char *planned = LOG_BYTES(run->planned_bytes),
               *allocated = LOG_BYTES(run->allocated_bytes);
    cell_write(page, run->planned_bytes > 0.0 ? TEXT(64, "%s / %s", planned, allocated) : "");
}

static void runs_write(const struct page *page)
{
    fputs(
        "<div class=\"wide\"><table class=\"runs\">\n<tr><th>run<th>iteration<th>tokens<th>time<th>training loss<th>validation "
        "loss<th>lowest<th>at<th>time per step<th>forecast<th>planned / allocated<th>notes\n",
        page->out);
    for (size_t r = 0; r < page->count; r++) {
        const struct run_record *run = &page->runs[r];
        fputs("<tr>", page->out);
        run_name_write(page, r);
        number_write(page, "%.0f", (double)run->last_iter);
        number_write(page, "%.0f", run->tokens);
        cell_write(page, isfinite(run->seconds) ? CLOCK_DURATION(run->seconds) : "");
        number_write(page, "%.4f", run->last[RUN_TRAIN_LOSS]);
        number_write(page, "%.4f", run->last[RUN_VAL_LOSS]);
        number_write(page, "%.4f", run->best);
        number_write(page, "%.0f", isfinite(run->best) ? (double)run->best_iter : (double)NAN);
        measured_write(page, run);
        cell_write(page, TEXT(64, "%" PRId64 " record%s per point", run->series[0].stride,
                              run->series[0].stride == 1 ? "" : "s"));
        if (run->file.unreadable > 0 || run->file.torn)
            fprintf(page->out, "; left out: %" PRId64 " unreadable line%s%s", run->file.unreadable,
                    run->file.unreadable == 1 ? "" : "s",
                    run->file.torn ? ", half a line at the end" : "");
        if (run->starts > 1)
            fprintf(page->out, "; %" PRId64 " starts", run->starts);
        fputs("\n", page->out);
    }
    fputs("</table></div>\n", page->out);
}

static const char *setting_of(const struct run_record *run, const char *name)
{
    const char *text = json_string_value(json_object_get(run->facts, name));
    return text ? text : json_object_get(run->facts, "version") ? "the default" : "not recorded";
}

/* Writes a row of the configuration; among several runs, only if they differ. */
static void setting_write(const struct page *page, const char *name)
{
    bool differs = page->count == 1;
    for (size_t r = 1; r < page->count; r++)
        differs = differs ||
                  strcmp(setting_of(&page->runs[r], name), setting_of(&page->runs[0], name)) != 0;
    if (!differs)
        return;
    fputs("<tr><th>", page->out);
    svg_escape(page->out, name);
    for (size_t r = 0; r < page->count; r++)
        cell_write(page, setting_of(&page->runs[r], name));
    fputs("\n", page->out);
}

/* The settings are the texts of the start lines.  Each is written with the first run that has it.
 */
static void settings_write(const struct page *page)
{
    fprintf(page->out, "<h2>%s</h2>\n<div class=\"wide\"><table>\n<tr><th>",
            page->count == 1 ? "Configuration" : "What is configured differently");
    for (size_t r = 0; r < page->count; r++)
        run_name_write(page, r);
    for (size_t r = 0; r < page->count; r++) {
        const char *name;
        json_t *value;
        json_object_foreach(page->runs[r].facts, name, value)
        {
            size_t first = 0;
            while (!json_object_get(page->runs[first].facts, name))
                first++;
            if (first == r && json_is_string(value) && strcmp(name, "start") != 0)
                setting_write(page, name);
        }
    }
    fputs("</table></div>\n", page->out);
}

static void samples_write(const struct page *page, const struct run_record *run)
{
    const json_t *sample;
    size_t index;
    json_array_foreach(run->samples, index, sample)
    {
        fputs("<h2>Sample of ", page->out);
        svg_escape(page->out, run->name);
        fprintf(page->out, " after %" JSON_INTEGER_FORMAT " iterations</h2>\n<pre>",
                json_integer_value(json_object_get(sample, "iter")));
        svg_escape(page->out, json_string_value(json_object_get(sample, "sample")));
        fputs("</pre>\n", page->out);
    }
}

/* ---- the page ---- */

static const char style[] =
    ":root{color-scheme:light dark;--back:#fff;--ink:#222;--line:#ddd}"
    "@media(prefers-color-scheme:dark){:root{--back:#17191c;--ink:#ddd;--line:#3a3d42}}"
    "@media print{:root{--back:#fff;--ink:#000;--line:#ddd}figure,tr,pre{break-inside:avoid}}"
    "body{margin:0 auto;max-width:1100px;padding:0 16px 32px;font:16px/1.45 system-ui,sans-serif;"
    "background:var(--back);color:var(--ink);overflow-wrap:break-word}"
    "h1{font-size:1.5em}h2{font-size:1.2em;margin:1.6em 0 .4em}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:20px}"
    "figure{margin:0;min-width:0}svg{display:block;width:100%;height:auto}"
    "svg text{fill:var(--ink);stroke:none}svg line{stroke:var(--line)}g path{fill:none;stroke:currentColor}"
    "circle{fill:currentColor}g .bad{fill:#d62728;stroke:none}"
    ".r0{color:#4477aa}.r1{color:#ee6677}.r2{color:#228833}.r3{color:#b8860b}.r4{color:#3bb0c9}.r5{color:#aa3377}"
    ".runs tbody{display:table-row}.runs tr{display:table-cell}.runs th,.runs td{display:block;white-space:nowrap;"
    "min-height:1.45em}.wide{overflow-x:auto}table{border-collapse:collapse}"
    "th,td{text-align:left;vertical-align:top;padding:3px 16px 3px 0;border-bottom:1px solid var(--line);min-width:5em}"
    "th{font-weight:600}pre{white-space:pre-wrap;margin:0;padding:8px;border:1px solid var(--line);"
    "unicode-bidi:isolate}i{font-style:normal}";

static void head_write(const struct page *page, int refresh_s)
{
    char now[64];
    const time_t seconds = (time_t)clock_wall_seconds();
    struct tm date;
    if (!localtime_r(&seconds, &date) || strftime(now, sizeof now, "%Y-%m-%d %H:%M:%S", &date) == 0)
        now[0] = '\0';
    fputs(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
        page->out);
    if (refresh_s > 0)
        fprintf(page->out, "<meta http-equiv=\"refresh\" content=\"%d\">\n", refresh_s);
    fprintf(
        page->out,
        "<title>gpt-train report</title>\n<style>%s</style></head>\n<body><h1>Training report</h1>\n<p>%s%s</p>\n",
        style, now, refresh_s > 0 ? "; the run goes on, and this page loads again by itself" : "");
}

static void page_draw(const struct page *page, int refresh_s)
{
    head_write(page, refresh_s);
    runs_write(page);
    fputs(
        "<h2>Curves</h2>\n<p>Thick: validation loss. Vertical strokes: least to greatest where a point stands for "
        "several records. Red: not finite.</p>\n<div class=\"charts\">\n",
        page->out);
    for (size_t i = 0; i < sizeof charts / sizeof charts[0]; i++)
        chart_draw(page, &charts[i]);
    fputs("</div>\n", page->out);
    memory_draw(page);
    settings_write(page);
    for (size_t r = 0; r < page->count; r++)
        samples_write(page, &page->runs[r]);
    fputs("</body></html>\n", page->out);
}

enum gt_status report_page_write(const struct run_record *runs, size_t count, int refresh_s,
                                 const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    struct page page = {runs, count, open_memstream(&text, &bytes)};
    bool failed = !page.out;
    if (page.out) {
        page_draw(&page, refresh_s);
        failed = ferror(page.out) != 0;
        failed = fclose(page.out) != 0 || failed;
    }
    const enum gt_status status = failed ? FAIL(GT_NO_MEMORY, "out of memory: the report's page")
                                         : file_replace(path, text, bytes);
    free(text);
    return status;
}
