/* A backend for the tests of plans, which runs nothing: fill, copy and residual in fp32, whose
 * workspaces have odd sizes on purpose.
 */
#ifndef GPT_TRAIN_UNIT_BACKEND_FIXTURE_H
#define GPT_TRAIN_UNIT_BACKEND_FIXTURE_H

#include "backend/backend.h"

/* Returns the backend; it lives as long as the program. */
struct backend *fixture_backend(void);

#endif
