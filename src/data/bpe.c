/* Byte-pair encoding: the vocabulary and its two hash tables.
 *
 * All token texts are in one byte string.  During construction a hash table finds texts.  Its polynomial hash gives the
 * hash of every prefix and suffix in one step, because BPE_RANK_TOKEN needs all ways to cut each token in two.  For
 * encoding, a second table finds pairs of ids (bpe_internal.h).  Both use open addressing with linear probing and are
 * at most half full.  The merging itself is in bpe_merge.c.
 */
#include "data/bpe.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "data/bpe_alphabet.h"
#include "data/bpe_internal.h"

#define TEXT_HASH_FACTOR UINT64_C(0x9E3779B97F4A7C15)

static size_t table_capacity(size_t count)
{
    size_t capacity = 16;
    while (capacity < 2 * count)
        capacity *= 2;
    return capacity;
}

/* ---- creation ---- */

static enum gt_status bpe_allocate(struct bpe *bpe, const struct bpe_spec *spec)
{
    void *memory = NULL;
    TRY(hostmem_alloc(bpe->mem, spec->vocab_size, sizeof bpe->tokens[0], "tokens", &memory));
    bpe->tokens = memory;
    TRY(hostmem_alloc(bpe->mem, spec->text_bytes, 1, "texts of tokens", &memory));
    bpe->text = memory;
    TRY(hostmem_alloc(bpe->mem, spec->merge_count, sizeof bpe->merges[0], "merges", &memory));
    bpe->merges = memory;
    const size_t capacity = table_capacity(spec->vocab_size);
    TRY(hostmem_alloc(bpe->mem, capacity, sizeof bpe->index[0], "index of tokens", &memory));
    bpe->index = memory;
    bpe->index_mask = capacity - 1;
    return GT_OK;
}

enum gt_status bpe_create(struct hostmem *mem, const struct bpe_spec *spec, struct bpe **out)
{
    assert(spec->vocab_size >= 1 && spec->vocab_size <= BPE_VOCAB_MAX && spec->text_bytes <= BPE_TEXT_BYTES_MAX);
    assert(spec->merge_count <= BPE_MERGES_MAX && (spec->rank == BPE_RANK_MERGE || spec->merge_count == 0));
    void *memory = NULL;
    TRY(hostmem_alloc(mem, 1, sizeof(struct bpe), "byte-pair encoding", &memory));
    struct bpe *bpe = memory;
    bpe->mem = mem;
    bpe->vocab_size = spec->vocab_size;
    bpe->text_capacity = spec->text_bytes;
    bpe->merge_capacity = spec->merge_count;
    bpe->rank = spec->rank;
    bpe->eot = -1;
    for (int i = 0; i < 256; i++)
        bpe->byte_ids[i] = -1;
    const enum gt_status status = bpe_allocate(bpe, spec);
    if (status == GT_OK)
        *out = bpe;
    else
        bpe_destroy(bpe);
    return status;
}

void bpe_destroy(struct bpe *bpe)
{
    if (bpe == NULL)
        return;
    hostmem_free(bpe->mem, bpe->pairs);
    hostmem_free(bpe->mem, bpe->specials);
    hostmem_free(bpe->mem, bpe->index);
    hostmem_free(bpe->mem, bpe->merges);
    hostmem_free(bpe->mem, bpe->text);
    hostmem_free(bpe->mem, bpe->tokens);
    hostmem_free(bpe->mem, bpe);
}

/* ---- tokens ---- */

/* Returns the sum of (byte + 1) * FACTOR^(distance from the end), modulo 2^64. */
static uint64_t text_hash(const char *bytes, size_t count)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < count; i++)
        hash = hash * TEXT_HASH_FACTOR + (unsigned char)bytes[i] + 1;
    return hash;
}

/* Returns the slot of a text, or the free slot for it.  Slots contain id + 1; 0 is free. */
static size_t index_slot(const struct bpe *bpe, const char *bytes, size_t count, uint64_t hash)
{
    size_t slot = (size_t)((hash ^ hash >> 29) * TEXT_HASH_FACTOR >> 20) & bpe->index_mask;
    while (bpe->index[slot].id_plus_one != 0) {
        const struct bpe_token *token = &bpe->tokens[bpe->index[slot].id_plus_one - 1];
        if (bpe->index[slot].hash == (uint32_t)hash && token->count == count &&
            memcmp(bpe->text + token->offset, bytes, count) == 0)
            break;
        slot = (slot + 1) & bpe->index_mask;
    }
    return slot;
}

static int32_t find_hashed(const struct bpe *bpe, const char *bytes, size_t count, uint64_t hash)
{
    return (int32_t)bpe->index[index_slot(bpe, bytes, count, hash)].id_plus_one - 1;
}

int32_t bpe_find(const struct bpe *bpe, const char *bytes, size_t count)
{
    assert(bpe->index != NULL);
    return find_hashed(bpe, bytes, count, text_hash(bytes, count));
}

