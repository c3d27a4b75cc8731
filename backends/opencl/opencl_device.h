/* Devices before anything runs on them: the loader, platforms and devices with their abilities and memory, and the
 * child process that tries them. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_DEVICE_H
#define GPT_TRAIN_OPENCL_OPENCL_DEVICE_H

#include "backends/opencl/opencl.h"

#define OPENCL_DEVICES_MAX 32

/* The devices of all platforms, in the loader's order.  Plain data, because it may come from a child process. */
struct opencl_listing {
    int32_t count;
    struct opencl_device device[OPENCL_DEVICES_MAX];
};

/* Opens the ICD loader with `mode` of dlopen().  Returns NULL, and logs nothing, when it cannot. */
void *opencl_loader_open(int mode);
/* Errors: GT_DEVICE, logged, when the loader is not installed or lacks a function of OpenCL 1.2. */
enum gt_status opencl_api_open(struct opencl_api *out);
/* Errors: GT_DEVICE when there is no platform or device. */
enum gt_status opencl_devices_list(const struct opencl_api *api, struct opencl_listing *out);
/* Finds number `index` of that list, or, with `name`, a device whose name, board or platform contains it (in any case);
 * a usable one is preferred.  Errors: GT_DEVICE; GT_USAGE when no device matches `name`. */
enum gt_status opencl_device_find(const struct opencl_api *api, int32_t index, const char *name,
                                  struct opencl_device *out);
/* Returns the device that `auto` takes: a GPU with its own memory before one without, then the one with more memory.
 * Returns -1 when there is no usable GPU. */
int32_t opencl_card_choose(const struct opencl_listing *listing);
/* Fills the texts of `info` for people: device, platform, libraries and limits. */
void opencl_device_texts(const struct opencl_backend *cl, struct backend_info *info);
/* Returns true when a device node exists that a GPU driver could serve.  Loads no driver. */
bool opencl_card_is_present(void);
/* Replaces control characters and repeated spaces in `text` by one space; drivers are not trusted with the terminal. */
void opencl_name_clean(char *text);

/* ---- opencl_vendor.c: data that vendors provide outside OpenCL ---- */

/* Returns a card's free memory and the source of that number; false when no source has it. */
bool opencl_vendor_free_bytes(const struct opencl_backend *cl, uint64_t *out_bytes, const char **out_basis);
/* Writes to `out` the other processes that use most of the card's memory, from the DRM's fdinfo below `proc` ("/proc");
 * none when the kernel has no such files. */
void opencl_vendor_holders(const struct opencl_backend *cl, const char *proc, int64_t own_pid,
                           struct backend_holders *out);

/* ---- opencl_memory.c: the arena, whose segments are proved to exist ---- */

/* Returns the device's free memory, in bytes; `out_basis` names the source of the number. */
enum gt_status opencl_memory_read(struct opencl_backend *cl, uint64_t *out_free_bytes, const char **out_basis);
/* Creates `count` segments, writes every page of them, and checks samples that a kernel wrote.  On failure no segment
 * remains.  Errors: GT_NO_MEMORY, GT_DEVICE. */
enum gt_status opencl_memory_commit(struct opencl_backend *cl, const struct backend_segment *segments, int32_t count);
void opencl_memory_release(struct opencl_backend *cl);

/* ---- opencl_child.c: a child process that tries driver operations before this process does them ----
 *
 * Drivers may abort, hang or exit where they should return a code.  The child is forked before this process loads the
 * ICD loader.  It performs one task: list the devices, open one and prove its matrix units, or commit an arena on one.
 * There is no child if the loader is loaded already (it has then proved itself), or if none can be created.
 */

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
    char reason[BACKEND_REASON_MAX]; /* the child's error line without "opencl: ", if status is not GT_OK */
    bool is_dead;                    /* the child died or did not answer; only `has_opened` is known otherwise */
    bool has_opened;                 /* the device was opened; the task itself may have failed */
    struct opencl_listing listing;   /* for OPENCL_TASK_LIST */
    struct opencl_matrix matrix;     /* for OPENCL_TASK_OPEN: its units, proven now or before */
};

/* Starts a child that waits for its request.  out->pid is 0 when there is none. */
void opencl_child_start(struct opencl_child *out);
/* Sends the request, waits for the child to end, and fills *out.  If the child dies, or does not answer within
 * `seconds`, the status is GT_DEVICE, with a reason.  Nothing is logged.  The child is gone afterwards.  Without a
 * child, this process lists the devices itself, and logs errors. */
void opencl_child_ask(struct opencl_child *child, const struct opencl_request *request, int seconds,
                      struct opencl_answer *out);
/* Ends a child that received no request.  Does nothing when there is no child. */
void opencl_child_end(struct opencl_child *child);

#endif
