/* JSON: a thin wrapper around jansson.
 *
 * Reading rejects duplicate keys, trailing text and integers that do not fit.  The getters name the
 * file and the field in their error line, so that a parser is just a list of fields.
 */
#ifndef GPT_TRAIN_BASE_JSON_H
#define GPT_TRAIN_BASE_JSON_H

#include <jansson.h>

#include "base/file.h"

/* As json_loadb(), but running out of memory is an error.  Errors: GT_DATA (fills `error`, logs
 * nothing); GT_NO_MEMORY. */
enum gt_status json_load(const char *text, size_t count, size_t flags, json_error_t *error,
                         json_t **out);
/* Parses `count` bytes; `source` (a path) is for error lines.  Release with json_decref().  Errors:
 * GT_DATA, GT_NO_MEMORY. */
enum gt_status json_parse(const char *text, size_t count, const char *source, json_t **out);
/* Reads and parses a file of at most `limit` bytes.  Errors: GT_IO, GT_DATA, GT_NO_MEMORY. */
enum gt_status json_parse_file(const char *path, size_t limit, json_t **out);
/* The same for a file that may be absent or broken: *out is NULL then, and error->text says what is
 * wrong with a broken one, or is empty.  Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status json_parse_optional(const char *path, size_t limit, json_error_t *error,
                                   json_t **out);

/* Read a member of `object`.  Errors: GT_DATA, with one line "SOURCE: field "NAME": ...", when it
 * is absent or has the wrong type or range. */
enum gt_status json_get_int(const json_t *object, const char *source, const char *name, int64_t min,
                            int64_t max, int64_t *out);
enum gt_status json_get_real(const json_t *object, const char *source, const char *name,
                             double *out);
enum gt_status json_get_bool(const json_t *object, const char *source, const char *name, bool *out);
enum gt_status json_get_string(const json_t *object, const char *source, const char *name,
                               const char **out);
enum gt_status json_get_object(const json_t *object, const char *source, const char *name,
                               const json_t **out);

#define JSON_SHORT_BYTES 64
/* Writes a value to `text` for a message: a long one is cut, and lists and objects are only [...]
 * and {...}, since they may be deep.  Returns `text`. */
char *json_short_text(char text[static JSON_SHORT_BYTES], const json_t *value);
#define JSON_SHORT_TEXT(value) json_short_text((char[JSON_SHORT_BYTES]){0}, value)

/* Returns `value` if `failures` is 0; otherwise releases it and returns NULL. */
json_t *json_whole(json_t *value, int failures);
/* Serialises to malloc'ed text with keys in insertion order, full precision (17 digits) and
 * `indent` spaces; `end` is
 * "", or the newline that ends a file.  Errors: GT_NO_MEMORY. */
enum gt_status json_text(const json_t *value, int indent, const char *end, char **out);
/* Writes a value and a newline to a file atomically.  Errors: GT_IO, GT_NO_MEMORY. */
enum gt_status json_replace_file(const char *path, const json_t *value, int indent);
/* As above, with the permissions *mode unless it is NULL: see file_replacement_begin().
 * *out_in_place is set to whether the new file is, or may be, in place, also on failure except
 * GT_NO_MEMORY. */
enum gt_status json_replace_file_keep_mode(const char *path, const json_t *value, int indent,
                                           const mode_t *mode, bool *out_in_place);

#endif
