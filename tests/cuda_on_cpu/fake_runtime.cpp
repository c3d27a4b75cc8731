/* A fake CUDA run-time library that needs no card: device memory is host memory, and kernels run in
 * the emulator.
 *
 * Streams are queues of closures that run when the host waits; a device-side wait for an event runs
 * the stream that records it, up to the event.  A stream without kernels may also run earlier
 * (GT_CUDA_ON_CPU_COPIES).  A graph keeps a branch for each stream that joined its capture; a
 * replay enqueues each to a stream of its own.  Every function counts its calls, can be made to
 * fail, and refuses what the real library refuses: a copy in the wrong direction, a block too
 * large, undeclared shared memory, a wait during capture.  Device errors appear at the next wait,
 * and from then on everywhere.  fake_runtime.h documents the knobs.
 *
 * It compiles against the stand-in headers and against CUDA's own, which proves that the signatures
 * match.  Like the emulator it is compiled without sanitizers; its memory comes from the C library,
 * whose red zones AddressSanitizer sees.
 */
#include "emulator.h"

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <unistd.h>

#include "emulator_run.h"
#include "fake_runtime.h"

#define KIB ((size_t)1024)
/* Cost of a kernel, and of each byte of its shared memory, on the clock that events read. */
#define KERNEL_SECONDS 1e-2
#define SHARED_SECONDS 1e-6
#define SHARED_DEFAULT (48 * KIB)
/* The most that is poisoned: more would only cost time, and no test needs more. */
#define POISON_MAX (256 * KIB * KIB)

/* How many items of each branch of a capture come before a point in it. */
typedef std::vector<size_t> branch_clock;

struct CUevent_st {
    int64_t recorded = 0, done = 0; /* times */
    bool timing = false;
    double at_ms = 0;
    CUgraph_st *capture = nullptr; /* in which it was last recorded, until that ends */
    bool captured = false;         /* it was last recorded in a capture */
    branch_clock seen;
};

struct queued {
    std::function<void()> work;
    cudaEvent_t record = nullptr, wait = nullptr;
    int64_t generation = 0; /* of the event */
    bool kernel = false;
    size_t in_bytes = 0, out_bytes = 0; /* of a copy from or to host memory */
};

struct CUgraph_st {
    std::vector<std::vector<queued>> branch = {{}};
    std::vector<branch_clock> seen = {{0}}; /* by the end of each branch */
    bool invalid = false;                   /* a forbidden call happened during capture */
};

struct CUgraphExec_st {
    std::vector<std::vector<queued>> branch;
    std::vector<CUstream_st *> stream; /* of each branch but the first */
    std::map<std::pair<cudaEvent_t, int64_t>, cudaEvent_t>
        recorded; /* the event for each record in the capture */
};

struct CUstream_st {
    std::deque<queued> queue; /* not yet run */
    CUgraph_st *capture = nullptr;
    size_t branch = 0;     /* of the capture */
    bool computes = false; /* it has had a kernel */
};

enum copies { COPIES_LATE, COPIES_EARLY, COPIES_RANDOM };

struct fake_device {
    int capability, multiprocessors;
    size_t bytes;
    std::string name;
};

struct counted {
    uint64_t total, after_launch; /* since the first kernel launch */
};

/* A call that fails, or at which another process takes memory. */
struct trigger {
    std::string function;
    uint64_t countdown = 0;
    cudaError_t error = cudaSuccess; /* cudaSuccess: the function's default error */
    bool hangs = false;              /* never returns */
    bool kills = false;              /* ends the process as kill -9 does */
};

struct state {
    std::vector<fake_device> devices = {{86, 28, (size_t)12 << 30, "Emulated GeForce RTX 3060"}};
    int driver = 13000, device = 0;
    bool opened = false; /* the context exists */
    std::map<char *, size_t> memory, pinned, registered;
    std::map<const void *, int> shared_limit;
    std::set<cudaStream_t> streams;
    std::set<cudaEvent_t> events;
    CUstream_st default_stream;
    cudaError_t last = cudaSuccess, sticky = cudaSuccess;
    size_t live_rounded = 0, taken = 0, taken_later = 0;
    int64_t library_bytes = 0;
    struct fake_cuda_counters count = {};
    std::map<std::string, counted> calls;
    std::map<std::string, uint64_t> refused; /* calls after a sticky error */
    double advanced_ms = 0;
    enum copies copies = COPIES_LATE;
    uint32_t random = 1;              /* for COPIES_RANDOM */
    bool advancing = false;           /* inside streams_advance() */
    std::set<cudaStream_t> replaying; /* streams of graphs' branches */
    int engines = 2;                  /* that copy */
    double link = 0;                  /* bytes per second each way; 0: copies take no time */
    size_t pin_limit = SIZE_MAX, registered_bytes = 0;
    int64_t objects = 0;
    trigger fail, take;
    std::string report;
    pid_t process = 0; /* that called first */
    bool ready = false;
};

static void environment_read(void);
static size_t objects_alive(const struct state *state);

/* Never destroyed: the program may call into it from atexit. */
static struct state *state_get(void)
{
    static struct state *state = new struct state;
    if (!state->ready) {
        state->ready = true;
        environment_read();
    }
    return state;
}

/* ---- errors ---- */

struct error_text {
    cudaError_t error;
    const char *name, *text;
};

#define CUDA_ERROR(name, number, text) {name, #name, text},
static const struct error_text error_texts[] = {
#include "include/cuda_errors.def"
};
#undef CUDA_ERROR

