/* Text and lines in SVG, shared by the pictures of the plan and the report's charts.
 *
 * Lengths are SVG user units, which are pixels at the picture's own size.  Numbers are printed with
 * "%.2f".  No element depends on a style sheet, a script, a link or an installed font.
 */
#ifndef GPT_TRAIN_BASE_SVG_H
#define GPT_TRAIN_BASE_SVG_H

#include "base/status.h"

#define SVG_TEXT_SIZE 13
#define SVG_INK "#222222"
#define SVG_FAINT "#777777"

/* The colours of the categories of tensors, in the order of enum tensor_category: "#rrggbb". */
#define SVG_COLOURS 10
extern const char *const svg_colours[SVG_COLOURS];

enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END };

/* Writes character data: escapes markup characters, and replaces control characters and invalid
 * UTF-8 by '?'. */
void svg_escape(FILE *out, const char *text);
/* Writes a line of text with its baseline at (x, y). */
void svg_text(FILE *out, double x, double y, enum svg_anchor anchor, int size, const char *colour,
              const char *format, ...) LOG_PRINTF(7, 8);
/* Draws a straight line; `dash` is a dash pattern or NULL. */
void svg_line(FILE *out, double x0, double y0, double x1, double y1, const char *colour,
              const char *dash);
/* Returns 1, 2 or 5 times a power of ten, such that `range` has about `ticks` of them. */
double svg_step(double range, int ticks);
#endif
