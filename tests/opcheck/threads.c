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

/* Opens the backend with 1, 2 and 3 threads.  Opening times a product, so it is done once for all
 * ops.  Returns false when the backend fails. */
static bool devices_open(const struct backend_ops *ops, size_t arena_bytes,
                         struct device device[static THREADS_MAX])
{
    for (int32_t i = 0; i < THREADS_MAX; i++) {
        if (device_open(ops, i + 1, arena_bytes, NULL, &device[i]))
            continue;
        while (i > 0)
            device_close(&device[--i]);
        return false;
    }
    return true;
}

static void devices_close(struct device device[static THREADS_MAX])
{
    for (int32_t i = 0; i < THREADS_MAX; i++)
        device_close(&device[i]);
}

/* Lays the case out for the largest workspace of any number of threads.  Returns false when the op
 * is not supported. */
static bool layout(const struct device device[static THREADS_MAX], struct check_case *check)
{
    size_t workspace = 0;
    for (int32_t i = 0; i < THREADS_MAX; i++) {
        if (!device_supports(&device[i], &check->call))
            return false;
        const size_t bytes = device[i].ops->workspace_bytes(device[i].backend, &check->call);
        workspace = bytes > workspace ? bytes : workspace;
    }
    image_layout(check, workspace, device[0].info.alignment_bytes);
    return true;
}

/* Returns true when 1, 2 and 3 threads leave the same bytes.  Otherwise prints a line that begins
 * with FAIL. */
static bool case_agrees(struct device device[static THREADS_MAX], struct check_case *check)
{
    uint8_t *before = case_image_make(check), *first = malloc(check->image_bytes),
            *other = malloc(check->image_bytes);
    char text[OPCHECK_TEXT_MAX], reason[OPCHECK_TEXT_MAX] = "the backend reported a failure";
    if (first == NULL || other == NULL)
        abort();
    size_t bytes = check->call.workspace.offset_bytes;
    bool agrees = device_run(&device[0], check, before, first) &&
                  image_bands_check(check, before, first, reason);
    for (int32_t i = 1; agrees && i < THREADS_MAX; i++) {
        agrees = device_run(&device[i], check, before, other) &&
                 image_bands_check(check, before, other, reason);
        if (agrees && memcmp(first, other, bytes) != 0) {
            snprintf(reason, sizeof reason, "%d threads leave other bytes than one", (int)i + 1);
            agrees = false;
        }
    }
    case_text(check, text);
    if (!agrees)
        printf("FAIL %s: %s: %s\n", device[0].ops->name, text, reason);
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

/* Makes the op's largest cases and lays them out; returns how many the backend supports. */
static int32_t cases_choose(const struct device device[static THREADS_MAX], enum op_kind kind,
                            enum dtype dtype, uint64_t seed,
                            struct check_case out[static CASES_OF_MANY_VARIANTS])
{
    const int32_t count = cases_count(kind, dtype),
                  wanted = op_test(kind)->has_many_variants ? CASES_OF_MANY_VARIANTS : CASES;
    int64_t *elements = calloc((size_t)count + 1, sizeof *elements);
    int32_t chosen = 0, index = 0;
    if (elements == NULL)
        abort();
    for (int32_t i = 0; i < count; i++)
        elements[i] = case_make(kind, dtype, i, seed, &out[0]) ? case_elements(&out[0]) : 0;
    for (int32_t i = 0; i < wanted && (index = largest_take(elements, count)) >= 0; i++)
        chosen += case_make(kind, dtype, index, seed, &out[chosen]) && layout(device, &out[chosen]);
    free(elements);
    return chosen;
}

int32_t threads_run(const struct backend_ops *ops, const struct op_choice *choices, int32_t count,
                    uint64_t seed, int32_t *cases)
{
    struct check_case check[CASES_OF_MANY_VARIANTS];
    struct device device[THREADS_MAX];
    int32_t failed = 0;
    size_t arena_bytes = 0;
    for (int pass = 0; pass < 2; pass++) { /* the first finds the largest case */
        if (!devices_open(ops, arena_bytes, device)) {
            if (pass == 1)
                printf("FAIL %s: cannot be opened with 1 to 3 threads\n", ops->name);
            *cases = pass;
            return pass;
        }
        for (int32_t c = 0; c < count; c++) {
            const int32_t chosen =
                cases_choose(device, choices[c].kind, choices[c].dtype, seed, check);
            for (int32_t i = 0; i < chosen && pass == 0; i++)
                arena_bytes =
                    check[i].image_bytes > arena_bytes ? check[i].image_bytes : arena_bytes;
            for (int32_t i = 0; i < chosen && pass == 1; i++, (*cases)++)
                failed += !case_agrees(device, &check[i]);
        }
        devices_close(device);
        if (arena_bytes == 0)
            return 0;
    }
    return failed;
}
