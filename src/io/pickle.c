/* The stack machine of pickles, reduced to data.
 *
 * A table with 256 entries gives each opcode its function.  The machine rejects an opcode whose
 * entry is empty.  It checks every operand against the rest of the text, and every pop against the
 * height of the stack and the last mark. An opcode makes at most one value, and each item uses up a
 * stack element, so memory is linear in the length of the text.  An array owns all values:
 * releasing empties the containers one by one, which needs no recursion and breaks cycles.
 *
 * A global is the text of its name, from a closed list.  A call (REDUCE) of a dict or of a way to
 * rebuild a tensor builds a value from its arguments, after checking them.  No function that a
 * pickle names is ever called.
 */
#include "io/pickle.h"

#include <math.h>

#include "base/file.h"
#include "base/size.h"
#include "base/utf8.h"

#define MEMO_MAX 1000000
#define LINE_BYTES_MAX 256
#define TENSOR_INDEX "index of a tensor" /* the key in the object that stands for a tensor */

#define CALL_DICT "collections.OrderedDict"
#define CALL_TENSOR "torch._utils._rebuild_tensor_v2"
#define CALL_PARAMETER "torch._utils._rebuild_parameter"

/* The state of the machine.  The pickle owns the values on the stack and in the memo. */
struct machine {
    struct pickle *pickle;
    const unsigned char *bytes;
    size_t count, at;
    const char *source, *advice;
    unsigned char opcode; /* the current one */
    size_t opcode_at;
    json_t **stack; /* NULL: a mark */
    size_t depth;
    json_t **memo; /* NULL: an empty entry */
    size_t memo_count, memo_end;
};

typedef enum gt_status opcode_fn(struct machine *m);

/* Logs "SOURCE: byte N: WHAT" and returns GT_DATA. */
static enum gt_status malformed(const struct machine *m, const char *what)
{
    return FAIL(GT_DATA, "%s: byte %zu: %s", m->source, m->opcode_at, what);
}

static enum gt_status out_of_memory(const struct machine *m)
{
    return FAIL(GT_NO_MEMORY, "%s: out of memory for the values of a pickle", m->source);
}

/* ---- operands ---- */
static enum gt_status take(struct machine *m, size_t count, const unsigned char **out)
{
    if (count > m->count - m->at)
        return malformed(m, "the pickle ends within an opcode");
    *out = m->bytes + m->at;
    m->at += count;
    return GT_OK;
}

static enum gt_status take_integer(struct machine *m, size_t count, uint64_t *out)
{
    const unsigned char *bytes;
    TRY(take(m, count, &bytes));
    *out = le_read(bytes, count);
    return GT_OK;
}

/* ---- the stack ---- */
static enum gt_status push(struct machine *m, json_t *value)
{
    TRY(HOSTMEM_GROW(m->pickle->owner, &m->stack, m->depth + 1, "pickle"));
    m->stack[m->depth++] = value;
    return GT_OK;
}

/* Gives a new value its owner; NULL means out of memory. */
static enum gt_status reference_add(struct machine *m, json_t *value)
{
    return json_array_append_new(m->pickle->values, value) == 0 ? GT_OK : out_of_memory(m);
}

static enum gt_status push_new(struct machine *m, json_t *value)
{
    TRY(reference_add(m, value));
    return push(m, value);
}

/* Checks that there are `count` values above the last mark. */
static enum gt_status depth_check(const struct machine *m, size_t count)
{
    for (size_t i = 1; i <= count; i++)
        if (i > m->depth || m->stack[m->depth - i] == NULL)
            return malformed(m, "nothing is left on the stack");
    return GT_OK;
}

static enum gt_status pop(struct machine *m, json_t **out)
{
    TRY(depth_check(m, 1));
    *out = m->stack[--m->depth];
    return GT_OK;
}

/* Finds the first of the last `count` values; if `count` is 0, of those above the last mark, which
 * is removed, so that they move down by one. */
static enum gt_status items_find(struct machine *m, size_t count, size_t *out_first)
{
    if (count > 0) {
        TRY(depth_check(m, count));
        *out_first = m->depth - count;
        return GT_OK;
    }
    size_t at = m->depth;
    while (at > 0 && m->stack[at - 1] != NULL)
        at--;
    if (at == 0)
        return malformed(m, "there is no mark on the stack");
    memmove(m->stack + at - 1, m->stack + at, (m->depth - at) * sizeof *m->stack);
    m->depth--;
    *out_first = at - 1;
    return GT_OK;
}

