/* Reads a configuration in nanoGPT's syntax: a small subset of Python, which is parsed and never
 * executed.
 *
 * Statements, one per line or separated by `;`:  NAME = EXPRESSION,  imports, and string literals
 * on their own (docstrings), which are skipped.  Expressions: int, float and str literals,
 * f-strings with names in their braces, True, False, None, names set earlier and keys, + - * / // %
 * **, unary + and -, brackets, adjacent and added strings, str(...), int(...), float(...),
 * time.time() after its import; for device and dtype also A if torch... else B, which is auto.
 *
 * A name that is not a key is one of the file's own if a later statement uses it or if it begins
 * with an underscore; wandb_... need not be used.  Any other name is an error.  A name that is
 * close to a key is the file's own only if a later statement sets that key from it.  The parser
 * resolves operators by precedence on an explicit stack of bounded depth.  After a mistake it
 * continues with the next statement, so that all mistakes of a file are reported at once, each in
 * one line.  A name whose value could not be read causes no second line.
 */
#include <config.h>

#include "config/config_file.h"

#include <math.h>

#include "base/clock.h"
#include "config/config_lex.h"
#include "config/config_names.h"
#include "config/config_value.h"

#define FILE_SIZE_MAX 1048576 /* bytes of a configuration file */
#define FILE_ERRORS_MAX 20    /* reported before the reader gives up on a file */
#define STACK_MAX 64          /* pending operators and brackets of one expression */
#define TEMPORARY_MAX 64
#define TEMPORARY_NAME_MAX 64

enum pending_kind { PENDING_BRACKET, PENDING_CALL, PENDING_UNARY, PENDING_BINARY };
enum call { CALL_STR, CALL_INT, CALL_FLOAT, CALLS };
static const char *const calls[CALLS] = {"str", "int", "float"};

struct pending {
    enum pending_kind kind;
    enum config_operator op;
    enum call call;
    int precedence;
    struct config_token token; /* its position in the file */
};

struct temporary {
    char name[TEMPORARY_NAME_MAX];
    struct config_value value;
    bool bad; /* it has no value, and an error line has said so */
};

struct reader {
    struct config *config;
    const char *path;
    struct config_lex lex;
    struct config_token token; /* the current one */
    int error_count;
    bool time_imported;
    size_t pool_kept;         /* the pool below this offset contains the temporaries' strings */
    const char *foreign_name; /* the first key that belongs to the other program only */
    int foreign_count;
    enum { NEXT_OPERAND, NEXT_OPERATOR, NEXT_NOTHING } next; /* of an expression */
    int pending_count;
    int value_count;
    int temporary_count;
    struct pending pending[STACK_MAX];
    struct config_value values[STACK_MAX + 1];
    struct temporary temporaries[TEMPORARY_MAX];
};

/* ---- errors and tokens ---- */

/* Logs an error at the position of `token`, counts it and has the value GT_USAGE. */
#define FAIL_AT(reader, token, ...) fail_at(reader, token, TEXT(512, __VA_ARGS__))
static enum gt_status fail_at(struct reader *reader, const struct config_token *token,
                              const char *message)
{
    reader->error_count++;
    return FAIL(GT_USAGE, "%s:%d:%d: %s", reader->path, (int)token->line, (int)token->column,
                message);
}

/* Logs that the current token is not what the grammar requires.  A long token is cut. */
static enum gt_status fail_expected(struct reader *reader, const char *wanted)
{
    const struct config_token *token = &reader->token;
    const char *found = token->type == CONFIG_TOKEN_END       ? "the end of the file"
                        : token->type == CONFIG_TOKEN_NEWLINE ? "the end of the line"
                        : token->length > 32                  ? TEXT(64, "%.32s...", token->start)
                                             : TEXT(64, "%.*s", (int)token->length, token->start);
    if (token->type == CONFIG_TOKEN_BAD)
        return FAIL_AT(reader, token, "%s: %s", token->message, found);
    return FAIL_AT(reader, &reader->token, "expected %s, found %s", wanted, found);
}

static void advance(struct reader *reader)
{
    config_lex_next(&reader->lex, &reader->token);
}

static bool looking_at(const struct reader *reader, const char *text)
{
    return config_token_is(&reader->token, text);
}

