/* What ranks do together.
 *
 * The gradients of a round of parts are added piece by piece.  Each rank owns an equal share of a piece: it receives
 * the others' elements, adds them in the order of the parts, and sends everyone the sum.  Additions are in fp32 and in
 * the order of a single rank with as many parts, hence the bits are the same.  Any device's gradients pass through host
 * memory.  Losses are exchanged as numbers; every rank adds them in the order of the micro-steps.
 */
#include "train/ranks.h"

#include "base/size.h"
#include "train/stop.h"

#define WORDS_MAX 64
#define PIECE_FLOATS (SESSION_STAGING_FLOATS / 4) /* a part's, the sum's, and the shares of other ranks */
#define BUDGET_MOST ((uint64_t)1 << 53)           /* a double counts bytes up to here; unknown budgets are above */

/* ---- words ---- */

void ranks_gather(struct dist *dist, const double *mine, int32_t count, double *all)
{
    if (dist == NULL) {
        memcpy(all, mine, (size_t)count * sizeof *mine);
        return;
    }
    dist_gather(dist, mine, (size_t)count * sizeof *mine, all);
    stop_agree(dist->stop);
}

enum gt_status ranks_plan_check(const struct session *session)
{
    const struct model_options *options = &session->model->options;
    const struct plan_choice *choice = &options->choice;
    const double mine[] = {options->dtype, options->states, choice->micro_batch, choice->evaluate_batch};
    double all[DIST_RANKS_MAX * WORDS_MAX];
    const int32_t count = sizeof mine / sizeof mine[0];
    ranks_gather(session->dist, mine, count, all);
    for (int32_t i = 0; i < (int32_t)session->config->ranks * count; i++)
        if (all[i] != mine[i % count])
            return FAIL(GT_UNSUPPORTED,
                        "rank %" PRId32 " plans %g sequences at once in %s, and this rank %g in %s; --micro_batch, "
                        "--eval_batch_size and --dtype make ranks alike",
                        i / count, all[i / count * count + 2], dtype_name((enum dtype)all[i / count * count]), mine[2],
                        dtype_name(options->dtype));
    return GT_OK;
}

bool ranks_computes(const struct session *session, int32_t k)
{
    const struct dist *dist = session->dist;
    return dist == NULL || k / session->model->options.micro_steps % dist->ranks == dist->rank;
}

/* Returns the number within the update of the micro-step that a rank computes as its own number `i`. */
static int32_t micro_step_of(const struct session *session, int32_t rank, int32_t i)
{
    const int32_t steps = session->model->options.micro_steps;
    return (i / steps * session->dist->ranks + rank) * steps + i % steps;
}

void ranks_losses_gather(const struct session *session, float *loss_sums)
{
    struct dist *dist = session->dist;
    const int32_t own = dist == NULL ? 0 : model_micro_steps(&session->model->options) / dist->ranks;
    for (int32_t first = 0, count; first < own; first += count) {
        double mine[WORDS_MAX], all[DIST_RANKS_MAX * WORDS_MAX];
        count = own - first < WORDS_MAX ? own - first : WORDS_MAX;
        for (int32_t i = 0; i < count; i++)
            mine[i] = (double)loss_sums[micro_step_of(session, dist->rank, first + i)];
        ranks_gather(dist, mine, count, all);
        for (int32_t i = 0; i < count * dist->ranks; i++)
            loss_sums[micro_step_of(session, i / count, first + i % count)] = (float)all[i];
    }
}

void ranks_budgets_share(struct dist *dist, uint64_t budgets[static 2])
{
    double mine[2], all[2 * DIST_RANKS_MAX];
    for (int i = 0; i < 2; i++)
        mine[i] = (double)(budgets[i] < BUDGET_MOST ? budgets[i] : BUDGET_MOST);
    dist_gather(dist, mine, sizeof mine, all);
    for (int i = 0; i < 2; i++)
        budgets[i] = (uint64_t)all[i];
}

/* ---- gradients ---- */

/* A place in the gradients of all parameters, one after the other. */
struct place {
    int32_t parameter;
    int64_t element;
};

/* Copies the next piece of the gradients of a part, or of the update, from the device to `piece`, or back.  Advances
 * *place; returns the number of elements in *count: 0 at the end. */
static enum gt_status piece_copy(const struct session *session, bool of_part, bool back, float *piece,
                                 struct place *place, int64_t *count)
{
    const struct model *model = session->model;
    int64_t done = 0;
    while (place->parameter < model->parameters.count && done < PIECE_FLOATS) {
        const struct parameter *parameter = &model->parameters.at[place->parameter];
        const int32_t tensor = of_part ? parameter->part_gradient : parameter->gradient;
        const int64_t elements = tensor == TENSOR_NONE ? 0 : graph_tensor_elements(model->graph, tensor);
        const int64_t part = min_i64(elements - place->element, PIECE_FLOATS - done);
        if (part > 0 && back)
            TRY(values_upload(session->exec, model->graph, tensor, place->element, piece + done, part));
        else if (part > 0)
            TRY(values_download(session->exec, model->graph, tensor, place->element, piece + done, part));
        done += part;
        place->element += part;
        if (place->element == elements)
            *place = (struct place){.parameter = place->parameter + 1};
    }
    *count = done;
    return GT_OK;
}

/* Sums a piece: `sum` is that of the rounds before and becomes that of all ranks' parts as well. */
static void piece_add(struct dist *dist, const float *part, float *sum, float *others, int64_t count, bool first_round)
{
    const int32_t ranks = dist->ranks, rank = dist->rank;
    const int64_t begin = count * rank / ranks, own = count * (rank + 1) / ranks - begin;
    for (int32_t r = 0; r < ranks; r++) {
        const int64_t at = count * r / ranks, share = count * (r + 1) / ranks - at;
        if (r == rank)
            continue;
        dist_send(dist, r, part + at, (size_t)share * sizeof *part);
        dist_receive(dist, r, others + r * own, (size_t)own * sizeof *others);
    }
    dist_wait(dist, dist->started);
    for (int32_t r = 0; r < ranks; r++) {
        const float *from = r == rank ? part + begin : others + r * own;
        for (int64_t i = 0; i < own; i++)
            sum[begin + i] = first_round && r == 0 ? from[i] : sum[begin + i] + from[i];
    }
    for (int32_t r = 0; r < ranks; r++) {
        const int64_t at = count * r / ranks, share = count * (r + 1) / ranks - at;
        if (r == rank)
            continue;
        dist_send(dist, r, sum + begin, (size_t)own * sizeof *sum);
        dist_receive(dist, r, sum + at, (size_t)share * sizeof *sum);
    }
    dist_wait(dist, dist->started);
}

enum gt_status ranks_parts_add(struct session *session, int32_t round)
{
    float *part = session->staging, *sum = part + PIECE_FLOATS, *others = sum + PIECE_FLOATS;
    struct place place = {0};
    int64_t count = 1;
    while (count > 0) {
        struct place next = place, again = place;
        TRY(piece_copy(session, true, false, part, &next, &count));
        if (round > 0)
            TRY(piece_copy(session, false, false, sum, &again, &count));
        piece_add(session->dist, part, sum, others, count, round == 0);
        TRY(piece_copy(session, false, true, sum, &place, &count));
    }
    return GT_OK;
}

/* ---- signs of life ---- */

void ranks_sign(void *context)
{
    const struct ranks_life *life = context;
    const char *call = atomic_load(&life->record->call);
    const int kind = atomic_load(&life->record->op);
    dist_sign(life->dist, call != NULL && kind >= 0 ? op_declaration((enum op_kind)kind)->name : call);
}
