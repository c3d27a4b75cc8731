/* Fuzzes GGUF files: keys, tensors, the shape that they give, and every array of an accepted file. */
#include "io/checkpoint.h"
#include "io/gguf_model.h"
#include "tests/fuzz/fuzz_weights.h"

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct model_config config;
    struct hf_config_rest rest;
    struct safetensors *file = NULL;
    if (gguf_model_open(mem, fuzz_file(data, size), &config, &rest, &file) != GT_OK)
        return;
    FUZZ_CHECK(hf_layout_check(file, &config) == GT_OK);
    fuzz_arrays_read(file);
    hostmem_free(file);
}
