/* Lists of choices, and their text.
 *
 * A line has the two identities and the time that the choice takes, which the plan's forecast uses later.  fp64 numbers
 * are stored as their bits, and the op as a hash of its name, because another release may number it differently.  A
 * list has exactly one text, so that parsing returns what was written or fails.
 */
#include "backends/cuda/cuda_choices.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

#define WORK_MAX 1e24
#define SECONDS_MIN 1e-9
#define SECONDS_MAX 1e4

uint64_t cuda_choices_find(const struct cuda_choices *choices, uint64_t call)
{
    for (int32_t i = 0; i < choices->count; i++) {
        if (choices->at[i].call == call)
            return choices->at[i].algorithm;
    }
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
    return work_valid(timing->flops) && work_valid(timing->bytes) && timing->seconds >= SECONDS_MIN &&
           timing->seconds <= SECONDS_MAX;
}

static uint64_t op_identity(enum op_kind kind)
{
    const char *name = op_declaration(kind)->name;
    return hash_identity(hash_fnv1a(name, strlen(name)));
}

static double number_of_bits(uint64_t bits)
{
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static uint64_t bits_of_number(double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

/* Six numbers of 16 digits: call, algorithm, op, and three of fp64: FLOPs, bytes, seconds; then dtype and
 * transposes. */
static void line_write(char line[static CUDA_CHOICE_LINE_BYTES + 1], const struct backend_choice *choice,
                       const struct backend_timing *timing)
{
    snprintf(line, CUDA_CHOICE_LINE_BYTES + 1,
             "%016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %x%x%x\n",
             choice->call, choice->algorithm, op_identity(timing->kind), bits_of_number(timing->flops),
             bits_of_number(timing->bytes), bits_of_number(timing->seconds), (unsigned)timing->dtype & 15u,
             (unsigned)timing->transpose_a, (unsigned)timing->transpose_b);
}

void cuda_choices_write(const struct cuda_choices *choices, const struct backend_timing *timing, char *text)
{
    text[0] = '\0';
    for (int32_t i = 0; i < choices->count; i++)
        line_write(text + (size_t)i * CUDA_CHOICE_LINE_BYTES, &choices->at[i], &timing[i]);
}

static bool kind_find(uint64_t identity, enum op_kind *out)
{
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        if (op_identity((enum op_kind)kind) == identity) {
            *out = (enum op_kind)kind;
            return true;
        }
    }
    return false;
}

/* Returns true when line_write() makes exactly this line of what it says. */
static bool line_read(const char *line, struct backend_choice *choice, struct backend_timing *timing)
{
    char again[CUDA_CHOICE_LINE_BYTES + 1];
    uint64_t op = 0, number[3] = {0, 0, 0};
    unsigned flags = 0;
    *choice = (struct backend_choice){.call = 0};
    (void)sscanf(line, "%16" SCNx64 " %16" SCNx64 " %16" SCNx64 " %16" SCNx64 " %16" SCNx64 " %16" SCNx64 " %3x",
                 &choice->call, &choice->algorithm, &op, &number[0], &number[1], &number[2], &flags);
    *timing = (struct backend_timing){.dtype = (enum dtype)(flags >> 8),
                                      .transpose_a = (flags >> 4 & 15u) == 1,
                                      .transpose_b = (flags & 15u) == 1,
                                      .flops = number_of_bits(number[0]),
                                      .bytes = number_of_bits(number[1]),
                                      .seconds = number_of_bits(number[2])};
    if (choice->call == 0 || choice->algorithm == 0 || flags >> 8 >= DTYPE_COUNT || !kind_find(op, &timing->kind) ||
        !cuda_timing_valid(timing))
        return false;
    line_write(again, choice, timing);
    return memcmp(line, again, CUDA_CHOICE_LINE_BYTES) == 0;
}

bool cuda_choices_parse(const char *text, size_t bytes, struct cuda_choices *out,
                        struct backend_timing timing[static CUDA_CHOICES_MAX])
{
    const size_t count = bytes / CUDA_CHOICE_LINE_BYTES;
    bool good = bytes % CUDA_CHOICE_LINE_BYTES == 0 && count <= CUDA_CHOICES_MAX;
    out->count = 0;
    for (size_t i = 0; good && i < count; i++) {
        struct backend_choice choice;
        char line[CUDA_CHOICE_LINE_BYTES + 1] = "";
        memcpy(line, text + i * CUDA_CHOICE_LINE_BYTES, CUDA_CHOICE_LINE_BYTES);
        good = line_read(line, &choice, &timing[i]);
        if (good)
            good = cuda_choices_put(out, choice.call, choice.algorithm) == (int32_t)i; /* else a duplicate */
    }
    if (!good)
        out->count = 0;
    return good;
}
