/* --explain-oom.
 *
 * Prints four short sections: the numbers of the message, the tensor that its size indicates, the
 * memory that was available, and how gpt-train treats each of these.  The caller then prints the
 * plan for that memory in its own format.  The parser has made all text of the message harmless.
 */
#include "answer/explain_oom_text.h"

#include <math.h>

#include "config/config_check.h"
#include "config/config_key.h"
#include "plan/oom_message.h"
#include "plan/oom_text.h"

/* PYTORCH_MPS_HIGH_WATERMARK_RATIO, unless the user sets it. */
#define MPS_WATERMARK 1.7

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
    log_result("  traceback            %s%s; %s:%" PRId32 "%s%s: %s", stages[message->stage],
               message->evaluation ? " of an evaluation" : "", message->frame.file,
               message->frame.line, message->frame.function[0] ? " in " : "",
               message->frame.function, message->frame.source);
}

/* Prints the line about the memory that a process holds. */
static void held_print(const char *name, struct oom_amount amount, const char *meaning)
{
    amount_print(name, amount, meaning);
    if (amount.not_counted)
        printf("  %-20s %11s   the driver does not count it, as under WSL2\n", name, "unknown");
}

static const char *tried_meaning(const struct oom_message *message)
{
    const struct oom_allocator_info *info = &oom_allocators[message->allocator];
    const bool full = message->free.known && message->free.bytes <= message->tried.bytes;
    if (!info->tensors)
        return "a buffer outside of PyTorch";
    if (oom_is_small_segment(message))
        return full ? "for small tensors; the card was full" : "for small tensors";
    return info->segments ? "one tensor, rounded up to 2 MiB" : "one tensor";
}

static void numbers_print(const struct oom_message *message)
{
    struct oom_amount context = oom_context_bytes(message), others = oom_others_bytes(message);
    printf("The message (%s", oom_allocators[message->allocator].name);
    if (message->device >= 0)
        printf(", GPU %" PRId32, message->device);
    if (message->count > 1 && message->tried.known)
        printf(", the last of %" PRId32 " in the text", message->count);
    printf(")\n");
    amount_print("tried to allocate", message->tried, tried_meaning(message));
    amount_print("total", message->total, "memory that the driver reports");
    amount_print("free", message->free, "free at that moment; a new run can use more");
    for (int32_t i = 0; i < message->others_count; i++)
        held_print(TEXT(32, "process %" PRId64, message->others[i].pid), message->others[i].held,
                   others.known ? "another program; freed when it ends"
                                : "another program, perhaps elsewhere");
    amount_print("other allocations", message->elsewhere,
                 "of this process: MPSGraph, cached kernels");
    held_print("this process", message->process,
               message->own_by_pid ? "PyTorch and its context (listed by number)"
                                   : "PyTorch and the context");
    amount_print("context", context, "of it, kernels of the driver and libraries");
    amount_print("allocated", message->allocated, "tensors in use");
    amount_print("in private pools", message->pools, "of it, held for CUDA graphs");
    amount_print("reserved, unused", message->unallocated,
                 "PyTorch's cache, not used by any tensor");
    amount_print("allowed", message->allowed, "limit set by the program or framework");
    frame_print(message);
    if (message->meaning != NULL)
        printf("  %s\n", message->meaning);
    if (!message->tried.known && !message->total.known && message->allocator != OOM_HOST)
        printf("  This kind of message gives no sizes.\n");
}

/* Says whether another allocator, or another setting of this one, would have helped. */
static void verdict_print(const struct oom_message *message)
{
    struct oom_amount lacking;
    switch (oom_verdict(message, &lacking)) {
    case OOM_VERDICT_LIMIT:
        printf("  Not fragmentation: it would have exceeded the limit of %s.\n",
               LOG_BYTES(message->allowed.bytes));
        break;
    case OOM_VERDICT_LIMIT_FRAGMENTS:
        printf(
            "  Fragmentation below the limit of %s: unused memory would have been enough in one\n"
            "  piece.\n",
            LOG_BYTES(message->allowed.bytes));
        break;
    case OOM_VERDICT_ROOM:
        printf(
            "  Not fragmentation: the device had %s free, more than was requested. Another\n"
            "  process took and released memory, or a limit applies (container, MIG, MPS, memory\n"
            "  fraction, virtual address space, driver).\n",
            LOG_BYTES(message->free.bytes));
        break;
    case OOM_VERDICT_SHORT:
        printf("  Not fragmentation: even in one piece, free and unused memory would have been\n"
               "  %s short; expandable_segments, max_split_size_mb and empty_cache\n"
               "  could not help.\n",
               LOG_BYTES(lacking.bytes));
        break;
    case OOM_VERDICT_FRAGMENTS:
        printf("  Fragmentation: free and unused memory would have been enough in one piece.\n");
        break;
    default:
        break;
    }
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
            printf("  It would fit the logits of a batch of %" PRId64 " x %" PRId64
                   " tokens in %s.\n",
                   batch, shape->block_size, element == 2 ? "16 bits" : "32 bits");
    }
}

