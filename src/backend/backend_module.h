/* A backend as a module (base/module.h): gpt-train-cuda.so.  It calls those functions of the program that
 * module_symbols.list names.
 */
#ifndef GPT_TRAIN_BACKEND_BACKEND_MODULE_H
#define GPT_TRAIN_BACKEND_BACKEND_MODULE_H

#include "backend/backend.h"
#include "base/module.h"
#include "dist/dist.h"

struct backend_module {
    struct module_head head; /* `abi` is BACKEND_MODULE_ABI when the object was compiled */
    const struct backend_ops *ops;
};

/* Changes when the structs that both sides use change, or the list of ops. */
#define BACKEND_MODULE_ABI                                                                 \
    ((uint64_t)sizeof(struct op_call) << 40 ^ (uint64_t)sizeof(struct backend_ops) << 24 ^ \
     (uint64_t)sizeof(struct backend_info) << 8 ^ (uint64_t)sizeof(struct dist) ^ (uint64_t)OP_KIND_COUNT)

#endif
