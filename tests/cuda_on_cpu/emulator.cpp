/* Runs kernels on the CPU.  The threads of a block are fibers of the calling thread, switched at
 * synchronisation points.
 *
 * Blocks run one after another.  Each fiber runs until it ends or waits, at the block's barrier or
 * for the lanes of its warp.  The last lane to arrive performs the warp operation, from the
 * arguments that the other lanes left.  Each block gets fresh shared memory of exactly the
 * requested size, filled with NaN.  An asynchronous copy fills its destination with NaN when it is
 * issued and happens when the kernel waits for it.  Anything that a device cannot do correctly is
 * an error that names the thread.
 *
 * This file is always compiled with -O2 and without sanitizers: ThreadSanitizer must not see what
 * it does between two fibers.  The sanitizers' hooks are weak symbols; this file announces fibers,
 * copies and barriers to them, so that ThreadSanitizer finds races between threads, which only
 * __syncthreads and __syncwarp order, and between blocks, which nothing orders.  `kept` is the only
 * standard container: instrumented code would share the functions of others.
 *
 * It shows nothing about speed or about memory order between warps on a device.  rounding.cpp
 * emulates how a card rounds.
 */
#include "emulator.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <csignal>
#include <sys/mman.h>
#include <unistd.h>

#include <cuda_fp16.h>

#include "emulator_run.h"

extern "C" {
#define WEAK __attribute__((weak))
WEAK void __sanitizer_start_switch_fiber(void **fake, const void *bottom, size_t bytes);
WEAK void __sanitizer_finish_switch_fiber(void *fake, const void **bottom, size_t *bytes);
WEAK void __asan_loadN(const void *from, size_t bytes);
WEAK void __asan_storeN(void *to, size_t bytes);
WEAK void *__tsan_create_fiber(unsigned flags);
WEAK void *__tsan_get_current_fiber(void);
WEAK void __tsan_switch_to_fiber(void *fiber, unsigned flags);
WEAK void __tsan_acquire(void *address);
WEAK void __tsan_release(void *address);
WEAK void __tsan_read_range(const void *from, unsigned long bytes);
WEAK void __tsan_write_range(void *to, unsigned long bytes);
}

#define TSAN_NO_SYNC 1u
#define WARPS_MAX (EMULATOR_THREADS_MAX / WARP_SIZE)
#define WARP_SIZE 32
#define STACK_BYTES ((size_t)256 << 10)
#define GUARD_BYTES ((size_t)4096)
/* Under ThreadSanitizer consecutive blocks use different fibers and stacks; otherwise their
 * accesses would look ordered. */
#define FIBER_SETS 4
#define COPIES_MAX 512
#define GROUPS_MAX 64
#define SHARED_MAX 64 /* static arrays per block */
#define POISON 0xff

enum fiber_state { READY, AT_BARRIER, AT_WARP, ENDED };
enum order_kind { ASCENDING, DESCENDING, RANDOM };

/* ---- stack switching ---- */

#if defined(__x86_64__) && !defined(EMULATOR_UCONTEXT)

struct stack_context {
    void *stack_pointer;
};

/* Saves the callee-saved registers of the System V ABI and the return address on the old stack. */
extern "C" void emulator_switch(void **save, void *load);
asm(".text\n"
    ".globl emulator_switch\n"
    ".type emulator_switch,@function\n"
    "emulator_switch:\n"
    "    push %rbx\n"
    "    push %rbp\n"
    "    push %r12\n"
    "    push %r13\n"
    "    push %r14\n"
    "    push %r15\n"
    "    mov %rsp, (%rdi)\n"
    "    mov %rsi, %rsp\n"
    "    pop %r15\n"
    "    pop %r14\n"
    "    pop %r13\n"
    "    pop %r12\n"
    "    pop %rbp\n"
    "    pop %rbx\n"
    "    pop %rcx\n"
    "    jmp *%rcx\n" /* a ret would be mispredicted: the call was on the other stack */
    ".size emulator_switch,.-emulator_switch\n");

static void context_prepare(struct stack_context *context, char *stack, void (*entry)(void))
{
    static unsigned
        stagger; /* stacks at the same page offset would compete for the same cache lines */
    void **top = (void **)(void *)(stack + STACK_BYTES - 64 - stagger++ % 32 * 704);
    *--top = nullptr; /* return address of entry */
    *--top = (void *)entry;
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    context->stack_pointer = top;
}

