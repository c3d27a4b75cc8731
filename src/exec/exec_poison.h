/* The debug mode of exec: NaN patterns in dead bytes, and checked guard bands.
 *
 * Fresh bytes, dead bytes and guards have three patterns.  Each is a quiet NaN in fp32, bf16 and
 * fp16, and a number far out of range as an index.  Fills and checks use the backend's upload and
 * download in chunks, so this works on any device and allocates nothing after creation.
 */
#ifndef GPT_TRAIN_EXEC_EXEC_POISON_H
#define GPT_TRAIN_EXEC_EXEC_POISON_H

#include "backend/backend.h"
#include "plan/plan.h"

/* 32-bit words; each half is also a NaN of the 16-bit types. */
#define POISON_FRESH 0x7fc17fc1u
#define POISON_DEAD 0x7fc27fc2u
#define POISON_GUARD 0x7fc37fc3u

struct exec_poison;

/* `device` and `plan` are borrowed and must outlive the result.  Errors: GT_NO_MEMORY. */
enum gt_status exec_poison_create(const void *owner, struct backend *device,
                                  const struct plan *plan, struct exec_poison **out);

/* Fills the whole arena with the fresh pattern and writes the guards of LIFETIME_RUN tensors.  The
 * arena must exist. */
enum gt_status exec_poison_arena(struct exec_poison *poison);
/* Call it before the host or a program uses `phase`.  If the phase changes, fills its tensors with
 * the fresh pattern. */
enum gt_status exec_poison_phase(struct exec_poison *poison, enum program_phase phase);
enum gt_status exec_poison_program_begin(struct exec_poison *poison, int32_t program);
/* The caller calls this before each op, with `begins`, and after it, without.  The first call fills
 * the op's workspace and the storages that become live at the op with the fresh pattern.  The
 * second call checks the guards of the workspace and of the storages that die at the op, and fills
 * both with the dead pattern. */
enum gt_status exec_poison_op(struct exec_poison *poison, int32_t program, int32_t op, bool begins);
/* Checks the guards of all storages that outlive the program.  Errors of all checks: GT_FAILURE,
 * with op and tensor. */
enum gt_status exec_poison_program_end(struct exec_poison *poison, int32_t program);

#endif
