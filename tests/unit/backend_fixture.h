/* A backend for tests: malloc'ed segments, and fill, copy and residual in fp32 by plain loops.
 *
 * The sizes of its workspaces follow an odd pattern on purpose, and each op overwrites its whole
 * workspace, and afterwards what it is the last to use.  Defects can be planted: an op that writes
 * beyond its output or its workspace, and one that reads the former place of a dead tensor.
 */
#ifndef GPT_TRAIN_UNIT_BACKEND_FIXTURE_H
#define GPT_TRAIN_UNIT_BACKEND_FIXTURE_H

#include "backend/backend.h"

enum fixture_defect {
    DEFECT_NONE,
    DEFECT_OVERFLOW,           /* residual writes one element beyond r */
    DEFECT_WORKSPACE_OVERFLOW, /* residual writes one byte beyond its workspace */
    DEFECT_STALE_READ, /* residual reads x from the place that the program's first op wrote */
};

struct fixture_backend {
    struct backend base;
    unsigned char *segment[BACKEND_SEGMENTS_MAX];
    size_t segment_bytes[BACKEND_SEGMENTS_MAX];
    int32_t segment_count;
    uint32_t alignment_bytes;
    bool workspaces; /* ops ask for workspaces */
    bool spoils;     /* an op spoils what nothing reads after it */
    enum fixture_defect defect;
    bool first_seen;
    struct address first_written; /* that of the program's first op */
    uint64_t uploads, downloads, runs, ops, syncs, arenas;
    uint64_t lasts; /* operands that were spoiled */
};

extern const struct backend_ops fixture_backend_ops;

void fixture_backend_init(struct fixture_backend *backend);
void fixture_backend_release(struct fixture_backend *backend);

#endif
