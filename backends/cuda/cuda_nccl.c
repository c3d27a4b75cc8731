/* Exchanges between ranks by NCCL, which moves bytes from card to card.  Sums are the program's own
 * (sum_parts).
 *
 * NCCL is not part of CUDA's toolkit, so its library is opened when ranks meet, and the few
 * declarations that are needed are written here, from nccl.h; they are the same in every release.
 * Where the library is absent, or two ranks share a card, there is no communicator, and exchanges
 * pass through host memory (exec/exec.c).
 *
 * The exchanges of a piece are one group on a stream of their own, during the sums of the piece
 * before, and part of the program's graph.  NCCL waits for a peer for ever.  So ranks meet before
 * such a program, where a late one is named while the others wait, and what NCCL does from then on
 * may last `rank_timeout` seconds (ranks_sign() ends it).
 */
#include "backends/cuda/cuda_nccl.h"

#include <dlfcn.h>

#include "backend/backend_call.h"
#include "backends/cuda/cuda_error.h"
#include "backends/cuda/cuda_memory.h"
#include "base/clock.h"
#include "base/module.h"
#include "dist/dist.h"

#define LIBRARY "libnccl.so.2"
#define VERSION_MIN 20900 /* 2.9 is the first whose calls can be captured */
#define PCI_BYTES 32
enum { NCCL_SUCCESS = 0, NCCL_INT8 = 0 };

struct nccl_id {
    char bytes[128];
};

/* The functions that we call: result, field, name in the library, parameters. */
#define NCCL_FUNCTIONS(FUNCTION)                                                       \
    FUNCTION(int, version, "ncclGetVersion", (int *out))                               \
    FUNCTION(int, id_get, "ncclGetUniqueId", (struct nccl_id * out))                   \
    FUNCTION(int, comm_init, "ncclCommInitRank",                                       \
             (void **out, int ranks, struct nccl_id id, int rank))                     \
    FUNCTION(int, comm_abort, "ncclCommAbort", (void *comm))                           \
    FUNCTION(int, group_start, "ncclGroupStart", (void))                               \
    FUNCTION(int, group_end, "ncclGroupEnd", (void))                                   \
    FUNCTION(int, send, "ncclSend",                                                    \
             (const void *, size_t count, int type, int to, void *comm, cudaStream_t)) \
    FUNCTION(int, receive, "ncclRecv",                                                 \
             (void *, size_t count, int type, int from, void *comm, cudaStream_t))     \
    FUNCTION(const char *, error_text, "ncclGetErrorString", (int error))
#define NCCL_POINTER(type, field, name, parameters) type(*field) parameters;
#define NCCL_ENTRY(type, field, name, parameters) {name, offsetof(struct cuda_nccl, field)},

struct cuda_nccl {
    struct dist *dist;
    void *comm;
    cudaStream_t stream;
    size_t free_bytes; /* before NCCL took its own */
    uint64_t context_bytes;
    NCCL_FUNCTIONS(NCCL_POINTER)
};

static const struct library_entry entries[] = {NCCL_FUNCTIONS(NCCL_ENTRY)};

static enum gt_status nccl_check(struct backend *backend, int error, const char *what)
{
    if (error == NCCL_SUCCESS)
        return GT_OK;
    const char *text = cuda_backend_of(backend)->nccl->error_text(error);
    if (cuda_capture_fail(cuda_backend_of(backend), what, text))
        return GT_DEVICE;
    return FAIL(GT_DEVICE, "cuda: NCCL: %s: %s; GPT_TRAIN_NCCL_LIBRARY= goes without NCCL", what,
                text);
}

/* What a rank tells the others of its card. */
struct card {
    int version; /* of NCCL; 0: it is absent */
    char pci[PCI_BYTES];
};

/* Writes why the ranks cannot use NCCL to `reason`; it stays empty if they can.  Errors: GT_USAGE
 * for ranks with different releases of it. */