static const struct error_text *error_find(cudaError_t error)
{
    for (const struct error_text &entry : error_texts)
        if (entry.error == error)
            return &entry;
    return nullptr;
}

bool fake_cuda_error_is_sticky(cudaError_t error)
{
    return error == cudaErrorECCUncorrectable ||
           (error >= cudaErrorIllegalAddress && error <= cudaErrorLaunchFailure &&
            error != cudaErrorLaunchOutOfResources);
}

static cudaError_t result_is(cudaError_t error)
{
    struct state *state = state_get();
    if (state->sticky != cudaSuccess)
        error = state->sticky;
    if (error != cudaSuccess)
        state->last = error;
    return error;
}

static cudaError_t default_error(const std::string &function)
{
    if (function == "cudaMalloc" || function == "cudaHostAlloc" || function == "cudaHostRegister")
        return cudaErrorMemoryAllocation;
    if (function == "cudaGraphInstantiateWithFlags" || function == "cudaGraphUpload")
        return cudaErrorMemoryAllocation;
    if (function == "cudaStreamBeginCapture" || function == "cudaStreamEndCapture")
        return cudaErrorStreamCaptureUnsupported;
    return function == "launch" || function == "cudaGraphLaunch" ? cudaErrorLaunchFailure
                                                                 : cudaErrorUnknown;
}

/* ---- counting, failing ---- */

static bool trigger_fires(struct trigger *trigger, const char *function)
{
    if (trigger->countdown == 0 || (trigger->function != "any" && trigger->function != function))
        return false;
    return --trigger->countdown == 0;
}

/* Records that the host waits for the device. */
static void wait_count(void)
{
    struct state *state = state_get();
    state->count.waits++;
    state->count.waits_after_replay += state->count.replayed > 0;
}

static void call_count(const char *function)
{
    struct state *state = state_get();
    struct counted *counted = &state->calls[function];
    counted->total++;
    state->count.calls++;
    counted->after_launch += state->count.launches > 0;
    if (trigger_fires(&state->take, function))
        state->taken += state->taken_later;
}

static void hang(void)
{
    for (;;)
        pause();
}

/* Counts the call.  Returns the configured error when this call must fail, else cudaSuccess. */
static cudaError_t call_fault(const char *function)
{
    struct state *state = state_get();
    call_count(function);
    if (state->process == 0)
        state->process = getpid();
    if (state->process != getpid())
        return cudaErrorInitializationError; /* what CUDA has opened does not outlive fork() */
    if (state->sticky != cudaSuccess)
        state->refused[function]++;
    if (!trigger_fires(&state->fail, function))
        return cudaSuccess;
    if (state->fail.kills)
        raise(SIGKILL);
    if (state->fail.hangs)
        hang();
    cudaError_t error =
        state->fail.error != cudaSuccess ? state->fail.error : default_error(function);
    if (fake_cuda_error_is_sticky(error))
        state->sticky = error;
    return error;
}

/* Starts every function of the API: counts the call and returns the configured error. */
static cudaError_t call_begin(const char *function)
{
    return result_is(call_fault(function));
}

#define CALL()                                     \
    do {                                           \
        cudaError_t begun_ = call_begin(__func__); \
        if (begun_ != cudaSuccess)                 \
            return begun_;                         \
    } while (0)

/* Return the error when there is one, or when the condition holds. */
#define NEED(error)                    \
    do {                               \
        cudaError_t needed_ = (error); \
        if (needed_ != cudaSuccess)    \
            return result_is(needed_); \
    } while (0)
#define REFUSE(condition, error) NEED((condition) ? (error) : cudaSuccess)

bool fake_cuda_call_fails(const char *function)
{
    const bool fails = call_fault(function) != cudaSuccess;
    return fails || state_get()->sticky != cudaSuccess;
}

void fake_cuda_object_count(int change)
{
    state_get()->objects += change;
}

void fake_cuda_device_take(int64_t bytes)
{
    state_get()->library_bytes += bytes;
}

/* ---- configuration ---- */

static bool size_read(const char **text, size_t *out)
{
    char *end;
    unsigned long long value = strtoull(*text, &end, 10);
    if (end == *text)
        return false;
    int shift = *end == 'k' ? 10 : *end == 'm' ? 20 : *end == 'g' ? 30 : 0;
    *text = end + (shift > 0);
    *out = (size_t)value << shift;
    return true;
}

static bool devices_set(const char *text)
{
    std::vector<fake_device> devices;
    if (strcmp(text, "none") == 0) {
        state_get()->devices.clear();
        return true;
    }
    while (*text) {
        struct fake_device device;
        char *end;
        device.capability = (int)strtol(text, &end, 10);
        device.multiprocessors = *end == 'x' ? (int)strtol(end + 1, &end, 10) : 28;
        if (end == text || *end != ':' || device.capability < 10)
            return false;
        text = end + 1;
        if (!size_read(&text, &device.bytes) || *text != ':')
            return false;
        size_t length = strcspn(++text, ",");
        device.name.assign(text, length);
        devices.push_back(device);
        text += length;
        text += *text == ',';
    }
    if (devices.empty())
        return false;
    state_get()->devices = devices;
    emulator_capability_set(devices[0].capability);
    return true;
}

