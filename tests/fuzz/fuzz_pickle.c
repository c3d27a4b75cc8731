/* Fuzzes the reader of pickles: an accepted pickle is complete, and its tensors are inside their
 * storages.  Also reads it as a meta.pkl, whose ids and characters must be in the same order. */
#include "io/pickle.h"

#include <string.h>

#include "io/nanogpt.h"
#include "tests/fuzz/fuzz_common.h"

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct pickle pickle = {.owner = NULL};
    if (pickle_read(mem, data, size, "input", "", &pickle) == GT_OK) {
        FUZZ_CHECK(pickle.root != NULL && json_array_size(pickle.values) <= size &&
                   pickle.tensor_count <= size);
        for (size_t i = 0; i < pickle.tensor_count; i++) {
            const struct pickle_tensor *tensor = &pickle.tensors[i];
            FUZZ_CHECK(tensor->rank <= PICKLE_RANK_MAX && tensor->first >= 0 &&
                       tensor->elements >= 0);
            FUZZ_CHECK(tensor->elements <= tensor->storage_elements - tensor->first &&
                       strlen(tensor->key) <= size);
        }
    }
    pickle_release(&pickle);
    struct tokenizer *tokenizer = NULL;
    if (nanogpt_meta_open(mem, fuzz_file(data, size), &tokenizer) == GT_OK)
        FUZZ_CHECK(tokenizer->vocab_size >= 1 && (size_t)tokenizer->vocab_size <= size);
    hostmem_free(tokenizer);
}
