/* The registry of backends with a fault in one of them; it turns gpt-train into gpt-train-faulty,
 * and gpt-sample likewise.
 *
 * GPT_FAULT=CALL:N:KIND makes the N-th CALL (a field of struct backend_ops: devices, open, info,
 * ...) of the backend GPT_FAULT_BACKEND (default cpu) go wrong: with `memory` and `launch` it fails
 * once; with `lost` it and all later calls fail; with `hang` it never returns.  Calls without a
 * status (close, holders, algorithms, timings) can only hang; so can devices, which finds none
 * after `lost`.  GPT_FAULT_REPORT names a file, written when the process exits: the number of
 * calls, "CALL N" a line; of calls refused after `lost`, "refused:CALL N"; and of devices opened
 * but not closed, "left N".  The backend itself computes as usual: only its table of functions is
 * replaced. Backends that choose no algorithms pretend to have chosen one, so that a checkpoint
 * contains a choice to repeat.
 *
 * GPT_FAULT_NAN=OP:ITER:TIMES puts a NaN into the first output element, in float32, of the first
 * TIMES calls of OP (gelu_backward) in the forward and backward passes of iteration ITER.
 */
#include <config.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/backend_registry.h"
#include "base/status.h"

#define BACKENDS_MAX 8

enum call {
    CALL_DEVICES,
    CALL_OPEN,
    CALL_CLOSE,
    CALL_INFO,
    CALL_HOLDERS,
    CALL_ARENA,
    CALL_CHOOSE,
    CALL_CHOICES,
    CALL_TIMINGS,
    CALL_BIND,
    CALL_UPLOAD,
    CALL_DOWNLOAD,
    CALL_RUN,
    CALL_SYNC,
    CALLS
};

static const char *const call_names[CALLS] = {
    "devices",    "open",    "close", "info",   "holders",  "arena", "choose",
    "algorithms", "timings", "bind",  "upload", "download", "run",   "sync"};

static struct {
    const struct backend_ops *original;
    struct backend_ops entry;               /* in the registry */
    struct backend_ops opened;              /* of the open backend */
    uint64_t counts[CALLS], refused[CALLS]; /* refused: calls after `lost` */
    int left;                               /* opened and not closed */
    int64_t iter, poisoned;                 /* of the current pass; NaNs so far */
    bool is_lost;
} faulty;

#define BACKEND(name) extern const struct backend_ops name##_backend_ops;
#include "backend/backend_list.def"
#undef BACKEND

static const struct backend_ops *registry[BACKENDS_MAX + 1] = {
#define BACKEND(name) &name##_backend_ops,
#include "backend/backend_list.def"
#undef BACKEND
    NULL,
};

/* Counts the call.  Returns true when it is the one that GPT_FAULT names; `kind` is its kind. */
static bool is_due(enum call call, char kind[static 16])
{
    const char *fault = getenv("GPT_FAULT");
    char name[16];
    uint64_t number;
    faulty.counts[call]++;
    if (fault == NULL || sscanf(fault, "%15[a-z]:%" SCNu64 ":%15[a-z]", name, &number, kind) != 3)
        return false;
    return strcmp(name, call_names[call]) == 0 && faulty.counts[call] == number;
}

/* Returns true when the call must fail; does not return when it must hang. */
static bool is_failing(enum call call, char kind[static 16])
{
    const bool due = is_due(call, kind);
    while (due && strcmp(kind, "hang") == 0)
        pause();
    return due;
}

/* Returns the status of a call that must fail, else GT_OK. */
static enum gt_status fault(enum call call)
{
    char kind[16] = "";
    const bool due = is_failing(call, kind);
    faulty.refused[call] += faulty.is_lost;
    faulty.is_lost = faulty.is_lost || (due && strcmp(kind, "lost") == 0);
    if (!due && !faulty.is_lost)
        return GT_OK;
    bool no_memory = due && strcmp(kind, "memory") == 0;
    log_error("%s: a planted fault: %s %" PRIu64 ": %s", faulty.original->name, call_names[call],
              faulty.counts[call], faulty.is_lost ? "the device is lost" : kind);
    return no_memory ? GT_NO_MEMORY : GT_DEVICE;
}

