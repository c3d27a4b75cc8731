/* The options of an export. */
#ifndef GPT_TRAIN_IO_EXPORT_OPTIONS_H
#define GPT_TRAIN_IO_EXPORT_OPTIONS_H

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
    const char *output;        /* a file; for EXPORT_HF, EXPORT_PEFT and EXPORT_OLLAMA a folder */
    const char *name;          /* the model's, for formats that store one */
    const char *run;           /* the folder that may have metrics.jsonl */
    enum dtype dtype;          /* of the weights: float32, bfloat16, float16 */
    enum gguf_mixture mixture; /* of blocks in place of the dtype, or GGUF_NO_MIXTURE */
    bool force;                /* replace an existing output */
};

#endif
