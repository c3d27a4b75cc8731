/* Training a byte-pair encoding: counts the pieces of a text, and merges.
 *
 * Distinct pieces are stored once, with a count, in an open-addressing table; their texts are
 * concatenated in one array.  The memory of the merging depends only on the distinct pieces, not on
 * the text.
 *
 * Every distinct piece is an array of ids, initially its bytes.  A table stores for each adjacent
 * pair of ids its count over the text and a list of the pieces that contain it or once did; a heap
 * orders pairs by count and then by ids.  A merge touches only the pieces of its pair and updates
 * the counts of the adjacent pairs.  A popped heap entry with an outdated count is reinserted with
 * the current one.  This keeps the heap simple and the order exact, because counts of old pairs
 * only fall, and pairs whose count rose are inserted again.
 */

#include "data/bpe_train.h"

#include "base/file.h"
#include "base/size.h"
#include "data/bpe.h"

/* Initial capacities, which grow.  Fuzzing starts with less. */
#ifndef BPE_PIECES_MIN
#define BPE_PIECES_MIN 4096
#endif
#define BPE_PAIRS_MIN ((size_t)4 * BPE_PIECES_MIN) /* a power of two */

#define NODE_NONE UINT32_MAX
#define KEY_FREE UINT64_MAX

struct bpe_piece {
    size_t offset; /* into the text */
    uint32_t length;
    uint64_t count;
};

struct bpe_trainer {
    struct bpe_splitter *splitter;
    struct bpe_piece *pieces;
    size_t piece_count;
    char *text; /* of all pieces */
    size_t text_count;
    uint32_t *table; /* piece + 1; 0: free */
    size_t table_mask;
    const char *const *specials; /* of the template, or NULL */
    size_t special_count;
};

enum gt_status bpe_trainer_create(const void *owner, const char *const *specials,
                                  struct bpe_trainer **out)
{
    struct bpe_trainer *trainer;
    TRY(HOSTMEM_NEW(owner, 1, "training a tokenizer", &trainer));
    trainer->specials = specials;
    while (specials != NULL && specials[trainer->special_count] != NULL)
        trainer->special_count++;
    const enum gt_status status = bpe_splitter_create(trainer, BPE_SPLIT_GPT2, &trainer->splitter);
    return FINISH(status, out, trainer, hostmem_free);
}

/* ---- the table of pieces ---- */

static size_t table_slot(const struct bpe_trainer *trainer, const char *bytes, size_t count)
{
    const uint64_t hash = hash_fnv1a(bytes, count);
    size_t slot = (size_t)(hash ^ hash >> 29) & trainer->table_mask;
    for (; trainer->table[slot] != 0; slot = (slot + 1) & trainer->table_mask) {
        const struct bpe_piece *piece = &trainer->pieces[trainer->table[slot] - 1];
        if (piece->length == count && memcmp(trainer->text + piece->offset, bytes, count) == 0)
            break;
    }
    return slot;
}

/* Grows the table to keep it at most half full. */
static enum gt_status table_reserve(struct bpe_trainer *trainer)
{
    uint32_t *larger;
    const size_t pieces = trainer->piece_count,
                 now = trainer->table == NULL ? 0 : trainer->table_mask + 1;
    if (2 * (pieces + 1) <= now)
        return GT_OK;
    const size_t capacity = now == 0 ? (size_t)2 * BPE_PIECES_MIN : 2 * now;
    TRY(HOSTMEM_NEW(trainer, capacity, "table of pieces", &larger));
    hostmem_free(trainer->table);
    trainer->table = larger;
    trainer->table_mask = capacity - 1;
    for (size_t i = 0; i < pieces; i++) {
        const struct bpe_piece *piece = &trainer->pieces[i];
        trainer->table[table_slot(trainer, trainer->text + piece->offset, piece->length)] =
            (uint32_t)i + 1;
    }
    return GT_OK;
}

static enum gt_status piece_append(struct bpe_trainer *trainer, const char *bytes, size_t count)
{
    assert(trainer->piece_count < UINT32_MAX - 1 && count <= UINT32_MAX);
    TRY(HOSTMEM_GROW(trainer, &trainer->pieces, trainer->piece_count + 1, "pieces"));
    TRY(HOSTMEM_GROW(trainer, &trainer->text, trainer->text_count + count, "texts of pieces"));
    memcpy(trainer->text + trainer->text_count, bytes, count);
    trainer->pieces[trainer->piece_count++] =
        (struct bpe_piece){.offset = trainer->text_count, .length = (uint32_t)count, .count = 1};
    trainer->text_count += count;
    return GT_OK;
}

