/* The globals of a pickle: the supported ones, and the results of calling them.
 *
 * The list is short and closed: a dict, two ways to rebuild a tensor, the names of storage types.  The arguments of a
 * call are checked one by one, and the call becomes a value of the tables; a tensor must be row-major and inside its
 * storage.  A global that is not in the list is rejected immediately.
 */
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "io/pickle_internal.h"

enum global_kind { GLOBAL_DICT, GLOBAL_TENSOR, GLOBAL_PARAMETER, GLOBAL_STORAGE };
enum { ARGUMENTS_MAX = 7 };

static const struct {
    const char *name;
    enum global_kind kind;
    enum dtype dtype; /* of a storage; DTYPE_COUNT: no enum dtype for it */
    size_t element_bytes;
} globals[] = {
    {"collections.OrderedDict", GLOBAL_DICT, DTYPE_COUNT, 0},
    {"torch._utils._rebuild_tensor_v2", GLOBAL_TENSOR, DTYPE_COUNT, 0},
    {"torch._utils._rebuild_parameter", GLOBAL_PARAMETER, DTYPE_COUNT, 0},
    {"torch.FloatStorage", GLOBAL_STORAGE, DTYPE_F32, 4},
    {"torch.HalfStorage", GLOBAL_STORAGE, DTYPE_F16, 2},
    {"torch.BFloat16Storage", GLOBAL_STORAGE, DTYPE_BF16, 2},
    {"torch.DoubleStorage", GLOBAL_STORAGE, DTYPE_F64, 8},
    {"torch.IntStorage", GLOBAL_STORAGE, DTYPE_I32, 4},
    {"torch.ByteStorage", GLOBAL_STORAGE, DTYPE_U8, 1},
    {"torch.LongStorage", GLOBAL_STORAGE, DTYPE_COUNT, 8},
    {"torch.ShortStorage", GLOBAL_STORAGE, DTYPE_COUNT, 2},
    {"torch.CharStorage", GLOBAL_STORAGE, DTYPE_COUNT, 1},
    {"torch.BoolStorage", GLOBAL_STORAGE, DTYPE_COUNT, 1},
};
#define GLOBAL_COUNT (sizeof globals / sizeof globals[0])

enum gt_status pickle_global_push(struct pickle_machine *m, const char *name)
{
    for (size_t i = 0; i < GLOBAL_COUNT; i++) {
        if (strcmp(globals[i].name, name) == 0) {
            uint32_t index;
            const struct pickle_value value = {.kind = PICKLE_GLOBAL, .as.index = (uint32_t)i};
            TRY(pickle_value_add(m, &value, &index));
            return pickle_push(m, index);
        }
    }
    log_error("%s: byte %zu: the pickle asks for %.200s, which a state dict does not need; refused, nothing was run",
              m->source, m->opcode_at, name);
    return GT_UNSUPPORTED;
}

static const struct pickle_value *value_at(const struct pickle_machine *m, uint32_t index)
{
    return &m->pickle->values[index];
}

/* Copies the items of a tuple to an array.  Returns false when it is not a tuple or has more than `most` items. */
static bool tuple_items(const struct pickle_machine *m, uint32_t tuple, size_t most, uint32_t *out, size_t *out_count)
{
    const struct pickle_value *value = value_at(m, tuple);
    size_t count = 0;
    if (value->kind != PICKLE_TUPLE || value->as.items.count > most)
        return false;
    for (uint32_t i = value->as.items.first; i != PICKLE_END; i = m->pickle->items[i].next)
        out[count++] = m->pickle->items[i].value;
    *out_count = count;
    return true;
}

static bool is_global(const struct pickle_machine *m, uint32_t value, enum global_kind kind)
{
    const struct pickle_value *found = value_at(m, value);
    return found->kind == PICKLE_GLOBAL && globals[found->as.index].kind == kind;
}

/* ('storage', TYPE, KEY, DEVICE, ELEMENTS) */
enum gt_status pickle_persistent_load(struct pickle_machine *m)
{
    struct pickle *pickle = m->pickle;
    uint32_t tuple, items[5], index;
    size_t count;
    TRY(pickle_pop(m, &tuple));
    if (!tuple_items(m, tuple, 5, items, &count) || count != 5 || !pickle_is_text(pickle, items[0], "storage") ||
        !is_global(m, items[1], GLOBAL_STORAGE) || value_at(m, items[2])->kind != PICKLE_TEXT ||
        value_at(m, items[4])->kind != PICKLE_INT || value_at(m, items[4])->as.integer < 0)
        return pickle_malformed(m, "a persistent id that is not a storage of torch's");
    void *storages = pickle->storages;
    enum gt_status status =
        pickle_grow(pickle->mem, &storages, &pickle->storage_capacity, pickle->storage_count, sizeof *pickle->storages);
    pickle->storages = storages;
    TRY(status);
    const uint32_t type = value_at(m, items[1])->as.index;
    pickle->storages[pickle->storage_count] = (struct pickle_storage){
        .key = value_at(m, items[2])->as.text.bytes,
        .key_bytes = value_at(m, items[2])->as.text.count,
        .dtype = globals[type].dtype,
        .element_bytes = globals[type].element_bytes,
        .elements = value_at(m, items[4])->as.integer,
    };
    const struct pickle_value value = {.kind = PICKLE_STORAGE, .as.index = (uint32_t)pickle->storage_count++};
    TRY(pickle_value_add(m, &value, &index));
    return pickle_push(m, index);
}

