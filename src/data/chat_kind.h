/* The chat templates that gpt-train writes, by name, and how a model's own is recognised: see chat.h. */
#ifndef GPT_TRAIN_DATA_CHAT_KIND_H
#define GPT_TRAIN_DATA_CHAT_KIND_H

#include <stdbool.h>

enum chat_kind {
    CHAT_NONE,
    CHAT_CHATML, /* this one and the next are ours: their vocabularies imply them */
    CHAT_LLAMA3,
    CHAT_SMOLLM2,
    CHAT_QWEN2,
    CHAT_QWEN25,
    CHAT_QWEN3,
    CHAT_QWEN3_INSTRUCT,
    CHAT_QWEN3_THINKING,
    CHAT_SMOLLM3,
    CHAT_LLAMA3_META,
    CHAT_LLAMA31,
    CHAT_LLAMA32,
    CHAT_GEMMA,
    CHAT_GEMMA3,
    CHAT_MISTRAL,
    CHAT_PHI3,
    CHAT_PHI4,
    CHAT_PHI4_MINI,
    CHAT_KIND_COUNT,
    CHAT_AUTO = CHAT_KIND_COUNT /* the model's own */
};

/* The words of the kinds, "none" first and "auto" last; the list ends with NULL. */
extern const char *const chat_words[];

/* Returns the family that writes what the template `jinja` of a model writes, or CHAT_NONE.  *out_exact is false when
 * only its marks say so. */
enum chat_kind chat_recognise(const char *jinja, bool *out_exact);

#endif
