/* Shared code of the targets for weight files: reads every accepted array. */
#ifndef GPT_TRAIN_FUZZ_WEIGHTS_H
#define GPT_TRAIN_FUZZ_WEIGHTS_H

#include "io/safetensors.h"
#include "io/safetensors_table.h"
#include "tests/fuzz/fuzz_common.h"

/* Reads each readable array, in pieces of an odd size.  An array of zeros can be of any size. */
static inline void fuzz_arrays_read(const struct safetensors *file)
{
    float values[97];
    for (size_t i = 0; i < file->count; i++) {
        for (size_t first = 0; first < file->tensors[i].elements && first < 2000; first += 97) {
            const size_t left = file->tensors[i].elements - first;
            if (safetensors_read(file, i, first, left < 97 ? left : 97, values, DTYPE_F32, NULL) !=
                GT_OK)
                break;
        }
    }
}

#endif