static enum gt_status cards_check(const struct dist *dist, const struct card *all,
                                  char reason[static BACKEND_REASON_MAX])
{
    reason[0] = '\0';
    for (int32_t r = 0; r < dist->ranks && reason[0] == '\0'; r++) {
        if (all[r].version == 0)
            (void)snprintf(reason, BACKEND_REASON_MAX, "rank %" PRId32 " has no " LIBRARY, r);
        else if (all[r].version != all[0].version)
            return FAIL(GT_USAGE,
                        "rank %" PRId32 "%s%s has another version of NCCL than rank 0: %d, not %d",
                        r, dist->host[r][0] != '\0' ? " on " : "", dist->host[r], all[r].version,
                        all[0].version);
        for (int32_t other = 0; other < r; other++)
            if (strcmp(all[r].pci, all[other].pci) == 0 &&
                strcmp(dist->host[r], dist->host[other]) == 0)
                (void)snprintf(reason, BACKEND_REASON_MAX,
                               "ranks %" PRId32 " and %" PRId32 " share a card", other, r);
    }
    return GT_OK;
}

/* Opens NCCL's library, or the one that GPT_TRAIN_NCCL_LIBRARY names.  Returns the library's
 * release, or 0 if the rank cannot use one. */
static int library_open(struct cuda_nccl *nccl)
{
    const char *named = getenv("GPT_TRAIN_NCCL_LIBRARY");
    void *library = dlopen(named != NULL ? named : LIBRARY, RTLD_NOW | RTLD_LOCAL);
    int version;
    if (library == NULL ||
        library_table(library, entries, sizeof entries / sizeof entries[0], nccl) != NULL ||
        nccl->version(&version) != NCCL_SUCCESS || version < VERSION_MIN)
        return 0;
    return version;
}

static enum gt_status comm_create(struct backend *backend, struct dist *dist)
{
    struct cuda_nccl *nccl = cuda_backend_of(backend)->nccl;
    struct nccl_id id = {""}, ids[DIST_RANKS_MAX];
    size_t total;
    if (dist->local_ranks == dist->ranks) /* let it open sockets on this machine only */
        (void)setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    (void)setenv("NCCL_GRAPH_REGISTER", "0",
                 0); /* it would take memory when a program is recorded */
    TRY(cuda_check(backend, cudaMemGetInfo(&nccl->free_bytes, &total), "asking for free memory"));
    TRY(cuda_check(backend, cudaStreamCreateWithFlags(&nccl->stream, cudaStreamNonBlocking),
                   "making a stream"));
    TRY(cuda_memory_events_create(backend));
    if (dist->rank == 0)
        TRY(nccl_check(backend, nccl->id_get(&id), "making an id"));
    dist_gather(dist, &id, sizeof id, ids);
    return nccl_check(backend, nccl->comm_init(&nccl->comm, dist->ranks, ids[0], dist->rank),
                      "joining the ranks");
}

static enum gt_status cards_join(struct backend *backend, struct dist *dist)
{
    const struct cuda_backend *cuda = cuda_backend_of(backend);
    struct card mine = {0}, all[DIST_RANKS_MAX];
    char reason[BACKEND_REASON_MAX];
    mine.version = library_open(cuda->nccl);
    TRY(cuda_check(backend, cudaDeviceGetPCIBusId(mine.pci, sizeof mine.pci, cuda->device),
                   "asking for the card"));
    dist_gather(dist, &mine, sizeof mine, all);
    TRY(cards_check(dist, all, reason));
    if (reason[0] != '\0') {
        log_note("cuda: exchanges pass through host memory: %s", reason);
        return GT_OK;
    }
    (void)snprintf(dist->carrier, sizeof dist->carrier, "NCCL %d.%d.%d", mine.version / 10000,
                   mine.version / 100 % 100, mine.version % 100);
    return comm_create(backend, dist);
}

/* Begins, or ends, what may not last longer than rank_timeout.  Returns true if that had begun
 * before. */
static bool limit_set(const struct cuda_nccl *nccl, bool begins)
{
    return atomic_exchange(&nccl->dist->limited, begins);
}

