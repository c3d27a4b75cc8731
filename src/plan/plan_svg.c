/* Draws the plan as a picture: the ops of an update across, addresses up, one rectangle for each
 * storage.
 *
 * Programs are side by side on one scale of ops, small ones widened until their names fit.  A
 * storage is a rectangle with a tooltip.  Storages below the smallest drawn size have no tooltip
 * and are one path for each category, so that programs of many ops give a small file.  The smallest
 * size is doubled until few enough rectangles are left.  A second panel has the front of memory
 * against time.  Nothing is computed about the model here.
 */
#include "plan/plan_svg.h"

#include <math.h>

#include "base/clock.h"
#include "base/svg.h"
#include "model/model_create.h"
#include "plan/plan_alternatives.h"
#include "plan/plan_create.h"
#include "plan/plan_item.h"
#include "plan/plan_report.h"
#include "plan/plan_search.h"

#define PAGE_WIDTH 1600
#define PAGE_HEIGHT 900
#define MAP_LEFT 84
#define MAP_TOP 150
#define MAP_WIDTH 1040
#define MAP_HEIGHT 660
#define MAP_RIGHT (MAP_LEFT + MAP_WIDTH)
#define MAP_BOTTOM (MAP_TOP + MAP_HEIGHT)
#define FRONT_LEFT 1236.0
#define FRONT_TOP 150.0
#define FRONT_WIDTH 336.0
#define FRONT_HEIGHT 300.0
#define FRONT_BOTTOM (FRONT_TOP + FRONT_HEIGHT)
#define LEGEND_LEFT 1182.0
#define LEGEND_TOP 560.0
#define PROGRAM_WIDTH_MIN 68.0
#define PROGRAM_GAP 8.0
#define BOXES_MAX 6000     /* rectangles drawn individually */
#define BOX_SIZE_LEAST 1.5 /* in pixels, in both directions */
#define GIB 1073741824.0
#define MIB 1048576.0
#define BUDGET_COLOUR "#d62728"

/* A storage on the map. */
struct box {
    double left, right, top, bottom;
    enum tensor_category category;
    int32_t tensor; /* or TENSOR_NONE: the workspace of `op` */
    int32_t program, op,
        last; /* the program and ops of its life; program -1: a persistent tensor */
};

struct map {
    const struct plan *plan;
    const struct graph *graph;
    double left[GRAPH_PROGRAMS_MAX], width[GRAPH_PROGRAMS_MAX]; /* of the programs */
    /* Start of each segment on the map's address axis. */
    uint64_t segment_low[BACKEND_SEGMENTS_MAX];
    double bytes_top;            /* at the map's upper end */
    uint64_t budget;             /* 0 = unknown */
    struct tensor_range *ranges; /* [tensor_count] */
    struct plan_item *items;     /* [capacity], of one program */
    struct box *boxes;
    size_t count, capacity;
    FILE *out;
};

_Static_assert(SVG_COLOURS == CATEGORY_COUNT, "a colour for every category");

/* Returns the bytes that the arena may take according to the facts; 0 = unknown. */
static uint64_t budget_bytes(const struct plan *plan, const struct plan_report_facts *facts)
{
    uint64_t around = plan_total_bytes(plan, facts) - plan->arena_bytes;
    return facts->free_bytes > around && facts->free_bytes <= INT64_MAX ? facts->free_bytes - around
                                                                        : 0;
}

static double byte_y(const struct map *map, double address)
{
    return MAP_BOTTOM - address / map->bytes_top * MAP_HEIGHT;
}

