/* Lines that the user types.
 *
 * libedit's readline() is used where standard input and output are a terminal and the build has
 * libedit.  It changes lines that come from a pipe, so these are read without it.
 */
#include <config.h>

#include "cli/line_edit.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef HAVE_LIBEDIT
#include <editline/readline.h>
#endif

#include "base/status.h"

void line_edit_open(struct line_edit *editor)
{
    *editor = (struct line_edit){.prompts = isatty(STDIN_FILENO) != 0};
#ifdef HAVE_LIBEDIT
    editor->edits = editor->prompts && isatty(STDOUT_FILENO) != 0;
    if (editor->edits)
        (void)setlocale(LC_CTYPE, ""); /* for the width of characters */
#else
    if (editor->prompts && isatty(STDOUT_FILENO) != 0)
        log_note(
            "this gpt-sample was built without libedit, so lines cannot be edited (Debian: libedit-dev)");
#endif
}

char *line_edit_read(struct line_edit *editor, const char *prompt)
{
#ifdef HAVE_LIBEDIT
    if (editor->edits) {
        free(editor->line);
        editor->line = readline(prompt);
        if (editor->line != NULL && editor->line[0] != '\0')
            add_history(editor->line);
        return editor->line;
    }
#endif
    if (editor->prompts)
        fputs(prompt, stdout);
    if (fflush(stdout) != 0 || getline(&editor->line, &editor->room, stdin) < 0)
        return NULL;
    return editor->line;
}

void line_edit_close(struct line_edit *editor)
{
    free(editor->line);
    editor->line = NULL;
}
