/* Checks of more than one key, and notes about nanoGPT's keys that have another meaning here.
 *
 * config_key_assign() has already checked the range of each key.  Checks skip a key whose value was
 * rejected, so that one mistake gives one message.  A configuration that nanoGPT runs, and that we
 * can run, gets at most a warning.
 */
#include "config/config_check.h"

#include "base/heads.h"
#include "base/offload.h"
#include "base/recompute.h"
#include "base/rope_angles.h"
#include "base/size.h"
#include "config/config_key.h"
#include "config/config_text.h"

#define ETHERNET_SHARE 0.94 /* share of the line rate that TCP leaves for data */

/* Returns true if a checkpoint that is still to be read will set the key.  A resumed run takes the
 * whole configuration from it, other runs only the model's shape. */
static bool is_awaited(const struct config *config, enum config_key key)
{
    unsigned flags = config_key_info_get(key)->flags;
    if (config->origin[key].source != NULL || strcmp(config->init_from, "scratch") == 0)
        return false;
    return (flags & CONFIG_FIXED) != 0 ||
           (strcmp(config->init_from, "resume") == 0 && (flags & CONFIG_INVOCATION) == 0);
}

#define BATCH_TOKENS_MAX (INT64_C(0x7fffffff) - 2)
#define LOSS_CHUNKS_MAX 4096
#define VOCAB_SIZE_USUAL 50304
#define BETA_DISTANCE_MIN 1e-6

/* Returns true if the key's value is valid and final. */
static bool is_resolved(const struct config *config, enum config_key key)
{
    return !config->origin[key].bad && !is_awaited(config, key);
}

#define DESCRIBED CONFIG_KEY_DESCRIBED

/* Logs "FIRST PROBLEM SECOND". */
static enum gt_status refuse_pair(const struct config *config, enum config_key first,
                                  const char *problem, enum config_key second)
{
    return FAIL(GT_USAGE, "%s %s %s", DESCRIBED(config, first), problem, DESCRIBED(config, second));
}

static bool are_resolved(const struct config *config, enum config_key first, enum config_key second)
{
    return is_resolved(config, first) && is_resolved(config, second);
}

/* If the vocabulary comes from the dataset, its size is unknown here; the message uses nanoGPT's
 * and says so. */
static enum gt_status check_heads(const struct config *config)
{
    struct heads_shape shape = {config->n_layer, config->n_head, config->n_embd,
                                config->vocab_size > 0 ? config->vocab_size : VOCAB_SIZE_USUAL,
                                config->bias};
    char nearest[HEADS_TEXT_MAX];
    if (!are_resolved(config, CONFIG_KEY_n_embd, CONFIG_KEY_n_head) || config->head_dim > 0 ||
        config->n_embd % config->n_head == 0)
        return GT_OK;
    return FAIL(GT_USAGE, "%s is not a multiple of %s: %s; vocabulary %" PRId64,
                DESCRIBED(config, CONFIG_KEY_n_embd), DESCRIBED(config, CONFIG_KEY_n_head),
                heads_nearest_text(nearest, &shape), shape.vocab_size);
}

static enum gt_status check_kv_heads(const struct config *config)
{
    if (are_resolved(config, CONFIG_KEY_n_kv_head, CONFIG_KEY_n_head) && config->n_kv_head != 0 &&
        config->n_head % config->n_kv_head != 0)
        return refuse_pair(config, CONFIG_KEY_n_kv_head, "does not divide", CONFIG_KEY_n_head);
    return GT_OK;
}

/* Checks that at least one block keeps its window. */
static enum gt_status check_window(const struct config *config)
{
    const enum config_key keys[] = {CONFIG_KEY_sliding_window_pattern,
                                    CONFIG_KEY_max_window_layers};
    struct config resolved = *config;
    config_arch_resolve(&resolved);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (are_resolved(config, CONFIG_KEY_sliding_window, keys[i]) &&
            resolved.sliding_window == 0 && config_key_value(config, keys[i]).integer != 0)
            return refuse_pair(config, keys[i], "has no effect with", CONFIG_KEY_sliding_window);
    if (config->sliding_window_pattern == 1 &&
        is_resolved(config, CONFIG_KEY_sliding_window_pattern))
        return FAIL(GT_USAGE, "%s leaves no block with a window; use 2 or more, or 0",
                    DESCRIBED(config, CONFIG_KEY_sliding_window_pattern));
    return GT_OK;
}