static void context_switch(struct stack_context *save, struct stack_context *load)
{
    emulator_switch(&save->stack_pointer, load->stack_pointer);
}

#else

#include <ucontext.h>

struct stack_context {
    ucontext_t place;
};

static void context_prepare(struct stack_context *context, char *stack, void (*entry)(void))
{
    getcontext(&context->place);
    context->place.uc_stack.ss_sp = stack;
    context->place.uc_stack.ss_size = STACK_BYTES;
    context->place.uc_link = nullptr;
    makecontext(&context->place, entry, 0);
}

static void context_switch(struct stack_context *save, struct stack_context *load)
{
    swapcontext(&save->place, &load->place);
}

#endif

/* ---- state ---- */

struct copy {
    void *to;
    const void *from;
    size_t bytes;
    bool fetch;
};

struct fiber {
    struct stack_context context;
    enum fiber_state state;
    bool started;
    char *stack;
    void *sanitizer_stack;
    uint3 place;
    int id;
    enum emulator_op op; /* the op that it waits for, if AT_WARP */
    unsigned mask;
    void *share;
    int copies, groups;
};

/* A fiber's asynchronous copies, stored apart so that the fibers of a warp share few cache lines.
 */
struct fiber_copies {
    int group_end[GROUPS_MAX];
    struct copy copy[COPIES_MAX];
};

/* Lanes of a warp that wait at one collective for the other lanes of its mask. */
struct gathering {
    enum emulator_op op;
    int line;
    unsigned mask, arrived;
};

struct warp_gatherings {
    int count;
    struct gathering at[WARP_SIZE];
};

struct shared_array {
    const void *tag;
    void *memory;
    size_t bytes;
};

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

static struct fiber fibers[EMULATOR_THREADS_MAX];
static struct fiber_copies fiber_copies[EMULATOR_THREADS_MAX];
static struct warp_gatherings gatherings[WARPS_MAX];
static struct fiber *current; /* NULL outside kernels */
static const struct emulator_launch *launched;
static int thread_count, ended_count, barrier_count;
static unsigned live_lanes[WARPS_MAX];
static int barrier_line[WARPS_MAX]; /* where a warp's first lane waits; 0: none does */
static struct stack_context main_context;
static void *main_fiber, *main_sanitizer_stack;
static const void *main_stack;
static size_t main_stack_bytes;

static char
    *free_stack[EMULATOR_THREADS_MAX]; /* unused stacks are in the order of their creation */
static int free_stacks;
static void *tsan_fiber[EMULATOR_THREADS_MAX][FIBER_SETS];
static char *tsan_stack[EMULATOR_THREADS_MAX][FIBER_SETS];
static int fiber_set;
/* The lanes of a warp that run one after another: each that waits switches to the next. */
static struct warp_round {
    int first, at; /* lane 0's thread; how many lanes have had their turn */
    int order[WARP_SIZE];
} lanes_round;
/* ThreadSanitizer orders accesses by these addresses: everything before a launch, and the end of
 * all threads. */
static char launch_tag, end_tag;

static unsigned char *dynamic_memory;
static struct shared_array shared[SHARED_MAX];
static int shared_count;
/* Under ThreadSanitizer a block's memory is freed after the launch, so that no two blocks share an
 * address. */
static std::vector<void *> kept;

static enum order_kind order_kind = ASCENDING;
static bool order_lockstep, order_known;
static uint64_t order_seed = 1, random_state;
static int device_capability = 86;
static uint64_t launches; /* so far */

static void fail_at(const char *format, va_list arguments)
{
    char text[512];
    vsnprintf(text, sizeof text, format, arguments);
    fprintf(stderr, "emulator: %s: block (%u,%u,%u) thread (%u,%u,%u): %s\n",
            launched ? launched->kernel : "no kernel", blockIdx.x, blockIdx.y, blockIdx.z,
            threadIdx.x, threadIdx.y, threadIdx.z, text);
    fflush(stderr);
    _exit(EMULATOR_EXIT);
}

void emulator_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail_at(format, arguments);
    va_end(arguments);
    abort();
}

void emulator_need(int capability, const char *what)
{
    if (device_capability < capability)
        emulator_fail("%s needs sm_%d, and the device is sm_%d", what, capability,
                      device_capability);
}

int emulator_lane(void)
{
    return current->id % WARP_SIZE;
}

