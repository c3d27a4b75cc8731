/* Reads the pickles that torch.save() makes of state dicts, without executing anything in them.
 *
 * A pickle is a program for a stack machine.  This reader supports the opcodes for dicts, lists,
 * tuples, numbers, strings and tensors, and turns them into JSON values.  Of the functions that a
 * pickle may call it interprets, without calling them, only collections.OrderedDict,
 * torch._utils._rebuild_tensor_v2 and _rebuild_parameter, and torch's storage types as names.  It
 * rejects anything else by name.  Source: Python, Lib/pickletools.py; PyTorch, torch/_utils.py and
 * torch/serialization.py.
 */
#ifndef GPT_TRAIN_IO_PICKLE_H
#define GPT_TRAIN_IO_PICKLE_H

#include "base/dtype.h"
#include "base/hostmem.h"
#include "base/json.h"

#define PICKLE_BYTES_MAX ((size_t)8 << 20)
#define PICKLE_RANK_MAX 8

struct pickle_tensor {
    const char *key;  /* the archive's member is data/KEY; owned by the pickle */
    enum dtype dtype; /* DTYPE_COUNT: no enum dtype for it */
    size_t element_bytes;
    int64_t storage_elements;
    int32_t rank;
    int64_t dims[PICKLE_RANK_MAX];
    int64_t first; /* index of the first element in the storage */
    int64_t elements;
};

/* None is null, and so is a number that is not finite; tuples and lists are arrays; a dict is an
 * object, in which an integer key is decimal text; pickle_tensor_of() recognises tensors.  Values
 * may be shared, and may form cycles. */
struct pickle {
    const void *owner; /* outlives this struct */
    json_t *root;      /* borrowed from `values` */
    json_t *values;    /* all values */
    struct pickle_tensor *tensors;
    size_t tensor_count;
};

/* Reads the pickle bytes[count]; `source` begins messages, and `advice` ends those about a pickle
 * that may be fine for another reader.  Errors: GT_NO_MEMORY; GT_DATA (cut short, malformed, a
 * tensor outside of its storage, a layout that is not row-major); GT_UNSUPPORTED (a global that is
 * not in the list above, named in the line, or an opcode that a state dict does not need). */
enum gt_status pickle_read(const void *owner, const unsigned char *bytes, size_t count,
                           const char *source, const char *advice, struct pickle *out);
/* Accepts a zeroed struct. */
void pickle_release(struct pickle *pickle);
/* Returns NULL if the value is not a tensor. */
const struct pickle_tensor *pickle_tensor_of(const struct pickle *pickle, const json_t *value);

#endif
