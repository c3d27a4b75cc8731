/* Tests of the tables of base/module.h: functions of the C library, which every program has, and names that do not exist. */
#include "base/module.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/unit_main.h"

struct table {
    void *(*allocate)(size_t bytes);
    void (*release)(void *block);
};

TEST(what_is_there_can_be_called)
{
    static const struct library_entry entries[] = {{"malloc", offsetof(struct table, allocate)},
                                                   {"free", offsetof(struct table, release)}};
    struct table table;
    memset(&table, 0xff, sizeof table);
    ck_assert_ptr_null(library_table(dlopen(NULL, RTLD_NOW), entries, 2, &table));
    void *block = table.allocate(16);
    ck_assert_ptr_nonnull(block);
    table.release(block);
}

TEST(what_is_missing_is_named)
{
    static const struct library_entry entries[] = {{"malloc", offsetof(struct table, allocate)},
                                                   {"no_such_function", offsetof(struct table, release)}};
    struct table table;
    memset(&table, 0xff, sizeof table);
    ck_assert_str_eq(library_table(dlopen(NULL, RTLD_NOW), entries, 2, &table), "no_such_function");
    ck_assert(table.release == NULL);
}
