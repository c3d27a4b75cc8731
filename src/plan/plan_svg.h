/* Shared by the files that draw the plan as SVG: text, axes, colours.
 *
 * Lengths are SVG user units, which are pixels at the page's own size.  Numbers are printed with "%.2f".  No element
 * depends on a style sheet, a script, a link or an installed font.
 */
#ifndef GPT_TRAIN_PLAN_PLAN_SVG_H
#define GPT_TRAIN_PLAN_PLAN_SVG_H

#include <stdint.h>
#include <stdio.h>

#include "base/log.h"
#include "model/graph.h"
#include "plan/plan.h"

#define SVG_TEXT_SIZE 13
#define SVG_INK "#222222"
#define SVG_FAINT "#777777"
#define SVG_BUDGET "#d62728"

/* A rectangle of the page. */
struct svg_panel {
    double left, top, width, height;
};

enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END };

/* Returns the colour of a category, "#rrggbb". */
const char *svg_colour(enum tensor_category category);
/* Writes character data: escapes markup characters and replaces what XML or ASCII does not allow by '?'. */
void svg_escape(FILE *out, const char *text);
/* Writes a line of text with its baseline at (x, y). */
void svg_text(FILE *out, double x, double y, enum svg_anchor anchor, int size, const char *colour, const char *format,
              ...) LOG_PRINTF(7, 8);
/* Draws a straight line; `dash` is a dash pattern or NULL. */
void svg_line(FILE *out, double x0, double y0, double x1, double y1, const char *colour, const char *dash);
/* Returns 1, 2 or 5 times a power of ten, such that `range` has about `ticks` of them. */
double svg_step(double range, int ticks);
/* Returns the bytes that the arena may take according to the facts; 0 = unknown. */
uint64_t svg_budget(const struct plan *plan, const struct plan_report_facts *facts);

/* Draws the front of memory against time. */
void svg_front_draw(const struct plan *plan, const struct plan_report_facts *facts, const struct svg_panel *panel,
                    FILE *out);

#endif
