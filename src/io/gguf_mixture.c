/* llama.cpp's mixtures as a table: one type for most matrices, one for the output layer, and one
 * for each of two groups.
 *
 * The first group consists of the values (attn_v) and the second matrix of the MLP (ffn_down) in
 * half of the blocks: the first and the last eighth, and every third one between.  The second is
 * the matrix of queries, keys and values (attn_qkv) of GPT-2 and of gated delta nets, in every
 * block.
 */
#include "io/gguf_mixture.h"

#include <string.h>

static const struct {
    const char *word;
    int32_t file_type;
    enum ggml_type most, output, values, qkv;
} mixtures[GGUF_MIXTURES] = {
    [GGUF_MIXTURE_Q8_0] = {"q8_0", 7, GGML_Q8_0, GGML_Q8_0, GGML_Q8_0, GGML_Q8_0},
    [GGUF_MIXTURE_Q6_K] = {"q6_k", 18, GGML_Q6_K, GGML_Q6_K, GGML_Q6_K, GGML_Q6_K},
    [GGUF_MIXTURE_Q5_K_M] = {"q5_k_m", 17, GGML_Q5_K, GGML_Q6_K, GGML_Q6_K, GGML_Q6_K},
    [GGUF_MIXTURE_Q5_0] = {"q5_0", 8, GGML_Q5_0, GGML_Q6_K, GGML_Q5_0, GGML_Q5_0},
    [GGUF_MIXTURE_Q4_K_M] = {"q4_k_m", 15, GGML_Q4_K, GGML_Q6_K, GGML_Q6_K, GGML_Q5_K},
    [GGUF_MIXTURE_Q4_0] = {"q4_0", 2, GGML_Q4_0, GGML_Q6_K, GGML_Q4_0, GGML_Q4_0},
};

const char *gguf_mixture_word(enum gguf_mixture mixture)
{
    return mixtures[mixture].word;
}

int32_t gguf_mixture_file_type(enum gguf_mixture mixture)
{
    return mixtures[mixture].file_type;
}

static bool has_more_bits(int32_t block, int32_t blocks)
{
    const int32_t eighth = blocks / 8;
    return block < eighth || block >= 7 * blocks / 8 || (block - eighth) % 3 == 2;
}

/* Returns the type for rows that are not a whole number of blocks of `type`. */
static enum ggml_type coarser(enum ggml_type type)
{
    switch (type) {
    case GGML_Q4_K:
        return GGML_Q5_0;
    case GGML_Q5_K:
        return GGML_Q5_1;
    case GGML_Q6_K:
        return GGML_Q8_0;
    default:
        return GGML_F16;
    }
}

enum ggml_type gguf_mixture_type(enum gguf_mixture mixture, const struct gguf_matrix *matrix,
                                 enum ggml_type *out_wanted)
{
    const bool halved =
        strstr(matrix->name, ".attn_v.") != NULL || strstr(matrix->name, ".ffn_down.") != NULL;
    const bool qkv = strstr(matrix->name, ".attn_qkv.") != NULL;
    enum ggml_type type = mixtures[mixture].most;
    if (matrix->output)
        type = mixtures[mixture].output;
    else if (qkv)
        type = mixtures[mixture].qkv;
    else if (halved && has_more_bits(matrix->block, matrix->blocks))
        type = mixtures[mixture].values;
    *out_wanted = type;
    while (matrix->columns % ggml_blocks[type].values != 0)
        type = coarser(type);
    return type;
}
