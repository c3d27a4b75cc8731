/* Finds the records in a text: lines of JSON, the elements of one JSON list, the rows of a CSV
 * file.
 *
 * A scan processes the bytes one by one and stores none, so a list or a table may have any size.
 * The caller keeps the bytes of one record.  A row may have line ends in quoted fields (RFC 4180).
 */
#ifndef GPT_TRAIN_DATA_RECORDS_H
#define GPT_TRAIN_DATA_RECORDS_H

#include "base/hostmem.h"
#include "base/json.h"

enum record_form { RECORD_LINES, RECORD_LIST, RECORD_CSV };

/* Zero at the beginning of a text, with the form. */
struct record_scan {
    enum record_form form;
    bool opened, closed; /* the list */
    bool wants_comma;    /* before the next element */
    bool begun;          /* a record */
    bool in_text, escaped;
    char previous; /* the byte before, of a row */
    bool in_scalar;
    int64_t depth;
    size_t start; /* offset of an element after the white space and comma before it */
};

/* Returns the form of a text that has the name and begins with these bytes. */
enum record_form record_form_of(const char *name, const char *bytes, size_t count);

/* Begins a record.  Then record_scan_run() scans its bytes: it sets *out_used to the number that
 * belong to the record, and returns true when the record ends there.  It sets *out_fault to what is
 * wrong with the list around the record. */
void record_scan_begin(struct record_scan *scan);
bool record_scan_run(struct record_scan *scan, const char *bytes, size_t count, size_t *out_used,
                     const char **out_fault);
/* Returns what is wrong with a text that ends here, or NULL.  A record that has begun is then its
 * last. */
const char *record_scan_end(const struct record_scan *scan);

#define RECORD_FIELDS_MAX 1024

/* The names of the columns of a CSV file. */
struct record_columns {
    char separator;
    json_t *names; /* a list of texts, or NULL before the first row */
};

/* Reads the row with the names.  The separator is the tab, or where it has none the more frequent
 * of comma and semicolon.  Errors: GT_DATA, with the reason and nothing logged; GT_NO_MEMORY. */
enum gt_status record_columns_read(struct record_columns *columns, const char *row, size_t count,
                                   const char **reason);
/* Returns the object whose field "messages" is `root`, a list of messages; another root as it is.
 * Takes it over; NULL: no memory. */
json_t *record_wrap(json_t *root);
/* Replaces each text of an object that is a list of messages in JSON by that list.  Errors:
 * GT_NO_MEMORY. */
enum gt_status record_lists_parse(json_t *object);
/* Makes an object of a row, with a text for each name.  Errors: those of record_columns_read(). */
enum gt_status record_row_read(const struct record_columns *columns, const char *row, size_t count,
                               json_t **out, const char **reason);

#endif
