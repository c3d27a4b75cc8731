/* Tests the emulator on small kernels: collective operations, error detection, and whether orders or sanitizers reveal
 * races.
 *
 * Each check runs in a child process, because a kernel's mistake ends the process.  A check of a mistake expects exit
 * status 70 and a text on stderr.  Races are planted: a kernel without one of its barriers must give wrong numbers in
 * at least one of the orders.  `check_emulator --race=NAME` runs one of them once, for ThreadSanitizer and
 * AddressSanitizer (sanitizers.sh); `--list` names them.  smoke.cu tests the layouts of matrices.
 */
#include "backends/cuda/cuda_device.h"

#include <cstdio>
#include <cstdlib>

#include <sys/wait.h>
#include <unistd.h>

#include "emulator_run.h"
#include "fake_runtime.h"

#define THREADS 128
/* Threads per block for planted races.  Three blocks stay below the 255 threads that ThreadSanitizer can distinguish
 * (since gcc 13 and LLVM 14).  With more threads it would take two for one, and their accesses for ordered. */
#define RACING 64
#define TEXT_MAX 4096

static const char *const orders[] = {"asc", "desc", "random:1", "random:2", "asc,lockstep", "desc,lockstep"};
#define ORDERS (int)(sizeof orders / sizeof orders[0])

/* Allocates device memory, initially full of NaN. */
static float *device_floats(int count)
{
    void *memory = nullptr;
    if (cudaMalloc(&memory, sizeof(float) * (size_t)count) != cudaSuccess)
        _exit(3);
    return (float *)memory;
}

static bool finish(void)
{
    return cudaDeviceSynchronize() == cudaSuccess;
}

/* ---- correct kernels ---- */

static __global__ void reduce(float *out, const float *in, int count)
{
    SHARED(float, parts, THREADS / 32);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < count; i += THREADS)
        sum += in[(blockIdx.x + gridDim.x * blockIdx.y) * count + i];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0)
        out[blockIdx.x + gridDim.x * blockIdx.y] = parts[0] + parts[1] + parts[2] + parts[3];
}

/* Every order gives the correct sum with the same bits. */
static bool check_reduce(int)
{
    const int count = 200, blocks = 15;
    float *in = device_floats(count * blocks), *out = device_floats(blocks);
    for (int i = 0; i < count * blocks; i++)
        in[i] = (float)(i % 97);
    if (LAUNCH(reduce, dim3(5, 3), dim3(THREADS), 0, 0, out, in, count) != cudaSuccess || !finish())
        return false;
    for (int block = 0; block < blocks; block++) {
        float sum = 0.0f;
        for (int i = 0; i < count; i++)
            sum += in[block * count + i];
        if (out[block] != sum)
            return false;
    }
    return true;
}

static __global__ void shuffles(int *out)
{
    int lane = threadIdx.x % 32, *to = out + threadIdx.x * 3;
    to[0] = __shfl_sync(ALL_LANES, lane * 3, lane + 5);
    to[1] = __shfl_xor_sync(ALL_LANES, lane * 3, 12);
    to[2] = lane < 16 ? __shfl_sync(0xffffu, lane * 3, 2) : __shfl_sync(0xffff0000u, lane * 3, 17);
}

static bool check_shuffles(int)
{
    int *out = (int *)(void *)device_floats(64 * 3);
    bool good = LAUNCH(shuffles, dim3(1), dim3(64), 0, 0, out) == cudaSuccess && finish();
    for (int thread = 0; thread < 64 && good; thread++) {
        int lane = thread % 32, *at = out + thread * 3;
        good = at[0] == (lane + 5) % 32 * 3 && at[1] == (lane ^ 12) * 3 && at[2] == (lane < 16 ? 2 : 17) * 3;
    }
    return good;
}

