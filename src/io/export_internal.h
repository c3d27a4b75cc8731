/* The writers behind export_run(), one per format.  Each writes options->output, replacing it if it exists.  Errors are
 * those of export_run(). */
#ifndef GPT_TRAIN_IO_EXPORT_INTERNAL_H
#define GPT_TRAIN_IO_EXPORT_INTERNAL_H

#include "base/status.h"
#include "io/export.h"
#include "io/export_weights.h"

/* Writes a folder that transformers opens: config.json, generation_config.json, model.safetensors, and for a tokenizer
 * tokenizer.json, tokenizer_config.json, gpt_tokenizer.json (and vocab.json, merges.txt for a byte-level BPE).  Source:
 * transformers modeling_gpt2.py; tokenizers' JSON.  A new folder is written under a temporary name and renamed; the
 * files of an existing one are replaced one by one, config.json last. */
enum gt_status export_hf_write(const struct export_options *options, const struct export_weights *weights);

/* Writes GGUF version 3, architecture gpt2.  Weights of linear layers and the embedding have options->dtype; vectors
 * and the position table are float32, as in the output of llama.cpp's converter.  Source: ggml's docs/gguf.md; names
 * from llama.cpp's gguf-py/gguf/constants.py. */
enum gt_status export_gguf_write(const struct export_options *options, const struct export_weights *weights);

/* Writes llm.c's checkpoint: 256 int32 of header (magic 20240326; version 3 float32, 5 bfloat16), then each kind of
 * tensor for all layers, rows of wte padded with zeros to a multiple of 128.  Source: llm.c train_gpt2.py
 * write_model(). */
enum gt_status export_llmc_write(const struct export_options *options, const struct export_weights *weights);

#endif
