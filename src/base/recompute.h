/* What the backward pass computes again: a level for each block.
 *
 * A level is a set of classes of ops.  What an op of these classes writes is not kept for the backward pass, which runs
 * the op again instead.  Results are the same bits at every level (Chen et al. 2016, "Training Deep Nets with Sublinear
 * Memory Cost").  Levels go from keeping everything to keeping only a block's input; each includes the ones before it.
 */
#ifndef GPT_TRAIN_BASE_RECOMPUTE_H
#define GPT_TRAIN_BASE_RECOMPUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The classes of ops that levels tell apart.  A new op is of the class PLAIN unless its declaration says otherwise. */
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
    RECOMPUTE_LEVELS
};

/* How many blocks have each level.  The first blocks of a model have the highest level, and so on down; all that are not
 * counted have RECOMPUTE_NONE, whose own count is always 0. */
struct recompute_mix {
    int32_t blocks[RECOMPUTE_LEVELS];
};

/* "none", "gelu", "layernorm", "mlp" or "full". */
const char *recompute_level_name(enum recompute_level level);
/* Whether a block of this level computes ops of the class again. */
bool recompute_includes(enum recompute_level level, enum recompute_class op_class);

/* All blocks at one level. */
struct recompute_mix recompute_uniform(enum recompute_level level, int32_t layers);
/* `blocks` blocks at one level, the rest of `layers` at another. */
struct recompute_mix recompute_two(enum recompute_level level, int32_t blocks, enum recompute_level rest,
                                   int32_t layers);
/* How many of a model's blocks have the level. */
int32_t recompute_blocks(const struct recompute_mix *mix, enum recompute_level level, int32_t layers);
/* The level of block `layer`, counted from 0. */
enum recompute_level recompute_level_of(const struct recompute_mix *mix, int32_t layer);
bool recompute_equal(const struct recompute_mix *a, const struct recompute_mix *b);
/* Takes blocks away, those of low levels first, until no more than `layers` are left. */
void recompute_shrink(struct recompute_mix *mix, int32_t layers);

#define RECOMPUTE_TEXT_MAX 96
/* "mlp" where all blocks have that level; else the levels and blocks with `times` and `plus` between them: "full:2,mlp:10"
 * with ":" and ",", "full x2 + mlp x10" with " x" and " + ".  `text` has RECOMPUTE_TEXT_MAX bytes; returns it. */
char *recompute_text(char *text, const struct recompute_mix *mix, int32_t layers, const char *times, const char *plus);
/* Reads either form, and "full:2,mlp:3,none", where the last level has the rest of the blocks.  `layers` is the model's
 * number of blocks, 0 where it is not known yet; then only the form is checked.  Returns false with the reason in `why`,
 * a static text that continues "recompute='...'". */
bool recompute_read(const char *text, int64_t layers, struct recompute_mix *out, const char **why);

#endif