/* Checks the keys that only rotary positions use. */
static enum gt_status check_rope(const struct config *config)
{
    struct config resolved = *config;
    struct rope_config rope;
    config_arch_resolve(&resolved);
    if (is_awaited(config, CONFIG_KEY_position))
        return GT_OK;
    if (!config->origin[CONFIG_KEY_rope_scaling].bad &&
        !rope_scaling_read(config->rope_scaling, &rope))
        return FAIL(GT_USAGE,
                    "%s: expected " ROPE_SCALING_FORMS " with FACTOR >= 1, 0 < LOW < HIGH",
                    DESCRIBED(config, CONFIG_KEY_rope_scaling));
    const bool turns = resolved.position == 1 + POSITION_ROPE;
    enum gt_status status = GT_OK;
    if (resolved.norm_plus_one && resolved.norm != 1 + NORM_RMSNORM)
        status = FAIL(GT_USAGE, "%s needs norm='rmsnorm', but there is %s",
                      DESCRIBED(&resolved, CONFIG_KEY_norm_plus_one),
                      DESCRIBED(&resolved, CONFIG_KEY_norm));
    if (!turns && resolved.qk_norm != 1 + QK_NORM_NONE)
        status = FAIL(GT_USAGE, "%s needs rotary positions, but there is %s",
                      DESCRIBED(&resolved, CONFIG_KEY_qk_norm),
                      DESCRIBED(&resolved, CONFIG_KEY_position));
    if (resolved.attn_output_gate && (!turns || resolved.no_rope_layer_interval > 0))
        status = FAIL(
            GT_USAGE, "%s needs rotary positions in all blocks, but there is %s",
            DESCRIBED(&resolved, CONFIG_KEY_attn_output_gate),
            DESCRIBED(&resolved, turns ? CONFIG_KEY_no_rope_layer_interval : CONFIG_KEY_position));
    /* An export folds the norm into the embedding table, so only the blocks may read that table. */
    if (config->embed_norm && (!turns || config->tie_embeddings))
        status =
            FAIL(GT_USAGE, "%s needs position='rope' and tie_embeddings=False, but there is %s",
                 DESCRIBED(config, CONFIG_KEY_embed_norm),
                 DESCRIBED(&resolved, turns ? CONFIG_KEY_tie_embeddings : CONFIG_KEY_position));
    /* The op that rotates also computes these norms. */
    if (resolved.no_rope_layer_interval > 0 && resolved.qk_norm != 1 + QK_NORM_NONE)
        status = FAIL(GT_USAGE, "%s needs qk_norm='none', but there is %s",
                      DESCRIBED(&resolved, CONFIG_KEY_no_rope_layer_interval),
                      DESCRIBED(&resolved, CONFIG_KEY_qk_norm));
    return status;
}

/* Checks that the value of `first` is at most that of `second`. */
static enum gt_status check_most(const struct config *config, enum config_key first,
                                 enum config_key second)
{
    if (are_resolved(config, first, second) &&
        config_key_value(config, first).integer > config_key_value(config, second).integer)
        return refuse_pair(config, first, "is larger than", second);
    return GT_OK;
}

/* A micro-batch may not be larger than one part of an update. */
static enum gt_status check_micro_batch(const struct config *config)
{
    const int64_t samples =
        config->batch_size * config->gradient_accumulation_steps / config->parts;
    if (!are_resolved(config, CONFIG_KEY_batch_size, CONFIG_KEY_gradient_accumulation_steps) ||
        !are_resolved(config, CONFIG_KEY_micro_batch, CONFIG_KEY_parts) || config->micro_batch == 0)
        return GT_OK;
    if (config->micro_batch > samples)
        return FAIL(GT_USAGE, "%s is larger than the %" PRId64 " sequences of %s",
                    DESCRIBED(config, CONFIG_KEY_micro_batch), samples,
                    config->parts > 1 ? "a part of an update" : "an update");
    if (is_resolved(config, CONFIG_KEY_block_size) &&
        config->micro_batch > BATCH_TOKENS_MAX / config->block_size)
        return FAIL(GT_USAGE,
                    "micro_batch=%" PRId64 " x block_size=%" PRId64 " is 2^31 tokens or more",
                    config->micro_batch, config->block_size);
    return GT_OK;
}

