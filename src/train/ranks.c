/* What ranks do together.
 *
 * A rank has the states of some elements of the parameters: a range of whole blocks of each matrix,
 * and whole matrices where Muon updates them.  Every rank has the states of all vectors, which are
 * few.  Programs exchange gradients and weights (model/parts.c).  This file exchanges, as numbers,
 * the sums of squares for the norm, and the losses, which every rank adds in the order of the
 * micro-steps.
 *
 * When they begin, ranks compare what must be alike, prove that bytes arrive, and agree on
 * micro-steps.  Every rank gets what all ranks say, so that all of them come to the same verdict;
 * rank 0 prints it.
 */
#include "train/ranks.h"

#include <config.h>
#include <math.h>

#include "backend/backend_call.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/size.h"
#include "config/config_key.h"
#include "io/checkpoint.h"
#include "model/parameters.h"
#include "session/stop.h"

#define WORDS_MAX 64
#define LATER_SECONDS 1.0 /* by which the others wait longer, so that rank 0 reports first */

#define PROOF_BYTES ((size_t)1 << 20)
#define PROOF_WORDS (PROOF_BYTES / sizeof(uint32_t))

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

/* Returns the number, within the update, of the micro-step that is number `i` among those of a
 * rank. */
static int32_t micro_step_of(const struct session *session, int32_t rank, int32_t i)
{
    const int32_t steps = session->model->options.micro_steps;
    return (i / steps * session->dist->ranks + rank) * steps + i % steps;
}

void ranks_losses_gather(const struct session *session, float *loss_sums)
{
    struct dist *dist = session->dist;
    const int32_t local =
        dist == NULL ? 0 : model_micro_steps(&session->model->options) / dist->ranks;
    for (int32_t first = 0, count; first < local; first += count) {
        double mine[WORDS_MAX], all[DIST_RANKS_MAX * WORDS_MAX];
        count = local - first < WORDS_MAX ? local - first : WORDS_MAX;
        for (int32_t i = 0; i < count; i++)
            mine[i] = (double)loss_sums[micro_step_of(session, dist->rank, first + i)];
        ranks_gather(dist, mine, count, all);
        for (int32_t i = 0; i < count * dist->ranks; i++)
            loss_sums[micro_step_of(session, i / count, first + i % count)] = (float)all[i];
    }
}

void ranks_budgets_share(struct dist *dist, struct ranks_budgets *budgets)
{
    struct ranks_budgets all[DIST_RANKS_MAX];
    dist_gather(dist, budgets, sizeof *budgets, all);
    *budgets = all[0];
}

enum gt_status ranks_join(struct ranks_life *life, struct session *session, struct dist *dist,
                          const struct ranks_budgets *budgets)
{
    struct session_device *device = &session->device;
    session->dist = dist;
    *life = (struct ranks_life){.dist = dist, .record = &device->record};
    if (dist == NULL)
        return GT_OK;
    const bool shares_memory =
        !ranks_first(dist) && strcmp(dist->host[dist->rank], dist->host[0]) == 0;
    if (shares_memory && device->info.host_memory && !device->has_budget)
        device->machine_budget_bytes = budgets->machine;
    if (shares_memory)
        device->host_share_bytes = budgets->host_share;
    return ticker_start(session->mem, RANKS_SIGN_SECONDS, ranks_sign, life, &life->ticker);
}

/* ---- the update ---- */

/* Clears the sums of squares that another rank contributes.  Rank 0 contributes those that all
 * ranks have. */
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

/* ---- the beginning ---- */

/* What a rank sends to all others. */
struct hello {
    uint32_t keys[CONFIG_KEY_COUNT]; /* checksums of the values of keys that checkpoints store; 0 of
                                        others */
    uint32_t data[2], weights;       /* of each split, and of the checkpoint */
    int32_t slowest;                 /* the peer with which a proof took longest */
    int32_t wrong;                   /* a peer from which other bytes arrived than it sent, or -1 */
    int64_t iter;
    double rate; /* bytes/s, from and to that slowest peer at once */
    char device[BACKEND_TEXT_MAX];
};

static uint32_t text_crc(const char *text)
{
    return file_crc32c(0, text, strlen(text));
}

