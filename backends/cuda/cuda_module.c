/* What gpt-train-cuda.so exports (--enable-cuda-module): one object, whose numbers the program
 * compares with its own.
 *
 * The program's side is src/base/module.c and src/backend/backend_module.c.
 */
#include <config.h>

#include "backend/backend.h"
#include "dist/dist.h"

extern const struct backend_ops cuda_backend_ops;
extern const struct backend_module gpt_train_module;

const struct backend_module gpt_train_module = {{BACKEND_MODULE_ABI, PACKAGE_VERSION},
                                                &cuda_backend_ops};