/* An evaluation may use less context than the model has positions, but not more. */
static enum gt_status check_limits(const struct config *config)
{
    const enum gt_status batch = check_micro_batch(config);
    const enum gt_status block =
        check_most(config, CONFIG_KEY_eval_block_size, CONFIG_KEY_block_size);
    const enum gt_status cooldown =
        check_most(config, CONFIG_KEY_cooldown_iters, CONFIG_KEY_lr_decay_iters);
    return batch != GT_OK || block != GT_OK ? GT_USAGE : cooldown;
}

static enum gt_status check_checkpoint(const struct config *config)
{
    if (config->checkpoint[0] == '\0' || strcmp(config->init_from, "scratch") != 0)
        return GT_OK;
    return FAIL(
        GT_USAGE,
        "checkpoint = '%s' names a checkpoint to begin from: add --init_from=resume, or a folder",
        config->checkpoint);
}

/* Bounds the tokens per update, so that no later product of these sizes overflows. */
static enum gt_status check_tokens(const struct config *config)
{
    const int64_t factors[] = {config->batch_size, config->block_size,
                               config->gradient_accumulation_steps};
    size_t tokens = 0;
    if (!are_resolved(config, CONFIG_KEY_batch_size, CONFIG_KEY_block_size) ||
        !is_resolved(config, CONFIG_KEY_gradient_accumulation_steps))
        return GT_OK;
    if (size_product(factors, 2, &tokens) && (int64_t)tokens >= BATCH_TOKENS_MAX)
        return FAIL(GT_USAGE,
                    "batch_size=%" PRId64 " x block_size=%" PRId64 " is 2^31 tokens or more; use "
                    "gradient_accumulation_steps",
                    config->batch_size, config->block_size);
    if (size_product(factors, 3, &tokens) && tokens <= INT64_C(1) << 48 &&
        config->batch_size * config->gradient_accumulation_steps <= INT32_MAX)
        return GT_OK;
    return FAIL(GT_USAGE,
                "batch_size=%" PRId64 " x gradient_accumulation_steps=%" PRId64
                " is more than 2^31 sequences, or more than 2^48 tokens, per update",
                config->batch_size, config->gradient_accumulation_steps);
}

#define DIVISORS_SHOWN 4
#define DIVISORS_TEXT_MAX 64

/* Writes "2, 4, 5 or 10": the divisors of `count`, from `least` to the most ranks, that are nearest
 * to `near`. */
static char *divisors_text(char out[static DIVISORS_TEXT_MAX], int64_t count, int64_t least,
                           int64_t near)
{
    int64_t shown[DIVISORS_SHOWN + 1]; /* in order; the last one is spare */
    const int64_t most = min_i64(count, config_key_info_get(CONFIG_KEY_ranks)->int_max);
    int n = 0;
    for (int64_t divisor = least; divisor <= most; divisor++) {
        if (count % divisor != 0)
            continue;
        shown[n++] = divisor;
        if (n <= DIVISORS_SHOWN)
            continue;
        n--;
        if (divisor - near >= near - shown[0])
            break; /* so are all that follow */
        memmove(shown, shown + 1, sizeof *shown * DIVISORS_SHOWN);
    }
    out[0] = '\0';
    for (int i = 0; i < n; i++)
        snprintf(out + strlen(out), DIVISORS_TEXT_MAX - strlen(out), "%s%" PRId64,
                 i == 0       ? ""
                 : i == n - 1 ? " or "
                              : ", ",
                 shown[i]);
    return out;
}

/* Refuses `ranks` that do not divide the sequences.  `parts` is not set, so an update has as many
 * parts as ranks. */
static enum gt_status refuse_ranks(const struct config *config, int64_t samples)
{
    const int64_t ranks = config->ranks, batch = config->batch_size,
                  each = config->gradient_accumulation_steps;
    int64_t steps = each;
    while (batch % ranks * (steps % ranks) % ranks != 0)
        steps++;
    const bool typed = config_key_was_set(config, CONFIG_KEY_ranks);
    char divisors[DIVISORS_TEXT_MAX];
    (void)divisors_text(divisors, samples, 2, ranks);
    return FAIL(GT_USAGE,
                "%s the %" PRId64 " sequences of an update (batch_size %" PRId64
                " x gradient_accumulation_steps %" PRId64
                "): use %s%s%sgradient_accumulation_steps=%" PRId64,
                typed ? TEXT(48, "--ranks=%" PRId64 " does not divide", ranks)
                      : TEXT(48, "%" PRId64 " ranks do not divide", ranks),
                samples, batch, each, divisors, divisors[0] != '\0' ? " ranks" : "",
                divisors[0] != '\0' ? ", or " : "", steps);
}

