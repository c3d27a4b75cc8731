/* --explain.
 *
 * An error line names its identifier, as in "error[no-fit]: ..." (base/status.h).  doc/errors.md,
 * which is part of the program, says more about the errors that people meet most.
 */
#include "answer/explain_error.h"

enum gt_status explain_error(const char *id)
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
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%.*s",
                 known[0] != '\0' ? ", " : "", (int)strcspn(page, "\n"), page);
    }
    return FAIL(GT_USAGE, "--explain=%s: no such error; known are %s", id, known);
}
