/* What the exact ops share, and their frame. */
#ifndef GPT_TRAIN_REF_LEAN_H
#define GPT_TRAIN_REF_LEAN_H

#include "ops/op.h"
#include "tests/ref/naive.h"
#include "tests/ref/ref.h"

/* x as bf16, rounded with the random bits of element i and the stream. */
float lean_rounded_bf16(const struct op_call *call, const double *scalars, int64_t i, uint32_t stream, float x,
                        enum naive_defect defect);
/* What the judge compares bit by bit needs no condition. */
void lean_unspecified(const struct op_call *call, const struct ref_tensors *t);
/* An op on bytes: operands' addresses are offsets in `memory`.  Aborts when there is no memory for the values. */
void exact_by_elements(const struct op_call *call, uint8_t *memory);

#endif
