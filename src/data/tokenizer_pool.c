/* Encodes with several threads.
 *
 * Documents are cut into parts of about 256 KiB at places that change no id.  The ids of a part are written at the
 * offset they would have if every earlier byte were a token, and are moved together at the end.  thread_for_each()
 * distributes the parts, and each thread has its own encoder.  The list of parts only grows, up to the size of the
 * largest run.
 */
#include "data/tokenizer_pool.h"

#include <assert.h>
#include <string.h>

#include "base/thread.h"

#define PART_BYTES ((size_t)256 << 10)

struct pool_part {
    size_t document;
    size_t begin, count; /* in the document's text */
    size_t id_count;
    enum gt_status status;
    struct tokenizer_fault fault; /* `at` is relative to the part */
};

struct tokenizer_pool {
    struct hostmem *mem; /* borrowed; outlives the pool */
    const struct tokenizer *tokenizer;
    int threads;
    struct tokenizer_encoder **encoders;
    struct pool_part *parts;
    size_t part_count, part_capacity;
    struct tokenizer_document *documents; /* of the current run */
};

enum gt_status tokenizer_pool_create(struct hostmem *mem, const struct tokenizer *tokenizer, int threads,
                                     struct tokenizer_pool **out)
{
    assert(threads >= 1 && threads <= TOKENIZER_THREADS_MAX);
    void *memory = NULL;
    TRY(hostmem_alloc(mem, 1, sizeof(struct tokenizer_pool), "encoding", &memory));
    struct tokenizer_pool *pool = memory;
    pool->mem = mem;
    pool->tokenizer = tokenizer;
    pool->threads = threads;
    enum gt_status status = hostmem_alloc(mem, (size_t)threads, sizeof pool->encoders[0], "encoders", &memory);
    if (status == GT_OK)
        pool->encoders = memory;
    for (int i = 0; i < threads && status == GT_OK; i++)
        status = tokenizer_encoder_create(mem, tokenizer, &pool->encoders[i]);
    if (status == GT_OK)
        *out = pool;
    else
        tokenizer_pool_destroy(pool);
    return status;
}

void tokenizer_pool_destroy(struct tokenizer_pool *pool)
{
    if (pool == NULL)
        return;
    for (int i = 0; pool->encoders != NULL && i < pool->threads; i++)
        tokenizer_encoder_destroy(pool->encoders[i]);
    hostmem_free(pool->mem, pool->encoders);
    hostmem_free(pool->mem, pool->parts);
    hostmem_free(pool->mem, pool);
}

/* ---- cutting ---- */

static enum gt_status part_append(struct tokenizer_pool *pool, size_t document, size_t begin, size_t count)
{
    if (pool->part_count == pool->part_capacity) {
        const size_t capacity = pool->part_capacity == 0 ? 256 : 2 * pool->part_capacity;
        void *memory = NULL;
        TRY(hostmem_alloc(pool->mem, capacity, sizeof pool->parts[0], "parts of documents", &memory));
        if (pool->part_count > 0)
            memcpy(memory, pool->parts, pool->part_count * sizeof pool->parts[0]);
        hostmem_free(pool->mem, pool->parts);
        pool->parts = memory;
        pool->part_capacity = capacity;
    }
    pool->parts[pool->part_count++] = (struct pool_part){.document = document, .begin = begin, .count = count};
    return GT_OK;
}

static enum gt_status document_cut(struct tokenizer_pool *pool, size_t document)
{
    const char *text = pool->documents[document].text;
    const size_t count = pool->documents[document].count;
    size_t begin = 0, reach = PART_BYTES;
    while (begin < count) {
        size_t length = count - begin;
        if (length > reach) {
            length = tokenizer_cut(pool->tokenizer, text + begin, reach, false);
            if (length == 0) {
                reach *= 2; /* no place to cut yet: a text without spaces */
                continue;
            }
        }
        TRY(part_append(pool, document, begin, length));
        begin += length;
        reach = PART_BYTES;
    }
    return GT_OK;
}

/* ---- running ---- */

static void part_run(void *context, size_t index, int thread)
{
    struct tokenizer_pool *pool = context;
    struct pool_part *part = &pool->parts[index];
    const struct tokenizer_document *document = &pool->documents[part->document];
    part->status =
        tokenizer_encoder_run(pool->encoders[thread], document->text + part->begin, part->count,
                              TOKENIZER_SPECIAL_AS_TEXT, document->ids + part->begin, &part->id_count, &part->fault);
}

enum gt_status tokenizer_pool_run(struct tokenizer_pool *pool, struct tokenizer_document *documents, size_t count,
                                  size_t *out_failed, struct tokenizer_fault *fault)
{
    pool->documents = documents;
    pool->part_count = 0;
    *out_failed = 0;
    for (size_t i = 0; i < count; i++) {
        documents[i].id_count = 0;
        TRY(document_cut(pool, i));
    }
    thread_for_each(pool->threads, pool->part_count, part_run, pool);
    for (size_t i = 0; i < pool->part_count; i++) {
        const struct pool_part *part = &pool->parts[i];
        struct tokenizer_document *document = &documents[part->document];
        if (part->status != GT_OK) {
            *out_failed = part->document;
            *fault = part->fault;
            fault->at += part->begin;
            return part->status;
        }
        memmove(document->ids + document->id_count, document->ids + part->begin, part->id_count * sizeof(int32_t));
        document->id_count += part->id_count;
    }
    return GT_OK;
}