/* ---- block memory ---- */

static void *block_memory(size_t bytes)
{
    void *memory = nullptr;
    if (posix_memalign(&memory, 128, bytes > 0 ? bytes : 1) != 0)
        emulator_fail("no memory for %zu bytes of shared memory", bytes);
    memset(memory, POISON, bytes);
    return memory;
}

static void block_memory_release(void *memory)
{
    if (!__tsan_release) {
        free(memory);
        return;
    }
    kept.push_back(memory);
}

void *emulator_shared(const void *tag, size_t bytes)
{
    size_t total = launched->dynamic_bytes + bytes, statics = bytes;
    for (int i = 0; i < shared_count; i++) {
        if (shared[i].tag == tag) {
            if (__tsan_acquire)
                __tsan_acquire(shared[i].memory);
            return shared[i].memory;
        }
        total += shared[i].bytes;
        statics += shared[i].bytes;
    }
    if (shared_count == SHARED_MAX || statics > (size_t)48 << 10)
        emulator_fail("%zu bytes of static shared memory in %d arrays; nvcc takes 49152 bytes",
                      statics, shared_count + 1);
    if (total > launched->shared_bytes_max)
        emulator_fail("%zu bytes of static and dynamic shared memory, and a block may have %zu",
                      total, launched->shared_bytes_max);
    struct shared_array *array = &shared[shared_count++];
    *array = {tag, block_memory(bytes), bytes};
    /* Other threads may use the array only after it has been created. */
    if (__tsan_release)
        __tsan_release(array->memory);
    return array->memory;
}

/* Without dynamic shared memory returns an inaccessible address: taking the address is not yet a
 * mistake. */
void *emulator_dynamic_shared(void)
{
    static void *nowhere;
    if (launched->dynamic_bytes > 0)
        return dynamic_memory;
    if (!nowhere)
        nowhere = mmap(nullptr, GUARD_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1, 0);
    return nowhere;
}

/* ---- fibers ---- */

static char *stack_map(void)
{
    char *memory = (char *)mmap(nullptr, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        perror("emulator: mmap");
        _exit(EMULATOR_EXIT);
    }
    mprotect(memory, GUARD_BYTES, PROT_NONE);
    return memory + GUARD_BYTES;
}

static void fiber_main(void);

static void fiber_start(struct fiber *fiber)
{
    if (__tsan_create_fiber) {
        if (!tsan_fiber[fiber->id][fiber_set]) {
            tsan_fiber[fiber->id][fiber_set] = __tsan_create_fiber(0);
            tsan_stack[fiber->id][fiber_set] = stack_map();
        }
        fiber->stack = tsan_stack[fiber->id][fiber_set];
    } else {
        fiber->stack = free_stacks > 0 ? free_stack[--free_stacks] : stack_map();
    }
    fiber->sanitizer_stack = nullptr;
    fiber->started = true;
    context_prepare(&fiber->context, fiber->stack, fiber_main);
}

/* Returns the next runnable fiber of the round; NULL at its end. */
static struct fiber *round_next(struct warp_round *round)
{
    while (round->at < WARP_SIZE) {
        int id = round->first + round->order[round->at++];
        if (id < thread_count && fibers[id].state == READY)
            return &fibers[id];
    }
    return nullptr;
}

/* Switches from a fiber to the next one of its warp's round, or to the scheduler. */
static void leave(void)
{
    struct fiber *fiber = current;
    /* The stack of a fiber that has ended may become that of the next one; sanitizers expect the
     * scheduler in between. */
    if (fiber->state != ENDED && !__sanitizer_start_switch_fiber && !__tsan_switch_to_fiber) {
        struct fiber *next = round_next(&lanes_round);
        if (next) {
            if (!next->started)
                fiber_start(next);
            current = next;
            threadIdx = next->place;
            context_switch(&fiber->context, &next->context);
            return;
        }
    }
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(fiber->state == ENDED ? nullptr : &fiber->sanitizer_stack,
                                       main_stack, main_stack_bytes);
    if (__tsan_switch_to_fiber)
        __tsan_switch_to_fiber(main_fiber, TSAN_NO_SYNC);
    context_switch(&fiber->context, &main_context);
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(fiber->sanitizer_stack, &main_stack, &main_stack_bytes);
}

