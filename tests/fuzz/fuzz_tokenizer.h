/* Shared code of the targets that read tokenizers. */
#ifndef GPT_TRAIN_FUZZ_TOKENIZER_H
#define GPT_TRAIN_FUZZ_TOKENIZER_H

#include <string.h>

#include "data/tokenizer.h"
#include "data/tokenizer_encoder.h"
#include "tests/fuzz/fuzz_common.h"

/* No tokenizer has this text as one token, part of it is not UTF-8, and its final zero is included.
 */
static const char fuzz_text[] = "aaaaaaa abcabc abab\n\n\xC3\xA9 bc ab <|endoftext|> \xFF\xC3";

/* Checks that at most 256 bytes survive encoding and decoding, if every byte has a token. */
static inline void fuzz_check_encodes(const struct tokenizer *tokenizer, const char *text,
                                      size_t text_count)
{
    int32_t ids[256];
    char scratch[4];
    size_t count = 0, at = 0;
    const enum gt_status status =
        tokenizer_encode_prompt(tokenizer, text, text_count, "text", ids, &count);
    if (tokenizer->bpe != NULL && bpe_lacks_bytes(tokenizer->bpe))
        return;
    FUZZ_CHECK(status == GT_OK);
    for (size_t i = 0; i < count; i++) {
        const char *bytes = NULL;
        const size_t length = tokenizer_token_bytes(tokenizer, ids[i], scratch, &bytes);
        FUZZ_CHECK(at + length <= text_count && memcmp(text + at, bytes, length) == 0);
        at += length;
    }
    FUZZ_CHECK(at == text_count);
}

#endif