static enum gt_status expect(struct reader *reader, const char *text)
{
    if (!looking_at(reader, text))
        return fail_expected(reader, TEXT(16, "'%s'", text));
    advance(reader);
    return GT_OK;
}

/* ---- the stack of an expression ---- */

static enum gt_status push_pending(struct reader *reader, enum pending_kind kind,
                                   enum config_operator op, int precedence)
{
    if (reader->pending_count == STACK_MAX)
        return FAIL_AT(reader, &reader->token,
                       "nested too deeply: over %d operators and brackets are open", STACK_MAX);
    reader->pending[reader->pending_count++] =
        (struct pending){kind, op, CALLS, precedence, reader->token};
    return GT_OK;
}

/* There is always room: each value but one belongs to a pending binary operator. */
static void push_value(struct reader *reader, const struct config_value *value)
{
    assert(reader->value_count <= STACK_MAX);
    reader->values[reader->value_count++] = *value;
}

/* Stores the concatenation of two texts in the pool. */
static enum gt_status join(struct reader *reader, const struct config_token *token,
                           const char *left, const char *right, struct config_value *out)
{
    const size_t left_length = strlen(left), right_length = strlen(right);
    char *joined = config_lex_reserve(&reader->lex, left_length + right_length);
    if (joined == NULL)
        return FAIL_AT(reader, token, "the strings of this file are too long");
    memcpy(joined, left, left_length);
    memcpy(joined + left_length, right, right_length);
    *out = (struct config_value){.type = CONFIG_VALUE_STRING, .text = joined};
    return GT_OK;
}

static enum gt_status apply_binary(struct reader *reader, const struct pending *pending)
{
    struct config_value *left = &reader->values[reader->value_count - 2];
    struct config_value *right = &reader->values[reader->value_count - 1];
    assert(reader->value_count >= 2);
    reader->value_count--;
    if (pending->op == CONFIG_OPERATOR_ADD && left->type == CONFIG_VALUE_STRING &&
        right->type == CONFIG_VALUE_STRING)
        return join(reader, &pending->token, left->text, right->text, left);
    const char *why = config_value_binary(pending->op, left, right, left);
    if (why == NULL)
        return GT_OK;
    return FAIL_AT(reader, &pending->token, "%s %.*s %s: %s", config_value_type_name(left->type),
                   (int)pending->token.length, pending->token.start,
                   config_value_type_name(right->type), why);
}

/* Calls str(), int() or float() of the topmost value. */
static enum gt_status apply_call(struct reader *reader, const struct pending *pending)
{
    struct config_value *value = &reader->values[reader->value_count - 1];
    const bool real = value->type == CONFIG_VALUE_REAL, text = value->type == CONFIG_VALUE_STRING;
    assert(reader->value_count >= 1);
    if (pending->call == CALL_STR)
        return text ? GT_OK : join(reader, &pending->token, CONFIG_VALUE_TEXT(value), "", value);
    if (text || value->type == CONFIG_VALUE_NONE ||
        (pending->call == CALL_INT && real && fabs(value->real) > 0x1p62))
        return FAIL_AT(reader, &pending->token, "%s(%s) is not evaluated here; write its value",
                       calls[pending->call], CONFIG_VALUE_TEXT(value));
    if (pending->call == CALL_INT)
        *value = (struct config_value){.type = CONFIG_VALUE_INT,
                                       .integer = real ? (int64_t)value->real : value->integer};
    else if (!real)
        *value = (struct config_value){.type = CONFIG_VALUE_REAL, .real = (double)value->integer};
    return GT_OK;
}

/* Pops the topmost pending operator and applies it. */
static enum gt_status apply_top(struct reader *reader)
{
    const struct pending *pending = &reader->pending[reader->pending_count - 1];
    struct config_value *value = &reader->values[reader->value_count - 1];
    assert(reader->pending_count >= 1 && reader->value_count >= 1);
    reader->pending_count--;
    if (pending->kind == PENDING_BINARY)
        return apply_binary(reader, pending);
    if (pending->kind == PENDING_CALL)
        return apply_call(reader, pending);
    const char *why =
        pending->kind == PENDING_UNARY ? config_value_unary(pending->op, value, value) : NULL;
    if (why != NULL)
        return FAIL_AT(reader, &pending->token, "%.*s %s: %s", (int)pending->token.length,
                       pending->token.start, config_value_type_name(value->type), why);
    return GT_OK;
}

