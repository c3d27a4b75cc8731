/* A backend in a shared object of its own, so that a package can leave it out: gpt-train-cuda.so.
 *
 * The object exports one name, gpt_train_module.  It calls those functions of the program that module_symbols.list
 * names.  The program uses its table only if `abi` and `version` are the program's own.
 */
#ifndef GPT_TRAIN_BACKEND_BACKEND_MODULE_H
#define GPT_TRAIN_BACKEND_BACKEND_MODULE_H

#include "backend/backend.h"

struct backend_module {
    uint64_t abi; /* BACKEND_MODULE_ABI when the object was compiled */
    const char *version;
    const struct backend_ops *ops;
};

/* Changes when the structs that both sides use change, or the list of ops. */
#define BACKEND_MODULE_ABI                                                                 \
    ((uint64_t)sizeof(struct op_call) << 40 ^ (uint64_t)sizeof(struct backend_ops) << 24 ^ \
     (uint64_t)sizeof(struct backend_info) << 8 ^ (uint64_t)OP_KIND_COUNT)

#endif
