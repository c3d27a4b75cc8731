/* Plans one configuration after the other and joins what they print.
 *
 * Both print the same rows in the same order (plan_print_rows()), so lines are joined by their number.
 */
#include "train/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hostmem.h"
#include "base/log.h"
#include "train/run.h"

/* Returns the first file that set a key. */
static const char *file_of(const struct config *config)
{
    for (int key = 0; key < CONFIG_KEY_COUNT; key++) {
        if (config->origin[key].source != NULL && config->origin[key].line > 0)
            return config->origin[key].source;
    }
    return "the defaults";
}

/* Sets *out to the rows, which the caller frees. */
static enum gt_status rows_make(const struct config *config, char **out)
{
    struct hostmem *mem = NULL;
    size_t bytes;
    FILE *file = open_memstream(out, &bytes);
    if (file == NULL) {
        log_error("no memory to compare plans");
        return GT_NO_MEMORY;
    }
    enum gt_status status = hostmem_create(&mem);
    if (status == GT_OK)
        status = trainer_run(mem, config, file);
    hostmem_destroy(mem);
    return fclose(file) == 0 ? status : GT_NO_MEMORY;
}

/* Returns the next word of a row; "" after the last. */
static const char *word_next(char **row)
{
    const char *word = strsep(row, "\t");
    return word != NULL ? word : "";
}

static void table_print(const struct config *config, char *a, char *b)
{
    printf("%-12s  %-28s  %s\n", "", file_of(config), config->compare);
    while (a != NULL && *a != '\0') {
        char *row = strsep(&a, "\n"), *other = strsep(&b, "\n"), change[24] = "";
        const char *label = word_next(&row), *text = word_next(&row), *second;
        (void)word_next(&other);
        second = word_next(&other);
        const double number = strtod(word_next(&row), NULL), ratio = strtod(word_next(&other), NULL) / number;
        if (number > 0.0 && ratio > 0.0)
            snprintf(change, sizeof change, "  %+.1f %%", 100.0 * (ratio - 1.0));
        printf("%-12s  %-28s  %s%s\n", label, text, second, change);
    }
}

enum gt_status compare_run(const struct config *config)
{
    static struct config other; /* large */
    char *a = NULL, *b = NULL;
    enum gt_status second = GT_FAILURE;
    TRY(config_compared(config, &other));
    enum gt_status status = rows_make(config, &a);
    if (status == GT_OK || status == GT_NO_FIT)
        second = rows_make(&other, &b);
    if (second == GT_OK || second == GT_NO_FIT)
        table_print(config, a, b);
    free(a);
    free(b);
    return status == GT_OK ? second : status;
}
