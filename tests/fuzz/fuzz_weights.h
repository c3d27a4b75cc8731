/* What the targets for files of weights share: the input as a file, and a walk through every array that was accepted. */
#ifndef GPT_TRAIN_FUZZ_WEIGHTS_H
#define GPT_TRAIN_FUZZ_WEIGHTS_H

#include <unistd.h>

#include "io/safetensors.h"
#include "tests/fuzz/fuzz_common.h"

/* The input as a file that nobody else has. */
static inline void fuzz_file_make(const uint8_t *data, size_t size, const char *name, char path[static 64])
{
    snprintf(path, 64, "/tmp/fuzz-%.20s-%ld", name, (long)getpid());
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file != NULL && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

/* Reads what can be read of each array, in pieces that do not divide anything.  An array of zeros can be of any size. */
static inline void fuzz_arrays_read(const struct safetensors *file)
{
    float values[97];
    for (size_t i = 0; i < file->count; i++) {
        for (size_t first = 0; first < file->tensors[i].elements && first < 2000; first += 97) {
            const size_t left = file->tensors[i].elements - first;
            if (safetensors_read_f32(file, i, first, left < 97 ? left : 97, values, NULL) != GT_OK)
                break;
        }
    }
}

#endif
