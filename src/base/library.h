/* Looks up functions in a shared library opened with dlopen(). */
#ifndef GPT_TRAIN_BASE_LIBRARY_H
#define GPT_TRAIN_BASE_LIBRARY_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct library_entry {
    const char *name;
    size_t offset; /* of the function pointer in the table */
};

/* Stores the function in the pointer at `out`.  Stores NULL and returns false if the library does not have it.  dlsym()
 * returns a pointer to data, which C does not convert to a pointer to a function, so its bytes are copied. */
static inline bool library_function(void *library, const char *name, void *out)
{
    void *function = dlsym(library, name);
    memcpy(out, &function, sizeof function);
    return function != NULL;
}

/* Fills a table of pointers.  Returns NULL, or the name of the first function that the library lacks. */
static inline const char *library_table(void *library, const struct library_entry *entries, size_t count, void *table)
{
    for (size_t i = 0; i < count; i++)
        if (!library_function(library, entries[i].name, (char *)table + entries[i].offset))
            return entries[i].name;
    return NULL;
}

#endif
