/* The lexer of the configuration language: splits a text in memory into Python's tokens.
 *
 * Newlines end a statement only outside brackets.  Comments and line continuations produce no
 * tokens.  Numbers and strings are returned as values; decoded strings are stored in a pool that
 * the caller provides.  An f-string yields one string token for each piece of its text, which may
 * be empty.  Between the pieces come the tokens inside the braces and the closing brace.  The
 * opening brace yields no token.
 */
#ifndef GPT_TRAIN_CONFIG_CONFIG_LEX_H
#define GPT_TRAIN_CONFIG_CONFIG_LEX_H

#include "config/config_value.h"

enum config_token_type {
    CONFIG_TOKEN_END,
    CONFIG_TOKEN_NEWLINE,
    CONFIG_TOKEN_NAME,
    CONFIG_TOKEN_NUMBER,
    CONFIG_TOKEN_STRING,
    CONFIG_TOKEN_MARK, /* an operator or a bracket, of one or two characters */
    CONFIG_TOKEN_BAD,  /* `message` describes the error */
};

struct config_token {
    enum config_token_type type;
    const char *start; /* in the text, `length` bytes; not zero-terminated */
    size_t length;
    int32_t line; /* 1-based */
    int32_t column;
    bool indented;             /* the first token of a line, and not in column 1 */
    struct config_value value; /* numbers and strings */
    bool open;                 /* a piece of an f-string; a value in braces follows */
    const char *message;
};

struct config_lex {
    const char *text; /* borrowed until the last token is used */
    size_t count;
    size_t position;
    size_t line_start; /* position of the line's first byte */
    int32_t line;
    int32_t depth; /* of open brackets */
    bool fresh;    /* the next token is the first one of its line */
    char *pool;    /* borrowed */
    size_t pool_used;
    size_t pool_size;
    bool pool_full;    /* within a string that does not fit */
    char format_quote; /* of the f-string that is being read; 0: none is */
    bool format_triple;
    bool format_inside; /* within its braces */
};

/* Starts at the beginning of text[count], after a byte order mark.  Decoded strings go to
 * pool[pool_size]. */
void config_lex_begin(struct config_lex *lex, const char *text, size_t count, char *pool,
                      size_t pool_size);

/* Reads the next token.  Except at the end of the text or of a line within an f-string, which it
 * ends, even a bad token consumes at least one byte, so that reading terminates. */
void config_lex_next(struct config_lex *lex, struct config_token *token);

/* Returns true if the token is the name or mark `text`. */
bool config_token_is(const struct config_token *token, const char *text);

/* Returns `count` bytes of the pool, followed by a zero, or NULL when the pool is full. */
char *config_lex_reserve(struct config_lex *lex, size_t count);

/* Parses a value of the command line: one number with an optional sign, or one string literal,
 * which goes to `pool`. Returns false if the whole text is neither. */
bool config_lex_literal(const char *text, char *pool, size_t pool_size, struct config_value *out);

#endif
