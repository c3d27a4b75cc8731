/* The chat templates that gpt-train writes, by name: see chat.h. */
#ifndef GPT_TRAIN_DATA_CHAT_KIND_H
#define GPT_TRAIN_DATA_CHAT_KIND_H

enum chat_kind {
    CHAT_NONE,
    CHAT_CHATML, /* a vocabulary with the special tokens of this one or the next implies it */
    CHAT_LLAMA3,
    CHAT_SMOLLM2,
    CHAT_QWEN2,
    CHAT_QWEN25,
    CHAT_QWEN3,
    CHAT_QWEN3_INSTRUCT,
    CHAT_QWEN3_THINKING,
    CHAT_QWEN35,
    CHAT_QWEN35_NOTHINK,
    CHAT_SMOLLM3,
    CHAT_LLAMA3_META,
    CHAT_LLAMA31,
    CHAT_LLAMA32,
    CHAT_GEMMA,
    CHAT_GEMMA3,
    CHAT_MISTRAL,
    CHAT_MISTRAL_NEMO,
    CHAT_PHI3,
    CHAT_PHI4,
    CHAT_PHI4_MINI,
    CHAT_KIND_COUNT,
    CHAT_AUTO = CHAT_KIND_COUNT /* the model's own */
};

/* The words of the kinds, "none" first and "auto" last; the list ends with NULL. */
extern const char *const chat_words[]; /* chat_templates.c */

#define CHAT_SPECIALS_MAX 6 /* special tokens of a template */

#endif
