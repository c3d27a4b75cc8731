/* Lines that the user types: edited and recalled by libedit on a terminal, as they come otherwise.
 */
#ifndef GPT_TRAIN_CLI_LINE_EDIT_H
#define GPT_TRAIN_CLI_LINE_EDIT_H

#include <stdbool.h>
#include <stddef.h>

struct line_edit {
    bool edits; /* libedit reads the lines */
    bool prompts;
    char *line; /* the last one */
    size_t room;
};

/* Notes on a terminal that this build has no line editing, where that is so. */
void line_edit_open(struct line_edit *editor);
/* Shows the prompt if a user types, and returns the next line, which stays until the next call;
 * NULL at the end. */
char *line_edit_read(struct line_edit *editor, const char *prompt);
void line_edit_close(struct line_edit *editor);

#endif