/* Parses "NAME:N"; *rest is what follows. */
static bool trigger_read(const char *text, struct trigger *out, const char **rest)
{
    size_t length = strcspn(text, ":");
    char *end;
    if (length == 0 || text[length] != ':')
        return false;
    out->function.assign(text, length);
    out->countdown = strtoull(text + length + 1, &end, 10);
    *rest = end;
    return end != text + length + 1 && out->countdown > 0;
}

static bool fail_set(const char *text)
{
    struct trigger trigger;
    const char *rest;
    if (!trigger_read(text, &trigger, &rest))
        return false;
    if (*rest == ':') {
        trigger.hangs = strcmp(rest + 1, "hang") == 0;
        trigger.kills = strcmp(rest + 1, "kill") == 0;
        for (const struct error_text &entry : error_texts)
            if (strcmp(entry.name, rest + 1) == 0)
                trigger.error = entry.error;
        if (trigger.error == cudaSuccess && !trigger.hangs && !trigger.kills)
            return false;
    } else if (*rest != '\0') {
        return false;
    }
    state_get()->fail = trigger;
    return true;
}

static bool taken_set(const char *text)
{
    struct state *state = state_get();
    struct trigger trigger;
    size_t bytes;
    const char *rest;
    if (!size_read(&text, &bytes))
        return false;
    if (*text == '\0') {
        state->taken = bytes;
        return true;
    }
    if (*text != '@' || !trigger_read(text + 1, &trigger, &rest) || *rest != '\0')
        return false;
    state->take = trigger;
    state->taken_later = bytes;
    return true;
}

static bool copies_set(const char *text)
{
    const bool early = strcmp(text, "early") == 0, random = strncmp(text, "random:", 7) == 0;
    if (!early && !random && strcmp(text, "late") != 0)
        return false;
    state_get()->copies = early ? COPIES_EARLY : random ? COPIES_RANDOM : COPIES_LATE;
    state_get()->random = random ? (uint32_t)atoi(text + 7) + 1 : 1;
    return true;
}

static bool pin_limit_set(const char *text)
{
    return size_read(&text, &state_get()->pin_limit);
}

static bool link_set(const char *text)
{
    state_get()->link = atof(text);
    return state_get()->link > 0;
}

static bool engines_set(const char *text)
{
    state_get()->engines = atoi(text);
    return state_get()->engines == 1 || state_get()->engines == 2;
}

static bool driver_set(const char *text)
{
    state_get()->driver = atoi(text);
    return true;
}

static size_t objects_alive(const struct state *state)
{
    return state->memory.size() + state->pinned.size() + state->streams.size() +
           state->events.size() + (size_t)state->objects;
}

static void report_write(void)
{
    struct state *state = state_get();
    FILE *file = fopen(state->report.c_str(), "w");
    if (!file) {
        perror(state->report.c_str());
        return;
    }
    struct fake_cuda_counters counters;
    fake_cuda_counters_get(&counters);
    fputc('{', file);
#define COUNTER(name) fprintf(file, "\"" #name "\": %zu, ", counters.name);
    FAKE_CUDA_COUNTERS
#undef COUNTER
    fprintf(file, "\"functions\": {");
    const char *comma = "";
    for (const auto &entry : state->calls) {
        fprintf(file, "%s\"%s\": {\"total\": %llu, \"after_launch\": %llu}", comma,
                entry.first.c_str(), (unsigned long long)entry.second.total,
                (unsigned long long)entry.second.after_launch);
        comma = ", ";
    }
    fprintf(file, "}, \"refused\": {");
    comma = "";
    for (const auto &entry : state->refused) {
        fprintf(file, "%s\"%s\": %llu", comma, entry.first.c_str(),
                (unsigned long long)entry.second);
        comma = ", ";
    }
    fprintf(file, "}}\n");
    fclose(file);
}

static bool report_set(const char *text)
{
    state_get()->report = text;
    return atexit(report_write) == 0;
}

static void environment_read(void)
{
    static const struct {
        const char *name;
        bool (*set)(const char *text);
    } settings[] = {
        {"GT_CUDA_ON_CPU_DEVICES", devices_set}, {"GT_CUDA_ON_CPU_DRIVER", driver_set},
        {"GT_CUDA_ON_CPU_TAKEN", taken_set},     {"GT_CUDA_ON_CPU_FAIL", fail_set},
        {"GT_CUDA_ON_CPU_COPIES", copies_set},   {"GT_CUDA_ON_CPU_PIN", pin_limit_set},
        {"GT_CUDA_ON_CPU_LINK", link_set},       {"GT_CUDA_ON_CPU_ENGINES", engines_set},
        {"GT_CUDA_ON_CPU_REPORT", report_set}};
    for (const auto &setting : settings) {
        const char *text = getenv(setting.name);
        if (!text || !*text || setting.set(text))
            continue;
        fprintf(stderr, "fake CUDA: %s=%s is not understood; see fake_runtime.h\n", setting.name,
                text);
        _exit(EMULATOR_EXIT);
    }
}

void fake_cuda_counters_get(struct fake_cuda_counters *out)
{
    *out = state_get()->count;
    out->objects_alive = objects_alive(state_get());
}

/* ---- streams ---- */

static bool event_reach(cudaEvent_t event, int64_t generation);

static double now_ms(void)
{
    return state_get()->advanced_ms;
}

void fake_cuda_clock_advance(double seconds)
{
    state_get()->advanced_ms += 1e3 * seconds;
}

static CUstream_st *stream_of(cudaStream_t stream)
{
    return stream ? stream : &state_get()->default_stream;
}

