/* Tests of plan/oom_message: a table of messages that PyTorch printed over the years, tracebacks,
 * damaged text, and nanoGPT's tensors that the sizes identify. */
#include "plan/oom_message.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/unit/unit_main.h"

#define KIB 1024.0
#define MIB (1024.0 * KIB)
#define GIB (1024.0 * MIB)
#define UNKNOWN (-1.0)

#define STORY                                                                                                          \
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of 11.69 GiB " \
    "of which 2.68 GiB is free. Process 1234 has 1.97 GiB memory in use. Including non-PyTorch memory, this process "  \
    "has 7.04 GiB memory in use. Of the allocated memory 6.51 GiB is allocated by PyTorch, and 402.57 MiB is "         \
    "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "                    \
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."

struct form {
    const char *text;
    enum oom_allocator allocator;
    int32_t device;
    double tried, total, free, process, allocated, unallocated, others, allowed;
};

static const struct form forms[] = {
    {STORY, OOM_CUDA, 0, 6.14 * GIB, 11.69 * GIB, 2.68 * GIB, 7.04 * GIB, 6.51 * GIB, 402.57 * MIB, 1.97 * GIB,
     UNKNOWN},
    {"RuntimeError: CUDA out of memory. Tried to allocate 786.00 MiB (GPU 3; 15.78 GiB total capacity; 14.28 GiB already "
     "allocated; 620.69 MiB free; 14.32 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try "
     "setting max_split_size_mb to avoid fragmentation.",
     OOM_CUDA, 3, 786.0 * MIB, 15.78 * GIB, 620.69 * MIB, UNKNOWN, 14.28 * GIB, 0.04 * GIB, UNKNOWN, UNKNOWN},
    {"RuntimeError: CUDA out of memory. Tried to allocate 198.00 MiB (GPU 0; 5.93 GiB total capacity; 4.64 GiB already "
     "allocated; 54.94 MiB free; 233.05 MiB cached)",
     OOM_CUDA, 0, 198.0 * MIB, 5.93 * GIB, 54.94 * MIB, UNKNOWN, 4.64 * GIB, 233.05 * MIB, UNKNOWN, UNKNOWN},
    {"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.70 GiB. GPU 0 has a total capacty of 6.00 GiB "
     "of which 0 bytes is free. Of the allocated memory 2.93 GiB is allocated by PyTorch, and 2.30 GiB is reserved by "
     "PyTorch but unallocated.",
     OOM_CUDA, 0, 1.70 * GIB, 6.0 * GIB, 0.0, UNKNOWN, 2.93 * GIB, 2.30 * GIB, UNKNOWN, UNKNOWN},
    {"CUDA out of memory. Tried to allocate 172.00 MiB. GPU 0 has a total capacty of 39.56 GiB of which 52.56 MiB is "
     "free. Process 263789 has 39.51 GiB memory in use. Of the allocated memory 37.80 GiB is allocated by PyTorch, and "
     "336.39 MiB is reserved by PyTorch but unallocated.",
     OOM_CUDA, 0, 172.0 * MIB, 39.56 * GIB, 52.56 * MIB, 39.51 * GIB, 37.80 * GIB, 336.39 * MIB, UNKNOWN, UNKNOWN},
    {"torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 15.98 GiB of "
     "which 1.10 GiB is free. 12.00 GiB allowed; Of the allocated memory 13.11 GiB is allocated by PyTorch, with 64.00 "
     "MiB allocated in private pools (e.g., HIP Graphs), and 1.02 GiB is reserved by PyTorch but unallocated.",
     OOM_HIP, 1, 2.0 * GIB, 15.98 * GIB, 1.10 * GIB, UNKNOWN, 13.11 * GIB, 1.02 * GIB, UNKNOWN, 12.0 * GIB},
    {"torch.OutOfMemoryError: XPU out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 15.56 GiB. Of "
     "the allocated memory 12.90 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.",
     OOM_XPU, 0, 512.0 * MIB, 15.56 * GIB, UNKNOWN, UNKNOWN, 12.90 * GIB, 1.0 * GIB, UNKNOWN, UNKNOWN},
    {"RuntimeError: MPS backend out of memory (MPS allocated: 5.05 GB, other allocations: 3.98 GB, max allowed: 9.07 GB). "
     "Tried to allocate 512.00 MB on private pool.",
     OOM_MPS, -1, 512.0 * MIB, UNKNOWN, UNKNOWN, UNKNOWN, 5.05 * GIB, UNKNOWN, 3.98 * GIB, 9.07 * GIB},
    {"RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
     "allocate 3296722944 bytes. Error code 12 (Cannot allocate memory)",
     OOM_CPU, -1, 3296722944.0, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN},
    {"RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported", OOM_CUDA, -1,
     UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN},
    {"RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58", OOM_CUDA,
     -1, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN},
};

