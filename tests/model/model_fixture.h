/* Whole programs for the tests of this folder: on a real device, and in double through the oracle.
 *
 * A rig is a model with its plan, a device and an executor, filled from a seed.  A replica stores
 * every tensor of a graph as doubles and runs programs through tests/ops, op by op.  Failures of
 * set-up end the process: they are not test results.
 */
#ifndef GPT_TRAIN_MODEL_FIXTURE_H
#define GPT_TRAIN_MODEL_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend_call.h"
#include "base/hostmem.h"
#include "exec/exec.h"
#include "model/model.h"
#include "plan/plan.h"

/* Ends the process with the text when `good` is false. */
void rig_need(bool good, const char *text);

/* Returns the options of a small GPT with every program: 2 layers, 2 heads, 16 channels, 8
 * positions, 11 tokens of a vocabulary padded to 16, two micro-steps of 3 samples and a remainder
 * of 1, loss chunks of 7 rows. */
struct model_options rig_options(bool bias, float dropout, enum gelu_kind gelu);

struct rig {
    struct hostmem *mem;
    struct model *model;
    struct backend *device;
    struct backend_record record; /* of the device's calls */
    struct plan *plan;
    struct exec *exec;
    union scalar_word scalars[SCALAR_WORDS];
    uint64_t seed;
};

struct rig_how {
    bool poison;
    uint32_t guard_bytes;
    int32_t threads;
};

/* Opens the first backend of the build and binds the model's programs.  Weights are drawn from the
 * seed (no weight is 0 or 1), moments are 0, ids and targets of every program are drawn, some
 * targets ignored. */
void rig_open(struct rig *rig, const struct model_options *options, const struct rig_how *how,
              uint64_t seed);
void rig_close(struct rig *rig);

/* Fills the data tensors of a program from (seed, which), `batch` samples of them. */
void rig_feed(struct rig *rig, const struct program_io *io, uint64_t which);
/* Uploads a program's ids, and where it has such tensors, their targets, their order by id, and the
 * starts of documents, which end with the token RIG_END. */
#define RIG_END 0
void rig_rows_upload(struct rig *rig, const struct program_io *io, const int32_t *ids,
                     const int32_t *targets);
/* Returns the program of micro-step `k` of an update. */
const struct program_io *rig_step_io(const struct rig *rig, int32_t k);
/* Uploads the scalars, runs, and downloads them. */
void rig_run(struct rig *rig, int32_t program);
/* Returns all elements of a tensor as float (for a float dtype) or int32; the caller calls free().
 */
void *rig_download(struct rig *rig, int32_t tensor);

/* Sorts rows by id, as data/sampler.h defines. */
void rig_order(const int32_t *ids, int64_t rows, int32_t *order, int32_t *starts);
/* rig_uniform() returns a number in [0, 1), rig_normal() a standard normal one; both depend on the
 * arguments only. */
double rig_uniform(uint64_t seed, uint64_t stream, uint64_t index);
double rig_normal(uint64_t seed, uint64_t stream, uint64_t index);

/* Every tensor of a graph in double. */
struct replica {
    const struct graph *graph;
    double **value; /* [tensor_count]; views point into their base */
};

void replica_create(const struct graph *graph, struct replica *out);
void replica_destroy(struct replica *replica);
/* Runs a program through the oracle, where nothing is rounded for any dtype, or with the outputs of
 * each op rounded to the dtype of their tensor. */
void replica_run(struct replica *replica, int32_t program, bool rounds);
/* Fills the whole replica with NaN, to expose reads of unwritten elements. */
void replica_poison(struct replica *replica);
/* Copies run and phase tensors, and the inputs of a program, from a rig. */
void replica_load(struct replica *replica, struct rig *rig, int32_t program);
/* Returns ||a - b|| / ||b|| of `count` numbers; 0 when both are 0. */
double replica_distance(const float *a, const double *b, int64_t count);

#endif
