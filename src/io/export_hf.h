/* Writes a Hugging Face folder, with a model card: README.md with a head of metadata, and the
 * picture memory.svg. */
#ifndef GPT_TRAIN_IO_EXPORT_HF_H
#define GPT_TRAIN_IO_EXPORT_HF_H

#include "io/export_options.h"
#include "io/export_weights.h"

/* Writes a folder that transformers opens: config.json, generation_config.json, model.safetensors,
 * and for a tokenizer tokenizer.json, tokenizer_config.json, gpt_tokenizer.json (and vocab.json,
 * merges.txt for a byte-level BPE); README.md, the model card, and memory.svg if the run's metrics
 * contain the plan.  Source: transformers modeling_gpt2.py; tokenizers' JSON.  A new folder is
 * written under a temporary name and renamed; the files of an existing one are replaced one by one,
 * config.json last. */
enum gt_status export_hf_write(const struct export_options *options,
                               const struct export_weights *weights);

#endif