/* GT_CUDA_ON_CPU_ROUNDING=card truncates sums towards zero and moves functions by at most two units. */
static bool check_rounding(int)
{
    const double half[EMULATOR_PRODUCTS] = {0x1.8p-24, 0.0, 0.0, 0.0},
                 quarters[] = {0x1p-24, 0x1p-24, 0x1p-24, 0x1p-24};
    const double less[EMULATOR_PRODUCTS] = {-0x1.8p-24, 0.0, 0.0, 0.0}, whole[] = {3.0, 5.0, -7.0, 1048576.0};
    const double odd[EMULATOR_PRODUCTS] = {16777217.0, 0.0, 0.0, 0.0}, endless[] = {1.0, INFINITY, 1.0, 1.0};
    bool good = emulator_sum_truncated(1.0f, half, EMULATOR_PRODUCTS) == 1.0f &&
                emulator_sum_truncated(-1.0f, less, EMULATOR_PRODUCTS) == -1.0f &&
                emulator_sum_truncated(1.0f, less, EMULATOR_PRODUCTS) == 1.0f &&
                emulator_sum_truncated(1.0f, quarters, EMULATOR_PRODUCTS) == 1.0f &&
                emulator_sum_truncated(0.0f, quarters, EMULATOR_PRODUCTS) == 0x1p-22f &&
                emulator_sum_truncated(2.0f, whole, EMULATOR_PRODUCTS) == 1048579.0f &&
                emulator_sum_truncated(2.0f, odd, EMULATOR_PRODUCTS) == 16777218.0f &&
                std::isinf(emulator_sum_truncated(2.0f, endless, EMULATOR_PRODUCTS));
    int moved = 0;
    for (int i = 1; i <= 4096; i++) {
        const float y = 1.0f + (float)i * 0x1p-13f, off = emulator_moved((float)i, y, 2);
        good = good && fabsf(off - y) <= 2.0f * 0x1p-23f;
        moved += off != y;
    }
    return good && moved > 1024 && moved < 2048 && emulator_moved(0.0f, 1.0f, 2) == 1.0f;
}

static __global__ void places(int *out)
{
    int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    int threads = blockDim.x * blockDim.y * blockDim.z;
    atomicAdd(&out[block * threads + thread], 1);
}

/* Every thread of every block runs exactly once in any order. */
static bool check_places(int)
{
    const int count = 3 * 5 * 2 * 4 * 3 * 2;
    int *out = (int *)(void *)device_floats(count);
    for (int i = 0; i < count; i++)
        out[i] = 0;
    bool good = LAUNCH(places, dim3(3, 5, 2), dim3(4, 3, 2), 0, 0, out) == cudaSuccess && finish();
    for (int i = 0; i < count; i++)
        good = good && out[i] == 1;
    return good;
}

/* Records what the issuing thread sees of two copies before and after each wait. */
static __global__ void copies(const float *in, float *seen)
{
    SHARED(float, first, 4);
    SHARED(float, second, 4);
    first[0] = second[0] = 5.0f;
    cp_async_16(first, in, true);
    cp_async_commit();
    cp_async_16(second, in + 4, false);
    cp_async_commit();
    seen[0] = first[0];
    cp_async_wait<2>();
    seen[1] = first[0];
    cp_async_wait<1>();
    seen[2] = first[0];
    seen[3] = second[0];
    cp_async_commit();
    cp_async_wait<1>(); /* the empty group counts, so the second copy has landed */
    seen[4] = second[3];
    cp_async_wait<0>();
}

static bool check_copies(int)
{
    float *in = device_floats(8), *seen = device_floats(5);
    for (int i = 0; i < 8; i++)
        in[i] = (float)i + 1.0f;
    bool good = LAUNCH(copies, dim3(1), dim3(1), 0, 0, (const float *)in, seen) == cudaSuccess && finish();
    return good && seen[0] != seen[0] && seen[1] != seen[1] && seen[2] == 1.0f && seen[3] != seen[3] && seen[4] == 0.0f;
}

static __global__ void fresh(float *out)
{
    SHARED(float, statics, 32);
    DYN_SHARED(float, dynamics);
    out[2 * threadIdx.x] = statics[threadIdx.x];
    out[2 * threadIdx.x + 1] = dynamics[threadIdx.x];
    __syncthreads();
    statics[threadIdx.x] = dynamics[threadIdx.x] = 1.0f;
}

/* Every block starts with NaN in its shared memory, whatever the previous block left. */
static bool check_fresh(int)
{
    float *out = device_floats(64);
    bool good = LAUNCH(fresh, dim3(4), dim3(32), 32 * sizeof(float), 0, out) == cudaSuccess && finish();
    for (int i = 0; i < 64; i++)
        good = good && out[i] != out[i];
    return good;
}

template <int pitch> static __global__ void rows(uint32_t *out)
{
    SHARED(uint16_t, tile, 32 * pitch);
    uint32_t r[4];
    for (int i = threadIdx.x; i < 32 * pitch; i += 32)
        tile[i] = (uint16_t)i;
    __syncthreads();
    ldmatrix_x4(r, tile + threadIdx.x * pitch);
    out[threadIdx.x] = r[0];
}