/* Distributes the map's width among the programs by their ops, at least PROGRAM_WIDTH_MIN each. */
static void widths_set(struct map *map)
{
    int32_t count = map->graph->program_count;
    double room = MAP_WIDTH - PROGRAM_GAP * (count - 1), scale = 0.0;
    for (int32_t pass = 0; pass < count; pass++) {
        double rest = room, ops = 0.0;
        for (int32_t p = 0; p < count; p++) {
            bool small = map->graph->programs[p].count * scale < PROGRAM_WIDTH_MIN && pass > 0;
            rest -= small ? PROGRAM_WIDTH_MIN : 0.0;
            ops += small ? 0.0 : map->graph->programs[p].count;
        }
        scale = ops > 0.0 && rest > 0.0 ? rest / ops : 0.0;
    }
    double at = MAP_LEFT;
    for (int32_t p = 0; p < count; p++) {
        double width = map->graph->programs[p].count * scale;
        map->left[p] = at;
        map->width[p] = width < PROGRAM_WIDTH_MIN ? PROGRAM_WIDTH_MIN : width;
        at += map->width[p] + PROGRAM_GAP;
    }
}

static double op_x(const struct map *map, int32_t program, int32_t op)
{
    int32_t ops = map->graph->programs[program].count;
    return map->left[program] + (ops > 0 ? map->width[program] * op / ops : 0.0);
}

/* Finds the left and right ends of a phase on the map.  Returns false when it has no program. */
static bool phase_ends(const struct map *map, enum program_phase phase, double *left, double *right)
{
    bool found = false;
    for (int32_t p = 0; p < map->graph->program_count; p++) {
        if (map->graph->programs[p].phase != phase)
            continue;
        *left = found ? *left : map->left[p];
        *right = map->left[p] + map->width[p];
        found = true;
    }
    return found;
}

static void box_add(struct map *map, struct box box, struct address at, uint64_t bytes)
{
    const double low = (double)(map->segment_low[at.segment] + at.offset_bytes);
    assert(map->count < map->capacity && at.offset_bytes != PLAN_UNPLACED);
    box.bottom = byte_y(map, low);
    box.top = byte_y(map, low + (double)bytes);
    map->boxes[map->count++] = box;
}

static void persistent_boxes_add(struct map *map)
{
    for (int32_t t = TENSOR_FIRST; t < map->graph->tensor_count; t++) {
        const struct tensor *tensor = &map->graph->tensors[t];
        if (tensor->base != TENSOR_NONE || tensor->lifetime == LIFETIME_PROGRAM ||
            map->plan->tensor[t].offset_bytes == PLAN_UNPLACED)
            continue;
        struct box box = {.category = tensor->category,
                          .tensor = t,
                          .program = -1,
                          .left = MAP_LEFT,
                          .right = MAP_RIGHT};
        if (tensor->lifetime == LIFETIME_RUN ||
            phase_ends(map, tensor->phase, &box.left, &box.right))
            box_add(map, box, map->plan->tensor[t], graph_tensor_bytes(map->graph, t));
    }
}

static void program_boxes_add(struct map *map, int32_t program)
{
    const struct plan *plan = map->plan;
    graph_ranges(map->graph, program, map->ranges);
    int32_t count = plan_items_collect(plan, program, map->ranges, map->items);
    for (int32_t i = 0; i < count; i++) {
        const struct plan_item *item = &map->items[i];
        struct box box = {.left = op_x(map, program, item->first),
                          .right = op_x(map, program, item->last + 1),
                          .category = CATEGORY_WORKSPACE,
                          .tensor = item->tensor,
                          .program = program,
                          .op = item->first,
                          .last = item->last};
        if (item->tensor == TENSOR_NONE) {
            box_add(map, box, plan->workspace[program][item->op],
                    plan->workspace_bytes[program][item->op]);
            continue;
        }
        box.category = map->graph->tensors[item->tensor].category;
        box_add(map, box, plan->tensor[item->tensor], graph_tensor_bytes(map->graph, item->tensor));
    }
}

static bool box_is_small(const struct box *box, double size)
{
    return box->right - box->left < size || box->bottom - box->top < size;
}

/* Returns the smallest size that leaves few enough boxes to draw individually. */
static double box_size_choose(const struct map *map)
{
    double size = BOX_SIZE_LEAST;
    for (; size < PAGE_WIDTH; size *= 2.0) {
        size_t drawn = 0;
        for (size_t i = 0; i < map->count; i++)
            drawn += !box_is_small(&map->boxes[i], size);
        if (drawn <= BOXES_MAX)
            break;
    }
    return size;
}

