/* Exports a model for other programs: a Hugging Face folder, GGUF for llama.cpp and Ollama, or
 * llm.c's file.  Adapters are added to the weights of their base, or exported alone, for PEFT and
 * llama.cpp.
 *
 * Weights are streamed from the checkpoint to the output, one tensor at a time, through two buffers
 * of 4 MiB; no model, plan or device is created.  An output gets its name only when it is complete.
 */
#ifndef GPT_TRAIN_IO_EXPORT_H
#define GPT_TRAIN_IO_EXPORT_H

#include "io/export_options.h"
#include "io/export_weights.h"

/* The words of these enumerators on the command line, "hf", "gguf", "llmc", "peft", "ollama" and
 * "gguf-lora"; the list ends with NULL. */
extern const char *const export_format_words[];

/* Returns the default dtype of the weights: float32, but in files for llama.cpp bfloat16, or
 * float16 for a model that was trained in float16. */
enum dtype export_dtype_default(enum export_format format, const struct checkpoint *checkpoint);

/* Verifies the checkpoint's tensors, then writes them.  Logs a warning or note about anything that
 * the format cannot express: an activation that its readers do not compute, a tokenizer.  Errors:
 * GT_USAGE (an existing output, a dtype that the format lacks), GT_DATA and GT_IO of the
 * checkpoint, GT_UNSUPPORTED (a value that the dtype cannot represent), GT_IO, GT_NO_MEMORY. */
enum gt_status export_run(const struct export_options *options);

/* Writes llm.c's checkpoint: 256 int32 of header (magic 20240326; version 3 float32, 5 bfloat16),
 * then each kind of tensor for all layers, rows of wte padded with zeros to a multiple of 128.
 * Source: llm.c train_gpt2.py write_model(). */
enum gt_status export_llmc_write(const struct export_options *options,
                                 const struct export_weights *weights);

#endif
