/* Shared objects that a program loads when they are asked for, so that a package can leave them out.
 *
 * A module exports one name, gpt_train_module: a struct that begins with a module_head.  The program uses it only if
 * both numbers of the head are its own.
 */
#ifndef GPT_TRAIN_BASE_MODULE_H
#define GPT_TRAIN_BASE_MODULE_H

#include <stdbool.h>
#include <stdint.h>

#define MODULE_REASON_MAX 256

struct module_head {
    uint64_t abi; /* of the structs that program and module share */
    const char *version;
};

/* Loads gpt-train-NAME.so and returns what it exports, or NULL after writing to `reason` why it cannot be used.  Sets
 * *absent to true if no such module is installed.  A module stays loaded; loading it again is cheap. */
const void *module_load(const char *name, uint64_t abi, char reason[static MODULE_REASON_MAX], bool *absent);

#endif
