/* Reads and writes a plan's choice in checkpoints and reports.
 *
 * Checkpoints name the levels of recompute.  Releases up to 0.2.0 wrote two levels by number, and how many of the first
 * blocks have the first of them; those records can still be read.
 */
#include "model/plan_choice.h"

const char *const plan_choice_offloads[] = {"none", "1/4 of states", "1/2 of states", "3/4 of states", "states"};

bool plan_choice_equal(const struct plan_choice *a, const struct plan_choice *b)
{
    return a->micro_batch == b->micro_batch && a->remainder_batch == b->remainder_batch &&
           a->loss_chunk_rows == b->loss_chunk_rows && a->evaluate_batch == b->evaluate_batch &&
           a->offload == b->offload && recompute_equal(&a->recompute, &b->recompute);
}

bool plan_choice_write(json_t *object, const struct plan_choice *choice, int32_t layers)
{
    char text[RECOMPUTE_TEXT_MAX];
    struct recompute_mix mix = choice->recompute;
    recompute_swap(&mix, RECOMPUTE_OFFLOAD, RECOMPUTE_FULL, INT32_MAX); /* offload is no part of the record */
    recompute_text(text, &mix, layers, ":", ",");
    return json_object_set_new(object, "micro_batch", json_integer(choice->micro_batch)) == 0 &&
           json_object_set_new(object, "remainder_batch", json_integer(choice->remainder_batch)) == 0 &&
           json_object_set_new(object, "loss_chunk_rows", json_integer(choice->loss_chunk_rows)) == 0 &&
           json_object_set_new(object, "evaluate_batch", json_integer(choice->evaluate_batch)) == 0 &&
           json_object_set_new(object, "recompute", json_string(text)) == 0;
}

/* Reads {"first_layers": 6, "first": 4, "rest": 0}, with the numbers that levels had in 0.2.0. */
static enum gt_status numbers_read(const json_t *mix, const char *source, int32_t layers, struct recompute_mix *out)
{
    static const enum recompute_level numbered[] = {RECOMPUTE_NONE, RECOMPUTE_GELU, RECOMPUTE_LAYERNORM, RECOMPUTE_MLP,
                                                    RECOMPUTE_FULL};
    const int64_t last = sizeof numbered / sizeof numbered[0] - 1;
    int64_t blocks, first, rest;
    TRY(json_get_int(mix, source, "first_layers", 0, layers, &blocks));
    TRY(json_get_int(mix, source, "first", 0, last, &first));
    TRY(json_get_int(mix, source, "rest", 0, last, &rest));
    *out = recompute_two(numbered[first], (int32_t)blocks, numbered[rest], layers);
    return GT_OK;
}

static enum gt_status recompute_from(const json_t *value, const char *source, int32_t layers, struct recompute_mix *out)
{
    const char *text = json_string_value(value), *why;
    if (json_is_object(value))
        return numbers_read(value, source, layers, out);
    if (text == NULL)
        text = "";
    if (recompute_read(text, layers, out, &why))
        return GT_OK;
    return FAIL(GT_DATA, "%s: recompute '%.80s' %s", source, text, why);
}

enum gt_status plan_choice_read(const json_t *object, const char *source, int32_t layers, struct plan_choice *out)
{
    int64_t micro, chunk, evaluate;
    const json_t *recompute = json_object_get(object, "recompute");
    struct recompute_mix mix = {{0}};
    TRY(json_get_int(object, source, "micro_batch", 1, INT32_MAX, &micro));
    TRY(json_get_int(object, source, "loss_chunk_rows", 1, INT32_MAX, &chunk));
    TRY(json_get_int(object, source, "evaluate_batch", 1, INT32_MAX, &evaluate));
    if (recompute != NULL) /* records of 0.1.0 lack it */
        TRY(recompute_from(recompute, source, layers, &mix));
    recompute_swap(&mix, RECOMPUTE_OFFLOAD, RECOMPUTE_FULL, INT32_MAX);
    *out = (struct plan_choice){.micro_batch = (int32_t)micro,
                                .loss_chunk_rows = (int32_t)chunk,
                                .evaluate_batch = (int32_t)evaluate,
                                .recompute = mix};
    return GT_OK;
}

/* Writes "mlp in 7 of 12 blocks, gelu in the others", or "mlp". */
static void recompute_sentence(char text[static RECOMPUTE_TEXT_MAX], const struct recompute_mix *mix, int32_t layers)
{
    size_t used = 0;
    int32_t left = layers;
    for (int level = RECOMPUTE_OFFLOAD; level >= RECOMPUTE_NONE; level--) {
        const char *name = recompute_level_name((enum recompute_level)level);
        int32_t blocks = recompute_blocks(mix, (enum recompute_level)level, layers);
        if (blocks == 0)
            continue;
        if (blocks == left) {
            snprintf(text + used, RECOMPUTE_TEXT_MAX - used, "%s%s", name, used > 0 ? " in the others" : "");
            return;
        }
        used += (size_t)snprintf(text + used, RECOMPUTE_TEXT_MAX - used, "%s in %" PRId32 " of %" PRId32 " blocks, ",
                                 name, blocks, layers);
        left -= blocks;
    }
}

char *plan_choice_text(char text[static PLAN_CHOICE_TEXT_MAX], const struct plan_choice *choice, int32_t layers)
{
    char recompute[RECOMPUTE_TEXT_MAX];
    recompute_sentence(recompute, &choice->recompute, layers);
    snprintf(text, PLAN_CHOICE_TEXT_MAX,
             "micro-batch %" PRId32 ", recompute %s, loss in chunks of %" PRId32 " rows%s%s", choice->micro_batch,
             recompute, choice->loss_chunk_rows, choice->offload > 0 ? ", offload " : "",
             choice->offload > 0 ? plan_choice_offloads[choice->offload] : "");
    return text;
}
