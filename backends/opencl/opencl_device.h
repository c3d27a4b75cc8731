/* Devices before anything runs on them: the loader, platforms, and devices with their abilities. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_DEVICE_H
#define GPT_TRAIN_OPENCL_OPENCL_DEVICE_H

#include "backends/opencl/opencl.h"

#define OPENCL_DEVICES_MAX 32

/* The devices of all platforms, in the loader's order.  Plain data, because it may come from a
 * child process. */
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
/* Finds number `index` of that list, or, with `name`, a device whose name, board or platform
 * contains it (in any case); a usable one is preferred.  Errors: GT_DEVICE; GT_USAGE when no device
 * matches `name`. */
enum gt_status opencl_device_find(const struct opencl_api *api, int32_t index, const char *name,
                                  struct opencl_device *out);
/* Returns the device that `auto` chooses: a GPU with its own memory before one without, then the
 * GPU with more memory.  Returns -1 when there is no usable GPU. */
int32_t opencl_card_choose(const struct opencl_listing *listing);
/* Fills the texts of `info` for people: device, platform, libraries and limits. */
void opencl_device_texts(const struct opencl_backend *cl, struct backend_info *info);
/* Returns true when a device node exists that a GPU driver could serve.  Loads no driver. */
bool opencl_card_is_present(void);
/* Replaces control characters and repeated spaces in `text` by one space; drivers are not trusted
 * with the terminal. */
void opencl_name_clean(char *text);

#endif
