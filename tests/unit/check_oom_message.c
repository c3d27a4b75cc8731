/* Tests of plan/oom_message: a table of messages that PyTorch and others printed over the years,
 * the best message of a log, tracebacks.  explain_oom.py has what the answer says of them. */
#include "plan/oom_message.h"

#include <math.h>
#include <string.h>

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
    {STORY, OOM_CUDA, 0, 6.14 * GIB, 11.69 * GIB, 2.68 * GIB, 7.04 * GIB, 6.51 * GIB, 402.57 * MIB,
     1.97 * GIB, UNKNOWN},
    {"RuntimeError: CUDA out of memory. Tried to allocate 786.00 MiB (GPU 3; 15.78 GiB total capacity; 14.28 GiB already "
     "allocated; 620.69 MiB free; 14.32 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try "
     "setting max_split_size_mb to avoid fragmentation.",
     OOM_CUDA, 3, 786.0 * MIB, 15.78 * GIB, 620.69 * MIB, UNKNOWN, 14.28 * GIB, 0.04 * GIB, UNKNOWN,
     UNKNOWN},
    {"RuntimeError: CUDA out of memory. Tried to allocate 198.00 MiB (GPU 0; 5.93 GiB total capacity; 4.64 GiB already "
     "allocated; 54.94 MiB free; 233.05 MiB cached)",
     OOM_CUDA, 0, 198.0 * MIB, 5.93 * GIB, 54.94 * MIB, UNKNOWN, 4.64 * GIB, 233.05 * MIB, UNKNOWN,
     UNKNOWN},
    {"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.70 GiB. GPU 0 has a total capacty of 6.00 GiB "
     "of which 0 bytes is free. Of the allocated memory 2.93 GiB is allocated by PyTorch, and 2.30 GiB is reserved by "
     "PyTorch but unallocated.",
     OOM_CUDA, 0, 1.70 * GIB, 6.0 * GIB, 0.0, UNKNOWN, 2.93 * GIB, 2.30 * GIB, UNKNOWN, UNKNOWN},
    {"CUDA out of memory. Tried to allocate 172.00 MiB. GPU 0 has a total capacty of 39.56 GiB of which 52.56 MiB is "
     "free. Process 263789 has 39.51 GiB memory in use. Of the allocated memory 37.80 GiB is allocated by PyTorch, and "
     "336.39 MiB is reserved by PyTorch but unallocated.",
     OOM_CUDA, 0, 172.0 * MIB, 39.56 * GIB, 52.56 * MIB, 39.51 * GIB, 37.80 * GIB, 336.39 * MIB,
     UNKNOWN, UNKNOWN},
    {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2,00 GiB. GPU 0 has a total capacity of 23,64 GiB of "
     "which 1,21 GiB is free. Of the allocated memory 21,50 GiB is allocated by PyTorch, and 512,00 MiB is reserved by "
     "PyTorch but unallocated.",
     OOM_CUDA, 0, 2.0 * GIB, 23.64 * GIB, 1.21 * GIB, UNKNOWN, 21.50 * GIB, 512.0 * MIB, UNKNOWN,
     UNKNOWN},
    {"torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 15.98 GiB of "
     "which 1.10 GiB is free. 12.00 GiB allowed; Of the allocated memory 13.11 GiB is allocated by PyTorch, with 64.00 "
     "MiB allocated in private pools (e.g., HIP Graphs), and 1.02 GiB is reserved by PyTorch but unallocated.",
     OOM_HIP, 1, 2.0 * GIB, 15.98 * GIB, 1.10 * GIB, UNKNOWN, 13.11 * GIB, 1.02 * GIB, UNKNOWN,
     12.0 * GIB},
    {"torch.OutOfMemoryError: XPU out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 15.56 GiB. Of "
     "the allocated memory 12.90 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.",
     OOM_XPU, 0, 512.0 * MIB, 15.56 * GIB, UNKNOWN, UNKNOWN, 12.90 * GIB, 1.0 * GIB, UNKNOWN,
     UNKNOWN},
    {"RuntimeError: MPS backend out of memory (MPS allocated: 5.05 GB, other allocations: 3.98 GB, max allowed: 9.07 GB). "
     "Tried to allocate 512.00 MB on private pool.",
     OOM_MPS, -1, 512.0 * MIB, UNKNOWN, UNKNOWN, UNKNOWN, 5.05 * GIB, UNKNOWN, UNKNOWN, 9.07 * GIB},
    {"RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
     "allocate 3296722944 bytes. Error code 12 (Cannot allocate memory)",
     OOM_CPU, -1, 3296722944.0, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN},
    {"ResourceExhaustedError: \n\nOut of memory error on GPU 0. Cannot allocate 1.500000GB memory on GPU 0, 22.500000GB "
     "memory has been allocated and available memory is only 1.187500GB.",
     OOM_OTHER, 0, 1.5 * GIB, UNKNOWN, 1.1875 * GIB, UNKNOWN, 22.5 * GIB, UNKNOWN, UNKNOWN,
     UNKNOWN},
    {"RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
     OOM_CUDA, -1, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN},
    {"RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58",
     OOM_CUDA, -1, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN},
    /* What a driver does not count. */
    {"CUDA out of memory. Tried to allocate 3.98 GiB. GPU 0 has a total capacity of 31.84 GiB of which 16.30 GiB is "
     "free. Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use. 17.51 GiB allowed; Of the "
     "allocated memory 6.74 GiB is allocated by PyTorch, and 7.02 GiB is reserved by PyTorch but unallocated.",
     OOM_CUDA, 0, 3.98 * GIB, 31.84 * GIB, 16.30 * GIB, UNKNOWN, 6.74 * GIB, 7.02 * GIB, UNKNOWN,
     17.51 * GIB},
    {"CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total capacity of 4096.00 MiB of which 0 bytes is free. "
     "Process 7 has 16777216.00 TiB memory in use. 18446744073709551615 bytes allowed; Of the allocated memory 3.00 GiB "
     "is allocated by PyTorch, and 8589934592.00 GiB is reserved by PyTorch but unallocated.",
     OOM_CUDA, 1, 20.0 * MIB, 4.0 * GIB, 0.0, UNKNOWN, 3.0 * GIB, UNKNOWN, UNKNOWN, UNKNOWN},
    /* A process cannot have less than its tensors. */
    {"CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 21.99 GiB of which 759.38 MiB is "
     "free. Including non-PyTorch memory, this process has 0 bytes memory in use. Of the allocated memory 20.52 GiB is "
     "allocated by PyTorch, and 102.08 MiB is reserved by PyTorch but unallocated.",
     OOM_CUDA, 0, 896.0 * MIB, 21.99 * GIB, 759.38 * MIB, UNKNOWN, 20.52 * GIB, 102.08 * MIB,
     UNKNOWN, UNKNOWN},
    /* A slice of a card lists the processes of the whole card. */
    {"CUDA out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total capacity of 19.12 GiB of which 19.12 GiB is "
     "free. Process 38 has 9.56 GiB memory in use. Process 39 has 46.79 GiB memory in use. Of the allocated memory 0 "
     "bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.",
     OOM_CUDA, 0, 32.0 * MIB, 19.12 * GIB, 19.12 * GIB, UNKNOWN, 0.0, 0.0, UNKNOWN, UNKNOWN},
    {"Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 9.43 GiB\n"
     "Requested               : 640.00 MiB\nDevice limit            : 11.59 GiB\nFree (according to CUDA): 7.12 MiB\n"
     "PyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB",
     OOM_ASYNC, 0, 640.0 * MIB, 11.59 * GIB, 7.12 * MIB, UNKNOWN, 9.43 * GIB, UNKNOWN, UNKNOWN,
     UNKNOWN},
    {"Current platform can NOT allocate memory block with size larger than 4GB! Tried to allocate 6.85 GiB (GPU  0; 15.56 "
     "GiB total capacity; 0 bytes already allocated; 0 bytes reserved in total by PyTorch)",
     OOM_XPU, 0, 6.85 * GIB, 15.56 * GIB, UNKNOWN, UNKNOWN, 0.0, 0.0, UNKNOWN, UNKNOWN},
    {"RuntimeError: NPU out of memory. Tried to allocate 31.67 GiB\n (NPU 2; 32.00 GiB total capacity; 6.30 GiB already "
     "allocated;\n 24.39 GiB free; 6.55 GiB reserved in total by PyTorch)",
     OOM_NPU, 2, 31.67 * GIB, 32.0 * GIB, 24.39 * GIB, UNKNOWN, 6.30 * GIB, 0.25 * GIB, UNKNOWN,
     UNKNOWN},
    /* Shortened by hand (karpathy/nanochat, issue 443), with its first line and without. */
    {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. \nGPU has 79.19 GiB total, 6.68 GiB free, "
     "72.48 GiB in use by this process.",
     OOM_CUDA, -1, 8.0 * GIB, 79.19 * GIB, 6.68 * GIB, 72.48 * GIB, UNKNOWN, UNKNOWN, UNKNOWN,
     UNKNOWN},
    {"GPU has 79.19 GiB total, 6.68 GiB free, 72.48 GiB in use by this process.", OOM_CUDA, -1,
     UNKNOWN, 79.19 * GIB, 6.68 * GIB, 72.48 * GIB, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN},
    {"RuntimeError: $ Torch: not enough memory: you tried to allocate 12GB. Buy new RAM!", OOM_CPU,
     -1, 12.0 * GIB, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN},
    {"n1:30:31 [3] include/alloc.h:178 NCCL WARN Cuda failure 2 'out of memory'\n\n"
     "n1:30:31 [3] include/alloc.h:185 NCCL WARN Failed to CUDA calloc async 6291456 bytes",
     OOM_NCCL, -1, 6291456.0, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN},
    {"XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12884901888 bytes.",
     OOM_OTHER, -1, 12.0 * GIB, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN},
    {"Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.00GiB (rounded to 2147483648)",
     OOM_OTHER, -1, 2.0 * GIB, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN},
    {"alloc_buffer: allocating 12288.00 MiB on device 0: cudaMalloc failed: out of memory",
     OOM_OTHER, 0, 12.0 * GIB, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN},
    {"numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.50 GiB for an array with shape (9,)",
     OOM_CPU, -1, 7.5 * GIB, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN},
};