/* Rows of 128 bytes share their banks; a padding of eight elements spreads them. */
static bool check_conflicts(int)
{
    struct emulator_stats before, padded, plain;
    uint32_t *out = (uint32_t *)(void *)device_floats(32);
    emulator_stats_get(&before);
    bool good = LAUNCH(rows<72>, dim3(1), dim3(32), 0, 0, out) == cudaSuccess && finish();
    emulator_stats_get(&padded);
    good = good && LAUNCH(rows<64>, dim3(1), dim3(32), 0, 0, out) == cudaSuccess && finish();
    emulator_stats_get(&plain);
    return good && padded.conflicts == before.conflicts && padded.matrix_rows == before.matrix_rows + 4 &&
           plain.conflicts == padded.conflicts + 4;
}

static bool check_order_texts(int)
{
    return emulator_order_set("random:18446744073709551615,lockstep") && emulator_order_set("asc,run-ahead") &&
           !emulator_order_set("") && !emulator_order_set("ascending") && !emulator_order_set("random") &&
           !emulator_order_set("random:x") && !emulator_order_set("desc,slowly") && emulator_order_set("asc");
}

/* ---- incorrect kernels, one mistake each ---- */

static float *volatile null_pointer;

/* Uses more than a thread's stack.  AddressSanitizer reports that itself, so the case is left out there. */
[[maybe_unused]] __attribute__((noinline)) static float large_frame(int at)
{
    volatile float frame[100000];
    for (int i = 0; i < 100000; i += 100)
        frame[i] = (float)i;
    return frame[at * 100];
}

static const struct {
    const char *name, *says;
    void (*kernel)(float *memory);
} mistakes[] = {
    {"divergent-barrier", "waits for ever at __syncwarp",
     [](float *) {
         /* half of the second warp waits for lanes that are at the block's barrier */
         if (threadIdx.x >= 48)
             __syncwarp();
         __syncthreads();
     }},
    {"ended-before-barrier", "wait at __syncthreads",
     [](float *) {
         if (threadIdx.x < 100)
             __syncthreads();
     }},
    {"ends-at-barrier", "have ended",
     [](float *) {
         if (threadIdx.x >= 10)
             __syncthreads();
     }},
    {"shuffle-with-ended", "names lanes that have ended",
     [](float *memory) {
         if (threadIdx.x < 5)
             return;
         memory[threadIdx.x] = __shfl_sync(ALL_LANES, 1.0f, 8);
     }},
    {"shuffle-from-outside", "reads lane 20, which is not in the mask 0000ffff",
     [](float *memory) {
         if (threadIdx.x < 16)
             memory[threadIdx.x] = __shfl_sync(0xffffu, 1.0f, 20);
     }},
    {"shuffle-without-itself", "is not in its own mask", [](float *) { __syncwarp(0xffffu); }},
    {"collectives-differ", "lane 1 is at a shuffle",
     [](float *memory) {
         if (threadIdx.x % 2 == 0)
             __syncwarp();
         else
             memory[threadIdx.x] = __shfl_sync(ALL_LANES, 1.0f, 0);
     }},
    {"matrix-of-half-a-warp", "ldmatrix: the mask ffffffff names lanes that have ended",
     [](float *memory) {
         uint32_t r[4];
         if (threadIdx.x % 32 < 16)
             return;
         ldmatrix_x4(r, memory);
     }},
    {"copy-not-waited", "asynchronous copies that nobody waited for",
     [](float *memory) {
         cp_async_16(memory + 4 * threadIdx.x, memory, true);
         cp_async_commit();
         cp_async_wait<1>();
     }},
    {"copy-misaligned", "cp.async of 16 bytes",
     [](float *memory) { cp_async_16(memory + 4 * threadIdx.x, memory + 2, true); }},
    {"copy-over-copy", "where another copy of this thread is under way",
     [](float *memory) {
         cp_async_16(memory + 4 * threadIdx.x, memory, true);
         cp_async_commit();
         cp_async_4(memory + 4 * threadIdx.x + 2, memory + 4, false);
     }},
    {"load-misaligned", "a load of 16 bytes", [](float *memory) { memory[0] = (float)load_16_bytes(memory + 1).x; }},
    {"store-misaligned", "a store of 16 bytes",
     [](float *memory) { store_16_bytes(memory + 3, make_uint4(0, 0, 0, 0)); }},
    {"row-misaligned", "ldmatrix of a row",
     [](float *memory) {
         uint32_t r[4];
         ldmatrix_x4(r, memory + 1);
     }},
    {"static-too-large", "49156 bytes of static shared memory",
     [](float *) {
         SHARED(float, most, 8192);
         SHARED(float, rest, 4097);
         rest[0] = most[0] = 0.0f;
     }},
#ifndef __SANITIZE_ADDRESS__
    {"dynamic-not-asked", "a memory access that the host traps",
     [](float *) {
         DYN_SHARED(float, all);
         all[0] = 0.0f;
     }},
    {"null-read", "a memory access that the host traps", [](float *memory) { memory[0] = *null_pointer; }},
    {"stack-overflow", "a memory access that the host traps",
     [](float *memory) { memory[0] = large_frame(threadIdx.x); }},
#endif
};

