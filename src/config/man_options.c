/* Build-time program: writes the option list of a man page, made from the table of keys, to standard output.
 *
 * `man_options train` or `man_options sample`; the rule in doc/ puts the output where the page's .in file has a line
 * @OPTIONS@.  It is not installed, and it reads nothing.
 */
#include <stdio.h>
#include <string.h>

#include "config/config.h"

int main(int argc, char **argv)
{
    if (argc != 2 || (strcmp(argv[1], "train") != 0 && strcmp(argv[1], "sample") != 0)) {
        fprintf(stderr, "Usage: man_options train|sample\n");
        return 2;
    }
    config_print_man(stdout, strcmp(argv[1], "train") == 0 ? CONFIG_TRAIN : CONFIG_SAMPLE);
    return fflush(stdout) == 0 && ferror(stdout) == 0 ? 0 : 1;
}
