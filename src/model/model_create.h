/* The model: the parameters and programs of one run, in one graph. */
#ifndef GPT_TRAIN_MODEL_MODEL_CREATE_H
#define GPT_TRAIN_MODEL_MODEL_CREATE_H

#include "model/model.h"

/* Logs every impossible value, one line each.  Errors: GT_USAGE. */
enum gt_status model_config_check(const struct model_config *config);

/* Returns how often a rank runs a program of training in an update. */
int32_t model_runs(const struct model_options *options, enum program_kind program);

/* Returns true if gradients live in host memory.  The first micro-step, which fetches none of them,
 * may then have other copies under way than the next ones. */
bool model_moves_gradients(const struct model *model);

/* Returns the rows of a layer's key-value cache for prefills of `prefill_time` tokens: block_size,
 * or fewer with a window. */
int64_t model_cache_rows(const struct model_config *config, int32_t prefill_time, int32_t layer);

/* Builds parameters and programs.  Errors: GT_NO_MEMORY, GT_USAGE. */
enum gt_status model_create(const void *owner, const struct model_options *options,
                            struct model **out);

/* Returns the bytes of weights, masters, gradients and moments per parameter, from the model's
 * tensors. */
double model_bytes_per_parameter(const struct model *model);
/* Returns the FLOPs of one token, forward and backward: 6 N + 12 L H D T, where N excludes tables
 * that are only looked up (PaLM; nanoGPT estimate_mfu).  A parameter that is not trained counts 4
 * instead of 6. */
double model_flops_per_token(const struct model_config *config);

/* Returns the number of updates after which both bias corrections are 1 in fp32, at least 1 and at
 * most `updates`. */
int32_t model_correction_rows(float beta1, float beta2, int64_t updates);

#endif
