/* Encodes text in one thread.
 *
 * bytes and chars need only the tokenizer.  For bpe the text is split into pieces.  A cache has 2^16 entries of one
 * cache line each, and a newer piece replaces an older one in the same slot.  Pieces or results too long for an entry
 * are encoded every time.  Special tokens, when allowed, and literal ones cut the text before it is normalized and
 * split.
 */
#include "data/tokenizer.h"

#include "base/utf8.h"

/* Fuzzing uses a smaller cache. */
#ifndef CACHE_BITS
#define CACHE_BITS 16
#endif

enum { CACHED_BYTES_MAX = 30, CACHED_IDS_MAX = 8 };

struct cached_piece {
    unsigned char count; /* bytes; 0: free */
    unsigned char id_count;
    char bytes[CACHED_BYTES_MAX];
    int32_t ids[CACHED_IDS_MAX];
};

_Static_assert(sizeof(struct cached_piece) == 64, "an entry is a cache line");

struct tokenizer_encoder {
    const struct tokenizer *tokenizer;
    const struct bpe *bpe; /* NULL for bytes and chars, which do not use the fields below */
    struct bpe_splitter *splitter;
    struct cached_piece *cache;
    struct bpe_scratch scratch;
    bool begins[2][256]; /* first bytes of literal tokens, and of all special ones */
    bool has_literals;
};

static enum gt_status encoder_open_bpe(struct tokenizer_encoder *encoder)
{
    const struct bpe *bpe = encoder->bpe;
    TRY(bpe_splitter_create(encoder, encoder->bpe->pipeline.split, &encoder->splitter));
    TRY(HOSTMEM_NEW(encoder, (size_t)1 << CACHE_BITS, "cache of pieces", &encoder->cache));
    for (size_t i = 0; i < bpe->special_count; i++) {
        const char *text = NULL;
        const bool literal = bpe_is_literal(bpe, bpe->specials[i]);
        (void)bpe_token(bpe, bpe->specials[i], &text);
        encoder->begins[TOKENIZER_SPECIAL_ALLOWED][(unsigned char)text[0]] = true;
        encoder->begins[TOKENIZER_SPECIAL_AS_TEXT][(unsigned char)text[0]] |= literal;
        encoder->has_literals |= literal;
    }
    return GT_OK;
}

static void encoder_close(void *object)
{
    struct tokenizer_encoder *encoder = object;
    bpe_scratch_release(&encoder->scratch);
}

enum gt_status tokenizer_encoder_create(const void *owner, const struct tokenizer *tokenizer,
                                        struct tokenizer_encoder **out)
{
    struct tokenizer_encoder *encoder;
    TRY(HOSTMEM_NEW(owner, 1, "encoder", &encoder));
    hostmem_at_free(encoder, encoder_close);
    encoder->tokenizer = tokenizer;
    encoder->bpe = tokenizer->bpe;
    const enum gt_status status = encoder->bpe != NULL ? encoder_open_bpe(encoder) : GT_OK;
    return FINISH(status, out, encoder, hostmem_free);
}

/* ---- bytes and chars ---- */

static enum gt_status encode_chars(const struct tokenizer *tokenizer, const char *text, size_t count, int32_t *out,
                                   size_t *out_count, struct tokenizer_fault *fault)
{
    size_t ids = 0, at = 0;
    while (at < count) {
        uint32_t code_point = 0;
        const int length = utf8_decode((const unsigned char *)text + at, count - at, &code_point);
        const int32_t id = length > 0 ? tokenizer_id_of(tokenizer, code_point) : -1;
        if (id < 0) {
            *fault = (struct tokenizer_fault){.at = at, .code_point = length > 0 ? code_point : UTF8_CODE_POINTS};
            return GT_DATA;
        }
        out[ids++] = id;
        at += (size_t)length;
    }
    *out_count = ids;
    return GT_OK;
}

/* ---- bpe ---- */

static uint64_t load(const char *bytes, size_t count)
{
    uint64_t value = 0;
    uint32_t half = 0;
    if (count >= sizeof value) {
        memcpy(&value, bytes, sizeof value);
        return value;
    }
    if (count < sizeof half) /* 1 to 3 */
        return (uint64_t)(unsigned char)bytes[0] | (uint64_t)(unsigned char)bytes[count / 2] << 8 |
               (uint64_t)(unsigned char)bytes[count - 1] << 16;
    memcpy(&half, bytes, sizeof half);
    value = half;
    memcpy(&half, bytes + count - sizeof half, sizeof half);
    return value | (uint64_t)half << 32;
}

/* Hashes all bytes of a piece of up to 30. */
static size_t cache_slot(const char *bytes, size_t count)
{
    uint64_t hash = load(bytes, count) + count;
    for (size_t at = 8; at < count; at += 8) {
        const size_t from = at + 8 <= count ? at : count - 8;
        hash = (hash ^ hash >> 32) * UINT64_C(0x9E3779B97F4A7C15) + load(bytes + from, 8);
    }
    return (size_t)((hash ^ hash >> 32) * UINT64_C(0xD6E8FEB86659FD93) >> (64 - CACHE_BITS));
}