static bool stream_is_known(cudaStream_t stream)
{
    return !stream || state_get()->streams.count(stream) + state_get()->replaying.count(stream) > 0;
}

/* Returns true when a stream is being captured, and invalidates all such captures. */
static bool somebody_captures(void)
{
    bool found = false;
    for (cudaStream_t stream : state_get()->streams) {
        if (!stream->capture)
            continue;
        stream->capture->invalid = true;
        found = true;
    }
    return found;
}

/* Adds what a copy takes to the time of its direction. */
static void link_take(const struct queued *queued)
{
    struct state *state = state_get();
    const double us_per_byte = state->link > 0 ? 1e6 / state->link : 0;
    state->count.in_us += (size_t)((double)queued->in_bytes * us_per_byte + 0.5);
    state->count.out_us += (size_t)((double)queued->out_bytes * us_per_byte + 0.5);
}

/* The streams of the program and of graphs' branches; not the default one. */
static std::vector<CUstream_st *> streams_all(void)
{
    struct state *state = state_get();
    std::vector<CUstream_st *> streams(state->streams.begin(), state->streams.end());
    streams.insert(streams.end(), state->replaying.begin(), state->replaying.end());
    return streams;
}

static void streams_advance(void);

static void queued_run(struct queued *queued)
{
    struct state *state = state_get();
    if (queued->wait)
        event_reach(queued->wait, queued->generation);
    if (queued->work && state->sticky == cudaSuccess)
        queued->work();
    link_take(queued);
    if (queued->record) {
        queued->record->done = std::max(queued->record->done, queued->generation);
        queued->record->at_ms = now_ms();
    }
}

static void first_run(CUstream_st *stream)
{
    struct queued queued = std::move(stream->queue.front());
    stream->queue.pop_front();
    queued_run(&queued);
    streams_advance();
}

static bool is_ready(const CUstream_st *stream)
{
    const struct queued *first = stream->queue.empty() ? nullptr : &stream->queue.front();
    return first && (!first->wait || first->wait->done >= first->generation);
}

static bool coin_toss(void)
{
    state_get()->random = state_get()->random * 1664525u + 1013904223u;
    return state_get()->random >> 31 != 0;
}

/* Runs the streams without kernels as far as they can go: all of them, or as far as chance has it.
 */
static void streams_advance(void)
{
    struct state *state = state_get();
    if (state->copies == COPIES_LATE || state->advancing)
        return;
    state->advancing = true;
    for (CUstream_st *stream : streams_all())
        while (!stream->computes && is_ready(stream) &&
               (state->copies == COPIES_EARLY || coin_toss()))
            first_run(stream);
    state->advancing = false;
}

static void stream_drain(CUstream_st *stream)
{
    while (!stream->queue.empty())
        first_run(stream);
}

/* Runs the stream that records the event, as far as the event. */
static bool event_reach(cudaEvent_t event, int64_t generation)
{
    struct state *state = state_get();
    std::vector<CUstream_st *> streams = streams_all();
    streams.push_back(&state->default_stream);
    for (CUstream_st *stream : streams) {
        bool records = false;
        for (const struct queued &queued : stream->queue)
            records = records || (queued.record == event && queued.generation <= generation);
        while (records && event->done < generation && !stream->queue.empty())
            first_run(stream);
    }
    return event->done >= generation;
}

static void all_drain(void)
{
    for (cudaStream_t stream : streams_all())
        stream_drain(stream);
    stream_drain(&state_get()->default_stream);
}

static cudaError_t enqueue(cudaStream_t stream, struct queued queued)
{
    if (!stream_is_known(stream))
        return result_is(cudaErrorInvalidResourceHandle);
    CUstream_st *to = stream_of(stream);
    if (to->capture) {
        to->capture->branch[to->branch].push_back(std::move(queued));
        to->capture->seen[to->branch][to->branch]++;
        return cudaSuccess;
    }
    to->computes = to->computes || queued.kernel;
    to->queue.push_back(std::move(queued));
    streams_advance();
    return cudaSuccess;
}

cudaError_t fake_cuda_enqueue(cudaStream_t stream, std::function<void()> work)
{
    struct queued queued;
    queued.work = std::move(work);
    return enqueue(stream, std::move(queued));
}

/* ---- kernels ---- */

/* Errors that are independent of the device. */
static cudaError_t driver_check(void)
{
    const struct state *state = state_get();
    if (state->driver == 0 || state->driver / 1000 < CUDART_VERSION / 1000)
        return cudaErrorInsufficientDriver;
    return state->devices.empty() ? cudaErrorNoDevice : cudaSuccess;
}

static cudaError_t device_check(int device)
{
    cudaError_t error = driver_check();
    if (error == cudaSuccess && (device < 0 || (size_t)device >= state_get()->devices.size()))
        error = cudaErrorInvalidDevice;
    return error;
}

/* Creates the context if necessary, as most calls do. */
static cudaError_t context_need(void)
{
    cudaError_t error = driver_check();
    if (error == cudaSuccess)
        state_get()->opened = true;
    return error;
}

static void body_run(void *body)
{
    (*(const std::function<void()> *)body)();
}

static const struct fake_device *device_get(void)
{
    struct state *state = state_get();
    return &state->devices[(size_t)state->device];
}

/* The maximum shared memory of a block; CUDA C++ Programming Guide, "Technical Specifications per
 * Compute Capability". */
