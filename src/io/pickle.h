/* Reading the pickles that torch.save() makes of state dicts.  Nothing in them is executed.
 *
 * A pickle is a program for a stack machine.  This one knows the opcodes that dicts, lists, tuples, numbers, strings and
 * tensors need, and of all the functions that a pickle may call only these, which it does not call but understands:
 * collections.OrderedDict, torch._utils._rebuild_tensor_v2 and _rebuild_parameter, and torch's storage types as names.
 * Anything else is refused by name.  Values are numbers into tables, so that what is shared is stored once, memory is
 * linear in the length of the pickle, and cycles are harmless: nothing here follows references by itself.
 * Source: Python, Lib/pickletools.py; PyTorch, torch/_utils.py and torch/serialization.py.
 */
#ifndef GPT_TRAIN_IO_PICKLE_H
#define GPT_TRAIN_IO_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/hostmem.h"
#include "base/status.h"

#define PICKLE_BYTES_MAX ((size_t)8 << 20)
#define PICKLE_RANK_MAX 8
#define PICKLE_END UINT32_MAX

enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_REAL,
    PICKLE_TEXT,
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_DICT,
    PICKLE_GLOBAL,
    PICKLE_STORAGE,
    PICKLE_TENSOR,
};

struct pickle_storage {
    const char *key; /* names the member data/KEY of the archive; not terminated */
    size_t key_bytes;
    enum dtype dtype; /* DTYPE_COUNT: none of ours */
    size_t element_bytes;
    int64_t elements;
};

struct pickle_tensor {
    uint32_t storage; /* of pickle.storages */
    int32_t rank;
    int64_t dims[PICKLE_RANK_MAX];
    int64_t first; /* element of the storage */
    int64_t elements;
};

struct pickle_value {
    enum pickle_kind kind;
    union {
        int64_t integer; /* BOOL, INT */
        double real;
        struct {
            const char *bytes; /* of the pickle's text; not terminated */
            size_t count;
        } text;
        struct {
            uint32_t first, last, count; /* items of TUPLE, LIST, DICT */
        } items;
        uint32_t index; /* GLOBAL, STORAGE, TENSOR: of their tables */
    } as;
};

/* An item of a container; `next` is PICKLE_END after the last. */
struct pickle_item {
    uint32_t key, value, next; /* values; key of dicts only */
};

struct pickle {
    struct hostmem *mem;
    struct pickle_value *values;
    struct pickle_item *items;
    struct pickle_storage *storages;
    struct pickle_tensor *tensors;
    size_t value_count, value_capacity, item_count, item_capacity;
    size_t storage_count, storage_capacity, tensor_count, tensor_capacity;
    uint32_t root;
};

/* Reads the pickle bytes[count], which must live as long as the result; `source` is for messages.  Errors: GT_NO_MEMORY;
 * GT_DATA (cut short, malformed, a tensor outside of its storage, a layout that is not row-major); GT_UNSUPPORTED (a global
 * that is not in the list, which the line names, or an opcode that a state dict does not need). */
enum gt_status pickle_read(struct hostmem *mem, const unsigned char *bytes, size_t count, const char *source,
                           struct pickle **out);
/* Accepts NULL. */
void pickle_destroy(struct pickle *pickle);

/* The value of a dict's text or integer key, the last one where there are several; false when `dict` has none or is no
 * dict. */
bool pickle_find(const struct pickle *pickle, uint32_t dict, const char *key, uint32_t *out);
bool pickle_find_index(const struct pickle *pickle, uint32_t dict, int64_t key, uint32_t *out);
/* Whether the value is text equal to `text`. */
bool pickle_is_text(const struct pickle *pickle, uint32_t value, const char *text);

#endif
