/* Fuzzes nanoGPT's checkpoints: the zip archive, the pickle in it, and every array that they describe. */
#include "io/nanogpt.h"
#include "tests/fuzz/fuzz_weights.h"

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct nanogpt nanogpt;
    if (nanogpt_open(mem, fuzz_file(data, size), size % 2 == 0, &nanogpt) != GT_OK)
        return;
    fuzz_arrays_read(nanogpt.model);
    if (nanogpt.optimizer != NULL)
        fuzz_arrays_read(nanogpt.optimizer);
    nanogpt_release(&nanogpt);
}
