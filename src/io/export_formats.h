/* The writers behind export_run(), one per format.  Each writes options->output, which may be replaced; errors are those
 * of export_run(). */
#ifndef GPT_TRAIN_IO_EXPORT_FORMATS_H
#define GPT_TRAIN_IO_EXPORT_FORMATS_H

#include "base/status.h"
#include "io/export.h"
#include "io/export_weights.h"

/* A folder that transformers opens: config.json, generation_config.json, model.safetensors, and of a tokenizer
 * tokenizer.json, tokenizer_config.json, gpt_tokenizer.json (and vocab.json, merges.txt where it is a byte-level BPE).
 * Source: transformers modeling_gpt2.py; tokenizers' JSON.  The folder is made aside and renamed; into one that exists,
 * its files are renamed one by one, the weights last. */
enum gt_status export_hf_write(const struct export_options *options, const struct export_weights *weights);

/* GGUF version 3, architecture gpt2.  Weights of linear layers and the embedding have options->dtype; vectors and the
 * position table are float32, as llama.cpp's converter leaves them.  Source: ggml's docs/gguf.md; names from llama.cpp's
 * gguf-py/gguf/constants.py. */
enum gt_status export_gguf_write(const struct export_options *options, const struct export_weights *weights);

/* llm.c's checkpoint: 256 int32 of header (magic 20240326; version 3 float32, 5 bfloat16), then each kind of tensor for
 * all layers, rows of wte padded with zeros to a multiple of 128.  Source: llm.c train_gpt2.py write_model(). */
enum gt_status export_llmc_write(const struct export_options *options, const struct export_weights *weights);

#endif
