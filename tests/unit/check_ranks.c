/* Tests of ranks.c: what ranks compare before they begin, and that bytes which change on their way are noticed. */
#include <unistd.h>

#include "config/config_key.h"
#include "dist/comm_shm.h"
#include "tests/unit/unit_main.h"
#include "train/ranks.h"

#define RANKS 3

enum fault { NONE, KEY, DATA, ITER, WEIGHTS, BYTES };

static const struct {
    enum fault fault;
    const char *text; /* of rank 0's error */
} rows[] = {{NONE, ""},
            {KEY, "rank 2 has another batch_size than rank 0"},
            {DATA, "rank 2 has another data set than rank 0"},
            {ITER, "rank 2 has another checkpoint than rank 0"},
            {WEIGHTS, "rank 2 has another checkpoint than rank 0"},
            {BYTES, "rank 2 did not get the bytes that rank 1 sent it"}};

static float staging[SESSION_STAGING_FLOATS];
static bool (*carry)(struct dist *dist);

/* Flips a bit of what comes from rank 1 into the staging buffer. */
static bool carry_wrongly(struct dist *dist)
{
    static uint64_t flipped; /* moves before this one */
    const bool further = carry(dist);
    for (uint64_t i = dist->done > flipped ? dist->done : flipped; i < dist->started; i++) {
        const struct dist_move *move = &dist->moves[i % DIST_MOVES_MAX];
        unsigned char *end = move->data;
        if (!move->done || !move->receive || move->peer != 1 || end <= (unsigned char *)staging ||
            end > (unsigned char *)(staging + SESSION_STAGING_FLOATS))
            continue;
        end[-1] ^= 1;
        flipped = i + 1;
    }
    return further;
}

static char said[512];

static void keep(void *context, enum log_level level, const char *line)
{
    (void)context;
    if (level == LOG_ERROR)
        (void)snprintf(said, sizeof said, "%s", line);
}

static bool nothing(const struct backend *backend, const struct op_call *call)
{
    (void)backend;
    (void)call;
    return false;
}

TEST_ROWS(unlike_ranks_are_refused_by_all, rows)
{
    static struct dist dist;
    static struct config config;
    struct backend device = {.ops = &(struct backend_ops){.supports = nothing}};
    struct session session = {.config = &config, .dist = &dist, .staging = staging, .device.backend = &device};
    int status;
    config_defaults(&config, CONFIG_TRAIN);
    if (!dist_launch(RANKS, 60, &dist, &status)) {
        const bool odd = dist.rank == 2;
        const char *const data[] = {"a", odd && rows[_i].fault == DATA ? "c" : "b"};
        log_sink_set(keep, NULL);
        config.batch_size += odd && rows[_i].fault == KEY;
        carry = dist.progress;
        if (odd && rows[_i].fault == BYTES)
            dist.progress = carry_wrongly;
        const enum gt_status found =
            ranks_handshake(&session, data, odd && rows[_i].fault == ITER, 7 + (odd && rows[_i].fault == WEIGHTS));
        _exit((found == GT_OK) == (rows[_i].fault == NONE) && strstr(said, rows[_i].text) != NULL ? 0 : 10);
    }
    ck_assert_int_eq(status, 0);
}

/* Rank 2 plans one field smaller, or none. */
TEST_LOOP(the_smallest_choice_of_each_rank_is_found, 4)
{
    static struct dist dist;
    static struct config config = {.ranks = RANKS};
    struct model model = {.options.choice = {.micro_batch = 6, .evaluate_batch = 8, .loss_chunk_rows = 96}};
    const struct session session = {.config = &config, .dist = &dist, .model = &model};
    int status;
    if (!dist_launch(RANKS, 60, &dist, &status)) {
        struct plan_choice *choice = &model.options.choice, least;
        int32_t *const fields[] = {&choice->micro_batch, &choice->evaluate_batch, &choice->loss_chunk_rows};
        const int32_t wanted[] = {6 - 3 * (_i == 0), 8 - 3 * (_i == 1), 96 - 3 * (_i == 2)};
        if (dist.rank == 2 && _i < 3)
            *fields[_i] = wanted[_i];
        const bool alike = ranks_plans_alike(&session, &least);
        const bool found =
            least.micro_batch == wanted[0] && least.evaluate_batch == wanted[1] && least.loss_chunk_rows == wanted[2];
        _exit(alike == (_i == 3) && found ? 0 : 10);
    }
    ck_assert_int_eq(status, 0);
}
