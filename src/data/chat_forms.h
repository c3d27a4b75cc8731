/* Reads records that hold conversations, in the forms that other programs use. */
#ifndef GPT_TRAIN_DATA_CHAT_FORMS_H
#define GPT_TRAIN_DATA_CHAT_FORMS_H

#include "data/chat.h"
#include "data/chat_kind.h"
#include "data/chat_render.h"

struct chat_pair;

#define CHAT_KEY_BYTES 64
#define CHAT_FORM_BYTES 160
#define CHAT_REASON_BYTES 512
#define CHAT_UNUSED_BYTES 256

enum chat_form_kind {
    CHAT_FORM_NONE,
    CHAT_FORM_MESSAGES, /* a list of objects with role and content */
    CHAT_FORM_SHAREGPT, /* with from and value */
    CHAT_FORM_PAIR,     /* a question and its answer */
    CHAT_FORM_TURNS,    /* a list of such pairs */
    CHAT_FORM_LISTS,    /* a list of messages before the answer, and one of the answer */
    CHAT_FORM_TEXT
};

struct chat_form {
    enum chat_form_kind kind;
    const struct chat_pair *pair;
    char key[CHAT_KEY_BYTES]; /* the field, or "" */
};

/* Recognises the form of a record, an object; `field` (NULL: any) is the only one that may hold it.
 */
void chat_form_find(const json_t *root, const char *field, struct chat_form *out);
/* "Alpaca (instruction, input, output)"; returns `out`. */
char *chat_form_text(const struct chat_form *form, char out[static CHAT_FORM_BYTES]);
/* "; not used: id, source": the fields of a record, an object, that are not empty and not read; ""
 * without any.  Returns `out`. */
char *chat_form_unused(const struct chat_form *form, const json_t *root,
                       char out[static CHAT_UNUSED_BYTES]);

/* How records are read. */
struct chat_reader {
    enum chat_kind kind;
    const char *field;  /* of the messages; NULL: any; borrowed */
    const char *system; /* the system message for conversations that have none, or NULL; borrowed */
    enum chat_train_on train_on;
    struct chat_form form; /* the first record's; zero at first */
    bool lacks_answers;    /* a text has no answer of the template, so that all of it counts */
    bool loses_system;     /* a record has a system message that the template does not write */
};

/* Renders a record's conversation and the end of text after it.  Errors: GT_DATA, with the reason
 * and nothing logged, for a record whose form is not the first record's or that is not a
 * conversation to learn from; GT_NO_MEMORY. */
enum gt_status chat_record_render(struct chat_reader *reader, const json_t *root,
                                  struct chat_text *out, char reason[static CHAT_REASON_BYTES]);

#endif
