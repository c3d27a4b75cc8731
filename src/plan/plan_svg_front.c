/* The second panel of the picture: the front of memory against modelled time.
 *
 * Every point is a real plan; no plan of the search is both smaller and faster than one of them.  Memory is on a
 * logarithmic scale, time is the surplus over the fastest.  Points are joined by steps, because no plan exists between
 * them.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>

#include "base/clock.h"
#include "plan/plan_search.h"
#include "plan/plan_svg.h"

struct front_axes {
    const struct svg_panel *panel;
    double octave_low, octave_high; /* log2 of bytes */
    double slower_high;             /* surplus of time at the top, as a share */
    double fastest;
};

static double x_of(const struct front_axes *axes, double bytes)
{
    double share = (log2(bytes) - axes->octave_low) / (axes->octave_high - axes->octave_low);
    return axes->panel->left + axes->panel->width * share;
}

static double y_of(const struct front_axes *axes, double seconds)
{
    double share = (seconds / axes->fastest - 1.0) / axes->slower_high;
    return axes->panel->top + axes->panel->height * (1.0 - share);
}

static struct front_axes axes_make(const struct plan_report_facts *facts, const struct svg_panel *panel)
{
    const struct search_choice *smallest = &facts->front[0], *fastest = &facts->front[facts->front_count - 1];
    struct front_axes axes = {.panel = panel, .fastest = fastest->seconds};
    axes.octave_low = log2((double)smallest->arena_bytes) - 0.15;
    axes.octave_high = log2((double)fastest->arena_bytes) + 0.15;
    if (floor(axes.octave_high) - ceil(axes.octave_low) < 1.0) { /* at least two powers of two as ticks */
        axes.octave_low = floor(axes.octave_low);
        axes.octave_high = fmax(ceil(axes.octave_high), axes.octave_low + 1.0);
    }
    double slower = smallest->seconds / fastest->seconds - 1.0;
    axes.slower_high = slower > 1e-4 ? slower * 1.1 : 0.01;
    return axes;
}

static void axes_draw(const struct front_axes *axes, FILE *out)
{
    const struct svg_panel *p = axes->panel;
    double bottom = p->top + p->height, step = svg_step(axes->slower_high, 5);
    char text[32];
    int octave_step = axes->octave_high - axes->octave_low > 6.0 ? 2 : 1;
    for (int octave = (int)ceil(axes->octave_low); octave <= (int)axes->octave_high; octave += octave_step) {
        double x = x_of(axes, ldexp(1.0, octave));
        svg_line(out, x, p->top, x, bottom, "#e6e6e6", NULL);
        int unit = octave >= 30 ? 30 : octave >= 20 ? 20 : 10;
        svg_text(out, x, bottom + 18, SVG_MIDDLE, SVG_TEXT_SIZE, SVG_INK, "%g %s", ldexp(1.0, octave - unit),
                 unit == 30   ? "GiB"
                 : unit == 20 ? "MiB"
                              : "KiB");
    }
    for (int i = 0; i * step <= axes->slower_high; i++) {
        double y = y_of(axes, axes->fastest * (1.0 + i * step));
        svg_line(out, p->left, y, p->left + p->width, y, "#e6e6e6", NULL);
        svg_text(out, p->left - 8, y + 4, SVG_END, SVG_TEXT_SIZE, SVG_INK, "+%g %%", 100.0 * i * step);
    }
    svg_line(out, p->left, bottom, p->left + p->width, bottom, SVG_INK, NULL);
    svg_line(out, p->left, p->top, p->left, bottom, SVG_INK, NULL);
    svg_text(out, p->left + p->width / 2, bottom + 38, SVG_MIDDLE, SVG_TEXT_SIZE, SVG_INK, "memory");
    svg_text(out, p->left - 54, p->top - 34, SVG_START, SVG_TEXT_SIZE + 2, SVG_INK, "Memory against time (estimated)");
    svg_text(out, p->left - 54, p->top - 14, SVG_START, SVG_TEXT_SIZE, SVG_FAINT,
             "how much slower than the fastest, %s per update", clock_duration(text, axes->fastest));
}

/* Draws the steps between the points, from the smallest to the fastest. */
static void steps_draw(const struct front_axes *axes, const struct plan_report_facts *facts, FILE *out)
{
    fprintf(out, "<path fill=\"none\" stroke=\"#332288\" stroke-width=\"1.5\" d=\"");
    for (int32_t i = 0; i < facts->front_count; i++) {
        double x = x_of(axes, (double)facts->front[i].arena_bytes), y = y_of(axes, facts->front[i].seconds);
        if (i == 0)
            fprintf(out, "M%.2f %.2f", x, y);
        else
            fprintf(out, "H%.2fV%.2f", x, y);
    }
    fprintf(out, "\"/>\n");
}

static void point_draw(const struct front_axes *axes, double bytes, double seconds, bool here, const char *text,
                       FILE *out)
{
    char bytes_text[24], seconds_text[32];
    fprintf(out, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"%s\" fill=\"%s\" stroke=\"#332288\" stroke-width=\"1.5\"><title>",
            x_of(axes, bytes), y_of(axes, seconds), here ? "6" : "4", here ? "#332288" : "#ffffff");
    svg_escape(out, text);
    fprintf(out, "\nmemory %s (%.0f bytes)\n%s per update (estimated), %+.2f %%%s</title></circle>\n",
            log_bytes(bytes_text, bytes), bytes, clock_duration(seconds_text, seconds),
            100.0 * (seconds / axes->fastest - 1.0), here ? "\nthis plan" : "");
}

/* Draws the points, and this plan, which may not be one of them. */
static void points_draw(const struct front_axes *axes, const struct plan *plan, const struct plan_report_facts *facts,
                        FILE *out)
{
    char changes[SEARCH_CHANGES_MAX];
    const struct model_options *asked = &facts->request->options;
    for (int32_t i = 0; i < facts->front_count; i++) {
        const struct search_choice *point = &facts->front[i];
        point_draw(axes, (double)point->arena_bytes, point->seconds, false,
                   search_changes_text(changes, &point->options, asked), out);
    }
    if (facts->seconds_per_step > 0.0)
        point_draw(axes, (double)plan->arena_bytes, facts->seconds_per_step, true,
                   search_changes_text(changes, &facts->search->options, asked), out);
}

static void budget_draw(const struct front_axes *axes, uint64_t budget, FILE *out)
{
    const struct svg_panel *p = axes->panel;
    double octave = budget > 0 ? log2((double)budget) : -1.0;
    if (octave < axes->octave_low || octave > axes->octave_high)
        return;
    double x = x_of(axes, (double)budget);
    bool right = x > p->left + 0.6 * p->width;
    svg_line(out, x, p->top, x, p->top + p->height, SVG_BUDGET, "6 4");
    svg_text(out, x + (right ? -6 : 6), p->top + 14, right ? SVG_END : SVG_START, SVG_TEXT_SIZE, SVG_BUDGET, "budget");
}

void svg_front_draw(const struct plan *plan, const struct plan_report_facts *facts, const struct svg_panel *panel,
                    FILE *out)
{
    assert(panel->width > 0.0 && panel->height > 0.0);
    if (!facts->front || facts->front_count == 0)
        return;
    struct front_axes axes = axes_make(facts, panel);
    fprintf(out, "<g id=\"front\">\n");
    axes_draw(&axes, out);
    steps_draw(&axes, facts, out);
    budget_draw(&axes, svg_budget(plan, facts), out);
    points_draw(&axes, plan, facts, out);
    fprintf(out, "</g>\n");
}
