/* Shared by the tests of the cpu backend: lays the operands of an op_call out in one arena, fills
 * them from a seed, runs it.
 */
#ifndef GPT_TRAIN_UNIT_CPU_FIXTURE_H
#define GPT_TRAIN_UNIT_CPU_FIXTURE_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

struct cpu_fixture {
    struct backend *backend;
    size_t arena_bytes;
    unsigned char *image; /* host copy of the whole arena */
};

/* Opens the backend with GPT_TRAIN_CPU_ISA=`isa` (NULL = the best) and `threads` threads.  Returns
 * false when this processor or build has no such kernels. */
bool cpu_fixture_open(const char *isa, int32_t threads, size_t arena_bytes,
                      struct cpu_fixture *out);
void cpu_fixture_close(struct cpu_fixture *fixture);

/* Completes `call` with op_infer() and gives every operand and the workspace an address.  Fails the
 * test when the shape rule, supports() or the arena's size refuse.  Returns the bytes of the
 * operands, workspace excluded. */
size_t cpu_fixture_layout(struct cpu_fixture *fixture, struct op_call *call);
/* Returns the host's copy of an operand. */
void *cpu_fixture_operand(struct cpu_fixture *fixture, const struct op_call *call, int32_t slot);
/* Uploads the image, runs the call, downloads the image. */
void cpu_fixture_run(struct cpu_fixture *fixture, const struct op_call *call);

/* Fills `values` with numbers in [-scale, scale], from a seed. */
void cpu_fixture_fill(float *values, int64_t count, uint64_t seed, float scale);

/* Returns a tensor of up to four dimensions; the first 0 ends them. */
struct operand cpu_fixture_tensor(enum dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d);

#endif
