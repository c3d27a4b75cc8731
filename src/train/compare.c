/* Plans one configuration after the other and joins what they print.
 *
 * Each prints rows of "label, tab, text, tab, number"; the table has the rows of both, and where both have a number,
 * the second one's distance.
 */
#include "train/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hostmem.h"
#include "base/log.h"
#include "plan/plan.h"
#include "train/run.h"

#define LABEL_WIDTH 12
#define TEXT_WIDTH_LEAST 24

struct row {
    const char *label, *text;
    double number; /* 0: none */
};

/* One configuration: its rows point into `printed`. */
struct side {
    char *printed;
    struct row rows[PLAN_ROWS_MAX];
    int count;
};

static void rows_split(struct side *side)
{
    char *rest = side->printed;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0' && side->count < PLAN_ROWS_MAX;) {
        struct row *row = &side->rows[side->count++];
        row->label = strsep(&line, "\t");
        row->text = line != NULL ? strsep(&line, "\t") : "";
        row->number = line != NULL ? strtod(line, NULL) : 0.0;
    }
}

static enum gt_status side_make(const struct config *config, struct side *side)
{
    struct hostmem *mem = NULL;
    size_t bytes;
    FILE *out = open_memstream(&side->printed, &bytes);
    if (out == NULL) {
        log_error("no memory to compare plans");
        return GT_NO_MEMORY;
    }
    enum gt_status status = hostmem_create(&mem);
    if (status == GT_OK)
        status = trainer_run(mem, config, out);
    hostmem_destroy(mem);
    if (fclose(out) == 0 && (status == GT_OK || status == GT_NO_FIT))
        rows_split(side);
    return status;
}

static const struct row *row_find(const struct side *side, const char *label)
{
    for (int i = 0; i < side->count; i++) {
        if (strcmp(side->rows[i].label, label) == 0)
            return &side->rows[i];
    }
    return NULL;
}

static void row_print(const char *label, const struct row *a, const struct row *b, int width)
{
    char change[24] = "";
    if (a && b && a->number > 0.0 && b->number > 0.0)
        snprintf(change, sizeof change, "  %+.1f %%", 100.0 * (b->number / a->number - 1.0));
    printf("%-*s  %-*s  %s%s\n", LABEL_WIDTH, label, width, a ? a->text : "-", b ? b->text : "-", change);
}

/* Returns the first file that set a key. */
static const char *file_of(const struct config *config)
{
    for (int key = 0; key < CONFIG_KEY_COUNT; key++) {
        if (config->origin[key].source != NULL && config->origin[key].line > 0)
            return config->origin[key].source;
    }
    return "the defaults";
}

static void table_print(const struct config *config, const struct side *a, const struct side *b)
{
    const struct row names[2] = {{.text = file_of(config)}, {.text = config->compare}};
    int width = (int)strlen(names[0].text) > TEXT_WIDTH_LEAST ? (int)strlen(names[0].text) : TEXT_WIDTH_LEAST;
    for (int i = 0; i < a->count; i++)
        width = (int)strlen(a->rows[i].text) > width ? (int)strlen(a->rows[i].text) : width;
    row_print("", &names[0], &names[1], width);
    for (int i = 0; i < a->count; i++)
        row_print(a->rows[i].label, &a->rows[i], row_find(b, a->rows[i].label), width);
    for (int i = 0; i < b->count; i++) {
        if (row_find(a, b->rows[i].label) == NULL)
            row_print(b->rows[i].label, NULL, &b->rows[i], width);
    }
}

enum gt_status compare_run(const struct config *config)
{
    static struct config other; /* large */
    struct side a = {0}, b = {0};
    enum gt_status status = config_compared(config, &other), second = status;
    if (status == GT_OK)
        status = side_make(config, &a);
    if (status == GT_OK || status == GT_NO_FIT)
        second = side_make(&other, &b);
    if (a.count > 0 && b.count > 0)
        table_print(config, &a, &b);
    free(a.printed);
    free(b.printed);
    return second == GT_OK || status != GT_OK ? status : second;
}
