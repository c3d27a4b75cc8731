/* Fuzzes the reader of JSONL lines: an accepted line returns the field's text, and a rejected line
 * has a reason. */
#include <string.h>

#include "data/documents.h"
#include "tests/fuzz/fuzz_common.h"

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    (void)mem;
    const char *line = (const char *)data;
    json_t *text = NULL;
    char reason[JSONL_REASON_BYTES] = "";
    (void)jsonl_line_is_blank(line, size);
    if (jsonl_line_value(line, size, "text", &text, reason) != GT_OK) {
        FUZZ_CHECK(text == NULL && reason[0] != '\0' &&
                   memchr(reason, '\0', sizeof reason) != NULL);
        return;
    }
    FUZZ_CHECK(json_is_string(text) && json_string_length(text) <= size);
    json_decref(text);
}
