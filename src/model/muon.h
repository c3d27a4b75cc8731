/* Muon: momentum, orthogonalised by a Newton-Schulz iteration, for the matrices of the blocks.
 *
 * Source: Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024), KellerJordan/Muon muon.py:
 * coefficients, Nesterov momentum and the scale sqrt(max(1, out / in)).  Matrices are [out, in] there and [in, out]
 * (Conv1D) here, so the scale is sqrt(max(1, columns / rows)).
 */
#ifndef GPT_TRAIN_MODEL_MUON_H
#define GPT_TRAIN_MODEL_MUON_H

#include "base/status.h"
#include "model/model.h"

/* Appends the update of one parameter.  Errors: GT_NO_MEMORY. */
enum gt_status muon_add(const struct graph_pen *pen, const struct model *model, const struct parameter *parameter);

#endif