/* Applies pending operators down to the next bracket, while they bind at least as tightly as
 * `precedence`. */
static enum gt_status apply_down_to(struct reader *reader, int precedence)
{
    while (reader->pending_count > 0) {
        const struct pending *top = &reader->pending[reader->pending_count - 1];
        if (top->kind == PENDING_BRACKET || top->kind == PENDING_CALL ||
            top->precedence < precedence)
            break;
        TRY(apply_top(reader));
    }
    return GT_OK;
}

/* ---- operands ---- */

/* Reads time.time(); `time` is the current token. */
static enum gt_status read_time(struct reader *reader)
{
    static const char *const rest[] = {".", "time", "(", ")"};
    const struct config_value value = {.type = CONFIG_VALUE_REAL,
                                       .real = (double)reader->config->wall_s};
    if (!reader->time_imported)
        return FAIL_AT(reader, &reader->token, "write `import time` before this use of time");
    advance(reader);
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++)
        TRY(expect(reader, rest[i]));
    push_value(reader, &value);
    return GT_OK;
}

static struct temporary *temporary_find(struct reader *reader, const struct config_token *name)
{
    for (int i = 0; i < reader->temporary_count; i++)
        if (config_token_is(name, reader->temporaries[i].name))
            return &reader->temporaries[i];
    return NULL;
}

/* Sets a name of the file's own.  With a NULL `value` it has none. */
static enum gt_status temporary_assign(struct reader *reader, const struct config_token *name,
                                       const struct config_value *value)
{
    struct temporary *temporary = temporary_find(reader, name);
    if (name->length >= TEMPORARY_NAME_MAX)
        return FAIL_AT(reader, name, "this name is longer than %d bytes", TEMPORARY_NAME_MAX - 1);
    if (temporary == NULL && reader->temporary_count == TEMPORARY_MAX)
        return FAIL_AT(reader, name, "more than %d temporary names", TEMPORARY_MAX);
    if (temporary == NULL) {
        temporary = &reader->temporaries[reader->temporary_count++];
        memcpy(temporary->name, name->start, name->length);
        temporary->name[name->length] = '\0';
    }
    temporary->bad = value == NULL;
    if (value != NULL)
        temporary->value = *value;
    reader->pool_kept = reader->lex.pool_used;
    return GT_OK;
}

/* Marks a name that has no value, so that it causes no second error. */
static void temporary_spoil(struct reader *reader, const struct config_token *name)
{
    if (name->length < TEMPORARY_NAME_MAX && reader->temporary_count < TEMPORARY_MAX)
        (void)temporary_assign(reader, name, NULL);
}

/* Returns true if a name looks like a misspelt key. */
static bool is_mistaken(const struct reader *reader, const struct config_token *name)
{
    const enum config_program program = reader->config->program;
    const struct config_other *other = config_other_find(name->start, name->length, program);
    return config_key_nearest(name->start, name->length, program) != CONFIG_KEY_COUNT ||
           (other != NULL && other->kind == CONFIG_OTHER_HINT);
}

/* Logs that the name, which is the current token, has no value. */
static enum gt_status fail_no_value(struct reader *reader, const struct config_token *name)
{
    char hint[CONFIG_HINT_MAX] = "";
    const int length = (int)(name->length < 40 ? name->length : 40);
    advance(reader);
    if (looking_at(reader, "(") || looking_at(reader, "."))
        return FAIL_AT(
            reader, name,
            "the name %.*s has no value: functions and modules are not evaluated here; write the value",
            length, name->start);
    temporary_spoil(reader, name);
    if (is_mistaken(reader, name))
        config_key_hint(hint, name->start, name->length, reader->config->program);
    return FAIL_AT(reader, name, "the name %.*s has no value%s", length, name->start,
                   hint[0] != '\0' ? hint : "; a line above must set it");
}

/* Returns the value of the current token, a constant, a temporary or a key, and advances.  A
 * temporary that has none because of an earlier error returns GT_USAGE without a line. */
