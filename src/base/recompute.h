/* Recompute: how much of the forward pass the backward pass repeats, as a level for each block.
 *
 * A level is a set of op classes.  The outputs of ops in these classes are not kept for the
 * backward pass, which runs the ops again instead.  Results are the same bits at every level (Chen
 * et al. 2016, "Training Deep Nets with Sublinear Memory Cost").  Levels range from keeping
 * everything to keeping only a block's input, on the device or in host memory; each includes the
 * ones before it.
 */
#ifndef GPT_TRAIN_BASE_RECOMPUTE_H
#define GPT_TRAIN_BASE_RECOMPUTE_H

#include "base/status.h"

/* The op classes that levels distinguish.  A new op has class PLAIN unless its declaration names
 * another. */
enum recompute_class {
    RECOMPUTE_CLASS_PLAIN,
    RECOMPUTE_CLASS_ACTIVATION, /* cheap, and its output is the largest of a block */
    RECOMPUTE_CLASS_NORM,
    RECOMPUTE_CLASS_QKV, /* the product before attention */
    RECOMPUTE_CLASS_ATTENTION
};

enum recompute_level {
    RECOMPUTE_NONE,
    RECOMPUTE_GELU,
    RECOMPUTE_LAYERNORM,
    RECOMPUTE_MLP,
    RECOMPUTE_FULL,
    RECOMPUTE_OFFLOAD, /* and the block's input waits in host memory for the backward pass */
    RECOMPUTE_LEVELS
};

/* The number of blocks at each level.  The first blocks of a model have the highest level, the next
 * ones the next lower level, and so on.  The rest have RECOMPUTE_NONE, whose own count is always 0.
 */
struct recompute_mix {
    int32_t blocks[RECOMPUTE_LEVELS];
};

/* "none", "gelu", "layernorm", "mlp", "full" or "offload". */
const char *recompute_level_name(enum recompute_level level);
/* Returns true when a block of this level recomputes ops of the class. */
bool recompute_includes(enum recompute_level level, enum recompute_class op_class);

/* Returns a mix with all blocks at one level. */
struct recompute_mix recompute_uniform(enum recompute_level level, int32_t layers);
/* Returns a mix with `blocks` blocks at one level and the rest of `layers` at another. */
struct recompute_mix recompute_two(enum recompute_level level, int32_t blocks,
                                   enum recompute_level rest, int32_t layers);
/* Returns how many of a model's blocks have the level. */
int32_t recompute_blocks(const struct recompute_mix *mix, enum recompute_level level,
                         int32_t layers);
/* Returns the level of block `layer`, counted from 0. */
enum recompute_level recompute_level_of(const struct recompute_mix *mix, int32_t layer);
bool recompute_equal(const struct recompute_mix *a, const struct recompute_mix *b);
/* Moves up to `most` blocks from one level, which is not RECOMPUTE_NONE, to another. */
void recompute_swap(struct recompute_mix *mix, enum recompute_level from, enum recompute_level to,
                    int32_t most);
/* Removes blocks, those of low levels first, until at most `layers` are left. */
void recompute_shrink(struct recompute_mix *mix, int32_t layers);

#define RECOMPUTE_TEXT_MAX 208
/* Writes "mlp" if all blocks have that level; otherwise the levels and blocks with `times` and
 * `plus` between them: "full:2,mlp:10" with ":" and ",", "full x2 + mlp x10" with " x" and " + ".
 * `text` has RECOMPUTE_TEXT_MAX bytes; returns it. */
char *recompute_text(char *text, const struct recompute_mix *mix, int32_t layers, const char *times,
                     const char *plus);
/* Reads either form, and "full:2,mlp:3,none", where the last level has the rest of the blocks.
 * `layers` is the model's number of blocks, or 0 if it is not known yet; then only the form is
 * checked.  Returns false with the reason in `why`, a static text that continues "recompute='...'".
 */
bool recompute_read(const char *text, int64_t layers, struct recompute_mix *out, const char **why);

#endif