static size_t shared_optin_bytes(int capability)
{
    switch (capability) {
    case 75:
        return 64 * KIB;
    case 80:
    case 87:
        return 163 * KIB;
    case 86:
    case 89:
    case 120:
        return 99 * KIB;
    default:
        return capability >= 90 ? 227 * KIB : SHARED_DEFAULT;
    }
}

static bool dimensions_are_valid(dim3 grid, dim3 block)
{
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    return grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x <= INT32_MAX && grid.y <= 65535 &&
           grid.z <= 65535 && threads >= 1 && threads <= 1024 && block.z <= 64;
}

/* A captured kernel starts nothing yet.  A replayed kernel counts, and may fail, like a launched
 * one. */
static cudaError_t kernel_enqueue(cudaStream_t stream, struct queued queued)
{
    struct state *state = state_get();
    if (stream_is_known(stream) && stream_of(stream)->capture)
        return enqueue(stream, std::move(queued));
    call_count("launch");
    state->count.launches++;
    if (state->sticky != cudaSuccess) {
        state->refused["launch"]++;
        return result_is(cudaSuccess);
    }
    if (trigger_fires(&state->fail, "launch")) {
        if (state->fail.hangs) {
            queued.work = hang; /* the kernel never ends, so that every wait for it hangs */
            return enqueue(stream, std::move(queued));
        }
        cudaError_t error =
            state->fail.error != cudaSuccess ? state->fail.error : cudaErrorLaunchFailure;
        if (!fake_cuda_error_is_sticky(error))
            return result_is(error);
        queued.work = [state, error] { state->sticky = error; };
    }
    return enqueue(stream, std::move(queued));
}

cudaError_t emulator_submit(const char *kernel, const void *function, dim3 grid, dim3 block,
                            size_t dynamic_bytes, cudaStream_t stream, std::function<void()> body)
{
    struct state *state = state_get();
    struct queued queued;
    NEED(context_need());
    REFUSE(!dimensions_are_valid(grid, block), cudaErrorInvalidConfiguration);
    auto limit = state->shared_limit.find(function);
    size_t optin = shared_optin_bytes(device_get()->capability);
    size_t dynamic_max =
        limit == state->shared_limit.end() ? SHARED_DEFAULT : (size_t)limit->second;
    REFUSE(dynamic_bytes > std::max(dynamic_max, SHARED_DEFAULT), cudaErrorInvalidValue);
    size_t shared_max = dynamic_max > SHARED_DEFAULT ? optin : SHARED_DEFAULT;
    queued.kernel = true;
    queued.work = [kernel, grid, block, dynamic_bytes, shared_max, body] {
        std::function<void()> own = body;
        struct emulator_launch launch = {kernel,     grid,     block, dynamic_bytes,
                                         shared_max, body_run, &own};
        emulator_run(&launch);
        fake_cuda_clock_advance(KERNEL_SECONDS + SHARED_SECONDS * (double)dynamic_bytes);
    };
    return kernel_enqueue(stream, std::move(queued));
}

extern "C" {

/* The fake NCCL calls these; the programs export them to it. */
#pragma GCC visibility push(default)
cudaError_t cudaMalloc(void **pointer, size_t bytes);
cudaError_t cudaFree(void *pointer);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void *data), void *data);
#pragma GCC visibility pop

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    CALL();
    NEED(context_need());
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) { /* a hint, in percent */
        REFUSE(!function || value < -1 || value > 100, cudaErrorInvalidValue);
        return cudaSuccess;
    }
    REFUSE(!function || attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
               (size_t)value > shared_optin_bytes(device_get()->capability),
           cudaErrorInvalidValue);
    state_get()->shared_limit[function] = value;
    return cudaSuccess;
}

/* ---- devices ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    CALL();
    *count = 0;
    cudaError_t error = driver_check();
    if (error == cudaSuccess)
        *count = (int)state_get()->devices.size();
    return result_is(error);
}

cudaError_t cudaSetDevice(int device)
{
    CALL();
    NEED(device_check(device));
    state_get()->device = device;
    state_get()->opened = true; /* since CUDA 12 */
    emulator_capability_set(device_get()->capability);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    CALL();
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    CALL();
    *version = state_get()->driver;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    CALL();
    NEED(device_check(device));
    const struct fake_device *found = &state_get()->devices[(size_t)device];
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "%s", found->name.c_str());
    properties->totalGlobalMem = found->bytes;
    properties->sharedMemPerBlock = SHARED_DEFAULT;
    properties->sharedMemPerBlockOptin = shared_optin_bytes(found->capability);
    properties->major = found->capability / 10;
    properties->minor = found->capability % 10;
    properties->multiProcessorCount = found->multiprocessors;
    properties->pciBusID = device + 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    CALL();
    NEED(device_check(device));
    int capability = state_get()->devices[(size_t)device].capability;
    if (attribute == cudaDevAttrComputeCapabilityMajor)
        *value = capability / 10;
    else if (attribute == cudaDevAttrComputeCapabilityMinor)
        *value = capability % 10;
    else if (attribute == cudaDevAttrAsyncEngineCount)
        *value = state_get()->engines;
    else
        return result_is(cudaErrorInvalidValue);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int device)
{
    CALL();
    cudaError_t error = device_check(device);
    if (error == cudaSuccess && length < 13)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        snprintf(id, (size_t)length, "0000:%02X:00.0", (unsigned)device + 1);
    return result_is(error);
}

