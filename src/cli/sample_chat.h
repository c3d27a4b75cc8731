/* A conversation with a model, in the terminal or on pipes: gpt-sample --chat. */
#ifndef GPT_TRAIN_CLI_SAMPLE_CHAT_H
#define GPT_TRAIN_CLI_SAMPLE_CHAT_H

#include "base/hostmem.h"
#include "config/config.h"
#include "data/stop_text.h"
#include "data/tokenizer.h"
#include "sample/generate.h"

/* All is borrowed. */
struct sample_chat_spec {
    const struct config *config;
    const struct tokenizer *tokenizer;
    const char *model; /* the folder of the weights, whose generation_config.json names further end
                          tokens */
    const char *vocabulary; /* for messages */
    const struct stop_texts *stops;
    int64_t block; /* tokens of the context */
};

struct sample_chat;

/* Finds the template and the tokens that end an answer.  Errors: GT_USAGE (no template, or one that
 * is not known here), GT_NO_MEMORY. */
enum gt_status sample_chat_open(struct hostmem *mem, const struct sample_chat_spec *spec,
                                struct sample_chat **out);
/* Reads messages until the input ends and answers each.  Turns that no longer fit the context leave
 * it, the oldest first.  Errors: those of generator_next(); GT_IO; GT_NO_MEMORY. */
enum gt_status sample_chat_run(struct sample_chat *chat, struct generator *generator);

#endif