static uint32_t pattern(int32_t from, int32_t to, size_t i)
{
    return (uint32_t)i * UINT32_C(2654435761) ^ (uint32_t)(from << 8 | to);
}

/* Passes words from card to card, or through host memory, and times it. */
static enum gt_status words_pass(const struct session *session, const struct backend_pass *pass,
                                 double *seconds)
{
    struct dist *dist = session->dist;
    if (backend_exchanges(session->device.backend))
        return backend_pass(session->device.backend, pass, seconds);
    dist_gather(dist, pass->in, 0, pass->in);
    const int64_t begin_ns = clock_monotonic_ns();
    dist_receive(dist, pass->from, pass->in, pass->received);
    dist_send(dist, pass->to, pass->out, pass->sent);
    dist_wait(dist, dist->started);
    *seconds = (double)(clock_monotonic_ns() - begin_ns) * 1e-9;
    return GT_OK;
}

/* Sends known words over each pair of ranks, in both directions at once, and times them. */
static enum gt_status pairs_prove(const struct session *session, struct hello *out)
{
    const struct dist *dist = session->dist;
    uint32_t *words = (uint32_t *)(void *)session->staging, *in = words + PROOF_WORDS;
    out->wrong = -1;
    for (int32_t shift = 1; shift < dist->ranks; shift++) {
        const int32_t to = (dist->rank + shift) % dist->ranks,
                      from = (dist->rank + dist->ranks - shift) % dist->ranks;
        const struct backend_pass pass = {to, from, words, in, PROOF_BYTES, PROOF_BYTES};
        double seconds = 0.0;
        for (size_t i = 0; i < PROOF_WORDS; i++)
            words[i] = pattern(dist->rank, to, i);
        for (int time = 0; time < 2; time++) /* the first time, connections are made */
            TRY(words_pass(session, &pass, &seconds));
        const double rate = (double)PROOF_BYTES / fmax(seconds, 1e-9);
        if (shift == 1 || rate < out->rate) {
            out->rate = rate;
            out->slowest = from;
        }
        for (size_t i = 0; i < PROOF_WORDS; i++)
            out->wrong = in[i] != pattern(from, dist->rank, i) ? from : out->wrong;
    }
    return GT_OK;
}

/* Lets the devices exchange bytes themselves, if all of them can. */
static enum gt_status devices_join(const struct session *session)
{
    const double can = session->device.backend->ops->join != NULL;
    double all[DIST_RANKS_MAX];
    ranks_gather(session->dist, &can, 1, all);
    for (int32_t r = 0; r < session->dist->ranks; r++)
        if (all[r] == 0.0)
            return GT_OK;
    return backend_join(session->device.backend, session->dist);
}

static enum gt_status differs(const struct dist *dist, int32_t rank, const char *field)
{
    return FAIL(GT_USAGE, "rank %" PRId32 "%s%s has another %s than rank 0", rank,
                dist->host[rank][0] != '\0' ? " on " : "", dist->host[rank], field);
}

static enum gt_status hello_check(const struct dist *dist, const struct hello *first,
                                  const struct hello *hello, int32_t r)
{
    for (int key = 0; key < CONFIG_KEY_COUNT; key++)
        if (hello->keys[key] != first->keys[key])
            return differs(dist, r, config_key_info_get((enum config_key)key)->name);
    if (memcmp(hello->data, first->data, sizeof hello->data) != 0)
        return differs(dist, r, "data set");
    if (hello->iter != first->iter || hello->weights != first->weights)
        return differs(dist, r, "checkpoint");
    if (hello->wrong >= 0)
        return FAIL(GT_DEVICE,
                    "rank %" PRId32 " did not get the bytes that rank %" PRId32 " sent it", r,
                    hello->wrong);
    return GT_OK;
}

