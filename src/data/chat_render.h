/* Renders a conversation in a family's template: one mechanism, which the rows of chat_templates.c
 * drive. */
#ifndef GPT_TRAIN_DATA_CHAT_RENDER_H
#define GPT_TRAIN_DATA_CHAT_RENDER_H

#include "data/chat.h"
#include "data/chat_kind.h"

/* Messages in our form: a list of objects with "role" ("system", "user", "assistant" or "tool"),
 * "content" and "counts", an answer also with "reasoning_content" and "tool_calls"; and the tools,
 * a list or NULL. */
struct chat_conversation {
    json_t *messages, *tools;
};

/* Text of at most `room` bytes. */
struct chat_text {
    char *text;
    size_t room, count;
};

enum chat_rendered { CHAT_RENDERED, CHAT_TOO_LONG, CHAT_TOO_DEEP };

/* Renders at least one message.  With `asks`, the beginning of an answer follows, else the end of
 * text. */
enum chat_rendered chat_render(enum chat_kind kind, const struct chat_conversation *conversation,
                               enum chat_train_on train_on, bool asks, struct chat_text *text);
/* Renders a text as it is; in it the texts of the template's special tokens become these tokens.
 * The answers count, or the whole text if it has none or all is to count.  Returns false when it is
 * too long. */
bool chat_text_render(enum chat_kind kind, const json_t *value, enum chat_train_on train_on,
                      struct chat_text *text);

#endif
