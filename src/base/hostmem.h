/* Phase-locked host memory.
 *
 * A program has three phases: INIT allocates, RUN neither allocates nor releases, CLOSE releases.
 * Allocation asserts INIT, and release asserts INIT or CLOSE.  A debug build thus checks that
 * nothing is allocated after step 1, and the counters prove it in any build.  There is one struct
 * per program, which owns all blocks; only the main thread uses it.  A block can own others, as in
 * talloc: releasing an object releases its arrays.
 */
#ifndef GPT_TRAIN_BASE_HOSTMEM_H
#define GPT_TRAIN_BASE_HOSTMEM_H

#include "base/status.h"

enum hostmem_phase { HOSTMEM_INIT, HOSTMEM_RUN, HOSTMEM_CLOSE };

struct hostmem;

typedef void hostmem_close_fn(void *object);

struct hostmem_counters {
    size_t live_bytes;     /* requested and not yet released, without headers */
    size_t live_bytes_max; /* peak of live_bytes */
    size_t allocations;    /* successful hostmem_alloc() calls so far */
    size_t releases;       /* hostmem_free() calls with a pointer */
};

/* Errors: GT_NO_MEMORY. */
enum gt_status hostmem_create(struct hostmem **out);
/* Releases all that is left.  Accepts NULL. */
void hostmem_destroy(struct hostmem *mem);

void hostmem_phase_set(struct hostmem *mem, enum hostmem_phase phase);

/* Allocates count * size bytes, zeroed, aligned to 64 bytes, and stores the address in the pointer
 * at `out`, of any type.  `owner` is the struct hostmem or another block.  `what` names the purpose
 * in the error line and must be a string literal.  If count or size is 0, the pointer is valid but
 * must not be dereferenced.  Errors: GT_NO_MEMORY on overflow, when the system refuses, or on an
 * injected fault. */
enum gt_status hostmem_alloc(const void *owner, size_t count, size_t size, const char *what,
                             void *out);
/* As above, for `count` objects of the type that *out points to. */
#define HOSTMEM_NEW(owner, count, what, out) hostmem_alloc(owner, count, sizeof **(out), what, out)
/* Makes room in a list for at least `needed` elements of `size` bytes: if the block at *list, which
 * is NULL at first, has less, replaces it by a copy with at least half as many elements again.
 * Errors: GT_NO_MEMORY. */
enum gt_status hostmem_grow(const void *owner, void *list, size_t needed, size_t size,
                            const char *what);
/* As above, for elements of the type that *list points to. */
#define HOSTMEM_GROW(owner, list, needed, what) \
    hostmem_grow(owner, list, needed, sizeof **(list), what)
/* Copies a string.  Errors: GT_NO_MEMORY. */
enum gt_status hostmem_strdup(const void *owner, const char *text, char **out);
/* Releases a block and what it owns.  Accepts NULL. */
void hostmem_free(void *pointer);
/* Changes a block's owner. */
void hostmem_give(void *object, const void *owner);
/* Calls close(object) before the object and what it owns are released. */
void hostmem_at_free(void *object, hostmem_close_fn *close);

void hostmem_counters_get(const struct hostmem *mem, struct hostmem_counters *out);

/* Fault injection: the n-th allocation from now (1 = the next) fails once; 0 disables it. */
void hostmem_fail_at(struct hostmem *mem, size_t n);

#endif