/* Draws the boxes that are too small to be drawn individually. */
static void small_boxes_draw(const struct map *map, double size)
{
    fprintf(map->out, "<g id=\"small\"><title>several tensors, each below a pixel</title>\n");
    for (int32_t c = 0; c < CATEGORY_COUNT; c++) {
        fprintf(map->out, "<path class=\"%s\" fill=\"%s\" d=\"",
                tensor_category_name((enum tensor_category)c), svg_colours[c]);
        for (size_t i = 0; i < map->count; i++) {
            const struct box *box = &map->boxes[i];
            if ((int32_t)box->category == c && box_is_small(box, size))
                fprintf(map->out, "M%.2f %.2fH%.2fV%.2fH%.2f", box->left, box->bottom, box->right,
                        box->top, box->left);
        }
        fprintf(map->out, "\"/>\n");
    }
    fprintf(map->out, "</g>\n");
}

/* Writes name, dtype and shape, bytes, and the ops of its life. */
static void box_title(const struct map *map, const struct box *box)
{
    FILE *out = map->out;
    if (box->tensor != TENSOR_NONE) {
        const struct tensor *tensor = &map->graph->tensors[box->tensor];
        uint64_t bytes = graph_tensor_bytes(map->graph, box->tensor);
        svg_escape(out, tensor->name);
        fprintf(out, "\n%s[", dtype_name(tensor->dtype));
        for (int32_t i = 0; i < tensor->rank; i++)
            fprintf(out, "%s%" PRId64, i ? "," : "", tensor->dims[i]);
        fprintf(out, "], %s\n%s (%" PRIu64 " bytes)\n", tensor_category_name(tensor->category),
                LOG_BYTES(bytes), bytes);
    } else {
        uint64_t bytes = map->plan->workspace_bytes[box->program][box->op];
        fprintf(out, "workspace of %s\n%s (%" PRIu64 " bytes)\n",
                op_declaration(map->graph->programs[box->program].ops[box->op].kind)->name,
                LOG_BYTES(bytes), bytes);
    }
    if (box->program >= 0)
        fprintf(out, "%s, ops %" PRId32 " .. %" PRId32,
                program_kind_name(map->graph->programs[box->program].kind), box->op, box->last);
    else if (map->graph->tensors[box->tensor].lifetime == LIFETIME_PHASE)
        fprintf(out, "all of phase %s", program_phase_name(map->graph->tensors[box->tensor].phase));
    else
        fprintf(out, "the whole run");
}

static void box_draw(const struct map *map, const struct box *box)
{
    double width = box->right - box->left, height = box->bottom - box->top;
    fprintf(
        map->out,
        "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"%s><title>",
        tensor_category_name(box->category), box->left, box->top, width, height,
        svg_colours[box->category],
        width > 4.0 && height > 4.0 ? " stroke=\"#ffffff\" stroke-width=\"0.5\"" : "");
    box_title(map, box);
    fprintf(map->out, "</title></rect>\n");
}

static void boxes_draw(struct map *map)
{
    double size = box_size_choose(map);
    small_boxes_draw(map, size);
    fprintf(map->out, "<g id=\"tensors\">\n");
    for (size_t i = 0; i < map->count; i++)
        if (!box_is_small(&map->boxes[i], size))
            box_draw(map, &map->boxes[i]);
    fprintf(map->out, "</g>\n");
}

static void address_axis_draw(const struct map *map)
{
    double unit = map->bytes_top >= 0.5 * GIB ? GIB : MIB,
           step = svg_step(map->bytes_top / unit, 9);
    FILE *out = map->out;
    for (int i = 0; i * step * unit <= map->bytes_top; i++) {
        const double y = byte_y(map, i * step * unit);
        svg_line(out, MAP_LEFT - 5, y, MAP_RIGHT, y, "#e6e6e6", NULL);
        svg_text(out, MAP_LEFT - 10, y + 4, SVG_END, SVG_TEXT_SIZE, SVG_INK, "%g", i * step);
    }
    fprintf(
        out,
        "<text transform=\"translate(26 %.2f) rotate(-90)\" text-anchor=\"middle\" font-size=\"%d\" fill=\"%s\">"
        "address, %s</text>\n",
        MAP_TOP + MAP_HEIGHT / 2.0, SVG_TEXT_SIZE + 1, SVG_INK, unit == GIB ? "GiB" : "MiB");
}