/* Messages without sizes. */
static const struct {
    const char *text;
    enum oom_allocator allocator;
} plain[] = {
    {"ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV "
     "cache (17024).",
     OOM_OTHER},
    {"ValueError: Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM to fit the "
     "quantized model.",
     OOM_OTHER},
    {"RuntimeError: FIND was unable to find an engine to execute this computation", OOM_CUDA},
    {"Your session crashed after using all available RAM.", OOM_HOST},
    {"RuntimeError: CUDA driver error: out of memory", OOM_CUDA},
    {"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
     OOM_CUDA},
    {"RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", OOM_CUDA},
    {"Error out of memory at line 380 in file /git/csrc/pythonInterface.c", OOM_CUDA},
    {"[CUDA ERROR] at file train_gpt2.cu:1236:\nout of memory", OOM_CUDA},
    {"RuntimeError: HIP error: out of memory", OOM_HIP},
    {"Native API failed. Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)", OOM_XPU},
    {"Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES)", OOM_XPU},
    {"ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'out of memory'",
     OOM_NCCL},
    {"[METAL] Command buffer execution failed: Insufficient Memory", OOM_METAL},
    {"  exitcode  : -9 (pid: 4242)\n  traceback : Signal 9 (SIGKILL) received by PID 4242",
     OOM_HOST},
    {"['/usr/bin/python'] exits with return code = -9", OOM_HOST},
    {"command terminated with exit code 137", OOM_HOST},
    {"Out of memory: Killed process 4242 (python3)", OOM_HOST},
    {"step 0\nKilled", OOM_HOST},
    {"OSError: [WinError 1455] The paging file is too small", OOM_HOST},
    {"terminate called after throwing an instance of 'std::bad_alloc'", OOM_HOST},
    {"slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.batch", OOM_HOST},
    {"ResourceExhaustedError: OOM when allocating tensor with shape[32,1024,50257]", OOM_OTHER},
    {"ValueError: No available memory for the cache blocks.", OOM_OTHER},
    {"torch.OutOfMemoryError", OOM_CUDA},
};

