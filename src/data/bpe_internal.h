/* Shared by bpe.c and bpe_merge.c: the vocabulary's struct and the table of pairs. */
#ifndef GPT_TRAIN_DATA_BPE_INTERNAL_H
#define GPT_TRAIN_DATA_BPE_INTERNAL_H

#include "data/bpe.h"

#define BPE_PAIR_FREE UINT64_MAX
#define BPE_RANK_NONE UINT32_MAX

struct bpe_token {
    uint32_t offset; /* into the text */
    uint16_t count;  /* 0: not set yet */
    bool special;
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

struct bpe {
    struct hostmem *mem; /* borrowed; outlives it */
    struct bpe_token *tokens;
    size_t vocab_size;
    char *text;
    size_t text_count, text_capacity;
    struct bpe_merge *merges;
    size_t merge_count, merge_capacity;
    enum bpe_rank rank;
    int32_t byte_ids[256];
    int32_t *specials;
    size_t special_count;
    int32_t eot;
    uint32_t hash;
    struct bpe_index *index; /* from texts to ids; NULL after bpe_finish() */
    size_t index_mask;
    struct bpe_pair *pairs; /* NULL before bpe_finish() */
    size_t pair_mask;
};

static inline uint64_t bpe_pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static inline size_t bpe_pair_slot(uint64_t key)
{
    return (size_t)((key ^ key >> 31) * UINT64_C(0x9E3779B97F4A7C15) >> 24);
}

/* Returns the pair's entry, or NULL when the pair has no merge. */
static inline const struct bpe_pair *bpe_pair_find(const struct bpe *bpe, int32_t left, int32_t right)
{
    const uint64_t key = bpe_pair_key(left, right);
    for (size_t slot = bpe_pair_slot(key) & bpe->pair_mask;; slot = (slot + 1) & bpe->pair_mask) {
        const struct bpe_pair *pair = &bpe->pairs[slot];
        if (pair->key == key)
            return pair;
        if (pair->key == BPE_PAIR_FREE)
            return NULL;
    }
}

#endif
