/* Encodes text in one thread.
 *
 * bytes and chars need only the tokenizer.  For bpe the text is split into pieces.  A cache has
 * 2^16 entries of one cache line each, and a newer piece replaces an older one in the same slot.
 * Pieces or results too long for an entry are encoded every time.  Special tokens, when allowed,
 * and literal ones cut the text before it is normalized and split.  Tokens that are "normalized"
 * cut it between these two steps.  With a vocabulary of characters, text gets marks (bpe_marks.h)
 * instead of NFC, and is divided at them instead of being split.  Bytes without a token are
 * counted.
 */

#include "data/tokenizer_encoder.h"

#include "base/size.h"
#include "base/utf8.h"

/* Fuzzing uses a smaller cache. */
#ifndef CACHE_BITS
#define CACHE_BITS 16
#endif

enum { CACHED_BYTES_MAX = 30, CACHED_IDS_MAX = 8, UNKNOWN_SHOWN = 8 };

struct cached_piece {
    unsigned char count; /* bytes; 0: free */
    unsigned char id_count;
    char bytes[CACHED_BYTES_MAX];
    int32_t ids[CACHED_IDS_MAX];
};

_Static_assert(sizeof(struct cached_piece) == 64, "an entry is a cache line");

/* A token that is found in text.  Where several begin, the longest is found. */
struct needle {
    const char *text;
    size_t count;
    int32_t id;
    bool literal, normalized;
    struct bpe_strip strip;
};

struct tokenizer_encoder {
    const struct tokenizer *tokenizer;
    const struct bpe *bpe; /* NULL for bytes and chars, which do not use the fields below */
    struct bpe_splitter *splitter;
    struct cached_piece *cache;
    struct bpe_scratch scratch;
    struct needle *needles; /* by first byte, and then from long to short */
    size_t starts[257];     /* the first needle of each byte */
    bool finds[2][2];     /* by enum tokenizer_special, then `normalized`: there are such tokens */
    enum bpe_place place; /* of the next text */
    bool lacks_bytes;
    struct tokenizer_unknown unknown;
};

