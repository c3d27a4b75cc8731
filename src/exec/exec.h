/* Running programs: binds a plan to a device once, then runs op lists.
 *
 * exec resolves every operand of every op to its planned address at start; a run is a loop over ready calls.  In debug
 * mode (poison) every storage is filled with a NaN pattern before its first op and after its last one, and the guard
 * bands that the plan left are checked after each program, so that a use of dead or foreign bytes shows.
 */
#ifndef GPT_TRAIN_EXEC_EXEC_H
#define GPT_TRAIN_EXEC_EXEC_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/hostmem.h"
#include "base/status.h"
#include "model/graph.h"
#include "plan/plan.h"

struct exec;

struct exec_options {
    bool poison; /* fill dead ranges with NaN patterns and check guard bands; slow */
};

/* Asks the device for the arena and binds all programs.  `device`, `plan` and its graph are borrowed.
 * Errors: GT_NO_MEMORY, GT_DEVICE. */
enum gt_status exec_create(struct hostmem *mem, struct backend *device, const struct plan *plan,
                           const struct exec_options *options, struct exec **out);
void exec_destroy(struct exec *exec);

/* Host memory to a tensor (or back), `count` elements from element `first`.  Asserts that they lie inside. */
enum gt_status exec_upload(struct exec *exec, int32_t tensor, int64_t first, const void *from, int64_t count);
enum gt_status exec_download(struct exec *exec, int32_t tensor, int64_t first, void *to, int64_t count);
/* All bytes of a tensor of any dtype become 0, by the device. */
enum gt_status exec_zero(struct exec *exec, int32_t tensor);

/* Runs a program of the graph and waits for it.  Errors: GT_DEVICE, or what the backend says. */
enum gt_status exec_run(struct exec *exec, int32_t program);

/* The same without waiting, where exec_runs_ahead(): uploads, programs and results follow each other in order, results are
 * where they shall be after exec_wait(), and so is the error of any of them.  Elsewhere these are the functions above, and
 * exec_wait() has nothing to wait for. */
bool exec_runs_ahead(const struct exec *exec);
enum gt_status exec_start(struct exec *exec, int32_t program);
enum gt_status exec_download_later(struct exec *exec, int32_t tensor, int64_t first, void *to, int64_t count);
enum gt_status exec_wait(struct exec *exec);

/* Measures the device's rate of matrix products in `dtype` with the arena's first `bytes` as scratch, FLOP/s.  What was in the arena is
 * lost: call it before anything is uploaded.  Errors are those of backend_peak_flops(). */
enum gt_status exec_peak_flops(struct exec *exec, enum dtype dtype, uint64_t bytes, double seconds, double *out);

/* Seconds and runs per op kind so far, when timing is on (it waits after every op). */
struct exec_timing {
    double seconds[OP_KIND_COUNT];
    double flops[OP_KIND_COUNT], bytes[OP_KIND_COUNT];
    uint64_t runs[OP_KIND_COUNT];
};
void exec_timing_set(struct exec *exec, bool on);
void exec_timing_get(const struct exec *exec, struct exec_timing *out);

/* While `look` is set, programs run op by op, and it is called after each of them, before poison overwrites what is dead; NULL
 * ends that.  Its status is the program's. */
typedef enum gt_status exec_look_fn(void *context, int32_t program, int32_t op);
void exec_look_set(struct exec *exec, exec_look_fn *look, void *context);

struct backend *exec_device(struct exec *exec);
const struct plan *exec_plan(const struct exec *exec);

#endif
