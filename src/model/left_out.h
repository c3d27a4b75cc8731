/* What the programs of TRAIN_STEPS leave out, so that a search measures a deep model as fast as a
 * shallow one.
 *
 * The program has only a few blocks of a stretch of equal blocks, or of blocks whose kinds repeat,
 * and only the first, the second and the last chunk of the loss:
 *
 *     model     a b b b b b b b b b c c c c c     a, b and c have different parts in host memory
 *     program   a b B           b b c C   c c     B stands for six blocks, C for two
 *
 * The ops of B have left_out = 5.  Their time counts six times (plan_cost_blocks), and from the end
 * of B's forward pass to the beginning of its backward pass, so does what B keeps
 * (plan_live_measure).  Copies begin at most one block ahead, so that the blocks after B need as
 * much memory as those of the whole model, the largest of them included.
 */
#ifndef GPT_TRAIN_MODEL_LEFT_OUT_H
#define GPT_TRAIN_MODEL_LEFT_OUT_H

#include "model/model.h"

#define BLOCK_LEFT_OUT (-1) /* in model->left_out: the block itself */

/* Sets model->left_out.  Errors: GT_NO_MEMORY. */
enum gt_status left_out_find(struct model *model);

/* Returns how many of `chunks` loss chunks are left out after chunk 1, 2, .. */
int32_t left_out_chunks(const struct model *model, int32_t chunk, int32_t chunks);

#endif
