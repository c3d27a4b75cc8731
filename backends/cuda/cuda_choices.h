/* A list of choices between algorithms with the time that each one took, and the bytes that store such a list.
 *
 * A choice is identified by two hashes, of the call and of the algorithm.  This code does not depend on CUDA, so that
 * the reader can be tested without it.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_CHOICES_H
#define GPT_TRAIN_CUDA_CUDA_CHOICES_H

#include "backend/backend.h"

#define CUDA_CHOICES_MAX 1024
#define CUDA_CHOICE_BYTES ((size_t)48)

struct cuda_choices {
    int32_t count;
    struct backend_choice at[CUDA_CHOICES_MAX];
};

/* Returns the algorithm, or 0 when the call is not in the list. */
uint64_t cuda_choices_find(const struct cuda_choices *choices, uint64_t call);
/* Adds a choice, or replaces that of the same call.  Returns its index, or -1 when the list is full and the choice is
 * dropped. */
int32_t cuda_choices_put(struct cuda_choices *choices, uint64_t call, uint64_t algorithm);

/* Returns true when a forecast can use the timing: rates over any number of valid timings are finite, and 0 only when
 * there is no work. */
bool cuda_timing_valid(const struct backend_timing *timing);
/* Writes CUDA_CHOICE_BYTES for each choice with its timing. */
void cuda_choices_write(const struct cuda_choices *choices, const struct backend_timing *timing, char *bytes);
/* The inverse of cuda_choices_write().  Returns false, and an empty list, for bytes that it does not write from valid
 * timings. */
bool cuda_choices_read(const char *bytes, size_t size, struct cuda_choices *out,
                       struct backend_timing timing[static CUDA_CHOICES_MAX]);

#endif
