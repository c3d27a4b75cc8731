/* JSON: a narrow door to jansson.
 *
 * Reading rejects duplicate keys, trailing text and integers that do not fit.  The getters name the file and the field
 * in their error line, so that a parser is a list of fields and nothing else.
 */
#ifndef GPT_TRAIN_BASE_JSON_H
#define GPT_TRAIN_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

/* json_loadb(), but for memory that runs out, which is an error here.  Errors: GT_DATA, with `error` filled and nothing
 * logged; GT_NO_MEMORY. */
enum gt_status json_load(const char *text, size_t count, size_t flags, json_error_t *error, json_t **out);
/* Parses `count` bytes; `source` (a path) goes into error lines.  Release with json_decref().  Errors: GT_DATA,
 * GT_NO_MEMORY. */
enum gt_status json_parse(const char *text, size_t count, const char *source, json_t **out);
/* Reads and parses a file of at most `limit` bytes.  Errors: GT_IO, GT_DATA, GT_NO_MEMORY. */
enum gt_status json_parse_file(const char *path, size_t limit, json_t **out);

/* Members of `object`; GT_DATA and one line "SOURCE: field "NAME": ..." when absent or of another type or range. */
enum gt_status json_get_int(const json_t *object, const char *source, const char *name, int64_t min, int64_t max,
                            int64_t *out);
enum gt_status json_get_real(const json_t *object, const char *source, const char *name, double *out);
enum gt_status json_get_bool(const json_t *object, const char *source, const char *name, bool *out);
enum gt_status json_get_string(const json_t *object, const char *source, const char *name, const char **out);
enum gt_status json_get_object(const json_t *object, const char *source, const char *name, const json_t **out);

/* Serialises with sorted-as-inserted keys, full precision (17 digits) and `indent` spaces into malloc'ed text.
 * Errors: GT_NO_MEMORY. */
enum gt_status json_text(const json_t *value, int indent, char **out);
/* Writes it atomically, with a final newline.  Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status json_replace_file(const char *path, const json_t *value, int indent);
/* The same, with these permissions: see file_replacement_begin_mode(). */
enum gt_status json_replace_file_mode(const char *path, const json_t *value, int indent, const mode_t *mode);
/* The same; *out_in_place says, also after an error, whether the new file is in place or may be. */
enum gt_status json_replace_file_told(const char *path, const json_t *value, int indent, bool *out_in_place);

#endif
