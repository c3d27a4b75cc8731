/* Choosing between cuBLASLt's algorithms: identities, the list that is kept, and the timing of candidates.
 *
 * Candidates are timed on the operands of the call, in the arena, while programs are bound: there is nothing in it yet.
 * Another one than the library's first is taken when it is faster by more than what two timings differ by.  The list is one
 * file of the user's cache for each card, made for one driver and one library; what another one has made is ignored.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "backends/cuda/cuda_gemm_tune.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/user_cache.h"

#define GAIN_MIN 0.03
#define CANDIDATE_SECONDS 0.02
#define RUNS_MAX 20
#define LINE_BYTES 34 /* two identities of 16 digits */

static const struct user_cache tunings = {
    .folder = "cuda",
    .magic = "GTCUDAT1",
    .suffix = ".tuning",
    .otherwise = "products have cuBLASLt's first algorithms until --tune=True times them again",
    .bytes_max = (uint64_t)4 << 20,
    .file_bytes_max = (uint64_t)256 << 10,
};
_Static_assert(CUDA_CHOICES_MAX *LINE_BYTES < 200 << 10, "a full list fits a file");

/* Never 0, which means none. */
static uint64_t identity_of(const void *bytes, size_t count)
{
    const uint64_t hash = hash_fnv1a(bytes, count);
    return hash != 0 ? hash : 1;
}

uint64_t cuda_gemm_key_identity(const struct cuda_gemm_key *key)
{
    return identity_of(key, sizeof *key);
}

uint64_t cuda_algorithm_identity(const cublasLtMatmulAlgo_t *algorithm)
{
    return identity_of(algorithm, sizeof *algorithm);
}

uint64_t cuda_choices_find(const struct cuda_choices *choices, uint64_t call)
{
    for (int32_t i = 0; i < choices->count; i++) {
        if (choices->at[i].call == call)
            return choices->at[i].algorithm;
    }
    return 0;
}

void cuda_choices_put(struct cuda_choices *choices, uint64_t call, uint64_t algorithm)
{
    int32_t at = 0;
    while (at < choices->count && choices->at[at].call != call)
        at++;
    if (at == CUDA_CHOICES_MAX)
        return;
    choices->at[at] = (struct backend_choice){.call = call, .algorithm = algorithm};
    choices->count += at == choices->count;
}

/* What a list is kept under, and what it was made for. */
static void names_of(const struct cuda_backend *cuda, char name[static USER_CACHE_KEY_MAX],
                     char key[static USER_CACHE_KEY_MAX])
{
    snprintf(name, USER_CACHE_KEY_MAX, "%s, capability %" PRId32 "%s", cuda->name, cuda->capability,
             cuda->tf32 ? ", TF32" : "");
    snprintf(key, USER_CACHE_KEY_MAX,
             "%s, driver for CUDA %" PRId32 ", CUDA %" PRId32 ", cuBLASLt %zu, " PACKAGE_STRING, name, cuda->driver,
             cuda->runtime, cuda_gemm_library_version());
}

/* Lines of two identities; false, and nothing taken, where one is something else. */
static bool lines_parse(const char *text, size_t bytes, struct cuda_choices *out)
{
    struct cuda_choices *choices = calloc(1, sizeof *choices);
    bool good = choices != NULL && bytes % LINE_BYTES == 0 && bytes / LINE_BYTES <= CUDA_CHOICES_MAX;
    for (size_t at = 0; good && at < bytes; at += LINE_BYTES) {
        char line[LINE_BYTES + 1] = "", *end, *last;
        memcpy(line, text + at, LINE_BYTES);
        const uint64_t call = strtoull(line, &end, 16), algorithm = strtoull(end, &last, 16);
        good = end == line + 16 && *end == ' ' && last == line + LINE_BYTES - 1 && *last == '\n' && algorithm != 0;
        cuda_choices_put(choices, call, algorithm);
    }
    if (good)
        *out = *choices;
    free(choices);
    return good;
}

void cuda_tuning_load(struct cuda_backend *cuda)
{
    char name[USER_CACHE_KEY_MAX], key[USER_CACHE_KEY_MAX];
    struct cuda_tuning *tuning = cuda_gemm_tuning(cuda);
    void *text = NULL;
    size_t bytes = 0;
    names_of(cuda, name, key);
    if (!user_cache_load(&tunings, name, key, &text, &bytes))
        return;
    if (!lines_parse(text, bytes, &tuning->kept))
        log_note("cuda: the list of algorithms of %s is not one of ours; %s", cuda->name, tunings.otherwise);
    free(text);
}

static bool kept_store(const struct cuda_backend *cuda, const struct cuda_choices *kept)
{
    char name[USER_CACHE_KEY_MAX], key[USER_CACHE_KEY_MAX];
    const size_t bytes = (size_t)kept->count * LINE_BYTES;
    char *text = malloc(bytes + 1);
    bool stored = false;
    names_of(cuda, name, key);
    for (int32_t i = 0; text != NULL && i < kept->count; i++)
        snprintf(text + (size_t)i * LINE_BYTES, LINE_BYTES + 1, "%016" PRIx64 " %016" PRIx64 "\n", kept->at[i].call,
                 kept->at[i].algorithm);
    if (text != NULL)
        stored = user_cache_store(&tunings, name, key, text, bytes);
    free(text);
    return stored;
}

