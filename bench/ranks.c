/* Times what ranks do to gradients and weights beside MPI's own collectives, all in one run of two ranks.
 *
 * usage: mpirun -n 2 ranks [ROUNDS [FLOATS [PIECE]]]
 *
 * Both of the program's carriers, the memory that forked ranks share and the module of MPI, move pieces of PIECE floats, and
 * this program adds them in the order of ranks while the next ones are under way.  Each round times every row once.  Rank 0
 * prints "NAME MINIMUM MEDIAN" in seconds per row.  The module's thread and the collectives share MPI, which is therefore
 * initialized with MPI_THREAD_MULTIPLE.  bench/record_ranks.py compiles and runs it.
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/module.h"
#include "base/size.h"
#include "dist/comm_shm.h"

#define ROUNDS_MAX 99

extern const struct comm_module gpt_train_module;

static struct dist mpi, shm;
static size_t floats = 124475904, piece = 1 << 20;
static float *part, *sum, *pieces; /* a rank's gradients; what it gets */
static struct dist_seat seats[DIST_RANKS_MAX];
static atomic_int stop;

int MPI_Init_thread(int *count, char ***words, int required, int *provided)
{
    (void)required;
    return PMPI_Init_thread(count, words, MPI_THREAD_MULTIPLE, provided);
}

static int tick(struct dist *dist)
{
    (void)dist;
    return 0;
}

static size_t piece_at(size_t at)
{
    return size_min(piece, floats / 2 - at);
}

/* Each rank gets the other's gradients of its own half, and adds them. */
static void exchange(struct dist *dist)
{
    const size_t half = floats / 2, own = (size_t)dist->rank * half;
    uint64_t end = 0;
    for (size_t at = 0, k = 0; at < half + piece; at += piece, k = !k) {
        const uint64_t before = end;
        if (at < half) {
            dist_receive(dist, !dist->rank, pieces + k * piece, piece_at(at) * sizeof(float));
            dist_send(dist, !dist->rank, part + (half - own) + at, piece_at(at) * sizeof(float));
            end = dist->started;
        }
        if (at == 0)
            continue;
        dist_wait(dist, before);
        const float *mine = part + own + at - piece, *other = pieces + !k * piece;
        const float *first = dist->rank == 0 ? mine : other, *second = dist->rank == 0 ? other : mine;
        float *to = sum + own + at - piece;
        for (size_t i = 0; i < piece_at(at - piece); i++)
            to[i] = first[i] + second[i];
    }
}

/* Each rank gets the other's half of the weights. */
static void gather(struct dist *dist)
{
    const size_t half = floats / 2, own = (size_t)dist->rank * half;
    for (size_t at = 0; at < half; at += piece) {
        dist_receive(dist, !dist->rank, sum + (half - own) + at, piece_at(at) * sizeof(float));
        dist_send(dist, !dist->rank, sum + own + at, piece_at(at) * sizeof(float));
    }
    dist_wait(dist, dist->started);
}

static void shm_exchange(void)
{
    exchange(&shm);
}

static void mpi_exchange(void)
{
    exchange(&mpi);
}

static void reduce_scatter(void)
{
    MPI_Reduce_scatter_block(part, sum + (size_t)mpi.rank * floats / 2, (int)(floats / 2), MPI_FLOAT, MPI_SUM,
                             MPI_COMM_WORLD);
}

static void allreduce(void)
{
    MPI_Allreduce(part, sum, (int)floats, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void shm_gather(void)
{
    gather(&shm);
}

static void mpi_gather(void)
{
    gather(&mpi);
}

static void allgather(void)
{
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, sum, (int)(floats / 2), MPI_FLOAT, MPI_COMM_WORLD);
}

static const struct {
    const char *name;
    void (*run)(void);
} rows[] = {{"shm: exchange and sum", shm_exchange},
            {"MPI module: exchange and sum", mpi_exchange},
            {"MPI_Reduce_scatter_block", reduce_scatter},
            {"MPI_Allreduce", allreduce},
            {"shm: gather", shm_gather},
            {"MPI module: gather", mpi_gather},
            {"MPI_Allgather", allgather}};

#define ROWS (sizeof rows / sizeof rows[0])

/* Both ranks map a file without a name, which is what dist_launch() would have given them before the fork. */
static void shm_open_pair(void)
{
    char path[64];
    long pid = (long)getpid();
    MPI_Bcast(&pid, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    (void)snprintf(path, sizeof path, "/dev/shm/gpt-train-bench-%ld", pid);
    const int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)dist_shared_bytes(2)) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    shm = (struct dist){.rank = mpi.rank, .ranks = 2};
    void *shared = mmap(NULL, dist_shared_bytes(2), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED)
        MPI_Abort(MPI_COMM_WORLD, 1);
    dist_shared_set(&shm, shared);
    MPI_Barrier(MPI_COMM_WORLD);
    (void)unlink(path);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Ends all if a row left other numbers than it must. */
static void sums_check(const char *name, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i += 4099)
        if (sum[i] != (float)(i % 1000) + (float)(i % 777)) {
            fprintf(stderr, "%s: wrong at %zu\n", name, i);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
}

int main(int argc, char **argv)
{
    static double seconds[ROWS][ROUNDS_MAX];
    const int rounds = argc > 1 ? atoi(argv[1]) : 9;
    floats = argc > 2 ? (size_t)atol(argv[2]) / 2 * 2 : floats;
    piece = argc > 3 ? (size_t)atol(argv[3]) : piece;
    mpi = (struct dist){.seat = seats, .stop_word = &stop, .tick = tick};
    if (rounds < 1 || rounds > ROUNDS_MAX || !gpt_train_module.open(&mpi) || mpi.ranks != 2)
        return 2;
    shm_open_pair();
    part = malloc(floats * sizeof *part);
    sum = malloc(floats * sizeof *sum);
    pieces = malloc(2 * piece * sizeof *pieces);
    if (part == NULL || sum == NULL || pieces == NULL)
        return 1;
    for (size_t i = 0; i < floats; i++)
        part[i] = (float)(i % (mpi.rank == 0 ? 1000 : 777));
    memset(pieces, 0, 2 * piece * sizeof *pieces);
    for (int round = -1; round < rounds; round++) /* the first warms up */
        for (size_t row = 0; row < ROWS; row++) {
            if (row < 4)
                memset(sum, 0, floats * sizeof *sum);
            MPI_Barrier(MPI_COMM_WORLD);
            const double begin = MPI_Wtime();
            rows[row].run();
            MPI_Barrier(MPI_COMM_WORLD);
            if (round >= 0)
                seconds[row][round] = MPI_Wtime() - begin;
            sums_check(rows[row].name, row < 3 ? (size_t)mpi.rank * (floats / 2) : 0, row < 3 ? floats / 2 : floats);
        }
    for (size_t row = 0; row < ROWS && mpi.rank == 0; row++) {
        qsort(seconds[row], (size_t)rounds, sizeof(double), by_size);
        printf("%s %.3f %.3f\n", rows[row].name, seconds[row][0], seconds[row][rounds / 2]);
    }
    mpi.close(&mpi, 0);
    return 0;
}
