/* --explain-oom.
 *
 * Prints four short sections: the numbers of the message, the tensor that its size indicates, the memory that was
 * available, and how gpt-train treats each of these.  The trainer then prints the plan for that memory in its own
 * format.  The parser has made all text of the message harmless.
 */
#include "train/session.h"

#include <math.h>

#include "plan/oom_message.h"

/* ---- the numbers ---- */

/* Prints one line of the table; nothing for an amount that the message does not contain. */
static void amount_print(const char *name, struct oom_amount amount, const char *meaning)
{
    if (amount.known)
        printf("  %-20s %11s   %s\n", name, LOG_BYTES(amount.bytes), meaning);
}

static void frame_print(const struct oom_message *message)
{
    static const char *const stages[] = {[OOM_STAGE_UNKNOWN] = "nothing about the stage",
                                         [OOM_STAGE_SETUP] = "while the model moved to the device",
                                         [OOM_STAGE_FORWARD] = "in the forward pass",
                                         [OOM_STAGE_BACKWARD] = "in the backward pass",
                                         [OOM_STAGE_OPTIMIZER] = "in the optimizer's step"};
    if (message->frame.line == 0)
        return;
    printf("  traceback            %s%s; %s:%" PRId32 "%s%s: %s\n", stages[message->stage],
           message->evaluation ? " of an evaluation" : "", message->frame.file, message->frame.line,
           message->frame.function[0] ? " in " : "", message->frame.function, message->frame.source);
}

static void numbers_print(const struct oom_message *message)
{
    struct oom_amount context = oom_context_bytes(message);
    printf("The message (%s", oom_allocators[message->allocator].name);
    if (message->device >= 0)
        printf(", GPU %" PRId32, message->device);
    if (message->count > 1)
        printf(", the last of %" PRId32 " in the text", message->count);
    printf(")\n");
    amount_print("tried to allocate", message->tried,
                 oom_is_small_segment(message) ? "for small tensors; the card was full"
                                               : "one tensor, rounded up to 2 MiB");
    amount_print("total", message->total, "memory that the driver reports");
    amount_print("free", message->free, "free at that moment; a new run can use more");
    for (int32_t i = 0; i < message->others_count; i++)
        amount_print(TEXT(32, "process %" PRId64, message->others[i].pid), message->others[i].held,
                     "another program; freed when it ends");
    amount_print("other allocations", message->elsewhere, "other programs, the screen");
    amount_print("this process", message->process,
                 message->own_by_pid ? "PyTorch and its context (listed by number)" : "PyTorch and the context");
    amount_print("context", context, "of it, kernels of the driver and libraries");
    amount_print("allocated", message->allocated, "tensors in use");
    amount_print("in private pools", message->pools, "of it, held for CUDA graphs");
    amount_print("reserved, unused", message->unallocated, "PyTorch's cache, not used by any tensor");
    amount_print("allowed", message->allowed, "limit set by the program or framework");
    frame_print(message);
    if (!message->tried.known)
        printf("  This kind of message gives no sizes.\n");
}

/* Says whether another allocator, or another setting of this one, would have helped. */
static void fragments_print(const struct oom_message *message)
{
    if (!message->tried.known || !message->free.known || !message->unallocated.known)
        return;
    double lacking = message->tried.bytes - message->free.bytes - message->unallocated.bytes;
    if (lacking > 0.0)
        printf("  Not fragmentation: even in one piece, free and unused memory would have been\n"
               "  %s short; expandable_segments, max_split_size_mb and empty_cache\n"
               "  could not help.\n",
               LOG_BYTES(lacking));
    else
        printf("  Fragmentation: free and unused memory would have been enough in one piece.\n");
}

/* ---- the tensor ---- */