static void fiber_main(void)
{
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(nullptr, &main_stack, &main_stack_bytes);
    if (__tsan_acquire)
        __tsan_acquire(&launch_tag);
    launched->body(launched->context);
    struct fiber *fiber = current;
    if (fiber->copies > 0)
        emulator_fail("the thread ends with %d asynchronous copies that nobody waited for",
                      fiber->copies);
    if (barrier_count > 0)
        emulator_fail("the thread ends, and %d threads of its block wait at __syncthreads",
                      barrier_count);
    if (__tsan_release)
        __tsan_release(&end_tag);
    fiber->state = ENDED;
    ended_count++;
    live_lanes[fiber->id / WARP_SIZE] &= ~(1u << fiber->id % WARP_SIZE);
    leave();
    abort();
}

/* Switches from the scheduler to a fiber, and returns when it, or one that it switched to, ends or
 * finds no other to run. */
static void enter(struct fiber *fiber)
{
    if (!fiber->started)
        fiber_start(fiber);
    current = fiber;
    threadIdx = fiber->place;
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(&main_sanitizer_stack, fiber->stack, STACK_BYTES);
    if (__tsan_switch_to_fiber)
        __tsan_switch_to_fiber(tsan_fiber[fiber->id][fiber_set], TSAN_NO_SYNC);
    context_switch(&main_context, &fiber->context);
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(main_sanitizer_stack, nullptr, nullptr);
    if (current->state == ENDED && !__tsan_create_fiber)
        free_stack[free_stacks++] = current->stack;
    current = nullptr;
}

/* ---- block barrier ---- */

void emulator_barrier(int line)
{
    struct fiber *fiber = current;
    const int warp = fiber->id / WARP_SIZE;
    if (barrier_line[warp] != 0 && barrier_line[warp] != line)
        emulator_fail("__syncthreads in line %d, and another lane at one in line %d", line,
                      barrier_line[warp]);
    barrier_line[warp] = line;
    if (ended_count > 0)
        emulator_fail("__syncthreads, and %d threads of the block have ended", ended_count);
    if (__tsan_release)
        __tsan_release(dynamic_memory);
    fiber->state = AT_BARRIER;
    barrier_count++;
    leave();
    if (__tsan_acquire)
        __tsan_acquire(dynamic_memory);
}

/* Opens the barrier when all threads have arrived. */
static bool barrier_open(void)
{
    if (barrier_count != thread_count)
        return false;
    barrier_count = 0;
    memset(barrier_line, 0, sizeof barrier_line);
    for (int i = 0; i < thread_count; i++)
        fibers[i].state = READY;
    return true;
}

/* ---- asynchronous copies ---- */

static void sanitizers_written(void *to, size_t bytes)
{
    if (__asan_storeN)
        __asan_storeN(to, bytes);
    if (__tsan_write_range)
        __tsan_write_range(to, bytes);
}

static void sanitizers_read(const void *from, size_t bytes)
{
    if (__asan_loadN)
        __asan_loadN(from, bytes);
    if (__tsan_read_range)
        __tsan_read_range(from, bytes);
}

/* Replaces memcpy and memset, which the sanitizers would intercept. */
static void bytes_copy(void *to, const void *from, size_t bytes)
{
    volatile unsigned char *out = (volatile unsigned char *)to;
    const volatile unsigned char *in = (const volatile unsigned char *)from;
    for (size_t i = 0; i < bytes; i++)
        out[i] = in[i];
}

static void bytes_fill(void *to, unsigned char value, size_t bytes)
{
    volatile unsigned char *out = (volatile unsigned char *)to;
    for (size_t i = 0; i < bytes; i++)
        out[i] = value;
}

void emulator_copy_issue(void *to, const void *from, size_t bytes, bool fetch)
{
    struct fiber *fiber = current;
    struct fiber_copies *all = &fiber_copies[fiber->id];
    if ((uintptr_t)to % bytes != 0 || (fetch && (uintptr_t)from % bytes != 0))
        emulator_fail("cp.async of %zu bytes from %p to %p, which are not both aligned to them",
                      bytes, from, to);
    if (fiber->copies == COPIES_MAX)
        emulator_fail("more than %d asynchronous copies under way", COPIES_MAX);
    const char *first = (const char *)to;
    for (int i = 0; i < fiber->copies; i++) { /* the order in which copies land is unknown */
        const char *other = (const char *)all->copy[i].to;
        if (first < other + all->copy[i].bytes && other < first + bytes)
            emulator_fail("cp.async to %p, where another copy of this thread is under way", to);
    }
    sanitizers_written(to, bytes);
    bytes_fill(to, POISON, bytes);
    all->copy[fiber->copies++] = {to, from, bytes, fetch};
}

