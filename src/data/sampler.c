/* Sample order, from Philox counters and prefix sums over the shards; and batches.
 *
 * Each shard has a number of starts, of blocks and of windows; their running totals turn "the k-th
 * start" into a shard and an offset by bisection.  Draws never depend on an earlier draw.  tokens.c
 * reads the tokens.
 */
#include "data/sampler.h"

#include "base/rng.h"

#define FEISTEL_ROUNDS 8
#define DIGITS 256

/* The units of a shard.  Windows are blocks, and one more for a shard with a remainder. */
enum sampler_unit { UNIT_START, UNIT_BLOCK, UNIT_WINDOW, UNIT_COUNT };

struct sampler_shard {
    int64_t first, length;      /* in tokens */
    int64_t before[UNIT_COUNT]; /* units of the shards before it */
};

struct sampler {
    enum sampler_kind kind;
    uint64_t seed;
    int64_t block_size;
    int64_t samples_per_step;
    enum sampler_unit drawn; /* the unit of a random draw: a start, or with packed rows a block */
    size_t shard_count;
    struct sampler_shard *shards; /* shard_count + 1; the last one has the totals */
};

int64_t sampler_start_count(const struct sampler *sampler)
{
    return sampler->shards[sampler->shard_count].before[UNIT_START];
}

int64_t sampler_window_count(const struct sampler *sampler, bool tail)
{
    return sampler->shards[sampler->shard_count].before[tail ? UNIT_WINDOW : UNIT_BLOCK];
}

static enum gt_status sampler_count_shards(struct sampler *sampler,
                                           const struct token_source *source)
{
    for (size_t i = 0; i < sampler->shard_count; i++) {
        struct sampler_shard *shard = &sampler->shards[i], *next = &sampler->shards[i + 1];
        shard->first = source->shards[i].first;
        shard->length = source->shards[i].length;
        const bool usable = shard->length > sampler->block_size;
        const int64_t targets = usable ? shard->length - 1 : 0;
        const int64_t blocks = targets / sampler->block_size;
        next->before[UNIT_START] =
            shard->before[UNIT_START] + (usable ? shard->length - sampler->block_size : 0);
        next->before[UNIT_BLOCK] = shard->before[UNIT_BLOCK] + blocks;
        next->before[UNIT_WINDOW] =
            shard->before[UNIT_WINDOW] + blocks + (targets % sampler->block_size != 0);
    }
    if (sampler_start_count(sampler) > 0)
        return GT_OK;
    return FAIL(GT_DATA, "%s: no shard holds the block_size + 1 = %" PRId64 " tokens of a sample",
                source->shards[0].path, sampler->block_size + 1);
}

enum gt_status sampler_create(const void *owner, const struct sampler_spec *spec,
                              struct sampler **out)
{
    assert(spec->block_size >= 1);
    assert(spec->samples_per_step >= 1 && spec->samples_per_step <= INT32_MAX);
    struct sampler *sampler;
    TRY(HOSTMEM_NEW(owner, 1, "sampler", &sampler));
    sampler->kind = spec->kind;
    sampler->seed = spec->seed;
    sampler->block_size = spec->block_size;
    sampler->samples_per_step = spec->samples_per_step;
    sampler->drawn = spec->source->row > 0 ? UNIT_BLOCK : UNIT_START;
    sampler->shard_count = spec->source->shard_count;
    enum gt_status status =
        HOSTMEM_NEW(sampler, sampler->shard_count + 1, "sampler shards", &sampler->shards);
    THEN(status, sampler_count_shards(sampler, spec->source));
    return FINISH(status, out, sampler, hostmem_free);
}

/* ---- from the k-th start, block or window to a position ---- */

/* Returns the shard that contains unit `index`; *out_within is the unit's index in it.  Shards
 * without units are never returned. */
static const struct sampler_shard *sampler_find_unit(const struct sampler *sampler,
                                                     enum sampler_unit unit, int64_t index,
                                                     int64_t *out_within)
{
    size_t low = 0, high = sampler->shard_count;
    assert(index >= 0 && index < sampler->shards[high].before[unit]);
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (sampler->shards[middle].before[unit] <= index)
            low = middle;
        else
            high = middle;
    }
    *out_within = index - sampler->shards[low].before[unit];
    return &sampler->shards[low];
}

/* Returns the position of a start or block. */
static int64_t sampler_position_of(const struct sampler *sampler, enum sampler_unit unit,
                                   int64_t index)
{
    int64_t within = 0;
    const struct sampler_shard *shard = sampler_find_unit(sampler, unit, index, &within);
    const int64_t offset = unit == UNIT_START ? within : within * sampler->block_size;
    assert(offset + sampler->block_size < shard->length);
    return shard->first + offset;
}

