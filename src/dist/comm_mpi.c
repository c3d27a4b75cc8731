/* The module gpt-train-mpi.so: moves between ranks through MPI.
 *
 * One thread makes all calls of MPI, which therefore needs no more than MPI_THREAD_FUNNELED.  It
 * posts the moves that were started, tests those in progress, and four times per second sends a
 * sign of life, which says what the rank does, to rank 0, or from rank 0 to rank 1.  It polls
 * without a pause only while the program waits.  Of the program it calls only dist->tick().
 */
#include <config.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "dist/dist.h"

#define SIGN_SECONDS 0.25
#define TICK_SECONDS 0.05
#define PAUSE_NS 50000  /* between polls while moves are in progress and the program computes */
#define IDLE_NS 1000000 /* between polls while no moves are in progress */
/* Polls have no pause if the program was seen waiting within this time, and a move was posted or
 * done within MOVING_SECONDS. */
#define WAITING_SECONDS 0.001
#define MOVING_SECONDS 0.1
#define FAILED_SECONDS 10 /* in which rank 0 has to end all ranks after another has failed */
/* Time for MPI to start, and to end.  SIGALRM ends a rank whose MPI hangs for longer. */
#define ALARM_SECONDS 60

enum { TAG_MOVE, TAG_SIGN };

/* A sign of life. */
struct sign {
    int64_t iter;
    int32_t waits_for; /* a rank; -1: it does not wait */
    int32_t code;
    char what[DIST_NAME_BYTES];
    char error[DIST_ERROR_BYTES];
};

enum phase { OPENING, RUNNING, CLOSING };

static struct {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;    /* the phase, or what the thread is to do */
    _Atomic(enum phase) phase; /* set under the mutex */
    atomic_uint waits;         /* how often the program asked for progress */
    MPI_Request requests[DIST_MOVES_MAX];
    uint64_t posted; /* moves before this one have been posted to MPI */
    struct sign sent, said[DIST_RANKS_MAX];
    MPI_Request sending;
    double signed_s, ticked_s, failed_s;
} world = {.mutex = PTHREAD_MUTEX_INITIALIZER,
           .changed = PTHREAD_COND_INITIALIZER,
           .sending = MPI_REQUEST_NULL};

/* ---- the thread ---- */

/* Posts the moves that were started and tests those in progress.  Returns true if any are in
 * progress. */
static bool moves_carry(struct dist *dist)
{
    const uint64_t started = dist->started;
    bool busy = false;
    for (; world.posted < started; world.posted++) {
        const struct dist_move *move = &dist->moves[world.posted % DIST_MOVES_MAX];
        MPI_Request *request = &world.requests[world.posted % DIST_MOVES_MAX];
        if (move->receive)
            MPI_Irecv(move->data, (int)move->bytes, MPI_BYTE, move->peer, TAG_MOVE, MPI_COMM_WORLD,
                      request);
        else
            MPI_Isend(move->data, (int)move->bytes, MPI_BYTE, move->peer, TAG_MOVE, MPI_COMM_WORLD,
                      request);
    }
    for (uint64_t i = dist->done; i < started; i++) {
        int done;
        if (atomic_load(&dist->moves[i % DIST_MOVES_MAX].done))
            continue;
        MPI_Test(&world.requests[i % DIST_MOVES_MAX], &done, MPI_STATUS_IGNORE);
        if (done)
            atomic_store(&dist->moves[i % DIST_MOVES_MAX].done, true);
        busy = true;
    }
    return busy;
}

static void sign_send(const struct dist *dist, double now_s)
{
    struct dist_seat *seat = &dist->seat[dist->rank];
    const char *what = atomic_load(&seat->what);
    int done;
    MPI_Test(&world.sending, &done, MPI_STATUS_IGNORE);
    if (!done || now_s - world.signed_s < SIGN_SECONDS || dist->ranks == 1)
        return;
    world.signed_s = now_s;
    world.sent.iter = atomic_load(&seat->iter);
    world.sent.waits_for =
        atomic_load(&seat->waits_since_ns) != 0 ? atomic_load(&seat->waits_for) : -1;
    world.sent.code = atomic_load(&seat->code);
    (void)snprintf(world.sent.what, sizeof world.sent.what, "%s",
                   what != NULL ? what : "its start");
    (void)snprintf(world.sent.error, sizeof world.sent.error, "%s", seat->error);
    MPI_Isend(&world.sent, sizeof world.sent, MPI_BYTE, dist->rank == 0, TAG_SIGN, MPI_COMM_WORLD,
              &world.sending);
}