/* ---- memory ---- */

/* Device memory used by an allocation: pages of 2 MiB, or multiples of 512 bytes below 1 MiB. */
static size_t rounded_bytes(size_t bytes)
{
    size_t unit = bytes < 1024 * KIB ? 512 : 2048 * KIB;
    return (bytes + unit - 1) / unit * unit;
}

static size_t free_bytes(void)
{
    const struct state *state = state_get();
    size_t used = state->taken + state->live_rounded + (size_t)state->library_bytes +
                  (state->opened ? FAKE_CONTEXT_BYTES : 0);
    return used < device_get()->bytes ? device_get()->bytes - used : 0;
}

static void *memory_make(std::map<char *, size_t> *table, size_t bytes, size_t alignment)
{
    void *memory = nullptr;
    if (posix_memalign(&memory, alignment, bytes) != 0)
        return nullptr;
    memset(memory, 0xff, std::min(bytes, POISON_MAX));
    (*table)[(char *)memory] = bytes;
    return memory;
}

/* Returns true when the range lies inside one allocation of the table. */
static bool memory_has(const std::map<char *, size_t> &table, const void *pointer, size_t bytes)
{
    auto found = table.upper_bound((char *)(uintptr_t)pointer);
    if (found == table.begin())
        return false;
    --found;
    size_t offset = (size_t)((const char *)pointer - found->first);
    return offset <= found->second && bytes <= found->second - offset;
}

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    CALL();
    struct state *state = state_get();
    *pointer = nullptr;
    REFUSE(somebody_captures(), cudaErrorStreamCaptureUnsupported);
    cudaError_t error = context_need();
    if (error != cudaSuccess || bytes == 0)
        return result_is(error);
    REFUSE(rounded_bytes(bytes) > free_bytes(), cudaErrorMemoryAllocation);
    *pointer = memory_make(&state->memory, bytes, 256);
    REFUSE(!*pointer, cudaErrorMemoryAllocation);
    state->count.allocations++;
    state->count.allocated_bytes += bytes;
    state->count.live_bytes += bytes;
    state->live_rounded += rounded_bytes(bytes);
    state->count.live_bytes_peak = std::max(state->count.live_bytes_peak, state->count.live_bytes);
    return cudaSuccess;
}

/* Ends `pointer`, and sets the bytes that it had.  Frees the memory even when the call reports a
 * failure; otherwise the test process would leak it. */
static cudaError_t memory_free(std::map<char *, size_t> *table, void *pointer, cudaError_t error,
                               size_t *bytes)
{
    all_drain();
    auto found = table->find((char *)pointer);
    REFUSE(found == table->end(), cudaErrorInvalidValue);
    *bytes = found->second;
    table->erase(found);
    free(pointer);
    return result_is(error);
}

cudaError_t cudaFree(void *pointer)
{
    struct state *state = state_get();
    cudaError_t error = call_begin(__func__);
    size_t bytes = 0;
    if (!pointer)
        return error == cudaSuccess ? result_is(context_need()) : error;
    error = memory_free(&state->memory, pointer, error, &bytes);
    state->count.live_bytes -= bytes;
    state->live_rounded -= rounded_bytes(bytes);
    return error;
}

cudaError_t cudaMemGetInfo(size_t *free_out, size_t *total)
{
    CALL();
    NEED(context_need());
    *total = device_get()->bytes;
    *free_out = free_bytes();
    return cudaSuccess;
}

static cudaError_t pinned_count(size_t bytes)
{
    struct fake_cuda_counters *count = &state_get()->count;
    count->pinned_bytes += bytes;
    count->pinned_bytes_peak = std::max(count->pinned_bytes_peak, count->pinned_bytes);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned int)
{
    CALL();
    struct state *state = state_get();
    *pointer = nullptr;
    cudaError_t error = context_need();
    if (error != cudaSuccess || bytes == 0)
        return result_is(error);
    *pointer = memory_make(&state->pinned, bytes, 4096);
    REFUSE(!*pointer, cudaErrorMemoryAllocation);
    return pinned_count(bytes);
}

cudaError_t cudaFreeHost(void *pointer)
{
    struct state *state = state_get();
    cudaError_t error = call_begin(__func__);
    size_t bytes = 0;
    if (pointer)
        error = memory_free(&state->pinned, pointer, error, &bytes);
    state->count.pinned_bytes -= bytes;
    return error;
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned int)
{
    CALL();
    struct state *state = state_get();
    NEED(context_need());
    REFUSE(!pointer || bytes == 0 || memory_has(state->pinned, pointer, 1), cudaErrorInvalidValue);
    REFUSE(bytes > state->pin_limit - std::min(state->pin_limit, state->registered_bytes),
           cudaErrorMemoryAllocation);
    state->pinned[(char *)pointer] = state->registered[(char *)pointer] = bytes;
    state->registered_bytes += bytes;
    return pinned_count(bytes);
}

cudaError_t cudaHostUnregister(void *pointer)
{
    struct state *state = state_get();
    cudaError_t error = call_begin(__func__);
    all_drain();
    auto found = state->registered.find((char *)pointer);
    REFUSE(found == state->registered.end(), cudaErrorInvalidValue);
    state->registered_bytes -= found->second;
    state->count.pinned_bytes -= found->second;
    state->pinned.erase((char *)pointer);
    state->registered.erase(found);
    return error;
}