enum gt_status bpe_trainer_add(struct bpe_trainer *trainer, const char *text, size_t count)
{
    const char *bytes = NULL;
    bpe_splitter_begin(trainer->splitter, text, count);
    for (size_t length; (length = bpe_splitter_next(trainer->splitter, &bytes)) > 0;) {
        TRY(table_reserve(trainer));
        const size_t slot = table_slot(trainer, bytes, length);
        if (trainer->table[slot] == 0) {
            TRY(piece_append(trainer, bytes, length));
            trainer->table[slot] = (uint32_t)trainer->piece_count;
        } else {
            trainer->pieces[trainer->table[slot] - 1].count++;
        }
    }
    return GT_OK;
}

/* ---- merging: the state ---- */

struct pair_count {
    uint64_t key; /* left << 32 | right */
    int64_t count;
    uint32_t first_node; /* head of the list of pieces */
    bool entered;        /* in `fresh` during the current merge */
};

struct pair_node {
    uint32_t piece;
    uint32_t next;
};

struct pair_entry {
    int64_t count;
    uint64_t key;
};

struct train {
    const struct bpe_trainer *counts;
    int32_t *symbols;  /* of all pieces, at their texts' offsets */
    uint32_t *lengths; /* number of symbols left in each piece */
    struct pair_count *pairs;
    size_t pair_count, pair_capacity; /* the capacity is a power of two, at most half used */
    struct pair_node *nodes;
    size_t node_count;
    struct pair_entry *heap;
    size_t heap_count;
    uint64_t *fresh; /* keys of pairs whose count rose in this merge */
    size_t fresh_count;
    struct bpe *bpe;
    size_t vocab_target; /* without special tokens */
    size_t token_count;
};

/* ---- pairs ---- */

static uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t pair_slot(const struct train *train, uint64_t key)
{
    const size_t mask = train->pair_capacity - 1;
    size_t slot = (size_t)((key ^ key >> 31) * UINT64_C(0x9E3779B97F4A7C15) >> 24) & mask;
    while (train->pairs[slot].key != KEY_FREE && train->pairs[slot].key != key)
        slot = (slot + 1) & mask;
    return slot;
}

static enum gt_status pairs_reserve(struct train *train)
{
    struct pair_count *old = train->pairs;
    const size_t old_capacity = train->pair_capacity;
    if (2 * (train->pair_count + 1) <= old_capacity)
        return GT_OK;
    const size_t capacity = old_capacity == 0 ? BPE_PAIRS_MIN : 2 * old_capacity;
    TRY(HOSTMEM_NEW(train, capacity, "counts of pairs", &train->pairs));
    train->pair_capacity = capacity;
    for (size_t i = 0; i < capacity; i++)
        train->pairs[i].key = KEY_FREE;
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i].key != KEY_FREE)
            train->pairs[pair_slot(train, old[i].key)] = old[i];
    hostmem_free(old);
    return GT_OK;
}

/* Subtracts the count of `piece` from a pair that it no longer contains. */
static void pair_lose(struct train *train, int32_t left, int32_t right, size_t piece)
{
    struct pair_count *pair = &train->pairs[pair_slot(train, pair_key(left, right))];
    assert(pair->key != KEY_FREE);
    pair->count -= (int64_t)train->counts->pieces[piece].count;
    assert(pair->count >= 0);
}

/* Adds the count of `piece` to a pair that it now contains. */
static enum gt_status pair_gain(struct train *train, int32_t left, int32_t right, size_t piece)
{
    TRY(pairs_reserve(train));
    struct pair_count *pair = &train->pairs[pair_slot(train, pair_key(left, right))];
    if (pair->key == KEY_FREE) {
        *pair = (struct pair_count){.key = pair_key(left, right), .first_node = NODE_NONE};
        train->pair_count++;
    }
    pair->count += (int64_t)train->counts->pieces[piece].count;
    if (!pair->entered) {
        TRY(HOSTMEM_GROW(train, &train->fresh, train->fresh_count + 1, "new pairs"));
        train->fresh[train->fresh_count++] = pair->key;
        pair->entered = true;
    }
    /* Pieces are processed one after the other, so if the list has this piece, it is the newest. */
    if (pair->first_node != NODE_NONE && train->nodes[pair->first_node].piece == piece)
        return GT_OK;
    if (train->node_count >= NODE_NONE - 1)
        return FAIL(GT_NO_MEMORY,
                    "training a tokenizer: too much text, with more than %u pairs; give less",
                    NODE_NONE - 1);
    TRY(HOSTMEM_GROW(train, &train->nodes, train->node_count + 1, "places of pairs"));
    train->nodes[train->node_count] =
        (struct pair_node){.piece = (uint32_t)piece, .next = pair->first_node};
    pair->first_node = (uint32_t)train->node_count++;
    return GT_OK;
}