struct sampler_window sampler_window_at(const struct sampler *sampler, bool tail, int64_t index)
{
    if (!tail)
        return (struct sampler_window){.position = sampler_position_of(sampler, UNIT_BLOCK, index),
                                       .ignored = 0};
    int64_t within = 0;
    const struct sampler_shard *shard = sampler_find_unit(sampler, UNIT_WINDOW, index, &within);
    const int64_t start = within * sampler->block_size;
    const int64_t start_last = shard->length - 1 - sampler->block_size;
    if (start <= start_last)
        return (struct sampler_window){.position = shard->first + start, .ignored = 0};
    return (struct sampler_window){.position = shard->first + start_last,
                                   .ignored = start - start_last};
}

/* ---- draws ---- */

static int64_t sampler_draw(const struct sampler *sampler, enum rng_purpose purpose,
                            struct philox_block counter)
{
    const struct philox_block random =
        philox4x32_10(philox_key_make(sampler->seed, purpose), counter);
    const uint64_t count = (uint64_t)sampler->shards[sampler->shard_count].before[sampler->drawn];
    return sampler_position_of(sampler, sampler->drawn,
                               (int64_t)philox_below(random.word[0], random.word[1], count));
}

int64_t sampler_position(const struct sampler *sampler, int64_t step, int64_t sample)
{
    assert(step >= 0 && step <= UINT32_MAX);
    assert(sample >= 0 && sample < sampler->samples_per_step);
    const int64_t number = step * sampler->samples_per_step + sample;
    if (sampler->kind == SAMPLER_RANDOM) {
        const uint64_t step_bits = (uint64_t)step;
        return sampler_draw(sampler, RNG_SAMPLE,
                            (struct philox_block){{(uint32_t)sample, 0, (uint32_t)step_bits,
                                                   (uint32_t)(step_bits >> 32)}});
    }
    const int64_t blocks = sampler_window_count(sampler, false);
    return sampler_position_of(
        sampler, UNIT_BLOCK,
        sampler_permute(sampler->seed, number / blocks, blocks, number % blocks));
}

int64_t sampler_position_eval(const struct sampler *sampler, enum token_split split,
                              int64_t evaluation, int64_t sample)
{
    assert(evaluation >= 0 && evaluation <= UINT32_MAX);
    assert(sample >= 0 && sample <= UINT32_MAX);
    return sampler_draw(
        sampler, RNG_EVAL,
        (struct philox_block){{(uint32_t)sample, (uint32_t)split, (uint32_t)evaluation, 0}});
}

/* ---- the keyed permutation ---- */

/* Runs the network once over [0, 2^bits).  The halves have bits/2 bits and the rest.  They swap in
 * every round, so after an even number of rounds the widths are the initial ones again. */
static uint64_t feistel_encrypt(struct philox_key key, uint64_t epoch, unsigned bits,
                                uint64_t value)
{
    unsigned left_bits = bits / 2, right_bits = bits - bits / 2;
    uint64_t left = value >> right_bits, right = value & ((UINT64_C(1) << right_bits) - 1);
    for (uint32_t round = 0; round < FEISTEL_ROUNDS; round++) {
        const struct philox_block counter = {
            {round, (uint32_t)right, (uint32_t)epoch, (uint32_t)(epoch >> 32)}};
        const uint64_t mixed =
            philox4x32_10(key, counter).word[0] & ((UINT64_C(1) << left_bits) - 1);
        const uint64_t left_next = right;
        right = left ^ mixed;
        left = left_next;
        const unsigned bits_next = right_bits;
        right_bits = left_bits;
        left_bits = bits_next;
    }
    return left << right_bits | right;
}

int64_t sampler_permute(uint64_t seed, int64_t epoch, int64_t count, int64_t index)
{
    _Static_assert(FEISTEL_ROUNDS % 2 == 0, "the halves must end where they began");
    assert(count >= 1 && index >= 0 && index < count && epoch >= 0);
    unsigned bits = 0;
    while (bits < 63 && (INT64_C(1) << bits) < count)
        bits++;
    assert(bits < 63);
    const struct philox_key key = philox_key_make(seed, RNG_EPOCH);
    /* At the latest the cycle returns to `index`, so the walk ends within 2^bits steps; it takes at
     * most 2 on average. */
    uint64_t value = (uint64_t)index;
    for (uint64_t walk = 0; walk < (UINT64_C(1) << bits); walk++) {
        value = feistel_encrypt(key, (uint64_t)epoch, bits, value);
        if (value < (uint64_t)count)
            break;
    }
    assert(value < (uint64_t)count);
    return (int64_t)value;
}

/* ---- batches ----
 *
 * The order is a least-significant-digit radix sort of row numbers by id, one byte per pass, with
 * as many passes as the largest id has bytes.  Each pass is stable and the rows start out
 * ascending, so rows with the same id stay ascending and the sum over them has the same order on
 * every machine.
 */

