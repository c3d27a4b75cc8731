/* What ranks do together.
 *
 * A rank has the states of some elements of the parameters: a range of whole blocks of each matrix, and whole matrices
 * where Muon updates them; of vectors, which are few, all.  The gradients of a round of parts are added segment by
 * segment: the owner of the elements receives the others' and adds them in the order of the parts, in fp32, as a single
 * rank with as many parts does; hence the bits are the same.  After the update it sends the new weights to all.  Any
 * device's gradients pass through host memory.  Losses are exchanged as numbers; every rank adds them in the order of
 * the micro-steps.
 */
#include "train/ranks.h"

#include "base/size.h"
#include "model/parameters.h"
#include "train/stop.h"

#define WORDS_MAX 64
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

/* ---- gradients and weights ---- */

/* A place in what belongs to an owner, one parameter after the other.  Owner `ranks` stands for all of them. */
struct place {
    int32_t parameter;
    int64_t element;
};

enum copy { NOTHING, PART_DOWN, SUM_DOWN, SUM_UP, WEIGHTS_DOWN, WEIGHTS_UP };

/* Copies the next elements of an owner, at most `most`, from the device to `to`, or back: gradients as fp32, weights as
 * they are.  Advances *place; returns their number, 0 at the end. */
static enum gt_status share_copy(const struct session *session, enum copy copy, int32_t owner, struct place *place,
                                 int64_t most, void *to, int64_t *count)
{
    const struct model *model = session->model;
    const struct graph *graph = model->graph;
    struct exec *exec = session->exec;
    int64_t done = 0;
    while (place->parameter < model->parameters.count && done < most) {
        const struct parameter *parameter = &model->parameters.at[place->parameter];
        const struct parameter_range share = parameters_share(graph, parameter, model_ranks(&model->options), owner);
        const int64_t some = min_i64(share.count - place->element, most - done), at = share.first + place->element;
        float *floats = (float *)to + done;
        char *bytes = (char *)to + (size_t)done * dtype_size_bytes(graph->tensors[parameter->tensor].dtype);
        if (some > 0 && copy == PART_DOWN)
            TRY(values_download(exec, graph, parameter->part_gradient, at, floats, some));
        else if (some > 0 && copy == SUM_DOWN)
            TRY(values_download(exec, graph, parameter->gradient, place->element, floats, some));
        else if (some > 0 && copy == SUM_UP)
            TRY(values_upload(exec, graph, parameter->gradient, place->element, floats, some));
        else if (some > 0 && copy == WEIGHTS_DOWN)
            TRY(exec_download(exec, parameter->tensor, at, bytes, some));
        else if (some > 0 && copy == WEIGHTS_UP)
            TRY(exec_upload(exec, parameter->tensor, at, bytes, some));
        done += some;
        place->element += some;
        if (place->element == share.count)
            *place = (struct place){.parameter = place->parameter + 1};
    }
    *count = done;
    return GT_OK;
}

/* A step of the exchange of a round of parts: the moves that it started end before move `end`.  `part` has a segment of
 * this rank's part for each owner, `others` one of each rank's part for this owner, and one for what all own. */
struct step {
    float *part, *others;
    int64_t count[DIST_RANKS_MAX + 1]; /* elements of an owner's segment */
    uint64_t end;
};

/* While the moves of one step are under way, this rank adds what those of the step before brought. */
struct exchange {
    struct session *session;
    bool first_round;
    int64_t most; /* floats of a segment */
    float *sum;
    struct place place[DIST_RANKS_MAX + 1], sums[2];
    struct step step[2];
};

/* Starts to send an owner its segment of this rank's part.  The owner starts to receive that of each other rank. */
static void segments_move(const struct exchange *x, const struct step *step, int32_t owner)
{
    struct dist *dist = x->session->dist;
    const size_t bytes = (size_t)step->count[owner] * sizeof(float);
    const bool all = owner == dist->ranks;
    for (int32_t r = 0; r < dist->ranks; r++) {
        if (r == dist->rank || bytes == 0)
            continue;
        if (all || owner == r)
            dist_send(dist, r, step->part + owner * x->most, bytes);
        if (all || owner == dist->rank)
            dist_receive(dist, r, step->others + (all * dist->ranks + r) * x->most, bytes);
    }
}

