/* Exports a model for other programs: a Hugging Face folder, GGUF for llama.cpp and Ollama, or llm.c's file.  Adapters
 * are added to the weights of their base, or exported alone, for PEFT and llama.cpp.
 *
 * Weights are streamed from the checkpoint to the output, one tensor at a time, through two buffers of 4 MiB; no model,
 * plan or device is created.  An output gets its name only when it is complete.
 */
#ifndef GPT_TRAIN_IO_EXPORT_H
#define GPT_TRAIN_IO_EXPORT_H

#include "io/checkpoint.h"
#include "io/gguf_mixture.h"

enum export_format {
    EXPORT_HF,
    EXPORT_GGUF,
    EXPORT_LLMC,
    EXPORT_PEFT,
    EXPORT_OLLAMA,
    EXPORT_GGUF_LORA,
    EXPORT_FORMATS
};

struct export_options {
    struct hostmem *mem;
    enum export_format format;
    const struct checkpoint *checkpoint; /* open */
    const struct tokenizer *tokenizer;   /* NULL: none */
    const char *output;                  /* a file; for EXPORT_HF, EXPORT_PEFT and EXPORT_OLLAMA a folder */
    const char *name;                    /* the model's, for formats that store one */
    const char *run;                     /* the folder that may have metrics.jsonl */
    enum dtype dtype;                    /* of the weights: float32, bfloat16, float16 */
    enum gguf_mixture mixture;           /* of blocks in place of the dtype, or GGUF_NO_MIXTURE */
    bool force;                          /* replace an existing output */
};

/* The words of these enumerators on the command line, "hf", "gguf", "llmc", "peft", "ollama" and "gguf-lora"; the list
 * ends with NULL. */
extern const char *const export_format_words[];

/* Returns the dtype of the weights unless the user chooses one: float32, but for files of llama.cpp bfloat16, or
 * float16 for a model that was trained in it. */
enum dtype export_dtype_default(enum export_format format, const struct checkpoint *checkpoint);

/* Verifies the checkpoint's tensors, then writes them.  Logs a warning or note about anything that the format cannot
 * express: an activation that its readers do not compute, a tokenizer.  Errors: GT_USAGE (an existing output, a dtype
 * that the format lacks), GT_DATA and GT_IO of the checkpoint, GT_UNSUPPORTED (a value that the dtype cannot
 * represent), GT_IO, GT_NO_MEMORY. */
enum gt_status export_run(const struct export_options *options);

/* ---- for the writers: a checkpoint's weights as a source of any part of a tensor, in any dtype, transposed if needed
 * ---- */

#define EXPORT_VALUES ((size_t)1 << 20) /* elements in each of the two buffers */

struct export_adapter {
    char tensor[2 * PARAMETER_NAME_MAX]; /* that was looked for last, as PEFT names it */
    bool found;
    float *factors; /* A [rank, in], then B [out, rank]; or NULL */
};

struct export_weights {
    const struct checkpoint *checkpoint; /* outlives this struct */
    size_t capacity;                /* elements in each buffer: whole rows of n_embd, where one fits; tests lower it */
    int threads;                    /* that encode blocks */
    float *values;                  /* [capacity] as read */
    float *turned;                  /* [capacity] as written */
    struct export_adapter *adapter; /* of the last tensor */
};

/* Reads the whole checkpoint once and verifies checksums, finiteness and biases, as checkpoint_load() does.  The owner
 * of all of `out` is out->values.  Errors: those of checkpoint_load(), GT_NO_MEMORY. */
enum gt_status export_weights_open(const void *owner, const struct checkpoint *checkpoint, struct export_weights *out);

/* out[count] = elements first ... of `tensor`, transposed if `turned`, rounded to `dtype`.  `count` is at most the
 * capacity, and `out` is not weights->values.  Errors: GT_IO, GT_DATA; GT_UNSUPPORTED for a value beyond the dtype's
 * largest, naming the tensor. */
enum gt_status export_weights_read(const struct export_weights *weights, const struct parameter_shape *tensor,
                                   bool turned, size_t first, size_t count, enum dtype dtype, void *out);

/* Appends the tensor to `file`; a linear layer's weight is transposed to [out, in].  A head_dim D > 0 writes rows i and
 * i + D/2 of each head as rows 2 i and 2 i + 1.  Rows are whole blocks of `type`.  Errors: as above, and GT_IO. */
enum gt_status export_weights_write(const struct export_weights *weights, const struct parameter_shape *tensor,
                                    int32_t head_dim, enum ggml_type type, struct file_replacement *file);

/* Returns the token that ends a text for readers of the export: of the model's chat template, else the one that an
 * imported config.json names, else that which ends documents; -1: unknown. */
int32_t export_end_token(const struct export_options *options);

/* Appends `count` zero bytes.  Errors: GT_IO. */
enum gt_status export_zeros_write(struct file_replacement *file, size_t count);

/* The writers behind export_run(), one per format, write options->output, replacing it if it exists.  Errors: those of
 * export_run(). */

/* Writes a folder that transformers opens: config.json, generation_config.json, model.safetensors, and for a tokenizer
 * tokenizer.json, tokenizer_config.json, gpt_tokenizer.json (and vocab.json, merges.txt for a byte-level BPE);
 * README.md, the model card, and memory.svg if the run's metrics tell the plan.  Source: transformers modeling_gpt2.py;
 * tokenizers' JSON.  A new folder is written under a temporary name and renamed; the files of an existing one are
 * replaced one by one, config.json last. */
enum gt_status export_hf_write(const struct export_options *options, const struct export_weights *weights);

/* Writes GGUF version 3.  Weights of linear layers and the embedding have options->dtype, or the types of
 * options->mixture; vectors and the position table are float32, as in the output of llama.cpp's converter.  Source:
 * ggml's docs/gguf.md; names from llama.cpp's gguf-py/gguf/constants.py.  For EXPORT_GGUF_LORA it writes the adapters
 * alone, as llama.cpp's convert_lora_to_gguf.py does. */
enum gt_status export_gguf_write(const struct export_options *options, const struct export_weights *weights);
/* Returns NULL if an architecture of llama.cpp holds the model, else what none has, in `text`. */
const char *export_gguf_lacks(const struct model_config *config, char text[static HF_LACKS_MAX]);

#define EXPORT_MODELFILE "Modelfile"
#define EXPORT_OLLAMA_MODEL "model.gguf"
#define EXPORT_OLLAMA_NAME_MAX 80
/* Writes a folder with model.gguf, as export_gguf_write() does, and a Modelfile for Ollama.  Errors: also GT_USAGE for
 * a model without a tokenizer.  Source: Ollama's docs/modelfile.md. */
enum gt_status export_ollama_write(const struct export_options *options, const struct export_weights *weights);
/* Returns the model's name in Ollama, made from the folder's; `out` is its room. */
const char *export_ollama_name(char out[static EXPORT_OLLAMA_NAME_MAX], const char *output);

/* Writes llm.c's checkpoint: 256 int32 of header (magic 20240326; version 3 float32, 5 bfloat16), then each kind of
 * tensor for all layers, rows of wte padded with zeros to a multiple of 128.  Source: llm.c train_gpt2.py
 * write_model(). */
enum gt_status export_llmc_write(const struct export_options *options, const struct export_weights *weights);

#endif
