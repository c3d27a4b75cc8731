/* Searches for plans of real models on real cards: 16 random configurations, 400 with CHECK_LONG=1.
 *
 * Each is planned for two budgets.  The larger one must not be slower, what fits must be within its budgets, and what
 * is refused must work with the bytes that the refusal names.  The processor time and the number of measured parts are
 * printed; the search itself asserts that the latter is bounded.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/rng.h"
#include "model/parameters.h"
#include "plan/device_profile.h"
#include "plan/device_profile_file.h"
#include "plan/plan_search.h"
#include "tests/unit/search_fixture.h"

#define CASES 16
#define CASES_LONG 400
#define PARTS_MOST 300 /* of a search: of the 400 none needs more */
#define GIB ((double)(1 << 30))

static int32_t draw(uint32_t number, uint32_t *next, int32_t low, int32_t high)
{
    const struct philox_key key = {{(uint32_t)unit_seed(), 0x53776565u}};
    const struct philox_block counter = {{(*next)++, number, 0, 0}};
    return low + (int32_t)(philox4x32_10(key, counter).word[0] % (uint32_t)(high - low + 1));
}

/* The shapes of GPT-2, TinyLlama, Llama 3 and Qwen3. */
static const struct {
    const char *name;
    int32_t layers, heads, kv_heads, head_dim, width, inner, vocab;
} shapes[] = {{"GPT-2 124M", 12, 12, 12, 64, 768, 0, 50304},      {"GPT-2 350M", 24, 16, 16, 64, 1024, 0, 50304},
              {"GPT-2 774M", 36, 20, 20, 64, 1280, 0, 50304},     {"GPT-2 XL", 48, 25, 25, 64, 1600, 0, 50304},
              {"Llama 1.1B", 22, 32, 4, 64, 2048, 5632, 32000},   {"Llama 3B", 28, 24, 8, 128, 3072, 8192, 128256},
              {"Llama 8B", 32, 32, 8, 128, 4096, 14336, 128256},  {"Qwen3 0.6B", 28, 16, 8, 128, 1024, 3072, 151936},
              {"Qwen3 1.7B", 28, 16, 8, 128, 2048, 6144, 151936}, {"Qwen3 4B", 36, 32, 8, 128, 2560, 9728, 151936},
              {"Qwen3 8B", 36, 32, 8, 128, 4096, 12288, 151936},  {"Qwen3 14B", 40, 40, 8, 128, 5120, 17408, 151936}};
#define SHAPES ((int)(sizeof shapes / sizeof shapes[0]))
#define LARGE_SHAPE (SHAPES - 1) /* beyond 8B: always with adapters */

static struct model_config config_of(int shape, int32_t block, bool lora)
{
    const bool gpt2 = shapes[shape].inner == 0;
    struct model_config config = {.n_layer = shapes[shape].layers,
                                  .n_head = shapes[shape].heads,
                                  .n_kv_head = shapes[shape].kv_heads,
                                  .head_dim = gpt2 ? 0 : shapes[shape].head_dim,
                                  .n_embd = shapes[shape].width,
                                  .n_inner = shapes[shape].inner,
                                  .block_size = block,
                                  .vocab_size = shapes[shape].vocab,
                                  .padded_vocab_size = shapes[shape].vocab,
                                  .norm_epsilon = 1e-5};
    if (!gpt2) {
        config.norm = NORM_RMSNORM;
        config.position = POSITION_ROPE;
        config.mlp = MLP_SWIGLU;
        config.untied = true;
        config.qk_norm = shape >= 7 ? QK_NORM_HEAD : QK_NORM_NONE;
        config.rope.theta = 1e6;
    }
    if (lora)
        config.lora = (struct lora_config){.rank = 16, .targets = parameters_lora_targets(&config), .alpha = 32.0};
    return config;
}

/* What plan_search() gets for a configuration, as session_plan.c makes it for a card. */
static struct search_request request_draw(uint32_t number, const struct device_profile *profile, int *shape)
{
    static const uint64_t host_gib[] = {0, 4, 12, 24, 64};
    uint32_t next = 1; /* number 0 is the card's */
    struct search_request request = {.plan = {.alignment_bytes = 256}, .rates = plan_rates_of_profile(profile, false)};
    struct model_options *options = &request.options;
    *shape = draw(number, &next, 0, SHAPES - 1);
    const int32_t block = 512 << draw(number, &next, 0, 2), batch = 1 << draw(number, &next, 0, 6);
    const bool lora = *shape == LARGE_SHAPE || draw(number, &next, 0, *shape >= 5 ? 1 : 3) == 0;
    *options = (struct model_options){.train = true,
                                      .evaluate = true,
                                      .generate_batch = 1,
                                      .correction_rows = 1,
                                      .dtype = DTYPE_BF16,
                                      .muon_dtype = DTYPE_BF16,
                                      .config = config_of(*shape, block, lora)};
    options->parts = 1 << draw(number, &next, 0, 2);
    options->ranks = draw(number, &next, 0, 1) == 1 ? options->parts : 1;
    options->muon = !lora && draw(number, &next, 0, 4) == 0;
    request.samples = (int64_t)batch * draw(number, &next, 1, 5) * 4 / options->parts;
    const int32_t micro = batch < request.samples ? batch : (int32_t)request.samples;
    measure_micro_batch_set(options, request.samples, micro);
    request.loss_chunk_most = ((int64_t)512 << 20) / (2 * options->config.padded_vocab_size);
    options->choice.loss_chunk_rows = (int32_t)search_chunk_even((int64_t)micro * block, request.loss_chunk_most);
    options->choice.evaluate_batch = micro;
    request.micro_batch_most = batch > 65536 / block ? batch : 65536 / block;
    request.lean_states = !lora && draw(number, &next, 0, 1) == 1;
    request.share.host_bytes = host_gib[draw(number, &next, 0, 4)] << 30;
    request.share.device_bytes = (uint64_t)(2.0 * pow(40.0, draw(number, &next, 0, 1000) / 1000.0) * GIB);
    if (options->muon && options->ranks > 1)
        ck_assert_int_eq(measure_rank_set(mem, options), GT_OK);
    return request;
}

