/* The words of the configuration language: Python's tokens, of a text in memory.
 *
 * Newlines end a statement only outside brackets; comments and continued lines vanish.  Strings and numbers come out
 * as values; decoded strings lie in the pool that the caller lends.
 */
#ifndef GPT_TRAIN_CONFIG_CONFIG_LEX_H
#define GPT_TRAIN_CONFIG_CONFIG_LEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "config/config_value.h"

enum config_token_type {
    CONFIG_TOKEN_END,
    CONFIG_TOKEN_NEWLINE,
    CONFIG_TOKEN_NAME,
    CONFIG_TOKEN_NUMBER,
    CONFIG_TOKEN_STRING,
    CONFIG_TOKEN_MARK, /* an operator or a bracket, of one or two characters */
    CONFIG_TOKEN_BAD,  /* `message` says what is wrong */
};

struct config_token {
    enum config_token_type type;
    const char *start; /* in the text, `length` bytes; not zero-terminated */
    size_t length;
    int32_t line; /* 1-based */
    int32_t column;
    bool indented;             /* the first word of a line, and not at the left margin */
    struct config_value value; /* numbers and strings */
    const char *message;
};

struct config_lex {
    const char *text; /* borrowed until the last token is used */
    size_t count;
    size_t position;
    size_t line_start; /* position of the line's first byte */
    int32_t line;
    int32_t depth; /* of open brackets */
    bool fresh;    /* the next word is the first of a statement's line */
    char *pool;    /* borrowed */
    size_t pool_used;
    size_t pool_size;
};

/* Starts at the beginning of text[count], after a byte order mark.  pool[pool_size] receives the strings. */
void config_lex_begin(struct config_lex *lex, const char *text, size_t count, char *pool, size_t pool_size);

/* The next token into *token.  A bad one consumes at least a byte, except at the end, so that reading always ends. */
void config_lex_next(struct config_lex *lex, struct config_token *token);

/* True when the token is the name or mark `text`. */
bool config_token_is(const struct config_token *token, const char *text);

/* out = the text, cut at `size` bytes with "...", for messages: "the end of the line" and so on where there is none. */
char *config_token_text(char *out, size_t size, const struct config_token *token);

/* `count` bytes and a zero from the pool, or NULL when it is full. */
char *config_lex_reserve(struct config_lex *lex, size_t count);

/* A whole text that is one number with an optional sign, or one string literal, as on the command line.
 * `pool` receives the string.  False when it is neither. */
bool config_lex_literal(const char *text, char *pool, size_t pool_size, struct config_value *out);

#endif