static void tensor_print(const struct oom_message *message, const struct oom_shape *shape)
{
    struct oom_match matches[OOM_MATCHES_MAX];
    int32_t count = oom_match_find(message, shape, matches);
    printf("\nWhich tensor it was, for a batch of %" PRId64 " x %" PRId64
           " tokens and a vocabulary of\n%" PRId64 " (judged by its size: probable, not certain)\n",
           shape->batch, shape->block_size, shape->vocab_size);
    for (int32_t i = 0; i < count; i++) {
        const struct oom_match *match = &matches[i];
        log_result("  %s: %s in %s, %" PRIu64 " B = %s%s", match->name, match->size,
                   match->element_bytes == 2 ? "16 bits" : "32 bits", match->bytes,
                   LOG_BYTES(match->bytes),
                   match->fits_traceback ? "" : " (the traceback points elsewhere)");
    }
    if (count == 0)
        no_match_print(message, shape);
    printf("  gpt-train keeps logits for one chunk of tokens at a time (loss_chunk) and\n"
           "  never stores attention scores; the plan below shows everything else.\n");
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
    struct oom_amount none = {.known = false}, others = oom_others_bytes(message);
    if (!message->total.known || !message->free.known || !message->process.known)
        return none;
    double slack =
        message->total.slack_bytes + message->free.slack_bytes + message->process.slack_bytes;
    double rest =
        message->total.bytes - message->free.bytes - message->process.bytes - others.bytes;
    return rest > slack + others.slack_bytes ? (struct oom_amount){true, false, rest, slack} : none;
}

static void spilled_print(const struct oom_message *message, struct oom_amount spilled)
{
    printf("  At most %s. %s had %s on this card of %s: the driver had\n"
           "  put %s into the host's memory, which makes steps slow.%s\n"
           "  --memory_budget=SIZE sets what a run may use.\n",
           LOG_BYTES(oom_budget_bytes(message).known ? oom_budget_bytes(message).bytes
                                                     : message->total.bytes),
           spilled.bytes == message->process.bytes ? "The process" : "PyTorch",
           LOG_BYTES(spilled.bytes), LOG_BYTES(message->total.bytes),
           LOG_BYTES(spilled.bytes - message->total.bytes),
           oom_others_bytes(message).known ? "" : " What others held is\n  unknown.");
}

static void limit_print(const struct oom_message *message)
{
    printf("  %s for tensors: the limit that the program or its framework had set",
           LOG_BYTES(message->allowed.bytes));
    if (message->allocator == OOM_MPS && message->elsewhere.known)
        printf(",\n  of which %s lay outside of PyTorch's allocator. By default PyTorch allows\n"
               "  1.7 times what Metal recommends: above %s the Mac may swap",
               LOG_BYTES(message->elsewhere.bytes),
               LOG_BYTES(message->allowed.bytes / MPS_WATERMARK));
    printf(".\n");
}

/* Prints where the budget comes from, if the message has all of its parts. */
static void budget_sum_print(const struct oom_message *message, struct oom_amount budget)
{
    struct oom_amount context = oom_context_bytes(message), rest = unexplained(message);
    printf("  %s for tensors", LOG_BYTES(budget.bytes));
    if (message->total.known && context.known) {
        printf(" = %s total", LOG_BYTES(message->total.bytes));
        less_print(oom_others_bytes(message), "of other processes");
        less_print(context, "context");
        if (rest.known)
            printf("\n   ");
        less_print(rest, "used by something the message does not name");
    } else if (message->free.known && message->total.known) {
        printf(" = free + PyTorch's own");
        if (message->total.bytes - budget.bytes > message->total.slack_bytes + budget.slack_bytes)
            printf("; others and the context\n  held the rest of %s",
                   LOG_BYTES(message->total.bytes));
    }
    printf("\n");
}

static void budget_print(const struct oom_message *message)
{
    struct oom_amount budget = oom_budget_bytes(message), most = oom_process_most(message);
    struct oom_amount spilled = oom_spilled_bytes(message);
    printf("\nMemory that the run could use\n");
    if (budget.known && message->allowed.known && budget.bytes == message->allowed.bytes)
        limit_print(message);
    else if (spilled.known)
        spilled_print(message, spilled);
    else if (budget.known)
        budget_sum_print(message, budget);
    else if (most.known)
        printf("  At most %s including a context: the total%s.\n", LOG_BYTES(most.bytes),
               oom_others_bytes(message).known ? " less what other processes hold" : "");
    else
        printf(
            "  The message does not say. --memory_budget=SIZE or, for a card, --device_profile=NAME\n"
            "  says what to plan for.\n");
}

