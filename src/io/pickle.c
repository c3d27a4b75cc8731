/* The stack machine of pickles, reduced to data.
 *
 * A table with 256 entries gives each opcode its function.  The machine rejects an opcode whose entry is empty.  It
 * checks every operand against the rest of the text, and every pop against the height of the stack and the last mark.
 * An opcode makes at most one value, and each item uses up a stack element.  So the tables of values, items and tensors
 * cannot outgrow the text.  The memo can, but has at most about twice MEMO_MAX entries.
 *
 * The machine knows a short, closed list of globals: a dict, two ways to rebuild a tensor, and the names of storage
 * types.  A call (REDUCE) of a dict or of a way to rebuild builds a value from its arguments, after checking them.  The
 * machine rejects any other global immediately, and never calls a function that a pickle names.
 */
#include "io/pickle.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"

#define MEMO_MAX 1000000
#define LINE_BYTES_MAX 256

/* The state of the machine. */
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

typedef enum gt_status opcode_fn(struct pickle_machine *m);

/* Logs "SOURCE: byte N: WHAT" and returns GT_DATA. */
static enum gt_status malformed(const struct pickle_machine *m, const char *what)
{
    log_error("%s: byte %zu: %s", m->source, m->opcode_at, what);
    return GT_DATA;
}

/* ---- operands ---- */
static enum gt_status take(struct pickle_machine *m, size_t count, const unsigned char **out)
{
    if (count > m->count - m->at)
        return malformed(m, "the pickle ends within an opcode");
    *out = m->bytes + m->at;
    m->at += count;
    return GT_OK;
}