static enum gt_status name_value(struct reader *reader, struct config_value *out)
{
    const struct config_token name = reader->token;
    const struct temporary *temporary = temporary_find(reader, &name);
    const enum config_key key = config_key_find(name.start, name.length);
    const bool is_true = looking_at(reader, "True");
    struct config_value value = {.type = CONFIG_VALUE_BOOL, .integer = is_true};
    if (looking_at(reader, "None")) {
        value.type = CONFIG_VALUE_NONE;
    } else if (temporary != NULL) {
        if (temporary->bad)
            return GT_USAGE;
        value = temporary->value;
    } else if (key != CONFIG_KEY_COUNT) {
        value = config_key_value(reader->config, key);
        /* Copy it, because the field may be overwritten while the value is in use. */
        if (value.type == CONFIG_VALUE_STRING)
            TRY(join(reader, &name, value.text, "", &value));
    } else if (!is_true && !looking_at(reader, "False")) {
        return fail_no_value(reader, &name);
    }
    *out = value;
    advance(reader);
    return GT_OK;
}

/* Reads the braces of an f-string, NAME}, and appends their text to *text. */
static enum gt_status read_braces(struct reader *reader, struct config_value *text)
{
    const struct config_token first = reader->token;
    struct config_value value;
    const bool is_name = first.type == CONFIG_TOKEN_NAME;
    if (is_name)
        TRY(name_value(reader, &value));
    if (!is_name || !looking_at(reader, "}"))
        return FAIL_AT(
            reader, &first,
            "only a name is evaluated in an f-string's braces; set one on a line above, or add strings: "
            "'text' + str(VALUE)");
    TRY(join(reader, &first, text->text,
             value.type == CONFIG_VALUE_STRING ? value.text : CONFIG_VALUE_TEXT(&value), text));
    advance(reader);
    return GT_OK;
}

/* Reads a number, or one or more adjacent strings and f-strings, which it joins. */
static enum gt_status read_literal(struct reader *reader)
{
    struct config_value value = reader->token.value;
    bool open = reader->token.open;
    advance(reader);
    while (open ||
           (value.type == CONFIG_VALUE_STRING && reader->token.type == CONFIG_TOKEN_STRING)) {
        if (open)
            TRY(read_braces(reader, &value));
        if (reader->token.type != CONFIG_TOKEN_STRING) /* the rest of an f-string is one, or bad */
            return fail_expected(reader, "the end of the string");
        TRY(join(reader, &reader->token, value.text, reader->token.value.text, &value));
        open = reader->token.open;
        advance(reader);
    }
    push_value(reader, &value);
    return GT_OK;
}

static enum gt_status read_name(struct reader *reader)
{
    struct config_value value;
    TRY(name_value(reader, &value));
    push_value(reader, &value);
    return GT_OK;
}

/* Reads str(, int( or float(; the bracket stays pending until its ')'. */
static enum gt_status read_call(struct reader *reader, enum call call)
{
    TRY(push_pending(reader, PENDING_CALL, CONFIG_OPERATOR_ADD, 0));
    reader->pending[reader->pending_count - 1].call = call;
    advance(reader);
    return expect(reader, "(");
}

