/* The input of --explain_oom: a file or standard input, of limited size.
 *
 * explain_oom_text.c says what the text means.
 */
#include "answer/explain_oom.h"

#include <errno.h>

#include "answer/explain_oom_text.h"
#include "base/file.h"
#include "plan/device_profile_file.h"

#define TEXT_BYTES_MAX ((size_t)16 << 20)

/* Reads standard input to its end, at most TEXT_BYTES_MAX bytes, into memory that the caller frees.
 */
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
        status = FAIL(GT_DATA,
                      "standard input: more than %zu B; give only the message and its traceback",
                      TEXT_BYTES_MAX);
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
