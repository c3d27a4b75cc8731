/* Reads the pickles that torch.save() makes of state dicts, without executing anything in them.
 *
 * A pickle is a program for a stack machine.  This reader supports the opcodes for dicts, lists, tuples, numbers,
 * strings and tensors.  Of the functions that a pickle may call it interprets, without calling them, only
 * collections.OrderedDict, torch._utils._rebuild_tensor_v2 and _rebuild_parameter, and torch's storage types as names.
 * Anything else is rejected by name.  Values are indices into tables: shared objects are stored once, memory is linear
 * in the length of the pickle, and cycles are harmless, because nothing here follows references by itself.  Source:
 * Python, Lib/pickletools.py; PyTorch, torch/_utils.py and torch/serialization.py.
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

/* A tensor and its storage; of a storage by itself, the first part. */
struct pickle_tensor {
    const char *key; /* the archive's member is data/KEY; not terminated */
    size_t key_bytes;
    enum dtype dtype; /* DTYPE_COUNT: no enum dtype for it */
    size_t element_bytes;
    int64_t storage_elements;
    int32_t rank;
    int64_t dims[PICKLE_RANK_MAX];
    int64_t first; /* index of the first element in the storage */
    int64_t elements;
};

struct pickle_value {
    enum pickle_kind kind;
    union {
        int64_t integer; /* BOOL, INT */
        double real;
        struct {
            const char *bytes; /* in the pickle's bytes; not terminated */
            size_t count;
        } text;
        struct {
            uint32_t first, last, count; /* items of TUPLE, LIST, DICT */
        } items;
        uint32_t index; /* STORAGE, TENSOR: index into pickle.tensors; GLOBAL: into a table of globals */
    } as;
};

/* An item of a container; the last one's `next` is PICKLE_END. */
struct pickle_item {
    uint32_t key, value, next; /* indices of values; only dicts use `key` */
};

struct pickle {
    struct hostmem *mem;
    struct pickle_value *values;
    struct pickle_item *items;
    struct pickle_tensor *tensors;
    size_t value_count, value_capacity, item_count, item_capacity, tensor_count, tensor_capacity;
    uint32_t root;
};

/* Reads the pickle bytes[count], which must outlive the result; `source` is for messages.  Errors: GT_NO_MEMORY;
 * GT_DATA (cut short, malformed, a tensor outside of its storage, a layout that is not row-major); GT_UNSUPPORTED (a
 * global that is not in the list above, named in the line, or an opcode that a state dict does not need). */
enum gt_status pickle_read(struct hostmem *mem, const unsigned char *bytes, size_t count, const char *source,
                           struct pickle **out);
/* Accepts NULL. */
void pickle_destroy(struct pickle *pickle);

/* Find the value of a dict's text or integer key, the last one if there are several.  Return false when `dict` does not
 * have the key or is not a dict. */
bool pickle_find(const struct pickle *pickle, uint32_t dict, const char *key, uint32_t *out);
bool pickle_find_index(const struct pickle *pickle, uint32_t dict, int64_t key, uint32_t *out);
/* Returns true when the value is text equal to `text`. */
bool pickle_is_text(const struct pickle *pickle, uint32_t value, const char *text);

#endif
