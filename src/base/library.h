/* Looks up functions in a shared library opened with dlopen(). */
#ifndef GPT_TRAIN_BASE_LIBRARY_H
#define GPT_TRAIN_BASE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

struct library_entry {
    const char *name;
    size_t offset; /* of the function pointer in the table */
};

/* Stores the function in the pointer at `out`.  Stores NULL and returns false if the library does not have it. */
bool library_function(void *library, const char *name, void *out);
/* Fills a table of pointers.  Returns NULL, or the name of the first function that the library lacks. */
const char *library_table(void *library, const struct library_entry *entries, size_t count, void *table);

#endif
