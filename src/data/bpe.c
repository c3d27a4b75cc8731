/* Byte-pair encoding: the vocabulary and its two hash tables, and the merging of one piece.
 *
 * All token texts are in one byte string.  During construction a hash table finds texts.  For
 * encoding, a second table finds pairs of ids.  Both use open addressing with linear probing and
 * are at most half full.
 *
 * A piece is a linked list of tokens with a heap of (rank, place), which orders by rank and then
 * from left to right, so that long pieces (a line of dashes, base64, a language without spaces)
 * take no more time per byte than short ones.  A heap entry whose rank differs from its place's
 * current rank is stale and is dropped.
 */
#include "data/bpe.h"

#include "base/crc32c.h"
#include "base/file.h"
#include "base/size.h"
#include "base/utf8.h"

#define PAIR_FREE UINT64_MAX
#define RANK_NONE UINT32_MAX
#define PLACE_NONE UINT32_MAX

enum { SCRATCH_MIN = 4096 };

struct bpe_token {
    uint32_t offset; /* into the text */
    uint16_t count;  /* 0: not set yet */
    uint16_t shown;  /* bytes that it decodes to */
    bool special, literal, normalized, is_byte;
    struct bpe_strip strip;
};

struct bpe_index {
    uint32_t id_plus_one; /* 0: free */
    uint32_t hash;        /* the low 32 bits */
};

struct bpe_pair {
    uint64_t key;
    uint32_t rank;
    int32_t result;
};

const struct bpe_pipeline bpe_pipeline_of_gpt2 = {
    .split = BPE_SPLIT_GPT2, .growth = 1, .bos = -1, .unknown = -1};

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
    const size_t capacity = table_capacity(spec->vocab_size);
    bpe->index_mask = capacity - 1;
    TRY(HOSTMEM_NEW(bpe, spec->vocab_size, "tokens", &bpe->tokens));
    TRY(HOSTMEM_NEW(bpe, spec->text_bytes, "texts of tokens", &bpe->text));
    if (spec->characters)
        TRY(HOSTMEM_NEW(bpe, spec->text_bytes, "decoded texts of tokens", &bpe->shown));
    TRY(HOSTMEM_NEW(bpe, spec->merge_count, "merges", &bpe->merges));
    return HOSTMEM_NEW(bpe, capacity, "index of tokens", &bpe->index);
}

enum gt_status bpe_create(const void *owner, const struct bpe_spec *spec, struct bpe **out)
{
    assert(spec->vocab_size >= 1 && spec->vocab_size <= BPE_VOCAB_MAX &&
           spec->text_bytes <= BPE_TEXT_BYTES_MAX);
    assert(spec->merge_count <= BPE_MERGES_MAX &&
           (spec->rank == BPE_RANK_MERGE || spec->merge_count == 0));
    struct bpe *bpe;
    TRY(HOSTMEM_NEW(owner, 1, "byte-pair encoding", &bpe));
    bpe->vocab_size = spec->vocab_size;
    bpe->text_capacity = spec->text_bytes;
    bpe->merge_capacity = spec->merge_count;
    bpe->rank = spec->rank;
    bpe->pipeline = bpe_pipeline_of_gpt2;
    bpe->pipeline.characters = spec->characters;
    bpe->eot = -1;
    for (int i = 0; i < 256; i++)
        bpe->byte_ids[i] = -1;
    const enum gt_status status = bpe_allocate(bpe, spec);
    return FINISH(status, out, bpe, hostmem_free);
}

/* ---- tokens ---- */

/* Returns the slot of a text, or the free slot for it.  Slots contain id + 1; 0 is free. */
static size_t index_slot(const struct bpe *bpe, const char *bytes, size_t count, uint64_t hash)
{
    size_t slot = (size_t)(hash ^ hash >> 29) & bpe->index_mask;
    while (bpe->index[slot].id_plus_one != 0) {
        const struct bpe_token *token = &bpe->tokens[bpe->index[slot].id_plus_one - 1];
        if (bpe->index[slot].hash == (uint32_t)hash && token->count == count &&
            memcmp(bpe->text + token->offset, bytes, count) == 0)
            break;
        slot = (slot + 1) & bpe->index_mask;
    }
    return slot;
}

