/* Device profiles: what is known of a card that need not be in the machine, so that a plan can be made for it.
 *
 * A table of known cards ships (device_profiles.def); a user's own comes from a JSON file (doc/devices.md).  Memory is the
 * card's; what can be used is less, by what the driver and a context take.  Rates are peaks by the data sheet; a figure
 * that is not known is 0, and the cost model says so rather than invent it.
 */
#ifndef GPT_TRAIN_PLAN_DEVICE_PROFILE_H
#define GPT_TRAIN_PLAN_DEVICE_PROFILE_H

#include <stdint.h>
#include <stdio.h>

#include "base/dtype.h"
#include "base/status.h"

#define DEVICE_PROFILE_NAME_MAX 96
#define DEVICE_PROFILE_SOURCE_MAX 256

struct device_profile {
    char id[DEVICE_PROFILE_NAME_MAX];   /* "rtx3060-12g", or the path of the user's file */
    char name[DEVICE_PROFILE_NAME_MAX]; /* "NVIDIA GeForce RTX 3060 12 GB" */
    char backend[16];                   /* which backend would run it: "cuda", "opencl" */
    uint64_t memory_bytes;
    uint64_t usable_bytes;  /* for an arena, when nothing else uses the card */
    uint64_t context_bytes; /* what a process holds beside its arena; with the usable bytes, what the driver shows */
    uint64_t largest_allocation_bytes;
    uint32_t alignment_bytes;
    uint32_t dtypes;           /* bit per enum dtype that ops may use for storage */
    int32_t units;             /* multiprocessors or compute units; 0 = unknown */
    int32_t capability;        /* CUDA compute capability x 10; 0 = none */
    double bytes_per_s;        /* of its memory */
    double vector_flops_per_s; /* fp32 */
    /* Of matrix products with fp32 accumulation, dense, by the dtype of their operands; 0 = unknown, and the vector rate
     * is taken. */
    double matrix_flops_per_s[DTYPE_COUNT];
    double tf32_flops_per_s; /* 0 = none or unknown; float32 does not use it */
    double share;            /* of all these peaks that a training step reached, as published; 0 = not known */
    char source[DEVICE_PROFILE_SOURCE_MAX];
    char share_source[DEVICE_PROFILE_SOURCE_MAX];
};

/* The cards of the table, in its order. */
int32_t device_profile_count(void);
void device_profile_get(int32_t index, struct device_profile *out);

/* A card of the table by its id or the beginning of one, as it is usually written ("rtx3060", "3060", "RTX 3060": the first
 * whose id is that and a dash), or a file,
 * when `text` holds a slash or ends in .json.
 * Errors: GT_USAGE for an unknown name and an unreadable file, GT_DATA for a file with a missing, unknown or impossible
 * field, which is named. */
enum gt_status device_profile_find(const char *text, struct device_profile *out);

/* What a process holds of a card of that backend ("cuda", "opencl") beside its arena, by the number of its units. */
uint64_t device_profile_context_bytes(const char *backend, int32_t units);

/* Reads a profile from a JSON file.  Errors: as above, and GT_IO. */
enum gt_status device_profile_read(const char *path, struct device_profile *out);

/* The table, one line a card. */
void device_profile_print_list(FILE *out);

#endif
