/* Fuzzes the keys of a GGUF file that go with its tokenizer: the chat template, end tokens, how
 * text is generated.  The input is a number of keys and their bytes, behind those of a small
 * vocabulary. */
#include <string.h>

#include "data/chat.h"
#include "data/tokenizer_generation.h"
#include "io/gguf_tokenizer.h"
#include "tests/fuzz/fuzz_common.h"

#define TOKENS 260
#define FILE_MAX 16384

struct writer {
    uint8_t bytes[FILE_MAX];
    size_t count;
};

static void put(struct writer *writer, const void *bytes, size_t count)
{
    if (count > 0) /* memcpy() of an empty input has no source */
        memcpy(writer->bytes + writer->count, bytes, count);
    writer->count += count;
}

static void put_text(struct writer *writer, const char *text)
{
    const uint64_t count = strlen(text);
    put(writer, &count, sizeof count);
    put(writer, text, count);
}

static void put_key(struct writer *writer, const char *name, uint32_t type)
{
    put_text(writer, name);
    put(writer, &type, sizeof type);
}

static void put_array(struct writer *writer, const char *name, uint64_t count)
{
    put_key(writer, name, GGUF_ARRAY);
    put(writer, &(uint32_t){GGUF_STRING}, 4);
    put(writer, &count, sizeof count);
}

/* The bytes as tokens, and a merge; the first four tokens behind them are those of ChatML. */
static void vocabulary_put(struct writer *writer)
{
    static const char *const more[] = {"ab", "<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    char text[2 * 4 + 1];
    put_key(writer, "tokenizer.ggml.model", GGUF_STRING);
    put_text(writer, "gpt2");
    put_key(writer, "tokenizer.ggml.pre", GGUF_STRING);
    put_text(writer, "gpt-2");
    put_array(writer, "tokenizer.ggml.tokens", TOKENS);
    for (int i = 0; i < 256; i++) {
        text[bpe_alphabet_write((const char[]){(char)i}, 1, text)] = '\0';
        put_text(writer, text);
    }
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        put_text(writer, more[i]);
    put_key(writer, "tokenizer.ggml.token_type", GGUF_ARRAY);
    put(writer, &(uint32_t){GGUF_INT32}, 4);
    put(writer, &(uint64_t){TOKENS}, 8);
    for (int32_t i = 0; i < TOKENS; i++)
        put(writer, &(int32_t){i > 256 ? GGUF_TOKEN_CONTROL : GGUF_TOKEN_NORMAL}, 4);
    put_array(writer, "tokenizer.ggml.merges", 1);
    put_text(writer, "a b");
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    static struct writer writer;
    struct tokenizer *tokenizer = NULL;
    const uint64_t keys = 5 + (size > 0 ? data[0] % 16 : 0);
    writer.count = 0;
    put(&writer, GGUF_MAGIC, 4);
    put(&writer, &(uint32_t){GGUF_VERSION}, 4);
    put(&writer, &(uint64_t){0}, 8);
    put(&writer, &keys, sizeof keys);
    vocabulary_put(&writer);
    if (size > 1)
        put(&writer, data + 1, size - 1);
    if (gguf_tokenizer_open(mem, fuzz_file(writer.bytes, writer.count), &tokenizer) != GT_OK)
        return;
    json_t *generation;
    FUZZ_CHECK(tokenizer != NULL && tokenizer->vocab_size == TOKENS);
    FUZZ_CHECK(tokenizer->template == NULL || chat_jinja_learnt(tokenizer) != NULL);
    FUZZ_CHECK(tokenizer_generation_get(tokenizer, &generation) == GT_OK);
    for (size_t i = 0; tokenizer_generation_id(generation, "eos_token_id", i) >= 0; i++)
        continue;
    json_decref(generation);
    hostmem_free(tokenizer);
}