void emulator_copy_commit(void)
{
    struct fiber *fiber = current;
    struct fiber_copies *all = &fiber_copies[fiber->id];
    if (fiber->groups == GROUPS_MAX)
        emulator_fail("more than %d groups of asynchronous copies under way", GROUPS_MAX);
    all->group_end[fiber->groups++] = fiber->copies;
}

void emulator_copy_wait(int groups)
{
    struct fiber *fiber = current;
    struct fiber_copies *all = &fiber_copies[fiber->id];
    if (fiber->groups <= groups)
        return;
    int landing = fiber->groups - groups, count = all->group_end[landing - 1];
    for (int i = 0; i < count; i++) {
        struct copy *copy = &all->copy[i];
        sanitizers_written(copy->to, copy->bytes);
        if (copy->fetch) {
            sanitizers_read(copy->from, copy->bytes);
            bytes_copy(copy->to, copy->from, copy->bytes);
        } else {
            bytes_fill(copy->to, 0, copy->bytes);
        }
    }
    for (int i = count; i < fiber->copies; i++)
        all->copy[i - count] = all->copy[i];
    for (int i = landing; i < fiber->groups; i++)
        all->group_end[i - landing] = all->group_end[i] - count;
    fiber->copies -= count;
    fiber->groups = groups;
}

/* ---- warp collectives ---- */

static const char *op_name(enum emulator_op op)
{
    static const char *const names[] = {"a shuffle",      "__syncwarp",   "ldmatrix",
                                        "ldmatrix.trans", "mma.m16n8k16", "mma.m16n8k16",
                                        "mma.m16n8k16",   "mma.m16n8k8"};
    return names[op];
}

static void shuffle_run(unsigned mask, struct fiber *warp)
{
    for (int lane = 0; lane < WARP_SIZE; lane++) {
        if ((mask >> lane & 1) == 0)
            continue;
        struct emulator_shuffle *share = (struct emulator_shuffle *)warp[lane].share;
        if ((mask >> (share->source & 31) & 1) == 0)
            emulator_fail("a shuffle: lane %d reads lane %d, which is not in the mask %08x", lane,
                          share->source & 31, mask);
        share->result = ((struct emulator_shuffle *)warp[share->source & 31].share)->value;
    }
}

static void ldmatrix_run(bool transposed, struct fiber *warp)
{
    for (int m = 0; m < 4; m++) {
        uint16_t matrix[8][8];
        for (int row = 0; row < 8; row++) {
            const struct emulator_ldmatrix *share =
                (const struct emulator_ldmatrix *)warp[m * 8 + row].share;
            memcpy(matrix[row], share->row, sizeof matrix[row]);
        }
        for (int lane = 0; lane < WARP_SIZE; lane++) {
            int i = lane / 4, j = lane % 4 * 2;
            uint16_t low = transposed ? matrix[j][i] : matrix[i][j];
            uint16_t high = transposed ? matrix[j + 1][i] : matrix[i][j + 1];
            ((struct emulator_ldmatrix *)warp[lane].share)->r[m] = (uint32_t)high << 16 | low;
        }
    }
}

static float half_of(enum emulator_op op, uint32_t pair, int high)
{
    uint16_t bits = (uint16_t)(pair >> 16 * high);
    if (op == EMULATOR_MMA_16_BF16) {
        uint32_t wide = (uint32_t)bits << 16;
        float value;
        memcpy(&value, &wide, sizeof value);
        return value;
    }
    __half value;
    memcpy(static_cast<void *>(&value), &bits, sizeof value);
    return __half2float(value);
}

struct warp_matrices {
    float a[16][16], b[16][8], d[16][8];
};

/* Copies a lane's registers into the matrices; cuda_device.h documents the layout. */
static void fragments_collect(enum emulator_op op, struct warp_matrices *all,
                              const struct emulator_mma *share, int lane)
{
    int i = lane / 4, depth = op == EMULATOR_MMA_8_F16 ? 8 : 16;
    for (int half = 0; half < 2; half++) {
        int j = lane % 4 * 2 + half;
        for (int k = 0; k < depth; k += 8) {
            all->a[i][j + k] = half_of(op, share->a[k / 4], half);
            all->a[i + 8][j + k] = half_of(op, share->a[k / 4 + 1], half);
            all->b[j + k][i] = half_of(op, share->b[k / 8], half);
        }
        all->d[i][j] = share->d[half];
        all->d[i + 8][j] = share->d[2 + half];
    }
}

