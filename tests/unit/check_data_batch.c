/* Tests of the batches of src/data/sampler.c: inputs and targets, and the order of rows against a
 * comparison of all pairs. */
#include "data/sampler.h"

#include <stdbool.h>

#include "base/rng.h"
#include "tests/unit/data_fixture.h"

#define ROWS_MAX 600

static void check_order(const int32_t *ids, int64_t rows, const int32_t *order,
                        const int32_t *starts)
{
    int seen[ROWS_MAX] = {0};
    int32_t group = -1;
    for (int64_t i = 0; i < rows; i++) {
        ck_assert(order[i] >= 0 && order[i] < rows);
        ck_assert_int_eq(seen[order[i]]++, 0);
        const bool begins = i == 0 || ids[order[i]] != ids[order[i - 1]];
        if (i > 0)
            ck_assert(ids[order[i]] > ids[order[i - 1]] || (!begins && order[i] > order[i - 1]));
        if (begins)
            ck_assert_int_eq(starts[1 + ++group], (int32_t)i);
    }
    ck_assert_int_eq(starts[0], group + 1);
    ck_assert_int_eq(starts[1 + starts[0]], (int32_t)rows);
    for (int64_t i = 2 + starts[0]; i < rows + 2; i++)
        ck_assert_int_eq(starts[i], 0);
}

TEST(batch_order_sorts_by_id_then_row)
{
    static const int64_t sizes[] = {1, 2, 3, 17, 255, 256, 599, ROWS_MAX};
    static const uint64_t vocabularies[] = {1, 2, 65, 256, 257, 50304, 65537, 16777217, 2147483647};
    struct data_fixture fixture;
    struct batch_builder *builder = NULL;
    int32_t ids[ROWS_MAX], order[ROWS_MAX + 1], starts[ROWS_MAX + 3];
    fixture_open(&fixture);
    ck_assert_int_eq(batch_builder_create(fixture.mem, ROWS_MAX, 1, &builder), GT_OK);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t v = 0; v < sizeof vocabularies / sizeof vocabularies[0]; v++) {
            const int64_t rows = sizes[s];
            const struct philox_key key = philox_key_make(unit_seed() + v, RNG_SAMPLE);
            for (int64_t i = 0; i < rows; i++) {
                const struct philox_block random =
                    philox4x32_10(key, (struct philox_block){{(uint32_t)i, (uint32_t)s, 0, 0}});
                ids[i] = (int32_t)philox_below(random.word[0], random.word[1], vocabularies[v]);
            }
            order[rows] = starts[rows + 2] = -77; /* guards */
            batch_order_build(builder, ids, rows, order, starts);
            check_order(ids, rows, order, starts);
            ck_assert(order[rows] == -77 && starts[rows + 2] == -77);
        }
    hostmem_free(builder);
    fixture_close(&fixture);
}

TEST(samples_are_inputs_and_targets)
{
    struct data_fixture fixture;
    struct token_source *source = NULL;
    struct batch_builder *builder = NULL;
    int32_t ids[12], targets[12], order[12], starts[14];
    const int64_t positions[3] = {6, 0, 5};
    fixture_open(&fixture);
    fixture_write_u16(&fixture, "train.bin", 11, 40);
    const struct token_source_spec spec = {
        .folder = fixture.folder, .split = TOKEN_TRAIN, .vocab_size = 51};
    ck_assert_int_eq(token_source_open(fixture.mem, &spec, &source), GT_OK);
    ck_assert_int_eq(batch_builder_create(fixture.mem, 12, 4, &builder), GT_OK);
    hostmem_phase_set(fixture.mem, HOSTMEM_RUN);
    const struct batch_tensors tensors = {.ids = ids, .targets = targets};
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(batch_sample_read(builder, source, positions[i], 4, i, &tensors), GT_OK);
    batch_order_build(builder, ids, 12, order, starts);
    for (int i = 0; i < 12; i++) {
        ck_assert_int_eq(ids[i], 40 + (int32_t)positions[i / 4] + i % 4);
        ck_assert_int_eq(targets[i], ids[i] + 1);
    }
    check_order(ids, 12, order, starts);
    ck_assert_int_eq(starts[0], 9);
    ck_assert_int_eq(batch_sample_read(builder, source, positions[0], 2, 0, &tensors), GT_OK);
    ck_assert(ids[0] == 46 && ids[1] == 47 && targets[1] == 48);
    batch_targets_ignore(targets, 1);
    ck_assert(targets[0] == BATCH_TARGET_IGNORED && targets[1] == 48);
    ck_assert_int_eq(truncate(fixture_path(&fixture, "train.bin"), 20), 0);
    ck_assert_int_eq(batch_sample_read(builder, source, positions[0], 4, 0, &tensors), GT_DATA);
    hostmem_phase_set(fixture.mem, HOSTMEM_CLOSE);
    hostmem_free(builder);
    hostmem_free(source);
    fixture_close(&fixture);
}