static double processor_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* A refusal names a budget that works; its own host memory is enough. */
static void refusal_check(const struct search_request *request, const struct search_result *refused)
{
    struct search_request enough = *request;
    struct search_result result;
    if (refused->unplaceable || refused->found.host_bytes > request->share.host_bytes)
        return;
    enough.options.states = refused->found.options.states;
    enough.lean_states = false;
    enough.share.device_bytes = refused->found.arena_bytes;
    ck_assert_int_eq(plan_search(mem, &enough, &result), GT_OK);
}

TEST_FIXTURE(mem_open, mem_close)
TEST_LIMIT(1200)

/* A case: a configuration on a card, and what its search took. */
struct swept {
    double seconds; /* of the processor */
    int32_t parts;  /* measured, in the state format with the most */
    bool fits, is_large;
};

static struct swept sweep(uint32_t number)
{
    static const char *const cards[] = {"rtx3060-12g", "rtx4090-24g", "rtx3070-8g", "a100-80g-sxm"};
    struct swept out = {.parts = 0};
    struct device_profile profile;
    struct backend *device;
    struct search_result smaller, larger;
    struct search_memo memo = {0};
    uint32_t next = 0;
    int shape;
    ck_assert_int_eq(device_profile_find(cards[draw(number, &next, 0, 3)], &profile), GT_OK);
    struct search_request request = request_draw(number, &profile, &shape);
    ck_assert_int_eq(profile_device_open(&profile, &device), GT_OK);
    request.plan.device = device;
    request.memo = &memo;
    const double start_s = processor_s();
    const enum gt_status status = plan_search(mem, &request, &smaller);
    out.seconds = processor_s() - start_s;
    out.is_large = shape == LARGE_SHAPE;
    for (int s = 0; s < STATE_FORMATS; s++)
        out.parts = memo.states[s].whole_count > out.parts ? memo.states[s].whole_count : out.parts;
    search_memo_close(&memo);
    request.memo = NULL;
    ck_assert(status == GT_OK || status == GT_NO_FIT);
    out.fits = status == GT_OK;
    if (out.fits) {
        ck_assert_uint_le(smaller.found.arena_bytes, request.share.device_bytes);
        ck_assert_uint_le(smaller.found.host_bytes, request.share.host_bytes);
        request.share.device_bytes += request.share.device_bytes / (uint64_t)draw(number, &next, 1, 64);
        ck_assert_int_eq(plan_search(mem, &request, &larger), GT_OK);
        ck_assert_msg(larger.found.options.states < smaller.found.options.states ||
                          larger.found.seconds <= smaller.found.seconds * (1.0 + 1e-12),
                      "%s, case %u: %.9g s with more memory, %.9g s with less", shapes[shape].name, (unsigned)number,
                      larger.found.seconds, smaller.found.seconds);
    } else
        refusal_check(&request, &smaller);
    device->ops->close(device);
    return out;
}

static int swept_compare(const void *a, const void *b)
{
    const struct swept *x = a, *y = b;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

TEST(larger_budgets_are_not_slower_for_real_models)
{
    static struct swept cases[CASES_LONG];
    const char *wanted = getenv("CHECK_LONG");
    const int count = wanted != NULL && wanted[0] == '1' ? CASES_LONG : CASES;
    double worst[2] = {0.0}; /* up to 8B, and above */
    int fitted = 0, parts_most = 0;
    for (int i = 0; i < count; i++) {
        cases[i] = sweep((uint32_t)i);
        fitted += cases[i].fits;
        worst[cases[i].is_large] = fmax(worst[cases[i].is_large], cases[i].seconds);
        parts_most = cases[i].parts > parts_most ? cases[i].parts : parts_most;
    }
    qsort(cases, (size_t)count, sizeof cases[0], swept_compare);
    printf("%d configurations, %d fit: processor time %.0f ms in the median, %.0f at worst up to 8B, %.0f at 14B; at "
           "most %d parts measured\n",
           count, fitted, 1e3 * cases[count / 2].seconds, 1e3 * worst[0], 1e3 * worst[1], parts_most);
    ck_assert_int_gt(fitted, count / 4);
    ck_assert_int_le(parts_most, PARTS_MOST);
}
