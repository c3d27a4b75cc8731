/* Choices of algorithms and of launch shapes: their identities, the stored list, and the timings.
 *
 * Candidates are timed on the operands of the call, in the arena, while programs are bound (cuda_trial.c).  The list is
 * one file of the user's cache for each card, made for one driver and one library; a list made for others is ignored.
 */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "backends/cuda/cuda_tuning.h"

#include "backends/cuda/cuda_gemm_cache.h"
#include "backends/cuda/cuda_shapes.h"
#include "base/user_cache.h"

static const struct user_cache tunings = {
    .folder = "cuda",
    .magic = "GTCUDAT4",
    .suffix = ".tuning",
    .otherwise = "products have cuBLASLt's first algorithms until --tune=True times them again",
    .bytes_max = (uint64_t)4 << 20,
    .file_bytes_max = (uint64_t)256 << 10,
};
_Static_assert(sizeof(struct cuda_kept) < 200 << 10, "it fits a file");

#define SECONDS_MIN 1e-9

uint64_t cuda_choices_find(const struct cuda_choices *choices, uint64_t call)
{
    for (int32_t i = 0; i < choices->count; i++)
        if (choices->at[i].call == call)
            return choices->at[i].algorithm;
    return 0;
}

int32_t cuda_choices_put(struct cuda_choices *choices, uint64_t call, uint64_t algorithm)
{
    int32_t at = 0;
    while (at < choices->count && choices->at[at].call != call)
        at++;
    if (at == CUDA_CHOICES_MAX)
        return -1;
    choices->at[at] = (struct backend_choice){.call = call, .algorithm = algorithm};
    choices->count += at == choices->count;
    return at;
}

enum gt_status cuda_tuning_create(struct cuda_backend *cuda)
{
    cuda->tuning = calloc(1, sizeof *cuda->tuning);
    cuda->shapes = calloc(1, sizeof *cuda->shapes);
    if (cuda->tuning == NULL || cuda->shapes == NULL)
        return FAIL(GT_NO_MEMORY, "cuda: no memory for %zu B of choices", sizeof *cuda->tuning + sizeof *cuda->shapes);
    cuda->shapes->trying = -1;
    return GT_OK;
}

/* Sets the name that a list is stored under, and the key that says what it was made for. */
static void names_of(const struct cuda_backend *cuda, char name[static USER_CACHE_KEY_MAX],
                     char key[static USER_CACHE_KEY_MAX])
{
    snprintf(name, USER_CACHE_KEY_MAX, "%s, capability %" PRId32 "%s%s", cuda->name, cuda->capability,
             cuda->tf32 ? ", TF32" : "", cuda->half_sums ? ", fp16 sums" : "");
    const char *driver = cuda->nvml.driver;
    snprintf(key, USER_CACHE_KEY_MAX,
             "%s, driver%s%s for CUDA %" PRId32 ", CUDA %" PRId32 ", cuBLASLt %zu, " PACKAGE_STRING, name,
             driver[0] != '\0' ? " " : "", driver, cuda->driver, cuda->runtime, cuda_gemm_library_version(cuda));
}

void cuda_tuning_load(struct cuda_backend *cuda)
{
    char name[USER_CACHE_KEY_MAX], key[USER_CACHE_KEY_MAX];
    void *bytes = NULL;
    size_t size = 0;
    names_of(cuda, name, key);
    const enum user_cache_file found = user_cache_load(&tunings, name, key, &bytes, &size);
    cuda->tuning->is_unread = found == USER_CACHE_UNREAD;
    if (found == USER_CACHE_READ && size == sizeof cuda->tuning->kept)
        memcpy(&cuda->tuning->kept, bytes, size);
    free(bytes);
}

/* Stores the list.  Returns NULL, or the reason why the list is not stored. */
static const char *kept_store(const struct cuda_backend *cuda)
{
    const struct cuda_tuning *tuning = cuda->tuning;
    char name[USER_CACHE_KEY_MAX], key[USER_CACHE_KEY_MAX];
    if (tuning->is_unread)
        return "the list in the user's cache could not be read and stays as it is";
    names_of(cuda, name, key);
    return user_cache_store(&tunings, name, key, &tuning->kept, sizeof tuning->kept)
               ? NULL
               : "the user's cache cannot be written, so later runs do without them";
}

void cuda_tuning_store(struct cuda_backend *cuda)
{
    struct cuda_tuning *tuning = cuda->tuning;
    if (tuning->products.timed + tuning->shapes.timed == 0)
        return;
    const char *lost = kept_store(cuda);
    log_note("cuda: %" PRId32 " products timed, %" PRId32
             " of them faster with another algorithm than cuBLASLt's first, by up to %.0f %%; %" PRId32
             " launches of our kernels timed, %" PRId32 " of them faster in another shape, by up to %.0f %%; %s",
             tuning->products.timed, tuning->products.faster, 100.0 * tuning->products.gain_most, tuning->shapes.timed,
             tuning->shapes.faster, 100.0 * tuning->shapes.gain_most, lost == NULL ? "kept for later runs" : lost);
    tuning->products = tuning->shapes = (struct cuda_found){.timed = 0};
}

void cuda_tuning_found(struct cuda_tuning *tuning, struct cuda_found *found, const struct backend_choice *choice,
                       const struct cuda_trial_result *result, const struct backend_timing *timing)
{
    found->timed++;
    found->faster += result->best > 0;
    found->gain_most = result->gain > found->gain_most ? result->gain : found->gain_most;
    if (timing->seconds < SECONDS_MIN)
        return; /* the clock did not advance */
    const int32_t at = cuda_choices_put(&tuning->kept.choices, choice->call, choice->algorithm);
    if (at >= 0)
        tuning->kept.timing[at] = *timing;
}

int32_t cuda_tuning_chosen(const struct cuda_tuning *tuning, uint64_t call, int32_t count,
                           uint64_t (*identity)(const void *context, int32_t candidate), const void *context)
{
    const uint64_t chosen[] = {cuda_choices_find(&tuning->stored, call),
                               cuda_choices_find(&tuning->kept.choices, call)};
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
        for (int32_t candidate = 0; chosen[i] != 0 && candidate < count; candidate++)
            if (identity(context, candidate) == chosen[i])
                return candidate;
    }
    return -1;
}

/* ---- the backend's interface ---- */

enum gt_status cuda_tuning_choose(struct backend *backend, const struct backend_choice *choices, size_t count)
{
    struct cuda_backend *cuda = cuda_own(backend);
    for (size_t i = 0; i < count; i++) {
        if (choices[i].call == 0)
            cuda->shapes->forced = (int32_t)(choices[i].algorithm & INT32_MAX);
        else
            (void)cuda_choices_put(&cuda->tuning->stored, choices[i].call, choices[i].algorithm);
    }
    return GT_OK;
}

const struct backend_choice *cuda_tuning_choices(struct backend *backend, size_t *count)
{
    struct cuda_backend *cuda = cuda_own(backend);
    struct cuda_choices *reported = &cuda->tuning->reported;
    reported->count = 0;
    cuda_gemm_choices(cuda, reported);
    for (int32_t i = 0; i < cuda->shapes->count; i++)
        (void)cuda_choices_put(reported, cuda->shapes->at[i].call, cuda->shapes->at[i].algorithm);
    *count = (size_t)reported->count;
    return reported->at;
}

const struct backend_timing *cuda_tuning_timings(struct backend *backend, size_t *count)
{
    const struct cuda_tuning *tuning = cuda_from(backend)->tuning;
    *count = (size_t)tuning->kept.choices.count;
    return tuning->kept.timing;
}
