/* Finds stretches of blocks that are alike, or whose kinds repeat.
 *
 * Blocks are alike if the builders, and the code that moves gradients, make the same ops of them:
 * they have the same level of recompute and the same kind of attention, and the same parameters are
 * in host memory and belong to this rank.
 */
#include "model/left_out.h"

#include "base/size.h"

/* The longest period of kinds of block that is found. */
#define PERIOD_MOST 8
/* The blocks that are built of a stretch: its first block, a period whose blocks stand for others,
 * another period and the last block.  Some copies in the first and the last block are those of
 * other stretches. */
#define BUILT_LEAST(period) (2 * (period) + 2)

static enum memory_space home_of(const struct model *model, int32_t tensor)
{
    return tensor == TENSOR_NONE ? SPACE_DEVICE : model->graph->tensors[tensor].home;
}

/* Returns true if the ops of two parameters of the same layer need as much memory and time. */
static bool parameters_alike(const struct model *model, const struct parameter *a,
                             const struct parameter *b)
{
    const int32_t rank = model->options.rank;
    return home_of(model, a->tensor) == home_of(model, b->tensor) &&
           a->gradient_home == b->gradient_home &&
           home_of(model, a->part_gradient) == home_of(model, b->part_gradient) &&
           (a->owner == rank) == (b->owner == rank) && a->first == b->first &&
           a->count == b->count && a->most == b->most;
}

/* Returns true if two blocks, a < b, have the same ops, of the same shapes, with operands in the
 * same memory.  `first` has the index of each block's first parameter.  The first block has no
 * gradient of its input if the embedding is frozen. */
static bool blocks_alike(const struct model *model, const int32_t *first, int32_t a, int32_t b)
{
    const struct model_config *config = &model->options.config;
    const struct recompute_mix *mix = &model->options.choice.recompute;
    const struct parameter *x = &model->parameters.at[first[a]],
                           *y = &model->parameters.at[first[b]];
    bool alike = (a > 0 || config->lora.rank == 0) &&
                 recompute_level_of(mix, a) == recompute_level_of(mix, b) &&
                 shape_window(&config->shape, a) == shape_window(&config->shape, b) &&
                 shape_is_linear(&config->shape, a) == shape_is_linear(&config->shape, b) &&
                 shape_rotates(&config->shape, a) == shape_rotates(&config->shape, b);
    for (; alike && x->layer == a; x++, y++)
        alike = parameters_alike(model, x, y);
    return alike;
}

/* Gives each block the number of the first block that is like it.  The parameters of the last norm,
 * which belong to no block, follow those of all blocks. */
static enum gt_status kinds_find(const struct model *model, int32_t *kinds)
{
    const int32_t layers = model->options.config.n_layer;
    int32_t *first, at = 0;
    TRY(HOSTMEM_NEW(model, (size_t)layers, "first parameters of blocks", &first));
    for (int32_t layer = 0; layer < layers; layer++) {
        while (model->parameters.at[at].layer != layer)
            at++;
        first[layer] = at;
        kinds[layer] = 0;
        while (kinds[layer] < layer && (kinds[kinds[layer]] < kinds[layer] ||
                                        !blocks_alike(model, first, kinds[layer], layer)))
            kinds[layer]++;
    }
    hostmem_free(first);
    return GT_OK;
}

/* Returns the end of the stretch that begins with block `first`, in which each block is like the
 * one `period` before it. */
static int32_t stretch_end(const int32_t *kinds, int32_t layers, int32_t first, int32_t period)
{
    int32_t end = first + period;
    while (end < layers && kinds[end] == kinds[end - period])
        end++;
    return (int32_t)min_i64(end, layers);
}

enum gt_status left_out_find(struct model *model)
{
    const int32_t layers = model->options.config.n_layer;
    int32_t *kinds;
    TRY(HOSTMEM_NEW(model, (size_t)layers, "kinds of blocks", &kinds));
    TRY(HOSTMEM_NEW(model, (size_t)layers, "blocks left out", &model->left_out));
    TRY(kinds_find(model, kinds));
    for (int32_t first = 0, end; first < layers; first = end) {
        int32_t period = 1, times = 0;
        end = stretch_end(kinds, layers, first, period);
        for (int32_t p = 1; p <= PERIOD_MOST; p++) {
            const int32_t last = stretch_end(kinds, layers, first, p),
                          most = (last - first - BUILT_LEAST(p)) / p;
            if (most * p > times * period) {
                period = p;
                times = most;
                end = last;
            }
        }
        for (int32_t i = 0; i < period * (1 + times) && times > 0; i++)
            model->left_out[first + 1 + i] = i < period ? times : BLOCK_LEFT_OUT;
    }
    hostmem_free(kinds);
    return GT_OK;
}

int32_t left_out_chunks(const struct model *model, int32_t chunk, int32_t chunks)
{
    const bool all = model->options.train_programs != TRAIN_STEPS;
    return all || chunk != 2 || chunks < 3 ? 0 : chunks - 3;
}