/* Draws the indices of the ops under one program. */
static void op_axis_draw(const struct map *map, int32_t program)
{
    int32_t ops = map->graph->programs[program].count;
    double step = ops > 0 ? svg_step(ops, (int)(map->width[program] / 60.0) + 1) : 1.0;
    step = step < 1.0 ? 1.0 : step;
    for (int i = 0; i * step < ops; i++) {
        double x = op_x(map, program, (int32_t)(i * step));
        if (i > 0 && i * step > ops - 0.4 * step)
            break; /* it would touch the next program's 0 */
        svg_line(map->out, x, MAP_BOTTOM, x, MAP_BOTTOM + 5, SVG_INK, NULL);
        svg_text(map->out, x, MAP_BOTTOM + 19, SVG_MIDDLE, SVG_TEXT_SIZE - 1, SVG_INK, "%g",
                 i * step);
    }
    svg_line(map->out, map->left[program], MAP_BOTTOM, map->left[program] + map->width[program],
             MAP_BOTTOM, SVG_INK, NULL);
}

/* Draws the parts of a training program, which readers look for first: forward, loss, backward. */
static void passes_draw(const struct map *map, int32_t program)
{
    const struct program *of = &map->graph->programs[program];
    int32_t first = of->count, last = -1;
    bool backward = false;
    for (int32_t i = 0; i < of->count; i++) {
        if (of->ops[i].chunk > 0) {
            first = i < first ? i : first;
            last = i;
        }
        backward = backward || of->ops[i].pass == PASS_BACKWARD;
    }
    const int32_t ends[4] = {0, first, last + 1, of->count};
    static const char *const names[3] = {"forward", "loss", "backward"};
    for (int k = 0; backward && last >= 0 && k < 3; k++) {
        double left = op_x(map, program, ends[k]), right = op_x(map, program, ends[k + 1]);
        if (k > 0)
            svg_line(map->out, left, MAP_TOP, left, MAP_BOTTOM, SVG_FAINT, "1 4");
        if (right - left > 58.0)
            svg_text(map->out, (left + right) / 2, MAP_TOP + 14, SVG_MIDDLE, SVG_TEXT_SIZE - 1,
                     SVG_FAINT, "%s", names[k]);
    }
}

/* Draws the names of phases and programs, and how often an update runs a program if that is more
 * than once. */
static void captions_draw(const struct map *map, const struct plan_report_facts *facts)
{
    for (int32_t phase = 0; phase < PHASE_COUNT; phase++) {
        double left, right;
        if (!phase_ends(map, (enum program_phase)phase, &left, &right))
            continue;
        svg_line(map->out, left, MAP_TOP - 35, right, MAP_TOP - 35, SVG_INK, NULL);
        svg_text(map->out, (left + right) / 2, MAP_TOP - 40, SVG_MIDDLE, SVG_TEXT_SIZE, SVG_INK,
                 "%s", program_phase_name((enum program_phase)phase));
    }
    for (int32_t p = 0; p < map->graph->program_count; p++) {
        const enum program_kind kind = map->graph->programs[p].kind;
        const int32_t times = facts->search ? model_runs(&facts->search->found.options, kind) : 1;
        svg_text(map->out, map->left[p] + map->width[p] / 2, MAP_TOP - 14, SVG_MIDDLE,
                 SVG_TEXT_SIZE - 1, SVG_INK, "%s%s", program_kind_name(kind),
                 times > 1 ? TEXT(24, ", %" PRId32 " times", times) : "");
        op_axis_draw(map, p);
        passes_draw(map, p);
    }
    svg_text(map->out, MAP_LEFT + MAP_WIDTH / 2.0, MAP_BOTTOM + 42, SVG_MIDDLE, SVG_TEXT_SIZE + 1,
             SVG_INK, "index of the op, in each program from 0");
}

