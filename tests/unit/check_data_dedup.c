/* Tests of src/data/dedup.c: membership through growth, and the full table. */
#include "data/dedup.h"

#include "tests/unit/data_fixture.h"

#define TABLE_BYTES ((size_t)1 << 21) /* 131,072 slots: it grows once */

static struct document_hash hash_of(uint64_t number)
{
    return document_hash_of(&number, sizeof number);
}

static uint64_t add_range(struct dedup *dedup, uint64_t first, uint64_t count)
{
    uint64_t known_count = 0;
    for (uint64_t i = first; i < first + count; i++) {
        bool known = false;
        ck_assert_int_eq(dedup_add(dedup, hash_of(i), &known), GT_OK);
        known_count += known;
    }
    return known_count;
}

TEST(dedup_knows_what_it_has)
{
    struct data_fixture fixture;
    struct dedup *dedup = NULL;
    fixture_open(&fixture);
    ck_assert_int_eq(dedup_create(fixture.mem, TABLE_BYTES, &dedup), GT_OK);
    ck_assert_uint_eq(add_range(dedup, 0, 100000), 0);
    ck_assert_uint_eq(add_range(dedup, 0, 100000), 100000);
    bool known = true; /* the one checksum that the table cannot store */
    ck_assert_int_eq(dedup_add(dedup, (struct document_hash){0, 0}, &known), GT_OK);
    ck_assert(!known);
    hostmem_free(dedup);
    fixture_close(&fixture);
}

TEST(dedup_full_table_still_answers)
{
    struct data_fixture fixture;
    struct dedup *dedup = NULL;
    fixture_open(&fixture);
    ck_assert_int_eq(dedup_create(fixture.mem, TABLE_BYTES, &dedup), GT_OK);
    const size_t warnings = log_count(LOG_WARNING);
    const uint64_t limit = TABLE_BYTES / 16 / 8 * 7;
    ck_assert_uint_eq(add_range(dedup, 0, limit + 1000), 0);
    ck_assert_uint_eq(log_count(LOG_WARNING), warnings + 1);
    ck_assert_uint_eq(add_range(dedup, 0, limit + 1000), limit);
    hostmem_free(dedup);
    fixture_close(&fixture);
}
