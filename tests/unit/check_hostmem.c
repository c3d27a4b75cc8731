/* Tests of base/hostmem: alignment, zeroing, counters, leaks, overflow, injected faults. */
#include "base/hostmem.h"

#include <stdint.h>

#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

enum { BLOCKS = 50 };

static struct hostmem *create(void)
{
    struct hostmem *mem = NULL;
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    ck_assert_ptr_nonnull(mem);
    return mem;
}

TEST(blocks_are_aligned_zeroed_and_counted)
{
    struct log_capture capture;
    log_capture_begin(&capture);
    struct hostmem *mem = create();
    unsigned char *blocks[BLOCKS];
    size_t live_bytes = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        void *pointer = NULL;
        ck_assert_int_eq(hostmem_alloc(mem, i, 7, "test", &pointer), GT_OK);
        ck_assert_ptr_nonnull(pointer);
        ck_assert_uint_eq((uintptr_t)pointer % 64, 0);
        blocks[i] = pointer;
        for (size_t j = 0; j < 7 * i; j++)
            ck_assert_uint_eq(blocks[i][j], 0);
        memset(blocks[i], 0xa5, 7 * i);
        live_bytes += 7 * i;
    }
    struct hostmem_counters counters;
    hostmem_counters_get(mem, &counters);
    ck_assert_uint_eq(counters.live_bytes, live_bytes);
    ck_assert_uint_eq(counters.allocations, BLOCKS);
    ck_assert_uint_eq(counters.releases, 0);
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    for (size_t k = 0; k < BLOCKS;
         k++) /* 17 and 50 are coprime: every block once, in a mixed order */
        hostmem_free(blocks[17 * k % BLOCKS]);
    hostmem_free(NULL);
    hostmem_counters_get(mem, &counters);
    ck_assert_uint_eq(counters.live_bytes, 0);
    ck_assert_uint_eq(counters.live_bytes_max, live_bytes);
    ck_assert_uint_eq(counters.releases, BLOCKS);
    hostmem_destroy(mem);
    hostmem_destroy(NULL);
    ck_assert_int_eq(capture.lines, 0);
}

TEST(grow_keeps_the_elements)
{
    struct hostmem *mem = NULL;
    uint32_t *list = NULL;
    size_t grown = 0;
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
    for (uint32_t i = 0; i < 1000; i++) {
        const uint32_t *before = list;
        ck_assert_int_eq(HOSTMEM_GROW(mem, &list, i + 1, "a list"), GT_OK);
        grown += list != before;
        list[i] = i;
    }
    ck_assert_uint_lt(grown, 12);
    ck_assert_int_eq(HOSTMEM_GROW(mem, &list, 100000, "a list"), GT_OK);
    hostmem_fail_at(mem, 1);
    ck_assert_int_eq(HOSTMEM_GROW(mem, &list, 100001, "a list"), GT_NO_MEMORY);
    for (uint32_t i = 0; i < 1000; i++)
        ck_assert_uint_eq(list[i], i);
    hostmem_free(list);
    hostmem_destroy(mem);
}

static char closed[8]; /* the first letters of the blocks, in the order of closing */

static void note_closed(void *object)
{
    closed[strlen(closed)] = *(const char *)object;
}

/* Allocates a block of 10 bytes that begins with `letter`. */
static char *block_of(const void *owner, char letter)
{
    char *block = NULL;
    ck_assert_int_eq(hostmem_alloc(owner, 1, 10, "test", &block), GT_OK);
    block[0] = letter;
    hostmem_at_free(block, note_closed);
    return block;
}

/* a owns b and c, b owns d, c owns e, and e, once given to b, is released with it. */
TEST(owners_release_what_they_own)
{
    struct hostmem *mem = create();
    struct hostmem_counters counters;
    char *a = block_of(mem, 'a'), *b = block_of(a, 'b'), *c = block_of(a, 'c'),
         *e = block_of(c, 'e');
    (void)block_of(b, 'd');
    hostmem_give(e, b);
    hostmem_free(c);
    ck_assert_str_eq(closed, "c");
    hostmem_free(b);
    ck_assert_str_eq(closed, "cbed");
    b = block_of(a, 'b');
    hostmem_free(a);
    ck_assert_str_eq(closed, "cbedab");
    hostmem_counters_get(mem, &counters);
    ck_assert_uint_eq(counters.live_bytes, 0);
    ck_assert_uint_eq(counters.releases, 6);
    (void)block_of(mem, 'f');
    hostmem_destroy(mem);
    ck_assert_str_eq(closed, "cbedabf");
}

TEST_LOOP(sizes_that_do_not_fit, 6)
{
    static const struct {
        size_t count, size;
    } cases[] = {{SIZE_MAX, 2},       {SIZE_MAX, 1},     {SIZE_MAX - 64, 1},
                 {SIZE_MAX - 127, 1}, {SIZE_MAX / 2, 1}, {(size_t)1 << 33, (size_t)1 << 33}};
    struct log_capture capture;
    log_capture_begin(&capture);
    struct hostmem *mem = create();
    void *const untouched = &capture;
    void *out = untouched;
    ck_assert_int_eq(hostmem_alloc(mem, cases[_i].count, cases[_i].size, "the table", &out),
                     GT_NO_MEMORY);
    ck_assert_ptr_eq(out, untouched);
    log_capture_one_error(&capture, "the table");
    struct hostmem_counters counters;
    hostmem_counters_get(mem, &counters);
    ck_assert_uint_eq(counters.allocations, 0);
    ck_assert_uint_eq(counters.live_bytes, 0);
    hostmem_destroy(mem);
}