/* ---- constants, numbers and texts ---- */
static enum gt_status op_protocol(struct machine *m)
{
    uint64_t version;
    TRY(take_integer(m, 1, &version));
    return version <= 5 ? GT_OK : malformed(m, "an unknown protocol");
}

static enum gt_status op_frame(struct machine *m)
{
    uint64_t length;
    TRY(take_integer(m, 8, &length));
    return length <= m->count - m->at ? GT_OK : malformed(m, "a frame is longer than the pickle");
}

/* None, True, False, and the empty containers. */
static enum gt_status op_constant(struct machine *m)
{
    switch (m->opcode) {
    case 'N':
        return push_new(m, json_null());
    case '}':
        return push_new(m, json_object());
    case ']':
    case ')':
        return push_new(m, json_array());
    default:
        return push_new(m, json_boolean(m->opcode == 0x88));
    }
}

static enum gt_status op_integer(struct machine *m)
{
    uint64_t count = m->opcode == 'J' ? 4 : m->opcode == 'M' ? 2 : 1, value;
    const bool has_length = m->opcode == 0x8a, is_signed = has_length || m->opcode == 'J';
    if (has_length)
        TRY(take_integer(m, 1, &count));
    if (count > 8)
        return malformed(m, "an integer of more than 64 bits");
    TRY(take_integer(m, (size_t)count, &value));
    if (is_signed && count > 0 && count < 8 && value >> (8 * count - 1) != 0)
        value |= UINT64_MAX << (8 * count);
    return push_new(m, json_integer((json_int_t)value));
}

static enum gt_status op_real(struct machine *m)
{
    const unsigned char *bytes;
    uint64_t bits = 0;
    double value;
    TRY(take(m, 8, &bytes));
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | bytes[i];
    memcpy(&value, &bits, sizeof bits);
    return push_new(m, isfinite(value) ? json_real(value) : json_null());
}

static enum gt_status op_text(struct machine *m)
{
    const bool is_short = m->opcode == 'U' || m->opcode == 0x8c;
    uint64_t count;
    const unsigned char *bytes;
    TRY(take_integer(m, is_short ? 1 : m->opcode == 0x8d ? 8 : 4, &count));
    if (count > m->count)
        return malformed(m, "a text is longer than the pickle");
    TRY(take(m, (size_t)count, &bytes));
    if (utf8_valid_end(bytes, 0, (size_t)count) != count)
        return malformed(m, "a text that is not UTF-8");
    return push_new(m, json_stringn_nocheck((const char *)bytes, (size_t)count));
}

/* ---- containers ---- */
static enum gt_status op_mark(struct machine *m)
{
    return push(m, NULL);
}

static enum gt_status dict_set(const struct machine *m, json_t *dict, const json_t *key,
                               json_t *value)
{
    char digits[24];
    const char *name = json_is_integer(key) ? digits : json_string_value(key);
    size_t length = json_string_length(key);
    if (json_is_integer(key))
        length = (size_t)snprintf(digits, sizeof digits, "%" JSON_INTEGER_FORMAT,
                                  json_integer_value(key));
    if (name == NULL)
        return malformed(m, "a key that is neither a text nor an integer");
    return json_object_setn_nocheck(dict, name, length, value) == 0 ? GT_OK : out_of_memory(m);
}

/* Moves stack[first ... depth-1] into a container. */
static enum gt_status move_to(struct machine *m, json_t *container, size_t first)
{
    const size_t step = json_is_object(container) ? 2 : 1;
    if ((m->depth - first) % step != 0)
        return malformed(m, "a key without a value");
    for (size_t i = first; i < m->depth; i += step) {
        json_t *value = m->stack[i + step - 1];
        if (value == container)
            return malformed(m, "a list or dict within itself");
        if (step == 2)
            TRY(dict_set(m, container, m->stack[i], value));
        else if (json_array_append(container, value) != 0)
            return out_of_memory(m);
    }
    m->depth = first;
    return GT_OK;
}

static enum gt_status op_tuple(struct machine *m)
{
    size_t first;
    json_t *tuple = json_array();
    TRY(reference_add(m, tuple));
    TRY(items_find(m, m->opcode == 't' ? 0 : (size_t)m->opcode - 0x84 /* TUPLE1, TUPLE2, TUPLE3 */,
                   &first));
    TRY(move_to(m, tuple, first));
    return push(m, tuple);
}

