/* A line of JSONL: one JSON object, one of whose fields is a document. */
#ifndef GPT_TRAIN_DATA_JSONL_H
#define GPT_TRAIN_DATA_JSONL_H

#include "base/json.h"

#define JSONL_REASON_BYTES 512

/* Returns true when the line contains only white space. */
bool jsonl_line_is_blank(const char *line, size_t count);

/* Extracts `field` of the object in line[count], a JSON_STRING, which may contain zero bytes, or a JSON_ARRAY.
 * *out_value belongs to *out_root, which the caller releases with json_decref().  Errors: GT_DATA, with the cause in
 * `reason` and nothing logged, when the line is not a JSON object (a duplicate key, text after it, or not UTF-8), or
 * when the field is missing or of another type; GT_NO_MEMORY. */
enum gt_status jsonl_line_value(const char *line, size_t count, const char *field, json_type type, json_t **out_root,
                                const json_t **out_value, char reason[static JSONL_REASON_BYTES]);

#endif
