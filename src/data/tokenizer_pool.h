/* Encodes many documents with several threads.
 *
 * Long documents are cut at tokenizer_cut() and their parts go to different threads too.  The ids do not depend on the
 * number of threads.
 */
#ifndef GPT_TRAIN_DATA_TOKENIZER_POOL_H
#define GPT_TRAIN_DATA_TOKENIZER_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "data/tokenizer_encoder.h"

struct tokenizer_pool;

struct tokenizer_document {
    const char *text; /* borrowed */
    size_t count;     /* bytes */
    int32_t *ids;     /* owned by the caller, with room for `count` */
    size_t id_count;  /* set by tokenizer_pool_run() */
};

/* 1 <= threads <= TOKENIZER_THREADS_MAX.  Borrows the tokenizer.  Errors: GT_NO_MEMORY. */
#define TOKENIZER_THREADS_MAX 256
enum gt_status tokenizer_pool_create(struct hostmem *mem, const struct tokenizer *tokenizer, int threads,
                                     struct tokenizer_pool **out);
/* Accepts NULL. */
void tokenizer_pool_destroy(struct tokenizer_pool *pool);

/* Encodes all documents, with special tokens as text; returns when all are done.  On failure *out_failed is the first
 * document that failed and *fault the place in it, for tokenizer_fault_report(); nothing is logged.  Errors: those of
 * tokenizer_encoder_run(). */
enum gt_status tokenizer_pool_run(struct tokenizer_pool *pool, struct tokenizer_document *documents, size_t count,
                                  size_t *out_failed, struct tokenizer_fault *fault);

#endif
