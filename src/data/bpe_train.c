/* Training a byte-pair encoding: counts the pieces of a text.
 *
 * Distinct pieces are stored once, with a count, in an open-addressing table; their texts are concatenated in one
 * array.  The merging is in bpe_train_merge.c; its memory depends only on the distinct pieces, not on the text.
 */
#include "data/bpe_train.h"

#include <assert.h>
#include <string.h>

#include "base/size.h"
#include "data/bpe_split.h"
#include "data/bpe_train_internal.h"

struct bpe_trainer {
    struct hostmem *mem; /* borrowed; outlives the trainer */
    struct bpe_splitter *splitter;
    struct bpe_counts counts;
    size_t piece_capacity, text_capacity;
    uint32_t *table; /* piece + 1; 0: free */
    size_t table_mask;
    uint64_t text_bytes, total_count;
};

enum gt_status bpe_trainer_create(struct hostmem *mem, struct bpe_trainer **out)
{
    void *memory = NULL;
    TRY(hostmem_alloc(mem, 1, sizeof(struct bpe_trainer), "training a tokenizer", &memory));
    struct bpe_trainer *trainer = memory;
    trainer->mem = mem;
    const enum gt_status status = bpe_splitter_create(mem, &trainer->splitter);
    if (status == GT_OK)
        *out = trainer;
    else
        bpe_trainer_destroy(trainer);
    return status;
}

void bpe_trainer_destroy(struct bpe_trainer *trainer)
{
    if (trainer == NULL)
        return;
    bpe_splitter_destroy(trainer->splitter);
    hostmem_free(trainer->mem, trainer->counts.pieces);
    hostmem_free(trainer->mem, trainer->counts.text);
    hostmem_free(trainer->mem, trainer->table);
    hostmem_free(trainer->mem, trainer);
}

enum gt_status bpe_grow(struct hostmem *mem, void **array, size_t count, size_t *capacity, size_t needed, size_t size,
                        const char *what)
{
    void *memory = NULL;
    size_t larger = *capacity;
    if (needed <= *capacity)
        return GT_OK;
    while (larger < needed)
        if (!size_mul(larger == 0 ? needed : larger, 2, &larger))
            return hostmem_alloc(mem, SIZE_MAX, size, what, &memory); /* logs the failure */
    TRY(hostmem_alloc(mem, larger, size, what, &memory));
    if (count > 0)
        memcpy(memory, *array, count * size);
    hostmem_free(mem, *array);
    *array = memory;
    *capacity = larger;
    return GT_OK;
}

/* ---- the table of pieces ---- */

static uint64_t piece_hash(const char *bytes, size_t count)
{
    uint64_t hash = count;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001B3);
    return hash ^ hash >> 29;
}

static size_t table_slot(const struct bpe_trainer *trainer, const char *bytes, size_t count)
{
    size_t slot = (size_t)piece_hash(bytes, count) & trainer->table_mask;
    for (; trainer->table[slot] != 0; slot = (slot + 1) & trainer->table_mask) {
        const struct bpe_piece *piece = &trainer->counts.pieces[trainer->table[slot] - 1];
        if (piece->length == count && memcmp(trainer->counts.text + piece->offset, bytes, count) == 0)
            break;
    }
    return slot;
}

/* Grows the table to keep it at most half full. */
static enum gt_status table_reserve(struct bpe_trainer *trainer)
{
    void *memory = NULL;
    const size_t pieces = trainer->counts.piece_count, now = trainer->table == NULL ? 0 : trainer->table_mask + 1;
    if (2 * (pieces + 1) <= now)
        return GT_OK;
    const size_t capacity = now == 0 ? (size_t)2 * BPE_PIECES_MIN : 2 * now;
    TRY(hostmem_alloc(trainer->mem, capacity, sizeof trainer->table[0], "table of pieces", &memory));
    hostmem_free(trainer->mem, trainer->table);
    trainer->table = memory;
    trainer->table_mask = capacity - 1;
    for (size_t i = 0; i < pieces; i++) {
        const struct bpe_piece *piece = &trainer->counts.pieces[i];
        trainer->table[table_slot(trainer, trainer->counts.text + piece->offset, piece->length)] = (uint32_t)i + 1;
    }
    return GT_OK;
}

static enum gt_status piece_append(struct bpe_trainer *trainer, const char *bytes, size_t count)
{
    struct bpe_counts *counts = &trainer->counts;
    void *pieces = counts->pieces, *text = counts->text;
    assert(counts->piece_count < UINT32_MAX - 1 && count <= UINT32_MAX);
    TRY(bpe_grow(trainer->mem, &pieces, counts->piece_count, &trainer->piece_capacity,
                 counts->piece_count < BPE_PIECES_MIN ? BPE_PIECES_MIN : counts->piece_count + 1,
                 sizeof counts->pieces[0], "pieces"));
    counts->pieces = pieces;
    TRY(bpe_grow(trainer->mem, &text, counts->text_count, &trainer->text_capacity,
                 counts->text_count + count < BPE_TEXT_MIN ? BPE_TEXT_MIN : counts->text_count + count, 1,
                 "texts of pieces"));
    counts->text = text;
    memcpy(counts->text + counts->text_count, bytes, count);
    counts->pieces[counts->piece_count++] =
        (struct bpe_piece){.offset = counts->text_count, .length = (uint32_t)count, .count = 1};
    counts->text_count += count;
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
            trainer->table[slot] = (uint32_t)trainer->counts.piece_count;
        } else {
            trainer->counts.pieces[trainer->table[slot] - 1].count++;
        }
        trainer->total_count++;
    }
    trainer->text_bytes += count;
    return GT_OK;
}

enum gt_status bpe_trainer_finish(struct bpe_trainer *trainer, int64_t vocab_size, struct tokenizer **out,
                                  struct bpe_train_result *result)
{
    assert(vocab_size >= BPE_TRAIN_VOCAB_MIN && vocab_size <= BPE_TRAIN_VOCAB_MAX);
    struct bpe *bpe = NULL;
    struct tokenizer *tokenizer = NULL;
    hostmem_free(trainer->mem, trainer->table);
    trainer->table = NULL;
    TRY(bpe_train_merge(trainer->mem, &trainer->counts, (size_t)vocab_size, &bpe));
    TRY(tokenizer_create_bpe(trainer->mem, bpe, &tokenizer));
    *result = (struct bpe_train_result){.text_bytes = trainer->text_bytes,
                                        .piece_count = trainer->total_count,
                                        .distinct_count = trainer->counts.piece_count,
                                        .vocab_size = tokenizer_vocab_size(tokenizer)};
    *out = tokenizer;
    return GT_OK;
}