/* Checks that all parts of an update have the same number of sequences, and all ranks the same
 * number of parts. */
static enum gt_status check_parts(const struct config *config)
{
    const int64_t samples = config->batch_size * config->gradient_accumulation_steps,
                  parts = config->parts;
    const char *whose = config->origin[CONFIG_KEY_parts].checkpoint ? "the checkpoint's " : "";
    char divisors[DIVISORS_TEXT_MAX];
    if (!are_resolved(config, CONFIG_KEY_batch_size, CONFIG_KEY_gradient_accumulation_steps) ||
        !are_resolved(config, CONFIG_KEY_parts, CONFIG_KEY_ranks))
        return GT_OK;
    if (samples % parts != 0 && config->origin[CONFIG_KEY_parts].source == NULL)
        return refuse_ranks(config, samples);
    if (samples % parts != 0)
        return FAIL(GT_USAGE,
                    "%sparts=%" PRId64 " does not divide the %" PRId64
                    " sequences of an update (batch_size %" PRId64
                    " x gradient_accumulation_steps %" PRId64 "): use %s parts",
                    whose, parts, samples, config->batch_size, config->gradient_accumulation_steps,
                    divisors_text(divisors, samples, 1, parts));
    if (parts % config->ranks != 0)
        return FAIL(GT_USAGE,
                    "ranks=%" PRId64 " does not divide %s%" PRId64
                    " part%s of an update: use %s rank%s",
                    config->ranks, whose[0] != '\0' ? whose : "the ", parts, parts == 1 ? "" : "s",
                    divisors_text(divisors, parts, 1, config->ranks), parts == 1 ? "" : "s");
    return GT_OK;
}

/* The samples of an evaluation have 32-bit numbers. */
static enum gt_status check_evaluation_samples(const struct config *config)
{
    if (!are_resolved(config, CONFIG_KEY_eval_iters, CONFIG_KEY_batch_size) ||
        config->eval_iters <= UINT32_MAX / config->batch_size)
        return GT_OK;
    return FAIL(GT_USAGE,
                "eval_iters=%" PRId64 " x batch_size=%" PRId64
                " is 2^32 sequences or more per evaluation; eval_iters=0 covers each split once",
                config->eval_iters, config->batch_size);
}

/* Bounds the number of chunks, because each one adds ops to the program. */
static enum gt_status check_chunks(const struct config *config)
{
    int64_t batch = config->micro_batch > 0 ? config->micro_batch : config->batch_size;
    batch = config->eval_batch_size > batch ? config->eval_batch_size : batch;
    if (config->loss_chunk == 0 || config->origin[CONFIG_KEY_loss_chunk].bad ||
        !are_resolved(config, CONFIG_KEY_batch_size, CONFIG_KEY_block_size))
        return GT_OK;
    if (batch <= BATCH_TOKENS_MAX / config->block_size &&
        size_ceil_div(batch * config->block_size, config->loss_chunk) <= LOSS_CHUNKS_MAX)
        return GT_OK;
    return FAIL(GT_USAGE,
                "loss_chunk=%" PRId64 " cuts %" PRId64 " x %" PRId64
                " tokens into more than %d chunks",
                config->loss_chunk, batch, config->block_size, LOSS_CHUNKS_MAX);
}

/* A beta of 1 in fp32 would divide by zero; one close to 1 needs a table of corrections as long as
 * the run. */
static enum gt_status check_betas(const struct config *config)
{
    if (1.0 - config->beta1 >= BETA_DISTANCE_MIN && 1.0 - config->beta2 >= BETA_DISTANCE_MIN)
        return GT_OK;
    return FAIL(GT_USAGE, "beta1=%g and beta2=%g must be at most 1 - %g", config->beta1,
                config->beta2, BETA_DISTANCE_MIN);
}

#define DEVICE_DIGITS_MAX 2 /* longer numbers are part of a name: 3060 */

static bool is_index(const char *text)
{
    size_t length = strlen(text);
    return length >= 1 && length <= DEVICE_DIGITS_MAX && strspn(text, "0123456789") == length;
}