static enum gt_status take_integer(struct pickle_machine *m, size_t count, uint64_t *out)
{
    const unsigned char *bytes;
    uint64_t value = 0;
    TRY(take(m, count, &bytes));
    for (size_t i = 0; i < count; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    *out = value;
    return GT_OK;
}

/* ---- the stack ---- */
static enum gt_status push(struct pickle_machine *m, uint32_t value)
{
    TRY(hostmem_grow(m->pickle->mem, &m->stack, &m->stack_capacity, m->depth + 1, sizeof *m->stack, "pickle"));
    m->stack[m->depth++] = value;
    return GT_OK;
}

/* Pops the top of the stack.  Fails if there is no value above the last mark. */
static enum gt_status pop(struct pickle_machine *m, uint32_t *out)
{
    const size_t floor = m->mark_count > 0 ? m->marks[m->mark_count - 1] : 0;
    if (m->depth <= floor)
        return malformed(m, "nothing is left on the stack");
    *out = m->stack[--m->depth];
    return GT_OK;
}

static enum gt_status top(struct pickle_machine *m, uint32_t *out)
{
    TRY(pop(m, out));
    m->depth++;
    return GT_OK;
}

static enum gt_status mark_pop(struct pickle_machine *m, size_t *out_first)
{
    if (m->mark_count == 0)
        return malformed(m, "there is no mark on the stack");
    *out_first = m->marks[--m->mark_count];
    assert(*out_first <= m->depth);
    return GT_OK;
}

/* ---- values ---- */
static const struct pickle_value *value_at(const struct pickle_machine *m, uint32_t index)
{
    return &m->pickle->values[index];
}

static enum gt_status value_add(struct pickle_machine *m, const struct pickle_value *value, uint32_t *out)
{
    struct pickle *pickle = m->pickle;
    TRY(hostmem_grow(pickle->mem, &pickle->values, &pickle->value_capacity, pickle->value_count + 1,
                     sizeof *pickle->values, "pickle"));
    pickle->values[pickle->value_count] = *value;
    *out = (uint32_t)pickle->value_count++;
    return GT_OK;
}

static enum gt_status push_new(struct pickle_machine *m, const struct pickle_value *value)
{
    uint32_t index;
    TRY(value_add(m, value, &index));
    return push(m, index);
}

static enum gt_status item_append(struct pickle_machine *m, uint32_t container, uint32_t key, uint32_t value)
{
    struct pickle *pickle = m->pickle;
    TRY(hostmem_grow(pickle->mem, &pickle->items, &pickle->item_capacity, pickle->item_count + 1, sizeof *pickle->items,
                     "pickle"));
    struct pickle_value *owner = &pickle->values[container];
    const uint32_t index = (uint32_t)pickle->item_count++;
    pickle->items[index] = (struct pickle_item){.key = key, .value = value, .next = PICKLE_END};
    if (owner->as.items.count++ == 0)
        owner->as.items.first = index;
    else
        pickle->items[owner->as.items.last].next = index;
    owner->as.items.last = index;
    return GT_OK;
}

static enum gt_status container_new(struct pickle_machine *m, enum pickle_kind kind, uint32_t *out)
{
    const struct pickle_value value = {.kind = kind, .as.items = {.first = PICKLE_END, .last = PICKLE_END}};
    return value_add(m, &value, out);
}

static enum gt_status container_push(struct pickle_machine *m, enum pickle_kind kind)
{
    uint32_t index;
    TRY(container_new(m, kind, &index));
    return push(m, index);
}

/* ---- opcodes ---- */
static enum gt_status op_protocol(struct pickle_machine *m)
{
    uint64_t version;
    TRY(take_integer(m, 1, &version));
    return version <= 5 ? GT_OK : malformed(m, "an unknown protocol");
}

static enum gt_status op_frame(struct pickle_machine *m)
{
    uint64_t length;
    TRY(take_integer(m, 8, &length));
    return length <= m->count - m->at ? GT_OK : malformed(m, "a frame is longer than the pickle");
}

static enum gt_status op_none(struct pickle_machine *m)
{
    return push_new(m, &(struct pickle_value){.kind = PICKLE_NONE});
}

static enum gt_status op_bool(struct pickle_machine *m)
{
    return push_new(m, &(struct pickle_value){.kind = PICKLE_BOOL, .as.integer = m->opcode == 0x88});
}

static enum gt_status op_int(struct pickle_machine *m)
{
    uint64_t value;
    TRY(take_integer(m, m->opcode == 'J' ? 4 : m->opcode == 'M' ? 2 : 1, &value));
    const int64_t integer = m->opcode == 'J' ? (int64_t)(int32_t)(uint32_t)value : (int64_t)value;
    return push_new(m, &(struct pickle_value){.kind = PICKLE_INT, .as.integer = integer});
}

static enum gt_status op_long(struct pickle_machine *m)
{
    uint64_t count, value;
    TRY(take_integer(m, 1, &count));
    if (count > 8)
        return malformed(m, "an integer of more than 64 bits");
    TRY(take_integer(m, (size_t)count, &value));
    if (count > 0 && count < 8 && (value >> (8 * count - 1)) != 0)
        value |= UINT64_MAX << (8 * count);
    return push_new(m, &(struct pickle_value){.kind = PICKLE_INT, .as.integer = (int64_t)value});
}

static enum gt_status op_real(struct pickle_machine *m)
{
    const unsigned char *bytes;
    uint64_t bits = 0;
    struct pickle_value value = {.kind = PICKLE_REAL};
    TRY(take(m, 8, &bytes));
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | bytes[i];
    memcpy(&value.as.real, &bits, sizeof bits);
    return push_new(m, &value);
}

static enum gt_status op_text(struct pickle_machine *m)
{
    const bool is_short = m->opcode == 'U' || m->opcode == 0x8c;
    uint64_t count;
    const unsigned char *bytes;
    TRY(take_integer(m, is_short ? 1 : m->opcode == 0x8d ? 8 : 4, &count));
    if (count > m->count)
        return malformed(m, "a text is longer than the pickle");
    TRY(take(m, (size_t)count, &bytes));
    const struct pickle_value value = {.kind = PICKLE_TEXT, .as.text = {(const char *)bytes, (size_t)count}};
    return push_new(m, &value);
}

static enum gt_status op_empty(struct pickle_machine *m)
{
    return container_push(m, m->opcode == '}' ? PICKLE_DICT : m->opcode == ']' ? PICKLE_LIST : PICKLE_TUPLE);
}

static enum gt_status op_mark(struct pickle_machine *m)
{
    TRY(hostmem_grow(m->pickle->mem, &m->marks, &m->mark_capacity, m->mark_count + 1, sizeof *m->marks, "pickle"));
    m->marks[m->mark_count++] = m->depth;
    return GT_OK;
}

/* Moves stack[first ... depth-1] into a container. */
static enum gt_status move_to(struct pickle_machine *m, uint32_t container, size_t first)
{
    const bool dict = m->pickle->values[container].kind == PICKLE_DICT;
    if (dict && (m->depth - first) % 2 != 0)
        return malformed(m, "a key without a value");
    for (size_t i = first; i < m->depth; i += dict ? 2 : 1)
        TRY(item_append(m, container, m->stack[i], m->stack[dict ? i + 1 : i]));
    m->depth = first;
    return GT_OK;
}

static enum gt_status op_tuple(struct pickle_machine *m)
{
    size_t first;
    uint32_t tuple;
    if (m->opcode == 't') {
        TRY(mark_pop(m, &first));
    } else {
        const size_t count = (size_t)m->opcode - 0x84; /* TUPLE1, TUPLE2, TUPLE3 */
        const size_t floor = m->mark_count > 0 ? m->marks[m->mark_count - 1] : 0;
        if (m->depth - floor < count)
            return malformed(m, "nothing is left on the stack");
        first = m->depth - count;
    }
    TRY(container_new(m, PICKLE_TUPLE, &tuple));
    TRY(move_to(m, tuple, first));
    return push(m, tuple);
}

/* Finds the container below the items on the stack. */
static enum gt_status owner_find(struct pickle_machine *m, size_t first, enum pickle_kind kind, uint32_t *out)
{
    const size_t floor = m->mark_count > 0 ? m->marks[m->mark_count - 1] : 0;
    if (first <= floor || m->pickle->values[m->stack[first - 1]].kind != kind)
        return malformed(m, "items without the dict or list that they belong to");
    *out = m->stack[first - 1];
    return GT_OK;
}

static enum gt_status op_items(struct pickle_machine *m)
{
    size_t first;
    uint32_t owner;
    TRY(mark_pop(m, &first));
    TRY(owner_find(m, first, m->opcode == 'u' ? PICKLE_DICT : PICKLE_LIST, &owner));
    return move_to(m, owner, first);
}

static enum gt_status op_item(struct pickle_machine *m)
{
    const size_t count = m->opcode == 's' ? 2 : 1;
    uint32_t owner;
    if (m->depth < count)
        return malformed(m, "nothing is left on the stack");
    TRY(owner_find(m, m->depth - count, m->opcode == 's' ? PICKLE_DICT : PICKLE_LIST, &owner));
    return move_to(m, owner, m->depth - count);
}

static enum gt_status memo_put(struct pickle_machine *m, uint64_t index)
{
    uint32_t value;
    TRY(top(m, &value));
    if (index >= MEMO_MAX)
        return malformed(m, "a memo number beyond 1,000,000");
    const size_t at = (size_t)index;
    if (at >= m->memo_capacity) {
        uint32_t *block;
        const size_t wanted = 2 * at + 64;
        TRY(HOSTMEM_NEW(m->pickle->mem, wanted, "pickle", &block));
        if (m->memo_capacity > 0)
            memcpy(block, m->memo, m->memo_capacity * sizeof *m->memo);
        hostmem_free(m->pickle->mem, m->memo);
        m->memo = block;
        m->memo_capacity = wanted;
    }
    m->memo_count += m->memo[at] == 0;
    m->memo[at] = value + 1; /* 0 is an empty entry */
    return GT_OK;
}

static enum gt_status op_put(struct pickle_machine *m)
{
    uint64_t index = m->memo_count;
    if (m->opcode != 0x94)
        TRY(take_integer(m, m->opcode == 'q' ? 1 : 4, &index));
    return memo_put(m, index);
}

static enum gt_status op_get(struct pickle_machine *m)
{
    uint64_t index;
    TRY(take_integer(m, m->opcode == 'h' ? 1 : 4, &index));
    if (index >= m->memo_capacity || m->memo[index] == 0)
        return malformed(m, "nothing was put where this takes it from");
    return push(m, m->memo[index] - 1);
}

/* ---- globals, and the results of calling them ---- */
enum global_kind { GLOBAL_DICT, GLOBAL_TENSOR, GLOBAL_PARAMETER, GLOBAL_STORAGE };
enum { ARGUMENTS_MAX = 7 };

static const struct {
    const char *name;
    enum global_kind kind;
    enum dtype dtype; /* of a storage; DTYPE_COUNT: enum dtype has no such type */
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

static enum gt_status global_push(struct pickle_machine *m, const char *name)
{
    for (size_t i = 0; i < GLOBAL_COUNT; i++) {
        if (strcmp(globals[i].name, name) == 0)
            return push_new(m, &(struct pickle_value){.kind = PICKLE_GLOBAL, .as.index = (uint32_t)i});
    }
    log_error("%s: byte %zu: the pickle asks for %.200s, which a state dict does not need; refused, nothing was run",
              m->source, m->opcode_at, name);
    return GT_UNSUPPORTED;
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

/* Adds an entry to the table of tensors, and pushes a value of this kind for it. */
static enum gt_status tensor_push(struct pickle_machine *m, enum pickle_kind kind, const struct pickle_tensor *tensor)
{
    struct pickle *pickle = m->pickle;
    TRY(hostmem_grow(pickle->mem, &pickle->tensors, &pickle->tensor_capacity, pickle->tensor_count + 1,
                     sizeof *pickle->tensors, "pickle"));
    pickle->tensors[pickle->tensor_count] = *tensor;
    return push_new(m, &(struct pickle_value){.kind = kind, .as.index = (uint32_t)pickle->tensor_count++});
}

/* Pops the tuple ('storage', TYPE, KEY, DEVICE, ELEMENTS) and pushes the storage that it names. */
static enum gt_status op_persistent_load(struct pickle_machine *m)
{
    uint32_t tuple, items[5];
    size_t count;
    TRY(pop(m, &tuple));
    if (!tuple_items(m, tuple, 5, items, &count) || count != 5 || !pickle_is_text(m->pickle, items[0], "storage") ||
        !is_global(m, items[1], GLOBAL_STORAGE) || value_at(m, items[2])->kind != PICKLE_TEXT ||
        value_at(m, items[4])->kind != PICKLE_INT || value_at(m, items[4])->as.integer < 0)
        return malformed(m, "a persistent id that is not a storage of torch's");
    const uint32_t type = value_at(m, items[1])->as.index;
    const struct pickle_tensor storage = {
        .key = value_at(m, items[2])->as.text.bytes,
        .key_bytes = value_at(m, items[2])->as.text.count,
        .dtype = globals[type].dtype,
        .element_bytes = globals[type].element_bytes,
        .storage_elements = value_at(m, items[4])->as.integer,
    };
    return tensor_push(m, PICKLE_STORAGE, &storage);
}

/* Reads a tuple of integers.  Returns false when an integer is negative, or `tuple` is not such a tuple. */
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

/* Sets `out` from the arguments (STORAGE, FIRST, SIZES, STRIDES, REQUIRES_GRAD, HOOKS[, METADATA]). */
static enum gt_status tensor_read(const struct pickle_machine *m, const uint32_t *arguments, size_t count,
                                  struct pickle_tensor *out)
{
    int64_t strides[PICKLE_RANK_MAX];
    size_t rank, stride_count, elements;
    if (count < 6 || value_at(m, arguments[0])->kind != PICKLE_STORAGE || value_at(m, arguments[1])->kind != PICKLE_INT)
        return malformed(m, "a tensor with impossible arguments");
    *out = m->pickle->tensors[value_at(m, arguments[0])->as.index];
    if (!sizes_read(m, arguments[2], out->dims, &rank) || !sizes_read(m, arguments[3], strides, &stride_count) ||
        rank != stride_count)
        return malformed(m, "a tensor with impossible arguments");
    out->first = value_at(m, arguments[1])->as.integer;
    out->rank = (int32_t)rank;
    if (!size_product(out->dims, rank, &elements) || elements > INT64_MAX)
        return malformed(m, "a tensor whose sizes do not fit 64 bits");
    out->elements = (int64_t)elements;
    if (out->first < 0 || out->first > out->storage_elements || out->elements > out->storage_elements - out->first)
        return malformed(m, "a tensor that reaches beyond its storage");
    if (out->elements > 0 && !is_row_major(out, strides))
        return malformed(m, "a tensor that is not stored row by row (call .contiguous() before torch.save)");
    return GT_OK;
}

static enum gt_status op_reduce(struct pickle_machine *m)
{
    uint32_t tuple, callable, arguments[ARGUMENTS_MAX];
    size_t count;
    struct pickle_tensor tensor;
    TRY(pop(m, &tuple));
    TRY(pop(m, &callable));
    if (!tuple_items(m, tuple, ARGUMENTS_MAX, arguments, &count))
        return malformed(m, "a call with impossible arguments");
    if (is_global(m, callable, GLOBAL_DICT) && count == 0)
        return container_push(m, PICKLE_DICT);
    if (is_global(m, callable, GLOBAL_TENSOR)) {
        TRY(tensor_read(m, arguments, count, &tensor));
        return tensor_push(m, PICKLE_TENSOR, &tensor);
    }
    if (is_global(m, callable, GLOBAL_PARAMETER) && count == 3 && value_at(m, arguments[0])->kind == PICKLE_TENSOR)
        return push(m, arguments[0]);
    return malformed(m, "a call of something that a state dict does not call");
}

/* Takes a line of text, without its newline. */
static enum gt_status take_line(struct pickle_machine *m, const char **out, size_t *out_count)
{
    const unsigned char *from = m->bytes + m->at;
    const size_t left = m->count - m->at < LINE_BYTES_MAX ? m->count - m->at : LINE_BYTES_MAX;
    const unsigned char *end = left > 0 ? memchr(from, '\n', left) : NULL;
    if (end == NULL)
        return malformed(m, "the name of a global is cut short");
    *out = (const char *)from;
    *out_count = (size_t)(end - from);
    m->at += *out_count + 1;
    return GT_OK;
}

static enum gt_status op_global(struct pickle_machine *m)
{
    const char *module, *name;
    size_t module_bytes, name_bytes;
    char full[2 * LINE_BYTES_MAX + 2];
    TRY(take_line(m, &module, &module_bytes));
    TRY(take_line(m, &name, &name_bytes));
    (void)snprintf(full, sizeof full, "%.*s.%.*s", (int)module_bytes, module, (int)name_bytes, name);
    return global_push(m, full);
}

static enum gt_status op_stack_global(struct pickle_machine *m)
{
    uint32_t module, name;
    char full[2 * LINE_BYTES_MAX + 2];
    TRY(pop(m, &name));
    TRY(pop(m, &module));
    const struct pickle_value *a = &m->pickle->values[module], *b = &m->pickle->values[name];
    if (a->kind != PICKLE_TEXT || b->kind != PICKLE_TEXT)
        return malformed(m, "the name of a global is not text");
    if (a->as.text.count > LINE_BYTES_MAX || b->as.text.count > LINE_BYTES_MAX)
        return malformed(m, "the name of a global is too long");
    (void)snprintf(full, sizeof full, "%.*s.%.*s", (int)a->as.text.count, a->as.text.bytes, (int)b->as.text.count,
                   b->as.text.bytes);
    return global_push(m, full);
}

/* Pops the state of an object and drops it: an OrderedDict of torch's has only _metadata, which a reader of weights
 * does not need. */
static enum gt_status op_build(struct pickle_machine *m)
{
    uint32_t state, object;
    TRY(pop(m, &state));
    TRY(top(m, &object));
    if (m->pickle->values[state].kind == PICKLE_DICT && m->pickle->values[object].kind == PICKLE_DICT)
        return GT_OK;
    return malformed(m, "state is given to something that is not a dict");
}

static enum gt_status op_stop(struct pickle_machine *m)
{
    if (m->depth != 1 || m->mark_count != 0)
        return malformed(m, "the pickle ends with more or less than one value");
    m->pickle->root = m->stack[0];
    m->stopped = true;
    return GT_OK;
}

static opcode_fn *const opcodes[256] = {
    [0x80] = op_protocol, [0x95] = op_frame,        ['N'] = op_none,   [0x88] = op_bool,
    [0x89] = op_bool,     ['J'] = op_int,           ['K'] = op_int,    ['M'] = op_int,
    [0x8a] = op_long,     ['G'] = op_real,          ['X'] = op_text,   ['T'] = op_text,
    ['U'] = op_text,      [0x8c] = op_text,         [0x8d] = op_text,  ['}'] = op_empty,
    [']'] = op_empty,     [')'] = op_empty,         ['('] = op_mark,   ['t'] = op_tuple,
    [0x85] = op_tuple,    [0x86] = op_tuple,        [0x87] = op_tuple, ['u'] = op_items,
    ['e'] = op_items,     ['s'] = op_item,          ['a'] = op_item,   ['q'] = op_put,
    ['r'] = op_put,       [0x94] = op_put,          ['h'] = op_get,    ['j'] = op_get,
    ['c'] = op_global,    ['b'] = op_build,         ['.'] = op_stop,   ['Q'] = op_persistent_load,
    ['R'] = op_reduce,    [0x93] = op_stack_global,
};

static enum gt_status machine_run(struct pickle_machine *m)
{
    while (!m->stopped) {
        const unsigned char *byte;
        m->opcode_at = m->at;
        TRY(take(m, 1, &byte));
        m->opcode = *byte;
        if (opcodes[m->opcode] == NULL) {
            log_error("%s: byte %zu: opcode 0x%02x, which a state dict does not need; refused", m->source, m->opcode_at,
                      (unsigned)m->opcode);
            return GT_UNSUPPORTED;
        }
        TRY(opcodes[m->opcode](m));
    }
    return m->at == m->count ? GT_OK : malformed(m, "bytes follow the end of the pickle");
}

enum gt_status pickle_read(struct hostmem *mem, const unsigned char *bytes, size_t count, const char *source,
                           struct pickle **out)
{
    struct pickle *pickle;
    if (count > PICKLE_BYTES_MAX) {
        log_error("%s: is %zu bytes long; at most %zu are accepted", source, count, PICKLE_BYTES_MAX);
        return GT_DATA;
    }
    TRY(HOSTMEM_NEW(mem, 1, "pickle", &pickle));
    pickle->mem = mem;
    struct pickle_machine machine = {.pickle = pickle, .bytes = bytes, .count = count, .source = source};
    enum gt_status status = machine_run(&machine);
    hostmem_free(mem, machine.stack);
    hostmem_free(mem, machine.marks);
    hostmem_free(mem, machine.memo);
    if (status != GT_OK) {
        pickle_destroy(pickle);
        return status;
    }
    *out = pickle;
    return GT_OK;
}

void pickle_destroy(struct pickle *pickle)
{
    if (pickle == NULL)
        return;
    hostmem_free(pickle->mem, pickle->values);
    hostmem_free(pickle->mem, pickle->items);
    hostmem_free(pickle->mem, pickle->tensors);
    hostmem_free(pickle->mem, pickle);
}

bool pickle_is_text(const struct pickle *pickle, uint32_t value, const char *text)
{
    const struct pickle_value *found = &pickle->values[value];
    return found->kind == PICKLE_TEXT && found->as.text.count == strlen(text) &&
           memcmp(found->as.text.bytes, text, found->as.text.count) == 0;
}

/* Finds the value of the key `text`, or of the key `number` if `text` is NULL.  If a key occurs twice, the last counts.
 * Returns false when `dict` has no such key or is not a dict. */
static bool find(const struct pickle *pickle, uint32_t dict, const char *text, int64_t number, uint32_t *out)
{
    bool found = false;
    if (pickle->values[dict].kind != PICKLE_DICT)
        return false;
    for (uint32_t i = pickle->values[dict].as.items.first; i != PICKLE_END; i = pickle->items[i].next) {
        const struct pickle_value *key = &pickle->values[pickle->items[i].key];
        if (text != NULL ? !pickle_is_text(pickle, pickle->items[i].key, text)
                         : key->kind != PICKLE_INT || key->as.integer != number)
            continue;
        *out = pickle->items[i].value;
        found = true;
    }
    return found;
}

bool pickle_find(const struct pickle *pickle, uint32_t dict, const char *key, uint32_t *out)
{
    return find(pickle, dict, key, 0, out);
}

bool pickle_find_index(const struct pickle *pickle, uint32_t dict, int64_t key, uint32_t *out)
{
    return find(pickle, dict, NULL, key, out);
}