static bool run_mistake(int mistake)
{
    void (*const mistaken)(float *memory) = mistakes[mistake].kernel;
    return LAUNCH(mistaken, dim3(1), dim3(THREADS), 0, 0, device_floats(4 * THREADS)) == cudaSuccess && finish();
}

static __global__ void bf16_product(float *out)
{
    float sum[4] = {0, 0, 0, 0};
    uint32_t a[4] = {0, 0, 0, 0};
    mma_m16n8k16<__nv_bfloat16>(sum, a, 0, 0);
    out[threadIdx.x] = sum[0];
}

static bool run_too_new(int)
{
    fake_cuda_devices_set("75:4g:Old");
    return LAUNCH(bf16_product, dim3(1), dim3(32), 0, 0, device_floats(32)) == cudaSuccess && finish();
}

/* ---- races, which an order or a sanitizer must reveal ---- */

enum race {
    NO_RACE,
    NO_BARRIER_AFTER_WRITE,
    NO_BARRIER_BEFORE_REUSE,
    NO_SYNCWARP,
    NO_ATOMIC,
    SHORT_WAIT,
    PAST_THE_END
};
static const char *const race_names[] = {"none",      "after-write", "before-reuse", "syncwarp",
                                         "no-atomic", "short-wait",  "past-the-end"};
#define RACES (int)(sizeof race_names / sizeof race_names[0])

/* Two rounds through one buffer: each thread reads what another warp wrote, then what its neighbour wrote. */
static __global__ void exchange(enum race race, int *out, int *total)
{
    SHARED(int, buffer, RACING);
    int thread = threadIdx.x, sum = 0;
    for (int round = 1; round <= 2; round++) {
        buffer[thread] = thread * round;
        if (race != NO_BARRIER_AFTER_WRITE)
            __syncthreads();
        sum += buffer[(thread + RACING / 2) % RACING];
        if (race == PAST_THE_END && thread == RACING - 1)
            sum += buffer[thread + 1] == 0x7fffffff;
        if (race != NO_BARRIER_BEFORE_REUSE)
            __syncthreads();
    }
    buffer[thread] = sum;
    if (race != NO_SYNCWARP)
        __syncwarp();
    sum += buffer[thread ^ 1];
    out[blockIdx.x * RACING + thread] = sum;
    if (thread == 0 && race == NO_ATOMIC)
        *total += sum;
    else if (thread == 0)
        atomicAdd(total, sum);
}

static __global__ void staged(bool too_short, const int *in, int *out)
{
    SHARED(int, stage, 2 * 4 * 32);
    int *mine = stage + 4 * threadIdx.x;
    cp_async_16(mine, in, true);
    cp_async_commit();
    cp_async_16(mine + 128, in + 4, true);
    cp_async_commit();
    if (too_short)
        cp_async_wait<2>();
    else
        cp_async_wait<1>();
    out[threadIdx.x] = mine[0];
    cp_async_wait<0>();
}

static bool run_race(enum race race)
{
    const int blocks = 3;
    int *out = (int *)(void *)device_floats(blocks * RACING), *total = (int *)(void *)device_floats(8);
    for (int i = 0; i < 8; i++)
        total[i] = 0;
    if (race == SHORT_WAIT) {
        bool good = LAUNCH(staged, dim3(1), dim3(32), 0, 0, true, (const int *)total, out) == cudaSuccess && finish();
        return good && out[0] == 0 && out[31] == 0;
    }
    bool good = LAUNCH(exchange, dim3(blocks), dim3(RACING), 0, 0, race, out, total) == cudaSuccess && finish();
    int first = 0;
    for (int i = 0; i < blocks * RACING && good; i++) {
        int mine = (i % RACING + RACING / 2) % RACING * 3, other = ((i % RACING ^ 1) + RACING / 2) % RACING * 3;
        first = i == 0 ? mine + other : first;
        good = out[i] == mine + other;
    }
    return good && *total == first * blocks;
}

