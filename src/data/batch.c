/* Batches: reads blocks into ids and targets, and groups rows by id.
 *
 * The order is a least-significant-digit radix sort of row numbers by id, one byte per pass, with as many passes as the
 * largest id has bytes.  Each pass is stable and the rows start out ascending, so rows with the same id stay ascending
 * and the sum over them has the same order on every machine.
 */
#include "data/batch.h"

#define DIGITS 256

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
    enum gt_status status = HOSTMEM_NEW(builder, (size_t)block_size_max + 1, "batch block", &builder->block);
    THEN(status, HOSTMEM_NEW(builder, (size_t)rows_max, "batch rows", &builder->rows));
    return FINISH(status, out, builder, hostmem_free);
}

static void documents_mark(const int32_t *ids, int64_t count, int32_t end, int32_t *first)
{
    int32_t begin = 0;
    for (int64_t t = 0; t < count; t++) {
        first[t] = begin;
        if (ids[t] == end)
            begin = (int32_t)t + 1;
    }
}

enum gt_status batch_sample_read(struct batch_builder *builder, struct token_source *source, int64_t position,
                                 int64_t block_size, int64_t sample, const struct batch_tensors *out)
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
        documents_mark(builder->block, block_size, out->end, out->first + row);
    return GT_OK;
}

/* Runs one stable pass: `to` = `from` sorted by the byte of the id at bit `shift`. */
static void order_pass(int32_t counts[DIGITS], const int32_t *ids, int64_t rows, unsigned shift, const int32_t *from,
                       int32_t *to)
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

static void order_mark_groups(const int32_t *ids, int64_t rows, const int32_t *order, int32_t *starts)
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

void batch_order_build(struct batch_builder *builder, const int32_t *ids, int64_t rows, int32_t *order, int32_t *starts)
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