static void no_match_print(const struct oom_message *message, const struct oom_shape *shape)
{
    if (oom_is_small_segment(message))
        printf("  Any tensor below 10 MiB: PyTorch asks for 2 or 20 MiB and cuts them from it.\n");
    else if (!message->tried.known)
        printf("  Unknown: the message gives no size.\n");
    else
        printf("  No tensor of this configuration has that size; was it another one?\n");
    for (int32_t element = 2; element <= 4; element += 2) {
        int64_t batch = oom_match_batch(message, shape, element);
        if (batch > 0)
            printf("  It would fit the logits of a batch of %" PRId64 " x %" PRId64 " tokens in %s.\n", batch,
                   shape->block_size, element == 2 ? "16 bits" : "32 bits");
    }
}

static void tensor_print(const struct oom_message *message, const struct oom_shape *shape)
{
    struct oom_match matches[OOM_MATCHES_MAX];
    int32_t count = oom_match_find(message, shape, matches);
    printf("\nWhich tensor it was, for a batch of %" PRId64 " x %" PRId64 " tokens and a vocabulary of\n%" PRId64
           " (judged by its size: probable, not certain)\n",
           shape->batch, shape->block_size, shape->vocab_size);
    for (int32_t i = 0; i < count; i++) {
        const struct oom_match *match = &matches[i];
        printf("  %s: %s in %s, %" PRIu64 " B = %s%s\n", match->name, match->size,
               match->element_bytes == 2 ? "16 bits" : "32 bits", match->bytes, LOG_BYTES(match->bytes),
               match->fits_traceback ? "" : " (the traceback points elsewhere)");
    }
    if (count == 0)
        no_match_print(message, shape);
    printf("  gpt-train keeps logits for one chunk of tokens at a time (loss_chunk) and never\n"
           "  stores attention scores; the plan below shows everything else.\n");
}

/* ---- the available memory ---- */

static void less_print(struct oom_amount part, const char *name)
{
    if (part.known && part.bytes > 0.0)
        printf(" - %s %s", LOG_BYTES(part.bytes), name);
}

/* Returns the part of the total that neither free memory nor the known processes explain. */
static struct oom_amount unexplained(const struct oom_message *message)
{
    struct oom_amount none = {false, 0.0, 0.0}, others = oom_others_bytes(message);
    if (!message->total.known || !message->free.known || !message->process.known)
        return none;
    double slack = message->total.slack_bytes + message->free.slack_bytes + message->process.slack_bytes;
    double rest = message->total.bytes - message->free.bytes - message->process.bytes - others.bytes;
    return rest > slack + others.slack_bytes ? (struct oom_amount){true, rest, slack} : none;
}

static void budget_print(const struct oom_message *message)
{
    struct oom_amount budget = oom_budget_bytes(message), context = oom_context_bytes(message);
    struct oom_amount most = oom_process_most(message);
    printf("\nWhat there was for the run\n");
    if (!budget.known && most.known) {
        printf("  At most %s including a context: the total less what other processes hold.\n", LOG_BYTES(most.bytes));
        return;
    }
    if (!budget.known) {
        printf("  The message does not say; set it with --memory_budget=SIZE.\n");
        return;
    }
    printf("  %s for tensors", LOG_BYTES(budget.bytes));
    if (message->total.known && context.known) {
        printf(" = %s total", LOG_BYTES(message->total.bytes));
        less_print(oom_others_bytes(message), "of other processes");
        less_print(context, "context");
        if (unexplained(message).known)
            printf("\n   ");
        less_print(unexplained(message), "used by something the message does not name");
    } else if (message->free.known && message->total.known) {
        printf(" = free + PyTorch's own; others and the context\n  held the rest of %s",
               LOG_BYTES(message->total.bytes));
    }
    printf("\n");
}

/* ---- the card to plan for ---- */

/* Sets *card to the smallest card of the table that has the message's memory, unless the configuration names a device:
 * the plan is then for this machine. */
static void card_choose(const struct config *config, const struct oom_message *message, struct device_profile *card)
{
    const char *backend = oom_allocators[message->allocator].backend;
    if (backend == NULL || !message->total.known || config_key_was_set(config, CONFIG_KEY_backend) ||
        config_device(config).backend == CONFIG_BACKEND_CPU)
        return;
    for (int32_t i = 0; i < device_profile_count(); i++) {
        struct device_profile other;
        device_profile_get(i, &other);
        if (strcmp(other.backend, backend) == 0 &&
            (double)other.memory_bytes + message->total.slack_bytes >= message->total.bytes &&
            (card->memory_bytes == 0 || other.memory_bytes < card->memory_bytes))
            *card = other;
    }
}

