/* Shared by the tests of the search for a plan: the host memory in which it builds models. */
#ifndef GPT_TRAIN_UNIT_SEARCH_FIXTURE_H
#define GPT_TRAIN_UNIT_SEARCH_FIXTURE_H

#include "plan/plan_search.h"
#include "tests/unit/unit_main.h"

static struct hostmem *mem;

static inline void mem_open(void)
{
    ck_assert_int_eq(hostmem_create(&mem), GT_OK);
}

static inline void mem_close(void)
{
    hostmem_phase_set(mem, HOSTMEM_CLOSE);
    hostmem_destroy(mem);
}

#endif
