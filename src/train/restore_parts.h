/* Moves the parts of parameters between a checkpoint's file and the device, bit for bit or converted. */
#ifndef GPT_TRAIN_TRAIN_RESTORE_PARTS_H
#define GPT_TRAIN_TRAIN_RESTORE_PARTS_H

#include "io/checkpoint.h"
#include "train/session.h"

/* The context of restore_part_write().  The caller frees `exponents`. */
struct restore_parts {
    struct session *session;
    int8_t *exponents; /* of the 8-bit moments being converted: [2, blocks] */
    size_t capacity;
};

/* A checkpoint_read_fn; the context is the session. */
enum gt_status restore_part_read(void *context, enum checkpoint_part part, int32_t index, size_t first, size_t count,
                                 void *out);
/* A checkpoint_write_fn; the context is a struct restore_parts. */
enum gt_status restore_part_write(void *context, enum checkpoint_part part, int32_t index, size_t first, size_t count,
                                  const void *values, enum dtype dtype);

#endif
