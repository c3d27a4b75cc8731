/* Conversations: chat templates, and how a conversation becomes tokens.
 *
 * A conversation is first rendered as text, in which a byte that UTF-8 does not have marks what is no text: the special
 * tokens of the template, and where the tokens begin and end that the model learns to write, the assistant's text and
 * the token that ends it.  The runs of text between the marks are then encoded; in them the texts of special tokens are
 * ordinary text, so that no message can end itself.
 */
#ifndef GPT_TRAIN_DATA_CHAT_H
#define GPT_TRAIN_DATA_CHAT_H

#include "base/json.h"
#include "data/tokenizer.h"

enum chat_kind { CHAT_NONE, CHAT_CHATML, CHAT_LLAMA3, CHAT_KIND_COUNT };

#define CHAT_SPECIALS_MAX 4
#define CHAT_COUNTED (1 << 30) /* in an id: the token counts as a target */
#define CHAT_TURN_BYTES 64     /* what chat_turn() adds to a text, at most */

/* The words of the kinds, "none" first; the list ends with NULL. */
extern const char *const chat_words[];

/* Returns the texts of the template's special tokens; the list ends with NULL. */
const char *const *chat_specials(enum chat_kind kind);
/* Returns the template in Jinja, as Hugging Face's tokenizers and GGUF files have it. */
const char *chat_jinja(enum chat_kind kind);
/* Returns the template of which the vocabulary has all special tokens, and the end-of-text token; else CHAT_NONE. */
enum chat_kind chat_kind_of(const struct tokenizer *tokenizer);
/* Returns the token that ends the model's text: the template's, else the end-of-text token, else -1. */
int32_t chat_end(const struct tokenizer *tokenizer);
/* The same of a model that others are to use: without a template that belongs to it (has_template) the vocabulary's
 * does not count, since the model need not have seen it.  `tokenizer` may be NULL. */
enum chat_kind chat_kind_learnt(const struct tokenizer *tokenizer);
int32_t chat_end_learnt(const struct tokenizer *tokenizer);
/* Checks that the vocabulary (NULL: bytes or characters) has the template's tokens.  Errors: GT_USAGE, which names the
 * missing ones, or the template whose tokens it has. */
enum gt_status chat_check(const struct tokenizer *tokenizer, enum chat_kind kind);

/* Checks the other fields of a line that has messages.  Returns false, and writes the reason, if a field such as
 * "tools" changes what is to be learned and no template writes it.  Other fields are ignored. */
bool chat_line_check(const json_t *root, char *reason, size_t reason_bytes);
/* Renders `messages`, a list of objects with "role" and "content", followed by the end of text.  An answer with
 * "weight" 0 does not count.  The result is shorter than the JSON.  Returns false, with the reason, for messages that
 * are not a conversation to learn from, or that have fields as above. */
bool chat_render(enum chat_kind kind, const json_t *messages, char *out, size_t *out_count, char *reason,
                 size_t reason_bytes);
/* Renders what the user says and the beginning of the answer, after an answer; or, with `first`, at the beginning of a
 * conversation, after the system's message, unless it is empty.  Neither text has a byte 0xFF.  Returns the length, at
 * most that of both texts and CHAT_TURN_BYTES. */
size_t chat_turn(enum chat_kind kind, bool first, const char *system, const char *text, char *out);

/* How a line of JSONL was to be read. */
struct chat_given {
    enum chat_kind kind; /* CHAT_NONE: as text */
    const char *field;
    const char *path;  /* of its file */
    const char *flags; /* which a conversation needs with the vocabulary: "--chat=llama3" */
};
#define CHAT_ADVICE_BYTES 2048
/* Recognises a line that holds a conversation in another form, or that was to be read as text.  Returns false when it
 * does not; else sets `out` to what it is, and to the flags that read it or a command that converts the file. */
bool chat_advise(const json_t *root, const struct chat_given *given, char out[static CHAT_ADVICE_BYTES]);

/* A part of rendered text: a run of text, or a mark. */
struct chat_part {
    const char *text;
    size_t count;
    char mark; /* 0 for text */
};
/* Takes the part at text[*at]; returns false at the end. */
bool chat_next(const char *text, size_t count, size_t *at, struct chat_part *out);
/* Returns the longest length up to `most` at which rendered text can be cut. */
size_t chat_cut(const char *text, size_t most);

/* Sets out[*out_count], at most `count`, to the ids of rendered text, with CHAT_COUNTED where they count.  Runs in any
 * thread.  Errors: those of tokenizer_encoder_run(). */
enum gt_status chat_encode(struct tokenizer_encoder *encoder, const struct tokenizer *tokenizer, enum chat_kind kind,
                           const char *text, size_t count, int32_t *out, size_t *out_count);

#endif
