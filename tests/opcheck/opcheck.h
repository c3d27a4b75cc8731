/* opcheck: every op, on every backend compiled in, in every dtype, against the oracle under one error rule.
 *
 * A case is an op_call with shapes, a seed and a flavour of inputs.  Its operands lie in an image, one piece of memory with
 * guard bands around every tensor.  A backend's result is the image after the run; a mutant's is the image that a
 * defective naive version would leave.  judge.c looks at images only and cannot tell them apart.
 */
#ifndef GPT_TRAIN_OPCHECK_OPCHECK_H
#define GPT_TRAIN_OPCHECK_OPCHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "tests/ops/op_test.h"

#define OPCHECK_TEXT_MAX 384

/* What a case holds on the host while it is looked at: doubles, one array per operand, and images of one layout. */
struct case_data {
    double *initial[OP_OPERANDS_MAX]; /* values before the run, rounded to the operand's dtype */
    double *naive[OP_OPERANDS_MAX];
    double *scratch[OP_OPERANDS_MAX]; /* for another naive run */
    struct ref_tensors ref;
    uint8_t *before, *after, *naive_image;
    uint8_t *exact_image; /* NULL where the call has no bit-exact reference */
};

/* How a value becomes a 16-bit pattern: as it must, or as two mutants do it. */
enum encoding { ENCODE_NEAREST, ENCODE_TRUNCATE, ENCODE_SATURATE };

struct verdict {
    bool passed;
    bool trivial;       /* too few results differ from zero to show anything */
    double worst_ratio; /* error / bound over all elements */
    char reason[OPCHECK_TEXT_MAX];
};

/* cases.c: case number `index` of an op in a storage dtype, inferred by op_infer(); false when the shape rule refuses it.
 * The dtype is that of activations; half of the operands that a model keeps in fp32 are so.  An op whose operands are all
 * fp32 has no cases in another dtype. */
int32_t cases_count(enum op_kind kind, enum dtype dtype);
bool case_make(enum op_kind kind, enum dtype dtype, int32_t index, uint64_t seed, struct check_case *out);
/* The shape of a 124M model's step, for --bench. */
bool case_make_bench(enum op_kind kind, enum dtype dtype, struct check_case *out);
void case_text(const struct check_case *check, char text[static OPCHECK_TEXT_MAX]);

/* inputs.c: the values of every operand before the run. */
void inputs_fill(const struct check_case *check, double *const value[OP_OPERANDS_MAX]);

/* image.c: addresses, guard bands, encoding. */
void image_layout(struct check_case *check, size_t workspace_bytes, uint32_t alignment_bytes);
void image_prepare(const struct check_case *check, double *const value[OP_OPERANDS_MAX], uint8_t *image);
void image_encode(const struct check_case *check, int32_t slot, int64_t i, double value, enum encoding encoding,
                  uint8_t *image);
double image_decode(const struct check_case *check, int32_t slot, int64_t i, const uint8_t *image);
/* The dtype that element i of an operand is stored in: that of the operand, but for the words of the scalars block. */
enum dtype image_dtype(const struct check_case *check, int32_t slot, int64_t i);
/* Every byte outside of outputs and workspace is as before; else false and a reason. */
bool image_bands_check(const struct check_case *check, const uint8_t *before, const uint8_t *after, char *reason);

/* data.c: values, oracle and naive reference; then images, once the case is laid out.  Aborts without memory. */
void case_values_make(const struct check_case *check, struct case_data *data);
void case_images_make(const struct check_case *check, struct case_data *data);
void case_images_free(struct case_data *data);
void case_data_free(struct case_data *data);
/* data->after becomes what the naive reference with a defect, or with something permitted, would leave. */
void case_naive_image(const struct check_case *check, struct case_data *data, enum naive_defect defect);

/* Fills the workspace of `call`, which is the case's laid out elsewhere, with NaN: nothing was ever written to it, and the arena's
 * zeros are not what an op may count on. */
bool case_workspace_spoil(struct backend *backend, const struct check_case *check, const struct op_call *call,
                          const struct case_data *data);

/* judge.c */
void judge(const struct check_case *check, const struct case_data *data, const uint8_t *after, struct verdict *out);

/* mutants.c: plants every defect of `kind`; adds to the counts; prints survivors. */
void mutants_run(enum op_kind kind, enum dtype dtype, uint64_t seed, int32_t *caught, int32_t *planted);

/* device.c: one backend, opened, with an arena for the largest case. */
struct device {
    const struct backend_ops *ops;
    struct backend *backend;
    struct backend_info info;
};
bool device_open(const struct backend_ops *ops, size_t arena_bytes, struct device *out);
void device_close(struct device *device);
bool device_supports(const struct device *device, const struct op_call *call);
/* Lays the case out for this device, workspace included. */
void device_layout(const struct device *device, struct check_case *check);
bool device_run(struct device *device, const struct check_case *check, const uint8_t *before, uint8_t *after);

/* suite.c: one op in one dtype on the control, on what is permitted, and on every open device; prints a line for each. */
#define DEVICES_MAX 8
struct suite {
    struct device device[DEVICES_MAX];
    int32_t devices;
    int64_t passed, failed, skipped, backend_cases;
};
struct case_range {
    int32_t first, step, end; /* indices first, first + step, ... below end */
};
void suite_op(struct suite *suite, enum op_kind kind, enum dtype dtype, uint64_t seed, struct case_range range);

/* bench.c: the device's measured roofs, and one op beside them. */
#define BENCH_TRIAD_BYTES ((size_t)128 << 20) /* of each of the three arrays */
struct roofs {
    double flops[DTYPE_COUNT], bytes; /* per second; 0 = not measured */
};
void bench_roofs(struct device *device, struct roofs *out);
void bench_run(struct device *device, enum op_kind kind, enum dtype dtype, const struct roofs *roofs);

#endif
