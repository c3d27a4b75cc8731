/* Asks NVIDIA's management library (NVML) which other processes use a card.  The library is looked
 * up when a card is opened and may be missing; it is never linked. */
#ifndef GPT_TRAIN_BACKEND_BACKEND_NVML_H
#define GPT_TRAIN_BACKEND_BACKEND_NVML_H

#include "backend/backend.h"

#define NVML_DRIVER_MAX 32

/* These two have the layout in nvml.h. */
struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_process {
    unsigned int pid;
    unsigned long long used_bytes;
    unsigned int gpu_instance, compute_instance;
};

struct nvml {
    void *library; /* NULL if it or the card was not found */
    void *device;
    char driver[NVML_DRIVER_MAX]; /* its release, "580.82.07", or "" when unknown */
    int (*shutdown)(void);
    int (*memory)(void *device, struct nvml_memory *out);
    int (*processes[2])(void *device, unsigned int *count,
                        struct nvml_process *out); /* compute, graphics */
    int (*process_name)(unsigned int pid, char *name, unsigned int size);
};

/* Opens the library for the card at a PCI address, "0000:03:00.0". */
void nvml_open(struct nvml *out, const char *pci);
void nvml_close(struct nvml *nvml);
/* Returns how many bytes of the card's memory all processes together use, and how many are free;
 * zeros if the driver does not report them. */
struct nvml_memory nvml_memory_ask(const struct nvml *nvml);
/* Inserts into `out` the other processes that use the most memory of the card, as far as the driver
 * reports them (not under WSL2). */
void nvml_holders(const struct nvml *nvml, struct backend_holders *out);

#endif