static bool copy_is_valid(const void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    const struct state *state = state_get();
    bool to_device = memory_has(state->memory, to, bytes),
         from_device = memory_has(state->memory, from, bytes);
    switch (kind) {
    case cudaMemcpyHostToHost:
        return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
        return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
        return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
        return to_device && from_device;
    default:
        return true;
    }
}

/* A copy to pageable host memory completes before the call returns.  One from there has read its
 * bytes when the call returns, after what was in the stream, and writes them later.  *reads_first
 * tells the latter. */
static cudaError_t copy_enqueue(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                                cudaStream_t stream, bool *reads_first)
{
    struct state *state = state_get();
    REFUSE(!copy_is_valid(to, from, bytes, kind), cudaErrorInvalidValue);
    const bool to_device = memory_has(state->memory, to, bytes),
               from_device = memory_has(state->memory, from, bytes);
    struct queued queued;
    queued.work = [to, from, bytes] { memcpy(to, from, bytes); };
    queued.in_bytes = to_device && !from_device ? bytes : 0;
    queued.out_bytes = from_device && !to_device ? bytes : 0;
    const bool at_once = queued.out_bytes > 0 && !memory_has(state->pinned, to, bytes);
    *reads_first = queued.in_bytes > 0 && !memory_has(state->pinned, from, bytes);
    REFUSE((at_once || *reads_first) && somebody_captures(), cudaErrorStreamCaptureUnsupported);
    if (*reads_first) {
        const auto read =
            std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
        if (stream_is_known(stream))
            stream_drain(stream_of(stream));
        queued.work = [to, read] { memcpy(to, read->data(), read->size()); };
    }
    cudaError_t error = enqueue(stream, std::move(queued));
    const bool early = state->copies == COPIES_EARLY && stream_is_known(stream) &&
                       stream_of(stream)->queue.size() == 1;
    if (error == cudaSuccess && (at_once || early))
        stream_drain(stream_of(stream));
    return result_is(error);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    CALL();
    bool reads_first;
    return copy_enqueue(to, from, bytes, kind, stream, &reads_first);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    CALL();
    wait_count();
    REFUSE(somebody_captures(), cudaErrorStreamCaptureUnsupported);
    bool reads_first;
    cudaError_t error = copy_enqueue(to, from, bytes, kind, nullptr, &reads_first);
    if (error == cudaSuccess && !reads_first)
        stream_drain(&state_get()->default_stream);
    return result_is(error);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    CALL();
    const struct state *state = state_get();
    REFUSE(!memory_has(state->memory, to, bytes) && !memory_has(state->pinned, to, bytes),
           cudaErrorInvalidValue);
    return result_is(fake_cuda_enqueue(stream, [to, value, bytes] { memset(to, value, bytes); }));
}

