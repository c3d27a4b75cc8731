/* Fuzzes gpt_tokenizer.json of all kinds: as given, and with the vocabulary size and the hash
 * corrected, which no mutation finds.  An accepted tokenizer is written as a file that is accepted
 * as the same tokenizer.
 */
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "data/tokenizer.h"
#include "tests/fuzz/fuzz_common.h"

static void check_written(struct hostmem *mem, const struct tokenizer *tokenizer)
{
    char *text = NULL;
    struct tokenizer *again = NULL;
    FUZZ_CHECK(tokenizer_text(tokenizer, &text) == GT_OK);
    FUZZ_CHECK(tokenizer_open_file(mem, fuzz_file((const uint8_t *)text, strlen(text)), &again) ==
               GT_OK);
    FUZZ_CHECK(again->kind == tokenizer->kind);
    FUZZ_CHECK(again->vocab_size == tokenizer->vocab_size);
    FUZZ_CHECK(again->hash == tokenizer->hash && tokenizer_eot(again) == tokenizer_eot(tokenizer));
    hostmem_free(again);
    free(text);
}

static bool use(struct hostmem *mem, const void *data, size_t size)
{
    struct tokenizer *tokenizer = NULL;
    if (tokenizer_open_file(mem, fuzz_file(data, size), &tokenizer) != GT_OK)
        return false;
    check_written(mem, tokenizer);
    hostmem_free(tokenizer);
    return true;
}

/* A character tokenizer's hash is that of its code points; a byte tokenizer's is constant. */
static void use_put_right(struct hostmem *mem, json_t *root)
{
    const json_t *list = json_object_get(root, "vocabulary");
    const size_t count = json_array_size(list);
    struct tokenizer *tokenizer = NULL;
    uint32_t code_points[1024];
    char hash[24];
    if (count == 0 || count > sizeof code_points / sizeof code_points[0])
        return;
    for (size_t i = 0; i < count; i++) {
        const json_int_t value = json_integer_value(json_array_get(list, i));
        if (value < 0 || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000) ||
            (i > 0 && (json_int_t)code_points[i - 1] >= value))
            return;
        code_points[i] = (uint32_t)value;
    }
    FUZZ_CHECK(tokenizer_create_chars(mem, code_points, count, &tokenizer) == GT_OK);
    snprintf(hash, sizeof hash, "crc32c:%08" PRIx32, tokenizer->hash);
    hostmem_free(tokenizer);
    json_object_set_new(root, "vocab_size", json_integer((json_int_t)count));
    json_object_set_new(root, "hash", json_string(hash));
    char *text = json_dumps(root, JSON_COMPACT);
    FUZZ_CHECK(text != NULL);
    (void)use(mem, text, strlen(text));
    free(text);
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    json_t *root = NULL;
    if (!use(mem, data, size) && json_parse((const char *)data, size, "input", &root) == GT_OK &&
        json_is_object(root))
        use_put_right(mem, root);
    json_decref(root);
}
