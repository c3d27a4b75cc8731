/* Shared objects that a program loads on demand, so that a package can leave them out.
 *
 * A module exports one name, gpt_train_module: a struct that begins with a module_head.  The
 * program uses it only if both fields of the head equal its own.
 */
#ifndef GPT_TRAIN_BASE_MODULE_H
#define GPT_TRAIN_BASE_MODULE_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MODULE_REASON_MAX 256

struct module_head {
    uint64_t abi; /* of the structs that program and module share */
    const char *version;
};

/* Loads gpt-train-NAME.so and returns what it exports, or NULL after writing to `reason` why it
 * cannot be used.  Sets *absent to true if no such module is installed.  A module stays loaded;
 * loading it again is cheap. */
const void *module_load(const char *name, uint64_t abi, char reason[static MODULE_REASON_MAX],
                        bool *absent);

/* ---- functions of any shared library opened with dlopen() ---- */

struct library_entry {
    const char *name;
    size_t offset; /* of the function pointer in the table */
};

/* Stores the function in the pointer at `out`.  Stores NULL and returns false if the library does
 * not have it.  dlsym() returns a pointer to data, which C does not convert to a pointer to a
 * function, so its bytes are copied. */
static inline bool library_function(void *library, const char *name, void *out)
{
    void *function = dlsym(library, name);
    memcpy(out, &function, sizeof function);
    return function != NULL;
}

/* Fills a table of pointers.  Returns NULL, or the name of the first function that the library
 * lacks. */
static inline const char *library_table(void *library, const struct library_entry *entries,
                                        size_t count, void *table)
{
    for (size_t i = 0; i < count; i++)
        if (!library_function(library, entries[i].name, (char *)table + entries[i].offset))
            return entries[i].name;
    return NULL;
}

#endif
