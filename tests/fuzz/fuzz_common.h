/* Shared code of the fuzzing targets: an assertion, and the input as a file.  A target defines
 * fuzz_one(). */
#ifndef GPT_TRAIN_FUZZ_COMMON_H
#define GPT_TRAIN_FUZZ_COMMON_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hostmem.h"
#include "base/status.h"

/* An assertion that is independent of NDEBUG. */
#define FUZZ_CHECK(condition)                                               \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                        \
        }                                                                   \
    } while (0)

/* The target: accepts or rejects these bytes, and releases everything that it allocates.  The log
 * is off. */
void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size);

/* Returns a folder, in memory if possible: creating and removing files on a disk takes longer than
 * reading most inputs. */
const char *fuzz_folder(void);

/* Stores the input in an unnamed file, which each input overwrites.  Returns a path that opens it.
 */
const char *fuzz_file(const uint8_t *data, size_t size);

#endif
