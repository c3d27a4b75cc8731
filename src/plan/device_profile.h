/* Device profiles: figures of a card that need not be in the machine, so that a plan can be made
 * for it.
 *
 * A table of known cards is built in (device_profiles.def); users can add their own in a JSON file
 * (doc/devices.md). memory_bytes is all of the card's memory; usable_bytes is less, by the needs of
 * the driver and a context.  Rates are peaks from the data sheet.  An unknown figure is 0, and the
 * cost model reports it instead of guessing.
 */
#ifndef GPT_TRAIN_PLAN_DEVICE_PROFILE_H
#define GPT_TRAIN_PLAN_DEVICE_PROFILE_H

#include "backend/backend.h"
#include "base/dtype.h"

#define DEVICE_PROFILE_NAME_MAX 96
#define DEVICE_PROFILE_SOURCE_MAX 256

/* The uncertainty of rates that were timed: at the run's width on a machine whose timings agreed,
 * or by the user who gives a share. */
#define PLAN_TIMED_UNCERTAINTY 0.2

/* The shares of a card's peak rates that training reaches: in large products, in attention, and in
 * the bytes that all other ops move.  `uncertainty` is the relative error to expect of a step's
 * time. */
struct device_reached {
    double products, attention, bytes, uncertainty;
};

struct device_profile {
    char id[DEVICE_PROFILE_NAME_MAX];   /* "rtx3060-12g", or the path of the user's file */
    char name[DEVICE_PROFILE_NAME_MAX]; /* "NVIDIA GeForce RTX 3060 12 GB" */
    char backend[16];                   /* the name of the backend that would run it */
    uint64_t memory_bytes;
    uint64_t usable_bytes;  /* for an arena, if nothing else uses the card */
    uint64_t context_bytes; /* of a process, besides its arena; the driver reports usable_bytes +
                               context_bytes */
    uint64_t largest_allocation_bytes;
    uint32_t alignment_bytes;
    uint32_t dtypes;           /* bit per enum dtype that ops can store */
    int32_t units;             /* multiprocessors or compute units; 0 = unknown */
    double bytes_per_s;        /* of its memory */
    double link_bytes_per_s;   /* to host memory, per direction with both busy; 0 = unknown */
    int32_t copy_engines;      /* as in struct backend_info */
    double vector_flops_per_s; /* fp32 */
    /* Dense matrix products with fp32 accumulation, by the dtype of their operands; 0 = unknown,
     * and the vector rate is used. */
    double matrix_flops_per_s[DTYPE_COUNT];
    /* Products of fp16 with half_sums; 0 = as with fp32 accumulation. */
    double half_sums_flops_per_s;
    struct device_reached reached;
    char share_source[DEVICE_PROFILE_SOURCE_MAX]; /* the source of the share in a user's file; "" =
                                                     a card of the table */
};

/* The cards of the table, in order. */
int32_t device_profile_count(void);
void device_profile_get(int32_t index, struct device_profile *out);
const char *device_profile_id(int32_t index);

/* Returns true if a driver may report `total` +- `slack` bytes for this card.  Linux's drivers keep
 * a part of the memory that differs by version; under Windows and on AMD's cards, drivers keep
 * almost nothing. */
bool device_profile_reports(int32_t index, double total, double slack);

/* Cards that have no profile, by the total that their drivers report. */
struct device_other {
    const char *name, *backend;
    double lowest_gib, highest_gib;
    bool bf16; /* computes in bfloat16 */
};
/* Returns the next such card, from *index on, that reports `total` +- `slack` bytes, and sets
 * *index past it.  Returns NULL when there is none. */
const struct device_other *device_other_next(int32_t *index, const char *backend, double total,
                                             double slack);

/* Returns the shares assumed for an unknown card of a backend. */
struct device_reached device_reached_of(const char *backend);

/* Finds a card of the table by its id or the part of it before a dash, as people usually write it
 * ("rtx3060", "3060", "RTX 3060": the first such card).  Errors: GT_USAGE. */
enum gt_status device_profile_named(const char *text, struct device_profile *out);

/* Sets alignment_bytes, context_bytes and copy_engines by the backend of `out` and its units.
 * Returns false if no card has that backend. */
bool device_profile_backend_set(struct device_profile *out);

/* Returns link_bytes_per_s of the card whose name begins `device`, a driver's text that may go on
 * after a comma.  Drops last words of the name ("NVIDIA H100 PCIe" without "PCIe") until the table
 * has a card of that name.  Returns 0 if it has none. */
double device_profile_link(const char *device);

/* Prints the table, one line per card. */
void device_profile_print_list(FILE *out);

/* Opens a backend for planning only, whose memory and dtypes are the profile's.  It has name,
 * info(), supports(), workspace_bytes() and close(), which is all that a plan needs; its other
 * functions are NULL.  Each op gets the most workspace that a real backend may request
 * (op_workspace_cap()), so that a profile's plan and the device's agree byte for byte at equal
 * alignment and segments.  Errors: GT_NO_MEMORY. */
enum gt_status profile_device_open(const struct device_profile *profile, struct backend **out);

#endif