static void amount_is(size_t form, const char *name, struct oom_amount amount, double expected)
{
    if (expected < 0.0)
        ck_assert_msg(!amount.known, "form %zu: %s is known: %g", form, name, amount.bytes);
    else
        ck_assert_msg(amount.known && fabs(amount.bytes - expected) <= 1e-9 * expected + 0.5,
                      "form %zu: %s is %g, not %g", form, name, amount.bytes, expected);
}

TEST(every_form)
{
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const struct form *form = &forms[i];
        struct oom_message message;
        ck_assert_msg(oom_message_parse(form->text, strlen(form->text), &message), "form %zu is not found", i);
        ck_assert_int_eq(message.allocator, form->allocator);
        ck_assert_int_eq(message.device, form->device);
        ck_assert_int_eq(message.count, 1);
        ck_assert_int_eq(message.stage, OOM_STAGE_UNKNOWN);
        amount_is(i, "tried", message.tried, form->tried);
        amount_is(i, "total", message.total, form->total);
        amount_is(i, "free", message.free, form->free);
        amount_is(i, "process", message.process, form->process);
        amount_is(i, "allocated", message.allocated, form->allocated);
        amount_is(i, "unallocated", message.unallocated, form->unallocated);
        amount_is(i, "others", oom_others_bytes(&message), form->others);
        amount_is(i, "allowed", message.allowed, form->allowed);
    }
}

TEST(sums)
{
    struct oom_message message;
    ck_assert(oom_message_parse(STORY, sizeof STORY - 1, &message));
    double context = 7.04 * GIB - 6.51 * GIB - 402.57 * MIB;
    ck_assert_double_eq_tol(oom_context_bytes(&message).bytes, context, 1.0);
    ck_assert_double_eq_tol(oom_budget_bytes(&message).bytes, 2.68 * GIB + 6.51 * GIB + 402.57 * MIB, 1.0);
    ck_assert_double_eq_tol(oom_budget_bytes(&message).bytes, 11.69 * GIB - 1.97 * GIB - context, 1.0);
    ck_assert_double_eq_tol(message.tried.slack_bytes, 0.005 * GIB, 1.0);
    ck_assert(!message.own_by_pid);
    /* Inside a container the only process listed is this one. */
    ck_assert(oom_message_parse(forms[4].text, strlen(forms[4].text), &message));
    ck_assert(message.own_by_pid && message.others_count == 0);
    ck_assert_double_eq_tol(oom_context_bytes(&message).bytes, 39.51 * GIB - 37.80 * GIB - 336.39 * MIB, 1.0);
    /* A configured limit counts if it is the smaller one. */
    ck_assert(oom_message_parse(forms[5].text, strlen(forms[5].text), &message));
    ck_assert_double_eq_tol(oom_budget_bytes(&message).bytes, 12.0 * GIB, 1.0);
    ck_assert_double_eq_tol(message.pools.bytes, 64.0 * MIB, 1.0);
    ck_assert(oom_message_parse(forms[7].text, strlen(forms[7].text), &message));
    ck_assert_double_eq_tol(oom_budget_bytes(&message).bytes, (9.07 - 3.98) * GIB, 1.0);
    ck_assert(oom_message_parse(forms[9].text, strlen(forms[9].text), &message));
    ck_assert(!oom_budget_bytes(&message).known);
}

