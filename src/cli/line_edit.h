/* Lines that the user types.  On a terminal, libedit edits and recalls them; otherwise they are
 * read unchanged.
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

/* If the user types at a terminal and this build cannot edit lines, logs a note. */
void line_edit_open(struct line_edit *editor);
/* Shows the prompt if a user types, and returns the next line, which stays until the next call;
 * NULL at the end. */
char *line_edit_read(struct line_edit *editor, const char *prompt);
void line_edit_close(struct line_edit *editor);

#endif
