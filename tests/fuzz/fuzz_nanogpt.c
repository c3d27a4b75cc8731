/* Fuzzes nanoGPT's checkpoints: the zip archive, the pickle in it, and every array that they
 * describe. */
#include "io/checkpoint_record.h"
#include "io/nanogpt.h"
#include "tests/fuzz/fuzz_weights.h"

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct checkpoint *checkpoint;
    FUZZ_CHECK(HOSTMEM_NEW(mem, 1, "checkpoint", &checkpoint) == GT_OK);
    (void)snprintf(checkpoint->source, sizeof checkpoint->source, "%s", fuzz_file(data, size));
    if (nanogpt_open(checkpoint, size % 2 == 0) == GT_OK) {
        fuzz_arrays_read(checkpoint->model);
        if (checkpoint->optimizer != NULL)
            fuzz_arrays_read(checkpoint->optimizer);
    }
    checkpoint_record_release(&checkpoint->record);
    hostmem_free(checkpoint);
}
