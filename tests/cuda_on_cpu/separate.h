/* For check_attention: runs one case of opcheck on an emulated card, with each operand in an allocation
 * of exactly its size, so that the sanitizers see every access beyond it.  Cases are judged as in opcheck. */
#ifndef GPT_TRAIN_CUDA_ON_CPU_SEPARATE_H
#define GPT_TRAIN_CUDA_ON_CPU_SEPARATE_H

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda.h"
#include "emulator_run.h"
#include "fake_runtime.h"
#include "tests/opcheck/opcheck.h"

#define ALIGNMENT_BYTES 256
#define ORDERS 3

struct totals {
    int64_t passed, failed, skipped;
    const char *only; /* --only=TEXT: cases whose line contains TEXT */
    int32_t cases;
    bool all; /* --all */
};

/* What a case runs on.  multiprocessors 0: the card's own.  Floats and codes start `shift` elements after an aligned
 * address.  If `input` >= 0, output `alias` overwrites it.  variant: the launch shape. */
struct setting {
    const char *device, *order;
    int32_t multiprocessors, shift, alias, input, variant;
};

static inline bool is_wanted(const struct totals *totals, const char *text)
{
    return totals->only == NULL || strstr(text, totals->only) != NULL;
}

static inline void count(struct totals *totals, bool passed)
{
    totals->passed += passed;
    totals->failed += !passed;
}

/* Writes the line of the case.  Returns false when it is filtered out, or was refused (counted as a failure). */
static inline bool case_begin(struct totals *totals, bool inferred, const struct check_case *check,
                              char text[static OPCHECK_TEXT_MAX])
{
    case_text(check, text);
    if (!is_wanted(totals, text))
        return false;
    if (!inferred) {
        printf("FAIL %s: refused by its shape rule\n", text);
        totals->failed++;
    }
    return inferred;
}

/* Makes a segment for each operand and the workspace.  Returns how many there are. */
static inline int32_t segments_make(struct op_call *call, const struct setting *setting,
                                    struct backend_segment segment[static BACKEND_SEGMENTS_MAX])
{
    int32_t made = 0;
    for (int32_t slot = 0; slot < op_declaration(call->kind)->operands; slot++) {
        struct operand *operand = &call->operand[slot];
        const size_t unit = operand->dtype == DTYPE_I32 ? 0 : dtype_size_bytes(operand->dtype);
        const size_t skipped = (size_t)setting->shift * unit;
        if (!operand->present)
            continue;
        segment[made] = (struct backend_segment){SPACE_DEVICE, skipped + operand_bytes(operand)};
        operand->at = (struct address){.space = SPACE_DEVICE, .segment = (uint8_t)made++, .offset_bytes = skipped};
    }
    if (setting->input >= 0)
        call->operand[setting->alias].at = call->operand[setting->input].at;
    segment[made] = (struct backend_segment){SPACE_DEVICE, call->workspace_bytes > 0 ? call->workspace_bytes : 1};
    call->workspace = (struct address){.space = SPACE_DEVICE, .segment = (uint8_t)made++};
    return made;
}

/* Copies all operands but `except` to the device, or from the device to the image. */
static inline bool operands_move(struct backend *backend, const struct check_case *check, const struct op_call *call,
                                 uint8_t *image, int32_t except, bool down)
{
    bool moved = true;
    for (int32_t slot = 0; slot < op_declaration(call->kind)->operands && moved; slot++) {
        const struct operand *operand = &call->operand[slot];
        uint8_t *at = image + check->call.operand[slot].at.offset_bytes;
        if (!operand->present || slot == except)
            continue;
        moved = down ? cuda_backend_ops.download(backend, at, operand->at, operand_bytes(operand)) == GT_OK
                     : cuda_backend_ops.upload(backend, operand->at, at, operand_bytes(operand)) == GT_OK;
    }
    return moved;
}

/* Runs the case on a card of its own.  data->after is the image afterwards, except for an overwritten input; `prepare`
 * may change it beforehand (NULL: unchanged).  Returns false with a reason on failure. */
static inline bool case_run(const struct setting *setting, struct check_case *check, struct case_data *data,
                            void (*prepare)(const struct check_case *check, struct case_data *data), char *reason)
{
    const struct backend_choice variant = {.call = 0, .algorithm = (uint64_t)setting->variant};
    const struct backend_open_options options = {.device = 0};
    struct backend_segment segment[BACKEND_SEGMENTS_MAX];
    struct backend *backend = NULL;
    bool done = false;
    snprintf(reason, OPCHECK_TEXT_MAX, "the backend failed, or does not support it");
    if (!fake_cuda_devices_set(setting->device) || !emulator_order_set(setting->order) ||
        cuda_backend_ops.open(&options, &backend) != GT_OK)
        return false;
    (void)cuda_backend_ops.choose(backend, &variant, 1);
    if (setting->multiprocessors > 0)
        cuda_own(backend)->multiprocessors = setting->multiprocessors;
    if (backend->ops->supports(backend, &check->call)) {
        image_layout(check, backend->ops->workspace_bytes(backend, &check->call), ALIGNMENT_BYTES);
        case_images_make(check, data);
        memcpy(data->after, data->before, check->image_bytes);
        if (prepare != NULL)
            prepare(check, data);
        struct op_call call = check->call;
        const int32_t made = segments_make(&call, setting, segment);
        const int32_t output = setting->input >= 0 ? setting->alias : -1;
        done = cuda_backend_ops.arena(backend, segment, made) == GT_OK &&
               operands_move(backend, check, &call, data->after, output, false) &&
               case_workspace_spoil(backend, check, &call, data) && cuda_backend_ops.run(backend, &call, 1) == GT_OK &&
               cuda_backend_ops.sync(backend) == GT_OK &&
               operands_move(backend, check, &call, data->after, setting->input, true);
    }
    cuda_backend_ops.close(backend);
    return done;
}

static inline void images_free(struct case_data *data)
{
    if (data->before != NULL)
        case_images_free(data);
}

/* Reads --only=TEXT and --all. */
static inline bool arguments_read(struct totals *totals, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--all") == 0)
            totals->all = true;
        else if (strncmp(argv[i], "--only=", 7) == 0)
            totals->only = argv[i] + 7;
        else
            return fprintf(stderr, "usage: %s [--all] [--only=TEXT]\n", argv[0]), false;
    }
    return true;
}

static inline int finish(const struct totals *totals)
{
    printf("checks: %" PRId64 " passed, %" PRId64 " failed, %" PRId64 " skipped\n", totals->passed, totals->failed,
           totals->skipped);
    return totals->failed > 0 || totals->passed == 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
