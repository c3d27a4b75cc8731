/* Writes a folder from which Ollama makes a model: model.gguf, and a Modelfile with the chat
 * template, the words that end an answer, and the length of the context. */
#ifndef GPT_TRAIN_IO_EXPORT_OLLAMA_H
#define GPT_TRAIN_IO_EXPORT_OLLAMA_H

#include "io/export_options.h"
#include "io/export_weights.h"

#define EXPORT_MODELFILE "Modelfile"
#define EXPORT_OLLAMA_MODEL "model.gguf"
#define EXPORT_OLLAMA_NAME_MAX 80
/* Writes a folder with model.gguf, as export_gguf_write() does, and a Modelfile for Ollama. Errors:
 * also GT_USAGE for a model without a tokenizer.  Source: Ollama's docs/modelfile.md. */
enum gt_status export_ollama_write(const struct export_options *options,
                                   const struct export_weights *weights);
/* Returns the model's name in Ollama, made from the folder's; `out` is its room. */
const char *export_ollama_name(char out[static EXPORT_OLLAMA_NAME_MAX], const char *output);

#endif
