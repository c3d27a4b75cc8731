/* The conversations that a run shows. */
#ifndef GPT_TRAIN_TRAIN_CONVERSATION_H
#define GPT_TRAIN_TRAIN_CONVERSATION_H

#include "train/feed.h"

/* The beginning of a conversation, up to its first answer. */
struct conversation_prompt {
    int32_t *tokens;
    int64_t count;  /* 0: there is none */
    char text[160]; /* the beginning of its text */
};

/* Returns true if the first data set has conversations that `tokenizer`, which may be NULL, can
 * show. */
bool conversation_is_data(const struct feed *feed, const struct tokenizer *tokenizer);
/* Logs how many tokens are trained, and one conversation of the first sample of iteration `iter`,
 * with marks around what the model learns to write.  Overwrites the feed's tensors.  Errors: those
 * of the data. */
enum gt_status conversation_log(struct feed *feed, const struct tokenizer *tokenizer, int64_t iter);
/* Sets *out to the beginning of a conversation of the validation data.  Overwrites the feed's
 * tensors.  Errors: those of the data, GT_NO_MEMORY. */
enum gt_status conversation_prompt_find(struct feed *feed, const struct tokenizer *tokenizer,
                                        struct conversation_prompt *out);
/* Returns true if `token` ends an answer. */
bool conversation_ends(const struct tokenizer *tokenizer, int32_t token);

#endif
