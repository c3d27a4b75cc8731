/* A child process that tries driver operations before this process does them.
 *
 * Drivers may abort, hang or exit where they should return a code.  The child is forked before this
 * process loads the ICD loader.  It performs one task: list the devices, open one and prove its
 * matrix units, or commit an arena on one. There is no child if the loader is loaded already (it
 * has then proved itself), or if none can be created.
 */
#ifndef GPT_TRAIN_OPENCL_OPENCL_CHILD_H
#define GPT_TRAIN_OPENCL_OPENCL_CHILD_H

#include "backends/opencl/opencl_device.h"

enum opencl_task { OPENCL_TASK_LIST, OPENCL_TASK_OPEN, OPENCL_TASK_COMMIT };

struct opencl_request {
    enum opencl_task task;
    int32_t device;
    char name[OPENCL_NAME_MAX]; /* "" selects by number */
    int32_t segments;
    struct backend_segment segment[BACKEND_SEGMENTS_MAX];
};

struct opencl_answer {
    enum gt_status status;
    char reason[BACKEND_REASON_MAX]; /* the child's error line without "opencl: ", if status is not
                                        GT_OK */
    bool is_dead;    /* the child died or did not answer; only `has_opened` is known otherwise */
    bool has_opened; /* the device was opened; the task itself may have failed */
    struct opencl_listing listing; /* for OPENCL_TASK_LIST */
    struct opencl_matrix matrix;   /* for OPENCL_TASK_OPEN: its units, proven now or before */
};

/* Starts a child that waits for its request.  out->pid is 0 when there is none. */
void opencl_child_start(struct opencl_child *out);
/* Sends the request, waits for the child to end, and fills *out.  If the child dies, or does not
 * answer within `seconds`, the status is GT_DEVICE, with a reason.  Nothing is logged.  The child
 * is gone afterwards.  Without a child, this process lists the devices itself, and logs errors. */
void opencl_child_ask(struct opencl_child *child, const struct opencl_request *request, int seconds,
                      struct opencl_answer *out);
/* Ends a child that received no request.  Does nothing when there is no child. */
void opencl_child_end(struct opencl_child *child);

#endif
