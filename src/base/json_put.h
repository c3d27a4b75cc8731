/* Writes JSON member by member, without a library and without allocating memory. */
#ifndef GPT_TRAIN_BASE_JSON_PUT_H
#define GPT_TRAIN_BASE_JSON_PUT_H

#include "base/status.h"

struct json_put {
    FILE *out;     /* NULL: nothing is written */
    bool one_line; /* no blanks; else as jansson writes with an indentation of two */
    int text_max;  /* a text that takes more bytes is cut and ends in "..."; 0 = unlimited */
    int depth;
    bool begun; /* the innermost object or array has a member */
};

/* Writes members, which `format` names as json_pack() does, but with their names: "ops:d bytes:u".
 * The types are d (int), i (int64_t), u (uint64_t), f (double, or null where it is not finite), b
 * (bool), s (text, or NULL for null);
 * `{` and `[` begin an object or array, which a word `}` or `]` ends.  A member of an array has an
 * empty name. */
void json_put(struct json_put *put, const char *format, ...);

#endif
