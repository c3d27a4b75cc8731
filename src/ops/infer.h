/* The shape rule of an op, which its operands declare, and helpers for the checks that a
 * declaration cannot express.
 *
 * Operands that are read are checked in order.  Then the op's own check() runs, then its results
 * are checked.  A result that is already present is bound to an existing tensor: it keeps its dtype
 * and must have the inferred shape.  The rules do not know which combinations a backend supports.
 * All functions that return bool log one line and return false on a mismatch.
 */
#ifndef GPT_TRAIN_OPS_INFER_H
#define GPT_TRAIN_OPS_INFER_H

#include "ops/op.h"

#define ANY (-1)
#define SCALARS(use)          \
    {                         \
        use, "s", DTYPES_WORD \
    }
#define DTYPES_FLOAT (1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16)
#define DTYPES_F32 (1u << DTYPE_F32)
#define DTYPES_I32 (1u << DTYPE_I32)
#define DTYPES_WORD (1u << DTYPE_F32 | 1u << DTYPE_I32)
#define DTYPES_BF16 (1u << DTYPE_BF16)
#define DTYPES_U8 (1u << DTYPE_U8)
#define DTYPES_LEAN (1u << DTYPE_F32 | 1u << DTYPE_BF16)
#define DTYPES_MOMENT (DTYPES_LEAN | DTYPES_U8)
#define DTYPES_STATE (DTYPES_FLOAT | DTYPES_U8)

struct infer_shape {
    int32_t rank;
    int64_t dims[OP_RANK_MAX]; /* ANY matches every size */
};

#define SHAPE2(a, b) ((struct infer_shape){2, {(a), (b)}})
#define SHAPE3(a, b, c) ((struct infer_shape){3, {(a), (b), (c)}})
#define SHAPE4(a, b, c, d) ((struct infer_shape){4, {(a), (b), (c), (d)}})

/* The sizes of a call that its operands share, as far as they are known. */
struct infer_sizes {
    int64_t letter['Z' - 'A' + 1]; /* 0: not known */
    struct infer_shape whole;      /* of "*"; rank 0: not known */
};

/* Sets the size that a capital stands for in the shapes of results. */
static inline void infer_size_set(struct infer_sizes *sizes, char letter, int64_t size)
{
    sizes->letter[letter - 'A'] = size;
}

/* Returns the number of elements as a double, for cost formulas. */
static inline double cost_elements(const struct op_call *call, int32_t slot)
{
    return (double)operand_elements(&call->operand[slot]);
}

/* Returns `holds`.  If that is false, logs a line with the op's name before the text, which says
 * what was found and what was expected. */
bool infer_expect(bool holds, const struct op_call *call, const char *format, ...) LOG_PRINTF(3, 4);
/* Checks that an operand has the shape and one of the dtypes in the mask.  Only an optional operand
 * may be absent. */
bool infer_check(const struct op_call *call, int32_t slot, unsigned dtypes,
                 struct infer_shape expected);
/* Checks that attrs.time divides the number of rows of an operand. */
bool infer_time(const struct op_call *call, int32_t slot);
/* Checks that attrs.dropout is a probability below 1. */
bool infer_probability(const struct op_call *call);
/* Checks that attrs.index_base is not negative; a check() of its own. */
bool infer_index_base(const struct op_call *call, struct infer_sizes *sizes);

/* Checks the operands of `call` against the op's rule, and fills in shape and dtype of absent OUT
 * operands.  On a mismatch logs one line that names op and operand, and returns false.  attrs.time
 * must divide N if it is used. Operands marked OPTIONAL may be absent; an absent optional OUT
 * operand stays absent. */
bool op_infer(struct op_call *call);

#endif