/* For calls without a status. */
static void fault_hang(enum call call)
{
    char kind[16] = "";
    (void)is_failing(call, kind);
}

static void faulty_devices(bool automatic, struct backend_devices *out)
{
    char kind[16] = "";
    faulty.is_lost =
        (is_failing(CALL_DEVICES, kind) && strcmp(kind, "lost") == 0) || faulty.is_lost;
    if (faulty.is_lost)
        *out =
            (struct backend_devices){.first = -1, .reason = "a planted fault: the device is lost"};
    else
        faulty.original->devices(automatic, out);
}

static void faulty_close(struct backend *backend)
{
    fault_hang(CALL_CLOSE);
    faulty.left -= backend != NULL;
    faulty.original->close(backend);
}

static void faulty_holders(struct backend *backend, struct backend_holders *out)
{
    fault_hang(CALL_HOLDERS);
    if (faulty.original->holders != NULL)
        faulty.original->holders(backend, out);
}

static enum gt_status faulty_choose(struct backend *backend,
                                    const struct backend_algorithm *algorithms, size_t count)
{
    TRY(fault(CALL_CHOOSE));
    return faulty.original->choose != NULL ? faulty.original->choose(backend, algorithms, count)
                                           : GT_OK;
}

static const struct backend_algorithm *faulty_algorithms(struct backend *backend, size_t *count)
{
    static const struct backend_algorithm invented = {.call = 1, .algorithm = 1};
    fault_hang(CALL_CHOICES);
    if (faulty.original->algorithms != NULL)
        return faulty.original->algorithms(backend, count);
    *count = 1;
    return &invented;
}

static const struct backend_timing *faulty_timings(struct backend *backend, size_t *count)
{
    fault_hang(CALL_TIMINGS);
    *count = 0;
    return faulty.original->timings != NULL ? faulty.original->timings(backend, count) : NULL;
}

static enum gt_status faulty_info(struct backend *backend, struct backend_info *out)
{
    TRY(fault(CALL_INFO));
    return faulty.original->info(backend, out);
}

static enum gt_status faulty_arena(struct backend *backend, const struct backend_segment *segments,
                                   int32_t count)
{
    TRY(fault(CALL_ARENA));
    return faulty.original->arena(backend, segments, count);
}

static enum gt_status faulty_bind(struct backend *backend, const struct op_call *calls,
                                  size_t count)
{
    TRY(fault(CALL_BIND));
    return faulty.original->bind != NULL ? faulty.original->bind(backend, calls, count) : GT_OK;
}

static enum gt_status faulty_upload(struct backend *backend, struct address to, const void *from,
                                    size_t bytes)
{
    TRY(fault(CALL_UPLOAD));
    return faulty.original->upload(backend, to, from, bytes);
}

static enum gt_status faulty_download(struct backend *backend, void *to, struct address from,
                                      size_t bytes)
{
    TRY(fault(CALL_DOWNLOAD));
    return faulty.original->download(backend, to, from, bytes);
}

static enum gt_status faulty_download_later(struct backend *backend, void *to, struct address from,
                                            size_t bytes)
{
    TRY(fault(CALL_DOWNLOAD));
    return faulty.original->download_later(backend, to, from, bytes);
}