/* Adds EMULATOR_PRODUCTS products at a time, as a card may. */
static void matrices_multiply_in_steps(struct warp_matrices *all, int depth,
                                       float (*add)(float sum, const double *products, int count))
{
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++)
            for (int k = 0; k < depth; k += EMULATOR_PRODUCTS) {
                double products[EMULATOR_PRODUCTS];
                for (int n = 0; n < EMULATOR_PRODUCTS; n++)
                    products[n] = (double)all->a[i][k + n] * all->b[k + n][j];
                all->d[i][j] = add(all->d[i][j], products, EMULATOR_PRODUCTS);
            }
}

static void matrices_multiply(struct warp_matrices *all, int depth)
{
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < depth; k++)
            for (int j = 0; j < 8; j++)
                all->d[i][j] += all->a[i][k] * all->b[k][j];
}

static void mma_run(enum emulator_op op, struct fiber *warp)
{
    int depth = op == EMULATOR_MMA_8_F16 ? 8 : 16;
    struct warp_matrices all;
    for (int lane = 0; lane < WARP_SIZE; lane++)
        fragments_collect(op, &all, (const struct emulator_mma *)warp[lane].share, lane);
    if (op == EMULATOR_MMA_16_HALF)
        matrices_multiply_in_steps(&all, depth, emulator_sum_half);
    else if (emulator_card_rounding)
        matrices_multiply_in_steps(&all, depth, emulator_sum_truncated);
    else
        matrices_multiply(&all, depth);
    for (int lane = 0; lane < WARP_SIZE; lane++) {
        struct emulator_mma *share = (struct emulator_mma *)warp[lane].share;
        for (int half = 0; half < 2; half++) {
            share->d[half] = all.d[lane / 4][lane % 4 * 2 + half];
            share->d[2 + half] = all.d[lane / 4 + 8][lane % 4 * 2 + half];
        }
    }
}

static void collective_run(enum emulator_op op, unsigned mask, struct fiber *warp)
{
    if (op == EMULATOR_SHUFFLE)
        shuffle_run(mask, warp);
    else if (op == EMULATOR_LDMATRIX || op == EMULATOR_LDMATRIX_TRANS)
        ldmatrix_run(op == EMULATOR_LDMATRIX_TRANS, warp);
    else if (op != EMULATOR_SYNCWARP)
        mma_run(op, warp);
}

/* Returns the gathering of this op and mask, and creates it if necessary.  Fails when two lanes
 * wait for each other in different places. */
static struct gathering *gathering_find(struct warp_gatherings *warp, enum emulator_op op,
                                        unsigned mask, int line, int own)
{
    struct gathering *found = nullptr;
    for (int i = 0; i < warp->count; i++) {
        struct gathering *other = &warp->at[i];
        if (other->op == op && other->mask == mask && other->line == line)
            found = other;
        else if ((other->mask >> own & 1) != 0 && (other->arrived & mask) != 0)
            emulator_fail("lane %d is at %s with mask %08x in line %d, and lane %d at %s with mask "
                          "%08x in line %d",
                          own, op_name(op), mask, line, __builtin_ctz(other->arrived & mask),
                          op_name(other->op), other->mask, other->line);
    }
    if (!found) {
        found = &warp->at[warp->count++];
        *found = {op, line, mask, 0};
    }
    return found;
}

