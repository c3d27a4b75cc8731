/* Fuzzes the reader of JSONL lines: an accepted line returns the field's text, and a rejected line has a reason. */
#include <string.h>

#include "data/jsonl.h"
#include "tests/fuzz/fuzz_common.h"

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    (void)mem;
    const char *line = (const char *)data;
    json_t *root = NULL;
    const char *text = NULL;
    size_t count = 0;
    char reason[JSONL_REASON_BYTES] = "";
    (void)jsonl_line_is_blank(line, size);
    if (jsonl_line_text(line, size, "text", &root, &text, &count, reason) != GT_OK) {
        FUZZ_CHECK(root == NULL && reason[0] != '\0' && memchr(reason, '\0', sizeof reason) != NULL);
        return;
    }
    FUZZ_CHECK(root != NULL && text != NULL && count <= size && text[count] == '\0');
    json_decref(root);
}