/* Reads a tuple of integers of 0 or more. */
static bool sizes_read(const struct pickle_machine *m, uint32_t tuple, int64_t out[static PICKLE_RANK_MAX],
                       size_t *out_count)
{
    uint32_t items[PICKLE_RANK_MAX];
    if (!tuple_items(m, tuple, PICKLE_RANK_MAX, items, out_count))
        return false;
    for (size_t i = 0; i < *out_count; i++) {
        const struct pickle_value *value = value_at(m, items[i]);
        if (value->kind != PICKLE_INT || value->as.integer < 0)
            return false;
        out[i] = value->as.integer;
    }
    return true;
}

/* Returns true when the strides are row-major; a dimension of size 1 may have any stride. */
static bool is_row_major(const struct pickle_tensor *tensor, const int64_t *strides)
{
    int64_t expected = 1;
    for (int32_t i = tensor->rank; i-- > 0;) {
        if (tensor->dims[i] != 1 && strides[i] != expected)
            return false;
        expected *= tensor->dims[i];
    }
    return true;
}

/* (STORAGE, FIRST, SIZES, STRIDES, REQUIRES_GRAD, HOOKS[, METADATA]) */
static enum gt_status tensor_read(const struct pickle_machine *m, const uint32_t *arguments, size_t count,
                                  struct pickle_tensor *out)
{
    int64_t strides[PICKLE_RANK_MAX];
    size_t factors[PICKLE_RANK_MAX], rank, stride_count, elements;
    if (count < 6 || value_at(m, arguments[0])->kind != PICKLE_STORAGE ||
        value_at(m, arguments[1])->kind != PICKLE_INT || !sizes_read(m, arguments[2], out->dims, &rank) ||
        !sizes_read(m, arguments[3], strides, &stride_count) || rank != stride_count)
        return pickle_malformed(m, "a tensor with impossible arguments");
    out->storage = value_at(m, arguments[0])->as.index;
    out->first = value_at(m, arguments[1])->as.integer;
    out->rank = (int32_t)rank;
    for (size_t i = 0; i < rank; i++)
        factors[i] = (size_t)out->dims[i];
    if (!size_product(factors, rank, &elements) || elements > INT64_MAX)
        return pickle_malformed(m, "a tensor whose sizes do not fit 64 bits");
    out->elements = (int64_t)elements;
    const int64_t available = m->pickle->storages[out->storage].elements;
    if (out->first < 0 || out->first > available || out->elements > available - out->first)
        return pickle_malformed(m, "a tensor that reaches beyond its storage");
    if (out->elements > 0 && !is_row_major(out, strides))
        return pickle_malformed(m, "a tensor that is not stored row by row (call .contiguous() before torch.save)");
    return GT_OK;
}

static enum gt_status tensor_push(struct pickle_machine *m, const uint32_t *arguments, size_t count)
{
    struct pickle *pickle = m->pickle;
    struct pickle_tensor tensor = {.rank = 0};
    uint32_t index;
    TRY(tensor_read(m, arguments, count, &tensor));
    void *tensors = pickle->tensors;
    enum gt_status status =
        pickle_grow(pickle->mem, &tensors, &pickle->tensor_capacity, pickle->tensor_count, sizeof *pickle->tensors);
    pickle->tensors = tensors;
    TRY(status);
    pickle->tensors[pickle->tensor_count] = tensor;
    const struct pickle_value value = {.kind = PICKLE_TENSOR, .as.index = (uint32_t)pickle->tensor_count++};
    TRY(pickle_value_add(m, &value, &index));
    return pickle_push(m, index);
}

enum gt_status pickle_reduce(struct pickle_machine *m)
{
    uint32_t tuple, callable, dict, arguments[ARGUMENTS_MAX];
    size_t count;
    TRY(pickle_pop(m, &tuple));
    TRY(pickle_pop(m, &callable));
    if (!tuple_items(m, tuple, ARGUMENTS_MAX, arguments, &count))
        return pickle_malformed(m, "a call with impossible arguments");
    if (is_global(m, callable, GLOBAL_DICT) && count == 0) {
        TRY(pickle_container_new(m, PICKLE_DICT, &dict));
        return pickle_push(m, dict);
    }
    if (is_global(m, callable, GLOBAL_TENSOR))
        return tensor_push(m, arguments, count);
    if (is_global(m, callable, GLOBAL_PARAMETER) && count == 3 && value_at(m, arguments[0])->kind == PICKLE_TENSOR)
        return pickle_push(m, arguments[0]);
    return pickle_malformed(m, "a call of something that a state dict does not call");
}