static void amount_is(size_t form, const char *name, struct oom_amount amount, double expected)
{
    if (expected < 0.0)
        ck_assert_msg(!amount.known, "form %zu: %s is known: %g", form, name, amount.bytes);
    else
        ck_assert_msg(amount.known && fabs(amount.bytes - expected) <= 1e-9 * expected + 0.5,
                      "form %zu: %s is %g, not %g", form, name, amount.bytes, expected);
}

TEST(amounts_of_every_form_are_read)
{
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const struct form *form = &forms[i];
        struct oom_message message;
        ck_assert_msg(oom_message_parse(form->text, strlen(form->text), &message),
                      "form %zu is not found", i);
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

TEST(messages_without_sizes)
{
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        struct oom_message message;
        ck_assert_msg(oom_message_parse(plain[i].text, strlen(plain[i].text), &message), "%s",
                      plain[i].text);
        ck_assert_msg(message.allocator == plain[i].allocator, "%s: %d", plain[i].text,
                      message.allocator);
        ck_assert(!message.tried.known && !message.total.known &&
                  !oom_budget_bytes(&message).known);
        ck_assert(message.allocator != OOM_HOST ||
                  strstr(message.meaning, "not the card's") != NULL);
    }
    static const char *const others[] = {"[CUDA ERROR] at file x.cu:1:\nan illegal memory access",
                                         "exitcode : -90", "  exitcode  : 1 (pid: 9)",
                                         "Cuda failure 'invalid argument'"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct oom_message message;
        ck_assert_msg(!oom_message_parse(others[i], strlen(others[i]), &message), "%s", others[i]);
    }
}