/* Adds the parts of a segment that this rank owns, in their order. */
static enum gt_status segment_add(struct exchange *x, const struct step *step, int32_t owner)
{
    const struct dist *dist = x->session->dist;
    const bool all = owner == dist->ranks;
    struct place begin = x->sums[all];
    int64_t count = step->count[owner];
    if (!x->first_round)
        TRY(share_copy(x->session, SUM_DOWN, owner, &begin, count, x->sum, &count));
    for (int32_t r = 0; r < dist->ranks; r++) {
        const float *from =
            r == dist->rank ? step->part + owner * x->most : step->others + (all * dist->ranks + r) * x->most;
        for (int64_t i = 0; i < count; i++)
            x->sum[i] = x->first_round && r == 0 ? from[i] : x->sum[i] + from[i];
    }
    return share_copy(x->session, SUM_UP, owner, &x->sums[all], count, x->sum, &count);
}

enum gt_status ranks_parts_add(struct session *session, int32_t round)
{
    struct dist *dist = session->dist;
    const int32_t ranks = dist->ranks, segments = 3 * ranks + 1; /* of a step */
    struct exchange x = {.session = session, .first_round = round == 0};
    int64_t left = 1;
    x.most = SESSION_STAGING_FLOATS / (2 * segments + 1);
    x.sum = session->staging + 2 * segments * x.most;
    for (int32_t k = 0; left > 0; k = !k) {
        struct step *step = &x.step[k], *before = &x.step[!k];
        step->part = session->staging + k * segments * x.most;
        step->others = step->part + (ranks + 1) * x.most;
        left = 0;
        for (int32_t owner = 0; owner <= ranks; owner++) {
            TRY(share_copy(session, PART_DOWN, owner, &x.place[owner], x.most, step->part + owner * x.most,
                           &step->count[owner]));
            segments_move(&x, step, owner);
            left += step->count[owner];
        }
        step->end = dist->started;
        dist_wait(dist, before->end);
        TRY(segment_add(&x, before, dist->rank));
        TRY(segment_add(&x, before, ranks));
    }
    return GT_OK;
}

enum gt_status ranks_weights_gather(const struct session *session)
{
    struct dist *dist = session->dist;
    struct place place[DIST_RANKS_MAX] = {{0}};
    int64_t left = dist != NULL, count;
    const int32_t ranks = model_ranks(&session->model->options);
    const int64_t most = SESSION_STAGING_FLOATS / ranks;
    while (left > 0) {
        left = 0;
        for (int32_t owner = 0; owner < ranks; owner++) {
            float *segment = session->staging + owner * most;
            struct place next = place[owner];
            TRY(share_copy(session, owner == dist->rank ? WEIGHTS_DOWN : NOTHING, owner, &next, most, segment, &count));
            const size_t bytes = (size_t)count * dtype_size_bytes(session->model->options.dtype);
            for (int32_t r = 0; owner == dist->rank && r < ranks && count > 0; r++)
                if (r != owner)
                    dist_send(dist, r, segment, bytes);
            if (owner != dist->rank && count > 0)
                dist_receive(dist, owner, segment, bytes);
            left += count;
        }
        dist_wait(dist, dist->started);
        for (int32_t owner = 0; owner < ranks; owner++)
            TRY(share_copy(session, owner == dist->rank ? NOTHING : WEIGHTS_UP, owner, &place[owner], most,
                           session->staging + owner * most, &count));
    }
    return GT_OK;
}

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
    return ranks_weights_gather(session);
}

/* ---- signs of life ---- */

void ranks_sign(void *context)
{
    const struct ranks_life *life = context;
    const char *call = atomic_load(&life->record->call);
    const int kind = atomic_load(&life->record->op);
    dist_sign(life->dist, call != NULL && kind >= 0 ? op_declaration((enum op_kind)kind)->name : call);
}
