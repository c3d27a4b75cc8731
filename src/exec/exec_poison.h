/* The debug mode of exec: NaN patterns in dead bytes, guard bands that are looked at.
 *
 * Fresh bytes, dead bytes and guards hold three patterns, each a quiet NaN as fp32, as bf16 and as fp16, and a number
 * far out of range as an index.  All of it goes through the backend's upload and download in chunks, so it works on any
 * device and allocates nothing after creation.
 */
#ifndef GPT_TRAIN_EXEC_EXEC_POISON_H
#define GPT_TRAIN_EXEC_EXEC_POISON_H

#include <stdint.h>

#include "backend/backend.h"
#include "base/hostmem.h"
#include "base/status.h"
#include "plan/plan.h"

/* 32-bit words; both halves are NaNs of the 16-bit types too. */
#define POISON_FRESH 0x7fc17fc1u
#define POISON_DEAD 0x7fc27fc2u
#define POISON_GUARD 0x7fc37fc3u

struct exec_poison;

/* `device` and `plan` are borrowed and outlive the result.  Errors: GT_NO_MEMORY. */
enum gt_status exec_poison_create(struct hostmem *mem, struct backend *device, const struct plan *plan,
                                  struct exec_poison **out);
void exec_poison_destroy(struct exec_poison *poison);

/* Fills the whole arena with the fresh pattern, and the guards of the run's tensors.  Once, when there is an arena. */
enum gt_status exec_poison_arena(struct exec_poison *poison);
/* The host or a program is about to use a phase; on a change its tensors start as fresh bytes. */
enum gt_status exec_poison_phase(struct exec_poison *poison, enum program_phase phase);
enum gt_status exec_poison_program_begin(struct exec_poison *poison, int32_t program);
/* Around one op of the program: storages born at it are fresh, storages that die at it have whole guards and are dead. */
enum gt_status exec_poison_op_begin(struct exec_poison *poison, int32_t program, int32_t op);
enum gt_status exec_poison_op_end(struct exec_poison *poison, int32_t program, int32_t op);
/* Checks the guards of everything that outlives the program.  Errors of all checks: GT_FAILURE, with op and tensor. */
enum gt_status exec_poison_program_end(struct exec_poison *poison, int32_t program);

#endif