int32_t bpe_find(const struct bpe *bpe, const char *bytes, size_t count)
{
    assert(bpe->index != NULL);
    return (int32_t)bpe->index[index_slot(bpe, bytes, count, hash_fnv1a(bytes, count))]
               .id_plus_one -
           1;
}

/* Returns the byte that a text like <0x0A> stands for, or -1. */
static int byte_named(const char *text, size_t count)
{
    static const char digits[] = "0123456789ABCDEF";
    if (count != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    const char *high = memchr(digits, text[3], 16), *low = memchr(digits, text[4], 16);
    return high != NULL && low != NULL ? (int)(16 * (high - digits) + (low - digits)) : -1;
}

/* Stores the text that a token of a vocabulary of characters decodes to. */
static void token_show(struct bpe *bpe, int32_t id)
{
    struct bpe_token *token = &bpe->tokens[id];
    const char *text = bpe->text + token->offset;
    const int byte = token->special ? -1 : byte_named(text, token->count);
    token->is_byte = byte >= 0;
    token->shown = (uint16_t)bpe_marks_read(text, token->count, bpe->shown + token->offset);
    if (!token->is_byte)
        return;
    bpe->shown[token->offset] = (char)byte;
    token->shown = 1;
    bpe->byte_ids[byte] = id;
}

enum bpe_add bpe_add_token(struct bpe *bpe, int32_t id, const char *bytes, size_t count,
                           bool special)
{
    assert(id >= 0 && (size_t)id < bpe->vocab_size);
    struct bpe_token *token = &bpe->tokens[id];
    if (count == 0 || count > BPE_TOKEN_BYTES_MAX || count > bpe->text_capacity - bpe->text_count)
        return BPE_TEXT_BAD;
    if (token->count != 0)
        return BPE_ID_TAKEN;
    const uint64_t hash = hash_fnv1a(bytes, count);
    const size_t slot = index_slot(bpe, bytes, count, hash);
    if (!special && bpe->index[slot].id_plus_one != 0)
        return BPE_TEXT_TAKEN;
    memcpy(bpe->text + bpe->text_count, bytes, count);
    *token = (struct bpe_token){.offset = (uint32_t)bpe->text_count,
                                .count = (uint16_t)count,
                                .shown = (uint16_t)count,
                                .special = special};
    bpe->text_count += count;
    bpe->special_count += special;
    if (bpe->pipeline.characters)
        token_show(bpe, id);
    if (special && (!bpe->pipeline.characters || bpe->index[slot].id_plus_one != 0))
        return BPE_ADDED;
    bpe->index[slot] = (struct bpe_index){.id_plus_one = (uint32_t)id + 1, .hash = (uint32_t)hash};
    if (count == 1 && !bpe->pipeline.characters)
        bpe->byte_ids[(unsigned char)bytes[0]] = id;
    return BPE_ADDED;
}

/* Reads a token that is written in GPT-2's alphabet.  Returns BPE_ADDED when it could be added. */
static enum bpe_add written_read(const char *text, size_t count,
                                 char bytes[static 2 * BPE_TOKEN_BYTES_MAX], size_t *out_count)
{
    if (count == 0 || count > (size_t)2 * BPE_TOKEN_BYTES_MAX)
        return BPE_TEXT_BAD;
    return bpe_alphabet_read(text, count, bytes, out_count) ? BPE_ADDED : BPE_TEXT_FOREIGN;
}

enum bpe_add bpe_add_written(struct bpe *bpe, int32_t id, const char *text, size_t count,
                             bool special)
{
    char bytes[2 * BPE_TOKEN_BYTES_MAX];
    const bool plain = special || bpe->pipeline.characters;
    if (plain)
        return bpe_add_token(bpe, id, text, count, special);
    const enum bpe_add read = written_read(text, count, bytes, &count);
    return read == BPE_ADDED ? bpe_add_token(bpe, id, bytes, count, special) : read;
}

static int32_t find_written(const struct bpe *bpe, const char *text, size_t count)
{
    char bytes[2 * BPE_TOKEN_BYTES_MAX];
    if (bpe->pipeline.characters)
        return bpe_find(bpe, text, count);
    return written_read(text, count, bytes, &count) == BPE_ADDED ? bpe_find(bpe, bytes, count) : -1;
}

bool bpe_add_written_merge(struct bpe *bpe, const char *left, size_t left_count, const char *right,
                           size_t right_count)
{
    const int32_t left_id = find_written(bpe, left, left_count),
                  right_id = find_written(bpe, right, right_count);
    return left_id >= 0 && right_id >= 0 && bpe_add_merge(bpe, left_id, right_id);
}

bool bpe_add_merge(struct bpe *bpe, int32_t left, int32_t right)
{
    assert(left >= 0 && right >= 0 && (size_t)left < bpe->vocab_size &&
           (size_t)right < bpe->vocab_size);
    assert(bpe->merge_count < bpe->merge_capacity);
    const struct bpe_token *a = &bpe->tokens[left], *b = &bpe->tokens[right];
    char joined[2 * BPE_TOKEN_BYTES_MAX];
    const size_t count = (size_t)a->count + b->count;
    memcpy(joined, bpe->text + a->offset, a->count);
    memcpy(joined + a->count, bpe->text + b->offset, b->count);
    const int32_t result = bpe_find(bpe, joined, count);
    if (result < 0)
        return false;
    bpe->merges[bpe->merge_count++] =
        (struct bpe_merge){.left = left, .right = right, .result = result};
    return true;
}

/* ---- finishing ---- */

enum gt_status bpe_add_special(struct bpe *bpe, size_t id, const char *text)
{
    bpe->text_capacity = bpe->text_count + strlen(text);
    TRY(HOSTMEM_GROW(bpe, &bpe->text, bpe->text_capacity, "texts of tokens"));
    const enum bpe_add added = bpe_add_token(bpe, (int32_t)id, text, strlen(text), true);
    assert(added == BPE_ADDED);
    (void)added;
    return GT_OK;
}

enum gt_status bpe_add_eot(struct bpe *bpe, size_t id)
{
    assert(id < bpe->vocab_size);
    bpe->vocab_size = id + 1;
    return bpe_add_special(bpe, id, BPE_EOT_TEXT);
}

void bpe_set_literal(struct bpe *bpe, int32_t id)
{
    assert(bpe_is_special(bpe, id));
    bpe->tokens[id].literal = true;
}

void bpe_set_normalized(struct bpe *bpe, int32_t id)
{
    assert(bpe_is_special(bpe, id));
    bpe->tokens[id].normalized = true;
}

void bpe_set_strip(struct bpe *bpe, int32_t id, struct bpe_strip strip)
{
    assert(bpe_is_special(bpe, id));
    bpe->tokens[id].strip = strip;
}

enum gt_status bpe_set_pipeline(struct bpe *bpe, const struct bpe_pipeline *pipeline)
{
    char *json;
    TRY(hostmem_strdup(bpe, pipeline->json, &json));
    bpe->pipeline = *pipeline;
    bpe->pipeline.json = json;
    return GT_OK;
}

static enum gt_status check_complete(const struct bpe *bpe, const char *source)
{
    for (size_t id = 0; id < bpe->vocab_size; id++)
        if (bpe->tokens[id].count == 0)
            return FAIL(GT_DATA, "%s: no token has the id %zu, of %zu", source, id,
                        bpe->vocab_size);
    int bytes = 0, lacking = 256;
    for (int byte = 255; byte >= 0; byte--) {
        bytes += bpe->byte_ids[byte] >= 0;
        lacking = bpe->byte_ids[byte] < 0 ? byte : lacking;
    }
    /* tiktoken fails on such a byte; Hugging Face's tokenizers leave it out. */
    if (bytes < 256 && bpe->pipeline.characters)
        return FAIL(GT_UNSUPPORTED,
                    "%s: byte_fallback needs the tokens <0x00> to <0xFF>, and <0x%02X> is missing",
                    source, (unsigned)lacking);
    if (bytes == 0 || (bytes < 256 && bpe->rank == BPE_RANK_TOKEN))
        return FAIL(GT_DATA,
                    "%s: the byte 0x%02X is not a token, so this is not a byte-level vocabulary",
                    source, (unsigned)lacking);
    return GT_OK;
}

bool bpe_is_unknown(const struct bpe *bpe, char byte)
{
    return bpe->byte_ids[(unsigned char)byte] < 0;
}

bool bpe_lacks_bytes(const struct bpe *bpe)
{
    for (int byte = 0; byte < 256; byte++)
        if (bpe_is_unknown(bpe, (char)byte))
            return true;
    return false;
}

int32_t bpe_special_find(const struct bpe *bpe, const char *text)
{
    const size_t length = strlen(text);
    for (size_t i = 0; i < bpe->special_count; i++) {
        const struct bpe_token *token = &bpe->tokens[bpe->specials[i]];
        if (token->count == length && memcmp(bpe->text + token->offset, text, length) == 0)
            return bpe->specials[i];
    }
    return -1;
}

static enum gt_status list_specials(struct bpe *bpe)
{
    size_t next = 0;
    TRY(HOSTMEM_NEW(bpe, bpe->special_count, "special tokens", &bpe->specials));
    for (size_t id = 0; id < bpe->vocab_size; id++)
        if (bpe->tokens[id].special)
            bpe->specials[next++] = (int32_t)id;
    assert(next == bpe->special_count);
    static const char *const ends[] = {BPE_EOT_TEXT, BPE_EOT_TEXT_OF_LLAMA, "</s>", "<eos>"};
    for (int i = 0; i < 4 && bpe->eot < 0; i++)
        bpe->eot = bpe_special_find(bpe, ends[i]);
    return GT_OK;
}

static uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* Returns the pair's slot, or the free slot for it. */
static struct bpe_pair *pair_slot(const struct bpe *bpe, int32_t left, int32_t right)
{
    const uint64_t key = pair_key(left, right);
    size_t slot = (size_t)((key ^ key >> 31) * UINT64_C(0x9E3779B97F4A7C15) >> 24) & bpe->pair_mask;
    while (bpe->pairs[slot].key != PAIR_FREE && bpe->pairs[slot].key != key)
        slot = (slot + 1) & bpe->pair_mask;
    return &bpe->pairs[slot];
}

/* A later merge of the same pair replaces the earlier one, as in encoder.py's dict. */
static void pair_insert(struct bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t result)
{
    *pair_slot(bpe, left, right) =
        (struct bpe_pair){.key = pair_key(left, right), .rank = rank, .result = result};
}

static enum gt_status pairs_allocate(struct bpe *bpe, size_t count)
{
    const size_t capacity = table_capacity(count);
    TRY(HOSTMEM_NEW(bpe, capacity, "pairs of tokens", &bpe->pairs));
    bpe->pair_mask = capacity - 1;
    for (size_t i = 0; i < capacity; i++)
        bpe->pairs[i] = (struct bpe_pair){.key = PAIR_FREE, .rank = RANK_NONE};
    return GT_OK;
}

/* Counts the ways to cut a token into two others, and inserts the pairs if `insert`. */
static size_t token_cut(struct bpe *bpe, size_t id, bool insert)
{
    const struct bpe_token *token = &bpe->tokens[id];
    const char *bytes = bpe->text + token->offset;
    size_t found = 0;
    for (size_t i = 1; i < token->count; i++) {
        const int32_t left = bpe_find(bpe, bytes, i);
        const int32_t right = left >= 0 ? bpe_find(bpe, bytes + i, token->count - i) : -1;
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

static uint32_t hash_all(const struct bpe *bpe)
{
    uint32_t crc = file_crc32c(0, "bpe", 3);
    crc = le_crc32c(crc, (uint32_t)bpe->rank);
    crc = le_crc32c(crc, (uint32_t)bpe->vocab_size);
    for (size_t id = 0; id < bpe->vocab_size; id++) {
        const struct bpe_token *token = &bpe->tokens[id];
        crc = le_crc32c(crc, token->count | (token->special ? UINT32_C(1) << 31 : 0));
        crc = file_crc32c(crc, bpe->text + token->offset, token->count);
    }
    for (size_t i = 0; i < bpe->merge_count; i++) {
        crc = le_crc32c(crc, (uint32_t)bpe->merges[i].left);
        crc = le_crc32c(crc, (uint32_t)bpe->merges[i].right);
    }
    const char *json = bpe->pipeline.json;
    return json != NULL ? file_crc32c(crc, json, strlen(json)) : crc;
}

/* Sets bpe->whole to false if pieces may end where words do: no merge makes a token that extends
 * over the end of a word. */
static void find_whole(struct bpe *bpe)
{
    bpe->whole = bpe->pipeline.ignore_merges;
    for (size_t i = 0; i < bpe->merge_count && !bpe->whole; i++) {
        const struct bpe_token *token = &bpe->tokens[bpe->merges[i].result];
        bpe->whole = bpe_marks_inside(bpe->text + token->offset, token->count);
    }
}

enum gt_status bpe_finish(struct bpe *bpe, const char *source)
{
    assert(bpe->pairs == NULL && bpe->index != NULL);
    TRY(check_complete(bpe, source));
    if (bpe->pipeline.characters)
        find_whole(bpe);
    TRY(list_specials(bpe));
    TRY(bpe->rank == BPE_RANK_MERGE ? pairs_from_merges(bpe) : pairs_from_tokens(bpe));
    if (!bpe->pipeline.ignore_merges && !bpe->pipeline.characters) {
        hostmem_free(bpe->index);
        bpe->index = NULL;
    }
    bpe->hash = hash_all(bpe);
    return GT_OK;
}

/* ---- queries ---- */

size_t bpe_token(const struct bpe *bpe, int32_t id, const char **out)
{
    if (id < 0 || (size_t)id >= bpe->vocab_size)
        return 0;
    *out = bpe->text + bpe->tokens[id].offset;
    return bpe->tokens[id].count;
}

size_t bpe_token_shown(const struct bpe *bpe, int32_t id, const char **out)
{
    if (!bpe->pipeline.characters || id < 0 || (size_t)id >= bpe->vocab_size)
        return bpe_token(bpe, id, out);
    *out = bpe->shown + bpe->tokens[id].offset;
    return bpe->tokens[id].shown;
}

struct bpe_strip bpe_strip_of(const struct bpe *bpe, int32_t id)
{
    return bpe_is_special(bpe, id) ? bpe->tokens[id].strip : (struct bpe_strip){.left = false};
}

bool bpe_is_byte(const struct bpe *bpe, int32_t id)
{
    return id >= 0 && (size_t)id < bpe->vocab_size && bpe->tokens[id].is_byte;
}

bool bpe_is_special(const struct bpe *bpe, int32_t id)
{
    return id >= 0 && (size_t)id < bpe->vocab_size && bpe->tokens[id].special;
}

bool bpe_is_literal(const struct bpe *bpe, int32_t id)
{
    return bpe_is_special(bpe, id) && bpe->tokens[id].literal;
}

bool bpe_is_normalized(const struct bpe *bpe, int32_t id)
{
    return bpe_is_special(bpe, id) && bpe->tokens[id].normalized;
}

/* ---- encoding ---- */

void bpe_scratch_release(struct bpe_scratch *scratch)
{
    free(scratch->memory);
    *scratch = (struct bpe_scratch){.memory = NULL};
}

struct piece {
    const struct bpe *bpe;
    uint64_t *heap;     /* rank << 32 | place; room for 3 per byte: one initially, two per merge */
    int32_t *ids;       /* by place, the offset of the token's first byte */
    uint32_t *ranks;    /* of the pair that starts here */
    uint32_t *previous; /* places; PLACE_NONE at the ends */
    uint32_t *next;
    size_t heap_count;
};

_Static_assert(3 * sizeof(uint64_t) + 4 * sizeof(uint32_t) == 40,
               "bytes of scratch for each of a piece");

static enum gt_status scratch_reserve(struct bpe_scratch *scratch, size_t count)
{
    if (count <= scratch->piece_max)
        return GT_OK;
    size_t piece_max = count < SCRATCH_MIN ? SCRATCH_MIN : count, size_bytes;
    if (count >= INT32_MAX || !size_mul(piece_max, 40, &size_bytes))
        return GT_NO_MEMORY;
    void *memory = malloc(size_bytes);
    if (memory == NULL)
        return GT_NO_MEMORY;
    free(scratch->memory);
    *scratch = (struct bpe_scratch){.memory = memory, .piece_max = piece_max};
    return GT_OK;
}

static void heap_push(struct piece *piece, uint64_t entry)
{
    size_t at = piece->heap_count++;
    while (at > 0 && piece->heap[(at - 1) / 2] > entry) {
        piece->heap[at] = piece->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    piece->heap[at] = entry;
}

static uint64_t heap_pop(struct piece *piece)
{
    const uint64_t top = piece->heap[0], last = piece->heap[--piece->heap_count];
    size_t at = 0;
    for (size_t child = 1; child < piece->heap_count; child = 2 * at + 1) {
        if (child + 1 < piece->heap_count && piece->heap[child + 1] < piece->heap[child])
            child++;
        if (piece->heap[child] >= last)
            break;
        piece->heap[at] = piece->heap[child];
        at = child;
    }
    piece->heap[at] = last;
    return top;
}

/* Recomputes the rank of the pair that starts at `place`. */
static void place_rank(struct piece *piece, uint32_t place)
{
    const uint32_t next = piece->next[place];
    piece->ranks[place] = RANK_NONE;
    if (next == PLACE_NONE)
        return;
    piece->ranks[place] = pair_slot(piece->bpe, piece->ids[place], piece->ids[next])->rank;
    if (piece->ranks[place] != RANK_NONE)
        heap_push(piece, (uint64_t)piece->ranks[place] << 32 | place);
}

static void place_merge(struct piece *piece, uint32_t place)
{
    const uint32_t gone = piece->next[place];
    assert(gone != PLACE_NONE);
    piece->ids[place] = pair_slot(piece->bpe, piece->ids[place], piece->ids[gone])->result;
    piece->ranks[gone] = RANK_NONE;
    piece->next[place] = piece->next[gone];
    if (piece->next[place] != PLACE_NONE)
        piece->previous[piece->next[place]] = place;
    place_rank(piece, place);
    if (piece->previous[place] != PLACE_NONE)
        place_rank(piece, piece->previous[place]);
}

/* Sets ids to the tokens of the bytes.  Returns their number: bytes without a token may be left
 * out. */
static size_t bytes_read(const struct bpe *bpe, const char *bytes, size_t count, int32_t *ids)
{
    const struct bpe_pipeline *pipeline = &bpe->pipeline;
    size_t id_count = 0;
    bool after_unknown = false;
    for (size_t i = 0; i < count; i++) {
        const int32_t id = bpe->byte_ids[(unsigned char)bytes[i]];
        const bool left_out =
            id < 0 && (pipeline->unknown < 0 || (after_unknown && pipeline->fuse_unknown));
        if (!left_out)
            ids[id_count++] = id < 0 ? pipeline->unknown : id;
        after_unknown = id < 0;
    }
    return id_count;
}

/* Sets ids to the tokens of the characters, or of the bytes of those without one.  Returns their
 * number. */
static size_t characters_read(const struct bpe *bpe, const char *text, size_t count, int32_t *ids)
{
    size_t id_count = 0;
    for (size_t at = 0; at < count;) {
        uint32_t code_point;
        const int length = utf8_decode((const unsigned char *)text + at, count - at, &code_point);
        const size_t used = length > 0 ? (size_t)length : 1;
        const int32_t id = length > 0 ? bpe_find(bpe, text + at, used) : -1;
        if (id >= 0)
            ids[id_count++] = id;
        for (size_t i = 0; i < used && id < 0; i++)
            ids[id_count++] = bpe->byte_ids[(unsigned char)text[at + i]];
        at += used;
    }
    return id_count;
}

static size_t piece_merge(const struct bpe *bpe, void *scratch, const char *bytes, size_t count,
                          int32_t *out)
{
    struct piece piece = {.bpe = bpe, .heap = scratch};
    piece.ids = (int32_t *)(void *)(piece.heap + 3 * count);
    piece.ranks = (uint32_t *)(void *)(piece.ids + count);
    piece.previous = piece.ranks + count;
    piece.next = piece.previous + count;
    count = bpe->pipeline.characters ? characters_read(bpe, bytes, count, piece.ids)
                                     : bytes_read(bpe, bytes, count, piece.ids);
    if (count == 0)
        return 0;
    for (size_t i = 0; i < count; i++) {
        piece.previous[i] = i == 0 ? PLACE_NONE : (uint32_t)i - 1;
        piece.next[i] = i + 1 == count ? PLACE_NONE : (uint32_t)i + 1;
    }
    for (size_t i = 0; i < count; i++)
        place_rank(&piece, (uint32_t)i);
    while (piece.heap_count > 0) {
        const uint64_t entry = heap_pop(&piece);
        const uint32_t place = (uint32_t)(entry & UINT32_MAX);
        if (piece.ranks[place] == entry >> 32)
            place_merge(&piece, place);
        assert(piece.heap_count <= 3 * count);
    }
    size_t ids = 0;
    for (uint32_t place = 0; place != PLACE_NONE; place = piece.next[place])
        out[ids++] = piece.ids[place];
    return ids;
}

enum gt_status bpe_encode_piece(const struct bpe *bpe, struct bpe_scratch *scratch,
                                const char *bytes, size_t count, int32_t *out, size_t *out_count)
{
    assert(bpe->pairs != NULL);
    const int32_t whole = bpe->pipeline.ignore_merges ? bpe_find(bpe, bytes, count) : -1;
    *out_count = count > 0;
    if (whole >= 0)
        out[0] = whole;
    if (whole >= 0 || count == 0)
        return GT_OK;
    TRY(scratch_reserve(scratch, count));
    *out_count = piece_merge(bpe, scratch->memory, bytes, count, out);
    return GT_OK;
}

size_t bpe_count_unknown(const struct bpe *bpe, const char *bytes, size_t count,
                         uint64_t counts[static 256])
{
    size_t found = 0;
    if (bpe->pipeline.ignore_merges && bpe_find(bpe, bytes, count) >= 0)
        return 0;
    for (size_t i = 0; i < count; i++) {
        const bool unknown = bpe_is_unknown(bpe, bytes[i]);
        counts[(unsigned char)bytes[i]] += unknown;
        found += unknown;
    }
    return found;
}

/* ---- GPT-2's alphabet ---- */

/* Runs of bytes in the order of their characters: the printable ones, which represent themselves,
 * then those that map to consecutive characters from U+0100. */
static const struct {
    int begin, count;
} runs[] = {{33, 94}, {161, 12}, {174, 82}, {0, 33}, {127, 34}, {173, 1}};
enum {
    RUNS_DIRECT = 3,
    RUNS = sizeof runs / sizeof runs[0],
    DIRECT_COUNT = 188,
    SHIFTED = 0x100,
    SHIFTED_END = 0x144
};

unsigned char bpe_alphabet_byte(int rank)
{
    assert(rank >= 0 && rank < 256);
    int run = 0;
    for (; rank >= runs[run].count; run++)
        rank -= runs[run].count;
    return (unsigned char)(runs[run].begin + rank);
}

static uint32_t byte_character(int byte)
{
    int character = SHIFTED;
    for (int run = RUNS_DIRECT; run < RUNS; character += runs[run++].count)
        if (byte >= runs[run].begin && byte < runs[run].begin + runs[run].count)
            return (uint32_t)(character + byte - runs[run].begin);
    return (uint32_t)byte;
}

size_t bpe_alphabet_write(const char *bytes, size_t count, char *out)
{
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        char encoded[4];
        const size_t used = utf8_encode(byte_character((unsigned char)bytes[i]), encoded);
        assert(used <= 2);
        memcpy(out + length, encoded, used);
        length += used;
    }
    return length;
}

size_t bpe_alphabet_write_pair(const char *left, size_t left_count, const char *right,
                               size_t right_count, char *out)
{
    size_t length = bpe_alphabet_write(left, left_count, out);
    out[length++] = ' ';
    length += bpe_alphabet_write(right, right_count, out + length);
    out[length] = '\0';
    return length;
}

size_t bpe_merge_write(const struct bpe *bpe, size_t index, char out[static BPE_MERGE_BYTES])
{
    const struct bpe_token *left = &bpe->tokens[bpe->merges[index].left];
    const struct bpe_token *right = &bpe->tokens[bpe->merges[index].right];
    if (bpe->pipeline.characters)
        return (size_t)snprintf(out, BPE_MERGE_BYTES, "%.*s %.*s", left->count,
                                bpe->text + left->offset, right->count, bpe->text + right->offset);
    return bpe_alphabet_write_pair(bpe->text + left->offset, left->count, bpe->text + right->offset,
                                   right->count, out);
}

bool bpe_alphabet_read(const char *text, size_t count, char *out, size_t *out_count)
{
    size_t length = 0;
    for (size_t at = 0; at < count;) {
        uint32_t code_point = 0;
        const int used = utf8_decode((const unsigned char *)text + at, count - at, &code_point);
        if (used <= 0 || code_point >= SHIFTED_END)
            return false;
        const int byte = code_point < SHIFTED
                             ? (int)code_point
                             : bpe_alphabet_byte((int)code_point - SHIFTED + DIRECT_COUNT);
        if (byte_character(byte) != code_point)
            return false;
        out[length++] = (char)byte;
        at += (size_t)used;
    }
    *out_count = length;
    return true;
}
