/* A line of JSONL: one JSON object, one of whose fields is a document. */
#ifndef GPT_TRAIN_DATA_JSONL_H
#define GPT_TRAIN_DATA_JSONL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"

#define JSONL_REASON_BYTES 512

/* Returns true when the line contains only white space. */
bool jsonl_line_is_blank(const char *line, size_t count);

/* Extracts the text of `field` of the object in line[count].  *out_text[*out_count] belongs to *out_root, which the
 * caller releases with json_decref(); it may contain zero bytes.  Errors: GT_DATA, with the cause in `reason` and
 * nothing logged, when the line is not a JSON object (a duplicate key, text after it, or not UTF-8), or the field is
 * missing or not a string; GT_NO_MEMORY. */
enum gt_status jsonl_line_text(const char *line, size_t count, const char *field, json_t **out_root,
                               const char **out_text, size_t *out_count, char reason[static JSONL_REASON_BYTES]);
/* The same for a field of type JSON_STRING or JSON_ARRAY. */
enum gt_status jsonl_line_value(const char *line, size_t count, const char *field, json_type type, json_t **out_root,
                                const json_t **out_value, char reason[static JSONL_REASON_BYTES]);

#endif
