/* The list of backends that were compiled in, expanded from backend_list.def.
 *
 * It refers only to their ops tables; src/ includes no header of a backend.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#define BACKEND(name) extern const struct backend_ops name##_backend_ops;
#include "backend/backend_registry.h"

#include "backend/backend_list.def"
#undef BACKEND

static const struct backend_ops *const registry[] = {
#define BACKEND(name) &name##_backend_ops,
#include "backend/backend_list.def"
#undef BACKEND
    NULL,
};

const struct backend_ops *const *backend_registry(void)
{
    return registry;
}

const struct backend_ops *backend_find(const char *name)
{
    for (const struct backend_ops *const *ops = registry; *ops != NULL; ops++)
        if (strcmp((*ops)->name, name) == 0)
            return *ops;
    return NULL;
}