/* Returns true for "mps", "mps:3" and "mps:NAME", if `word` is "mps". */
static bool is_device_of(const char *device, const char *word)
{
    size_t length = strlen(word);
    return strncmp(device, word, length) == 0 &&
           (device[length] == '\0' || (device[length] == ':' && device[length + 1] != '\0'));
}

static const char *const *backend_words(void)
{
    return config_key_info_get(CONFIG_KEY_backend)->words;
}

/* Returns the backend that runs on `device`, or CONFIG_BACKEND_AUTO if it is not the device of one.
 */
static int device_owner(const char *device)
{
    const char *const *words = backend_words();
    if (strcmp(device, words[CONFIG_BACKEND_CPU]) == 0)
        return CONFIG_BACKEND_CPU; /* there is one, without a number */
    for (int backend = CONFIG_BACKEND_CPU + 1; words[backend] != NULL; backend++)
        if (is_device_of(device, words[backend]))
            return backend;
    return CONFIG_BACKEND_AUTO;
}

/* The backends that a build may lack. */
static const struct {
    const char *lacking; /* why a build lacks it */
    /* PyTorch calls its devices by the same word, so files for nanoGPT name them. */
    bool is_pytorch;
} optional[] = {
#define CONFIG_OPTIONAL_BACKEND(enumerator, is_pytorch, lacking) \
    [enumerator] = {lacking, is_pytorch},
#include "config/keys.def"
};

static bool is_built(const struct config *config, int backend)
{
    return backend == CONFIG_BACKEND_AUTO || (config->backends_built >> backend & 1u) != 0;
}

/* Returns why this build does not support the device, if it is one of PyTorch's; else NULL. */
static const char *elsewhere_why(const struct config *config)
{
    const int owner = device_owner(config->device);
    if (!is_built(config, owner) && optional[owner].is_pytorch)
        return optional[owner].lacking;
    if (is_device_of(config->device, "mps") || is_device_of(config->device, "xpu"))
        return "there is no backend for such a device";
    return NULL;
}

/* Returns true if `device` and `backend` name different backends.  That is an error, unless one of
 * them is an argument and the other is from a file; then the argument wins.  --backend must work
 * for a file that names a device, too. */
static bool is_contradiction(const struct config *config, bool *is_error)
{
    const int owner = device_owner(config->device);
    *is_error = config_key_is_typed(config, CONFIG_KEY_device) ==
                config_key_is_typed(config, CONFIG_KEY_backend);
    return are_resolved(config, CONFIG_KEY_device, CONFIG_KEY_backend) &&
           config->device_profile[0] == '\0' && elsewhere_why(config) == NULL &&
           owner != CONFIG_BACKEND_AUTO && config->backend != CONFIG_BACKEND_AUTO &&
           config->backend != owner;
}

/* If this build lacks the backend of a PyTorch device, a device from a file gives a note, and the
 * run uses what it finds; a device from the command line is an error. */
static enum gt_status check_device(const struct config *config)
{
    const char *device = config->device, *why = elsewhere_why(config);
    bool is_error;
    if (config->origin[CONFIG_KEY_device].bad || strcmp(device, "auto") == 0 || is_index(device))
        return GT_OK;
    if (strchr(device, ',') != NULL)
        return FAIL(GT_USAGE,
                    "device='%s': one device is expected; --devices=%s gives a run several", device,
                    device);
    if (why != NULL &&
        (!config_key_is_typed(config, CONFIG_KEY_device) || config->device_profile[0] != '\0'))
        return GT_OK; /* config_notes() logs it */
    if (why != NULL)
        return FAIL(GT_USAGE,
                    ERROR_NO_DEVICE
                    "device='%s': %s; leave --device out to use what this machine has",
                    device, why);
    if (device_owner(device) == CONFIG_BACKEND_AUTO)
        return FAIL(
            GT_USAGE,
            ERROR_NO_DEVICE
            "%s: unknown device '%s'; use auto, cpu, cuda, cuda:0, opencl:0 or part of a card's "
            "name (cuda:3060)",
            CONFIG_ORIGIN_TEXT(&config->origin[CONFIG_KEY_device]), device);
    if (is_contradiction(config, &is_error) && is_error)
        return refuse_pair(config, CONFIG_KEY_device, "contradicts", CONFIG_KEY_backend);
    return GT_OK;
}

