/* Fuzzes llm.c's model files: the header, and every array of an accepted file. */
#include "io/checkpoint_load.h"
#include "io/llmc_model.h"
#include "io/safetensors_table.h"
#include "tests/fuzz/fuzz_weights.h"

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct model_config config;
    struct safetensors *file = NULL;
    if (llmc_model_open(mem, fuzz_file(data, size), &config, &file) != GT_OK)
        return;
    FUZZ_CHECK(hf_layout_check(file, &config) == GT_OK);
    fuzz_arrays_read(file);
    hostmem_free(file);
}
