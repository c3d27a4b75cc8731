/* The chat templates as Go templates, as Ollama has them. */
#ifndef GPT_TRAIN_DATA_CHAT_GO_H
#define GPT_TRAIN_DATA_CHAT_GO_H

#include <stdbool.h>
#include <stdio.h>

#include "data/chat_kind.h"

/* Writes the template of a kind other than CHAT_NONE over Ollama's .Messages.  With `begins` the
 * text begins with the template's first token; without, Ollama adds it where the vocabulary asks
 * for it. */
void chat_go_write(enum chat_kind kind, bool begins, FILE *stream);

#endif
