/* A stand-in for libnccl.so.2, for ranks with emulated cards: it moves bytes between processes
 * through a file that they map, when the fake run-time library runs the stream.  It does no
 * arithmetic, like what the program calls of NCCL.
 *
 * GPT_TRAIN_NCCL_LIBRARY names it.  The environment configures it:
 *   GT_FAKE_NCCL_FAIL      "RANK:NAME:N:WHAT": at the n-th call of that function in that rank (of
 *                          all: -1), "fail" returns an error, "hang" never returns, "kill" ends the
 *                          process.  NAME "group" stands for the work of a group, on the stream;
 *                          there, "wrong" changes a byte that arrives
 *   GT_FAKE_NCCL_SHUFFLE   a number: each rank carries the moves of a group in an order of its own,
 *                          and pauses in between
 *   GT_FAKE_NCCL_VERSIONS  a file: the process that creates it has release 22809, the others 22708;
 *                          without it, all 22809
 *   GT_FAKE_NCCL_BYTES     device memory that a communicator takes.  Default: 1 MiB
 *   GT_FAKE_NCCL_REPORT    a file; each rank appends "RANK GROUPS MOVES BYTES" of its groups at the
 *                          end
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS, CUDA_ERROR, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE };
enum { RANKS_MAX = 8, RING_BYTES = 65536, MOVES_MAX = 64 };

/* Of the run-time library. */
int cudaLaunchHostFunc(void *stream, void (*function)(void *data), void *data);
int cudaMalloc(void **out, size_t bytes);
int cudaFree(void *memory);

typedef struct {
    char bytes[128];
} unique_id;

/* Bytes from one rank to another; counts since the start. */
struct ring {
    atomic_size_t written, read;
    char data[RING_BYTES];
};

struct shared {
    atomic_int joined;
    struct ring ring[RANKS_MAX][RANKS_MAX]; /* of the receiver and the sender */
};

struct comm {
    int rank, ranks;
    struct shared *shared;
    void *memory; /* of the device */
    struct group *groups;
};

struct move {
    char *data;
    size_t bytes;
    int peer;
    bool receives;
};

struct group {
    struct comm *comm;
    struct group *next; /* of the communicator: graphs keep them until it ends */
    int moves;
    struct move move[MOVES_MAX];
};

int ncclGetVersion(int *version);
int ncclGetUniqueId(unique_id *out);
int ncclCommInitRank(void **out, int ranks, unique_id id, int rank);
int ncclCommAbort(void *comm);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclSend(const void *from, size_t count, int type, int peer, void *comm, void *stream);
int ncclRecv(void *to, size_t count, int type, int peer, void *comm, void *stream);
const char *ncclGetErrorString(int error);

static int own_rank = -2;      /* not known yet */
static struct group *building; /* between ncclGroupStart and ncclGroupEnd */
static void *building_stream;
static unsigned random_state;
static long groups_run, moves_run, bytes_run;

static void pause_us(long us)
{
    const struct timespec time = {.tv_nsec = us * 1000};
    nanosleep(&time, NULL);
}

static unsigned random_next(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 16;
}

static bool fault_is(const char *what, const char *name)
{
    return strcmp(what, name) == 0;
}

/* Counts a call; plays the fault if it is due.  Returns what it is, "fail" or "wrong", or "". */
static const char *fault(const char *name)
{
    static struct {
        const char *name;
        long count;
    } calls[16];
    static char what[16];
    char wanted[64];
    int rank, i = 0;
    long number;
    const char *text = getenv("GT_FAKE_NCCL_FAIL");
    while (calls[i].name != NULL && strcmp(calls[i].name, name) != 0)
        i++;
    calls[i].name = name;
    calls[i].count++;
    if (text == NULL || sscanf(text, "%d:%63[^:]:%ld:%15s", &rank, wanted, &number, what) != 4 ||
        strcmp(wanted, name) != 0 || number != calls[i].count || (rank != -1 && rank != own_rank))
        return "";
    if (fault_is(what, "kill"))
        raise(SIGKILL);
    while (fault_is(what, "hang"))
        pause();
    return what;
}

#define CALL(name)                         \
    do {                                   \
        if (fault_is(fault(name), "fail")) \
            return INTERNAL_ERROR;         \
    } while (0)

int ncclGetVersion(int *version)
{
    const char *first = getenv("GT_FAKE_NCCL_VERSIONS");
    const int fd = first != NULL ? open(first, O_CREAT | O_EXCL, 0600) : -1;
    CALL("ncclGetVersion");
    *version = first == NULL || fd >= 0 ? 22809 : 22708;
    return SUCCESS;
}

int ncclGetUniqueId(unique_id *out)
{
    const char *folder = getenv("TMPDIR");
    CALL("ncclGetUniqueId");
    snprintf(out->bytes, sizeof out->bytes, "%.80s/fake-nccl-%ld", folder != NULL ? folder : "/tmp",
             (long)getpid());
    return SUCCESS;
}

static void report(void)
{
    const char *path = getenv("GT_FAKE_NCCL_REPORT");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;
    if (file == NULL)
        return;
    fprintf(file, "%d %ld %ld %ld\n", own_rank, groups_run, moves_run, bytes_run);
    fclose(file);
}

/* Maps the file; the last rank to do so removes it. */
static struct shared *shared_map(const char *path, int ranks)
{
    const int fd = open(path, O_CREAT | O_RDWR, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct shared)) != 0)
        return NULL;
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (shared == MAP_FAILED)
        return NULL;
    if (atomic_fetch_add(&shared->joined, 1) == ranks - 1)
        unlink(path);
    while (atomic_load(&shared->joined) < ranks)
        pause_us(100);
    return shared;
}