static enum gt_status encode_piece(struct tokenizer_encoder *encoder, const char *bytes, size_t count, int32_t *out,
                                   size_t *out_count)
{
    if (count > CACHED_BYTES_MAX)
        return bpe_encode_piece(encoder->bpe, &encoder->scratch, bytes, count, out, out_count);
    struct cached_piece *entry = &encoder->cache[cache_slot(bytes, count)];
    if (entry->count != count || memcmp(entry->bytes, bytes, count) != 0) {
        TRY(bpe_encode_piece(encoder->bpe, &encoder->scratch, bytes, count, out, out_count));
        if (*out_count > CACHED_IDS_MAX)
            return GT_OK;
        entry->count = (unsigned char)count;
        entry->id_count = (unsigned char)*out_count;
        memcpy(entry->bytes, bytes, count);
        memcpy(entry->ids, out, *out_count * sizeof out[0]);
        return GT_OK;
    }
    for (size_t i = 0; i < entry->id_count; i++)
        out[i] = entry->ids[i];
    *out_count = entry->id_count;
    return GT_OK;
}

static enum gt_status encode_ordinary(struct tokenizer_encoder *encoder, const char *text, size_t count, int32_t *out,
                                      size_t *out_count)
{
    const char *piece = NULL;
    size_t ids = 0;
    bpe_splitter_begin(encoder->splitter, text, count);
    for (size_t length; (length = bpe_splitter_next(encoder->splitter, &piece)) > 0;) {
        size_t piece_ids = 0;
        TRY(encode_piece(encoder, piece, length, out + ids, &piece_ids));
        ids += piece_ids;
    }
    assert(ids <= count);
    *out_count = ids;
    return GT_OK;
}

static enum gt_status encode_normalized(struct tokenizer_encoder *encoder, const char *text, size_t count, int32_t *out,
                                        size_t *out_count)
{
    char *normal = NULL;
    if (encoder->bpe->pipeline.growth > 1)
        TRY(bpe_nfc(text, count, &normal, &count));
    const enum gt_status status = encode_ordinary(encoder, normal != NULL ? normal : text, count, out, out_count);
    free(normal);
    return status;
}

/* Returns the longest token to be found at text[at], or -1. */
static int32_t special_at(const struct tokenizer_encoder *encoder, const char *text, size_t count, size_t at,
                          enum tokenizer_special special, size_t *out_length)
{
    const struct bpe *bpe = encoder->bpe;
    size_t best = 0;
    int32_t id = -1;
    if (!encoder->begins[special][(unsigned char)text[at]])
        return -1;
    for (size_t i = 0; i < bpe->special_count; i++) {
        const char *bytes = NULL;
        const size_t length = bpe_token(bpe, bpe->specials[i], &bytes);
        if (length > best && length <= count - at && memcmp(text + at, bytes, length) == 0 &&
            (special == TOKENIZER_SPECIAL_ALLOWED || bpe_is_literal(bpe, bpe->specials[i]))) {
            best = length;
            id = bpe->specials[i];
        }
    }
    *out_length = best;
    return id;
}

static enum gt_status encode_with_specials(struct tokenizer_encoder *encoder, const char *text, size_t count,
                                           enum tokenizer_special special, int32_t *out, size_t *out_count)
{
    size_t ids = 0, begin = 0;
    for (size_t at = 0; at <= count;) {
        size_t length = 0, ordinary = 0;
        const int32_t id = at < count ? special_at(encoder, text, count, at, special, &length) : -1;
        if (id < 0 && at < count) {
            at++;
            continue;
        }
        TRY(encode_normalized(encoder, text + begin, at - begin, out + ids, &ordinary));
        ids += ordinary;
        if (id < 0)
            break;
        out[ids++] = id;
        at += length;
        begin = at;
    }
    *out_count = ids;
    return GT_OK;
}

/* ---- all kinds ---- */

enum gt_status tokenizer_encoder_run(struct tokenizer_encoder *encoder, const char *text, size_t count,
                                     enum tokenizer_special special, int32_t *out, size_t *out_count,
                                     struct tokenizer_fault *fault)
{
    switch (encoder->tokenizer->kind) {
    case TOKENIZER_CHARS:
        return encode_chars(encoder->tokenizer, text, count, out, out_count, fault);
    case TOKENIZER_BPE:
        if (special == TOKENIZER_SPECIAL_ALLOWED || encoder->has_literals)
            return encode_with_specials(encoder, text, count, special, out, out_count);
        return encode_normalized(encoder, text, count, out, out_count);
    case TOKENIZER_BYTES:
    case TOKENIZER_KIND_COUNT:
        break;
    }
    for (size_t i = 0; i < count; i++)
        out[i] = (unsigned char)text[i];
    *out_count = count;
    return GT_OK;
}

void tokenizer_fault_report(const struct tokenizer *tokenizer, enum gt_status status,
                            const struct tokenizer_fault *fault, const char *source)
{
    if (status == GT_NO_MEMORY)
        log_error("%s: out of memory: text without a space to split it at needs 40 times its size", source);
    else if (fault->code_point == UTF8_CODE_POINTS)
        log_error("%s: byte %zu is not UTF-8", source, fault->at);
    else
        log_error("%s: the character U+%04" PRIX32 " at byte %zu is not among the %" PRId64 " of the vocabulary",
                  source, fault->code_point, fault->at, tokenizer->vocab_size);
}
