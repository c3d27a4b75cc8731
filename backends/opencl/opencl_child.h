/* A process that tries things with a driver before this process does them.
 *
 * Drivers abort, hang or exit where they should return a code.  The child is forked before this process has loaded the ICD
 * loader, and does one thing: list the devices, open one, prove its matrix units, or commit an arena on one.  Where the loader is loaded already
 * (it has proved itself then), or where no child can be had, there is none.
 */
#ifndef GPT_TRAIN_OPENCL_OPENCL_CHILD_H
#define GPT_TRAIN_OPENCL_OPENCL_CHILD_H

#include <sys/types.h>

#include "backends/opencl/opencl_device.h"

enum opencl_task { OPENCL_TASK_LIST, OPENCL_TASK_OPEN, OPENCL_TASK_MATRIX, OPENCL_TASK_COMMIT };

struct opencl_request {
    enum opencl_task task;
    int32_t device;
    char name[OPENCL_NAME_MAX]; /* "" = by number */
    int32_t segments;
    struct backend_segment segment[BACKEND_SEGMENTS_MAX];
};

struct opencl_answer {
    enum gt_status status;
    char reason[BACKEND_REASON_MAX]; /* the child's error line, where status is not GT_OK */
    bool is_dead;                    /* the child died or did not answer, and nothing of the rest is known */
    bool has_opened;                 /* a device; before the task itself */
    struct opencl_listing listing;   /* of OPENCL_TASK_LIST */
    struct opencl_matrix matrix;     /* what should be there (OPENCL_TASK_OPEN), and what is (OPENCL_TASK_MATRIX) */
    bool matrix_is_known;            /* and was proven before */
};

struct opencl_child {
    pid_t pid; /* 0: there is none */
    int to_fd, from_fd;
};

/* Starts a child that waits for its request.  out->pid is 0 where there can be none. */
void opencl_child_start(struct opencl_child *out);
/* Asks the child, waits for its end, and fills *out; a child that dies, or says nothing for `seconds`, is GT_DEVICE with the
 * reason.  Nothing is logged.  The child is gone afterwards. */
void opencl_child_ask(struct opencl_child *child, const struct opencl_request *request, int seconds,
                      struct opencl_answer *out);
/* Ends a child that was not asked.  Accepts one that is gone. */
void opencl_child_end(struct opencl_child *child);

#endif
