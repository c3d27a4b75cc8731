/* opcheck: every op, on every backend compiled in, in every dtype, against the oracle under one
 * error rule.
 *
 * A case is an op_call with shapes, a seed and a flavour of inputs.  Its operands lie in an image,
 * one block of memory with guard bands around every tensor.  The result of a backend is the image
 * after the run; that of a mutant is the oracle's image with a defect.  judge.c sees only images
 * and cannot distinguish them.
 */
#ifndef GPT_TRAIN_OPCHECK_OPCHECK_H
#define GPT_TRAIN_OPCHECK_OPCHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "tests/ops/op_test.h"

#define OPCHECK_TEXT_MAX 384

/* The host data of a case: doubles, one array per operand, and images of one layout. */
struct case_data {
    double *initial[OP_OPERANDS_MAX]; /* values before the run, rounded to the operand's dtype */
    struct ref_tensors ref;
    uint8_t *before, *after, *ideal; /* ideal: the oracle's results, rounded to the dtypes */
};

struct verdict {
    bool passed;
    bool trivial;       /* too few nonzero results to show anything */
    double worst_ratio; /* error / bound over all elements */
    char reason[OPCHECK_TEXT_MAX];
};

static inline bool case_is_output(const struct check_case *check, int32_t slot)
{
    return case_operand(check, slot)->present &&
           op_direction(check->call.kind, &check->call.attrs, slot) != OPERAND_IN;
}

/* cases.c: makes case number `index` of an op in a storage dtype, inferred by op_infer().  Returns
 * false when the shape rule refuses it.  The dtype is that of activations; tensors that a model
 * keeps in fp32 are fp32 in two cases of three.  An op whose operands are all fp32 has no cases in
 * another dtype. */
int32_t cases_count(enum op_kind kind, enum dtype dtype);
bool case_make(enum op_kind kind, enum dtype dtype, int32_t index, uint64_t seed,
               struct check_case *out);
/* Makes a case with the shapes of a 124M model's step, for --bench; `product` selects one of its
 * products for gemm, 0 the usual one.  Returns false when there is none. */
bool case_make_bench(enum op_kind kind, enum dtype dtype, int32_t product, struct check_case *out);
void case_text(const struct check_case *check, char text[static OPCHECK_TEXT_MAX]);

/* inputs.c: fills the values of every operand before the run. */
void inputs_fill(const struct check_case *check, double *const *value);

/* image.c: addresses, guard bands, encoding. */
void image_layout(struct check_case *check, size_t workspace_bytes, uint32_t alignment_bytes);
void image_prepare(const struct check_case *check, double *const *value, uint8_t *image);
void image_encode(const struct check_case *check, int32_t slot, int64_t i, double value,
                  uint8_t *image);
/* Returns the dtype of element i of an operand as stored: the operand's, except for words of the
 * scalars block. */
enum dtype image_dtype(const struct check_case *check, int32_t slot, int64_t i);
/* Returns true when every byte outside of outputs and workspace is unchanged, else false and a
 * reason. */
bool image_bands_check(const struct check_case *check, const uint8_t *before, const uint8_t *after,
                       char *reason);

/* data.c: computes the values and the oracle; then images, after the case is laid out.  Aborts
 * when an allocation fails. */
void case_values_make(const struct check_case *check, struct case_data *data);
void case_images_make(const struct check_case *check, struct case_data *data);
void case_images_free(struct case_data *data);
void case_data_free(struct case_data *data);
/* Returns the image of a case before the run, after the case is laid out; free() it. */
uint8_t *case_image_make(const struct check_case *check);

/* judge.c: applies the rule (see there) to the image `after`. */
void judge(const struct check_case *check, const struct case_data *data, const uint8_t *after,
           struct verdict *out);

/* mutants.c: plants every defect in `kind`, adds to the counts, and prints the survivors. */
void mutants_run(enum op_kind kind, enum dtype dtype, uint64_t seed, int32_t *caught,
                 int32_t *planted);

/* device.c: an open backend with an arena for the largest case.  0 threads: as many as the backend
 * chooses. */
struct device {
    const struct backend_ops *ops;
    struct backend *backend;
    struct backend_info info;
    bool is_separate;
};
/* With `separate`, every operand of that case has a segment of its own, and no other case may be
 * run. */
bool device_open(const struct backend_ops *ops, int32_t threads, size_t arena_bytes,
                 const struct check_case *separate, struct device *out);
void device_close(struct device *device);
bool device_supports(const struct device *device, const struct op_call *call);
/* Lays the case out for this device, workspace included. */
void device_layout(const struct device *device, struct check_case *check);
bool device_run(struct device *device, const struct check_case *check, const uint8_t *before,
                uint8_t *after);

/* suite.c: runs one op in one dtype as the control, with permitted roundings, and on every open
 * device; prints a line for each. */
#define DEVICES_MAX 8
struct suite {
    struct device device[DEVICES_MAX];
    int32_t devices;
    int64_t passed, failed, skipped, backend_cases;
};
struct case_range {
    int32_t first, step, count,
        cases; /* indices first + i * step modulo `cases`, for i below count */
};
static inline int32_t case_index(struct case_range range, int32_t i)
{
    return (range.first + i * range.step) % range.cases;
}
void suite_op(struct suite *suite, enum op_kind kind, enum dtype dtype, uint64_t seed,
              struct case_range range);

/* threads.c: runs the largest cases of ops with 1, 2 and 3 threads, and compares the bytes. Returns
 * the number of cases that differ or fail, after a line for each; adds all to *cases. */
struct op_choice {
    enum op_kind kind;
    enum dtype dtype;
};
int32_t threads_run(const struct backend_ops *ops, const struct op_choice *choices, int32_t count,
                    uint64_t seed, int32_t *cases);

/* bench.c: measures the device's roofs, and one op against them. */
#define BENCH_TRIAD_BYTES ((size_t)128 << 20) /* per array; there are three */
struct roofs {
    double flops[DTYPE_COUNT], bytes; /* per second; 0 = not measured */
};
void bench_roofs(struct device *device, struct roofs *out);
void bench_run(struct device *device, enum op_kind kind, enum dtype dtype, int32_t product,
               const struct roofs *roofs);

#endif