/* Three rows of 4 tokens and one more; tokens 2, 6, 7 and 9 count, and a document ends with
 * tokens 1, 5 and 6; where ends stand twice, with token 6. */
TEST(samples_know_what_counts_and_where_documents_begin)
{
    static const unsigned char mask[] = {'g', 't', 'm', 'a', 's', 'k', '0', '1',  4,
                                         0,   0,   0,   0,   0,   0,   0,   0xC4, 0x02};
    static const int32_t wanted_targets[8] = {-1, 12, -1, -1, -1, 66, 17, -1},
                         wanted_first[2][8] = {{0, 0, 2, 2, 0, 0, 2, 3}, {0, 0, 0, 0, 0, 0, 0, 3}};
    static const unsigned char tokens[26] = {10, 0,  66, 0,  12, 0,  13, 0,  14, 0,  66, 0,  66,
                                             0,  17, 0,  18, 0,  19, 0,  20, 0,  21, 0,  22, 0};
    struct data_fixture fixture;
    struct token_source *source = NULL;
    struct batch_builder *builder = NULL;
    int32_t ids[8], targets[8], first[8];
    uint32_t digests[3];
    fixture_open(&fixture);
    const struct token_source_spec spec = {
        .folder = fixture.folder, .split = TOKEN_TRAIN, .vocab_size = 99};
    fixture_write(&fixture, "train.bin", tokens, sizeof tokens);
    for (int i = 0; i < 3; i++) { /* without a mask, with it, with one that is off by one */
        unsigned char shifted[sizeof mask];
        memcpy(shifted, mask, sizeof mask);
        shifted[16] = i == 2 ? 0x88 : mask[16];
        shifted[17] = i == 2 ? 0x05 : mask[17];
        if (i > 0)
            fixture_write(&fixture, "train.mask", shifted, sizeof shifted);
        ck_assert_int_eq(token_source_open(fixture.mem, &spec, &source), GT_OK);
        ck_assert_int_eq(source->row, i == 0 ? 0 : 4);
        ck_assert_int_eq(token_source_mask(source, 1, 12, NULL), i == 0 ? 12 : 4);
        ck_assert_int_eq(token_source_digest(source, &digests[i]), GT_OK);
        hostmem_free(source);
    }
    ck_assert(digests[0] != digests[1] && digests[1] != digests[2] && digests[0] != digests[2]);
    fixture_write(&fixture, "train.mask", mask, sizeof mask);
    ck_assert_int_eq(token_source_open(fixture.mem, &spec, &source), GT_OK);
    ck_assert_int_eq(batch_builder_create(fixture.mem, 8, 4, &builder), GT_OK);
    for (int twice = 0; twice < 2; twice++) {
        const struct batch_tensors tensors = {
            .ids = ids, .targets = targets, .first = first, .end = 66, .ends_twice = twice != 0};
        for (int i = 0; i < 2; i++)
            ck_assert_int_eq(batch_sample_read(builder, source, 4 * i, 4, i, &tensors), GT_OK);
        for (int i = 0; i < 8; i++) {
            ck_assert_int_eq(targets[i], wanted_targets[i]);
            ck_assert_int_eq(first[i], wanted_first[twice][i]);
        }
    }
    hostmem_free(builder);
    hostmem_free(source);
    for (size_t cut = 0; cut < sizeof mask; cut += 8) {
        fixture_write(&fixture, "train.mask", mask + cut % 16, sizeof mask - cut - (cut == 0));
        ck_assert_int_eq(token_source_open(fixture.mem, &spec, &source), GT_DATA);
        FIXTURE_SAYS(&fixture, "not a mask of");
    }
    fixture_close(&fixture);
}
