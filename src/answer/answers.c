/* What is read and written for the answers to --compare, --explain_oom and --explain.
 *
 * A comparison plans one configuration after the other.  Both print the same rows in the same order
 * (plan_print_rows()), so lines are joined by their number.
 *
 * An error line names its identifier, as in "error[no-fit]: ..." (base/status.h).  --explain prints what doc/errors.md
 * says of the errors that people meet most.
 */
#include <errno.h>

#include "train/run.h"

#define TEXT_BYTES_MAX ((size_t)16 << 20)

/* Reads standard input to its end, at most TEXT_BYTES_MAX bytes, into memory that the caller frees. */
static enum gt_status input_read(char **out, size_t *out_count)
{
    char *text = malloc(TEXT_BYTES_MAX + 1);
    if (!text)
        return FAIL(GT_NO_MEMORY, "no memory for %zu B of standard input", TEXT_BYTES_MAX);
    *out_count = fread(text, 1, TEXT_BYTES_MAX + 1, stdin);
    enum gt_status status = GT_OK;
    if (ferror(stdin))
        status = FAIL(GT_IO, "standard input: %s", strerror(errno));
    else if (*out_count > TEXT_BYTES_MAX)
        status =
            FAIL(GT_DATA, "standard input: more than %zu B; give only the message and its traceback", TEXT_BYTES_MAX);
    return FINISH(status, out, text, free);
}

enum gt_status explain_oom(struct config *config, const struct model_config *model)
{
    const bool input = strcmp(config->explain_oom, "-") == 0;
    const char *name = input ? "standard input" : config->explain_oom;
    struct device_profile card = {.memory_bytes = 0};
    char *text;
    size_t count;
    if (config->device_profile[0] != '\0')
        TRY(device_profile_find(config->device_profile, &card));
    TRY(input ? input_read(&text, &count) : file_read_all(name, TEXT_BYTES_MAX, &text, &count));
    enum gt_status status = explain_oom_text(name, text, count, config, model, &card);
    free(text);
    return status;
}

/* ---- --compare ---- */

/* Sets *out to the rows of a configuration's plan, which the caller frees. */
static enum gt_status rows_make(const struct config *config, char **out)
{
    struct hostmem *mem = NULL;
    size_t bytes;
    FILE *file = open_memstream(out, &bytes);
    if (file == NULL)
        return FAIL(GT_NO_MEMORY, "no memory to compare plans");
    enum gt_status status = hostmem_create(&mem);
    THEN(status, trainer_run(mem, config, NULL, file));
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
    const char *file = NULL; /* the first one that set a key */
    for (int key = 0; key < CONFIG_KEY_COUNT && file == NULL; key++)
        file = config->origin[key].line > 0 ? config->origin[key].source : NULL;
    printf("%-12s  %-28s  %s\n", "", file != NULL ? file : "the defaults", config->compare);
    while (a != NULL && *a != '\0') {
        char *row = strsep(&a, "\n"), *other = strsep(&b, "\n");
        const char *label = word_next(&row), *text = word_next(&row), *second;
        (void)word_next(&other);
        second = word_next(&other);
        const double number = strtod(word_next(&row), NULL), ratio = strtod(word_next(&other), NULL) / number;
        printf("%-12s  %-28s  %s%s\n", label, text, second,
               number > 0.0 && ratio > 0.0 ? TEXT(24, "  %+.1f %%", 100.0 * (ratio - 1.0)) : "");
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

/* ---- --explain ---- */

enum gt_status error_explain(const char *id)
{
    const char *name = strncmp(id, "error[", 6) == 0 ? id + 6 : id; /* as it stands in the line */
    const char *page = embedded_errors.text;
    const char *section = strstr(page, TEXT(64, "\n## %.*s\n\n", (int)strcspn(name, "]"), name));
    char known[256] = "";
    if (section != NULL) {
        const char *text = strstr(section, "\n\n") + 2, *next = strstr(text, "\n## ");
        printf("%.*s", (int)(next != NULL ? (size_t)(next - text) : strlen(text)), text);
        return GT_OK;
    }
    while ((page = strstr(page, "\n## ")) != NULL) {
        page += 4;
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%.*s", known[0] != '\0' ? ", " : "",
                 (int)strcspn(page, "\n"), page);
    }
    return FAIL(GT_USAGE, "--explain=%s: no such error; known are %s", id, known);
}
