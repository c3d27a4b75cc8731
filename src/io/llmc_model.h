/* llm.c's model files: 256 int32 of header, then the parameters, each kind for all layers together.
 *
 *   [0] 20240326   [1] 3: float32, 5: bfloat16   [2] T   [3] V   [4] L   [5] H   [6] C   [7] Vp
 *   wte[Vp,C] wpe[T,C] ln1w ln1b qkvw qkvb attprojw attprojb ln2w ln2b fcw fcb fcprojw fcprojb
 *   (each [L,...]) lnfw lnfb
 *
 * Weights of linear layers are [out, in].  Rows of wte from V on are padding.  Source: llm.c
 * train_gpt2.c, gpt2_build_from_checkpoint() and fill_in_parameter_sizes(); train_gpt2.py,
 * write_model().
 */
#ifndef GPT_TRAIN_IO_LLMC_MODEL_H
#define GPT_TRAIN_IO_LLMC_MODEL_H

#include "io/safetensors.h"
#include "io/safetensors_table.h"
#include "model/model.h"

#define LLMC_MODEL_MAGIC 20240326
#define LLMC_MODEL_HEADER_BYTES 1024
enum { LLMC_MODEL_F32 = 3, LLMC_MODEL_BF16 = 5 }; /* versions */

/* Returns the index in GPT-2's own order (parameters.h) of the parameter at a position in a file.
 */
size_t llmc_model_index(const struct model_config *config, size_t position);

/* Opens a model file as a table with Hugging Face's names and shapes, without the padding.  The
 * model has biases and the tanh GELU.  Errors: GT_IO, GT_NO_MEMORY; GT_DATA (a field out of range,
 * a size that overflows or differs from the file's); GT_UNSUPPORTED (another version).  One line
 * names file and field. */
enum gt_status llmc_model_open(const void *owner, const char *path, struct model_config *out_config,
                               struct safetensors **out);

#endif
