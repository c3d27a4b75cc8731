/* Phase-locked host memory: a thin layer over aligned_alloc().
 *
 * Each block is a 64-byte header followed by the payload, so that the payload has the same
 * alignment as the block.  The header stores the size, the block's place in the tree of owners, and
 * a magic number that catches foreign pointers and double releases.  The root's payload is the
 * struct hostmem.  There is no pooling and no locking: only the main thread allocates, a few dozen
 * times, at start.
 */
#include "base/hostmem.h"

#include "base/size.h"

enum { HOSTMEM_ALIGNMENT = 64, GROW_MIN = 64 };

#define HOSTMEM_MAGIC_LIVE UINT64_C(0x67707468656c6c6f)
#define HOSTMEM_MAGIC_DEAD UINT64_C(0x6770746465616421)

struct hostmem {
    enum hostmem_phase phase;
    struct hostmem_counters counters;
    size_t fail_in; /* allocations until the injected fault; 0 is off */
};

struct header {
    uint64_t magic;
    size_t size_bytes;
    struct hostmem *mem;
    struct header *owner, *owned; /* `owned` is the newest block of a list */
    struct header *next,
        **link; /* in the owner's list; `link` points to the pointer to this block */
    hostmem_close_fn *close;
};

_Static_assert(sizeof(struct header) <= HOSTMEM_ALIGNMENT,
               "the header must fit in front of an aligned payload");

static void *payload_of(struct header *block)
{
    return (char *)block + HOSTMEM_ALIGNMENT;
}

static struct header *header_of(const void *pointer)
{
    struct header *block = (struct header *)(void *)((char *)pointer - HOSTMEM_ALIGNMENT);
    assert(block->magic == HOSTMEM_MAGIC_LIVE);
    return block;
}

/* Returns a block that begins with a copy of `bytes` bytes and is zero after them, or NULL if the
 * system has no memory. */
static struct header *block_new(size_t payload_bytes, const void *from, size_t bytes)
{
    const size_t total_bytes = HOSTMEM_ALIGNMENT + size_round_up(payload_bytes, HOSTMEM_ALIGNMENT);
    struct header *block = aligned_alloc(HOSTMEM_ALIGNMENT, total_bytes);
    if (block == NULL)
        return NULL;
    memset(block, 0, HOSTMEM_ALIGNMENT);
    if (bytes > 0)
        memcpy(payload_of(block), from, bytes);
    memset((char *)payload_of(block) + bytes, 0, total_bytes - HOSTMEM_ALIGNMENT - bytes);
    block->magic = HOSTMEM_MAGIC_LIVE;
    block->size_bytes = payload_bytes;
    return block;
}

enum gt_status hostmem_create(struct hostmem **out)
{
    struct header *root = block_new(sizeof **out, NULL, 0);
    if (root == NULL)
        return FAIL(GT_NO_MEMORY, "out of memory: the memory table needs %zu bytes", sizeof **out);
    root->size_bytes = 0; /* the counters leave it out */
    *out = root->mem = payload_of(root);
    return GT_OK;
}

static void block_link(struct header *block, struct header *owner)
{
    block->owner = owner;
    block->next = owner->owned;
    block->link = &owner->owned;
    if (block->next != NULL)
        block->next->link = &block->next;
    owner->owned = block;
}

static void block_unlink(struct header *block)
{
    *block->link = block->next;
    if (block->next != NULL)
        block->next->link = block->link;
}

static void block_release(struct header *block)
{
    assert(block->mem->counters.live_bytes >= block->size_bytes);
    block->mem->counters.releases++;
    block->mem->counters.live_bytes -= block->size_bytes;
    if (block->owner != NULL)
        block_unlink(block);
    block->magic = HOSTMEM_MAGIC_DEAD;
    free(block);
}

void hostmem_free(void *pointer)
{
    if (pointer == NULL)
        return;
    struct header *const top = header_of(pointer), *const end = top->owner;
    assert(top->mem->phase != HOSTMEM_RUN);
    for (struct header *at = top; at != end;) { /* closes an owner first, and releases it last */
        hostmem_close_fn *const close = at->close;
        at->close = NULL;
        if (close != NULL)
            close(payload_of(at));
        struct header *const next = at->owned != NULL ? at->owned : at->owner;
        if (at->owned == NULL)
            block_release(at);
        at = next;
    }
}

void hostmem_destroy(struct hostmem *mem)
{
    if (mem != NULL)
        mem->phase = HOSTMEM_CLOSE;
    hostmem_free(mem);
}

void hostmem_give(void *object, const void *owner)
{
    block_unlink(header_of(object));
    block_link(header_of(object), header_of(owner));
}

void hostmem_at_free(void *object, hostmem_close_fn *close)
{
    header_of(object)->close = close;
}

void hostmem_phase_set(struct hostmem *mem, enum hostmem_phase phase)
{
    mem->phase = phase;
}

/* As hostmem_alloc(), with a copy of `bytes` bytes at its start. */
static enum gt_status copy_alloc(const void *owner, size_t count, size_t size, const void *from,
                                 size_t bytes, const char *what, void *out)
{
    struct header *const above = header_of(owner);
    struct hostmem *const mem = above->mem;
    assert(mem->phase == HOSTMEM_INIT);
    assert(what != NULL);
    const bool fault = mem->fail_in > 0 && --mem->fail_in == 0;
    size_t payload_bytes;
    if (!size_mul(count, size, &payload_bytes) ||
        payload_bytes > PTRDIFF_MAX - 2 * HOSTMEM_ALIGNMENT)
        return FAIL(GT_NO_MEMORY,
                    "out of memory: %s needs %zu x %zu bytes, more than can be addressed", what,
                    count, size);
    struct header *block = fault ? NULL : block_new(payload_bytes, from, bytes);
    if (block == NULL)
        return FAIL(GT_NO_MEMORY,
                    "out of memory: %s needs %zu bytes, refused %s; %zu bytes are in use", what,
                    payload_bytes, fault ? "by an injected fault" : "by the system",
                    mem->counters.live_bytes);
    block->mem = mem;
    block_link(block, above);
    mem->counters.allocations++;
    mem->counters.live_bytes += payload_bytes;
    if (mem->counters.live_bytes > mem->counters.live_bytes_max)
        mem->counters.live_bytes_max = mem->counters.live_bytes;
    char *payload = payload_of(block);
    memcpy(out, &payload, sizeof payload);
    return GT_OK;
}

enum gt_status hostmem_alloc(const void *owner, size_t count, size_t size, const char *what,
                             void *out)
{
    return copy_alloc(owner, count, size, NULL, 0, what, out);
}

enum gt_status hostmem_grow(const void *owner, void *list, size_t needed, size_t size,
                            const char *what)
{
    void *old, *copy;
    memcpy(&old, list, sizeof old);
    const size_t bytes = old != NULL ? header_of(old)->size_bytes : 0, capacity = bytes / size;
    size_t larger = capacity < GROW_MIN ? GROW_MIN : capacity + capacity / 2;
    if (needed <= capacity)
        return GT_OK;
    larger = larger < needed ? needed : larger;
    TRY(copy_alloc(owner, larger, size, old, bytes, what, &copy));
    hostmem_free(old);
    memcpy(list, &copy, sizeof copy);
    return GT_OK;
}

enum gt_status hostmem_strdup(const void *owner, const char *text, char **out)
{
    const size_t size = strlen(text) + 1;
    TRY(HOSTMEM_NEW(owner, size, "a text", out));
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
