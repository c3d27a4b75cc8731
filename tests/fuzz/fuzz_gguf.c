/* Fuzzes GGUF files: keys, tensors, the shape that they give, every array of an accepted file, and
 * the tokenizer. */
#include "io/checkpoint_load.h"
#include "io/gguf_model.h"
#include "io/gguf_tokenizer.h"
#include "io/safetensors_table.h"
#include "tests/fuzz/fuzz_weights.h"

static void model_read(struct hostmem *mem, const char *path)
{
    struct model_config config;
    struct hf_config_rest rest;
    struct safetensors *file = NULL;
    if (gguf_model_open(mem, path, &config, &rest, &file) != GT_OK)
        return;
    FUZZ_CHECK(hf_layout_check(file, &config) == GT_OK);
    fuzz_arrays_read(file);
    hostmem_free(file);
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct tokenizer *tokenizer = NULL;
    const char *path = fuzz_file(data, size);
    model_read(mem, path);
    if (gguf_tokenizer_open(mem, path, &tokenizer) == GT_OK)
        hostmem_free(tokenizer);
}
