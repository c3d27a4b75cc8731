/* Parts of shape rules, for the files of the families.
 *
 * A rule checks the inputs against each other and fills the outputs.  An output that is already present is bound to an
 * existing tensor: it keeps its dtype and must have the inferred shape.  Statistics, losses and partial sums are fp32; other
 * outputs take the dtype of the main input.  Whether a backend can run the combination is the backend's business.  All
 * functions that return bool log one line and return false on a mismatch.
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
/* dims[0] and dims[1]. */
int64_t infer_rows(const struct op_call *call, int32_t slot);
int64_t infer_columns(const struct op_call *call, int32_t slot);
/* The elements of an operand, for costs. */
static inline double cost_elements(const struct op_call *call, int32_t slot)
{
    return (double)operand_elements(&call->operand[slot]);
}

/* An operand that is present has a dtype of the mask and the shape; only an optional one may be absent. */
bool infer_check(const struct op_call *call, int32_t slot, unsigned dtypes, struct infer_shape expected);
/* Output `slot`: checked where it is bound already, else made with `dtype`.  Optional ones stay absent. */
bool infer_fill(struct op_call *call, int32_t slot, enum dtype dtype, unsigned dtypes, struct infer_shape shape);
/* `out` has the shape of `in`, a tensor of floats, and its dtype when made here. */
bool infer_like(struct op_call *call, int32_t in, int32_t out);
/* Any number of dimensions, as long as it is a tensor of floats. */
bool infer_float(const struct op_call *call, int32_t slot);
bool infer_same_dtype(const struct op_call *call, int32_t first, int32_t second);
bool infer_scalars(const struct op_call *call, int32_t slot);
/* attrs.time divides `rows`. */
bool infer_time(const struct op_call *call, int64_t rows);
/* attrs.dropout is a probability below 1. */
bool infer_probability(const struct op_call *call);
/* attrs.index_base is not negative. */
bool infer_index_base(const struct op_call *call);

#endif
