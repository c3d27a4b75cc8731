/* Exports a model for other programs: a Hugging Face folder, GGUF for llama.cpp, or llm.c's file.
 *
 * Weights are streamed from the checkpoint to the output, one tensor at a time, through two buffers of 4 MiB; no model,
 * plan or device is created.  An output gets its name only when it is complete.
 */
#ifndef GPT_TRAIN_IO_EXPORT_H
#define GPT_TRAIN_IO_EXPORT_H

#include <stdbool.h>

#include "base/dtype.h"
#include "base/hostmem.h"
#include "base/status.h"
#include "data/tokenizer.h"
#include "io/checkpoint.h"

enum export_format { EXPORT_HF, EXPORT_GGUF, EXPORT_LLMC, EXPORT_FORMATS };

struct export_options {
    struct hostmem *mem;
    enum export_format format;
    const struct checkpoint *checkpoint; /* open */
    const struct tokenizer *tokenizer;   /* NULL: none */
    const char *output;                  /* a file; for EXPORT_HF a folder */
    const char *name;                    /* the model's, for formats that store one */
    enum dtype dtype;                    /* of the weights: float32, bfloat16, float16 */
    bool force;                          /* replace an existing output */
};

/* "hf", "gguf", "llmc". */
const char *export_format_name(enum export_format format);

/* Verifies the checkpoint's tensors, then writes them.  Logs a warning or note about anything that the format cannot
 * express: an activation that its readers do not compute, a tokenizer.  Errors: GT_USAGE (an existing output, a dtype
 * that the format lacks), GT_DATA and GT_IO of the checkpoint, GT_UNSUPPORTED (a value that the dtype cannot
 * represent), GT_IO, GT_NO_MEMORY. */
enum gt_status export_run(const struct export_options *options);

#endif