int ncclCommInitRank(void **out, int ranks, unique_id id, int rank)
{
    const char *bytes = getenv("GT_FAKE_NCCL_BYTES"), *shuffle = getenv("GT_FAKE_NCCL_SHUFFLE");
    struct comm *comm = calloc(1, sizeof *comm);
    own_rank = rank;
    random_state = shuffle != NULL ? (unsigned)atoi(shuffle) * 977u + (unsigned)rank : 0;
    CALL("ncclCommInitRank");
    if (comm == NULL || ranks > RANKS_MAX)
        return INVALID_ARGUMENT;
    comm->rank = rank;
    comm->ranks = ranks;
    comm->shared = shared_map(id.bytes, ranks);
    if (comm->shared == NULL)
        return SYSTEM_ERROR;
    if (cudaMalloc(&comm->memory, bytes != NULL ? (size_t)atol(bytes) : (size_t)1 << 20) != 0)
        return CUDA_ERROR;
    atexit(report);
    *out = comm;
    return SUCCESS;
}

int ncclCommAbort(void *data)
{
    struct comm *comm = data;
    CALL("ncclCommAbort");
    cudaFree(comm->memory);
    for (struct group *group; (group = comm->groups) != NULL; free(group))
        comm->groups = group->next;
    munmap(comm->shared, sizeof *comm->shared);
    free(comm);
    return SUCCESS;
}

/* ---- groups ---- */

/* Copies what the ring has, or has room for.  Returns true if that was anything. */
static bool move_carry(const struct comm *comm, struct move *move)
{
    struct ring *ring = move->receives ? &comm->shared->ring[comm->rank][move->peer]
                                       : &comm->shared->ring[move->peer][comm->rank];
    const size_t written = atomic_load(&ring->written), read = atomic_load(&ring->read);
    const size_t at = (move->receives ? read : written) % RING_BYTES;
    size_t count = move->receives ? written - read : RING_BYTES - (written - read);
    count = count < RING_BYTES - at ? count : RING_BYTES - at;
    count = count < move->bytes ? count : move->bytes;
    if (move->receives)
        memcpy(move->data, ring->data + at, count);
    else
        memcpy(ring->data + at, move->data, count);
    atomic_fetch_add(move->receives ? &ring->read : &ring->written, count);
    move->data += count;
    move->bytes -= count;
    return count > 0;
}

/* Returns true if an earlier move with the same peer, in the same direction, has bytes left. */
static bool is_behind(const struct group *group, int index)
{
    for (int i = 0; i < index; i++)
        if (group->move[i].bytes > 0 && group->move[i].peer == group->move[index].peer &&
            group->move[i].receives == group->move[index].receives)
            return true;
    return false;
}

/* Runs a group, which a replayed graph does many times. */
static void group_run(void *data)
{
    struct group group = *(const struct group *)data;
    char *spoiled = NULL;
    const bool wrong = fault_is(fault("group"), "wrong"), shuffled = random_state != 0;
    size_t left = 0;
    for (int i = 0; i < group.moves; i++) {
        spoiled = group.move[i].receives ? group.move[i].data : spoiled;
        left += group.move[i].bytes;
    }
    groups_run++;
    moves_run += group.moves;
    bytes_run += (long)left;
    while (left > 0) {
        const unsigned turn = shuffled ? random_next() : 0;
        bool any = false;
        left = 0;
        for (int k = 0; k < group.moves; k++) {
            const int i = (int)((turn + (unsigned)k) % (unsigned)group.moves);
            if (!is_behind(&group, i))
                any = move_carry(group.comm, &group.move[i]) || any;
            left += group.move[i].bytes;
        }
        if (!any || (shuffled && turn % 8 == 0))
            pause_us(50);
    }
    if (wrong && spoiled != NULL)
        *spoiled ^= 1;
}

int ncclGroupStart(void)
{
    CALL("ncclGroupStart");
    if (building != NULL)
        return INVALID_USAGE;
    building = calloc(1, sizeof *building);
    return building != NULL ? SUCCESS : SYSTEM_ERROR;
}

static int move_add(const struct move *move, void *comm, void *stream)
{
    if (building == NULL || building->moves == MOVES_MAX ||
        move->peer == ((struct comm *)comm)->rank ||
        (building->comm != NULL && building_stream != stream))
        return INVALID_USAGE;
    building->comm = comm;
    building_stream = stream;
    building->move[building->moves++] = *move;
    return SUCCESS;
}

int ncclSend(const void *from, size_t count, int type, int peer, void *comm, void *stream)
{
    union {
        const void *from;
        char *data;
    } end = {from};
    CALL("ncclSend");
    return type == 0 ? move_add(&(struct move){end.data, count, peer, false}, comm, stream)
                     : INVALID_ARGUMENT;
}

int ncclRecv(void *to, size_t count, int type, int peer, void *comm, void *stream)
{
    CALL("ncclRecv");
    return type == 0 ? move_add(&(struct move){to, count, peer, true}, comm, stream)
                     : INVALID_ARGUMENT;
}

int ncclGroupEnd(void)
{
    struct group *group = building;
    building = NULL;
    const bool failed = fault_is(fault("ncclGroupEnd"), "fail");
    if (group == NULL || group->moves == 0 || failed) {
        free(group);
        return failed ? INTERNAL_ERROR : INVALID_USAGE;
    }
    group->next = group->comm->groups;
    group->comm->groups = group;
    return cudaLaunchHostFunc(building_stream, group_run, group) == 0 ? SUCCESS : CUDA_ERROR;
}

const char *ncclGetErrorString(int error)
{
    static const char *const texts[] = {
        "no error",       "unhandled cuda error", "unhandled system error",
        "internal error", "invalid argument",     "invalid usage"};
    return texts[error];
}