/* Returns true at a word of Python's conditions. */
static bool at_condition(const struct reader *reader)
{
    static const char *const words[] = {"if", "not", "and", "or", "in", "is", "lambda"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (looking_at(reader, words[i]))
            return true;
    return false;
}

static enum gt_status fail_condition(struct reader *reader)
{
    return FAIL_AT(reader, &reader->token,
                   "a condition is not evaluated here; write the value that it gives");
}

/* Reads an operand, or a bracket or sign that precedes one. */
static enum gt_status read_operand(struct reader *reader)
{
    const bool bracket = looking_at(reader, "("), minus = looking_at(reader, "-");
    if (bracket || minus || looking_at(reader, "+")) {
        TRY(push_pending(reader, bracket ? PENDING_BRACKET : PENDING_UNARY,
                         minus ? CONFIG_OPERATOR_SUBTRACT : CONFIG_OPERATOR_ADD, 3));
        advance(reader);
        return GT_OK;
    }
    for (enum call call = CALL_STR; call < CALLS; call++)
        if (looking_at(reader, calls[call]))
            return read_call(reader, call);
    reader->next = NEXT_OPERATOR;
    if (reader->token.type == CONFIG_TOKEN_NUMBER || reader->token.type == CONFIG_TOKEN_STRING)
        return read_literal(reader);
    if (looking_at(reader, "time"))
        return read_time(reader);
    if (at_condition(reader))
        return fail_condition(reader);
    if (reader->token.type == CONFIG_TOKEN_NAME)
        return read_name(reader);
    return fail_expected(reader, "a value");
}

/* ---- operators ---- */

/* By enum config_operator.  A higher precedence binds tighter; unary signs have 3. */
static const struct {
    const char *text;
    int precedence;
} operators[] = {{"+", 1}, {"-", 1}, {"*", 2}, {"/", 2}, {"//", 2}, {"%", 2}, {"**", 4}};

static enum gt_status finish_expression(struct reader *reader)
{
    TRY(apply_down_to(reader, 0));
    if (reader->pending_count == 0)
        return GT_OK;
    const struct config_token *open = &reader->pending[reader->pending_count - 1].token;
    if (reader->token.type == CONFIG_TOKEN_END)
        return FAIL_AT(reader, open, "this bracket is never closed");
    if (at_condition(reader))
        return fail_condition(reader);
    return fail_expected(reader, TEXT(80, "an operator, or ')' for line %d, column %d",
                                      (int)open->line, (int)open->column));
}

/* Reads what follows a value. */
static enum gt_status read_operator(struct reader *reader)
{
    if (looking_at(reader, ")")) {
        TRY(apply_down_to(reader, 0));
        if (reader->pending_count == 0)
            return FAIL_AT(reader, &reader->token, "unmatched ')'");
        TRY(apply_top(reader));
        advance(reader);
        return GT_OK;
    }
    for (int op = CONFIG_OPERATOR_ADD; op <= CONFIG_OPERATOR_POWER; op++) {
        const int precedence = operators[op].precedence;
        if (!looking_at(reader, operators[op].text))
            continue;
        /* ** is right-associative: one that is pending on the stack waits. */
        TRY(apply_down_to(reader, op == CONFIG_OPERATOR_POWER ? precedence + 1 : precedence));
        TRY(push_pending(reader, PENDING_BINARY, (enum config_operator)op, precedence));
        advance(reader);
        reader->next = NEXT_OPERAND;
        return GT_OK;
    }
    reader->next = NEXT_NOTHING;
    return finish_expression(reader);
}

static enum gt_status read_expression(struct reader *reader, struct config_value *out)
{
    reader->pending_count = 0;
    reader->value_count = 0;
    reader->next = NEXT_OPERAND;
    while (reader->next != NEXT_NOTHING) /* each round consumes a token or ends */
        TRY(reader->next == NEXT_OPERAND ? read_operand(reader) : read_operator(reader));
    assert(reader->value_count == 1 && reader->pending_count == 0);
    *out = reader->values[0];
    return GT_OK;
}

/* ---- statements ---- */

/* Returns true if a later statement that sets the key `only` uses the name; with CONFIG_KEY_COUNT,
 * if any does.  Use in the braces of an f-string counts only if `text`. */
static bool is_used(const struct reader *reader, const struct config_token *name,
                    enum config_key only, bool text)
{
    struct config_lex lex = reader->lex; /* a copy: it reads ahead */
    const size_t pool_used = lex.pool_used;
    struct config_token token = reader->token, target = {.type = CONFIG_TOKEN_END};
    bool behind = false, first = false;
    for (; token.type != CONFIG_TOKEN_END; config_lex_next(&lex, &token)) {
        const bool same = behind && !first && token.type == CONFIG_TOKEN_NAME &&
                          token.length == name->length &&
                          memcmp(token.start, name->start, name->length) == 0;
        if (first)
            target = token;
        if (same && (text || !lex.format_inside) &&
            (only == CONFIG_KEY_COUNT || config_key_find(target.start, target.length) == only))
            return true;
        first = token.type == CONFIG_TOKEN_NEWLINE || config_token_is(&token, ";");
        behind = behind || first;
        lex.pool_used = pool_used;
    }
    return false;
}

/* Returns true for names that need not be used. */
static bool is_free(const struct config_token *name)
{
    return name->start[0] == '_' || config_name_is_wandb(name->start, name->length);
}

/* Returns true if a name that is not a key is one of the file's own. */
static bool is_own(struct reader *reader, const struct config_token *name)
{
    const enum config_key near =
        config_key_nearest(name->start, name->length, reader->config->program);
    return is_free(name) || temporary_find(reader, name) != NULL ||
           is_used(reader, name, near, !is_mistaken(reader, name));
}

/* Returns the row of another program's name for a key.  Returns NULL if the name is one of the
 * file's own or its row only has a hint. */
static const struct config_other *other_of(struct reader *reader, const struct config_token *name)
{
    const struct config_other *other =
        config_other_find(name->start, name->length, reader->config->program);
    return other == NULL || other->kind == CONFIG_OTHER_HINT || is_own(reader, name) ? NULL : other;
}

/* Notes a number that only texts use: it may be meant as a key of another program. */
static void note_own(const struct reader *reader, const struct config_token *name,
                     const struct config_value *value)
{
    if (!is_free(name) && value->type != CONFIG_VALUE_STRING &&
        !is_used(reader, name, CONFIG_KEY_COUNT, false))
        log_note("%s:%d:%d: %.*s is not a key: only a text uses it", reader->path, (int)name->line,
                 (int)name->column, (int)name->length, name->start);
}

/* Checks that `name` may be assigned to in a file. */
static enum gt_status check_target(struct reader *reader, const struct config_token *name,
                                   enum config_key key)
{
    const int length = (int)(name->length < 80 ? name->length : 80);
    char hint[CONFIG_HINT_MAX];
    if (key == CONFIG_KEY_COUNT && !is_own(reader, name) && other_of(reader, name) == NULL) {
        log_error(ERROR_UNKNOWN_KEY "%s:%d:%d: unknown key %.*s%s", reader->path, (int)name->line,
                  (int)name->column, length, name->start,
                  is_mistaken(reader, name)
                      ? config_key_hint(hint, name->start, name->length, reader->config->program)
                      : TEXT(CONFIG_HINT_MAX,
                             ", which nothing below uses; for a name of your own write _%.*s",
                             length, name->start));
        reader->error_count++;
        return GT_USAGE;
    }
    if (key != CONFIG_KEY_COUNT && (config_key_info_get(key)->flags & CONFIG_FLAG_ONLY) != 0)
        return FAIL_AT(reader, name, "%s belongs to the command line, not into a file",
                       config_key_info_get(key)->name);
    return GT_OK;
}

static enum gt_status store(struct reader *reader, const struct config_token *name,
                            enum config_key key, const struct config_other *other,
                            const struct config_value *value)
{
    struct config_origin origin = {reader->path, name->line, name->column, false, false};
    if (key == CONFIG_KEY_COUNT && other != NULL) {
        const enum gt_status status = config_other_set(reader->config, other, value, &origin);
        reader->error_count += status != GT_OK;
        return status;
    }
    if (key == CONFIG_KEY_COUNT)
        return temporary_assign(reader, name, value);
    const struct config_key_info *info = config_key_info_get(key);
    if ((info->programs & (unsigned)reader->config->program) == 0 && reader->foreign_count++ == 0)
        reader->foreign_name = info->name;
    if (config_key_assign(reader->config, key, value, &origin) == GT_OK)
        return GT_OK;
    reader->error_count++;
    return GT_USAGE;
}

/* Returns true at the end of a statement. */
static bool at_end(const struct reader *reader)
{
    return reader->token.type == CONFIG_TOKEN_NEWLINE || reader->token.type == CONFIG_TOKEN_END ||
           looking_at(reader, ";");
}

static enum gt_status expect_end(struct reader *reader)
{
    if (at_end(reader))
        return GT_OK;
    if (at_condition(reader))
        return fail_condition(reader);
    return fail_expected(reader, "the end of the statement");
}

/* Skips the rest of the line, including brackets that span lines, and the indented block below it.
 */
static void recover(struct reader *reader)
{
    bool inside = true;
    while (reader->token.type != CONFIG_TOKEN_END && inside) {
        const bool newline = reader->token.type == CONFIG_TOKEN_NEWLINE;
        advance(reader);
        inside = !newline || reader->token.indented || reader->token.type == CONFIG_TOKEN_NEWLINE;
    }
}

/* Reads `if torch... else TEXT` after a text.  The value becomes auto, which finds out about the
 * machine what torch would report. */
static enum gt_status read_torch_choice(struct reader *reader, enum config_key key,
                                        struct config_value *value)
{
    const bool has_auto = key == CONFIG_KEY_dtype || key == CONFIG_KEY_device;
    const struct config_token begin = reader->token;
    bool otherwise = false;
    advance(reader);
    if (!has_auto || value->type != CONFIG_VALUE_STRING || !looking_at(reader, "torch")) {
        reader->token = begin;
        return fail_condition(reader);
    }
    for (; !at_end(reader); advance(reader)) {
        if (reader->token.type == CONFIG_TOKEN_BAD)
            return fail_expected(reader, "a value");
        otherwise = otherwise || looking_at(reader, "else");
    }
    if (!otherwise)
        return fail_expected(reader, "'else'");
    *value = (struct config_value){.type = CONFIG_VALUE_STRING, .text = "auto"};
    return GT_OK;
}

/* Reads EXPRESSION to the end of the statement. */
static enum gt_status read_value(struct reader *reader, enum config_key key,
                                 struct config_value *value)
{
    TRY(read_expression(reader, value));
    if (looking_at(reader, "if"))
        TRY(read_torch_choice(reader, key, value));
    return expect_end(reader);
}

/* Marks what a statement would have set, so that it causes no second error. */
static void target_spoil(struct reader *reader, const struct config_token *name,
                         enum config_key key)
{
    if (key == CONFIG_KEY_COUNT)
        temporary_spoil(reader, name);
    else
        reader->config->origin[key] = (struct config_origin){
            .source = reader->path, .line = name->line, .column = name->column, .bad = true};
}

/* Returns true for a list, tuple or dictionary of wandb's, which is skipped. */
static bool is_skipped(const struct reader *reader, const struct config_token *name)
{
    return config_name_is_wandb(name->start, name->length) &&
           (looking_at(reader, "[") || looking_at(reader, "{"));
}

/* Reads NAME = EXPRESSION. */
static enum gt_status read_assignment(struct reader *reader)
{
    struct config_token name = reader->token;
    struct config_value value;
    enum config_key key = config_key_find(name.start, name.length);
    advance(reader);
    const struct config_other *other = key == CONFIG_KEY_COUNT ? other_of(reader, &name) : NULL;
    if (other != NULL && other->kind == CONFIG_OTHER_SAME)
        key = other->key;
    if (!looking_at(reader, "=") && key == CONFIG_KEY_COUNT &&
        name.start[0] != '_') /* Python's statements too */
        return FAIL_AT(
            reader, &name,
            "%.*s is not supported: a configuration may hold only assignments (NAME = VALUE)",
            (int)(name.length < 80 ? name.length : 80), name.start);
    if (!looking_at(reader, "="))
        return fail_expected(reader, "'=' (a configuration holds assignments only)");
    advance(reader);
    enum gt_status status = check_target(reader, &name, key);
    if (key == CONFIG_KEY_COUNT && is_skipped(reader, &name)) {
        while (!at_end(reader))
            advance(reader);
        return GT_OK;
    }
    THEN(status, read_value(reader, key, &value));
    if (status != GT_OK) {
        target_spoil(reader, &name, key);
        return status;
    }
    if (key == CONFIG_KEY_COUNT && other == NULL && temporary_find(reader, &name) == NULL)
        note_own(reader, &name, &value);
    (void)store(reader, &name, key, other,
                &value); /* store() counts its errors; the statement itself was well-formed */
    return GT_OK;
}

/* Reads `import a.b as c, d` or `from a import b`.  Modules are not loaded; only time.time() is
 * supported. */
static enum gt_status read_import(struct reader *reader)
{
    const bool from = looking_at(reader, "from");
    const char *before = "";
    advance(reader);
    if (reader->token.type != CONFIG_TOKEN_NAME && !looking_at(reader, "."))
        return fail_expected(reader, "a module");
    while (reader->token.type == CONFIG_TOKEN_NAME || looking_at(reader, ".") ||
           looking_at(reader, ",") || looking_at(reader, "(") || looking_at(reader, ")") ||
           looking_at(reader, "*")) {
        if (!from && looking_at(reader, "time") && strcmp(before, ".") != 0)
            reader->time_imported = true;
        before = looking_at(reader, ".") ? "." : "";
        advance(reader);
    }
    return GT_OK;
}

static enum gt_status read_statement(struct reader *reader)
{
    if (reader->token.indented)
        return FAIL_AT(
            reader, &reader->token,
            "indented line: a configuration may hold only assignments that start in the first column");
    if (looking_at(reader, "import") || looking_at(reader, "from")) {
        TRY(read_import(reader));
    } else if (reader->token.type == CONFIG_TOKEN_NAME) {
        TRY(read_assignment(reader));
    } else if (reader->token.type == CONFIG_TOKEN_STRING) {
        while (reader->token.type == CONFIG_TOKEN_STRING)
            advance(reader);
    } else {
        return fail_expected(reader, "the name of a key");
    }
    TRY(expect_end(reader));
    if (looking_at(reader, ";"))
        advance(reader);
    return GT_OK;
}

static void read_statements(struct reader *reader)
{
    advance(reader);
    while (reader->token.type != CONFIG_TOKEN_END && reader->error_count < FILE_ERRORS_MAX) {
        if (reader->token.type == CONFIG_TOKEN_NEWLINE)
            advance(reader);
        else if (read_statement(reader) != GT_OK)
            recover(reader);
        reader->lex.pool_used = reader->pool_kept;
    }
    if (reader->token.type != CONFIG_TOKEN_END)
        log_error("%s:%d: %d mistakes; the rest of the file was not read", reader->path,
                  (int)reader->token.line, reader->error_count);
}

/* Notes the keys of the other program.  They are legal, so that both can share a file, but have no
 * effect here. */
static void note_foreign(const struct reader *reader)
{
    const char *other =
        config_program_name(reader->config->program == CONFIG_TRAIN ? CONFIG_SAMPLE : CONFIG_TRAIN);
    if (reader->foreign_count == 1)
        log_note("%s: ignoring %s, a key of %s", reader->path, reader->foreign_name, other);
    else if (reader->foreign_count > 1)
        log_note("%s: ignoring %s and %d more keys of %s", reader->path, reader->foreign_name,
                 reader->foreign_count - 1, other);
}

enum gt_status config_parse_text(struct config *config, const char *name, const char *text,
                                 size_t count)
{
    /* Half of the pool is for the strings of one statement, the other half for copies made by names
     * and +. */
    const size_t pool_size = 2 * count + 65536;
    const char *zero = memchr(text, 0, count);
    if (zero != NULL || count > FILE_SIZE_MAX)
        return FAIL(GT_USAGE, "%s: not a configuration: %s", name,
                    zero != NULL
                        ? "it holds a zero byte; data is named by --dataset=FOLDER, a model by "
                          "--init_from=PATH"
                        : "it is over 1 MiB");
    struct reader *reader = calloc(1, sizeof *reader + pool_size);
    if (reader == NULL)
        return FAIL(GT_NO_MEMORY, "%s: no memory to read it: need %zu B", name,
                    sizeof *reader + pool_size);
    reader->config = config;
    reader->path = name;
    config_lex_begin(&reader->lex, text, count, (char *)(reader + 1), pool_size);
    read_statements(reader);
    note_foreign(reader);
    const int error_count = reader->error_count;
    free(reader);
    return error_count == 0 ? GT_OK : GT_USAGE;
}

/* Returns the path to read.  If `path` is a bare name that is not in the current folder but is
 * installed, that is the installed path, written to `out`. */
static const char *installed_path(char out[static FILE_PATH_MAX], const char *path)
{
    const char *wanted = getenv("GPT_TRAIN_CONFIG_DIR"),
               *folder = wanted != NULL ? wanted : PKGDATA_DIR "/config";
    const bool is_bare = strchr(path, '/') == NULL && !file_exists(path);
    return is_bare && file_exists(file_join(out, folder, path)) ? out : path;
}

enum gt_status config_parse_file(struct config *config, const char *path)
{
    char installed[FILE_PATH_MAX], *text;
    size_t count;
    TRY(file_read_all(installed_path(installed, path), FILE_SIZE_MAX, &text, &count));
    config->wall_s = (int64_t)clock_wall_seconds();
    const enum gt_status status = config_parse_text(config, path, text, count);
    free(text);
    return status;
}
