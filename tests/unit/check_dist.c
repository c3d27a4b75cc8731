/* Tests of dist.c and comm_shm.c: words and moves arrive whatever the order in which ranks come, and how ranks end decides
 * the exit status. */
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "dist/comm_shm.h"
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

#define LARGE ((size_t)5 << 20) /* more than there is room for on the way */
#define MOVES 3                 /* to each peer and from it: one byte, none, many */

static const size_t sizes[MOVES] = {1, 0, LARGE};

/* Returns a byte that differs between senders, receivers, moves and places. */
static unsigned char byte_of(int from, int to, int move, size_t i)
{
    return (unsigned char)((size_t)(7 * from + 31 * to + 5 * move) + i + i / 251);
}

/* Returns 0 if this rank sees all words of all ranks in each round. */
static int rounds_run(struct dist *dist)
{
    uint64_t state = unit_seed() + (uint64_t)dist->rank;
    for (int round = 0; round < ROUNDS; round++) {
        const double mine[2] = {round, dist->rank};
        double all[2 * RANKS];
        nap(&state);
        dist_gather(dist, mine, sizeof mine, all);
        for (int r = 0; r < RANKS; r++) {
            if (all[2 * r] != round || all[2 * r + 1] != r)
                return 10;
        }
    }
    return 0;
}

/* Every rank sends to every other, all at once, and waits for the small moves before the large ones.  Returns 0 if all
 * bytes arrive. */
static int moves_run(struct dist *dist)
{
    static unsigned char out[RANKS][MOVES][LARGE], in[RANKS][MOVES][LARGE];
    uint64_t small = 0;
    int wrong = 0;
    for (int move = 0; move < MOVES; move++) {
        if (move == MOVES - 1)
            small = dist->started;
        for (int peer = 0; peer < RANKS; peer++) {
            if (peer == dist->rank)
                continue;
            for (size_t i = 0; i < sizes[move]; i++)
                out[peer][move][i] = byte_of(dist->rank, peer, move, i);
            dist_receive(dist, peer, in[peer][move], sizes[move]);
            dist_send(dist, peer, out[peer][move], sizes[move]);
        }
    }
    dist_wait(dist, small);
    for (int peer = 0; peer < RANKS; peer++)
        wrong += peer != dist->rank && in[peer][0][0] != byte_of(peer, dist->rank, 0, 0);
    dist_wait(dist, dist->started);
    for (int peer = 0; peer < RANKS; peer++)
        for (size_t i = 0; i < LARGE; i++)
            wrong += peer != dist->rank && in[peer][2][i] != byte_of(peer, dist->rank, 2, i);
    return wrong != 0;
}

/* Starts more moves than may be in progress.  Returns 0 if they arrive in order. */
static int many_run(struct dist *dist)
{
    static int out[3 * DIST_MOVES_MAX], in[3 * DIST_MOVES_MAX];
    const int peer = (dist->rank + 1) % RANKS, from = (dist->rank + RANKS - 1) % RANKS;
    for (int i = 0; i < 3 * DIST_MOVES_MAX; i++) {
        out[i] = i;
        dist_send(dist, peer, &out[i], sizeof out[i]);
        dist_receive(dist, from, &in[i], sizeof in[i]);
    }
    dist_wait(dist, dist->started);
    return memcmp(in, out, sizeof in) != 0;
}

static int (*const runs[])(struct dist *) = {rounds_run, moves_run, many_run};

TEST_ROWS(ranks_get_what_others_send, runs)
{
    static struct dist dist;
    int status;
    if (!dist_launch(RANKS, 60, &dist, &status))
        _exit(runs[_i](&dist));
    ck_assert_int_eq(status, 0);
}

TEST(all_ranks_learn_of_a_signal_together)
{
    static struct dist dist;
    int status, round = 0;
    if (!dist_launch(RANKS, 60, &dist, &status)) {
        double mine = 0.0, all[RANKS];
        if (dist.rank == 1)
            atomic_store(dist.stop_word, SIGTERM);
        for (; dist.stop == 0; round++)
            dist_gather(&dist, &mine, sizeof mine, all);
        mine = round;
        dist_gather(&dist, &mine, sizeof mine, all);
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
    static struct dist dist;
    int status;
    if (!dist_launch(RANKS, 1, &dist, &status)) {
        if (dist.rank == 1 && ends[_i].signal != 0)
            raise(ends[_i].signal);
        if (dist.rank == 1)
            _exit(ends[_i].code);
        dist_gather(&dist, &status, 0, &status);
    }
    ck_assert_int_eq(status, ends[_i].status);
}

TEST(a_rank_that_fails_after_the_others_have_ended_counts)
{
    static struct dist dist;
    const struct timespec later = {.tv_nsec = 100000000};
    int status;
    if (!dist_launch(RANKS, 60, &dist, &status)) {
        if (dist.rank == 2)
            (void)nanosleep(&later, NULL);
        _exit(dist.rank == 2 ? 5 : 0);
    }
    ck_assert_int_eq(status, 5);
}
