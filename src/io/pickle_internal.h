/* Shared by pickle.c and pickle_call.c: the state of the machine. */
#ifndef GPT_TRAIN_IO_PICKLE_INTERNAL_H
#define GPT_TRAIN_IO_PICKLE_INTERNAL_H

#include "io/pickle.h"

struct pickle_machine {
    struct pickle *pickle;
    const unsigned char *bytes;
    size_t count, at;
    const char *source;
    unsigned char opcode; /* the current one */
    size_t opcode_at;
    uint32_t *stack; /* indices of values */
    size_t depth, stack_capacity;
    size_t *marks; /* stack depths */
    size_t mark_count, mark_capacity;
    uint32_t *memo; /* index of the value + 1; 0: empty */
    size_t memo_count, memo_capacity;
    bool stopped;
};

/* Logs "SOURCE: byte N: WHAT" and returns GT_DATA. */
enum gt_status pickle_malformed(const struct pickle_machine *m, const char *what);
/* Makes room for one more element in array[count].  Errors: GT_NO_MEMORY; the array is unchanged then. */
enum gt_status pickle_grow(struct hostmem *mem, void **array, size_t *capacity, size_t count, size_t size);
enum gt_status pickle_push(struct pickle_machine *m, uint32_t value);
enum gt_status pickle_pop(struct pickle_machine *m, uint32_t *out);
enum gt_status pickle_value_add(struct pickle_machine *m, const struct pickle_value *value, uint32_t *out);
/* Makes an empty TUPLE, LIST or DICT. */
enum gt_status pickle_container_new(struct pickle_machine *m, enum pickle_kind kind, uint32_t *out);

/* In pickle_call.c.  Pushes the global "module.name" if it is supported. */
enum gt_status pickle_global_push(struct pickle_machine *m, const char *name);
/* The opcodes BINPERSID and REDUCE. */
enum gt_status pickle_persistent_load(struct pickle_machine *m);
enum gt_status pickle_reduce(struct pickle_machine *m);

#endif
