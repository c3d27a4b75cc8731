/* Preloaded into ranks: kills, stops or hangs one of them at a call that carries bytes, or makes
 * such a call fail.
 *
 * RANK_FAULT=RANK:CALL:NUMBER:WHAT; WHAT is kill, stop, hang or fail.  The CALL "copy" stands for
 * each copy into or out of the memory that forked ranks share, "fork" and "mmap" for the calls that
 * make ranks and that memory, "fsync" and "rename" for those of a save; compiled with mpicc
 * -DWITH_MPI, each function of MPI that the module calls goes by its name. The process that forks
 * ranks is rank -1.  RANK_COUNTS names a file to which each rank that ends by exit() appends "RANK
 * CALL NUMBER" for each call, and "RANK arena BYTES" of its largest private mapping.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum call {
    COPY,
    FORK,
    MMAP,
    FSYNC,
    RENAME,
    INIT,
    SPLIT,
    ISEND,
    IRECV,
    TEST,
    IPROBE,
    RECV,
    FINALIZE,
    CALLS
};

static const char *const names[CALLS] = {"copy",
                                         "fork",
                                         "mmap",
                                         "fsync",
                                         "rename",
                                         "MPI_Init_thread",
                                         "MPI_Comm_split_type",
                                         "MPI_Isend",
                                         "MPI_Irecv",
                                         "MPI_Test",
                                         "MPI_Iprobe",
                                         "MPI_Recv",
                                         "MPI_Finalize"};
static int rank = -1, forks;
static long counts[CALLS];
static char *block;
static size_t block_bytes, arena_bytes;

/* Counts the call and plays the fault if it is due.  Returns 1 if the call must fail. */
static int fault(enum call call)
{
    char name[64], what[16];
    int of;
    long number;
    const char *text = getenv("RANK_FAULT");
    counts[call]++;
    if (text == NULL || sscanf(text, "%d:%63[^:]:%ld:%15s", &of, name, &number, what) != 4 ||
        of != rank || strcmp(name, names[call]) != 0 || number != counts[call])
        return 0;
    if (strcmp(what, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(what, "stop") == 0)
        raise(SIGSTOP);
    while (strcmp(what, "hang") == 0)
        pause();
    return strcmp(what, "fail") == 0;
}

__attribute__((destructor)) static void counts_tell(void)
{
    const char *path = getenv("RANK_COUNTS");
    FILE *file = path != NULL && rank >= 0 ? fopen(path, "a") : NULL;
    for (int call = 0; file != NULL && call < CALLS; call++)
        if (counts[call] > 0)
            fprintf(file, "%d %s %ld\n", rank, names[call], counts[call]);
    if (file != NULL) {
        fprintf(file, "%d arena %zu\n", rank, arena_bytes);
        fclose(file);
    }
}

/* ---- forked ranks ---- */

pid_t fork(void)
{
    pid_t (*const real)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
    if (fault(FORK)) {
        errno = EAGAIN;
        return -1;
    }
    const int number = forks++;
    const pid_t pid = real();
    if (pid == 0)
        rank = number;
    return pid;
}

void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    void *(*const real)(void *, size_t, int, int, int, off_t) =
        (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap64");
    const int shared = (flags & MAP_SHARED) != 0 && (flags & MAP_ANONYMOUS) != 0;
    if (shared && fault(MMAP)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    if (!shared && rank >= 0 && flags == (MAP_PRIVATE | MAP_ANONYMOUS) && bytes > arena_bytes)
        arena_bytes = bytes;
    char *found = real(at, bytes, protection, flags, fd, offset);
    if (shared && found != MAP_FAILED) {
        block = found;
        block_bytes = bytes;
    }
    return found;
}

static int inside(const void *at)
{
    return block != NULL && (const char *)at >= block && (const char *)at < block + block_bytes;
}

void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
    if (rank >= 0 && bytes > 0 && (inside(to) || inside(from)))
        fault(COPY);
    return memmove(to, from, bytes);
}

/* ---- saves ---- */

int fsync(int fd)
{
    int (*const real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    fault(FSYNC);
    return real(fd);
}

int rename(const char *from, const char *to)
{
    int (*const real)(const char *, const char *) =
        (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    fault(RENAME);
    return real(from, to);
}

/* ---- MPI ---- */

#ifdef WITH_MPI
#include <mpi.h>

/* Does what MPI does about an error: calls the communicator's handler, which by default ends all
 * ranks. */
static int failed(enum call call)
{
    if (fault(call))
        MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_OTHER);
    return 0;
}

#define WRAP(call, name, parameters, ...) \
    int MPI_##name parameters             \
    {                                     \
        failed(call);                     \
        return PMPI_##name(__VA_ARGS__);  \
    }

int MPI_Init_thread(int *count, char ***words, int required, int *provided)
{
    const char *of = getenv("OMPI_COMM_WORLD_RANK") != NULL ? getenv("OMPI_COMM_WORLD_RANK")
                                                            : getenv("PMI_RANK");
    rank = of != NULL ? atoi(of) : -1;
    return fault(INIT) ? MPI_ERR_OTHER : PMPI_Init_thread(count, words, required, provided);
}

WRAP(SPLIT, Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out), comm,
     type, key, info, out)
WRAP(ISEND, Isend,
     (const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
      MPI_Request *out),
     data, count, type, to, tag, comm, out)
WRAP(IRECV, Irecv,
     (void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *out),
     data, count, type, from, tag, comm, out)
WRAP(TEST, Test, (MPI_Request * request, int *done, MPI_Status *status), request, done, status)
WRAP(IPROBE, Iprobe, (int from, int tag, MPI_Comm comm, int *there, MPI_Status *status), from, tag,
     comm, there, status)
WRAP(RECV, Recv,
     (void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
      MPI_Status *status),
     data, count, type, from, tag, comm, status)
WRAP(FINALIZE, Finalize, (void), )
#endif
