/* Stop texts, which end a sample; they are found while the sample is being written.
 *
 * Bytes that may begin a stop text are held back until it is clear that they do not, so that no
 * part of one is ever shown.  The comparison is by bytes; token boundaries do not matter.
 */
#ifndef GPT_TRAIN_DATA_STOP_TEXT_H
#define GPT_TRAIN_DATA_STOP_TEXT_H

#include "base/status.h"

#define STOP_TEXT_MAX 16        /* number of texts */
#define STOP_TEXT_BYTES_MAX 256 /* per text */

/* The stop texts; constant once parsed. */
struct stop_texts {
    size_t count;
    struct {
        size_t count;
        char bytes[STOP_TEXT_BYTES_MAX];
    } at[STOP_TEXT_MAX];
};

/* Parses texts separated by commas; "\," is a comma, "\n" a newline, "\t" a tab, "\\" a backslash.
 * An empty list gives no texts.  Errors: GT_USAGE (an empty text, another escape, too many, too
 * long), naming `what`. */
enum gt_status stop_texts_parse(const char *list, const char *what, struct stop_texts *out);

/* The state of one sample; zero-initialised. */
struct stop_text {
    bool found;
    size_t held_count;
    char held[STOP_TEXT_BYTES_MAX];
};

/* Receives the text to show. */
typedef void stop_text_fn(void *context, const char *bytes, size_t count);

/* Processes text[count].  Returns true once a stop text was found; nothing after it is shown. */
bool stop_text_push(struct stop_text *state, const struct stop_texts *texts, const char *text,
                    size_t count, stop_text_fn *show, void *context);
/* Shows the bytes still held back, at the end of a sample. */
void stop_text_end(struct stop_text *state, stop_text_fn *show, void *context);

#endif