static void budget_draw(const struct map *map)
{
    if (map->budget == 0)
        return;
    const double y = byte_y(map, (double)map->budget);
    const bool inside = y >= MAP_TOP;
    if (inside)
        svg_line(map->out, MAP_LEFT, y, MAP_RIGHT, y, BUDGET_COLOUR, "6 4");
    svg_text(map->out, MAP_RIGHT, inside ? y - 6 : MAP_TOP - 62, SVG_END, SVG_TEXT_SIZE,
             BUDGET_COLOUR, "available %s%s", LOG_BYTES(map->budget),
             inside ? "" : ", above the picture");
}

static void peak_draw(const struct map *map)
{
    const struct plan *plan = map->plan;
    const struct program *program =
        plan->peak_program >= 0 ? &map->graph->programs[plan->peak_program] : NULL;
    if (!program || program->count == 0)
        return;
    const int32_t peak = plan->program[plan->peak_program].peak_op;
    double x = op_x(map, plan->peak_program, peak);
    double y = byte_y(map, (double)plan->arena_bytes), label = y - 12,
           limit = byte_y(map, (double)map->budget);
    if (map->budget > 0 && limit > label - 16 && limit < label + 6)
        label = limit - 6;
    bool right = x > MAP_LEFT + 0.5 * MAP_WIDTH;
    svg_line(map->out, x, y, x, MAP_BOTTOM, SVG_INK, "2 3");
    fprintf(map->out, "<path id=\"peak\" d=\"M%.2f %.2fl-6 -9h12z\" fill=\"%s\"/>\n", x, y,
            SVG_INK);
    svg_text(map->out, x, label, right ? SVG_END : SVG_START, SVG_TEXT_SIZE, SVG_INK,
             "peak %s: op %" PRId32 " of %s, %s", LOG_BYTES(plan->arena_bytes), peak,
             program_kind_name(program->kind), op_declaration(program->ops[peak].kind)->name);
}

/* Draws the line above which host memory begins, and its name. */
static void host_draw(const struct map *map)
{
    const uint64_t bytes = map->plan->host_bytes,
                   low = map->segment_low[map->plan->device_segments];
    const double y = byte_y(map, (double)low);
    if (bytes == 0)
        return;
    svg_line(map->out, MAP_LEFT - 60, y, MAP_RIGHT, y, SVG_INK, NULL);
    svg_text(map->out, MAP_RIGHT, byte_y(map, (double)(low + bytes)) - 6, SVG_END, SVG_TEXT_SIZE,
             SVG_INK, "host memory %s", LOG_BYTES(bytes));
}

static void legend_draw(const struct map *map)
{
    bool used[CATEGORY_COUNT] = {false};
    double y = LEGEND_TOP + 24;
    for (size_t i = 0; i < map->count; i++)
        used[map->boxes[i].category] = true;
    fprintf(map->out, "<g id=\"legend\">\n");
    svg_text(map->out, LEGEND_LEFT, LEGEND_TOP, SVG_START, SVG_TEXT_SIZE + 2, SVG_INK,
             "In use at the peak");
    for (int32_t c = 0; c < CATEGORY_COUNT; c++) {
        uint64_t bytes = map->plan->category_bytes[c];
        if (!used[c])
            continue;
        fprintf(map->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"16\" height=\"14\" fill=\"%s\"/>\n",
                LEGEND_LEFT, y - 12, svg_colours[c]);
        svg_text(map->out, LEGEND_LEFT + 26, y, SVG_START, SVG_TEXT_SIZE + 1, SVG_INK, "%s",
                 tensor_category_name((enum tensor_category)c));
        svg_text(map->out, LEGEND_LEFT + 250, y, SVG_END, SVG_TEXT_SIZE + 1, SVG_INK, "%s",
                 LOG_BYTES(bytes));
        svg_text(map->out, LEGEND_LEFT + 340, y, SVG_END, SVG_TEXT_SIZE + 1, SVG_INK, "%.1f %%",
                 100.0 * (double)bytes / (double)map->plan->arena_bytes);
        y += 24;
    }
    fprintf(map->out, "</g>\n");
}

