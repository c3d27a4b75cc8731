/* What ranks do together.
 *
 * A rank has the states of some elements of the parameters: a range of whole blocks of each matrix, and whole matrices
 * where Muon updates them; of vectors, which are few, all.  Programs exchange gradients and weights (model/parts.c).
 * Here are the sums of squares for the norm, and the losses, which are exchanged as numbers; every rank adds those in
 * the order of the micro-steps.
 */
#include "train/ranks.h"

#include "base/size.h"
#include "model/parameters.h"
#include "train/stop.h"

#define WORDS_MAX 64
#define LATER_SECONDS 1.0               /* that rank 0, which waits too, is to tell first */
#define BUDGET_MOST ((uint64_t)1 << 53) /* a double counts bytes up to here; unknown budgets are above */

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

/* ---- the update ---- */

/* Clears the sums of squares that another rank contributes.  Those that all have are rank 0's. */
static void squares_choose(const struct session *session, float *squares)
{
    const struct model *model = session->model;
    for (int32_t i = 0; i < model->parameters.count; i++) {
        const struct parameter *parameter = &model->parameters.at[i];
        for (int32_t unit = 0; unit < parameter->units && !parameter->frozen; unit++, squares++) {
            const int32_t each = parameter->units / session->dist->ranks;
            const int32_t owner = parameter->owner == OWNER_UNITS ? unit / each
                                  : parameter->owner == OWNER_ALL ? 0
                                                                  : parameter->owner;
            if (owner != session->dist->rank)
                *squares = 0.0f;
        }
    }
}

/* Gives each rank the sums of squares of all units. */
static enum gt_status squares_gather(const struct session *session)
{
    const struct model *model = session->model;
    struct dist *dist = session->dist;
    const int64_t all = graph_tensor_elements(model->graph, model->squares);
    const int64_t most = (SESSION_STAGING_FLOATS - all) / dist->ranks;
    float *mine = session->staging, *each = mine + all;
    TRY(exec_download(session->exec, model->squares, 0, mine, all));
    squares_choose(session, mine);
    for (int64_t first = 0, count; first < all; first += count) {
        count = min_i64(all - first, most);
        dist_gather(dist, mine + first, (size_t)count * sizeof *mine, each);
        memset(mine + first, 0, (size_t)count * sizeof *mine);
        for (int64_t i = 0; i < count * dist->ranks; i++)
            mine[first + i % count] += each[i];
    }
    return exec_upload(session->exec, model->partials, 0, mine, all);
}

enum gt_status ranks_update(const struct session *session)
{
    const struct model *model = session->model;
    if (session->dist == NULL)
        return exec_start(session->exec, model->update.program);
    TRY(exec_run(session->exec, model->norm));
    TRY(squares_gather(session));
    TRY(exec_run(session->exec, model->update.program));
    return exec_run(session->exec, model->gather);
}

/* ---- signs of life ---- */

void ranks_sign(void *context)
{
    struct ranks_life *life = context;
    const char *call = atomic_load(&life->record->call);
    const int kind = atomic_load(&life->record->op);
    dist_sign(life->dist, call != NULL && kind >= 0 ? op_declaration((enum op_kind)kind)->name : call);
    life->limited = atomic_load(&life->dist->limited) ? life->limited + 1 : 0;
    const double seconds = (double)life->limited * RANKS_SIGN_SECONDS - (life->dist->rank > 0 ? LATER_SECONDS : 0.0);
    if (seconds > (double)atomic_load(&life->dist->timeout_s))
        dist_unanswered(life->dist);
}