/* ---- streams, events, graphs ---- */

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void *data), void *data)
{
    CALL();
    return result_is(fake_cuda_enqueue(stream, [function, data] { function(data); }));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int)
{
    CALL();
    NEED(context_need());
    *stream = new CUstream_st;
    state_get()->streams.insert(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    struct state *state = state_get();
    cudaError_t error = call_begin(__func__);
    REFUSE(state->streams.count(stream) == 0, cudaErrorInvalidResourceHandle);
    stream_drain(stream);
    state->streams.erase(stream);
    if (stream->branch == 0)
        delete stream->capture;
    delete stream;
    return result_is(error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    CALL();
    wait_count();
    REFUSE(!stream_is_known(stream), cudaErrorInvalidResourceHandle);
    if (stream_of(stream)->capture) {
        stream->capture->invalid = true;
        return result_is(cudaErrorStreamCaptureUnsupported);
    }
    stream_drain(stream_of(stream));
    return result_is(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void)
{
    CALL();
    wait_count();
    REFUSE(somebody_captures(), cudaErrorStreamCaptureUnsupported);
    all_drain();
    return result_is(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    CALL();
    NEED(context_need());
    *event = new CUevent_st;
    (*event)->timing = (flags & cudaEventDisableTiming) == 0;
    state_get()->events.insert(*event);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    struct state *state = state_get();
    cudaError_t error = call_begin(__func__);
    REFUSE(state->events.count(event) == 0, cudaErrorInvalidResourceHandle);
    all_drain();
    state->events.erase(event);
    delete event;
    return result_is(error);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    CALL();
    struct queued queued;
    REFUSE(state_get()->events.count(event) == 0, cudaErrorInvalidResourceHandle);
    queued.record = event;
    queued.generation = ++event->recorded;
    const cudaError_t error = enqueue(stream, std::move(queued));
    event->capture = error == cudaSuccess ? stream_of(stream)->capture : nullptr;
    event->captured = event->capture != nullptr;
    if (event->capture)
        event->seen = event->capture->seen[stream->branch];
    return result_is(error);
}

/* Makes a wait of a stream for an event part of a capture.  A stream that waits for a captured
 * event joins the capture; one that is captured must not wait for an event outside of it. */
static cudaError_t capture_wait(CUstream_st *stream, cudaEvent_t event)
{
    if (!stream->capture) {
        stream->capture = event->capture;
        stream->branch = event->capture->branch.size();
        event->capture->branch.push_back({});
        event->capture->seen.push_back({});
        for (branch_clock &seen : event->capture->seen)
            seen.resize(event->capture->branch.size());
    }
    if (stream->capture != event->capture) {
        stream->capture->invalid = true;
        return cudaErrorStreamCaptureIsolation;
    }
    branch_clock &seen = stream->capture->seen[stream->branch];
    for (size_t i = 0; i < event->seen.size(); i++)
        seen[i] = std::max(seen[i], event->seen[i]);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int)
{
    CALL();
    struct queued queued;
    REFUSE(state_get()->events.count(event) == 0 || !stream_is_known(stream),
           cudaErrorInvalidResourceHandle);
    REFUSE(event->captured && !event->capture, cudaErrorCapturedEvent);
    if (stream_of(stream)->capture || event->capture)
        NEED(capture_wait(stream_of(stream), event));
    queued.wait = event;
    queued.generation = event->recorded;
    return result_is(enqueue(stream, std::move(queued)));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    CALL();
    wait_count();
    REFUSE(state_get()->events.count(event) == 0, cudaErrorInvalidResourceHandle);
    REFUSE(event->captured, cudaErrorCapturedEvent);
    REFUSE(somebody_captures(), cudaErrorStreamCaptureUnsupported);
    event_reach(event, event->recorded);
    return result_is(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    CALL();
    struct state *state = state_get();
    REFUSE(state->events.count(start) == 0 || state->events.count(end) == 0 || !start->timing ||
               !end->timing || start->recorded == 0 || end->recorded == 0,
           cudaErrorInvalidResourceHandle);
    REFUSE(start->captured || end->captured, cudaErrorCapturedEvent);
    REFUSE(start->done < start->recorded || end->done < end->recorded, cudaErrorNotReady);
    *milliseconds = (float)(end->at_ms - start->at_ms);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode)
{
    CALL();
    REFUSE(!stream || !stream_is_known(stream), cudaErrorStreamCaptureUnsupported);
    REFUSE(stream->capture, cudaErrorInvalidValue);
    stream->capture = new CUgraph_st;
    stream->branch = 0;
    return cudaSuccess;
}

/* The capture ends even when the call fails. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    cudaError_t error = call_begin(__func__);
    *graph = nullptr;
    if (!stream || !stream_is_known(stream) || !stream->capture)
        return result_is(error != cudaSuccess ? error : cudaErrorStreamCaptureUnmatched);
    CUgraph_st *captured = stream->capture;
    for (cudaStream_t other : state_get()->streams)
        other->capture = other->capture == captured ? nullptr : other->capture;
    for (cudaEvent_t event : state_get()->events)
        event->capture = event->capture == captured ? nullptr : event->capture;
    if (error == cudaSuccess && captured->invalid)
        error = cudaErrorStreamCaptureInvalidated;
    for (size_t i = 1; i < captured->branch.size() && error == cudaSuccess; i++)
        if (captured->seen[0][i] < captured->branch[i].size())
            error = cudaErrorStreamCaptureUnjoined;
    if (error != cudaSuccess) {
        delete captured;
        return result_is(error);
    }
    *graph = captured;
    fake_cuda_object_count(1);
    return cudaSuccess;
}

/* The arguments are the same since 11.4. */
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long)
{
    CALL();
    REFUSE(!graph || somebody_captures(), cudaErrorInvalidValue);
    *exec = new CUgraphExec_st{graph->branch, {}, {}};
    for (const auto &branch : graph->branch)
        for (const struct queued &queued : branch)
            if (queued.record)
                (*exec)->recorded[{queued.record, queued.generation}] = new CUevent_st;
    for (size_t i = 1; i < graph->branch.size(); i++) {
        (*exec)->stream.push_back(new CUstream_st);
        state_get()->replaying.insert((*exec)->stream.back());
    }
    fake_cuda_object_count(1);
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    CALL();
    REFUSE(!exec || !stream_is_known(stream) || stream_of(stream)->capture, cudaErrorInvalidValue);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    CALL();
    REFUSE(!exec || stream_of(stream)->capture, cudaErrorInvalidValue);
    for (auto &entry : exec->recorded)
        entry.second->recorded++;
    for (size_t i = 0; i < exec->branch.size(); i++) {
        state_get()->count.replayed += exec->branch[i].size();
        for (struct queued queued : exec->branch[i]) {
            cudaEvent_t *const event = queued.record ? &queued.record
                                       : queued.wait ? &queued.wait
                                                     : nullptr;
            if (event) {
                *event = exec->recorded[{*event, queued.generation}];
                queued.generation = (*event)->recorded;
            }
            cudaStream_t to = i == 0 ? stream : exec->stream[i - 1];
            cudaError_t error = queued.kernel ? kernel_enqueue(to, queued) : enqueue(to, queued);
            if (error != cudaSuccess)
                return error;
        }
    }
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    cudaError_t error = call_begin(__func__);
    delete graph;
    fake_cuda_object_count(-1);
    return error;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    cudaError_t error = call_begin(__func__);
    all_drain();
    for (cudaStream_t stream : exec->stream) {
        state_get()->replaying.erase(stream);
        delete stream;
    }
    for (auto &entry : exec->recorded)
        delete entry.second;
    delete exec;
    fake_cuda_object_count(-1);
    return result_is(error);
}

/* ---- errors ---- */

cudaError_t cudaGetLastError(void)
{
    struct state *state = state_get();
    call_count(__func__);
    cudaError_t error = state->sticky != cudaSuccess ? state->sticky : state->last;
    state->last = cudaSuccess;
    return error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    const struct error_text *found = error_find(error);
    return found ? found->name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    const struct error_text *found = error_find(error);
    return found ? found->text : "unrecognized error code";
}
}
