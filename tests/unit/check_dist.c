/* Tests of dist.c: ranks exchange words and pieces in any order of arrival, and how they end decides the exit status. */
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "dist/dist.h"
#include "tests/unit/unit_main.h"

#define RANKS 3
#define ROUNDS 200

static void nap(uint64_t *state)
{
    const struct timespec time = {.tv_nsec = (long)(*state >> 33) % 300000};
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    if (time.tv_nsec < 100000)
        (void)nanosleep(&time, NULL);
}

/* Returns 0 if this rank sees all words and pieces of all ranks in each round. */
static int rounds_run(struct dist *dist)
{
    uint64_t state = unit_seed() + (uint64_t)dist->rank;
    for (int round = 0; round < ROUNDS; round++) {
        const double mine[2] = {round, dist->rank};
        double all[2 * RANKS];
        nap(&state);
        dist_piece(dist, dist->rank)[round] = (float)(100 * round + dist->rank);
        dist_gather(dist, mine, 2, all);
        for (int r = 0; r < RANKS; r++) {
            if (all[2 * r] != round || all[2 * r + 1] != r || dist_piece(dist, r)[round] != (float)(100 * round + r))
                return 10;
        }
    }
    return 0;
}

TEST(ranks_see_the_words_and_pieces_of_all)
{
    struct dist dist;
    int status;
    if (!dist_launch(RANKS, 60, &dist, &status))
        _exit(rounds_run(&dist));
    ck_assert_int_eq(status, 0);
}

TEST(all_ranks_learn_of_a_signal_together)
{
    struct dist dist;
    int status, round = 0;
    if (!dist_launch(RANKS, 60, &dist, &status)) {
        double mine = 0.0, all[RANKS];
        if (dist.rank == 1)
            atomic_store(dist.stop_word, SIGTERM);
        for (; dist.stop == 0; round++)
            dist_gather(&dist, &mine, 1, all);
        mine = round;
        dist_gather(&dist, &mine, 1, all);
        _exit(all[0] == all[1] && all[1] == all[2] ? 128 + SIGTERM : 10);
    }
    ck_assert_int_eq(status, 128 + SIGTERM);
}

/* How rank 1 ends while the others wait for it, and the exit status of all. */
static const struct {
    int code, signal, status;
} ends[] = {{.code = 3, .status = 3}, {.signal = SIGKILL, .status = 1}, {.signal = SIGSTOP, .status = 1}};

TEST_ROWS(one_rank_ends_all, ends)
{
    struct dist dist;
    int status;
    if (!dist_launch(RANKS, 1, &dist, &status)) {
        if (dist.rank == 1 && ends[_i].signal != 0)
            raise(ends[_i].signal);
        if (dist.rank == 1)
            _exit(ends[_i].code);
        dist_meet(&dist);
    }
    ck_assert_int_eq(status, ends[_i].status);
}
