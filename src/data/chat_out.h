/* Text that a conversation is rendered to: bytes, JSON as Python writes it, and Python's white
 * space. */
#ifndef GPT_TRAIN_DATA_CHAT_OUT_H
#define GPT_TRAIN_DATA_CHAT_OUT_H

#include "base/json.h"

/* Text that grows up to `room` bytes; `full` is set when more does not fit. */
struct chat_out {
    char *text;
    size_t count, room;
    bool full;
};

void chat_out_bytes(struct chat_out *out, const char *bytes, size_t count);
void chat_out_text(struct chat_out *out, const char *text);
/* Writes JSON as Python's json.dumps(value, ensure_ascii=False) does; `indent` 0: in one line.
 * Returns false for a value that is nested too deeply. */
bool chat_out_json(struct chat_out *out, const json_t *value, int indent);

/* Removes the white space of Python's str.strip() from text[*count]. */
const char *chat_strip(const char *text, size_t *count);
/* Returns the length without the white space at the end. */
size_t chat_strip_end(const char *text, size_t count);

#endif
