/* Conversations: reads the records of other programs, and turns a conversation into tokens in a
 * chat template.
 *
 * A record (chat_forms.c) becomes a list of messages, which is rendered as a whole (chat_render.c)
 * in one of the families of templates (chat_templates.c).  In the rendered text a byte that UTF-8
 * never contains marks the template's special tokens, and the beginning and end of the tokens that
 * the model learns to write.  The text between two special tokens is then encoded as one, as
 * transformers does.  In it the text of a special token is ordinary text, so that no message can
 * end itself.
 */
#ifndef GPT_TRAIN_DATA_CHAT_H
#define GPT_TRAIN_DATA_CHAT_H

#include "base/json.h"
#include "data/chat_kind.h"
#include "data/tokenizer.h"
#include "data/tokenizer_encoder.h"

#define CHAT_COUNTED (1 << 30) /* in an id: the token counts as a target */

/* What counts in the loss: every answer, the last one, or everything.  The words end with NULL. */
enum chat_train_on { CHAT_TRAIN_ASSISTANT, CHAT_TRAIN_COMPLETION, CHAT_TRAIN_ALL };
extern const char *const chat_train_on_words[];

/* ---- templates ---- */

/* Returns the texts of the template's special tokens; the list ends with NULL. */
const char *const *chat_specials(enum chat_kind kind);
/* Returns whether the template has a place for a system message. */
bool chat_has_system(enum chat_kind kind);
/* Gives a vocabulary the template of --chat=`kind`, which replaces a different one of its model. */
void chat_use(struct tokenizer *tokenizer, enum chat_kind kind);
/* Returns the template in Jinja, as Hugging Face's tokenizers and GGUF files have it: the model's
 * own, else ours, else NULL. */
const char *chat_jinja(const struct tokenizer *tokenizer);
/* Returns the vocabulary's template: the chosen one, else its model's, else the one of ours whose
 * special tokens the vocabulary has, with the end-of-text token, else CHAT_NONE. */
enum chat_kind chat_kind_of(const struct tokenizer *tokenizer);
/* Returns the token that ends the model's text: the template's, else the end-of-text token, else
 * -1. */
int32_t chat_end(const struct tokenizer *tokenizer);
/* The same, but a template counts only if it belongs to the model (has_template), because the model
 * may not have learnt one that only the vocabulary implies.  `tokenizer` may be NULL. */
enum chat_kind chat_kind_learnt(const struct tokenizer *tokenizer);
const char *chat_jinja_learnt(const struct tokenizer *tokenizer);
int32_t chat_end_learnt(const struct tokenizer *tokenizer);
/* Finds the template for --chat=`kind`, where CHAT_AUTO stands for the model's own, and checks that
 * the vocabulary (NULL: bytes or characters) has its tokens.  Errors: GT_USAGE, which names the
 * missing ones or how to choose. */
enum gt_status chat_choose(const struct tokenizer *tokenizer, enum chat_kind kind,
                           enum chat_kind *out);

/* ---- rendered text ---- */

/* A part of rendered text: a run of text, or a mark. */
struct chat_piece {
    const char *text;
    size_t count;
    char mark; /* 0 for text */
};
/* Sets *out to the part at text[*at] and advances *at; returns false at the end. */
bool chat_next(const char *text, size_t count, size_t *at, struct chat_piece *out);
/* Returns the longest length up to `most` at which rendered text can be cut. */
size_t chat_cut(const char *text, size_t most);

struct chat_encoder;

/* For rendered text of up to `room` bytes.  The tokenizer is borrowed.  Main thread only.  Errors:
 * GT_NO_MEMORY. */
enum gt_status chat_encoder_create(const void *owner, const struct tokenizer *tokenizer,
                                   enum chat_kind kind, size_t room, struct chat_encoder **out);
/* Returns the bytes without a token of all texts; see tokenizer_encoder_unknown(). */
const struct tokenizer_unknown *chat_encoder_unknown(const struct chat_encoder *encoder);
/* Sets out[*out_count], at most `count` times the pipeline's growth, to the ids of rendered text,
 * with CHAT_COUNTED where they count.  A token that begins before counted text and ends in it
 * counts.  Runs in any thread.  Errors: those of tokenizer_encoder_run(). */
enum gt_status chat_encode(struct chat_encoder *encoder, const char *text, size_t count,
                           int32_t *out, size_t *out_count);

#endif