void emulator_collective(enum emulator_op op, unsigned mask, void *share, int line)
{
    struct fiber *fiber = current;
    int lane = fiber->id % WARP_SIZE, index = fiber->id / WARP_SIZE;
    struct fiber *warp = &fibers[index * WARP_SIZE];
    int lanes = std::min(thread_count - index * WARP_SIZE, WARP_SIZE);
    unsigned existing = lanes == WARP_SIZE ? ~0u : (1u << lanes) - 1;
    if ((mask >> lane & 1) == 0)
        emulator_fail("%s: lane %d is not in its own mask %08x", op_name(op), lane, mask);
    /* Shuffles ignore lanes that the block never had; matrix operations need all lanes. */
    if (op < EMULATOR_LDMATRIX)
        mask &= existing;
    if ((mask & ~live_lanes[index]) != 0)
        emulator_fail("%s: the mask %08x names lanes that have ended; %08x live", op_name(op), mask,
                      live_lanes[index]);
    fiber->op = op;
    fiber->mask = mask;
    fiber->share = share;
    fiber->state = AT_WARP;
    if (op == EMULATOR_SYNCWARP && __tsan_release)
        __tsan_release(dynamic_memory + 1 + index);
    struct gathering *gathering = gathering_find(&gatherings[index], op, mask, line, lane);
    gathering->arrived |= 1u << lane;
    if (gathering->arrived == mask) {
        *gathering = gatherings[index].at[--gatherings[index].count];
        collective_run(op, mask, warp);
        for (int i = 0; i < WARP_SIZE; i++)
            if (mask >> i & 1)
                warp[i].state = READY;
    } else {
        leave();
    }
    if (op == EMULATOR_SYNCWARP && __tsan_acquire)
        __tsan_acquire(dynamic_memory + 1 + index);
}

/* ---- the schedule ---- */

bool emulator_order_set(const char *text)
{
    static const char *const names[] = {"asc", "desc", "random:"};
    int kind = ASCENDING;
    while (kind <= RANDOM && strncmp(text, names[kind], strlen(names[kind])) != 0)
        kind++;
    if (kind > RANDOM)
        return false;
    const char *rest = text + strlen(names[kind]);
    uint64_t seed = 1;
    if (kind == RANDOM) {
        char *end;
        seed = strtoull(rest, &end, 10);
        if (end == rest)
            return false;
        rest = end;
    }
    bool lockstep = strcmp(rest, ",lockstep") == 0;
    if (!lockstep && strcmp(rest, "") != 0 && strcmp(rest, ",run-ahead") != 0)
        return false;
    order_kind = (enum order_kind)kind;
    order_lockstep = lockstep;
    order_seed = seed;
    order_known = true;
    return true;
}

static void order_read(void)
{
    const char *text = getenv("GT_CUDA_ON_CPU_ORDER");
    order_known = true;
    if (text && *text && !emulator_order_set(text)) {
        fprintf(
            stderr,
            "emulator: GT_CUDA_ON_CPU_ORDER=%s is not asc, desc or random:SEED with ,run-ahead or ,lockstep\n",
            text);
        _exit(EMULATOR_EXIT);
    }
}

