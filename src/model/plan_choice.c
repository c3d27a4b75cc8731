/* Compares a plan's choices, and writes them as a sentence for log lines.
 *
 * io/checkpoint_record.c stores them in checkpoints.
 */
#include "model/plan_choice.h"

bool plan_choice_equal(const struct plan_choice *a, const struct plan_choice *b)
{
    return a->micro_batch == b->micro_batch && a->remainder_batch == b->remainder_batch &&
           a->loss_chunk_rows == b->loss_chunk_rows && a->evaluate_batch == b->evaluate_batch &&
           offload_equal(&a->offload, &b->offload) && recompute_equal(&a->recompute, &b->recompute);
}

/* Writes "mlp in 7 of 12 blocks, gelu in the others", or "mlp". */
static void recompute_sentence(char text[static RECOMPUTE_TEXT_MAX],
                               const struct recompute_mix *mix, int32_t layers)
{
    size_t used = 0;
    int32_t left = layers;
    for (int level = RECOMPUTE_OFFLOAD; level >= RECOMPUTE_NONE; level--) {
        const char *name = recompute_level_name((enum recompute_level)level);
        int32_t blocks = recompute_blocks(mix, (enum recompute_level)level, layers);
        if (blocks == 0)
            continue;
        if (blocks == left) {
            snprintf(text + used, RECOMPUTE_TEXT_MAX - used, "%s%s", name,
                     used > 0 ? " in the others" : "");
            return;
        }
        used += (size_t)snprintf(text + used, RECOMPUTE_TEXT_MAX - used,
                                 "%s in %" PRId32 " of %" PRId32 " blocks, ", name, blocks, layers);
        left -= blocks;
    }
}

char *plan_choice_text(char text[static PLAN_CHOICE_TEXT_MAX], const struct plan_choice *choice,
                       int32_t layers, bool lora)
{
    char recompute[RECOMPUTE_TEXT_MAX], offload[OFFLOAD_TEXT_MAX];
    const bool moves = offload_quarters(&choice->offload) > 0;
    recompute_sentence(recompute, &choice->recompute, layers);
    snprintf(text, PLAN_CHOICE_TEXT_MAX,
             "micro-batch %" PRId32 ", recompute %s, loss in chunks of %" PRId32 " rows%s%s",
             choice->micro_batch, recompute, choice->loss_chunk_rows, moves ? ", offload " : "",
             moves ? offload_text(offload, &choice->offload, lora) : "");
    return text;
}