int32_t bpe_find_written(const struct bpe *bpe, const char *text, size_t count)
{
    char bytes[2 * BPE_TOKEN_BYTES_MAX];
    if (count == 0 || count > sizeof bytes || !bpe_alphabet_read(text, count, bytes, &count))
        return -1;
    return bpe_find(bpe, bytes, count);
}

enum bpe_add bpe_add_token(struct bpe *bpe, int32_t id, const char *bytes, size_t count, bool special)
{
    assert(id >= 0 && (size_t)id < bpe->vocab_size);
    struct bpe_token *token = &bpe->tokens[id];
    if (count == 0 || count > BPE_TOKEN_BYTES_MAX || count > bpe->text_capacity - bpe->text_count)
        return BPE_TEXT_BAD;
    if (token->count != 0)
        return BPE_ID_TAKEN;
    const uint64_t hash = text_hash(bytes, count);
    const size_t slot = index_slot(bpe, bytes, count, hash);
    if (!special && bpe->index[slot].id_plus_one != 0)
        return BPE_TEXT_TAKEN;
    memcpy(bpe->text + bpe->text_count, bytes, count);
    *token = (struct bpe_token){.offset = (uint32_t)bpe->text_count, .count = (uint16_t)count, .special = special};
    bpe->text_count += count;
    if (special) {
        bpe->special_count++;
        return BPE_ADDED;
    }
    bpe->index[slot] = (struct bpe_index){.id_plus_one = (uint32_t)id + 1, .hash = (uint32_t)hash};
    if (count == 1)
        bpe->byte_ids[(unsigned char)bytes[0]] = id;
    return BPE_ADDED;
}

bool bpe_add_merge(struct bpe *bpe, int32_t left, int32_t right)
{
    assert(left >= 0 && right >= 0 && (size_t)left < bpe->vocab_size && (size_t)right < bpe->vocab_size);
    assert(bpe->merge_count < bpe->merge_capacity);
    const struct bpe_token *a = &bpe->tokens[left], *b = &bpe->tokens[right];
    char joined[2 * BPE_TOKEN_BYTES_MAX];
    const size_t count = (size_t)a->count + b->count;
    memcpy(joined, bpe->text + a->offset, a->count);
    memcpy(joined + a->count, bpe->text + b->offset, b->count);
    const int32_t result = bpe_find(bpe, joined, count);
    if (result < 0)
        return false;
    bpe->merges[bpe->merge_count++] = (struct bpe_merge){.left = left, .right = right, .result = result};
    return true;
}

/* ---- finishing ---- */

static enum gt_status check_complete(const struct bpe *bpe, const char *source)
{
    for (size_t id = 0; id < bpe->vocab_size; id++)
        if (bpe->tokens[id].count == 0) {
            log_error("%s: no token has the id %zu, of %zu", source, id, bpe->vocab_size);
            return GT_DATA;
        }
    for (int byte = 0; byte < 256; byte++)
        if (bpe->byte_ids[byte] < 0) {
            log_error("%s: the byte 0x%02X is no token, so this is not a byte-level vocabulary", source,
                      (unsigned)byte);
            return GT_DATA;
        }
    return GT_OK;
}

static enum gt_status list_specials(struct bpe *bpe)
{
    void *memory = NULL;
    TRY(hostmem_alloc(bpe->mem, bpe->special_count, sizeof bpe->specials[0], "special tokens", &memory));
    bpe->specials = memory;
    size_t next = 0;
    for (size_t id = 0; id < bpe->vocab_size; id++) {
        const struct bpe_token *token = &bpe->tokens[id];
        if (!token->special)
            continue;
        bpe->specials[next++] = (int32_t)id;
        if (token->count == strlen(BPE_EOT_TEXT) && memcmp(bpe->text + token->offset, BPE_EOT_TEXT, token->count) == 0)
            bpe->eot = (int32_t)id;
    }
    assert(next == bpe->special_count);
    return GT_OK;
}

/* A later merge of the same pair replaces the earlier one, as in encoder.py's dict. */
static void pair_insert(struct bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t result)
{
    const uint64_t key = bpe_pair_key(left, right);
    size_t slot = bpe_pair_slot(key) & bpe->pair_mask;
    while (bpe->pairs[slot].key != BPE_PAIR_FREE && bpe->pairs[slot].key != key)
        slot = (slot + 1) & bpe->pair_mask;
    bpe->pairs[slot] = (struct bpe_pair){.key = key, .rank = rank, .result = result};
}

static enum gt_status pairs_allocate(struct bpe *bpe, size_t count)
{
    void *memory = NULL;
    const size_t capacity = table_capacity(count);
    TRY(hostmem_alloc(bpe->mem, capacity, sizeof bpe->pairs[0], "pairs of tokens", &memory));
    bpe->pairs = memory;
    bpe->pair_mask = capacity - 1;
    for (size_t i = 0; i < capacity; i++)
        bpe->pairs[i].key = BPE_PAIR_FREE;
    return GT_OK;
}