struct config_device config_device(const struct config *config)
{
    const char *colon = strchr(config->device, ':'),
               *part = colon != NULL ? colon + 1 : config->device;
    struct config_device device = {.backend = config->backend, .index = -1};
    bool is_error;
    if (!config->origin[CONFIG_KEY_device].bad && elsewhere_why(config) == NULL &&
        !(is_contradiction(config, &is_error) &&
          (is_error || config_key_is_typed(config, CONFIG_KEY_backend)))) {
        const int owner = device_owner(config->device);
        if (owner != CONFIG_BACKEND_AUTO && config->device_profile[0] == '\0')
            device.backend = owner;
        if (is_index(part))
            device.index = (int32_t)strtol(part, NULL, 10);
        else if (colon != NULL)
            device.name = part;
    }
    device.word = backend_words()[device.backend];
    return device;
}

/* This build must have the backend, unless the run only plans for a device profile. */
static enum gt_status check_backend(const struct config *config)
{
    char built[64] = "";
    const char *const *words = backend_words();
    const int wanted = config_device(config).backend;
    if (is_built(config, wanted) || config->origin[CONFIG_KEY_backend].bad ||
        config->device_profile[0] != '\0')
        return GT_OK;
    for (int backend = CONFIG_BACKEND_CPU; words[backend] != NULL; backend++)
        if (is_built(config, backend))
            snprintf(built + strlen(built), sizeof built - strlen(built), "%s%s",
                     built[0] != '\0' ? ", " : "", words[backend]);
    const bool by_device = !config_key_was_set(config, CONFIG_KEY_backend);
    return FAIL(GT_USAGE, ERROR_NO_DEVICE "%s: %s; this build has %s",
                DESCRIBED(config, by_device ? CONFIG_KEY_device : CONFIG_KEY_backend),
                optional[wanted].lacking, built);
}

/* `recompute` must be one level, or several with numbers of blocks that the model has. */
static enum gt_status check_recompute(const struct config *config)
{
    struct recompute_mix mix;
    const char *why;
    int64_t layers = is_resolved(config, CONFIG_KEY_n_layer) ? config->n_layer : 0;
    if (!is_resolved(config, CONFIG_KEY_recompute) ||
        recompute_read(config->recompute, layers, &mix, &why))
        return GT_OK;
    return FAIL(GT_USAGE, "%s %s", DESCRIBED(config, CONFIG_KEY_recompute), why);
}

/* `offload` must list what can move. */
static enum gt_status check_offload(const struct config *config)
{
    struct offload_list list;
    const char *bad;
    if (!is_resolved(config, CONFIG_KEY_offload) || offload_read(config->offload, &list, &bad))
        return GT_OK;
    return FAIL(GT_USAGE,
                "%s: expected auto, none, all, or a list of states, gradients, weights and "
                "residuals, at \"%.20s\"",
                DESCRIBED(config, CONFIG_KEY_offload), bad);
}

/* Maps grad_checkpoint to recompute. */
static enum gt_status check_grad_checkpoint(struct config *config)
{
    const struct config_origin *origin = &config->origin[CONFIG_KEY_grad_checkpoint];
    const char *level = config->grad_checkpoint ? "full" : "none";
    if (!config_key_was_set(config, CONFIG_KEY_grad_checkpoint) || origin->bad)
        return GT_OK;
    if (config_key_was_set(config, CONFIG_KEY_recompute) && strcmp(config->recompute, level) != 0)
        return refuse_pair(config, CONFIG_KEY_grad_checkpoint, "contradicts", CONFIG_KEY_recompute);
    snprintf(config->recompute, sizeof config->recompute, "%s", level);
    config->origin[CONFIG_KEY_recompute] = *origin;
    return GT_OK;
}

/* Maps decay_lr to lr_schedule.  Old checkpoints have decay_lr only. */
static enum gt_status check_schedule(struct config *config)
{
    const bool named = config_key_was_set(config, CONFIG_KEY_decay_lr),
               constant = config->lr_schedule == CONFIG_LR_CONSTANT;
    const bool chosen = config_key_was_set(config, CONFIG_KEY_lr_schedule);

    if (named && chosen && constant == config->decay_lr)
        return refuse_pair(config, CONFIG_KEY_decay_lr, "contradicts", CONFIG_KEY_lr_schedule);
    if (!config->decay_lr && !chosen)
        config->lr_schedule = CONFIG_LR_CONSTANT;
    else if (named && constant)
        config->lr_schedule = CONFIG_LR_COSINE; /* the checkpoint's rate was constant */
    config->decay_lr = config->lr_schedule != CONFIG_LR_CONSTANT;
    return GT_OK;
}

