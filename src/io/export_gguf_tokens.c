/* A tokenizer as GGUF's keys: llama.cpp's "gpt2" tokenizer, a byte-level BPE.
 *
 * Kind bpe maps to it directly.  Kind bytes is a vocabulary of 256 without merges.  Kind chars becomes a BPE too: each
 * multi-byte character gets the merges that build it, which llama.cpp applies without requiring tokens for the
 * intermediate strings; a byte that is not a character has no token.  Rows of the model beyond the vocabulary become
 * unused tokens, because llama.cpp takes the number of rows from this list.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "data/bpe.h"
#include "data/bpe_alphabet.h"
#include "data/tokenizer_export.h"
#include "io/export_gguf_tokens.h"

#define CHARACTER_BYTES_MAX 4

struct text {
    size_t count;
    char bytes[2 * BPE_TOKEN_BYTES_MAX + 1];
};

bool export_gguf_tokens_possible(const struct tokenizer *tokenizer)
{
    return tokenizer != NULL && (tokenizer_kind_of(tokenizer) != TOKENIZER_BPE || tokenizer_export_possible(tokenizer));
}

/* Gives the token's text in the file; returns its type. */
static enum gguf_token token_text(const struct tokenizer *tokenizer, int32_t id, struct text *out)
{
    char scratch[CHARACTER_BYTES_MAX];
    const char *bytes = NULL;
    const struct bpe *bpe = tokenizer_bpe(tokenizer);
    if (id >= tokenizer_vocab_size(tokenizer)) {
        out->count = (size_t)snprintf(out->bytes, sizeof out->bytes, "[PAD%" PRId32 "]", id);
        return GGUF_TOKEN_UNUSED;
    }
    const size_t count = tokenizer_token_bytes(tokenizer, id, scratch, &bytes);
    if (bpe != NULL && bpe_is_special(bpe, id)) {
        memcpy(out->bytes, bytes, count);
        out->count = count;
        return GGUF_TOKEN_CONTROL;
    }
    out->count = bpe_alphabet_write(bytes, count, out->bytes);
    return GGUF_TOKEN_NORMAL;
}

static void pair_write(struct gguf *gguf, const char *left, size_t left_count, const char *right, size_t right_count)
{
    char line[4 * BPE_TOKEN_BYTES_MAX + 1];
    size_t length = bpe_alphabet_write(left, left_count, line);
    line[length++] = ' ';
    length += bpe_alphabet_write(right, right_count, line + length);
    gguf_string(gguf, line, length);
}

static void bpe_merges_write(struct gguf *gguf, const struct bpe *bpe)
{
    size_t count = 0;
    const struct bpe_merge *merges = bpe_merges(bpe, &count);
    gguf_key_array(gguf, "tokenizer.ggml.merges", GGUF_STRING, count);
    for (size_t i = 0; i < count; i++) {
        const char *left = NULL, *right = NULL;
        const size_t left_count = bpe_token(bpe, merges[i].left, &left);
        const size_t right_count = bpe_token(bpe, merges[i].right, &right);
        pair_write(gguf, left, left_count, right, right_count);
    }
}

/* Writes the merges of all characters; with a NULL writer it only counts them.  Returns their number.  Characters
 * ascend, so those with a common prefix are adjacent, and a merge is new unless the previous character has it too. */
static uint64_t character_merges(struct gguf *gguf, const struct tokenizer *tokenizer)
{
    char before[CHARACTER_BYTES_MAX] = {0};
    uint64_t merges = 0;
    for (int32_t id = 0; id < tokenizer_vocab_size(tokenizer); id++) {
        char scratch[CHARACTER_BYTES_MAX] = {0};
        const char *bytes = NULL;
        const size_t count = tokenizer_token_bytes(tokenizer, id, scratch, &bytes);
        for (size_t end = 2; end <= count; end++) {
            if (memcmp(before, bytes, end) == 0)
                continue;
            merges++;
            if (gguf != NULL)
                pair_write(gguf, bytes, end - 1, bytes + end - 1, 1);
        }
        memset(before, 0, sizeof before);
        memcpy(before, bytes, count);
    }
    return merges;
}

static void merges_write(struct gguf *gguf, const struct tokenizer *tokenizer)
{
    const struct bpe *bpe = tokenizer_bpe(tokenizer);
    if (bpe != NULL) {
        bpe_merges_write(gguf, bpe);
        return;
    }
    const bool characters = tokenizer_kind_of(tokenizer) == TOKENIZER_CHARS;
    gguf_key_array(gguf, "tokenizer.ggml.merges", GGUF_STRING, characters ? character_merges(NULL, tokenizer) : 0);
    if (characters)
        (void)character_merges(gguf, tokenizer);
}

void export_gguf_tokens_write(struct gguf *gguf, const struct tokenizer *tokenizer, int32_t vocab_size)
{
    struct text text;
    if (!export_gguf_tokens_possible(tokenizer)) {
        gguf_key_string(gguf, "tokenizer.ggml.model", "none");
        return;
    }
    gguf_key_string(gguf, "tokenizer.ggml.model", "gpt2");
    gguf_key_string(gguf, "tokenizer.ggml.pre", "gpt-2");
    gguf_key_array(gguf, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)vocab_size);
    for (int32_t id = 0; id < vocab_size; id++) {
        (void)token_text(tokenizer, id, &text);
        gguf_string(gguf, text.bytes, text.count);
    }
    gguf_key_array(gguf, "tokenizer.ggml.token_type", GGUF_INT32, (uint64_t)vocab_size);
    for (int32_t id = 0; id < vocab_size; id++)
        gguf_u32(gguf, (uint32_t)token_text(tokenizer, id, &text));
    merges_write(gguf, tokenizer);
    gguf_key_bool(gguf, "tokenizer.ggml.add_bos_token", false);
    if (tokenizer_eot(tokenizer) < 0)
        return;
    gguf_key_u32(gguf, "tokenizer.ggml.bos_token_id", (uint32_t)tokenizer_eot(tokenizer));
    gguf_key_u32(gguf, "tokenizer.ggml.eos_token_id", (uint32_t)tokenizer_eot(tokenizer));
}

void export_gguf_tokens_log(const struct tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        log_note("the model has no tokenizer, so the file has none; llama.cpp will take token ids only");
    else if (!export_gguf_tokens_possible(tokenizer))
        log_note("the tokenizer has ranks but no merges, which GGUF needs; the file has no tokenizer");
    else if (tokenizer_eot(tokenizer) < 0)
        log_note("the tokenizer has no end-of-text token; llama.cpp would take token 11, so run it with --ignore-eos");
}