static int needle_order(const void *a, const void *b)
{
    const struct needle *x = a, *y = b;
    const unsigned char first = (unsigned char)x->text[0], second = (unsigned char)y->text[0];
    if (first != second)
        return first < second ? -1 : 1;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Normalizes the text of a token that is found in normalized text. */
static enum gt_status needle_normalize(struct tokenizer_encoder *encoder, struct needle *needle)
{
    char *marked, *kept;
    size_t count;
    const struct bpe_pipeline *pipeline = &encoder->bpe->pipeline;
    if (!needle->normalized || !pipeline->characters)
        return GT_OK;
    enum gt_status status = bpe_marks_put(pipeline->normalizer, BPE_PLACE_BEGIN, needle->text,
                                          needle->count, &marked, &count);
    if (status == GT_OK && marked != NULL) {
        THEN(status, HOSTMEM_NEW(encoder, count, "an added token", &kept));
        if (status == GT_OK) {
            memcpy(kept, marked, count);
            needle->text = kept;
            needle->count = count;
        }
        free(marked);
    }
    return status;
}

static enum gt_status needles_open(struct tokenizer_encoder *encoder)
{
    const struct bpe *bpe = encoder->bpe;
    TRY(HOSTMEM_NEW(encoder, bpe->special_count, "tokens to be found", &encoder->needles));
    for (size_t i = 0; i < bpe->special_count; i++) {
        struct needle *needle = &encoder->needles[i];
        needle->id = bpe->specials[i];
        needle->count = bpe_token(bpe, needle->id, &needle->text);
        needle->literal = bpe_is_literal(bpe, needle->id);
        needle->normalized = bpe_is_normalized(bpe, needle->id);
        needle->strip = bpe_strip_of(bpe, needle->id);
        TRY(needle_normalize(encoder, needle));
        encoder->finds[TOKENIZER_SPECIAL_ALLOWED][needle->normalized] = true;
        encoder->finds[TOKENIZER_SPECIAL_AS_TEXT][needle->normalized] |= needle->literal;
    }
    if (bpe->special_count > 0)
        qsort(encoder->needles, bpe->special_count, sizeof encoder->needles[0], needle_order);
    for (size_t i = 0; i < bpe->special_count; i++)
        encoder->starts[(unsigned char)encoder->needles[i].text[0] + 1] = i + 1;
    for (int byte = 0; byte < 256; byte++)
        if (encoder->starts[byte + 1] < encoder->starts[byte])
            encoder->starts[byte + 1] = encoder->starts[byte];
    return GT_OK;
}

static enum gt_status encoder_open_bpe(struct tokenizer_encoder *encoder)
{
    const struct bpe *bpe = encoder->bpe;
    TRY(bpe_splitter_create(encoder, encoder->bpe->pipeline.split, &encoder->splitter));
    TRY(HOSTMEM_NEW(encoder, (size_t)1 << CACHE_BITS, "cache of pieces", &encoder->cache));
    encoder->lacks_bytes = bpe_lacks_bytes(bpe);
    return needles_open(encoder);
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

static enum gt_status encode_chars(const struct tokenizer *tokenizer, const char *text,
                                   size_t count, int32_t *out, size_t *out_count,
                                   struct tokenizer_fault *fault)
{
    size_t ids = 0, at = 0;
    while (at < count) {
        uint32_t code_point = 0;
        const int length = utf8_decode((const unsigned char *)text + at, count - at, &code_point);
        const int32_t id = length > 0 ? tokenizer_id_of(tokenizer, code_point) : -1;
        if (id < 0) {
            *fault = (struct tokenizer_fault){
                .at = at, .code_point = length > 0 ? code_point : UTF8_CODE_POINTS};
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

static enum gt_status encode_piece(struct tokenizer_encoder *encoder, const char *bytes,
                                   size_t count, int32_t *out, size_t *out_count)
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

static enum gt_status encode_ordinary(struct tokenizer_encoder *encoder, const char *text,
                                      size_t count, int32_t *out, size_t *out_count)
{
    const char *piece = NULL;
    size_t ids = 0;
    bpe_splitter_begin(encoder->splitter, text, count);
    for (size_t length; (length = bpe_splitter_next(encoder->splitter, &piece)) > 0;) {
        size_t piece_ids = 0;
        TRY(encode_piece(encoder, piece, length, out + ids, &piece_ids));
        ids += piece_ids;
        if (encoder->lacks_bytes)
            encoder->unknown.total +=
                bpe_count_unknown(encoder->bpe, piece, length, encoder->unknown.counts);
    }
    assert(ids <= count);
    *out_count = ids;
    return GT_OK;
}

/* The same in a vocabulary of characters. */
static enum gt_status encode_characters(struct tokenizer_encoder *encoder, const char *text,
                                        size_t count, enum bpe_place place, int32_t *out,
                                        size_t *out_count)
{
    const struct bpe_pipeline *pipeline = &encoder->bpe->pipeline;
    char *marked = NULL;
    size_t ids = 0, more = 0;
    enum gt_status status =
        bpe_marks_put(pipeline->pretokenizer, place, text, count, &marked, &count);
    text = marked != NULL ? marked : text;
    for (size_t at = 0, length; at < count && status == GT_OK; at += length) {
        const bool whole = encoder->bpe->whole && !pipeline->each;
        length = whole ? count : bpe_marks_piece(text + at, count - at, pipeline->each);
        status = encode_piece(encoder, text + at, length, out + ids, &more);
        ids += status == GT_OK ? more : 0;
    }
    free(marked);
    *out_count = ids;
    return status;
}

/* A walk over the tokens that are found in a text, and the text between them. */
struct cut {
    enum tokenizer_special special;
    bool normalized;
    const char *text;
    size_t count, at;
};

/* Returns the longest token to be found at text[at], or NULL. */
static const struct needle *needle_at(const struct tokenizer_encoder *encoder,
                                      const struct cut *cut, size_t at)
{
    const unsigned char first = (unsigned char)cut->text[at];
    for (size_t i = encoder->starts[first]; i < encoder->starts[first + 1]; i++) {
        const struct needle *needle = &encoder->needles[i];
        if (needle->normalized == cut->normalized &&
            (cut->special == TOKENIZER_SPECIAL_ALLOWED || needle->literal) &&
            needle->count <= cut->count - at &&
            memcmp(cut->text + at, needle->text, needle->count) == 0)
            return needle;
    }
    return NULL;
}

/* Returns the length of the character at text[at] if it is white space, else 0. */
static size_t space_at(const char *text, size_t count, size_t at)
{
    uint32_t c = 0;
    const int length = utf8_decode((const unsigned char *)text + at, count - at, &c);
    const bool ascii = (c >= 9 && c <= 13) || c == ' ';
    const bool other = c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
                       c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
    return length > 0 && (ascii || other) ? (size_t)length : 0;
}

/* Returns where the white space before text[at] begins, at `least` or later. */
static size_t spaces_begin(const char *text, size_t least, size_t at)
{
    for (size_t length = 1; length <= 3 && length <= at - least; length++)
        if (space_at(text, at, at - length) == length) {
            at -= length;
            length = 0;
        }
    return at;
}

/* Steps over the text before the next token, *out_count bytes, and over the token, *out_id, which
 * is -1 at the end of the text. */
static bool cut_next(const struct tokenizer_encoder *encoder, struct cut *cut, const char **out,
                     size_t *out_count, int32_t *out_id)
{
    const struct needle *found = NULL;
    size_t at = cut->at;
    if (at > cut->count)
        return false;
    if (!encoder->finds[cut->special][cut->normalized])
        at = cut->count;
    while (at < cut->count && (found = needle_at(encoder, cut, at)) == NULL)
        at++;
    *out = cut->text + cut->at;
    *out_id = found != NULL ? found->id : -1;
    *out_count =
        (found != NULL && found->strip.left ? spaces_begin(cut->text, cut->at, at) : at) - cut->at;
    cut->at = cut->count + 1;
    if (found == NULL)
        return true;
    cut->at = at + found->count;
    for (size_t space; found->strip.right && cut->at < cut->count &&
                       (space = space_at(cut->text, cut->count, cut->at)) > 0;)
        cut->at += space;
    return true;
}

/* Encodes the text between two added tokens. */
static enum gt_status encode_normalized(struct tokenizer_encoder *encoder, const struct cut *whole,
                                        const char *text, size_t count, enum bpe_place place,
                                        int32_t *out, size_t *out_count)
{
    const struct bpe_pipeline *pipeline = &encoder->bpe->pipeline;
    struct cut cut = {.special = whole->special, .normalized = true, .text = text, .count = count};
    enum gt_status status = GT_OK;
    char *normal = NULL;
    size_t ids = 0, between_count = 0, more = 0;
    const char *between = NULL;
    int32_t id = -1;
    if (pipeline->characters)
        status = bpe_marks_put(pipeline->normalizer, place, text, count, &normal, &cut.count);
    else if (pipeline->growth > 1)
        status = bpe_nfc(text, count, &normal, &cut.count);
    cut.text = normal != NULL ? normal : text;
    while (status == GT_OK && cut_next(encoder, &cut, &between, &between_count, &id)) {
        status = pipeline->characters
                     ? encode_characters(encoder, between, between_count, place, out + ids, &more)
                     : encode_ordinary(encoder, between, between_count, out + ids, &more);
        ids += status == GT_OK ? more : 0;
        if (id >= 0)
            out[ids++] = id;
        place = BPE_PLACE_AFTER;
    }
    free(normal);
    *out_count = ids;
    return status;
}

static enum gt_status encode_bpe(struct tokenizer_encoder *encoder, const char *text, size_t count,
                                 enum tokenizer_special special, int32_t *out, size_t *out_count)
{
    struct cut cut = {.special = special, .text = text, .count = count};
    size_t ids = 0, between_count = 0, more = 0;
    const char *between = NULL;
    int32_t id = -1;
    enum bpe_place place = encoder->place;
    encoder->place = BPE_PLACE_BEGIN;
    while (cut_next(encoder, &cut, &between, &between_count, &id)) {
        TRY(encode_normalized(encoder, &cut, between, between_count, place, out + ids, &more));
        ids += more;
        if (id >= 0)
            out[ids++] = id;
        place = BPE_PLACE_AFTER;
    }
    *out_count = ids;
    return GT_OK;
}

/* ---- all kinds ---- */

enum gt_status tokenizer_encoder_run(struct tokenizer_encoder *encoder, const char *text,
                                     size_t count, enum tokenizer_special special, int32_t *out,
                                     size_t *out_count, struct tokenizer_fault *fault)
{
    switch (encoder->tokenizer->kind) {
    case TOKENIZER_CHARS:
        return encode_chars(encoder->tokenizer, text, count, out, out_count, fault);
    case TOKENIZER_BPE:
        return encode_bpe(encoder, text, count, special, out, out_count);
    case TOKENIZER_BYTES:
    case TOKENIZER_KIND_COUNT:
        break;
    }
    for (size_t i = 0; i < count; i++)
        out[i] = (unsigned char)text[i];
    *out_count = count;
    return GT_OK;
}

void tokenizer_encoder_place(struct tokenizer_encoder *encoder, enum bpe_place place)
{
    encoder->place = place;
}

const struct tokenizer_unknown *tokenizer_encoder_unknown(const struct tokenizer_encoder *encoder)
{
    return &encoder->unknown;
}

void tokenizer_unknown_warn(const struct tokenizer *tokenizer,
                            const struct tokenizer_unknown *unknown, const char *where)
{
    char bytes[256] = "";
    size_t used = 0, kinds = 0;
    const int32_t id = tokenizer_pipeline(tokenizer)->unknown;
    const char *text = NULL;
    if (unknown->total == 0)
        return;
    for (unsigned byte = 0; byte < 256; byte++) {
        kinds += unknown->counts[byte] > 0;
        if (unknown->counts[byte] > 0 && kinds <= UNKNOWN_SHOWN)
            used += (size_t)snprintf(bytes + used, sizeof bytes - used, "%s0x%02X (%" PRIu64 ")",
                                     used > 0 ? ", " : "", byte, unknown->counts[byte]);
    }
    if (kinds > UNKNOWN_SHOWN)
        snprintf(bytes + used, sizeof bytes - used, " and %zu more", kinds - UNKNOWN_SHOWN);
    const size_t count = id >= 0 ? bpe_token(tokenizer->bpe, id, &text) : 0;
    const char *left_out = unknown->total == 1 ? "is left out" : "are left out";
    log_warning("%s: the vocabulary has no token for %" PRIu64 " byte%s, which %s%.*s: %s", where,
                unknown->total, unknown->total == 1 ? "" : "s", id >= 0 ? "became " : left_out,
                (int)size_min(count, 64), count > 0 ? text : "", bytes);
}

void tokenizer_fault_report(const struct tokenizer *tokenizer, enum gt_status status,
                            const struct tokenizer_fault *fault, const char *source)
{
    if (status == GT_NO_MEMORY)
        log_error("%s: out of memory: text without a space to split it at needs 40 times its size",
                  source);
    else if (fault->code_point == UTF8_CODE_POINTS)
        log_error("%s: byte %zu is not UTF-8", source, fault->at);
    else
        log_error("%s: the character U+%04" PRIX32 " at byte %zu is not among the %" PRId64
                  " of the vocabulary",
                  source, fault->code_point, fault->at, tokenizer->vocab_size);
}

enum gt_status tokenizer_encode_prompt(const struct tokenizer *tokenizer, const char *text,
                                       size_t count, const char *source, int32_t *out,
                                       size_t *out_count)
{
    struct tokenizer_encoder *encoder = NULL;
    struct tokenizer_fault fault = {.at = 0};
    TRY(tokenizer_encoder_create(tokenizer, tokenizer, &encoder));
    const int32_t bos = tokenizer_pipeline(tokenizer)->bos;
    enum gt_status status = tokenizer_encoder_run(encoder, text, count, TOKENIZER_SPECIAL_ALLOWED,
                                                  out, out_count, &fault);
    tokenizer_unknown_warn(tokenizer, tokenizer_encoder_unknown(encoder), source);
    if (status != GT_OK)
        tokenizer_fault_report(tokenizer, status, &fault, source);
    else if (count > 0 && *out_count == 0 && bos < 0)
        status = FAIL(GT_DATA, "%s: no byte of this text has a token in the vocabulary", source);
    else if (bos >= 0 && (*out_count == 0 || out[0] != bos)) {
        memmove(out + 1, out, *out_count * sizeof out[0]);
        out[0] = bos;
        ++*out_count;
    }
    hostmem_free(encoder);
    return status;
}
