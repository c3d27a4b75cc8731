/* Fuzzes the reader of pickles: an accepted pickle is complete, with every reference inside its table.  Also reads it
 * as a meta.pkl, whose ids and characters must be in the same order. */
#include "io/pickle.h"

#include "io/nanogpt_meta.h"
#include "tests/fuzz/fuzz_common.h"

static void check_value(const struct pickle *pickle, uint32_t index)
{
    const struct pickle_value *value = &pickle->values[index];
    uint32_t found, count = 0;
    if (value->kind == PICKLE_TENSOR) {
        FUZZ_CHECK(value->as.index < pickle->tensor_count);
        const struct pickle_tensor *tensor = &pickle->tensors[value->as.index];
        FUZZ_CHECK(tensor->rank <= PICKLE_RANK_MAX);
        FUZZ_CHECK(tensor->first >= 0 && tensor->elements >= 0);
        FUZZ_CHECK(tensor->elements <= tensor->storage_elements - tensor->first);
    }
    if (value->kind != PICKLE_TUPLE && value->kind != PICKLE_LIST && value->kind != PICKLE_DICT)
        return;
    for (uint32_t i = value->as.items.first; i != PICKLE_END; i = pickle->items[i].next) {
        FUZZ_CHECK(i < pickle->item_count && pickle->items[i].value < pickle->value_count);
        FUZZ_CHECK(pickle->items[i].key < pickle->value_count);
        count++;
    }
    FUZZ_CHECK(count == value->as.items.count);
    (void)pickle_find(pickle, index, "model", &found);
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    struct pickle *pickle = NULL;
    if (pickle_read(mem, data, size, "input", &pickle) == GT_OK) {
        FUZZ_CHECK(pickle->root < pickle->value_count && pickle->value_count <= size && pickle->item_count <= size);
        for (size_t i = 0; i < pickle->value_count; i++)
            check_value(pickle, (uint32_t)i);
    }
    pickle_destroy(pickle);
    struct tokenizer *tokenizer = NULL;
    if (nanogpt_meta_read(mem, data, size, "input", &tokenizer) == GT_OK)
        FUZZ_CHECK(tokenizer_vocab_size(tokenizer) >= 1 && (size_t)tokenizer_vocab_size(tokenizer) <= size);
    tokenizer_destroy(tokenizer);
}