static enum gt_status check_expected(const struct config *config)
{
    struct config_band band;
    if (config_expected_losses(config, -1, &band))
        return GT_OK;
    return FAIL(
        GT_USAGE,
        "%s: expected points such as 250:2.3-2.6 (iteration, lowest, highest), separated by blanks",
        DESCRIBED(config, CONFIG_KEY_expected_losses));
}

/* Maps per_device_train_batch_size to batch_size.  A resumed run has the sequences of its updates
 * in the checkpoint. */
static enum gt_status check_per_device(struct config *config)
{
    const struct config_origin *origin = &config->origin[CONFIG_KEY_per_device_train_batch_size];
    struct config_origin *batch = &config->origin[CONFIG_KEY_batch_size];
    if (config->per_device_train_batch_size == 0 || origin->bad ||
        strcmp(config->init_from, "resume") == 0)
        return GT_OK;
    const bool mapped = batch->source == origin->source && batch->line == origin->line &&
                        batch->column == origin->column; /* by an earlier check */
    if (config_key_was_set(config, CONFIG_KEY_batch_size) && !mapped)
        return refuse_pair(config, CONFIG_KEY_per_device_train_batch_size, "contradicts",
                           CONFIG_KEY_batch_size);
    config->batch_size = config->per_device_train_batch_size * config->ranks;
    *batch = *origin;
    if (config->origin[CONFIG_KEY_gradient_accumulation_steps].source != NULL)
        return GT_OK;
    config->gradient_accumulation_steps = 1;
    config->origin[CONFIG_KEY_gradient_accumulation_steps] = *origin;
    return GT_OK;
}

/* Refuses `hours`, which limits the length of a run, with keys that set the length. */
static enum gt_status check_length(const struct config *config)
{
    if (config->hours == 0.0 || !is_resolved(config, CONFIG_KEY_hours))
        return GT_OK;
    if (config->epochs > 0.0 && config_key_was_set(config, CONFIG_KEY_epochs))
        return refuse_pair(config, CONFIG_KEY_epochs, "contradicts", CONFIG_KEY_hours);
    if (config->warmup_ratio > 0.0 && config_key_was_set(config, CONFIG_KEY_warmup_ratio))
        return refuse_pair(config, CONFIG_KEY_warmup_ratio, "contradicts", CONFIG_KEY_hours);
    return GT_OK;
}

/* explain_oom and compare print plans too, as text only. */
static enum gt_status check_answer(struct config *config, enum config_key key, const char *expected)
{
    if (!config_key_was_set(config, key) || config->origin[key].bad)
        return GT_OK;
    if (config_key_value(config, key).text[0] == '\0')
        return FAIL(GT_USAGE, "%s: name a %s", config->origin[key].source, expected);
    if (config->plan != CONFIG_PLAN_OFF && config->plan != CONFIG_PLAN_TEXT)
        return FAIL(GT_USAGE, "%s prints its plan as text only; leave --plan out",
                    DESCRIBED(config, key));
    config->plan = CONFIG_PLAN_TEXT;
    return GT_OK;
}

/* Checks what adapters need. */
static enum gt_status check_lora(const struct config *config)
{
    if (config->lora_rank == 0)
        return GT_OK;
    if (config->optimizer == CONFIG_OPTIMIZER_MUON)
        return refuse_pair(config, CONFIG_KEY_lora_rank,
                           "trains adapters, which only adamw updates, but there is",
                           CONFIG_KEY_optimizer);
    if (strcmp(config->init_from, "scratch") != 0 ||
        config->plan != CONFIG_PLAN_OFF) /* a plan needs no weights */
        return GT_OK;
    return FAIL(GT_USAGE,
                "lora_rank=%" PRId64
                " trains adapters of a model: name the model, as in --init_from=OWNER/NAME",
                config->lora_rank);
}

