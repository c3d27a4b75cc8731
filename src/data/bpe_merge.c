/* Byte-pair encoding: merging one piece.
 *
 * Short pieces, which are nearly all, keep ranks in an array and search it for the minimum each time, because n is
 * small.  Long ones (a line of dashes, base64, a language without spaces) use a linked list of tokens and a heap of
 * (rank, place), which orders by rank and then from left to right.  A heap entry whose rank differs from its place's
 * current rank is stale and is dropped.  Both do the same merges in the same order.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "data/bpe_internal.h"

enum { SHORT_MAX = 48, SCRATCH_MIN = 4096 };

void bpe_scratch_release(struct bpe_scratch *scratch)
{
    free(scratch->memory);
    *scratch = (struct bpe_scratch){.memory = NULL};
}

static uint32_t pair_rank(const struct bpe *bpe, int32_t left, int32_t right)
{
    const struct bpe_pair *pair = bpe_pair_find(bpe, left, right);
    return pair != NULL ? pair->rank : BPE_RANK_NONE;
}

static size_t encode_short(const struct bpe *bpe, const char *bytes, size_t count, int32_t *out)
{
    int32_t ids[SHORT_MAX];
    uint32_t ranks[SHORT_MAX]; /* of (ids[i], ids[i + 1]) */
    assert(count >= 1 && count <= SHORT_MAX);
    for (size_t i = 0; i < count; i++)
        ids[i] = bpe->byte_ids[(unsigned char)bytes[i]];
    for (size_t i = 0; i + 1 < count; i++)
        ranks[i] = pair_rank(bpe, ids[i], ids[i + 1]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            best = ranks[i] < ranks[best] ? i : best;
        if (ranks[best] == BPE_RANK_NONE)
            break;
        ids[best] = bpe_pair_find(bpe, ids[best], ids[best + 1])->result;
        count--;
        memmove(ids + best + 1, ids + best + 2, (count - best - 1) * sizeof ids[0]);
        memmove(ranks + best, ranks + best + 1, (count - best - 1) * sizeof ranks[0]);
        if (best + 1 < count)
            ranks[best] = pair_rank(bpe, ids[best], ids[best + 1]);
        if (best > 0)
            ranks[best - 1] = pair_rank(bpe, ids[best - 1], ids[best]);
    }
    memcpy(out, ids, count * sizeof ids[0]);
    return count;
}

/* ---- long pieces ---- */

#define LONG_NONE UINT32_MAX

struct long_piece {
    const struct bpe *bpe;
    uint64_t *heap;     /* rank << 32 | place; room for 3 per byte: one initially, two per merge */
    int32_t *ids;       /* by place, the offset of the token's first byte */
    uint32_t *ranks;    /* of the pair that starts here */
    uint32_t *previous; /* places; LONG_NONE at the ends */
    uint32_t *next;
    size_t heap_count;
};

_Static_assert(3 * sizeof(uint64_t) + 4 * sizeof(uint32_t) == 40, "bytes of scratch for each of a piece");

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

static void heap_push(struct long_piece *piece, uint64_t entry)
{
    size_t at = piece->heap_count++;
    while (at > 0 && piece->heap[(at - 1) / 2] > entry) {
        piece->heap[at] = piece->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    piece->heap[at] = entry;
}

static uint64_t heap_pop(struct long_piece *piece)
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
static void long_rank(struct long_piece *piece, uint32_t place)
{
    const uint32_t next = piece->next[place];
    piece->ranks[place] = BPE_RANK_NONE;
    if (next == LONG_NONE)
        return;
    piece->ranks[place] = pair_rank(piece->bpe, piece->ids[place], piece->ids[next]);
    if (piece->ranks[place] != BPE_RANK_NONE)
        heap_push(piece, (uint64_t)piece->ranks[place] << 32 | place);
}

static void long_merge(struct long_piece *piece, uint32_t place)
{
    const uint32_t gone = piece->next[place];
    assert(gone != LONG_NONE);
    piece->ids[place] = bpe_pair_find(piece->bpe, piece->ids[place], piece->ids[gone])->result;
    piece->ranks[gone] = BPE_RANK_NONE;
    piece->next[place] = piece->next[gone];
    if (piece->next[place] != LONG_NONE)
        piece->previous[piece->next[place]] = place;
    long_rank(piece, place);
    if (piece->previous[place] != LONG_NONE)
        long_rank(piece, piece->previous[place]);
}

static size_t encode_long(const struct bpe *bpe, void *scratch, const char *bytes, size_t count, int32_t *out)
{
    struct long_piece piece = {.bpe = bpe, .heap = scratch};
    piece.ids = (int32_t *)(void *)(piece.heap + 3 * count);
    piece.ranks = (uint32_t *)(void *)(piece.ids + count);
    piece.previous = piece.ranks + count;
    piece.next = piece.previous + count;
    for (size_t i = 0; i < count; i++) {
        piece.ids[i] = bpe->byte_ids[(unsigned char)bytes[i]];
        piece.previous[i] = i == 0 ? LONG_NONE : (uint32_t)i - 1;
        piece.next[i] = i + 1 == count ? LONG_NONE : (uint32_t)i + 1;
    }
    for (size_t i = 0; i < count; i++)
        long_rank(&piece, (uint32_t)i);
    while (piece.heap_count > 0) {
        const uint64_t entry = heap_pop(&piece);
        const uint32_t place = (uint32_t)(entry & UINT32_MAX);
        if (piece.ranks[place] == entry >> 32)
            long_merge(&piece, place);
        assert(piece.heap_count <= 3 * count);
    }
    size_t ids = 0;
    for (uint32_t place = 0; place != LONG_NONE; place = piece.next[place])
        out[ids++] = piece.ids[place];
    return ids;
}

enum gt_status bpe_encode_piece(const struct bpe *bpe, struct bpe_scratch *scratch, const char *bytes, size_t count,
                                int32_t *out, size_t *out_count)
{
    assert(bpe->pairs != NULL);
    if (count == 0) {
        *out_count = 0;
    } else if (count <= SHORT_MAX) {
        *out_count = encode_short(bpe, bytes, count, out);
    } else {
        TRY(scratch_reserve(scratch, count));
        *out_count = encode_long(bpe, scratch->memory, bytes, count, out);
    }
    return GT_OK;
}
