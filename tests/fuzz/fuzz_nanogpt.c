/* Fuzzes nanoGPT's checkpoints: the zip archive, the pickle in it, and every array that they describe. */
#include "io/nanogpt.h"
#include "tests/fuzz/fuzz_weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nanogpt nanogpt;
    struct hostmem *mem = fuzz_open();
    const char *path = fuzz_file(data, size);
    if (nanogpt_open(mem, path, size % 2 == 0, &nanogpt) == GT_OK) {
        fuzz_arrays_read(nanogpt.model);
        if (nanogpt.optimizer != NULL)
            fuzz_arrays_read(nanogpt.optimizer);
        nanogpt_release(&nanogpt);
    }
    fuzz_close(mem);
    return 0;
}