/* Tracks the iteration, and writes a NaN where GPT_FAULT_NAN requests one. */
static enum gt_status poison(struct backend *backend, const struct op_call *call)
{
    const char *fault = getenv("GPT_FAULT_NAN");
    const float nan_value = NAN;
    char name[32];
    int64_t iter, times;
    int32_t slot = 0, step;
    if (fault == NULL || sscanf(fault, "%31[a-z_]:%" SCNd64 ":%" SCNd64, name, &iter, &times) != 3)
        return GT_OK;
    if (call->kind == OP_EMBED_FORWARD) {
        struct address at = call->operand[EMBED_FORWARD_SCALARS].at;
        at.offset_bytes += SCALAR_STEP * sizeof(union scalar_word);
        TRY(faulty.original->download(backend, &step, at, sizeof step));
        faulty.iter = step;
    }
    if (faulty.iter != iter || faulty.poisoned >= times ||
        strcmp(name, op_declaration(call->kind)->name) != 0)
        return GT_OK;
    while (op_direction(call->kind, &call->attrs, slot) == OPERAND_IN)
        slot++;
    faulty.poisoned++;
    return faulty.original->upload(backend, call->operand[slot].at, &nan_value, sizeof nan_value);
}

static enum gt_status faulty_run(struct backend *backend, const struct op_call *calls, size_t count)
{
    TRY(fault(CALL_RUN));
    for (size_t i = 0; getenv("GPT_FAULT_NAN") != NULL && i < count; i++) {
        TRY(faulty.original->run(backend, &calls[i], 1));
        TRY(poison(backend, &calls[i]));
    }
    return getenv("GPT_FAULT_NAN") != NULL ? GT_OK : faulty.original->run(backend, calls, count);
}

static enum gt_status faulty_sync(struct backend *backend)
{
    TRY(fault(CALL_SYNC));
    return faulty.original->sync(backend);
}

static void report(void)
{
    const char *path = getenv("GPT_FAULT_REPORT");
    FILE *file = path != NULL ? fopen(path, "w") : NULL;
    if (file == NULL)
        return;
    for (int call = 0; call < CALLS; call++) {
        fprintf(file, "%s %" PRIu64 "\n", call_names[call], faulty.counts[call]);
        fprintf(file, "refused:%s %" PRIu64 "\n", call_names[call], faulty.refused[call]);
    }
    fprintf(file, "left %d\n", faulty.left);
    fclose(file);
}

static enum gt_status faulty_open(const struct backend_open_options *options, struct backend **out)
{
    TRY(fault(CALL_OPEN));
    TRY(faulty.original->open(options, out));
    faulty.left++;
    faulty.opened = *(*out)->ops;
    faulty.opened.close = faulty_close;
    faulty.opened.info = faulty_info;
    faulty.opened.holders = faulty_holders;
    faulty.opened.arena = faulty_arena;
    faulty.opened.choose = faulty_choose;
    faulty.opened.algorithms = faulty_algorithms;
    faulty.opened.timings = faulty_timings;
    faulty.opened.bind = faulty_bind;
    faulty.opened.upload = faulty_upload;
    faulty.opened.download = faulty_download;
    if (faulty.opened.download_later != NULL)
        faulty.opened.download_later = faulty_download_later;
    faulty.opened.run = faulty_run;
    faulty.opened.sync = faulty_sync;
    (*out)->ops = &faulty.opened;
    return GT_OK;
}

const struct backend_ops *const *backend_registry(void)
{
    const char *name = getenv("GPT_FAULT_BACKEND");
    for (int i = 0; registry[i] != NULL && faulty.original == NULL; i++) {
        if (strcmp(registry[i]->name, name != NULL ? name : "cpu") != 0)
            continue;
        faulty.original = registry[i];
        faulty.entry = *registry[i];
        faulty.entry.devices = faulty_devices;
        faulty.entry.open = faulty_open;
        registry[i] = &faulty.entry;
        atexit(report);
    }
    return registry;
}

const struct backend_ops *backend_find(const char *name)
{
    for (const struct backend_ops *const *ops = backend_registry(); *ops != NULL; ops++) {
        if (strcmp((*ops)->name, name) == 0)
            return *ops;
    }
    return NULL;
}
