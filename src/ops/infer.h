/* Helpers for the ops' shape rules.
 *
 * A rule checks the inputs against each other and fills in the outputs.  An output that is already present is bound to
 * an existing tensor: it keeps its dtype and must have the inferred shape.  Statistics, losses and partial sums are
 * fp32; other outputs take the dtype of the main input.  The rules do not know which combinations a backend supports.
 * All functions that return bool log one line and return false on a mismatch.
 */
#ifndef GPT_TRAIN_OPS_INFER_H
#define GPT_TRAIN_OPS_INFER_H

#include "ops/op.h"

#define ANY (-1)
#define DTYPES_FLOAT (1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16)
#define DTYPES_F32 (1u << DTYPE_F32)
#define DTYPES_I32 (1u << DTYPE_I32)
#define DTYPES_WORD (1u << DTYPE_F32 | 1u << DTYPE_I32)
#define DTYPES_BF16 (1u << DTYPE_BF16)
#define DTYPES_U8 (1u << DTYPE_U8)
#define DTYPES_LEAN (1u << DTYPE_F32 | 1u << DTYPE_BF16)
#define DTYPES_MOMENT (DTYPES_LEAN | DTYPES_U8)

struct infer_shape {
    int32_t rank;
    int64_t dims[OP_RANK_MAX]; /* ANY matches every size */
};

#define SHAPE1(a) ((struct infer_shape){1, {(a)}})
#define SHAPE2(a, b) ((struct infer_shape){2, {(a), (b)}})
#define SHAPE3(a, b, c) ((struct infer_shape){3, {(a), (b), (c)}})
#define SHAPE4(a, b, c, d) ((struct infer_shape){4, {(a), (b), (c), (d)}})

struct infer_shape infer_shape_of(const struct operand *operand);
/* Return dims[0] and dims[1]. */
int64_t infer_rows(const struct op_call *call, int32_t slot);
int64_t infer_columns(const struct op_call *call, int32_t slot);
/* Returns the number of elements as a double, for cost formulas. */
static inline double cost_elements(const struct op_call *call, int32_t slot)
{
    return (double)operand_elements(&call->operand[slot]);
}

/* Checks that an operand has the shape and one of the dtypes in the mask.  Only an optional operand may be absent. */
bool infer_check(const struct op_call *call, int32_t slot, unsigned dtypes, struct infer_shape expected);
/* Checks output `slot` if it is already bound, else fills it in with `dtype`.  Absent optional outputs stay absent. */
bool infer_fill(struct op_call *call, int32_t slot, enum dtype dtype, unsigned dtypes, struct infer_shape shape);
/* Checks that `in` is a float tensor, and gives `out` its shape and, unless `out` is bound, its dtype. */
bool infer_like(struct op_call *call, int32_t in, int32_t out);
/* Checks that an operand is a float tensor of any rank. */
bool infer_float(const struct op_call *call, int32_t slot);
bool infer_same_dtype(const struct op_call *call, int32_t first, int32_t second);
bool infer_scalars(const struct op_call *call, int32_t slot);
/* Checks that attrs.time divides `rows`. */
bool infer_time(const struct op_call *call, int64_t rows);
/* Checks that attrs.dropout is a probability below 1. */
bool infer_probability(const struct op_call *call);
/* Checks that attrs.index_base is not negative. */
bool infer_index_base(const struct op_call *call);

#endif
