/* Compares the sizes of nanoGPT's tensors with the one in a message.
 *
 * One table: the exponents of batch, block, channels, heads and vocabulary, a factor, and the stages in which a tensor
 * of that size is created.  Both 16-bit and 32-bit forms are tried, since the dtype of the failed run is not always
 * known.
 */
#include "plan/oom_match.h"

#include <math.h>
#include <string.h>

#include "base/size.h"

#define STAGE(name) (1u << OOM_STAGE_##name)
#define ANY_PASS (STAGE(FORWARD) | STAGE(BACKWARD))
/* A batch is only inferred if the size of one sequence exceeds the error of the printed number by this factor. */
#define BATCH_CERTAINTY 8.0

struct row {
    const char *name, *size;
    int32_t batch, block, channels, heads, vocabulary; /* exponents */
    int32_t factor;
    int32_t element_bytes; /* 0: 16 or 32 bits */
    unsigned stages;
    enum oom_site site; /* OOM_SITE_UNKNOWN: no line of the user's code shows it */
};

static const struct row rows[] = {
    {"the logits", "batch x block_size x vocab_size", 1, 1, 0, 0, 1, 1, 0, ANY_PASS, OOM_SITE_LOGITS},
    {"cross entropy's float32 copy of the logits, or its gradient", "batch x block_size x vocab_size", 1, 1, 0, 0, 1, 1,
     4, ANY_PASS, OOM_SITE_LOSS},
    {"attention scores (without flash attention)", "batch x n_head x block_size x block_size", 1, 2, 0, 1, 0, 1, 0,
     ANY_PASS, OOM_SITE_ATTENTION},
    {"queries, keys and values of a block", "batch x block_size x 3 n_embd", 1, 1, 1, 0, 0, 3, 0, ANY_PASS,
     OOM_SITE_ATTENTION},
    {"the MLP's hidden layer", "batch x block_size x 4 n_embd", 1, 1, 1, 0, 0, 4, 0, ANY_PASS, OOM_SITE_MLP},
    {"a block's hidden state", "batch x block_size x n_embd", 1, 1, 1, 0, 0, 1, 0, ANY_PASS, OOM_SITE_UNKNOWN},
    {"the token embedding: weight, gradient or Adam's moment", "vocab_size x n_embd", 0, 0, 1, 0, 1, 1, 4,
     STAGE(SETUP) | STAGE(BACKWARD) | STAGE(OPTIMIZER), OOM_SITE_UNKNOWN},
    {"autocast's 16-bit copy of the token embedding, or its gradient", "vocab_size x n_embd", 0, 0, 1, 0, 1, 1, 2,
     ANY_PASS, OOM_SITE_LOGITS},
    {"an MLP matrix: weight, gradient or Adam's moment", "4 n_embd x n_embd", 0, 0, 2, 0, 0, 4, 4,
     STAGE(SETUP) | STAGE(BACKWARD) | STAGE(OPTIMIZER), OOM_SITE_UNKNOWN},
    {"attention's matrix: weight, gradient or Adam's moment", "3 n_embd x n_embd", 0, 0, 2, 0, 0, 3, 4,
     STAGE(SETUP) | STAGE(BACKWARD) | STAGE(OPTIMIZER), OOM_SITE_UNKNOWN},
};
#define ROWS (sizeof rows / sizeof rows[0])

/* Computes the bytes of a row's tensor.  Returns false on overflow. */
static bool row_bytes(const struct row *row, const struct oom_shape *shape, int32_t element_bytes, uint64_t *out)
{
    const struct {
        int32_t power;
        int64_t size;
    } parts[] = {{row->batch, shape->batch},
                 {row->block, shape->block_size},
                 {row->channels, shape->n_embd},
                 {row->heads, shape->n_head},
                 {row->vocabulary, shape->vocab_size}};
    size_t bytes = (size_t)row->factor * (size_t)element_bytes;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        for (int32_t k = 0; k < parts[i].power; k++) {
            if (parts[i].size <= 0 || !size_mul(bytes, (size_t)parts[i].size, &bytes))
                return false;
        }
    }
    *out = bytes;
    return true;
}

/* Returns true when a tensor of `bytes` is printed as the amount that failed. */
static bool prints_as(const struct oom_message *message, uint64_t bytes)
{
    double asked = (double)oom_segment_bytes(message->allocator, bytes);
    return fabs(asked - message->tried.bytes) <= message->tried.slack_bytes;
}

static bool agrees(const struct row *row, const struct oom_message *message)
{
    if (message->stage != OOM_STAGE_UNKNOWN && (row->stages >> message->stage & 1u) == 0)
        return false;
    return message->site == OOM_SITE_UNKNOWN || row->site == message->site;
}

bool oom_is_small_segment(const struct oom_message *message)
{
    if (!message->tried.known || message->allocator == OOM_CPU || message->allocator == OOM_MPS)
        return false;
    return message->tried.bytes <= (double)OOM_SEGMENT_SMALL_BYTES ||
           message->tried.bytes == (double)OOM_SEGMENT_MIDDLE_BYTES;
}

int32_t oom_match_find(const struct oom_message *message, const struct oom_shape *shape,
                       struct oom_match out[static OOM_MATCHES_MAX])
{
    int32_t count = 0, agreeing = 0;
    if (!message->tried.known || oom_is_small_segment(message))
        return 0;
    for (size_t r = 0; r < ROWS; r++) {
        for (int32_t element = 2; element <= 4; element += 2) {
            uint64_t bytes;
            if ((rows[r].element_bytes != 0 && rows[r].element_bytes != element) || count == OOM_MATCHES_MAX)
                continue;
            if (!row_bytes(&rows[r], shape, element, &bytes) || !prints_as(message, bytes))
                continue;
            struct oom_match match = {rows[r].name, rows[r].size, bytes, element, agrees(&rows[r], message)};
            int32_t at = match.fits_traceback ? agreeing++ : count;
            memmove(&out[at + 1], &out[at], (size_t)(count - at) * sizeof *out);
            out[at] = match;
            count++;
        }
    }
    return count;
}

int64_t oom_match_batch(const struct oom_message *message, const struct oom_shape *shape, int32_t element_bytes)
{
    struct oom_shape other = *shape;
    uint64_t each, bytes;
    other.batch = 1;
    if (!message->tried.known || oom_is_small_segment(message) || !row_bytes(&rows[0], &other, element_bytes, &each))
        return 0;
    double slack = message->tried.slack_bytes + (double)OOM_SEGMENT_SMALL_BYTES;
    double batch = floor(message->tried.bytes / (double)each + 0.5);
    if (!(batch >= 1.0 && batch <= 1e6) || slack * BATCH_CERTAINTY > (double)each)
        return 0;
    other.batch = (int64_t)batch;
    bool found = row_bytes(&rows[0], &other, element_bytes, &bytes) && prints_as(message, bytes);
    return found && other.batch != shape->batch ? other.batch : 0;
}
