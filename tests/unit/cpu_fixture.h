/* What the tests of the cpu backend share: an op_call with its operands laid out in one arena, filled from a seed, run.
 */
#ifndef GPT_TRAIN_UNIT_CPU_FIXTURE_H
#define GPT_TRAIN_UNIT_CPU_FIXTURE_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

struct cpu_fixture {
    struct backend *backend;
    size_t arena_bytes;
    unsigned char *image; /* of the whole arena, on the host */
};

/* Opens the backend under GPT_TRAIN_CPU_ISA=`isa` (NULL = the best) with `threads` threads; false when this processor or
 * build has no such kernels. */
bool cpu_fixture_open(const char *isa, int32_t threads, size_t arena_bytes, struct cpu_fixture *out);
void cpu_fixture_close(struct cpu_fixture *fixture);

/* Fills in what is missing of `call` (op_infer), gives every operand and the workspace an address, and fails the test
 * when the shape rule, supports() or the arena's size refuse.  Returns the bytes of the operands, workspace excluded. */
size_t cpu_fixture_layout(struct cpu_fixture *fixture, struct op_call *call);
/* The host's copy of an operand. */
void *cpu_fixture_operand(struct cpu_fixture *fixture, const struct op_call *call, int32_t slot);
/* Uploads the image, runs the call, downloads it. */
void cpu_fixture_run(struct cpu_fixture *fixture, const struct op_call *call);

/* Values in [-scale, scale], from a seed. */
void cpu_fixture_fill(float *values, int64_t count, uint64_t seed, float scale);

/* A tensor of up to four dimensions, ending at the first 0. */
struct operand cpu_fixture_tensor(enum dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d);

#endif
