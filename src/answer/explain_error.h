/* --explain: what doc/errors.md says about an error. */
#ifndef GPT_TRAIN_ANSWER_EXPLAIN_ERROR_H
#define GPT_TRAIN_ANSWER_EXPLAIN_ERROR_H

#include "base/status.h"

/* A page of doc/, of which config/embed.sh makes a C file. */
struct embedded_page {
    const char *name, *text;
    size_t length;
};
extern const struct embedded_page embedded_errors;

/* Prints what doc/errors.md says about an error: `id` is the word in "error[ID]".  Errors:
 * GT_USAGE. */
enum gt_status explain_error(const char *id);

#endif