enum gt_status cuda_nccl_join(struct backend *backend, struct dist *dist)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda->nccl = calloc(1, sizeof *cuda->nccl);
    if (cuda->nccl == NULL)
        return FAIL(GT_NO_MEMORY, "cuda: no memory for %zu B", sizeof *cuda->nccl);
    cuda->nccl->dist = dist;
    cuda->nccl->context_bytes = cuda->context_bytes;
    (void)limit_set(cuda->nccl, true);
    const enum gt_status status = cards_join(backend, dist);
    (void)limit_set(cuda->nccl, false);
    return status;
}

void cuda_nccl_close(struct cuda_backend *cuda)
{
    struct cuda_nccl *nccl = cuda->nccl;
    if (nccl != NULL && nccl->comm != NULL) {
        (void)limit_set(nccl, true);
        (void)nccl->comm_abort(nccl->comm); /* does not wait for ranks that have ended */
        (void)limit_set(nccl, false);
    }
    if (nccl != NULL && nccl->stream != NULL)
        (void)cudaStreamDestroy(nccl->stream);
    free(nccl);
}

/* ---- exchanges ---- */

static bool exchange_supported(const struct backend *backend, const struct op_call *call)
{
    (void)call;
    return cuda_from(backend)->nccl != NULL && cuda_from(backend)->nccl->comm != NULL;
}

/* Adds a send and a receive to the group.  Where one of them has no bytes, the peer leaves its end
 * out as well. */
static int pass_add(const struct cuda_nccl *nccl, const struct backend_pass *pass)
{
    int error = NCCL_SUCCESS;
    if (pass->sent > 0)
        error = nccl->send(pass->out, pass->sent, NCCL_INT8, pass->to, nccl->comm, nccl->stream);
    if (pass->received > 0 && error == NCCL_SUCCESS)
        error = nccl->receive(pass->in, pass->received, NCCL_INT8, pass->from, nccl->comm,
                              nccl->stream);
    return error;
}

/* Enqueues the passes on NCCL's stream, as one group.  Errors: GT_DEVICE. */
static enum gt_status group_start(struct backend *backend, const struct backend_pass *passes,
                                  size_t count, const char *what)
{
    const struct cuda_nccl *nccl = cuda_backend_of(backend)->nccl;
    const bool limited = limit_set(nccl, true);
    int error = nccl->group_start();
    for (size_t i = 0; i < count && error == NCCL_SUCCESS; i++)
        error = pass_add(nccl, &passes[i]);
    const int ended = nccl->group_end();
    (void)limit_set(nccl, limited);
    return nccl_check(backend, error != NCCL_SUCCESS ? error : ended, what);
}

static struct backend_pass pass_of(const struct backend *backend, const struct op_call *call)
{
    return (struct backend_pass){.to = call->attrs.to,
                                 .from = call->attrs.from,
                                 .out = cuda_operand(backend, call, EXCHANGE_X),
                                 .in = cuda_operand(backend, call, EXCHANGE_Y),
                                 .sent = operand_bytes(&call->operand[EXCHANGE_X]),
                                 .received = operand_bytes(&call->operand[EXCHANGE_Y])};
}

/* Returns by how many ranks an exchange shifts bytes. */
static int32_t shift_of(const struct dist *dist, const struct op_call *call)
{
    return (call->attrs.to - dist->rank + dist->ranks) % dist->ranks;
}

size_t cuda_exchanges_alike(const struct backend *backend, const struct op_call *calls,
                            size_t count)
{
    const struct dist *dist = cuda_from(backend)->nccl->dist;
    size_t alike = 1;
    while (alike < count && calls[alike].kind == OP_EXCHANGE &&
           shift_of(dist, &calls[alike - 1]) < shift_of(dist, &calls[alike]))
        alike++;
    return alike;
}

