/* The chat templates of models, one row for each family. */
#ifndef GPT_TRAIN_DATA_CHAT_TEMPLATES_H
#define GPT_TRAIN_DATA_CHAT_TEMPLATES_H

#include "base/json.h"
#include "data/chat_kind.h"
#include "data/dedup.h"

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL, CHAT_ROLES };

/* Where the system message is written. */
enum chat_system_place {
    CHAT_SYSTEM_TURN,       /* as a turn of its own */
    CHAT_SYSTEM_FIRST_USER, /* before the user's first text, with an empty line */
    CHAT_SYSTEM_LAST_USER,  /* before the last message, if that is the user's */
    CHAT_SYSTEM_REFUSED
};

/* What an answer's reasoning becomes. */
enum chat_thinking {
    CHAT_THINKING_NONE,
    CHAT_THINKING_QWEN, /* a block before each answer after the last question; earlier answers lose
                           it */
    CHAT_THINKING_SMOL /* part of the text; an empty block where the system message has /no_think */
};

enum chat_tools {
    CHAT_TOOLS_NONE,
    CHAT_TOOLS_QWEN,   /* in the system message; calls and results between tags */
    CHAT_TOOLS_QWEN3,  /* the same; arguments given as a text are written unchanged */
    CHAT_TOOLS_QWEN35, /* before the system's text; each argument between tags */
    CHAT_TOOLS_LLAMA   /* before the user's first text; one call an answer */
};

/* Around an answer's reasoning. */
#define CHAT_THINK_BEGIN "<think>"
#define CHAT_THINK_END "</think>"
/* Around a tool's result, before and after Qwen's and Qwen3.5's lists of tools, and before Llama's.
 */
#define CHAT_RESULT_BEGIN "<tool_response>"
#define CHAT_RESULT_END "</tool_response>"
#define CHAT_QWEN_TOOLS                                                                \
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" \
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
#define CHAT_QWEN_TOOLS_END                                                                      \
    "</tools>\n\nFor each function call, return a json object with function name and arguments " \
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "        \
    "\"arguments\": <args-json-object>}\n</tool_call>"
#define CHAT_QWEN35_TOOLS "# Tools\n\nYou have access to the following functions:\n\n<tools>"
#define CHAT_QWEN35_TOOLS_END                                                                            \
    "</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:"    \
    "\n\n<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n"      \
    "</parameter>\n<parameter=example_parameter_2>\nThis is the value for the second parameter\n"        \
    "that can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n" \
    "- Function calls MUST follow the specified format: an inner <function=...></function> block "       \
    "must be nested within <tool_call></tool_call> XML tags\n- Required parameters MUST be "             \
    "specified\n- You may provide optional reasoning for your function call in natural language "        \
    "BEFORE the function call, but NOT after\n- If there is no function call available, answer the "     \
    "question like normal with your current knowledge and do not tell the user about function "          \
    "calls\n</IMPORTANT>"
#define CHAT_LLAMA_TOOLS                                                                        \
    "Given the following functions, please respond with a JSON for a function call with its "   \
    "proper arguments that best answers the given prompt.\n\nRespond in the format {\"name\": " \
    "function name, \"parameters\": dictionary of argument name and its value}.Do not use "     \
    "variables.\n\n"
/* In SmolLM3's system message, after its head: the mode, which these words in its text can set, and
 * the line after it. */
#define CHAT_SMOL_THINKS "/think"
#define CHAT_SMOL_NO_THINK "/no_think"
#define CHAT_SMOL_INSTRUCTIONS "\n\n## Custom Instructions\n\n"

#define CHAT_WORDS_MAX 6

/* A family of templates.  In these texts the texts of special tokens stand for the tokens. */
struct chat_template {
    const char *word; /* of --chat */
    const char *specials[CHAT_SPECIALS_MAX + 1];
    size_t end_special; /* ends an answer */
    const char *begin;  /* of a conversation */
    const char *before[CHAT_ROLES];
    const char *end, *tail; /* of an answer; `end` counts, `tail` does not */
    const char *after;      /* other messages */
    const char *think; /* what the prompt for an answer adds to before[CHAT_ASSISTANT], or NULL */
    const char *system_default; /* where no message is the system's, or NULL */
    const char *head; /* of the first system message, or NULL; its date is fixed, so that the data
                         are, too */
    const char *empty_system,
        *empty_system_no_think; /* SmolLM3: its text in place of an empty one */
    enum chat_system_place system;
    bool one_system;    /* only the first message may be the system's */
    bool alternates;    /* the user and the assistant take turns, the user first */
    bool trims;         /* texts lose the white space around them */
    bool trims_answers; /* only answers do */
    enum chat_thinking thinking;
    enum chat_tools tools;
    const char *jinja; /* ours; NULL: CHAT_NONE */

    /* Identify the models' templates that this family writes: checksums of their texts without
     * white space around them, words that all of them have, and words that none has. */
    struct document_hash hashes[3];
    const char *marks[CHAT_WORDS_MAX], *foreign[CHAT_WORDS_MAX];
};

const struct chat_template *chat_template_of(enum chat_kind kind);

/* Returns the family that writes what the template `jinja` of a model writes, or CHAT_NONE.
 * *out_exact is false when only marks identify the family. */
enum chat_kind chat_recognise(const char *jinja, bool *out_exact);

#endif