static void signs_receive(const struct dist *dist)
{
    MPI_Status status;
    for (int there = 1; there;) {
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_SIGN, MPI_COMM_WORLD, &there, &status);
        if (!there)
            return;
        struct sign *sign = &world.said[status.MPI_SOURCE];
        struct dist_seat *seat = &dist->seat[status.MPI_SOURCE];
        MPI_Recv(sign, sizeof *sign, MPI_BYTE, status.MPI_SOURCE, TAG_SIGN, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        atomic_store(&seat->iter, sign->iter);
        atomic_store(&seat->what, sign->what);
        atomic_store(&seat->waits_for, sign->waits_for);
        atomic_store(&seat->waits_since_ns, sign->waits_for >= 0);
        memcpy(seat->error, sign->error, sizeof seat->error);
        atomic_store(&seat->code, sign->code);
        atomic_fetch_add(&seat->signs, 1);
    }
}

/* Sends and receives signs of life, and ends all ranks if one has failed. */
static void life_poll(struct dist *dist, double now_s)
{
    const int code = atomic_load(&dist->seat[dist->rank].code);
    sign_send(dist, now_s);
    signs_receive(dist);
    if (code != 0 && world.failed_s <= 0.0)
        world.failed_s = now_s;
    if (code != 0 && (dist->rank == 0 || now_s - world.failed_s > FAILED_SECONDS))
        MPI_Abort(MPI_COMM_WORLD, code);
    if (now_s - world.ticked_s < TICK_SECONDS)
        return;
    world.ticked_s = now_s;
    const int tick_code = dist->tick(dist);
    if (tick_code != 0)
        MPI_Abort(MPI_COMM_WORLD, tick_code);
}

static void phase_set(enum phase phase)
{
    pthread_mutex_lock(&world.mutex);
    atomic_store(&world.phase, phase);
    pthread_cond_signal(&world.changed);
    pthread_mutex_unlock(&world.mutex);
}

/* Sleeps until the program starts a move or waits, or for IDLE_NS. */
static void idle(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += IDLE_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&world.mutex);
    (void)pthread_cond_timedwait(&world.changed, &world.mutex, &until);
    pthread_mutex_unlock(&world.mutex);
}

static void world_open(struct dist *dist)
{
    MPI_Comm local;
    int provided, length;
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &dist->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &dist->ranks);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, dist->rank, MPI_INFO_NULL, &local);
    MPI_Comm_rank(local, &dist->local_rank);
    MPI_Comm_size(local, &dist->local_ranks);
    MPI_Comm_free(&local);
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = '\0';
    for (char *tab = library; (tab = strchr(tab, '\t')) != NULL;) /* in MPICH's */
        *tab = ' ';
    (void)snprintf(dist->carrier, sizeof dist->carrier, "%.60s", library);
}

static void *thread_run(void *argument)
{
    struct dist *dist = argument;
    unsigned waits = 0;
    double moved_s = 0.0,
           waited_s =
               0.0; /* when a move was last posted or done, and the program last seen waiting */
    (void)alarm(ALARM_SECONDS);
    world_open(dist);
    (void)alarm(0);
    phase_set(RUNNING);
    while (atomic_load(&world.phase) == RUNNING) {
        const struct timespec pause = {.tv_nsec = PAUSE_NS};
        const uint64_t posted = world.posted, done = dist->done;
        const unsigned now = atomic_load(&world.waits);
        const bool busy = moves_carry(dist);
        const double now_s = MPI_Wtime();
        life_poll(dist, now_s);
        moved_s = posted != world.posted || done != dist->done ? now_s : moved_s;
        waited_s = waits != now ? now_s : waited_s;
        waits = now;
        if (!busy)
            idle();
        else if (now_s - moved_s < MOVING_SECONDS && now_s - waited_s < WAITING_SECONDS)
            (void)sched_yield();
        else
            (void)nanosleep(&pause, NULL);
    }
    (void)alarm(ALARM_SECONDS);
    MPI_Finalize();
    (void)alarm(0);
    return NULL;
}

/* ---- the program's side ---- */

static bool mpi_progress(struct dist *dist)
{
    (void)dist;
    if (atomic_fetch_add(&world.waits, 1) % 64 == 0)
        pthread_cond_signal(&world.changed);
    return false;
}

static void mpi_close(struct dist *dist, int code)
{
    if (code != 0)
        atomic_store(&dist->seat[dist->rank].code, code);
    else
        phase_set(CLOSING);
    (void)pthread_join(world.thread, NULL);
}

static bool mpi_open(struct dist *dist)
{
    sigset_t all, old;
    dist->progress = mpi_progress;
    dist->close = mpi_close;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old); /* handlers run on the thread that installed them */
    const bool started = pthread_create(&world.thread, NULL, thread_run, dist) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_mutex_lock(&world.mutex);
    while (started && atomic_load(&world.phase) == OPENING)
        pthread_cond_wait(&world.changed, &world.mutex);
    pthread_mutex_unlock(&world.mutex);
    return started;
}

extern const struct comm_module gpt_train_module;
const struct comm_module gpt_train_module = {{COMM_MODULE_ABI, PACKAGE_VERSION}, mpi_open};