void cuda_tuning_store(struct cuda_backend *cuda)
{
    struct cuda_tuning *tuning = cuda_gemm_tuning(cuda);
    if (tuning->timed == 0)
        return;
    const bool kept = kept_store(cuda, &tuning->kept);
    log_note("cuda: %" PRId32 " products timed, %" PRId32
             " of them have a faster algorithm than cuBLASLt's first, by up to "
             "%.0f %%; %s",
             tuning->timed, tuning->faster, 100.0 * tuning->gain_most,
             kept ? "kept for later runs" : "the user's cache cannot be written to, so that later runs do without");
    tuning->timed = tuning->faster = 0;
    tuning->gain_most = 0.0;
}

static int32_t candidate_find(const cublasLtMatmulHeuristicResult_t *candidates, int32_t count, uint64_t algorithm)
{
    for (int32_t i = 0; i < count; i++) {
        if (cuda_algorithm_identity(&candidates[i].algo) == algorithm)
            return i;
    }
    return -1;
}

int32_t cuda_tuning_pick(struct cuda_backend *cuda, const struct cuda_gemm_key *key,
                         const cublasLtMatmulHeuristicResult_t *candidates, int32_t count, bool *known)
{
    struct cuda_tuning *tuning = cuda_gemm_tuning(cuda);
    const uint64_t call = cuda_gemm_key_identity(key);
    const uint64_t stored = cuda_choices_find(&tuning->stored, call), kept = cuda_choices_find(&tuning->kept, call);
    const int32_t of_stored = stored != 0 ? candidate_find(candidates, count, stored) : -1;
    const int32_t of_kept = kept != 0 ? candidate_find(candidates, count, kept) : -1;
    *known = of_stored >= 0 || of_kept >= 0;
    if (of_stored >= 0)
        return of_stored;
    return of_kept >= 0 ? of_kept : 0;
}

/* Seconds of one run, of `runs` in a row. */
static enum gt_status runs_time(struct cuda_backend *cuda, const struct cuda_gemm_trial *trial, int32_t candidate,
                                int32_t runs, const cudaEvent_t events[2], double *out)
{
    struct backend *backend = &cuda->base;
    const cublasLtMatmulHeuristicResult_t *found = &trial->candidates[candidate];
    float ms = 0.0f;
    TRY(cuda_check(backend, cudaEventRecord(events[0], trial->stream), "timing a product"));
    for (int32_t i = 0; i < runs; i++)
        TRY(trial->start(cuda, &found->algo, found->workspaceSize, trial->context));
    TRY(cuda_check(backend, cudaEventRecord(events[1], trial->stream), "timing a product"));
    TRY(cuda_check(backend, cudaEventSynchronize(events[1]), "timing a product"));
    TRY(cuda_check(backend, cudaEventElapsedTime(&ms, events[0], events[1]), "timing a product"));
    *out = (double)ms * 1e-3 / runs;
    return GT_OK;
}

/* Once to load what it needs, once to see how long it takes, and as often as the time allows. */
static enum gt_status candidate_time(struct cuda_backend *cuda, const struct cuda_gemm_trial *trial, int32_t candidate,
                                     const cudaEvent_t events[2], double *out)
{
    double seconds = 0.0;
    TRY(runs_time(cuda, trial, candidate, 1, events, &seconds));
    TRY(runs_time(cuda, trial, candidate, 1, events, &seconds));
    const double runs = seconds > 0.0 ? CANDIDATE_SECONDS / seconds : RUNS_MAX;
    if (runs >= 2.0)
        TRY(runs_time(cuda, trial, candidate, runs < RUNS_MAX ? (int32_t)runs : RUNS_MAX, events, &seconds));
    *out = seconds;
    return GT_OK;
}

static enum gt_status candidates_time(struct cuda_backend *cuda, const struct cuda_gemm_trial *trial,
                                      const cudaEvent_t events[2], int32_t *out_best)
{
    struct cuda_tuning *tuning = cuda_gemm_tuning(cuda);
    double first = 0.0, best_seconds = 0.0;
    int32_t best = 0;
    for (int32_t i = 0; i < trial->count; i++) {
        double seconds = 0.0;
        TRY(candidate_time(cuda, trial, i, events, &seconds));
        first = i == 0 ? seconds : first;
        if (i == 0 || (seconds < best_seconds && seconds < first * (1.0 - GAIN_MIN))) {
            best = i;
            best_seconds = seconds;
        }
    }
    const double gain = first > 0.0 ? 1.0 - best_seconds / first : 0.0;
    tuning->timed++;
    tuning->faster += best > 0;
    tuning->gain_most = gain > tuning->gain_most ? gain : tuning->gain_most;
    cuda_choices_put(&tuning->kept, cuda_gemm_key_identity(trial->key),
                     cuda_algorithm_identity(&trial->candidates[best].algo));
    *out_best = best;
    return GT_OK;
}

enum gt_status cuda_tuning_measure(struct cuda_backend *cuda, const struct cuda_gemm_trial *trial, int32_t *out_best)
{
    struct backend *backend = &cuda->base;
    cudaEvent_t events[2] = {NULL, NULL};
    enum gt_status status = GT_OK;
    for (int i = 0; i < 2 && status == GT_OK; i++)
        status = cuda_check(backend, cudaEventCreateWithFlags(&events[i], cudaEventDefault), "making an event");
    if (status == GT_OK)
        status = candidates_time(cuda, trial, events, out_best);
    for (int i = 0; i < 2; i++) {
        if (events[i] != NULL)
            (void)cudaEventDestroy(events[i]);
    }
    return status;
}
