/* Finds platforms and devices, and reads their abilities and memory sizes. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_DEVICE_H
#define GPT_TRAIN_OPENCL_OPENCL_DEVICE_H

#include "backends/opencl/opencl.h"

#define OPENCL_DEVICES_MAX 32

/* The devices of all platforms, in the loader's order.  Plain data, because it may come from another process
 * (opencl_child.h). */
struct opencl_listing {
    int32_t count;
    struct opencl_device device[OPENCL_DEVICES_MAX];
};

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
/* Returns true when `text` contains `part`, ignoring the case of ASCII letters. */
bool opencl_name_has(const char *text, const char *part);

/* ---- opencl_vendor.c: data that vendors provide outside OpenCL ---- */

/* Returns a card's free memory and the source of that number; false when no source has it. */
bool opencl_vendor_free_bytes(const struct opencl_backend *cl, uint64_t *out_bytes, const char **out_basis);
/* Writes to `out` the other processes that use most of the card's memory, from the DRM's fdinfo below `proc` ("/proc");
 * none when the kernel has no such files. */
void opencl_vendor_holders(const struct opencl_backend *cl, const char *proc, int64_t own_pid,
                           struct backend_holders *out);

/* ---- opencl_memory.c: the arena, whose segments are proved to exist ---- */

/* Returns the device's total and currently free memory, in bytes; `out_basis` names the source of the second number. */
enum gt_status opencl_memory_read(struct opencl_backend *cl, uint64_t *out_total_bytes, uint64_t *out_free_bytes,
                                  const char **out_basis);
/* Creates `count` segments, writes every page of them, and checks samples that a kernel wrote.  On failure no segment
 * remains.  Errors: GT_NO_MEMORY, GT_DEVICE. */
enum gt_status opencl_memory_commit(struct opencl_backend *cl, const struct backend_segment *segments, int32_t count);
void opencl_memory_release(struct opencl_backend *cl);

#endif
