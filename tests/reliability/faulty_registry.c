/* The registry of backends with a fault in the cpu backend; it turns gpt-train into
 * gpt-train-faulty.
 *
 * GPT_FAULT=CALL:ITER makes one upload, download, run or sync of iteration ITER fail, and no other.
 * GPT_FAULT_NAN=OP:ITER:TIMES puts a NaN into the first output element, in float32, of the first
 * TIMES calls of OP (gelu_backward) in the forward and backward passes of iteration ITER.  The
 * backend computes as usual: only its table of functions is replaced.  tests/e2e/cuda_faults.py
 * makes the calls of a card fail, after most of which it is lost.
 */
#include <config.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/backend_registry.h"
#include "base/status.h"

#define BACKENDS_MAX 8

static struct {
    const struct backend_ops *original;
    struct backend_ops entry;  /* in the registry */
    struct backend_ops opened; /* of the open backend */
    int64_t iter, poisoned;    /* of the current pass; NaNs so far */
    bool has_failed;
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

/* Returns the status of the call that GPT_FAULT requests, else GT_OK. */
static enum gt_status fault(const char *call)
{
    char wanted[32];
    const char *text = getenv("GPT_FAULT");
    snprintf(wanted, sizeof wanted, "%s:%" PRId64, call, faulty.iter);
    if (text == NULL || faulty.has_failed || strcmp(text, wanted) != 0)
        return GT_OK;
    faulty.has_failed = true;
    log_error("%s: a planted fault: %s", faulty.original->name, wanted);
    return GT_DEVICE;
}

static enum gt_status faulty_upload(struct backend *backend, struct address to, const void *from,
                                    size_t bytes)
{
    TRY(fault("upload"));
    return faulty.original->upload(backend, to, from, bytes);
}

static enum gt_status faulty_download(struct backend *backend, void *to, struct address from,
                                      size_t bytes)
{
    TRY(fault("download"));
    return faulty.original->download(backend, to, from, bytes);
}

static enum gt_status faulty_sync(struct backend *backend)
{
    TRY(fault("sync"));
    return faulty.original->sync(backend);
}

/* Tracks the iteration, and writes a NaN where GPT_FAULT_NAN requests one. */
static enum gt_status poison(struct backend *backend, const struct op_call *call)
{
    const char *text = getenv("GPT_FAULT_NAN");
    char name[32];
    int64_t iter, times;
    int32_t slot = 0, step;
    const float nan_value = NAN;
    if (call->kind == OP_EMBED_FORWARD) {
        struct address at = call->operand[EMBED_FORWARD_SCALARS].at;
        at.offset_bytes += SCALAR_STEP * sizeof(union scalar_word);
        TRY(faulty.original->download(backend, &step, at, sizeof step));
        faulty.iter = step;
    }
    if (text == NULL || sscanf(text, "%31[a-z_]:%" SCNd64 ":%" SCNd64, name, &iter, &times) != 3 ||
        faulty.iter != iter || faulty.poisoned >= times ||
        strcmp(name, op_declaration(call->kind)->name) != 0)
        return GT_OK;
    while (op_direction(call->kind, &call->attrs, slot) == OPERAND_IN)
        slot++;
    faulty.poisoned++;
    return faulty.original->upload(backend, call->operand[slot].at, &nan_value, sizeof nan_value);
}

static enum gt_status faulty_run(struct backend *backend, const struct op_call *calls, size_t count)
{
    TRY(fault("run"));
    for (size_t i = 0; i < count; i++) {
        TRY(faulty.original->run(backend, &calls[i], 1));
        TRY(poison(backend, &calls[i]));
    }
    return GT_OK;
}

static enum gt_status faulty_open(const struct backend_open_options *options, struct backend **out)
{
    TRY(faulty.original->open(options, out));
    faulty.opened = *(*out)->ops;
    faulty.opened.upload = faulty_upload;
    faulty.opened.download = faulty_download;
    faulty.opened.run = faulty_run;
    faulty.opened.sync = faulty_sync;
    (*out)->ops = &faulty.opened;
    return GT_OK;
}

const struct backend_ops *const *backend_registry(void)
{
    for (int i = 0; registry[i] != NULL && faulty.original == NULL; i++) {
        if (strcmp(registry[i]->name, "cpu") != 0)
            continue;
        faulty.original = registry[i];
        faulty.entry = *registry[i];
        faulty.entry.open = faulty_open;
        registry[i] = &faulty.entry;
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
