/* Fuzzes training, encoding and decoding.  The input is a text of two halves.
 *
 * A vocabulary is trained on the first half.  The second half must survive encoding and decoding byte for byte, give
 * the same ids when it is cut at bpe_split_cut(), and decode as a stream to valid UTF-8.
 */
#include <string.h>

#include "base/utf8.h"
#include "data/bpe.h"
#include "data/bpe_train.h"
#include "data/documents.h"
#include "data/tokenizer.h"
#include "data/tokenizer_encoder.h"
#include "tests/fuzz/fuzz_common.h"

static struct tokenizer *train(struct hostmem *mem, const char *text, size_t count)
{
    struct bpe_trainer *trainer = NULL;
    struct tokenizer *tokenizer = NULL;
    FUZZ_CHECK(bpe_trainer_create(mem, NULL, &trainer) == GT_OK);
    FUZZ_CHECK(bpe_trainer_add(trainer, text, count) == GT_OK);
    FUZZ_CHECK(bpe_trainer_finish(trainer, mem, 300, &tokenizer) == GT_OK);
    hostmem_free(trainer);
    return tokenizer;
}

static void check_decoded(const struct tokenizer *tokenizer, const int32_t *ids, size_t count, const char *text,
                          size_t text_count)
{
    struct tokenizer_stream stream = {.held_count = 0};
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        char scratch[4], shown[TOKENIZER_TEXT_MAX];
        const char *bytes = NULL;
        const size_t length = tokenizer_token_bytes(tokenizer, ids[i], scratch, &bytes);
        FUZZ_CHECK(length > 0 && at + length <= text_count && memcmp(text + at, bytes, length) == 0);
        at += length;
        const size_t shown_count = tokenizer_stream_push(tokenizer, &stream, ids[i], shown);
        for (size_t k = 0; k < shown_count;) {
            uint32_t code_point;
            const int used = utf8_decode((const unsigned char *)shown + k, shown_count - k, &code_point);
            FUZZ_CHECK(used > 0);
            k += (size_t)used;
        }
    }
    FUZZ_CHECK(at == text_count);
}

static size_t encode(struct tokenizer_encoder *encoder, const char *text, size_t count, enum tokenizer_special special,
                     int32_t *ids)
{
    struct tokenizer_fault fault;
    size_t id_count = 0;
    FUZZ_CHECK(tokenizer_encoder_run(encoder, text, count, special, ids, &id_count, &fault) == GT_OK);
    FUZZ_CHECK(id_count <= count);
    return id_count;
}

static void check_cut(struct tokenizer_encoder *encoder, const char *text, size_t text_count, const int32_t *whole,
                      size_t whole_count)
{
    bool forced = false;
    if (text_count < 2)
        return;
    const size_t cut = bpe_split_cut(text, text_count / 2, false, &forced);
    FUZZ_CHECK(cut > 0 && cut <= text_count / 2);
    if (forced)
        return;
    int32_t *ids = malloc(text_count * sizeof ids[0] + 1);
    FUZZ_CHECK(ids != NULL);
    const size_t left = encode(encoder, text, cut, TOKENIZER_SPECIAL_AS_TEXT, ids);
    const size_t right = encode(encoder, text + cut, text_count - cut, TOKENIZER_SPECIAL_AS_TEXT, ids + left);
    FUZZ_CHECK(left + right == whole_count && memcmp(ids, whole, whole_count * sizeof ids[0]) == 0);
    free(ids);
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    const char *text = (const char *)data + size / 2;
    const size_t text_count = size - size / 2;
    struct tokenizer *tokenizer = train(mem, (const char *)data, size / 2);
    struct tokenizer_encoder *encoder = NULL;
    int32_t *ids = malloc(text_count * sizeof ids[0] + 1);
    FUZZ_CHECK(ids != NULL);
    FUZZ_CHECK(tokenizer_encoder_create(mem, tokenizer, &encoder) == GT_OK);
    size_t count = encode(encoder, text, text_count, TOKENIZER_SPECIAL_ALLOWED, ids);
    check_decoded(tokenizer, ids, count, text, text_count);
    count = encode(encoder, text, text_count, TOKENIZER_SPECIAL_AS_TEXT, ids);
    check_decoded(tokenizer, ids, count, text, text_count);
    check_cut(encoder, text, text_count, ids, count);
    free(ids);
    hostmem_free(encoder);
    hostmem_free(tokenizer);
}