static void head_draw(const struct map *map, const struct plan_report_facts *facts)
{
    const struct plan *plan = map->plan;
    char text[SEARCH_CHANGES_MAX];
    uint64_t above = plan->arena_bytes - plan->arena_bytes_bound;
    svg_text(map->out, 24, 34, SVG_START, 20, SVG_INK, "Memory plan: %s",
             facts->configuration ? facts->configuration : "-");
    svg_text(map->out, 24, 58, SVG_START, SVG_TEXT_SIZE + 1, SVG_FAINT,
             "%s; %s (%" PRIu64 " bytes), %.2f %% above the minimum",
             facts->device ? facts->device : "-", LOG_BYTES(plan->arena_bytes), plan->arena_bytes,
             plan->arena_bytes_bound > 0 ? 100.0 * (double)above / (double)plan->arena_bytes_bound
                                         : 0.0);
    if (!facts->search || (facts->search->fits && facts->search->candidates <= 1))
        return;
    search_changes_text(text, &facts->search->found.options, &facts->request->options);
    svg_text(map->out, 24, 80, SVG_START, SVG_TEXT_SIZE + 1,
             facts->search->fits ? SVG_INK : BUDGET_COLOUR, "%s %s",
             facts->search->request_fits ? "Changed for speed:"
             : facts->search->fits       ? "Changed to fit the budget:"
                                         : "DOES NOT FIT; the smallest plan:",
             text);
}

/* ---- the front of memory against modelled time ----
 *
 * Every point is a real plan; no plan of the search is both smaller and faster than one of them.
 * Memory is on a logarithmic scale, time is the surplus over the fastest.  Points are joined by
 * steps, because no plan exists between them. */

struct front_axes {
    double octave_low, octave_high; /* log2 of bytes */
    double slower_high;             /* surplus of time at the top, as a share */
    double fastest;
};

static double x_of(const struct front_axes *axes, double bytes)
{
    double share = (log2(bytes) - axes->octave_low) / (axes->octave_high - axes->octave_low);
    return FRONT_LEFT + FRONT_WIDTH * share;
}

static double y_of(const struct front_axes *axes, double seconds)
{
    double share = (seconds / axes->fastest - 1.0) / axes->slower_high;
    return FRONT_TOP + FRONT_HEIGHT * (1.0 - share);
}

static struct front_axes axes_make(const struct plan_report_facts *facts)
{
    const struct search_alternative *smallest = &facts->front[0],
                                    *fastest = &facts->front[facts->front_count - 1];
    struct front_axes axes = {.fastest = fastest->seconds};
    axes.octave_low = log2((double)smallest->arena_bytes) - 0.15;
    axes.octave_high = log2((double)fastest->arena_bytes) + 0.15;
    if (floor(axes.octave_high) - ceil(axes.octave_low) <
        1.0) { /* at least two powers of two as ticks */
        axes.octave_low = floor(axes.octave_low);
        axes.octave_high = fmax(ceil(axes.octave_high), axes.octave_low + 1.0);
    }
    double slower = smallest->seconds / fastest->seconds - 1.0;
    axes.slower_high = slower > 1e-4 ? slower * 1.1 : 0.01;
    return axes;
}

