/* Text and lines in SVG.
 *
 * Texts may come from untrusted files; svg_escape() makes them harmless in XML and in HTML.
 */
#include "base/svg.h"

#include <math.h>

#define TEXT_MAX 512

/* Paul Tol, "Colour Schemes", SRON/EPS/TN/09-002, scheme "muted": distinct for all kinds of colour
 * vision. */
const char *const svg_colours[SVG_COLOURS] = {"#332288", "#aa4499", "#88ccee", "#cc6677",
                                              "#44aa99", "#ddcc77", "#999933", "#882255",
                                              "#117733", "#bbbbbb"};

void svg_escape(FILE *out, const char *text)
{
    for (size_t length; *text != '\0'; text += length) {
        length = log_character_length(text);
        if (*text == '&')
            fputs("&amp;", out);
        else if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '>')
            fputs("&gt;", out);
        else if (length > 0 || *text == '\n' || *text == '\t')
            fwrite(text, 1, length > 0 ? length : 1, out);
        else
            fputc('?', out);
        length = length > 0 ? length : 1;
    }
}

void svg_text(FILE *out, double x, double y, enum svg_anchor anchor, int size, const char *colour,
              const char *format, ...)
{
    static const char *const anchors[] = {
        [SVG_START] = "start", [SVG_MIDDLE] = "middle", [SVG_END] = "end"};
    char text[TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    /* A white outline keeps the text readable over lines. */
    fprintf(
        out,
        "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\" stroke=\"#ffffff\" "
        "stroke-width=\"4\" stroke-linejoin=\"round\" paint-order=\"stroke\">",
        x, y, anchors[anchor], size, colour);
    svg_escape(out, text);
    fprintf(out, "</text>\n");
}

void svg_line(FILE *out, double x0, double y0, double x1, double y1, const char *colour,
              const char *dash)
{
    fprintf(out, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" stroke=\"%s\"", x0, y0, x1,
            y1, colour);
    if (dash)
        fprintf(out, " stroke-width=\"1.5\" stroke-dasharray=\"%s\"", dash);
    fprintf(out, "/>\n");
}

double svg_step(double range, int ticks)
{
    assert(range > 0.0 && ticks > 0);
    double raw = range / ticks, power = pow(10.0, floor(log10(raw)));
    double rest = raw / power;
    return power * (rest <= 1.0 ? 1.0 : rest <= 2.0 ? 2.0 : rest <= 5.0 ? 5.0 : 10.0);
}