/* Logs a note for each requested feature that has no effect here. */
static void note_legacy(const struct config *config)
{
    const char *why = elsewhere_why(config);
    if (why != NULL && config->device_profile[0] == '\0')
        log_note("device='%s': %s; using what backend='auto' finds", config->device, why);
    if (config->per_device_train_batch_size > 0 && strcmp(config->init_from, "resume") == 0)
        log_note("per_device_train_batch_size=%" PRId64
                 " has no effect: a resumed run keeps the sequences of its updates",
                 config->per_device_train_batch_size);
    if (config->compile && config_key_was_set(config, CONFIG_KEY_compile))
        log_note("compile=True is ignored: the kernels are compiled already");
    if (config->wandb_log && config->program == CONFIG_TRAIN)
        log_note("wandb_log=True is ignored: metrics go to %s/metrics.jsonl, and nothing is sent",
                 config->out_dir);
}

bool config_device_assign(struct config *config, int32_t rank)
{
    const char *at = config->devices;
    for (; rank > 0 && at != NULL; rank--)
        at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL;
    if (at == NULL)
        return false;
    (void)snprintf(config->device, sizeof config->device, "%.*s", (int)strcspn(at, ","), at);
    config->origin[CONFIG_KEY_device] = config->origin[CONFIG_KEY_devices];
    return true;
}

/* Each device must be one that `device` accepts, and may be listed only once. */
static enum gt_status check_devices(struct config *config)
{
    int32_t count = 0;
    if (config->devices[0] == '\0')
        return GT_OK;
    for (struct config other = *config; config_device_assign(config, count); count++) {
        TRY(check_device(config));
        for (int32_t i = 0; i < count && config_device_assign(&other, i); i++)
            if (strcmp(other.device, config->device) == 0)
                return FAIL(GT_USAGE, "devices='%s' names %s twice", config->devices,
                            config->device);
    }
    if (!config_key_was_set(config, CONFIG_KEY_ranks))
        config->ranks = count;
    return config_device_assign(config, 0) ? GT_OK : GT_USAGE;
}

double config_link(const char *link)
{
    char *unit;
    const double number = strtod(link, &unit);
    if (strcmp(unit, "GbE") == 0)
        return number > 0.0 ? number * 1e9 / 8.0 * ETHERNET_SHARE : 0.0;
    return strcmp(unit, "GB/s") == 0 && number > 0.0 ? number * 1e9 : 0.0;
}

static enum gt_status check_link(const struct config *config)
{
    if (config->link[0] == '\0' || config_link(config->link) > 0.0)
        return GT_OK;
    return FAIL(GT_USAGE, ERROR_BAD_VALUE "link='%s': 10GbE or 12GB/s is expected", config->link);
}

enum gt_status config_check(struct config *config)
{
    enum gt_status (*const checks[])(const struct config *) = {
        check_device,    check_backend, check_heads,      check_kv_heads, check_rope,
        check_limits,    check_tokens,  check_chunks,     check_betas,    check_evaluation_samples,
        check_recompute, check_offload, check_checkpoint, check_expected, check_lora,
        check_parts,     check_link,    check_length,     check_window};
    const bool train = config->program == CONFIG_TRAIN;
    bool failed = train && check_devices(config) != GT_OK;
    config->local_ranks = (int32_t)config->ranks;
    /* A checkpoint without the key `parts` has one part. */
    if (config->origin[CONFIG_KEY_parts].source == NULL && strcmp(config->init_from, "resume") != 0)
        config->parts = config->ranks;
    failed = (train && check_per_device(config) != GT_OK) || failed;
    /* These set `plan`, which other checks read. */
    failed = (train && (check_answer(config, CONFIG_KEY_explain_oom,
                                     "file, or - for standard input") != GT_OK ||
                        check_answer(config, CONFIG_KEY_compare, "configuration file") != GT_OK)) ||
             failed;
    for (size_t i = 0; i < (train ? sizeof checks / sizeof checks[0] : 2); i++)
        failed = checks[i](config) != GT_OK || failed;
    failed = (train && check_grad_checkpoint(config) != GT_OK) || failed;
    failed = (train && check_schedule(config) != GT_OK) || failed;
    return failed ? GT_USAGE : GT_OK;
}

void config_notes(const struct config *config)
{
    const bool is_backend = config_key_is_typed(config, CONFIG_KEY_backend);
    bool is_error;
    const char *device = DESCRIBED(config, CONFIG_KEY_device),
               *backend = DESCRIBED(config, CONFIG_KEY_backend);
    if (is_contradiction(config, &is_error))
        log_note("ignoring %s because of %s", is_backend ? device : backend,
                 is_backend ? backend : device);
    note_legacy(config);
}
