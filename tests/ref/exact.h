/* Bit-exact references: ops, or uses of an op, whose outputs must be the same bits on every backend.
 *
 * The error rule has room for orders of summation and ways to compute a function; what is defined here has none.  A
 * backend's outputs are compared with these bit by bit, signs of zeros included; any NaN is equal to any other, because
 * processors differ in the payloads that they produce.  Written from the text of op.h in portable C and compiled with
 * -ffp-contract=off, so that the bits do not depend on the compiler either.
 */
#ifndef GPT_TRAIN_REF_EXACT_H
#define GPT_TRAIN_REF_EXACT_H

#include "ops/op.h"

/* Whether `call` has a bit-exact reference: by op, shapes, dtypes and attributes. */
bool exact_defined(const struct op_call *call);
/* Writes the outputs of `call`, which must be defined, into `memory`: operands' addresses are offsets in it. */
void exact_run(const struct op_call *call, uint8_t *memory);

#endif
