/* Fuzzes llm.c's model files: the header, and every array of a file that is accepted. */
#include "io/hf_layout.h"
#include "io/llmc_model.h"
#include "tests/fuzz/fuzz_weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct model_config config;
    struct safetensors *file = NULL;
    struct hostmem *mem = fuzz_open();
    fuzz_file_make(data, size, "llmc-model", path);
    if (llmc_model_open(mem, path, &config, &file) == GT_OK) {
        FUZZ_CHECK(hf_layout_check(file, &config) == GT_OK);
        fuzz_arrays_read(file);
    }
    safetensors_close(file);
    unlink(path);
    fuzz_close(mem);
    return 0;
}