enum gt_status ranks_handshake(struct session *session, const char *const data[static 2],
                               int64_t iter, uint32_t weights)
{
    struct dist *dist = session->dist;
    struct hello hello = {.data = {text_crc(data[0]), text_crc(data[1])},
                          .weights = weights,
                          .iter = iter},
                 all[DIST_RANKS_MAX];
    uint32_t build = text_crc(PACKAGE_VERSION BUILD_LIBRARIES), builds[DIST_RANKS_MAX];
    dist_gather(dist, &build, sizeof build, builds);
    for (int32_t r = 1; r < dist->ranks; r++)
        if (builds[r] != builds[0])
            return differs(dist, r, "build of gpt-train");
    for (int key = 0; key < CONFIG_KEY_COUNT; key++) {
        const unsigned flags = (unsigned)config_key_info_get((enum config_key)key)->flags;
        if ((flags & CONFIG_INVOCATION) == 0 && key != CONFIG_KEY_dataset)
            hello.keys[key] = text_crc(CONFIG_KEY_TEXT(session->config, (enum config_key)key));
    }
    (void)snprintf(hello.device, sizeof hello.device, "%s", session->device.info.device);
    TRY(devices_join(session));
    TRY(pairs_prove(session, &hello));
    dist_gather(dist, &hello, sizeof hello, all);
    for (int32_t r = 0; r < dist->ranks; r++)
        TRY(hello_check(dist, &all[0], &all[r], r));
    session->timing.ranks_rate = all[0].rate;
    for (int32_t r = 1; r < dist->ranks; r++)
        session->timing.ranks_rate = fmin(session->timing.ranks_rate, all[r].rate);
    for (int32_t r = 0; r < dist->ranks; r++)
        log_result("rank %" PRId32 ": %s%s%s; %s/s each way with the slowest peer, rank %" PRId32,
                   r, dist->host[r], dist->host[r][0] != '\0' ? ", " : "", all[r].device,
                   LOG_BYTES(all[r].rate), all[r].slowest);
    return GT_OK;
}

bool ranks_plans_alike(const struct session *session, struct plan_choice *least)
{
    const struct plan_choice *choice = &session->model->options.choice;
    const double mine[] = {choice->micro_batch, choice->evaluate_batch, choice->loss_chunk_rows};
    double all[DIST_RANKS_MAX][3];
    bool alike = true;
    *least = *choice;
    ranks_gather(session->dist, mine, 3, all[0]);
    for (int32_t r = 0; r < (int32_t)session->config->ranks; r++) {
        alike = alike && memcmp(all[r], all[0], sizeof all[r]) == 0;
        least->micro_batch = (int32_t)min_i64((int64_t)all[r][0], least->micro_batch);
        least->evaluate_batch = (int32_t)min_i64((int64_t)all[r][1], least->evaluate_batch);
        least->loss_chunk_rows = (int32_t)min_i64((int64_t)all[r][2], least->loss_chunk_rows);
    }
    return alike;
}

enum gt_status ranks_plan_check(const struct session *session)
{
    const double mine[] = {session->model->options.dtype, session->model->options.states};
    double all[DIST_RANKS_MAX][2];
    struct plan_choice least;
    ranks_gather(session->dist, mine, 2, all[0]);
    for (int32_t r = 0; r < (int32_t)session->config->ranks; r++)
        if (memcmp(all[r], mine, sizeof mine) != 0)
            return FAIL(
                GT_UNSUPPORTED,
                "rank %" PRId32 " computes in %s, and this rank in %s; --dtype and --state_format "
                "make ranks alike",
                r, dtype_name((enum dtype)all[r][0]), dtype_name(session->model->options.dtype));
    return ranks_plans_alike(session, &least)
               ? GT_OK
               : FAIL(
                     GT_UNSUPPORTED,
                     "ranks plan different micro-steps; set --micro_batch, --eval_batch_size and --loss_chunk");
}

/* ---- signs of life ---- */

void ranks_sign(void *context)
{
    struct ranks_life *life = context;
    const char *call = atomic_load(&life->record->call);
    const int kind = atomic_load(&life->record->op);
    dist_sign(life->dist,
              call != NULL && kind >= 0 ? op_declaration((enum op_kind)kind)->name : call);
    life->limited = atomic_load(&life->dist->limited) ? life->limited + 1 : 0;
    const double seconds =
        (double)life->limited * RANKS_SIGN_SECONDS - (life->dist->rank > 0 ? LATER_SECONDS : 0.0);
    if (seconds > (double)atomic_load(&life->dist->timeout_s))
        dist_unanswered(life->dist);
}
