/* Functions of a shared library that was opened at run time, with dlopen(). */
#ifndef GPT_TRAIN_BASE_LIBRARY_H
#define GPT_TRAIN_BASE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

struct library_entry {
    const char *name;
    size_t offset; /* of the pointer in the table */
};

/* Writes the function to the pointer at `out`; NULL, and false is returned, where the library has none of that name. */
bool library_function(void *library, const char *name, void *out);
/* Fills a table of pointers.  Returns NULL, or the name of the first function that the library lacks. */
const char *library_table(void *library, const struct library_entry *entries, size_t count, void *table);

#endif