enum gt_status cuda_exchanges_start(struct backend *backend, const struct op_call *calls,
                                    size_t count)
{
    const struct cuda_nccl *nccl = cuda_backend_of(backend)->nccl;
    struct backend_pass passes[DIST_RANKS_MAX];
    assert(count < DIST_RANKS_MAX); /* a group has one exchange with each other rank */
    for (size_t i = 0; i < count; i++)
        passes[i] = pass_of(backend, &calls[i]);
    TRY(cuda_memory_copy_fork(backend, nccl->stream));
    TRY(group_start(backend, passes, count, "starting an exchange"));
    for (size_t i = 0; i < count; i++)
        TRY(cuda_memory_copy_mark(backend, &calls[i], nccl->stream));
    return GT_OK;
}

static enum gt_status exchange_run(struct backend *backend, const struct op_call *call)
{
    return cuda_exchanges_start(backend, call, 1);
}

const struct op_impl cuda_exchange = {.supports = exchange_supported, .run = exchange_run};

enum gt_status cuda_nccl_together(struct backend *backend, const struct op_call *calls,
                                  size_t count, cuda_calls_start *start)
{
    size_t first = exchange_supported(backend, calls) ? 0 : count;
    while (first < count && calls[first].kind != OP_EXCHANGE)
        first++;
    if (first == count || count == 1) /* op by op, ranks have different numbers of exchanges */
        return start(backend, calls, count);
    const struct cuda_nccl *nccl = cuda_backend_of(backend)->nccl;
    TRY(backend->ops->sync(backend));
    if (backend->record != NULL)
        atomic_store(&backend->record->op, OP_EXCHANGE);
    dist_gather(nccl->dist, &first, 0, &first);
    (void)limit_set(nccl, true);
    TRY(start(backend, calls, count)); /* after an error the limit is for the end of the process */
    TRY(backend->ops->sync(backend));
    (void)limit_set(nccl, false);
    return GT_OK;
}

/* Passes bytes between device memory, and measures that. */
static enum gt_status memory_pass(struct backend *backend, const struct backend_pass *pass,
                                  char *memory, double *seconds)
{
    const struct cuda_nccl *nccl = cuda_backend_of(backend)->nccl;
    const struct backend_pass own = {pass->to,   pass->from,    memory, memory + pass->sent,
                                     pass->sent, pass->received};
    /* A copy of pageable memory may end after the call, and NCCL's stream waits for no other. */
    TRY(cuda_check(backend,
                   cudaMemcpyAsync(memory, pass->out, pass->sent, cudaMemcpyDefault, nccl->stream),
                   "uploading a proof"));
    TRY(cuda_check(backend, cudaStreamSynchronize(nccl->stream), "uploading a proof"));
    dist_gather(nccl->dist, memory, 0, memory);
    const int64_t begin_ns = clock_monotonic_ns();
    TRY(group_start(backend, &own, 1, "starting a proof"));
    TRY(cuda_check(backend, cudaStreamSynchronize(nccl->stream), "waiting for a proof"));
    *seconds = (double)(clock_monotonic_ns() - begin_ns) * 1e-9;
    return cuda_check(backend, cudaMemcpy(pass->in, own.in, pass->received, cudaMemcpyDefault),
                      "downloading a proof");
}

enum gt_status cuda_nccl_pass(struct backend *backend, const struct backend_pass *pass,
                              double *seconds)
{
    struct cuda_backend *cuda = cuda_backend_of(backend);
    size_t free_bytes, total;
    void *memory;
    TRY(cuda_check(backend, cudaMalloc(&memory, pass->sent + pass->received),
                   "allocating memory for a proof"));
    (void)limit_set(cuda->nccl, true);
    const enum gt_status status = memory_pass(backend, pass, memory, seconds);
    (void)limit_set(cuda->nccl, false);
    (void)cudaFree(memory);
    TRY(status);
    TRY(cuda_check(backend, cudaMemGetInfo(&free_bytes, &total), "asking for free memory"));
    const uint64_t used = cuda->nccl->free_bytes - size_min(cuda->nccl->free_bytes, free_bytes);
    if (used < CUDA_CONTEXT_BYTES_MAX)
        cuda->context_bytes = cuda->nccl->context_bytes + used;
    return GT_OK;
}
