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
#include "model/op.h"
#include "tests/ref/naive.h"
#include "tests/ref/ref.h"

#define OPCHECK_TEXT_MAX 256

enum case_inputs {
    INPUTS_NORMAL,
    INPUTS_INTEGER, /* small integers: sums of products must come out exactly */
    INPUTS_LARGE,   /* large offsets, scores or norms */
    INPUTS_SMALL,   /* small values, where epsilons matter */
    INPUTS_SPECIAL, /* NaN, infinity, found_inf, ignored targets */
    INPUTS_COUNT
};

struct check_case {
    struct op_call call; /* shapes, dtypes, attributes; addresses are offsets in the image */
    enum case_inputs inputs;
    uint64_t seed;
    int32_t index;
    size_t image_bytes;
};

/* What a case holds on the host while it is looked at: doubles, one array per operand. */
struct case_data {
    double *initial[OP_OPERANDS_MAX]; /* values before the run, rounded to the operand's dtype */
    double *naive[OP_OPERANDS_MAX];
    struct ref_tensors ref;
    uint8_t *before, *after, *naive_image; /* images */
};

struct verdict {
    bool passed;
    bool trivial;       /* too few results differ from zero to show anything */
    double worst_ratio; /* error / bound over all elements */
    char reason[OPCHECK_TEXT_MAX];
};

/* Random numbers of a case: Philox under its seed. */
struct random {
    uint64_t seed;
    uint32_t draws;
};

uint32_t random_word(struct random *random);
int64_t random_below(struct random *random, int64_t bound);
double random_normal(struct random *random);

/* cases.c: case number `index` of an op in a storage dtype, inferred by op_infer(); false when the shape rule refuses it. */
int32_t cases_count(enum op_kind kind);
bool case_make(enum op_kind kind, enum dtype dtype, int32_t index, uint64_t seed, struct check_case *out);
/* The shape of a 124M model's step, for --bench. */
bool case_make_bench(enum op_kind kind, enum dtype dtype, struct check_case *out);
void case_text(const struct check_case *check, char text[static OPCHECK_TEXT_MAX]);

/* inputs.c: the values of every operand before the run. */
void inputs_fill(const struct check_case *check, double *const value[OP_OPERANDS_MAX]);

/* image.c: addresses, guard bands, encoding. */
void image_layout(struct check_case *check, size_t workspace_bytes, uint32_t alignment_bytes);
void image_prepare(const struct check_case *check, double *const value[OP_OPERANDS_MAX], uint8_t *image);
void image_encode(const struct check_case *check, int32_t slot, int64_t i, double value, bool truncate, uint8_t *image);
double image_decode(const struct check_case *check, int32_t slot, int64_t i, const uint8_t *image);
/* The dtype that element i of an operand is stored in: that of the operand, but for the words of the scalars block. */
enum dtype image_dtype(const struct check_case *check, int32_t slot, int64_t i);
/* `value` as the dtype stores it. */
double image_rounded(enum dtype dtype, double value);
/* Every byte outside of outputs and workspace is as before; else false and a reason. */
bool image_bands_check(const struct check_case *check, const uint8_t *before, const uint8_t *after, char *reason);

/* data.c: allocates, fills, runs oracle and naive reference; aborts without memory. */
void case_data_make(const struct check_case *check, struct case_data *data);
void case_data_free(struct case_data *data);

/* judge.c */
void judge(const struct check_case *check, const struct case_data *data, const uint8_t *after, struct verdict *out);

/* mutants.c: plants every defect of `kind`; adds to the counts; prints survivors.  False when one survives. */
bool mutants_run(enum op_kind kind, enum dtype dtype, uint64_t seed, int32_t *caught, int32_t *planted);
bool mutant_is_output_defect(enum naive_defect defect);

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

/* bench.c */
void bench_run(struct device *device, enum op_kind kind, enum dtype dtype);

#endif
