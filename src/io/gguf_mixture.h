/* Which block type each tensor of a quantised GGUF file has: llama.cpp's mixtures, such as Q4_K_M.
 *
 * Most matrices have the mixture's own type; the output layer and the values of some blocks, which
 * harm a model most when they are coarse, have a finer one.  A row that is not a whole number of
 * blocks gets a type with smaller blocks.  Source: llama.cpp 9dac480, src/llama-quant.cpp, without
 * an importance matrix.
 */
#ifndef GPT_TRAIN_IO_GGUF_MIXTURE_H
#define GPT_TRAIN_IO_GGUF_MIXTURE_H

#include "io/ggml_block.h"

enum gguf_mixture {
    GGUF_NO_MIXTURE,
    GGUF_MIXTURE_Q8_0,
    GGUF_MIXTURE_Q6_K,
    GGUF_MIXTURE_Q5_K_M,
    GGUF_MIXTURE_Q5_0,
    GGUF_MIXTURE_Q4_K_M,
    GGUF_MIXTURE_Q4_0,
    GGUF_MIXTURES
};

/* The mixture's word, "q4_k_m", and its number as general.file_type. */
const char *gguf_mixture_word(enum gguf_mixture mixture);
int32_t gguf_mixture_file_type(enum gguf_mixture mixture);

/* A matrix of a GGUF file. */
struct gguf_matrix {
    const char *name;      /* "blk.3.attn_v.weight" */
    int32_t block, blocks; /* its block's number, of so many */
    size_t columns;        /* of a row */
    bool output;           /* the output layer, also if it is the token embedding */
};

/* Returns the type of a matrix.  Sets *out_wanted to the type that it would have with rows of whole
 * blocks. */
enum ggml_type gguf_mixture_type(enum gguf_mixture mixture, const struct gguf_matrix *matrix,
                                 enum ggml_type *out_wanted);

#endif