/* ---- the card to plan for ---- */

#define NAMES_MAX 3

/* Names of cards, of which the first ones are printed. */
struct names {
    int32_t count;
    const char *name[NAMES_MAX];
};

/* The cards that report the message's total. */
struct cards {
    struct device_profile first[2],
        larger[2];           /* by bf16: the first such card, the smallest one that is larger */
    struct names all, plain; /* all, and those without bfloat16, cards without a profile included */
    const struct device_other *other; /* the first without a profile */
    bool known;                       /* the message names a total, and a card was chosen by it */
};

static bool has_bf16(const struct device_profile *card)
{
    return (card->dtypes >> DTYPE_BF16 & 1u) != 0;
}

static void name_add(struct names *names, const char *name)
{
    if (names->count < NAMES_MAX)
        names->name[names->count] = name;
    names->count++;
}

static void names_print(const struct names *names)
{
    for (int32_t i = 0; i < names->count && i < NAMES_MAX; i++)
        printf("%s%s", i == 0 ? "" : ", ", names->name[i]);
    if (names->count > NAMES_MAX)
        printf(" and %" PRId32 " more", names->count - NAMES_MAX);
}

static void card_add(struct cards *cards, const char *name, bool bf16)
{
    name_add(&cards->all, name);
    if (!bf16)
        name_add(&cards->plain, name);
}

static void cards_find(const char *backend, struct oom_amount total, struct cards *out)
{
    *out = (struct cards){.other = NULL};
    for (int32_t i = 0; i < device_profile_count(); i++) {
        struct device_profile card;
        device_profile_get(i, &card);
        const bool bf16 = has_bf16(&card);
        struct device_profile *larger = &out->larger[bf16];
        if (strcmp(card.backend, backend) != 0)
            continue;
        if (device_profile_reports(i, total.bytes, total.slack_bytes)) {
            if (out->first[bf16].memory_bytes == 0)
                out->first[bf16] = card;
            card_add(out, device_profile_id(i), bf16);
        } else if ((double)card.memory_bytes >= total.bytes &&
                   (larger->memory_bytes == 0 || card.memory_bytes < larger->memory_bytes)) {
            *larger = card;
        }
    }
    const struct device_other *other;
    for (int32_t i = 0;
         (other = device_other_next(&i, backend, total.bytes, total.slack_bytes)) != NULL;) {
        out->other = out->other == NULL ? other : out->other;
        card_add(out, other->name, other->bf16);
    }
}

static bool most_have_bf16(const struct cards *cards)
{
    return 2 * cards->plain.count <= cards->all.count;
}

/* Sets *card to one that reports the message's total, with the dtype that most such cards have,
 * unless the configuration names a device: the plan is then for this machine.  Sets *cards to all
 * cards that report it. */
static void card_choose(const struct config *config, const struct oom_message *message,
                        struct cards *cards, struct device_profile *card)
{
    const char *backend = oom_allocators[message->allocator].backend;
    if (backend == NULL || !message->total.known ||
        config_key_was_set(config, CONFIG_KEY_backend) ||
        config_device(config).backend == CONFIG_BACKEND_CPU)
        return;
    cards_find(backend, message->total, cards);
    const bool wanted =
        config->dtype == CONFIG_DTYPE_BFLOAT16 && cards->plain.count < cards->all.count;
    const bool bf16 = wanted || most_have_bf16(cards);
    const struct device_profile *const candidates[] = {&cards->first[bf16], &cards->first[!bf16],
                                                       &cards->larger[bf16], &cards->larger[!bf16]};
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0] && card->memory_bytes == 0; i++)
        *card = *candidates[i];
    cards->known = card->memory_bytes > 0;
}

/* Says which card the plan is for, and why. */
static void card_print(const struct device_profile *card, const struct cards *cards,
                       struct oom_amount total)
{
    const bool reported = cards->first[0].memory_bytes + cards->first[1].memory_bytes > 0;
    if (cards->known && cards->other != NULL && !reported)
        printf("  %s is the total of the %s, which has no profile:\n  planned for another card.\n",
               LOG_BYTES(total.bytes), cards->other->name);
    else if (cards->known && !reported)
        printf("  No card that is known here has %s in total; planned for a larger one.\n",
               LOG_BYTES(total.bytes));
    printf("  For the %s, where a context takes %s of it.\n", card->name,
           LOG_BYTES(card->context_bytes));
    if (reported && cards->all.count > 1) {
        printf("  Cards with such a total: ");
        names_print(&cards->all);
        printf(".\n");
    }
    if (cards->plain.count > 0) {
        printf("  Without bfloat16: ");
        names_print(&cards->plain);
        printf("; float16 takes as many bytes.\n");
    }
    printf("  --device_profile=NAME plans for another card: times change, bytes hardly do.\n");
}