static void front_axes_draw(const struct front_axes *axes, FILE *out)
{
    double step = svg_step(axes->slower_high, 5);
    int octave_step = axes->octave_high - axes->octave_low > 6.0 ? 2 : 1;
    for (int octave = (int)ceil(axes->octave_low); octave <= (int)axes->octave_high;
         octave += octave_step) {
        double x = x_of(axes, ldexp(1.0, octave));
        svg_line(out, x, FRONT_TOP, x, FRONT_BOTTOM, "#e6e6e6", NULL);
        const int unit = octave >= 30 ? 3 : octave >= 20 ? 2 : 1;
        svg_text(out, x, FRONT_BOTTOM + 18, SVG_MIDDLE, SVG_TEXT_SIZE, SVG_INK, "%g %ciB",
                 ldexp(1.0, octave - 10 * unit), " KMG"[unit]);
    }
    for (int i = 0; i * step <= axes->slower_high; i++) {
        double y = y_of(axes, axes->fastest * (1.0 + i * step));
        svg_line(out, FRONT_LEFT, y, FRONT_LEFT + FRONT_WIDTH, y, "#e6e6e6", NULL);
        svg_text(out, FRONT_LEFT - 8, y + 4, SVG_END, SVG_TEXT_SIZE, SVG_INK, "+%g %%",
                 100.0 * i * step);
    }
    svg_line(out, FRONT_LEFT, FRONT_BOTTOM, FRONT_LEFT + FRONT_WIDTH, FRONT_BOTTOM, SVG_INK, NULL);
    svg_line(out, FRONT_LEFT, FRONT_TOP, FRONT_LEFT, FRONT_BOTTOM, SVG_INK, NULL);
    svg_text(out, FRONT_LEFT + FRONT_WIDTH / 2, FRONT_BOTTOM + 38, SVG_MIDDLE, SVG_TEXT_SIZE,
             SVG_INK, "memory");
    svg_text(out, FRONT_LEFT - 54, FRONT_TOP - 34, SVG_START, SVG_TEXT_SIZE + 2, SVG_INK,
             "Memory against time (estimated)");
    svg_text(out, FRONT_LEFT - 54, FRONT_TOP - 14, SVG_START, SVG_TEXT_SIZE, SVG_FAINT,
             "how much slower than the fastest, %s per update", CLOCK_DURATION(axes->fastest));
}

/* Draws the steps between the points, from the smallest to the fastest. */
static void steps_draw(const struct front_axes *axes, const struct plan_report_facts *facts,
                       FILE *out)
{
    fprintf(out, "<path fill=\"none\" stroke=\"#332288\" stroke-width=\"1.5\" d=\"");
    for (int32_t i = 0; i < facts->front_count; i++) {
        double x = x_of(axes, (double)facts->front[i].arena_bytes),
               y = y_of(axes, facts->front[i].seconds);
        if (i == 0)
            fprintf(out, "M%.2f %.2f", x, y);
        else
            fprintf(out, "H%.2fV%.2f", x, y);
    }
    fprintf(out, "\"/>\n");
}

static void point_draw(const struct front_axes *axes, double bytes, double seconds, bool here,
                       const char *text, FILE *out)
{
    fprintf(
        out,
        "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"%s\" fill=\"%s\" stroke=\"#332288\" stroke-width=\"1.5\"><title>",
        x_of(axes, bytes), y_of(axes, seconds), here ? "6" : "4", here ? "#332288" : "#ffffff");
    svg_escape(out, text);
    fprintf(out,
            "\nmemory %s (%.0f bytes)\n%s per update (estimated), %+.2f %%%s</title></circle>\n",
            LOG_BYTES(bytes), bytes, CLOCK_DURATION(seconds),
            100.0 * (seconds / axes->fastest - 1.0), here ? "\nthis plan" : "");
}

/* Draws the points, and this plan, which may not be one of them. */
static void points_draw(const struct front_axes *axes, const struct plan *plan,
                        const struct plan_report_facts *facts, FILE *out)
{
    char changes[SEARCH_CHANGES_MAX];
    const struct model_options *requested = &facts->request->options;
    for (int32_t i = 0; i < facts->front_count; i++) {
        const struct search_alternative *point = &facts->front[i];
        point_draw(axes, (double)point->arena_bytes, point->seconds, false,
                   search_changes_text(changes, &point->options, requested), out);
    }
    if (facts->forecast.step_seconds > 0.0)
        point_draw(axes, (double)plan->arena_bytes, facts->forecast.step_seconds, true,
                   search_changes_text(changes, &facts->search->found.options, requested), out);
}