#define TRACE_HEAD "step 0: train loss 10.9\nTraceback (most recent call last):\n"
#define TRACE_EVALUATE                                                                                        \
    TRACE_HEAD "  File \"nanoGPT/train.py\", line 264, in <module>\n    losses = estimate_loss()\n"           \
               "  File \"nanoGPT/model.py\", line 187, in forward\n    logits = self.lm_head(x)\n"            \
               "             ^^^^^^^^^^^^^^^\n"                                                               \
               "  File \"/usr/lib/python3/dist-packages/torch/nn/modules/linear.py\", line 125, in forward\n" \
               "    return F.linear(input, self.weight, self.bias)\n"
#define TRACE_BACKWARD                                                                                    \
    TRACE_HEAD "  File \"train.py\", line 308, in <module>\n    scaler.scale(loss).backward()\n"          \
               "  File \"/x/site-packages/torch/autograd/graph.py\", line 769, in _engine_run_backward\n" \
               "    return Variable._execution_engine.run_backward(\n"
#define TRACE_OPTIMIZER                                                                       \
    TRACE_HEAD "  File \"train.py\", line 314, in <module>\n    scaler.step(optimizer)\n"     \
               "  File \"/x/site-packages/torch/optim/adamw.py\", line 124, in _init_group\n" \
               "    state[\"exp_avg_sq\"] = torch.zeros_like(\n"
#define TRACE_LOSS                                                                            \
    TRACE_HEAD "  File \"train.py\", line 300, in <module>\n    logits, loss = model(X, Y)\n" \
               "  File \"model.py\", line 188, in forward\n"                                  \
               "    loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)\n"
#define TRACE_SETUP                                                                 \
    TRACE_HEAD "  File \"train.py\", line 193, in <module>\n    model.to(device)\n" \
               "  File \"/x/site-packages/torch/nn/modules/module.py\", line 900, in _apply\n    module._apply(fn)\n"

