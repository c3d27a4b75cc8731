/* A line of JSONL: one JSON object, one of whose fields is a document. */
#ifndef GPT_TRAIN_DATA_JSONL_H
#define GPT_TRAIN_DATA_JSONL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"

#define JSONL_REASON_BYTES 512

/* True when the line has nothing but white space. */
bool jsonl_line_is_blank(const char *line, size_t count);

/* The text of `field` of the object in line[count]: *out_text[*out_count] belongs to *out_root, which the caller
 * releases with json_decref().  It may hold zero bytes.  Errors: GT_DATA, with the cause in `reason` and nothing
 * logged, when the line is no JSON object (a key twice, text after it, or not UTF-8), or has no such field, or one that
 * is no string; GT_NO_MEMORY. */
enum gt_status jsonl_line_text(const char *line, size_t count, const char *field, json_t **out_root,
                               const char **out_text, size_t *out_count, char reason[static JSONL_REASON_BYTES]);

#endif