static void plan_head_print(const struct config *config, bool budget)
{
    static const enum config_key shape_keys[] = {
        CONFIG_KEY_batch_size, CONFIG_KEY_block_size,
        CONFIG_KEY_n_layer,    CONFIG_KEY_n_head,
        CONFIG_KEY_n_embd,     CONFIG_KEY_vocab_size,
        CONFIG_KEY_dtype,      CONFIG_KEY_gradient_accumulation_steps,
    };
    bool nothing = strcmp(config->init_from, "scratch") == 0;
    for (size_t i = 0; i < sizeof shape_keys / sizeof shape_keys[0]; i++)
        nothing = nothing && !config_key_was_set(config, shape_keys[i]);
    printf("\nThe plan%s%s\n", budget ? " under that budget" : "",
           nothing ? " for nanoGPT's defaults, as no configuration was given" : "");
}

/* Returns the memory that a process could have used, including its context, according to the
 * message, else for the card.  0: unknown. */
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

/* Reads the message of a log. */
static enum gt_status message_read(const char *name, const char *text, size_t count,
                                   struct oom_message *out)
{
    char *plain = malloc(count + 1);
    if (plain == NULL)
        return FAIL(GT_NO_MEMORY, "%s: no memory to read its %zu B", name, count);
    const bool found = oom_message_parse(plain, oom_text_plain(plain, text, count), out);
    free(plain);
    if (!found)
        return FAIL(
            GT_DATA,
            "%s: no out-of-memory message is found there (such as \"CUDA out of memory. Tried to allocate "
            "...\"); without one, --plan with --device_profile=NAME or --memory_budget=SIZE plans for a memory",
            name);
    const char *why = oom_impossible(out);
    if (why != NULL)
        return FAIL(GT_DATA, "%s: the out-of-memory message cannot be right: %s", name, why);
    return GT_OK;
}

/* Returns nanoGPT's dtype on the card: bfloat16 where it, and most cards that report as much, have
 * it. */
static int dtype_of(const struct device_profile *card, const struct cards *cards)
{
    const bool bf16 = card->memory_bytes == 0 || has_bf16(card);
    return bf16 && most_have_bf16(cards) ? CONFIG_DTYPE_BFLOAT16 : CONFIG_DTYPE_FLOAT16;
}

enum gt_status explain_oom_text(const char *name, const char *text, size_t count,
                                struct config *config, const struct model_config *model,
                                struct device_profile *card)
{
    struct oom_message message;
    struct cards cards = {.other = NULL};
    TRY(message_read(name, text, count, &message));
    if (card->memory_bytes == 0)
        card_choose(config, &message, &cards, card);
    const struct oom_shape shape = {
        .batch = message.evaluation && config->eval_batch_size > 0 ? config->eval_batch_size
                                                                   : config->batch_size,
        .block_size = model->block_size,
        .n_embd = model->n_embd,
        .n_head = model->n_head,
        .vocab_size = model->vocab_size,
    };
    numbers_print(&message);
    verdict_print(&message);
    if (oom_allocators[message.allocator].tensors)
        tensor_print(&message, &shape);
    budget_print(&message);
    double budget = process_budget(&message, card);
    bool set = !config_key_was_set(config, CONFIG_KEY_memory_budget) && budget >= 1.0;
    plan_head_print(config, set);
    if (card->memory_bytes > 0) {
        card_print(card, &cards, message.total);
        snprintf(config->device_profile, sizeof config->device_profile, "%s", card->id);
    } else {
        printf("  For this machine; on a card, times differ and bytes hardly do.\n");
    }
    printf("\n");
    const bool lacking =
        cards.known && cards.plain.count > 0 && cards.plain.count == cards.all.count;
    if ((config->dtype == CONFIG_DTYPE_AUTO && oom_allocators[message.allocator].backend != NULL) ||
        (config->dtype == CONFIG_DTYPE_BFLOAT16 && lacking))
        config->dtype = dtype_of(card, &cards);
    if (set) /* the planner subtracts the card's context again */
        snprintf(config->memory_budget, sizeof config->memory_budget, "%.0fB", nearbyint(budget));
    return GT_OK;
}