/* A message with sizes wins over one without, and both over a killed process, in any order. */
TEST(the_best_message_of_a_log)
{
    struct oom_message message;
    static const char log[] =
        STORY "\n\nRuntimeError: CUDA error: out of memory\n\n" STORY "\n  exitcode : -9\n";
    ck_assert(oom_message_parse(log, sizeof log - 1, &message));
    ck_assert_int_eq(message.count, 2);
    ck_assert_double_eq_tol(message.tried.bytes, 6.14 * GIB, 1.0);
    static const char driver[] =
        "exitcode : -9\nRuntimeError: CUDA error: out of memory\nexitcode : -9";
    ck_assert(oom_message_parse(driver, sizeof driver - 1, &message));
    ck_assert_int_eq(message.allocator, OOM_CUDA);
    ck_assert_int_eq(message.count, 1);
}

#define TRACE_HEAD "step 0: train loss 10.9\nTraceback (most recent call last):\n"
#define TRACE_EVALUATE                                                                             \
    TRACE_HEAD                                                                                     \
    "  File \"nanoGPT/train.py\", line 264, in <module>\n    losses = estimate_loss()\n"           \
    "  File \"nanoGPT/model.py\", line 187, in forward\n    logits = self.lm_head(x)\n"            \
    "             ^^^^^^^^^^^^^^^\n"                                                               \
    "  File \"/usr/lib/python3/dist-packages/torch/nn/modules/linear.py\", line 125, in forward\n" \
    "    return F.linear(input, self.weight, self.bias)\n"
#define TRACE_BACKWARD                                                                         \
    TRACE_HEAD                                                                                 \
    "  File \"train.py\", line 308, in <module>\n    scaler.scale(loss).backward()\n"          \
    "  File \"/x/site-packages/torch/autograd/graph.py\", line 769, in _engine_run_backward\n" \
    "    return Variable._execution_engine.run_backward(\n"
#define TRACE_OPTIMIZER                                                                       \
    TRACE_HEAD "  File \"train.py\", line 314, in <module>\n    scaler.step(optimizer)\n"     \
               "  File \"/x/site-packages/torch/optim/adamw.py\", line 124, in _init_group\n" \
               "    state[\"exp_avg_sq\"] = torch.zeros_like(\n"
#define TRACE_LOSS                                                                 \
    TRACE_HEAD                                                                     \
    "  File \"train.py\", line 300, in <module>\n    logits, loss = model(X, Y)\n" \
    "  File \"model.py\", line 188, in forward\n"                                  \
    "    loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)\n"
#define TRACE_SETUP                                                      \
    TRACE_HEAD                                                           \
    "  File \"train.py\", line 193, in <module>\n    model.to(device)\n" \
    "  File \"/x/site-packages/torch/nn/modules/module.py\", line 900, in _apply\n    module._apply(fn)\n"

TEST(tracebacks_tell_the_stage)
{
    static const struct {
        const char *text;
        enum oom_stage stage;
        enum oom_site site;
        bool evaluation;
        int32_t line;
        const char *file, *source;
    } cases[] = {
        {TRACE_EVALUATE STORY, OOM_STAGE_FORWARD, OOM_SITE_LOGITS, true, 187, "model.py",
         "logits = self.lm_head(x)"},
        {TRACE_BACKWARD STORY, OOM_STAGE_BACKWARD, OOM_SITE_UNKNOWN, false, 308, "train.py",
         "scaler.scale(loss).backward()"},
        {TRACE_OPTIMIZER STORY, OOM_STAGE_OPTIMIZER, OOM_SITE_UNKNOWN, false, 314, "train.py",
         "scaler.step(optimizer)"},
        {TRACE_LOSS STORY, OOM_STAGE_FORWARD, OOM_SITE_LOSS, false, 188, "model.py",
         "loss = F.cross_entropy("},
        {TRACE_SETUP STORY, OOM_STAGE_SETUP, OOM_SITE_UNKNOWN, false, 193, "train.py",
         "model.to(device)"},
        /* Only the last traceback counts. */
        {TRACE_EVALUATE STORY "\n\n" TRACE_OPTIMIZER STORY, OOM_STAGE_OPTIMIZER, OOM_SITE_UNKNOWN,
         false, 314, "train.py", "scaler.step(optimizer)"},
        {"estimate_loss\n" STORY, OOM_STAGE_UNKNOWN, OOM_SITE_UNKNOWN, false, 0, "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct oom_message message;
        ck_assert(oom_message_parse(cases[i].text, strlen(cases[i].text), &message));
        ck_assert_msg(message.stage == cases[i].stage, "case %zu: stage %d", i, message.stage);
        ck_assert_msg(message.site == cases[i].site, "case %zu: site %d", i, message.site);
        ck_assert_msg(message.evaluation == cases[i].evaluation, "case %zu", i);
        ck_assert_msg(message.frame.line == cases[i].line, "case %zu: line %d", i,
                      message.frame.line);
        ck_assert_str_eq(message.frame.file, cases[i].file);
        ck_assert_msg(strncmp(message.frame.source, cases[i].source, strlen(cases[i].source)) == 0,
                      "case %zu: %s", i, message.frame.source);
    }
}
