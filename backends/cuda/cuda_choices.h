/* A list of choices between algorithms, what each was found to take, and the text that such a list is kept as.
 *
 * A choice is known by two hashes, of the call and of the algorithm.  Nothing here knows CUDA, so that what reads a file can
 * be tried without it.
 */
#ifndef GPT_TRAIN_CUDA_CUDA_CHOICES_H
#define GPT_TRAIN_CUDA_CUDA_CHOICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

#define CUDA_CHOICES_MAX 1024
#define CUDA_CHOICE_LINE_BYTES 106

struct cuda_choices {
    int32_t count;
    struct backend_choice at[CUDA_CHOICES_MAX];
};

/* 0 where there is none. */
uint64_t cuda_choices_find(const struct cuda_choices *choices, uint64_t call);
/* Replaces one of the same call, and says where it is; -1: beyond the limit it is dropped. */
int32_t cuda_choices_put(struct cuda_choices *choices, uint64_t call, uint64_t algorithm);

/* Whether a forecast can rest on it: rates of any number of such timings are finite, and none is 0 but for no work. */
bool cuda_timing_valid(const struct backend_timing *timing);
/* CUDA_CHOICE_LINE_BYTES for each choice with its timing into `text`, and a terminator. */
void cuda_choices_write(const struct cuda_choices *choices, const struct backend_timing *timing, char *text);
/* The inverse.  False, and an empty list, for any text but those that cuda_choices_write() makes of valid timings. */
bool cuda_choices_parse(const char *text, size_t bytes, struct cuda_choices *out,
                        struct backend_timing timing[static CUDA_CHOICES_MAX]);

#endif
