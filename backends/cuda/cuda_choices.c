/* Lists of choices, and the bytes that store them.
 *
 * Ops and dtypes are stored by this release's numbers: the user's cache knows lists of other releases by their key.
 */
#include "backends/cuda/cuda_choices.h"

/* A choice with its timing; `what` is the op, the dtype << 8, and the transposes << 16 and 17. */
struct stored {
    uint64_t call, algorithm, what;
    double flops, bytes, seconds;
};
_Static_assert(sizeof(struct stored) == CUDA_CHOICE_BYTES, "it has no padding");

#define WORK_MAX 1e24
#define SECONDS_MIN 1e-9
#define SECONDS_MAX 1e4

uint64_t cuda_choices_find(const struct cuda_choices *choices, uint64_t call)
{
    for (int32_t i = 0; i < choices->count; i++)
        if (choices->at[i].call == call)
            return choices->at[i].algorithm;
    return 0;
}

int32_t cuda_choices_put(struct cuda_choices *choices, uint64_t call, uint64_t algorithm)
{
    int32_t at = 0;
    while (at < choices->count && choices->at[at].call != call)
        at++;
    if (at == CUDA_CHOICES_MAX)
        return -1;
    choices->at[at] = (struct backend_choice){.call = call, .algorithm = algorithm};
    choices->count += at == choices->count;
    return at;
}

/* FLOPs and bytes are counts: a fraction of one is damage. */
static bool work_valid(double work)
{
    return work == 0.0 || (work >= 1.0 && work <= WORK_MAX);
}

bool cuda_timing_valid(const struct backend_timing *timing)
{
    return (unsigned)timing->kind < OP_KIND_COUNT && (unsigned)timing->dtype < DTYPE_COUNT &&
           work_valid(timing->flops) && work_valid(timing->bytes) && timing->seconds >= SECONDS_MIN &&
           timing->seconds <= SECONDS_MAX;
}

void cuda_choices_write(const struct cuda_choices *choices, const struct backend_timing *timing, char *bytes)
{
    for (int32_t i = 0; i < choices->count; i++) {
        const struct backend_timing *of = &timing[i];
        const struct stored stored = {.call = choices->at[i].call,
                                      .algorithm = choices->at[i].algorithm,
                                      .what = (uint64_t)of->kind | (uint64_t)of->dtype << 8 |
                                              (uint64_t)of->transpose_a << 16 | (uint64_t)of->transpose_b << 17,
                                      .flops = of->flops,
                                      .bytes = of->bytes,
                                      .seconds = of->seconds};
        memcpy(bytes + (size_t)i * sizeof stored, &stored, sizeof stored);
    }
}

bool cuda_choices_read(const char *bytes, size_t size, struct cuda_choices *out,
                       struct backend_timing timing[static CUDA_CHOICES_MAX])
{
    const size_t count = size / CUDA_CHOICE_BYTES;
    bool good = size % CUDA_CHOICE_BYTES == 0 && count <= CUDA_CHOICES_MAX;
    out->count = 0;
    for (size_t i = 0; good && i < count; i++) {
        struct stored stored;
        memcpy(&stored, bytes + i * sizeof stored, sizeof stored);
        timing[i] = (struct backend_timing){.kind = (enum op_kind)(stored.what & 255u),
                                            .dtype = (enum dtype)(stored.what >> 8 & 255u),
                                            .transpose_a = (stored.what >> 16 & 1u) != 0,
                                            .transpose_b = (stored.what >> 17 & 1u) != 0,
                                            .flops = stored.flops,
                                            .bytes = stored.bytes,
                                            .seconds = stored.seconds};
        good = stored.call != 0 && stored.algorithm != 0 && stored.what >> 18 == 0 && cuda_timing_valid(&timing[i]) &&
               cuda_choices_put(out, stored.call, stored.algorithm) == (int32_t)i; /* else a duplicate */
    }
    if (!good)
        out->count = 0;
    return good;
}
