/* Platforms and devices: finding them, what they can do, what memory they have. */
#ifndef GPT_TRAIN_OPENCL_OPENCL_DEVICE_H
#define GPT_TRAIN_OPENCL_OPENCL_DEVICE_H

#include "backends/opencl/opencl.h"

#define OPENCL_DEVICES_MAX 32

/* What a list of devices says of each; plain data, because it comes from another process (opencl_child.h). */
struct opencl_listed {
    char platform[OPENCL_NAME_MAX], name[OPENCL_NAME_MAX];
    uint64_t global_bytes, allocation_bytes;
    bool is_gpu, is_host_memory, is_usable;
};

struct opencl_listing {
    int32_t count;
    struct opencl_listed device[OPENCL_DEVICES_MAX];
};

/* The devices of all platforms, in the loader's order.  Errors: GT_DEVICE when there is no platform or no device. */
enum gt_status opencl_devices_list(const struct opencl_api *api, struct opencl_listing *out);
/* Number `index` of that list, or, with `name`, the first one whose name has that text in it (any case).
 * Errors: GT_DEVICE; GT_USAGE where no name has it. */
enum gt_status opencl_device_find(const struct opencl_api *api, int32_t index, const char *name,
                                  struct opencl_device *out);
/* The one that `auto` takes: a GPU with memory of its own before one without, then the one with more of it; -1 where there is no
 * GPU, or none that can be used. */
int32_t opencl_card_choose(const struct opencl_listing *listing);
/* "rusticl", "llvmpipe ..., 8 units", libraries and limits for people. */
void opencl_device_texts(const struct opencl_backend *cl, struct backend_info *info);
/* Whether something is plugged in that a driver for cards could serve, without asking any driver. */
bool opencl_card_is_present(void);
/* "a b" of `text` with control characters and repeated spaces replaced; drivers are not trusted with the terminal. */
void opencl_name_clean(char *text);
/* Whether `part` is in `text`, in any case of ASCII letters. */
bool opencl_name_has(const char *text, const char *part);

#endif