static void front_budget_draw(const struct front_axes *axes, uint64_t budget, FILE *out)
{
    double octave = budget > 0 ? log2((double)budget) : -1.0;
    if (octave < axes->octave_low || octave > axes->octave_high)
        return;
    double x = x_of(axes, (double)budget);
    bool right = x > FRONT_LEFT + 0.6 * FRONT_WIDTH;
    svg_line(out, x, FRONT_TOP, x, FRONT_BOTTOM, BUDGET_COLOUR, "6 4");
    svg_text(out, x + (right ? -6 : 6), FRONT_TOP + 14, right ? SVG_END : SVG_START, SVG_TEXT_SIZE,
             BUDGET_COLOUR, "budget");
}

static void front_draw(const struct map *map, const struct plan_report_facts *facts)
{
    FILE *out = map->out;
    if (!facts->front || facts->front_count == 0)
        return;
    struct front_axes axes = axes_make(facts);
    fprintf(out, "<g id=\"front\">\n");
    front_axes_draw(&axes, out);
    steps_draw(&axes, facts, out);
    front_budget_draw(&axes, map->budget, out);
    points_draw(&axes, map->plan, facts, out);
    fprintf(out, "</g>\n");
}

/* ---- the page ---- */

static void page_draw(struct map *map, const struct plan_report_facts *facts)
{
    FILE *out = map->out;
    fprintf(
        out,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
        "height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n<title>gpt-train memory plan</title>\n"
        "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n",
        PAGE_WIDTH, PAGE_HEIGHT, PAGE_WIDTH, PAGE_HEIGHT, PAGE_WIDTH, PAGE_HEIGHT);
    head_draw(map, facts);
    address_axis_draw(map);
    boxes_draw(map);
    captions_draw(map, facts);
    budget_draw(map);
    peak_draw(map);
    host_draw(map);
    legend_draw(map);
    front_draw(map, facts);
    fprintf(out, "</svg>\n");
}

/* Sets the address axis.  The device's segments are stacked, with room for the budget if it is
 * near; those in host memory are above it. */
static void addresses_set(struct map *map)
{
    const uint64_t arena = map->plan->arena_bytes, budget = map->budget;
    const uint64_t top = budget > arena && (double)budget < 1.3 * (double)arena ? budget : arena;
    uint64_t low = 0;
    for (int32_t k = 0; k < map->plan->segment_count; k++) {
        low = k == map->plan->device_segments ? top + (top + map->plan->host_bytes) / 16 : low;
        map->segment_low[k] = low;
        low += map->plan->segment[k].size_bytes;
    }
    map->bytes_top = top > 0 ? 1.07 * fmax((double)low, (double)top) : 1.0;
}

enum gt_status plan_print_svg(struct hostmem *mem, const struct plan *plan,
                              const struct plan_report_facts *facts, FILE *out)
{
    const size_t tensors = (size_t)plan->graph->tensor_count;
    struct map *map;
    TRY(HOSTMEM_NEW(mem, 1, "picture", &map));
    *map = (struct map){.plan = plan,
                        .graph = plan->graph,
                        .budget = budget_bytes(plan, facts),
                        .capacity = tensors,
                        .out = out};
    for (int32_t p = 0; p < plan->program_count; p++)
        map->capacity += (size_t)plan->graph->programs[p].count;
    TRY(HOSTMEM_NEW(map, map->capacity, "picture", &map->boxes));
    TRY(HOSTMEM_NEW(map, tensors, "picture", &map->ranges));
    TRY(HOSTMEM_NEW(map, map->capacity, "picture", &map->items));
    widths_set(map);
    addresses_set(map);
    persistent_boxes_add(map);
    for (int32_t p = 0; p < plan->program_count; p++)
        program_boxes_add(map, p);
    page_draw(map, facts);
    hostmem_free(map);
    return fflush(out) != 0 || ferror(out) ? GT_IO : GT_OK;
}
