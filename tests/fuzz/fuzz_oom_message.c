/* Fuzzes the parser of PyTorch's out-of-memory messages, and the conclusions drawn from them.
 *
 * Amounts must be finite and not negative, and names must be terminated and free of control
 * characters; the numbers of the message can be arbitrarily absurd.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/oom_message.h"
#include "plan/oom_text.h"
#include "tests/fuzz/fuzz_common.h"

static void check_amount(struct oom_amount amount)
{
    FUZZ_CHECK(!amount.known || (isfinite(amount.bytes) && amount.bytes >= 0.0));
    FUZZ_CHECK(!amount.known || (isfinite(amount.slack_bytes) && amount.slack_bytes >= 0.0));
}

static void check_text(const char *text, size_t capacity)
{
    const char *end = memchr(text, '\0', capacity);
    FUZZ_CHECK(end != NULL);
    for (; text < end; text++)
        FUZZ_CHECK((unsigned char)*text >= ' ');
}

static void check_message(const struct oom_message *message)
{
    const struct oom_amount amounts[] = {message->tried,   message->total,     message->free,
                                         message->process, message->allocated, message->unallocated,
                                         message->allowed, message->pools,     message->elsewhere};
    for (size_t i = 0; i < sizeof amounts / sizeof amounts[0]; i++)
        check_amount(amounts[i]);
    FUZZ_CHECK(message->count >= 1 && message->others_count >= 0 &&
               message->others_count <= OOM_PROCESSES_MAX);
    for (int32_t i = 0; i < message->others_count; i++)
        check_amount(message->others[i].held);
    check_text(message->frame.file, sizeof message->frame.file);
    check_text(message->frame.function, sizeof message->frame.function);
    check_text(message->frame.source, sizeof message->frame.source);
    check_amount(oom_others_bytes(message));
    check_amount(oom_context_bytes(message));
    check_amount(oom_budget_bytes(message));
    check_amount(oom_process_most(message));
    check_amount(oom_spilled_bytes(message));
    struct oom_amount lacking;
    (void)oom_verdict(message, &lacking);
    check_amount(lacking);
    FUZZ_CHECK(strlen(oom_allocators[message->allocator].name) > 0);
    (void)oom_impossible(message);
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    (void)mem;
    static const struct oom_shape shape = {
        .batch = 12, .block_size = 1024, .n_embd = 768, .n_head = 12, .vocab_size = 50304};
    struct oom_message message;
    struct oom_match matches[OOM_MATCHES_MAX];
    char *plain = malloc(size + 1);
    FUZZ_CHECK(plain != NULL);
    const size_t count = oom_text_plain(plain, (const char *)data, size);
    FUZZ_CHECK(count <= size);
    const bool found = oom_message_parse(plain, count, &message);
    free(plain);
    if (!found)
        return;
    check_message(&message);
    const int32_t matching = oom_match_find(&message, &shape, matches);
    FUZZ_CHECK(matching >= 0 && matching <= OOM_MATCHES_MAX);
    for (int32_t i = 0; i < matching; i++)
        FUZZ_CHECK(matches[i].bytes > 0 &&
                   (matches[i].element_bytes == 2 || matches[i].element_bytes == 4));
    FUZZ_CHECK(oom_match_batch(&message, &shape, 4) >= 0);
}