/* Moves one item, or those above the mark, into the container below them. */
static enum gt_status op_items(struct machine *m)
{
    const bool one = m->opcode == 's' || m->opcode == 'a',
               dict = m->opcode == 'u' || m->opcode == 's';
    size_t first;
    TRY(items_find(m, !one ? 0 : dict ? 2 : 1, &first));
    json_t *container = first > 0 ? m->stack[first - 1] : NULL;
    if (container == NULL || json_typeof(container) != (dict ? JSON_OBJECT : JSON_ARRAY))
        return malformed(m, "items without the dict or list that they belong to");
    return move_to(m, container, first);
}

static enum gt_status op_put(struct machine *m)
{
    uint64_t index = m->memo_count;
    if (m->opcode != 0x94)
        TRY(take_integer(m, m->opcode == 'q' ? 1 : 4, &index));
    TRY(depth_check(m, 1));
    if (index >= MEMO_MAX)
        return malformed(m, "a memo number beyond 1,000,000");
    TRY(HOSTMEM_GROW(m->pickle->owner, &m->memo, (size_t)index + 1, "pickle"));
    m->memo_end = index >= m->memo_end ? (size_t)index + 1 : m->memo_end;
    m->memo_count += m->memo[index] == NULL;
    m->memo[index] = m->stack[m->depth - 1];
    return GT_OK;
}

static enum gt_status op_get(struct machine *m)
{
    uint64_t index;
    TRY(take_integer(m, m->opcode == 'h' ? 1 : 4, &index));
    if (index >= m->memo_end || m->memo[index] == NULL)
        return malformed(m, "nothing was put where this takes it from");
    return push(m, m->memo[index]);
}

/* ---- globals, and the results of calling them ---- */
static const struct storage_type {
    const char *name;
    enum dtype dtype; /* DTYPE_COUNT: enum dtype has no such type */
    size_t element_bytes;
} storage_types[] = {
    {"torch.FloatStorage", DTYPE_F32, 4},     {"torch.HalfStorage", DTYPE_F16, 2},
    {"torch.BFloat16Storage", DTYPE_BF16, 2}, {"torch.DoubleStorage", DTYPE_F64, 8},
    {"torch.IntStorage", DTYPE_I32, 4},       {"torch.ByteStorage", DTYPE_U8, 1},
    {"torch.LongStorage", DTYPE_COUNT, 8},    {"torch.ShortStorage", DTYPE_COUNT, 2},
    {"torch.CharStorage", DTYPE_COUNT, 1},    {"torch.BoolStorage", DTYPE_COUNT, 1},
};

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* Returns NULL if there is none of this name. */
static const struct storage_type *storage_type_find(const json_t *name)
{
    for (size_t i = 0; i < sizeof storage_types / sizeof storage_types[0]; i++)
        if (is_text(name, storage_types[i].name))
            return &storage_types[i];
    return NULL;
}

static enum gt_status global_push(struct machine *m, const char *module, const char *name)
{
    const char *full = TEXT(2 * LINE_BYTES_MAX + 2, "%s.%s", module, name);
    json_t *value = json_string(full);
    TRY(push_new(m, value));
    if (is_text(value, CALL_DICT) || is_text(value, CALL_TENSOR) ||
        is_text(value, CALL_PARAMETER) || storage_type_find(value) != NULL)
        return GT_OK;
    return FAIL(
        GT_UNSUPPORTED,
        "%s: byte %zu: the pickle asks for %.200s, which a state dict does not need; refused, nothing was run%s",
        m->source, m->opcode_at, full, m->advice);
}

/* Sets the first part of `out` from the tuple ('storage', TYPE, KEY, DEVICE, ELEMENTS).  Returns
 * false when `id` is something else. */
static bool storage_read(const json_t *id, struct pickle_tensor *out)
{
    const struct storage_type *type = storage_type_find(json_array_get(id, 1));
    const json_t *key = json_array_get(id, 2), *elements = json_array_get(id, 4);
    if (json_array_size(id) != 5 || !is_text(json_array_get(id, 0), "storage") || type == NULL ||
        !json_is_string(key) || !json_is_integer(elements) || json_integer_value(elements) < 0)
        return false;
    *out = (struct pickle_tensor){.key = json_string_value(key),
                                  .dtype = type->dtype,
                                  .element_bytes = type->element_bytes,
                                  .storage_elements = json_integer_value(elements)};
    return true;
}

static enum gt_status op_persistent_load(struct machine *m)
{
    json_t *id;
    struct pickle_tensor storage;
    TRY(pop(m, &id));
    return storage_read(id, &storage)
               ? push(m, id)
               : malformed(m, "a persistent id that is not a storage of torch's");
}

