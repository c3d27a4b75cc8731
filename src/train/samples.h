/* The text that a run shows at each evaluation. */
#ifndef GPT_TRAIN_TRAIN_SAMPLES_H
#define GPT_TRAIN_TRAIN_SAMPLES_H

#include "sample/generate.h"
#include "train/conversation.h"

#define SAMPLES_TEXT_MAX 768 /* a longer text is cut */

struct samples {
    struct generator *generator;       /* NULL: none are shown */
    const struct tokenizer *tokenizer; /* borrowed */
    struct conversation_prompt
        prompt;                  /* samples begin with it, or with a newline if there is none */
    int64_t tokens;              /* the most tokens of a sample */
    char last[SAMPLES_TEXT_MAX]; /* the beginning of the last one */
};

/* Prepares the samples that config->sample_tokens requests.  If the data are conversations, a
 * sample is an answer to a prompt of the validation data.  `tokenizer` may be NULL: then there are
 * no samples, which is logged.  Overwrites the feed's tensors.  Errors: those of the data,
 * GT_NO_FIT, GT_NO_MEMORY. */
enum gt_status samples_open(struct samples *samples, struct session *session, struct feed *feed,
                            const struct tokenizer *tokenizer);
/* Draws and prints a sample; `iter` selects its random stream.  Errors: the device's. */
enum gt_status samples_print(struct samples *samples, int64_t iter);

#endif
