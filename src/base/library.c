/* Looks up functions in a shared library.
 *
 * dlsym() returns a pointer to data, which C does not convert to a pointer to a function, so its bytes are copied.
 */
#include "base/library.h"

#include <dlfcn.h>
#include <string.h>

bool library_function(void *library, const char *name, void *out)
{
    void *function = dlsym(library, name);
    memcpy(out, &function, sizeof function);
    return function != NULL;
}

const char *library_table(void *library, const struct library_entry *entries, size_t count, void *table)
{
    for (size_t i = 0; i < count; i++) {
        if (!library_function(library, entries[i].name, (char *)table + entries[i].offset))
            return entries[i].name;
    }
    return NULL;
}
