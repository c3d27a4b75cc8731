/* Texts that end a sample, found while the sample is being written.
 *
 * What could be the beginning of such a text is held back until it is clear that it is not, so that nothing of the text is
 * ever shown.  Bytes are compared; tokens do not matter.
 */
#ifndef GPT_TRAIN_DATA_STOP_TEXT_H
#define GPT_TRAIN_DATA_STOP_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define STOP_TEXT_MAX 16        /* texts */
#define STOP_TEXT_BYTES_MAX 256 /* in each */

/* The texts; constant once parsed. */
struct stop_texts {
    size_t count;
    struct {
        size_t count;
        char bytes[STOP_TEXT_BYTES_MAX];
    } at[STOP_TEXT_MAX];
};

/* Texts separated by commas; "\," is a comma, "\n" a newline, "\t" a tab, "\\" a backslash.  An empty list has none.
 * Errors: GT_USAGE (an empty text, another escape, too many, too long), naming `what`. */
enum gt_status stop_texts_parse(const char *list, const char *what, struct stop_texts *out);

/* One sample's state; zero to begin. */
struct stop_text {
    bool found;
    size_t held_count;
    char held[STOP_TEXT_BYTES_MAX];
};

/* Receives what may be shown. */
typedef void stop_text_fn(void *context, const char *bytes, size_t count);

/* Takes text[count] in; true once one of the texts was found: nothing behind that is shown any more. */
bool stop_text_push(struct stop_text *state, const struct stop_texts *texts, const char *text, size_t count,
                    stop_text_fn *show, void *context);
/* Shows what was held back, at the end of a sample. */
void stop_text_end(struct stop_text *state, stop_text_fn *show, void *context);

#endif