/* splitmix64, Steele et al. 2014. */
static uint64_t random_next(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void order_fill(int *order, int count)
{
    for (int i = 0; i < count; i++)
        order[i] = order_kind == DESCENDING ? count - 1 - i : i;
    if (order_kind != RANDOM)
        return;
    for (int i = count - 1; i > 0; i--)
        std::swap(order[i], order[random_next() % (uint64_t)(i + 1)]);
}

/* Runs each runnable lane of a warp once. */
static bool warp_round(int index)
{
    bool any = false;
    struct fiber *fiber;
    lanes_round.first = index * WARP_SIZE;
    lanes_round.at = 0;
    order_fill(lanes_round.order, WARP_SIZE);
    while ((fiber = round_next(&lanes_round))) {
        enter(fiber);
        any = true;
    }
    return any;
}

static bool warp_run(int index)
{
    bool any = false;
    while (warp_round(index)) {
        any = true;
        if (order_lockstep)
            break;
    }
    return any;
}

static void threads_prepare(const dim3 *block)
{
    for (int i = 0; i < thread_count; i++) {
        struct fiber *fiber = &fibers[i];
        fiber->id = i;
        fiber->state = READY;
        fiber->started = false;
        fiber->copies = fiber->groups = 0;
        fiber->place = {(unsigned)i % block->x, (unsigned)i / block->x % block->y,
                        (unsigned)i / (block->x * block->y)};
    }
    for (int warp = 0; warp * WARP_SIZE < thread_count; warp++) {
        int lanes = std::min(thread_count - warp * WARP_SIZE, WARP_SIZE);
        live_lanes[warp] = lanes == WARP_SIZE ? ~0u : (1u << lanes) - 1;
        gatherings[warp].count = barrier_line[warp] = 0;
    }
    ended_count = barrier_count = 0;
}

/* Reports a thread that can never continue; the message names what it waits for. */
static void deadlock(void)
{
    for (int i = 0; i < thread_count; i++) {
        if (fibers[i].state != AT_WARP)
            continue;
        threadIdx = fibers[i].place;
        emulator_fail(
            "waits for ever at %s with mask %08x; %d threads of the block are at __syncthreads, %d have ended",
            op_name(fibers[i].op), fibers[i].mask, barrier_count, ended_count);
    }
    emulator_fail("%d of %d threads wait for ever at __syncthreads", barrier_count, thread_count);
}

static void block_run(void)
{
    int order[WARPS_MAX], warps = (thread_count + WARP_SIZE - 1) / WARP_SIZE;
    order_fill(order, warps);
    while (ended_count < thread_count) {
        bool any = false;
        for (int k = 0; k < warps; k++)
            any = warp_run(order[k]) || any;
        any = barrier_open() || any;
        if (!any)
            deadlock();
    }
}

/* Permutes any number of blocks without a table, by the affine map i -> a i + b modulo their count.
 */
static uint64_t block_at(uint64_t i, uint64_t count, uint64_t factor, uint64_t shift)
{
    if (order_kind == ASCENDING)
        return i;
    if (order_kind == DESCENDING)
        return count - 1 - i;
    return (uint64_t)(((unsigned __int128)i * factor + shift) % count);
}

static uint64_t coprime_to(uint64_t count)
{
    for (;;) {
        uint64_t a = random_next() % count + 1, x = a, y = count;
        while (y != 0) {
            uint64_t rest = x % y;
            x = y;
            y = rest;
        }
        if (x == 1)
            return a;
    }
}

static void shared_release(void)
{
    block_memory_release(dynamic_memory);
    for (int i = 0; i < shared_count; i++)
        block_memory_release(shared[i].memory);
    shared_count = 0;
}

/* ---- faults ---- */

static void fault(int signal_number)
{
    signal(signal_number, SIG_DFL);
    if (!current)
        raise(signal_number);
    emulator_fail("%s", signal_number == SIGFPE
                            ? "a division that the host traps"
                            : "a memory access that the host traps: a bad address, one that is not "
                              "aligned, or more than the stack");
}

static void faults_catch(void)
{
    static char stack[65536];
    static bool done;
    stack_t alternate = {};
    struct sigaction action = {};
    if (done || __asan_loadN || __tsan_acquire)
        return;
    done = true;
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    sigaltstack(&alternate, nullptr);
    action.sa_handler = fault;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
    sigaction(SIGFPE, &action, nullptr);
}

/* ---- launch ---- */

static void launch_end(void)
{
    if (__tsan_acquire)
        __tsan_acquire(&end_tag);
    for (void *memory : kept)
        free(memory);
    kept.clear();
    launched = nullptr;
    dynamic_memory = nullptr;
}

void emulator_run(const struct emulator_launch *launch)
{
    if (launched)
        emulator_fail(
            "a kernel is launched while another one runs: the emulator has one host thread");
    if (!order_known)
        order_read();
    faults_catch();
    if (__tsan_get_current_fiber)
        main_fiber = __tsan_get_current_fiber();
    launched = launch;
    gridDim = launch->grid;
    blockDim = launch->block;
    thread_count = (int)(launch->block.x * launch->block.y * launch->block.z);
    random_state = order_seed + launches++;
    uint64_t blocks = (uint64_t)gridDim.x * gridDim.y * gridDim.z;
    uint64_t factor = order_kind == RANDOM ? coprime_to(blocks) : 1, shift = random_next() % blocks;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t block = block_at(i, blocks, factor, shift);
        blockIdx = {(unsigned)(block % gridDim.x), (unsigned)(block / gridDim.x % gridDim.y),
                    (unsigned)(block / ((uint64_t)gridDim.x * gridDim.y))};
        fiber_set = (int)(i % FIBER_SETS);
        /* ThreadSanitizer identifies barriers by addresses in this memory: one for the block and
         * one per warp. */
        dynamic_memory = (unsigned char *)block_memory(
            __tsan_release && launch->dynamic_bytes <= WARPS_MAX ? WARPS_MAX + 1
                                                                 : launch->dynamic_bytes);
        if (__tsan_release)
            __tsan_release(&launch_tag);
        threads_prepare(&launch->block);
        block_run();
        shared_release();
    }
    launch_end();
}

void emulator_capability_set(int capability)
{
    device_capability = capability;
}