static void plan_head_print(const struct config *config, const struct device_profile *card, bool budget)
{
    static const enum config_key shape_keys[] = {
        CONFIG_KEY_batch_size, CONFIG_KEY_block_size, CONFIG_KEY_n_layer, CONFIG_KEY_n_head,
        CONFIG_KEY_n_embd,     CONFIG_KEY_vocab_size, CONFIG_KEY_dtype,   CONFIG_KEY_gradient_accumulation_steps,
    };
    bool nothing = strcmp(config->init_from, "scratch") == 0;
    for (size_t i = 0; i < sizeof shape_keys / sizeof shape_keys[0]; i++)
        nothing = nothing && !config_key_was_set(config, shape_keys[i]);
    printf("\nThe plan%s%s\n", budget ? " under that budget" : "",
           nothing ? " for nanoGPT's defaults, as no configuration was given" : "");
    if (card->memory_bytes > 0)
        printf("  For the %s, where a context takes %s of it.\n"
               "  --device_profile=NAME plans for another card: times change, bytes hardly do.\n",
               card->name, LOG_BYTES(card->context_bytes));
    else
        printf("  For this machine; on a card, times differ and bytes hardly do.\n");
    printf("\n");
}

/* Returns the memory that a process could have used, including its context, according to the message, else for the
 * card.  0: unknown. */
static double process_budget(const struct oom_message *message, const struct device_profile *card)
{
    struct oom_amount tensors = oom_budget_bytes(message), context = oom_context_bytes(message);
    struct oom_amount most = oom_process_most(message);
    if (!tensors.known)
        return most.known ? most.bytes : 0.0;
    if (card->memory_bytes == 0)
        return tensors.bytes;
    double sum = tensors.bytes + (context.known ? context.bytes : (double)card->context_bytes);
    return most.known && most.bytes < sum ? most.bytes : sum;
}

enum gt_status explain_oom_text(const char *name, const char *text, size_t count, struct config *config,
                                const struct model_config *model, struct device_profile *card)
{
    struct oom_message message;
    if (!oom_message_parse(text, count, &message))
        return FAIL(GT_DATA,
                    "%s: no out-of-memory message of PyTorch found (such as \"CUDA out of memory. Tried to allocate "
                    "...\")",
                    name);
    const char *why = oom_impossible(&message);
    if (why != NULL)
        return FAIL(GT_DATA, "%s: the out-of-memory message cannot be right: %s", name, why);
    if (card->memory_bytes == 0)
        card_choose(config, &message, card);
    const struct oom_shape shape = {
        .batch = message.evaluation && config->eval_batch_size > 0 ? config->eval_batch_size : config->batch_size,
        .block_size = model->block_size,
        .n_embd = model->n_embd,
        .n_head = model->n_head,
        .vocab_size = model->vocab_size,
    };
    numbers_print(&message);
    fragments_print(&message);
    tensor_print(&message, &shape);
    budget_print(&message);
    double budget = process_budget(&message, card);
    bool set = !config_key_was_set(config, CONFIG_KEY_memory_budget) && budget >= 1.0;
    plan_head_print(config, card, set);
    if (card->memory_bytes > 0)
        snprintf(config->device_profile, sizeof config->device_profile, "%s", card->id);
    if (config->dtype == CONFIG_DTYPE_AUTO && oom_allocators[message.allocator].backend != NULL)
        config->dtype = CONFIG_DTYPE_BFLOAT16; /* nanoGPT's own default there */
    if (set)                                   /* the planner subtracts the card's context again */
        snprintf(config->memory_budget, sizeof config->memory_budget, "%.0fB", nearbyint(budget));
    return GT_OK;
}