/* ---- the heap: largest count first, then smallest ids ---- */

static bool entry_before(const struct pair_entry *a, const struct pair_entry *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static void heap_sink(struct train *train, struct pair_entry entry)
{
    size_t at = 0;
    for (size_t child = 1; child < train->heap_count; child = 2 * at + 1) {
        if (child + 1 < train->heap_count &&
            entry_before(&train->heap[child + 1], &train->heap[child]))
            child++;
        if (!entry_before(&train->heap[child], &entry))
            break;
        train->heap[at] = train->heap[child];
        at = child;
    }
    train->heap[at] = entry;
}

static enum gt_status heap_push(struct train *train, struct pair_entry entry)
{
    TRY(HOSTMEM_GROW(train, &train->heap, train->heap_count + 1, "queue of pairs"));
    size_t at = train->heap_count++;
    while (at > 0 && entry_before(&entry, &train->heap[(at - 1) / 2])) {
        train->heap[at] = train->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    train->heap[at] = entry;
    return GT_OK;
}

/* Removes the best pair; returns false when none is left. */
static bool heap_pop(struct train *train, uint64_t *out)
{
    while (train->heap_count > 0) {
        const struct pair_entry top = train->heap[0];
        const int64_t now = train->pairs[pair_slot(train, top.key)].count;
        const bool is_current = top.count == now;
        heap_sink(train, is_current || now == 0
                             ? train->heap[--train->heap_count]
                             : (struct pair_entry){.count = now, .key = top.key});
        if (is_current) {
            *out = top.key;
            return true;
        }
    }
    return false;
}

static enum gt_status fresh_enter(struct train *train)
{
    for (size_t i = 0; i < train->fresh_count; i++) {
        struct pair_count *pair = &train->pairs[pair_slot(train, train->fresh[i])];
        pair->entered = false;
        if (pair->count > 0)
            TRY(heap_push(train, (struct pair_entry){.count = pair->count, .key = pair->key}));
    }
    train->fresh_count = 0;
    return GT_OK;
}

/* ---- merging ---- */

static enum gt_status piece_merge(struct train *train, size_t piece, int32_t left, int32_t right,
                                  int32_t result)
{
    int32_t *symbols = train->symbols + train->counts->pieces[piece].offset;
    const size_t count = train->lengths[piece];
    size_t kept = 0;
    for (size_t at = 0; at < count; kept++) {
        if (at + 1 == count || symbols[at] != left || symbols[at + 1] != right) {
            symbols[kept] = symbols[at++];
            continue;
        }
        pair_lose(train, left, right, piece);
        if (kept > 0) {
            pair_lose(train, symbols[kept - 1], left, piece);
            TRY(pair_gain(train, symbols[kept - 1], result, piece));
        }
        if (at + 2 < count) {
            pair_lose(train, right, symbols[at + 2], piece);
            TRY(pair_gain(train, result, symbols[at + 2], piece));
        }
        symbols[kept] = result;
        at += 2;
    }
    train->lengths[piece] = (uint32_t)kept;
    return GT_OK;
}

/* Returns the pair's token, which is new unless its text already is a token; -1 when it would be
 * too long. */
static int32_t token_make(struct train *train, int32_t left, int32_t right)
{
    char text[2 * BPE_TOKEN_BYTES_MAX];
    const char *bytes = NULL;
    size_t count = bpe_token(train->bpe, left, &bytes);
    memcpy(text, bytes, count);
    const size_t right_count = bpe_token(train->bpe, right, &bytes);
    memcpy(text + count, bytes, right_count);
    count += right_count;
    if (count > BPE_TOKEN_BYTES_MAX)
        return -1;
    int32_t id = bpe_find(train->bpe, text, count);
    if (id < 0) {
        id = (int32_t)train->token_count;
        const enum bpe_add added = bpe_add_token(train->bpe, id, text, count, false);
        if (added != BPE_ADDED) /* no room left for texts */
            return -1;
        train->token_count++;
    }
    const bool merged = bpe_add_merge(train->bpe, left, right);
    assert(merged);
    (void)merged;
    return id;
}

static enum gt_status pair_merge(struct train *train, uint64_t key)
{
    const int32_t left = (int32_t)(key >> 32), right = (int32_t)(key & UINT32_MAX);
    const int32_t result = token_make(train, left, right);
    if (result < 0)
        return GT_OK;
    uint32_t node = train->pairs[pair_slot(train, key)].first_node;
    train->pairs[pair_slot(train, key)].first_node = NODE_NONE;
    for (; node != NODE_NONE; node = train->nodes[node].next)
        TRY(piece_merge(train, train->nodes[node].piece, left, right, result));
    return fresh_enter(train);
}

/* ---- setup and teardown ---- */

static enum gt_status train_allocate(struct train *train)
{
    TRY(HOSTMEM_NEW(train, train->counts->text_count, "ids of pieces", &train->symbols));
    TRY(HOSTMEM_NEW(train, train->counts->piece_count, "lengths of pieces", &train->lengths));
    /* Tokens are 6 bytes long on average; one without room is not created.  Several merges may have
     * the same result. */
    const size_t text_bytes = 65536 + 128 * train->vocab_target;
    const struct bpe_spec spec = {
        .vocab_size = train->vocab_target + train->counts->special_count + 1,
        .text_bytes = text_bytes < BPE_TEXT_BYTES_MAX ? text_bytes : BPE_TEXT_BYTES_MAX,
        .merge_count = 2 * train->vocab_target,
        .rank = BPE_RANK_MERGE};
    return bpe_create(train, &spec, &train->bpe);
}

static enum gt_status train_begin(struct train *train)
{
    int32_t ids[256];
    TRY(train_allocate(train));
    for (int rank = 0; rank < 256; rank++) {
        const char byte = (char)bpe_alphabet_byte(rank);
        ids[(unsigned char)byte] = rank;
        (void)bpe_add_token(train->bpe, rank, &byte, 1, false);
    }
    train->token_count = 256;
    for (size_t i = 0; i < train->counts->text_count; i++)
        train->symbols[i] = ids[(unsigned char)train->counts->text[i]];
    for (size_t i = 0; i < train->counts->piece_count; i++) {
        const struct bpe_piece *piece = &train->counts->pieces[i];
        train->lengths[i] = piece->length;
        for (size_t k = piece->offset; k + 1 < piece->offset + piece->length; k++)
            TRY(pair_gain(train, train->symbols[k], train->symbols[k + 1], i));
    }
    return fresh_enter(train);
}

static enum gt_status train_run(struct train *train)
{
    uint64_t key = 0;
    TRY(train_begin(train));
    while (train->token_count < train->vocab_target && heap_pop(train, &key)) {
        if (train->bpe->merge_count == 2 * train->vocab_target)
            break;
        TRY(pair_merge(train, key));
    }
    return GT_OK;
}

/* Appends the special tokens and completes the vocabulary. */
static enum gt_status train_complete(struct train *train)
{
    for (size_t i = 0; i < train->counts->special_count; i++)
        TRY(bpe_add_special(train->bpe, train->token_count++, train->counts->specials[i]));
    TRY(bpe_add_eot(train->bpe, train->token_count));
    return bpe_finish(train->bpe, "the trained vocabulary");
}

enum gt_status bpe_trainer_finish(struct bpe_trainer *trainer, const void *owner,
                                  int64_t vocab_size, struct tokenizer **out)
{
    assert(vocab_size >= BPE_TRAIN_VOCAB_MIN && vocab_size <= BPE_TRAIN_VOCAB_MAX);
    struct train *train;
    hostmem_free(trainer->table);
    trainer->table = NULL;
    const int64_t target =
        max_i64(vocab_size - 1 - (int64_t)trainer->special_count, BPE_TRAIN_VOCAB_MIN - 1);
    TRY(HOSTMEM_NEW(trainer, 1, "training a tokenizer", &train));
    train->counts = trainer;
    train->vocab_target = (size_t)target;
    enum gt_status status = train_run(train);
    THEN(status, train_complete(train));
    THEN(status, tokenizer_create_bpe(owner, train->bpe, out));
    hostmem_free(train);
    return status;
}
