/* The list of backends that were compiled in, expanded from backend_list.def. */
#ifndef GPT_TRAIN_BACKEND_BACKEND_REGISTRY_H
#define GPT_TRAIN_BACKEND_BACKEND_REGISTRY_H

#include "backend/backend.h"

/* Returns the backends of this build, in the order in which --backend=auto tries them; NULL at the
 * end. */
const struct backend_ops *const *backend_registry(void);
/* Returns the backend with that name, or NULL if this build has none. */
const struct backend_ops *backend_find(const char *name);

#endif