/* Returns true when some order gives wrong numbers.  (If one ends the process, the child's status shows it.) */
static bool race_shows(int race)
{
    bool shows = false;
    for (int i = 0; i < ORDERS; i++) {
        emulator_order_set(orders[i]);
        shows = !run_race((enum race)race) || shows;
    }
    return shows;
}

/* ---- test driver ---- */

struct totals {
    int passed, failed;
};

static bool no_race_shows(int)
{
    return !race_shows(NO_RACE);
}

/* Runs check(argument) in a child process.  Returns its exit status (0 true, 1 false); `text` is what it wrote to
 * stderr. */
static int child_run(bool (*check)(int), int argument, const char *order, char text[TEXT_MAX])
{
    int ends[2], status = 0;
    size_t length = 0;
    ssize_t got;
    fflush(stdout);
    if (pipe(ends) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        if (order)
            emulator_order_set(order);
        _exit(check(argument) ? 0 : 1);
    }
    close(ends[1]);
    while (child > 0 && length + 1 < TEXT_MAX && (got = read(ends[0], text + length, TEXT_MAX - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = '\0';
    close(ends[0]);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void report(struct totals *totals, const char *name, const char *more, bool good, const char *text)
{
    printf("%s emulator-%s%s%s\n", good ? "PASS" : "FAIL", name, *more ? "-" : "", more);
    if (!good)
        printf("%s", text);
    totals->passed += good;
    totals->failed += !good;
}

static void check_rights(struct totals *totals)
{
    static const struct {
        const char *name;
        bool (*check)(int);
        bool in_all_orders;
        int argument;
    } checks[] = {{"reduce", check_reduce, true, 0},
                  {"shuffles", check_shuffles, true, 0},
                  {"places", check_places, true, 0},
                  {"copies", check_copies, true, 0},
                  {"fresh", check_fresh, true, 0},
                  {"conflicts", check_conflicts, false, 0},
                  {"order-texts", check_order_texts, false, 0},
                  {"rounding", check_rounding, false, 0},
                  {"no-race", no_race_shows, false, 0},
                  {"race-after-write", race_shows, false, NO_BARRIER_AFTER_WRITE},
                  {"race-before-reuse", race_shows, false, NO_BARRIER_BEFORE_REUSE},
                  {"race-syncwarp", race_shows, false, NO_SYNCWARP},
                  {"race-short-wait", race_shows, false, SHORT_WAIT}};
    char text[TEXT_MAX];
    for (const auto &entry : checks)
        for (int i = 0; i < (entry.in_all_orders ? ORDERS : 1); i++) {
            const char *order = entry.in_all_orders ? orders[i] : "";
            report(totals, entry.name, order, child_run(entry.check, entry.argument, order, text) == 0, text);
        }
}

static void check_mistakes(struct totals *totals)
{
    char text[TEXT_MAX];
    for (int i = 0; i < (int)(sizeof mistakes / sizeof mistakes[0]); i++) {
        int status = child_run(run_mistake, i, "asc", text);
        bool named = strstr(text, "emulator: mistaken: block (0,0,0) thread (") != nullptr;
        report(totals, mistakes[i].name, "", status == EMULATOR_EXIT && named && strstr(text, mistakes[i].says), text);
    }
    int status = child_run(run_too_new, 0, "asc", text);
    report(totals, "too-new", "", status == EMULATOR_EXIT && strstr(text, "needs sm_80, and the device is sm_75"),
           text);
}

int main(int argc, char **argv)
{
    struct totals totals = {0, 0};
    if (argc > 1 && strncmp(argv[1], "--race=", 7) == 0) {
        for (int race = 0; race < RACES; race++)
            if (strcmp(argv[1] + 7, race_names[race]) == 0)
                return run_race((enum race)race) ? 0 : 1;
        return 2;
    }
    if (argc > 1) {
        for (int race = 0; race < RACES; race++)
            printf("%s\n", race_names[race]);
        return strcmp(argv[1], "--list") == 0 ? 0 : 2;
    }
#ifdef __has_feature
#if __has_feature(thread_sanitizer)
    printf("SKIP check_emulator: ThreadSanitizer ends it at the races that it plants (sanitizers.py runs these)\n"
           "checks: 0 passed, 0 failed, 1 skipped\n");
    return 77;
#endif
#endif
    check_rights(&totals);
    check_mistakes(&totals);
    printf("checks: %d passed, %d failed, 0 skipped\n", totals.passed, totals.failed);
    return totals.failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
