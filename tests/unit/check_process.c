/* Tests of process.c with memory that the test itself touches. */
#include <stdlib.h>
#include <string.h>

#include "base/system_memory.h"
#include "tests/unit/unit_main.h"

TEST(touched_memory_is_resident)
{
    const size_t size = (size_t)32 << 20, slack = (size_t)4 << 20;
    size_t before = process_rss_bytes();
    if (before == 0) {
        unit_skip("process_rss", "this system does not tell the resident set");
        return;
    }
    char *volatile block = malloc(size); /* volatile, or the compiler removes a block that is never read */
    ck_assert_ptr_nonnull(block);
    memset(block, 1, size);
    size_t with = process_rss_bytes();
    ck_assert_uint_ge(with + slack, before + size);
    ck_assert_uint_ge(process_rss_bytes_max() + slack, with);
    ck_assert_int_eq(block[size - 1], 1);
    free(block);
    size_t now = process_rss_bytes(), most = process_rss_bytes_max(); /* in this order: a call may touch another page */
    ck_assert_uint_ge(most + slack, before + size);
    ck_assert_uint_ge(most, now);
}