TEST(tracebacks)
{
    static const struct {
        const char *text;
        enum oom_stage stage;
        enum oom_site site;
        bool evaluation;
        int32_t line;
        const char *file, *source;
    } cases[] = {
        {TRACE_EVALUATE STORY, OOM_STAGE_FORWARD, OOM_SITE_LOGITS, true, 187, "model.py", "logits = self.lm_head(x)"},
        {TRACE_BACKWARD STORY, OOM_STAGE_BACKWARD, OOM_SITE_UNKNOWN, false, 308, "train.py",
         "scaler.scale(loss).backward()"},
        {TRACE_OPTIMIZER STORY, OOM_STAGE_OPTIMIZER, OOM_SITE_UNKNOWN, false, 314, "train.py",
         "scaler.step(optimizer)"},
        {TRACE_LOSS STORY, OOM_STAGE_FORWARD, OOM_SITE_LOSS, false, 188, "model.py", "loss = F.cross_entropy("},
        {TRACE_SETUP STORY, OOM_STAGE_SETUP, OOM_SITE_UNKNOWN, false, 193, "train.py", "model.to(device)"},
        /* Only the last traceback counts. */
        {TRACE_EVALUATE STORY "\n\n" TRACE_OPTIMIZER STORY, OOM_STAGE_OPTIMIZER, OOM_SITE_UNKNOWN, false, 314,
         "train.py", "scaler.step(optimizer)"},
        {"estimate_loss\n" STORY, OOM_STAGE_UNKNOWN, OOM_SITE_UNKNOWN, false, 0, "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct oom_message message;
        ck_assert(oom_message_parse(cases[i].text, strlen(cases[i].text), &message));
        ck_assert_msg(message.stage == cases[i].stage, "case %zu: stage %d", i, message.stage);
        ck_assert_msg(message.site == cases[i].site, "case %zu: site %d", i, message.site);
        ck_assert_msg(message.evaluation == cases[i].evaluation, "case %zu", i);
        ck_assert_msg(message.frame.line == cases[i].line, "case %zu: line %d", i, message.frame.line);
        ck_assert_str_eq(message.frame.file, cases[i].file);
        ck_assert_msg(strncmp(message.frame.source, cases[i].source, strlen(cases[i].source)) == 0, "case %zu: %s", i,
                      message.frame.source);
    }
}

/* Mail programs wrap lines, logs surround the message with text, and control characters must not reach a terminal. */
TEST(odd_surroundings)
{
    struct oom_message message;
    char text[2 * sizeof STORY];
    size_t used = 0;
    for (size_t i = 0; i < sizeof STORY - 1; i++) {
        text[used++] = STORY[i] == ' ' ? '\n' : STORY[i];
        if (STORY[i] == ' ')
            text[used++] = ' ';
    }
    ck_assert(oom_message_parse(text, used, &message));
    ck_assert_double_eq_tol(message.tried.bytes, 6.14 * GIB, 1.0);
    ck_assert_double_eq_tol(message.unallocated.bytes, 402.57 * MIB, 1.0);
    ck_assert_int_eq(message.others_count, 1);
    /* A later paragraph does not belong to the message. */
    static const char tail[] =
        "CUDA out of memory. Tried to allocate 1.00 GiB.\n\nGPU 7 has a total capacity of 3.00 GiB";
    ck_assert(oom_message_parse(tail, sizeof tail - 1, &message));
    ck_assert(!message.total.known && message.device == -1);
    static const char hostile[] =
        "Traceback (most recent call last):\n  File \"\x1b[2Jx.py\", line 3, in f\x07\n    \x1b]0;y\x07\n"
        "CUDA out of memory. Tried to allocate 99999999999999999999999999999999 GiB";
    ck_assert(oom_message_parse(hostile, sizeof hostile - 1, &message));
    ck_assert_str_eq(message.frame.file, "?[2Jx.py");
    ck_assert_str_eq(message.frame.source, "?]0;y?");
    ck_assert(!message.tried.known || isfinite(message.tried.bytes));
    static const char *const none[] = {"", "out of memory", "CUDA out of memory. Tried", "exit code 137", "killed"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        ck_assert(!oom_message_parse(none[i], strlen(none[i]), &message));
}

/* Every prefix, and damage at random places: under the sanitizers this tests the bounds. */
TEST(damaged)
{
    static const char whole[] = TRACE_EVALUATE STORY;
    struct oom_message message;
    for (size_t count = 0; count <= sizeof whole - 1; count++) {
        char *part = malloc(count + 1);
        ck_assert_ptr_nonnull(part);
        memcpy(part, whole, count);
        (void)oom_message_parse(part, count, &message);
        free(part);
    }
    struct philox_key key = philox_key_make(unit_seed(), RNG_INIT);
    for (uint32_t round = 0; round < 4000; round++) {
        char text[sizeof whole];
        memcpy(text, whole, sizeof whole);
        struct philox_block draw = philox4x32_10(key, (struct philox_block){{round, 0, 0, 0}});
        text[draw.word[0] % (sizeof whole - 1)] = (char)(draw.word[1] & 0xff);
        text[draw.word[2] % (sizeof whole - 1)] = "\0\n \"9.G"[draw.word[3] % 7];
        if (oom_message_parse(text, sizeof whole - 1, &message)) {
            ck_assert(memchr(message.frame.source, '\0', sizeof message.frame.source) != NULL);
            ck_assert(!message.tried.known || (isfinite(message.tried.bytes) && message.tried.bytes >= 0.0));
        }
    }
}

static void parse(const char *text, struct oom_message *out)
{
    ck_assert(oom_message_parse(text, strlen(text), out));
}

TEST(matches)
{
    struct oom_shape story = {.batch = 64, .block_size = 1024, .n_embd = 768, .n_head = 12, .vocab_size = 50304};
    struct oom_match out[OOM_MATCHES_MAX];
    struct oom_message message;
    parse(TRACE_EVALUATE STORY, &message);
    ck_assert_int_eq(oom_match_find(&message, &story, out), 1);
    ck_assert_str_eq(out[0].name, "the logits");
    ck_assert_uint_eq(out[0].bytes, UINT64_C(64) * 1024 * 50304 * 2);
    ck_assert_int_eq(out[0].element_bytes, 2);
    ck_assert(out[0].fits_traceback);
    /* The same size results from half the batch in float32: two rows of the table, that of the traceback first. */
    story.batch = 32;
    parse(TRACE_LOSS STORY, &message);
    ck_assert_int_eq(oom_match_find(&message, &story, out), 2);
    ck_assert(strstr(out[0].name, "cross entropy") != NULL && out[0].fits_traceback && !out[1].fits_traceback);
    /* With another batch nothing matches, and the batch that would match is named. */
    story.batch = 12;
    ck_assert_int_eq(oom_match_find(&message, &story, out), 0);
    ck_assert_int_eq(oom_match_batch(&message, &story, 2), 64);
    ck_assert_int_eq(oom_match_batch(&message, &story, 4), 32);
    story.batch = 64;
    ck_assert_int_eq(oom_match_batch(&message, &story, 2), 0);
    /* Adam's moments of GPT-2 XL's embedding: 50304 x 1600 x 4 = 307.03 MiB, which the message rounds to 308. */
    struct oom_shape large = {.batch = 1, .block_size = 64, .n_embd = 1600, .n_head = 25, .vocab_size = 50304};
    parse(TRACE_OPTIMIZER "CUDA out of memory. Tried to allocate 308.00 MiB (GPU 0; 15.78 GiB total capacity;",
          &message);
    ck_assert_int_eq(oom_match_find(&message, &large, out), 1);
    ck_assert(strstr(out[0].name, "Adam") != NULL && out[0].fits_traceback);
    /* Attention scores, 64 x 12 x 1024 x 1024 in 16 bits: 1.5 GiB. */
    story.batch = 64;
    parse("CUDA out of memory. Tried to allocate 1.50 GiB.", &message);
    ck_assert_int_ge(oom_match_find(&message, &story, out), 1);
    ck_assert(strstr(out[0].name, "attention scores") != NULL);
    parse("CUDA out of memory. Tried to allocate 20.00 MiB.", &message);
    ck_assert(oom_is_small_segment(&message));
    ck_assert_int_eq(oom_match_find(&message, &story, out), 0);
    parse("CUDA out of memory. Tried to allocate 7.77 GiB.", &message);
    ck_assert_int_eq(oom_match_find(&message, &story, out), 0);
    /* Sizes beyond 64 bits match nothing. */
    struct oom_shape absurd = {.batch = INT64_MAX, .block_size = INT64_MAX, .n_embd = 3, .n_head = 3, .vocab_size = 3};
    ck_assert_int_eq(oom_match_find(&message, &absurd, out), 0);
}

TEST(segments)
{
    ck_assert_uint_eq(oom_segment_bytes(OOM_CUDA, 1), UINT64_C(2) << 20);
    ck_assert_uint_eq(oom_segment_bytes(OOM_CUDA, UINT64_C(1) << 20), UINT64_C(2) << 20);
    ck_assert_uint_eq(oom_segment_bytes(OOM_CUDA, (UINT64_C(1) << 20) + 1), UINT64_C(20) << 20);
    ck_assert_uint_eq(oom_segment_bytes(OOM_HIP, UINT64_C(10) << 20), UINT64_C(10) << 20);
    ck_assert_uint_eq(oom_segment_bytes(OOM_CUDA, (UINT64_C(10) << 20) + 1), UINT64_C(12) << 20);
    ck_assert_uint_eq(oom_segment_bytes(OOM_CPU, 12345), 12345);
}
