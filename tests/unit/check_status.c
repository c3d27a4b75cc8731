/* Tests of base/status: exit statuses, distinct names, and the two macros. */
#include "base/status.h"

#include <string.h>

#include "tests/unit/unit_main.h"

static const struct {
    enum gt_status status;
    int exit_code;
} codes[] = {
    {GT_OK, 0},   {GT_FAILURE, 1}, {GT_USAGE, 2},       {GT_NO_FIT, 3},  {GT_NO_MEMORY, 1}, {GT_IO, 1},
    {GT_DATA, 2}, {GT_DEVICE, 1},  {GT_UNSUPPORTED, 2}, {GT_STOPPED, 1}, {GT_DIVERGED, 1},
};
enum { CODE_COUNT = sizeof codes / sizeof codes[0] };

TEST(exit_codes)
{
    for (int i = 0; i < CODE_COUNT; i++)
        ck_assert_int_eq(status_exit_code(codes[i].status), codes[i].exit_code);
}

TEST(names_are_distinct)
{
    for (int i = 0; i < CODE_COUNT; i++) {
        const char *name = status_name(codes[i].status);
        ck_assert_ptr_nonnull(name);
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(name, status_name(codes[j].status));
    }
    ck_assert_str_eq(status_name(GT_NO_MEMORY), "no-memory");
}

static enum gt_status answer(enum gt_status status, int *calls)
{
    ++*calls;
    return status;
}

static enum gt_status tried(enum gt_status status, int *calls, int *reached)
{
    TRY(answer(status, calls));
    ++*reached;
    return GT_OK;
}

static enum gt_status tried_goto(enum gt_status first, int *calls, int *reached)
{
    enum gt_status status;
    TRY_GOTO(status, out, answer(first, calls));
    ++*reached;
out:
    return status;
}

TEST(macros_evaluate_once_and_pass_on)
{
    for (int i = 0; i < CODE_COUNT; i++) {
        int calls = 0;
        int reached = 0;
        ck_assert_int_eq(tried(codes[i].status, &calls, &reached), codes[i].status);
        ck_assert_int_eq(tried_goto(codes[i].status, &calls, &reached), codes[i].status);
        ck_assert_int_eq(calls, 2);
        ck_assert_int_eq(reached, codes[i].status == GT_OK ? 2 : 0);
    }
}
