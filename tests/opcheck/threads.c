/* opcheck --threads: the number of threads changes no byte.
 *
 * The largest cases of an op, which are the ones that a backend divides among threads, run with 1,
 * 2 and 3 threads from the same image, in a layout with room for the largest workspace.  The runs
 * must leave equal bytes everywhere before the workspace, and must not change bytes outside of
 * outputs and workspace.  This mode does not use the oracle: the other modes compare the results of
 * one number of threads with it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

#define THREADS_MAX 3
#define CASES 4
#define CASES_OF_MANY_VARIANTS 16

/* Opens the backend with an arena for the case, runs the case from the image `before`, and writes
 * the resulting image to `after`.  Returns false when the backend fails. */
static bool image_run(const struct backend_ops *ops, int32_t threads,
                      const struct check_case *check, const uint8_t *before, uint8_t *after)
{
    struct device device;
    if (!device_open(ops, threads, check->image_bytes, NULL, &device))
        return false;
    bool done = device_run(&device, check, before, after);
    device_close(&device);
    return done;
}

/* Lays the case out for the largest workspace of any number of threads.  Returns false when the op
 * is not supported. */
static bool layout(const struct backend_ops *ops, struct check_case *check)
{
    size_t workspace = 0;
    uint32_t alignment = 1;
    for (int32_t threads = 1; threads <= THREADS_MAX; threads++) {
        struct device device;
        if (!device_open(ops, threads, 0, NULL, &device))
            return false;
        bool supported = device_supports(&device, &check->call);
        size_t bytes = supported ? ops->workspace_bytes(device.backend, &check->call) : 0;
        workspace = bytes > workspace ? bytes : workspace;
        alignment = device.info.alignment_bytes;
        device_close(&device);
        if (!supported)
            return false;
    }
    image_layout(check, workspace, alignment);
    return true;
}

/* Returns true when 1, 2 and 3 threads leave the same bytes.  Otherwise prints a line that begins
 * with FAIL. */
static bool case_agrees(const struct backend_ops *ops, struct check_case *check)
{
    uint8_t *before = case_image_make(check), *first = malloc(check->image_bytes),
            *other = malloc(check->image_bytes);
    char text[OPCHECK_TEXT_MAX], reason[OPCHECK_TEXT_MAX] = "the backend reported a failure";
    if (first == NULL || other == NULL)
        abort();
    size_t bytes = check->call.workspace.offset_bytes;
    bool agrees =
        image_run(ops, 1, check, before, first) && image_bands_check(check, before, first, reason);
    for (int32_t threads = 2; agrees && threads <= THREADS_MAX; threads++) {
        agrees = image_run(ops, threads, check, before, other) &&
                 image_bands_check(check, before, other, reason);
        if (agrees && memcmp(first, other, bytes) != 0) {
            snprintf(reason, sizeof reason, "%d threads leave other bytes than one", (int)threads);
            agrees = false;
        }
    }
    case_text(check, text);
    if (!agrees)
        printf("FAIL %s: %s: %s\n", ops->name, text, reason);
    free(before);
    free(first);
    free(other);
    return agrees;
}

static int64_t case_elements(const struct check_case *check)
{
    int64_t elements = 0;
    for (int32_t slot = 0; slot < OP_OPERANDS_MAX; slot++)
        elements += operand_elements(&check->call.operand[slot]);
    return elements;
}

/* Returns the index of the largest number, and sets that number to 0.  Returns -1 when all are 0.
 */
static int32_t largest_take(int64_t *elements, int32_t count)
{
    int32_t largest = -1;
    for (int32_t i = 0; i < count; i++) {
        if (elements[i] > 0 && (largest < 0 || elements[i] > elements[largest]))
            largest = i;
    }
    if (largest >= 0)
        elements[largest] = 0;
    return largest;
}

int32_t threads_run(const struct backend_ops *ops, enum op_kind kind, enum dtype dtype,
                    uint64_t seed, int32_t *cases)
{
    int32_t failed = 0, wanted = op_test(kind)->has_many_variants ? CASES_OF_MANY_VARIANTS : CASES;
    int32_t count = cases_count(kind, dtype), index = 0;
    int64_t *elements = calloc((size_t)count + 1, sizeof *elements);
    struct check_case check;
    if (elements == NULL)
        abort();
    for (int32_t i = 0; i < count; i++)
        elements[i] = case_make(kind, dtype, i, seed, &check) ? case_elements(&check) : 0;
    for (int32_t i = 0; i < wanted && (index = largest_take(elements, count)) >= 0; i++) {
        if (!case_make(kind, dtype, index, seed, &check) || !layout(ops, &check))
            continue;
        failed += !case_agrees(ops, &check);
        ++*cases;
    }
    free(elements);
    return failed;
}