/* Counts the ways to cut a token into two others, and inserts the pairs if `insert`. */
static size_t token_cut(struct bpe *bpe, size_t id, bool insert)
{
    const struct bpe_token *token = &bpe->tokens[id];
    const char *bytes = bpe->text + token->offset;
    uint64_t factors[BPE_TOKEN_BYTES_MAX + 1]; /* powers of TEXT_HASH_FACTOR */
    const uint64_t whole = text_hash(bytes, token->count);
    size_t found = 0;
    uint64_t prefix = 0;
    factors[0] = 1;
    for (size_t i = 1; i < token->count; i++)
        factors[i] = factors[i - 1] * TEXT_HASH_FACTOR;
    for (size_t i = 1; i < token->count; i++) {
        prefix = prefix * TEXT_HASH_FACTOR + (unsigned char)bytes[i - 1] + 1;
        const int32_t left = find_hashed(bpe, bytes, i, prefix);
        if (left < 0)
            continue;
        const size_t rest = token->count - i;
        const int32_t right = find_hashed(bpe, bytes + i, rest, whole - prefix * factors[rest]);
        if (right < 0)
            continue;
        found++;
        if (insert)
            pair_insert(bpe, left, right, (uint32_t)id, (int32_t)id);
    }
    return found;
}

static enum gt_status pairs_from_tokens(struct bpe *bpe)
{
    size_t count = 0;
    for (size_t id = 0; id < bpe->vocab_size; id++)
        if (!bpe->tokens[id].special)
            count += token_cut(bpe, id, false);
    TRY(pairs_allocate(bpe, count));
    for (size_t id = 0; id < bpe->vocab_size; id++)
        if (!bpe->tokens[id].special)
            token_cut(bpe, id, true);
    return GT_OK;
}

static enum gt_status pairs_from_merges(struct bpe *bpe)
{
    TRY(pairs_allocate(bpe, bpe->merge_count));
    for (size_t i = 0; i < bpe->merge_count; i++) {
        const struct bpe_merge *merge = &bpe->merges[i];
        pair_insert(bpe, merge->left, merge->right, (uint32_t)i, merge->result);
    }
    return GT_OK;
}

static uint32_t hash_u32(uint32_t crc, uint32_t value)
{
    const unsigned char bytes[4] = {(unsigned char)(value & 0xFF), (unsigned char)(value >> 8 & 0xFF),
                                    (unsigned char)(value >> 16 & 0xFF), (unsigned char)(value >> 24)};
    return file_crc32c(crc, bytes, sizeof bytes);
}

static uint32_t hash_all(const struct bpe *bpe)
{
    uint32_t crc = file_crc32c(0, "bpe", 3);
    crc = hash_u32(crc, (uint32_t)bpe->rank);
    crc = hash_u32(crc, (uint32_t)bpe->vocab_size);
    for (size_t id = 0; id < bpe->vocab_size; id++) {
        const struct bpe_token *token = &bpe->tokens[id];
        crc = hash_u32(crc, token->count | (token->special ? UINT32_C(1) << 31 : 0));
        crc = file_crc32c(crc, bpe->text + token->offset, token->count);
    }
    for (size_t i = 0; i < bpe->merge_count; i++) {
        crc = hash_u32(crc, (uint32_t)bpe->merges[i].left);
        crc = hash_u32(crc, (uint32_t)bpe->merges[i].right);
    }
    return crc;
}

enum gt_status bpe_finish(struct bpe *bpe, const char *source)
{
    assert(bpe->pairs == NULL && bpe->index != NULL);
    TRY(check_complete(bpe, source));
    TRY(list_specials(bpe));
    TRY(bpe->rank == BPE_RANK_MERGE ? pairs_from_merges(bpe) : pairs_from_tokens(bpe));
    hostmem_free(bpe->mem, bpe->index);
    bpe->index = NULL;
    bpe->hash = hash_all(bpe);
    return GT_OK;
}

/* ---- queries ---- */

size_t bpe_vocab_size(const struct bpe *bpe)
{
    return bpe->vocab_size;
}

enum bpe_rank bpe_rank_of(const struct bpe *bpe)
{
    return bpe->rank;
}

size_t bpe_token(const struct bpe *bpe, int32_t id, const char **out)
{
    if (id < 0 || (size_t)id >= bpe->vocab_size)
        return 0;
    *out = bpe->text + bpe->tokens[id].offset;
    return bpe->tokens[id].count;
}

bool bpe_is_special(const struct bpe *bpe, int32_t id)
{
    return id >= 0 && (size_t)id < bpe->vocab_size && bpe->tokens[id].special;
}

const int32_t *bpe_specials(const struct bpe *bpe, size_t *out_count)
{
    *out_count = bpe->special_count;
    return bpe->specials;
}

int32_t bpe_eot(const struct bpe *bpe)
{
    return bpe->eot;
}

const struct bpe_merge *bpe_merges(const struct bpe *bpe, size_t *out_count)
{
    *out_count = bpe->merge_count;
    return bpe->merges;
}

uint32_t bpe_hash(const struct bpe *bpe)
{
    return bpe->hash;
}
