/* Which random bits decide an element: ops/op.h's definitions of dropout masks and stochastic
 * rounding, as code. */
#ifndef GPT_TRAIN_TESTS_OPS_RANDOM_BITS_H
#define GPT_TRAIN_TESTS_OPS_RANDOM_BITS_H

#include "ops/op.h"

static inline struct philox_block rounding_counter(uint64_t index, uint32_t step, uint32_t stream)
{
    struct philox_block counter = {
        {(uint32_t)(index / 8), (uint32_t)(index / 8 >> 32), step, stream}};
    return counter;
}

static inline uint32_t dropout_bits(struct philox_block block, int64_t element)
{
    int64_t lane = element % 8;
    return block.word[lane / 2] >> (16 * (lane & 1)) & 0xffffu;
}

#endif