struct batch_builder {
    int64_t rows_max;
    int64_t block_size_max;
    int32_t *block; /* block_size_max + 1 */
    int32_t *rows;  /* rows_max: the second buffer of a sorting pass */
    int32_t counts[DIGITS];
};

enum gt_status batch_builder_create(const void *owner, int64_t rows_max, int64_t block_size_max,
                                    struct batch_builder **out)
{
    assert(rows_max >= 1 && rows_max < INT32_MAX - 2);
    assert(block_size_max >= 1 && block_size_max <= rows_max);
    struct batch_builder *builder;
    TRY(HOSTMEM_NEW(owner, 1, "batch builder", &builder));
    builder->rows_max = rows_max;
    builder->block_size_max = block_size_max;
    enum gt_status status =
        HOSTMEM_NEW(builder, (size_t)block_size_max + 1, "batch block", &builder->block);
    THEN(status, HOSTMEM_NEW(builder, (size_t)rows_max, "batch rows", &builder->rows));
    return FINISH(status, out, builder, hostmem_free);
}

static void documents_mark(const int32_t *ids, int64_t count, int32_t end, bool twice,
                           int32_t *first)
{
    int32_t begin = 0;
    for (int64_t t = 0; t < count; t++) {
        first[t] = begin;
        if (ids[t] == end && (!twice || (t > 0 && ids[t - 1] == end)))
            begin = (int32_t)t + 1;
    }
}

enum gt_status batch_sample_read(struct batch_builder *builder, struct token_source *source,
                                 int64_t position, int64_t block_size, int64_t sample,
                                 const struct batch_tensors *out)
{
    const int64_t row = sample * block_size;
    assert(block_size >= 1 && block_size <= builder->block_size_max);
    assert(sample >= 0 && sample < builder->rows_max / block_size);
    const size_t block_bytes = (size_t)block_size * sizeof(int32_t);
    TRY(token_source_read(source, position, block_size + 1, builder->block));
    memcpy(out->ids + row, builder->block, block_bytes);
    memcpy(out->targets + row, builder->block + 1, block_bytes);
    (void)token_source_mask(source, position + 1, block_size, out->targets + row);
    if (out->first != NULL)
        documents_mark(builder->block, block_size, out->end, out->ends_twice && source->row > 0,
                       out->first + row);
    return GT_OK;
}

/* Runs one stable pass: `to` = `from` sorted by the byte of the id at bit `shift`. */
static void order_pass(int32_t counts[DIGITS], const int32_t *ids, int64_t rows, unsigned shift,
                       const int32_t *from, int32_t *to)
{
    memset(counts, 0, DIGITS * sizeof counts[0]);
    for (int64_t i = 0; i < rows; i++)
        counts[(uint32_t)ids[i] >> shift & 0xFFu]++;
    int32_t before = 0;
    for (int digit = 0; digit < DIGITS; digit++) {
        const int32_t count = counts[digit];
        counts[digit] = before;
        before += count;
    }
    for (int64_t i = 0; i < rows; i++)
        to[counts[(uint32_t)ids[from[i]] >> shift & 0xFFu]++] = from[i];
}

static void order_mark_groups(const int32_t *ids, int64_t rows, const int32_t *order,
                              int32_t *starts)
{
    int32_t groups = 0;
    memset(starts, 0, ((size_t)rows + 2) * sizeof starts[0]);
    for (int64_t i = 0; i < rows; i++)
        if (i == 0 || ids[order[i]] != ids[order[i - 1]])
            starts[1 + groups++] = (int32_t)i;
    starts[0] = groups;
    starts[1 + groups] = (int32_t)rows;
    assert(groups >= 1 && groups <= rows);
}

void batch_order_build(struct batch_builder *builder, const int32_t *ids, int64_t rows,
                       int32_t *order, int32_t *starts)
{
    assert(rows >= 1 && rows <= builder->rows_max);
    int32_t id_max = 0;
    for (int64_t i = 0; i < rows; i++) {
        assert(ids[i] >= 0);
        id_max = ids[i] > id_max ? ids[i] : id_max;
    }
    int32_t *from = order, *to = builder->rows;
    for (int64_t i = 0; i < rows; i++)
        from[i] = (int32_t)i;
    for (unsigned shift = 0; shift < 32 && (id_max >> shift) > 0; shift += 8) {
        order_pass(builder->counts, ids, rows, shift, from, to);
        int32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != order)
        memcpy(order, from, (size_t)rows * sizeof order[0]);
    order_mark_groups(ids, rows, order, starts);
}

void batch_targets_ignore(int32_t *targets, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        targets[i] = BATCH_TARGET_IGNORED;
}
