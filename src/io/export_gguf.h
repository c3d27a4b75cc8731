/* Writes a model, or its adapters alone, as a GGUF file: keys, list of tensors, data. */
#ifndef GPT_TRAIN_IO_EXPORT_GGUF_H
#define GPT_TRAIN_IO_EXPORT_GGUF_H

#include "io/export_options.h"
#include "io/export_weights.h"

/* Writes GGUF version 3.  Weights of linear layers and the embedding have options->dtype, or the
 * types of options->mixture; vectors and the position table are float32, as in the output of
 * llama.cpp's converter.  Source: ggml's docs/gguf.md; names from llama.cpp's
 * gguf-py/gguf/constants.py.  For EXPORT_GGUF_LORA it writes the adapters alone, as llama.cpp's
 * convert_lora_to_gguf.py does. */
enum gt_status export_gguf_write(const struct export_options *options,
                                 const struct export_weights *weights);
/* Returns NULL if llama.cpp has an architecture for the model; else writes to `text` what the
 * nearest one lacks, and returns it. */
const char *export_gguf_lacks(const struct model_config *config, char text[static HF_LACKS_MAX]);

#endif
