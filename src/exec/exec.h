/* Running programs: binds a plan to a device once, then runs op lists.
 *
 * At start exec resolves every operand of every op to its planned address; a run then loops over
 * ready calls.  In debug mode (poison) exec fills every storage with a NaN pattern before its first
 * op and after its last one, and checks the plan's guard bands when tensors die and after each
 * program.  This exposes any use of dead or foreign bytes.
 */
#ifndef GPT_TRAIN_EXEC_EXEC_H
#define GPT_TRAIN_EXEC_EXEC_H

#include "backend/backend.h"
#include "base/hostmem.h"
#include "model/graph.h"
#include "plan/plan.h"

struct dist;
struct exec;

/* Allocates the arena on the device and binds all programs.  `device`, `plan` and its graph are
 * borrowed. `poison` fills dead ranges with NaN patterns and checks guard bands, which is slow.
 * Errors: GT_NO_MEMORY, GT_DEVICE. */
enum gt_status exec_create(const void *owner, struct backend *device, const struct plan *plan,
                           bool poison, struct exec **out);

/* Sets `dist`, through which exchanges between ranks go unless the device has its own way, and
 * `staging`, for memory that the host cannot access.  Both are borrowed.  Without `dist`, a program
 * that runs with a callback (exec_callback_set()) leaves out exchanges and the sums of other ranks'
 * parts. */
#define EXEC_STAGING_BYTES ((size_t)2 << 20)
void exec_dist_set(struct exec *exec, struct dist *dist, void *staging);

/* Copy `count` elements, from element `first`, between host memory and a tensor.  Both assert that
 * they lie inside. */
enum gt_status exec_upload(struct exec *exec, int32_t tensor, int64_t first, const void *from,
                           int64_t count);
enum gt_status exec_download(struct exec *exec, int32_t tensor, int64_t first, void *to,
                             int64_t count);
/* Sets all bytes of a tensor of any dtype to 0, on the device. */
enum gt_status exec_zero(struct exec *exec, int32_t tensor);

/* Runs a program of the graph and waits for it.  Errors: those of the backend, such as GT_DEVICE.
 */
enum gt_status exec_run(struct exec *exec, int32_t program);

/* Asynchronous versions, if exec_runs_ahead() returns true.  Uploads, programs and downloads still
 * run in order; results are valid after exec_wait(), which also returns the error of any of them.
 * Otherwise they are synchronous, and exec_wait() does nothing. */
bool exec_runs_ahead(const struct exec *exec);
enum gt_status exec_start(struct exec *exec, int32_t program);
enum gt_status exec_download_later(struct exec *exec, int32_t tensor, int64_t first, void *to,
                                   int64_t count);
enum gt_status exec_wait(struct exec *exec);

/* Measures the device's rate of matrix products in `dtype`, in FLOP/s, with the arena's first
 * `bytes` as scratch.  It overwrites the arena, so call it before the first upload.  Errors: those
 * of backend_peak_flops(). */
enum gt_status exec_peak_flops(struct exec *exec, enum dtype dtype, uint64_t bytes, double seconds,
                               double *out);

/* Totals per op kind, collected while timing is on.  A device with run_timed() times every other
 * run of a program op by op, without waits, and the others as a whole: whole_seconds is the total
 * of the latter, ops_seconds that of the same runs by the times of their ops. */
struct exec_timing {
    double seconds[OP_KIND_COUNT];
    double flops[OP_KIND_COUNT], bytes[OP_KIND_COUNT];
    uint64_t runs[OP_KIND_COUNT];
    double whole_seconds, ops_seconds;
};
/* except: a program that is not timed, or -1. */
void exec_timing_set(struct exec *exec, bool on, int32_t except);
void exec_timing_get(const struct exec *exec, struct exec_timing *out);
/* Makes exec wait after every op, so that a watchdog can name the op. */
void exec_waits_set(struct exec *exec, bool on);

/* While `look` is set, programs run op by op, and exec calls it after each op, before poison
 * overwrites dead storage. An error from `look` ends the program with that status.  NULL switches
 * it off. */
typedef enum gt_status exec_callback_fn(void *context, int32_t program, int32_t op);
void exec_callback_set(struct exec *exec, exec_callback_fn *look, void *context);

#endif