/* Reads a tuple of integers.  Returns false when an integer is negative, or `tuple` is not such a
 * tuple. */
static bool sizes_read(const json_t *tuple, int64_t out[static PICKLE_RANK_MAX])
{
    const size_t count = json_array_size(tuple);
    for (size_t i = 0; i < count && i < PICKLE_RANK_MAX; i++) {
        const json_t *size = json_array_get(tuple, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return false;
        out[i] = json_integer_value(size);
    }
    return json_is_array(tuple) && count <= PICKLE_RANK_MAX;
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

/* Sets `out` from the arguments (STORAGE, FIRST, SIZES, STRIDES, REQUIRES_GRAD, HOOKS[, METADATA]).
 */
static enum gt_status tensor_read(const struct machine *m, const json_t *arguments,
                                  struct pickle_tensor *out)
{
    const json_t *first = json_array_get(arguments, 1), *sizes = json_array_get(arguments, 2),
                 *steps = json_array_get(arguments, 3);
    int64_t strides[PICKLE_RANK_MAX];
    size_t elements;
    if (json_array_size(arguments) < 6 || !storage_read(json_array_get(arguments, 0), out) ||
        !json_is_integer(first) || !sizes_read(sizes, out->dims) || !sizes_read(steps, strides) ||
        json_array_size(sizes) != json_array_size(steps))
        return malformed(m, "a tensor with impossible arguments");
    out->first = json_integer_value(first);
    out->rank = (int32_t)json_array_size(sizes);
    if (!size_product(out->dims, (size_t)out->rank, &elements) || elements > INT64_MAX)
        return malformed(m, "a tensor whose sizes do not fit 64 bits");
    out->elements = (int64_t)elements;
    if (out->first < 0 || out->first > out->storage_elements ||
        out->elements > out->storage_elements - out->first)
        return malformed(m, "a tensor that reaches beyond its storage");
    if (out->elements > 0 && !is_row_major(out, strides))
        return FAIL(GT_DATA, "%s: byte %zu: a tensor that is not stored row by row%s", m->source,
                    m->opcode_at, m->advice);
    return GT_OK;
}

static enum gt_status tensor_push(struct machine *m, const json_t *arguments)
{
    struct pickle *pickle = m->pickle;
    struct pickle_tensor tensor;
    TRY(tensor_read(m, arguments, &tensor));
    TRY(HOSTMEM_GROW(pickle->owner, &pickle->tensors, pickle->tensor_count + 1, "pickle"));
    pickle->tensors[pickle->tensor_count] = tensor;
    return push_new(m, json_pack("{s:I}", TENSOR_INDEX, (json_int_t)pickle->tensor_count++));
}

/* The pickle itself may have made such an object, of one of its tensors. */
const struct pickle_tensor *pickle_tensor_of(const struct pickle *pickle, const json_t *value)
{
    const json_t *index = json_object_get(value, TENSOR_INDEX);
    const json_int_t number = json_is_integer(index) ? json_integer_value(index) : -1;
    return number >= 0 && (uint64_t)number < pickle->tensor_count ? &pickle->tensors[number] : NULL;
}

static enum gt_status op_reduce(struct machine *m)
{
    json_t *arguments, *callable;
    TRY(pop(m, &arguments));
    TRY(pop(m, &callable));
    if (!json_is_array(arguments))
        return malformed(m, "a call with impossible arguments");
    if (is_text(callable, CALL_DICT) && json_array_size(arguments) == 0)
        return push_new(m, json_object());
    if (is_text(callable, CALL_TENSOR))
        return tensor_push(m, arguments);
    json_t *parameter = json_array_get(arguments, 0);
    if (is_text(callable, CALL_PARAMETER) && pickle_tensor_of(m->pickle, parameter) != NULL)
        return push(m, parameter);
    return malformed(m, "a call of something that a state dict does not call");
}

/* Takes a line of text; its newline becomes the terminator. */
static enum gt_status take_line(struct machine *m, char out[static LINE_BYTES_MAX])
{
    const size_t left = size_min(m->count - m->at, LINE_BYTES_MAX);
    const char *end = memccpy(out, m->bytes + m->at, '\n', left);
    if (end == NULL)
        return malformed(m, "the name of a global is cut short");
    const size_t count = (size_t)(end - out) - 1;
    out[count] = '\0';
    m->at += count + 1;
    return utf8_valid_end((unsigned char *)out, 0, count) == count
               ? GT_OK
               : malformed(m, "a name that is not UTF-8");
}

static enum gt_status op_global(struct machine *m)
{
    char module[LINE_BYTES_MAX], name[LINE_BYTES_MAX];
    TRY(take_line(m, module));
    TRY(take_line(m, name));
    return global_push(m, module, name);
}

static enum gt_status op_stack_global(struct machine *m)
{
    json_t *module, *name;
    TRY(pop(m, &name));
    TRY(pop(m, &module));
    if (!json_is_string(module) || !json_is_string(name))
        return malformed(m, "the name of a global is not text");
    if (json_string_length(module) > LINE_BYTES_MAX || json_string_length(name) > LINE_BYTES_MAX)
        return malformed(m, "the name of a global is too long");
    return global_push(m, json_string_value(module), json_string_value(name));
}

/* Pops the state of an object and drops it: an OrderedDict of torch's has only _metadata, which a
 * reader of weights does not need. */
static enum gt_status op_build(struct machine *m)
{
    json_t *state;
    TRY(pop(m, &state));
    TRY(depth_check(m, 1));
    if (json_is_object(state) && json_is_object(m->stack[m->depth - 1]))
        return GT_OK;
    return malformed(m, "state is given to something that is not a dict");
}

static enum gt_status op_stop(struct machine *m)
{
    if (m->depth != 1 || m->stack[0] == NULL)
        return malformed(m, "the pickle ends with more or less than one value");
    m->pickle->root = m->stack[0];
    return GT_OK;
}

static opcode_fn *const opcodes[256] = {
    [0x80] = op_protocol, [0x95] = op_frame,        ['N'] = op_constant, [0x88] = op_constant,
    [0x89] = op_constant, ['J'] = op_integer,       ['K'] = op_integer,  ['M'] = op_integer,
    [0x8a] = op_integer,  ['G'] = op_real,          ['X'] = op_text,     ['T'] = op_text,
    ['U'] = op_text,      [0x8c] = op_text,         [0x8d] = op_text,    ['}'] = op_constant,
    [']'] = op_constant,  [')'] = op_constant,      ['('] = op_mark,     ['t'] = op_tuple,
    [0x85] = op_tuple,    [0x86] = op_tuple,        [0x87] = op_tuple,   ['u'] = op_items,
    ['e'] = op_items,     ['s'] = op_items,         ['a'] = op_items,    ['q'] = op_put,
    ['r'] = op_put,       [0x94] = op_put,          ['h'] = op_get,      ['j'] = op_get,
    ['c'] = op_global,    ['b'] = op_build,         ['.'] = op_stop,     ['Q'] = op_persistent_load,
    ['R'] = op_reduce,    [0x93] = op_stack_global,
};

static enum gt_status machine_run(struct machine *m)
{
    while (m->pickle->root == NULL) {
        const unsigned char *byte;
        m->opcode_at = m->at;
        TRY(take(m, 1, &byte));
        m->opcode = *byte;
        if (opcodes[m->opcode] == NULL)
            return FAIL(GT_UNSUPPORTED,
                        "%s: byte %zu: opcode 0x%02x, which a state dict does not need; refused%s",
                        m->source, m->opcode_at, (unsigned)m->opcode, m->advice);
        TRY(opcodes[m->opcode](m));
    }
    return m->at == m->count ? GT_OK : malformed(m, "bytes follow the end of the pickle");
}

enum gt_status pickle_read(const void *owner, const unsigned char *bytes, size_t count,
                           const char *source, const char *advice, struct pickle *out)
{
    if (count > PICKLE_BYTES_MAX)
        return FAIL(GT_DATA, "%s: is %zu bytes long; at most %zu are accepted", source, count,
                    PICKLE_BYTES_MAX);
    struct pickle pickle = {.owner = owner, .values = json_array()};
    struct machine machine = {
        .pickle = &pickle, .bytes = bytes, .count = count, .source = source, .advice = advice};
    const enum gt_status status =
        pickle.values != NULL ? machine_run(&machine) : out_of_memory(&machine);
    hostmem_free(machine.stack);
    hostmem_free(machine.memo);
    if (status == GT_OK)
        *out = pickle;
    else
        pickle_release(&pickle);
    return status;
}

void pickle_release(struct pickle *pickle)
{
    json_t *value;
    size_t i;
    json_array_foreach(pickle->values, i, value)
    {
        (void)json_array_clear(value);
        (void)json_object_clear(value);
    }
    json_decref(pickle->values);
    hostmem_free(pickle->tensors);
    *pickle = (struct pickle){.owner = NULL};
}
