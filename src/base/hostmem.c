/* Phase-locked host memory: a thin layer over aligned_alloc().
 *
 * Each block is a 64-byte header followed by the payload, so that the payload has the same alignment as the block.  The
 * header stores the size, and a magic number that catches foreign pointers and double releases.  There is no pooling
 * and no locking: only the main thread allocates, a few dozen times, at start.
 */
#include "base/hostmem.h"

#include "base/size.h"

enum { HOSTMEM_ALIGNMENT = 64, GROW_MIN = 64 };

#define HOSTMEM_MAGIC_LIVE UINT64_C(0x67707468656c6c6f)
#define HOSTMEM_MAGIC_DEAD UINT64_C(0x6770746465616421)

struct header {
    uint64_t magic;
    size_t size_bytes;
};

_Static_assert(sizeof(struct header) <= HOSTMEM_ALIGNMENT, "the header must fit in front of an aligned payload");

struct hostmem {
    enum hostmem_phase phase;
    struct hostmem_counters counters;
    size_t fail_in; /* allocations until the injected fault; 0 is off */
};

enum gt_status hostmem_create(struct hostmem **out)
{
    struct hostmem *mem = calloc(1, sizeof *mem);
    if (mem == NULL)
        return FAIL(GT_NO_MEMORY, "out of memory: the memory table needs %zu bytes", sizeof *mem);
    *out = mem;
    return GT_OK;
}

void hostmem_destroy(struct hostmem *mem)
{
    if (mem == NULL)
        return;
    const struct hostmem_counters *counters = &mem->counters;
    if (counters->allocations != counters->releases)
        log_error("internal error: %zu of %zu allocations (%zu bytes) were never released",
                  counters->allocations - counters->releases, counters->allocations, counters->live_bytes);
    free(mem);
}

void hostmem_phase_set(struct hostmem *mem, enum hostmem_phase phase)
{
    mem->phase = phase;
}

enum gt_status hostmem_alloc(struct hostmem *mem, size_t count, size_t size, const char *what, void *out)
{
    assert(mem->phase == HOSTMEM_INIT);
    assert(what != NULL);
    const bool fault = mem->fail_in > 0 && --mem->fail_in == 0;
    size_t payload_bytes;
    if (!size_mul(count, size, &payload_bytes) || payload_bytes > PTRDIFF_MAX - 2 * HOSTMEM_ALIGNMENT)
        return FAIL(GT_NO_MEMORY, "out of memory: %s needs %zu x %zu bytes, more than can be addressed", what, count,
                    size);
    const size_t total_bytes = HOSTMEM_ALIGNMENT + size_round_up(payload_bytes, HOSTMEM_ALIGNMENT);
    struct header *block = fault ? NULL : aligned_alloc(HOSTMEM_ALIGNMENT, total_bytes);
    if (block == NULL)
        return FAIL(GT_NO_MEMORY, "out of memory: %s needs %zu bytes, refused %s; %zu bytes are in use", what,
                    payload_bytes, fault ? "by an injected fault" : "by the system", mem->counters.live_bytes);
    memset(block, 0, total_bytes);
    block->magic = HOSTMEM_MAGIC_LIVE;
    block->size_bytes = payload_bytes;
    mem->counters.allocations++;
    mem->counters.live_bytes += payload_bytes;
    if (mem->counters.live_bytes > mem->counters.live_bytes_max)
        mem->counters.live_bytes_max = mem->counters.live_bytes;
    char *payload = (char *)block + HOSTMEM_ALIGNMENT;
    memcpy(out, &payload, sizeof payload);
    return GT_OK;
}

void hostmem_free(struct hostmem *mem, void *pointer)
{
    if (pointer == NULL)
        return;
    assert(mem->phase != HOSTMEM_RUN);
    struct header *block = (struct header *)(void *)((char *)pointer - HOSTMEM_ALIGNMENT);
    assert(block->magic == HOSTMEM_MAGIC_LIVE);
    assert(mem->counters.live_bytes >= block->size_bytes);
    mem->counters.releases++;
    mem->counters.live_bytes -= block->size_bytes;
    block->magic = HOSTMEM_MAGIC_DEAD;
    free(block);
}

enum gt_status hostmem_grow(struct hostmem *mem, void *list, size_t *capacity, size_t needed, size_t size,
                            const char *what)
{
    size_t larger = *capacity < GROW_MIN ? GROW_MIN : *capacity + *capacity / 2;
    void *old, *copy;
    if (needed <= *capacity)
        return GT_OK;
    larger = larger < needed ? needed : larger;
    TRY(hostmem_alloc(mem, larger, size, what, &copy));
    memcpy(&old, list, sizeof old);
    if (*capacity > 0)
        memcpy(copy, old, *capacity * size);
    hostmem_free(mem, old);
    memcpy(list, &copy, sizeof copy);
    *capacity = larger;
    return GT_OK;
}

enum gt_status hostmem_strdup(struct hostmem *mem, const char *text, char **out)
{
    const size_t size = strlen(text) + 1;
    TRY(HOSTMEM_NEW(mem, size, "a text", out));
    memcpy(*out, text, size);
    return GT_OK;
}

void hostmem_counters_get(const struct hostmem *mem, struct hostmem_counters *out)
{
    *out = mem->counters;
}

void hostmem_fail_at(struct hostmem *mem, size_t n)
{
    mem->fail_in = n;
}
