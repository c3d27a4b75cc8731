/* Tests of src/data/dedup.c: membership through growth, the full table, and continuing from the file. */
#include "data/dedup.h"

#include "tests/unit/data_fixture.h"

#define TABLE_BYTES ((size_t)1 << 21) /* 131,072 slots: it grows once */

static const struct dedup_entries none = {.count = 0};

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
    const char *path = fixture_path(&fixture, "seen");
    ck_assert_int_eq(dedup_create(fixture.mem, path, none, TABLE_BYTES, &dedup), GT_OK);
    ck_assert_uint_eq(add_range(dedup, 0, 100000), 0);
    ck_assert_uint_eq(add_range(dedup, 0, 100000), 100000);
    ck_assert_uint_eq(dedup_entries_get(dedup).count, 100000);
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
    const char *path = fixture_path(&fixture, "seen");
    ck_assert_int_eq(dedup_create(fixture.mem, path, none, TABLE_BYTES, &dedup), GT_OK);
    const size_t warnings = log_count(LOG_WARNING);
    const uint64_t limit = TABLE_BYTES / 16 / 8 * 7;
    ck_assert_uint_eq(add_range(dedup, 0, limit + 1000), 0);
    ck_assert_uint_eq(dedup_entries_get(dedup).count, limit);
    ck_assert_uint_eq(log_count(LOG_WARNING), warnings + 1);
    ck_assert_uint_eq(add_range(dedup, 0, limit + 1000), limit);
    hostmem_free(dedup);
    fixture_close(&fixture);
}

/* Entries added after the state was saved are forgotten, so that a document is not a copy of itself. */
TEST(dedup_goes_on_from_its_file)
{
    struct data_fixture fixture;
    struct dedup *dedup = NULL;
    fixture_open(&fixture);
    const char *path = fixture_path(&fixture, "seen");
    ck_assert_int_eq(dedup_create(fixture.mem, path, none, TABLE_BYTES, &dedup), GT_OK);
    add_range(dedup, 0, 10000);
    ck_assert_int_eq(dedup_sync(dedup), GT_OK);
    struct dedup_entries saved = dedup_entries_get(dedup);
    add_range(dedup, 10000, 5000);
    hostmem_free(dedup);
    ck_assert_int_eq(dedup_create(fixture.mem, path, saved, TABLE_BYTES, &dedup), GT_OK);
    ck_assert_uint_eq(dedup_entries_get(dedup).count, 10000);
    ck_assert_uint_eq(add_range(dedup, 0, 20000), 10000);
    ck_assert_int_eq(dedup_sync(dedup), GT_OK);
    saved = dedup_entries_get(dedup);
    hostmem_free(dedup);
    saved.count++;
    ck_assert_int_eq(dedup_create(fixture.mem, path, saved, TABLE_BYTES, &dedup), GT_DATA);
    FIXTURE_SAYS(&fixture, "truncated");
    saved.count--;
    ck_assert_int_eq(dedup_create(fixture.mem, path, saved, TABLE_BYTES, &dedup), GT_OK);
    ck_assert_uint_eq(add_range(dedup, 0, 20000), 20000);
    hostmem_free(dedup);
    ck_assert_int_eq(dedup_create(fixture.mem, "/nonexistent/seen", none, TABLE_BYTES, &dedup), GT_IO);
    fixture_close(&fixture);
}

/* Flips each bit of the file, and plants an impossible count. */
TEST(dedup_damaged_file)
{
    struct data_fixture fixture;
    struct dedup *dedup = NULL;
    size_t count = 0;
    fixture_open(&fixture);
    const char *path = fixture_path(&fixture, "seen");
    ck_assert_int_eq(dedup_create(fixture.mem, path, none, TABLE_BYTES, &dedup), GT_OK);
    add_range(dedup, 0, 3);
    ck_assert_int_eq(dedup_sync(dedup), GT_OK);
    struct dedup_entries entries = dedup_entries_get(dedup);
    hostmem_free(dedup);
    char *bytes = fixture_read(&fixture, "seen", &count);
    ck_assert_uint_eq(count, 3 * 16);
    for (size_t bit = 0; bit <= 8 * count; bit++) {
        const char flip = (char)(bit < 8 * count ? 1 << bit % 8 : 0);
        bytes[bit < 8 * count ? bit / 8 : 0] ^= flip;
        fixture_write(&fixture, "seen", bytes, count);
        bytes[bit < 8 * count ? bit / 8 : 0] ^= flip;
        const enum gt_status status = dedup_create(fixture.mem, path, entries, TABLE_BYTES, &dedup);
        ck_assert_msg(status == (flip != 0 ? GT_DATA : GT_OK), "bit %zu: %d", bit, status);
        if (flip != 0)
            FIXTURE_SAYS(&fixture, "seen: its first 3 entries changed");
    }
    ck_assert_uint_eq(dedup_entries_get(dedup).crc32c, entries.crc32c);
    hostmem_free(dedup);
    entries.count = (uint64_t)INT64_MAX / 4;
    ck_assert_int_eq(dedup_create(fixture.mem, path, entries, TABLE_BYTES, &dedup), GT_DATA);
    FIXTURE_SAYS(&fixture, "truncated");
    free(bytes);
    fixture_close(&fixture);
}

TEST(dedup_survives_failed_allocations)
{
    struct data_fixture fixture;
    struct dedup *dedup = NULL;
    fixture_open(&fixture);
    const char *path = fixture_path(&fixture, "seen");
    for (size_t n = 1; n <= 2; n++) {
        hostmem_fail_at(fixture.mem, n);
        ck_assert_int_eq(dedup_create(fixture.mem, path, none, TABLE_BYTES, &dedup), GT_NO_MEMORY);
    }
    ck_assert_int_eq(dedup_create(fixture.mem, path, none, TABLE_BYTES, &dedup), GT_OK);
    hostmem_fail_at(fixture.mem, 1); /* when the table grows */
    bool known = false;
    enum gt_status status = GT_OK;
    for (uint64_t i = 0; i < 70000 && status == GT_OK; i++)
        status = dedup_add(dedup, hash_of(i), &known);
    ck_assert_int_eq(status, GT_NO_MEMORY);
    hostmem_free(dedup);
    fixture_close(&fixture);
}
