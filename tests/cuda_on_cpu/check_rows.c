/* Tests the cuda backend's ops other than attention on the emulator, where opcheck's cases do not go.
 * Results are judged as in opcheck.
 *
 * Each operand is an allocation of exactly its size, so that the sanitizers see every access beyond it, and starts some
 * elements after an aligned address, as views do.  A card with one multiprocessor makes grids short, so that threads
 * loop over several groups and rows.  Rows are longer than registers or shared memory can hold.  Outputs overwrite
 * inputs, with the same bits.  Several tensors in one launch get the bits of one launch each.  Tables have more
 * elements than 32 bits can count.  The cases rotate through the orders of threads.  Option: --only=TEXT (cases whose
 * line contains TEXT).  The last line is "checks: P passed, F failed, S skipped"; exit status 0 or 1.
 */
#include <sys/mman.h>

#include "backends/cuda/cuda_gemm_cache.h"
#include "backends/cuda/cuda_tuning.h"
#include "ops/infer.h"
#include "separate.h"

#define CARD "86:12g:Card"
#define SHIFTS 8
#define VOCAB 37
#define CORRECTIONS 3
#define HEADS 3
#define KV_HEADS 1

/* The inputs of an op, one letter per operand in the order of ops.def.  Matrices of [rows, columns]: M of the case's
 * dtype, m fp32, b bf16, u uint8; W: of [rows, 2 columns].  V, v: tables of [VOCAB, columns] of the dtype and fp32; T,
 * t: of [time, columns].  H: heads of an even number of columns; h: their cosines and sines, fp32; p, q: gains of a head,
 * and of all heads.  c, r: vectors of columns and rows, fp32.  i: rows of int32; g: the groups of ids; s: scalars; k:
 * corrections; e: exponents of codes; 1: one word; -: absent, or made by the shape rule. */
struct recipe {
    enum op_kind kind;
    const char *inputs;
    int64_t rows, columns;
    uint32_t accumulate;
    int32_t multiprocessors;
};

static const char *const orders[ORDERS] = {"desc", "random:5", "asc,lockstep"};
static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F32, DTYPE_F16};

static void operand_set(struct check_case *check, int32_t slot, enum dtype dtype, int64_t rows, int64_t columns)
{
    struct operand *operand = &check->call.operand[slot];
    *operand = (struct operand){.present = true, .dtype = dtype, .rank = columns > 0 ? 2 : 1, .dims = {rows, columns}};
}

static int64_t time_of(const struct recipe *recipe)
{
    return recipe->rows % 3 == 0 ? recipe->rows / 3 : recipe->rows;
}

static void operand_make(const struct recipe *recipe, enum dtype dtype, char letter, struct check_case *check,
                         int32_t slot)
{
    const int64_t rows = recipe->rows, columns = recipe->columns, head_size = columns / 2 * 2;
    if (strchr("Mmbu", letter) != NULL)
        operand_set(check, slot,
                    letter == 'M'   ? dtype
                    : letter == 'm' ? DTYPE_F32
                    : letter == 'b' ? DTYPE_BF16
                                    : DTYPE_U8,
                    rows, columns);
    else if (letter == 'W')
        operand_set(check, slot, dtype, rows, 2 * columns);
    else if (letter == 'V' || letter == 'v')
        operand_set(check, slot, letter == 'V' ? dtype : DTYPE_F32, VOCAB, columns);
    else if (letter == 'T' || letter == 't')
        operand_set(check, slot, letter == 'T' ? dtype : DTYPE_F32, time_of(recipe), columns);
    else if (letter == 'H')
        operand_set(check, slot, dtype, rows, (HEADS + 2 * KV_HEADS) * head_size);
    else if (letter == 'h')
        operand_set(check, slot, DTYPE_F32, time_of(recipe), head_size);
    else if (letter == 'p' || letter == 'q')
        operand_set(check, slot, DTYPE_F32, (letter == 'p' ? 2 : HEADS + KV_HEADS) * head_size, 0);
    else if (letter == 'c' || letter == 'r')
        operand_set(check, slot, DTYPE_F32, letter == 'c' ? columns : rows, 0);
    else if (letter == 'i' || letter == 'g')
        operand_set(check, slot, DTYPE_I32, letter == 'i' ? rows : min_i64(rows, VOCAB) + 2, 0);
    else if (letter == 's')
        operand_set(check, slot, DTYPE_I32, SCALAR_WORDS, 0);
    else if (letter == 'k')
        operand_set(check, slot, DTYPE_F32, CORRECTIONS, 2);
    else if (letter == 'e')
        operand_set(check, slot, DTYPE_U8, 2, state_blocks(rows * columns));
    else if (letter == '1')
        operand_set(check, slot, DTYPE_F32, 1, 0);
}

/* Builds the case of a recipe.  Returns false when op_infer() rejects it. */
static bool case_of(const struct recipe *recipe, enum dtype dtype, int32_t index, struct check_case *check)
{
    static const enum case_inputs flavours[] = {INPUTS_NORMAL, INPUTS_LARGE, INPUTS_INTEGER, INPUTS_SMALL};
    *check =
        (struct check_case){.call = {.kind = recipe->kind}, .index = index, .seed = 91u + (uint64_t)(uint32_t)index};
    check->inputs = flavours[index % 4];
    check->call.attrs = (struct op_attrs){.time = (int32_t)time_of(recipe),
                                          .heads = HEADS,
                                          .kv_heads = KV_HEADS,
                                          .vocab = (int32_t)recipe->columns - (recipe->columns > 9 ? 9 : 0),
                                          .gradient = true,
                                          .site = 3 + index,
                                          .dropout = 0.3f,
                                          .gelu = index % 2 != 0 ? GELU_TANH : GELU_ERF,
                                          .epsilon = 1e-5f,
                                          .beta1 = 0.9f,
                                          .beta2 = 0.95f,
                                          .weight_decay = 0.1f,
                                          .clip_max = 1.0f,
                                          .value = 1.5f,
                                          .alpha = 3.4445f,
                                          .beta = 2.0315f,
                                          .index_base = 1000000005};
    for (int32_t slot = 0; recipe->inputs[slot] != '\0'; slot++)
        operand_make(recipe, dtype, recipe->inputs[slot], check, slot);
    if (recipe->kind == OP_LAYERNORM_BACKWARD)
        operand_set(check, LAYERNORM_BACKWARD_DBIAS, DTYPE_F32, recipe->columns, 0);
    if (!op_infer(&check->call))
        return false;
    check->call.attrs.accumulate = recipe->accumulate;
    return op_infer(&check->call);
}

static void count_report(struct totals *totals, bool passed, const char *text, const struct setting *setting,
                         const char *reason)
{
    if (!passed)
        printf("FAIL %s, order %s, %" PRId32 " multiprocessors, shifted by %" PRId32 ": %s\n", text, setting->order,
               setting->multiprocessors, setting->shift, reason);
    count(totals, passed);
}

static void recipe_check(struct totals *totals, const struct recipe *recipe, enum dtype dtype, int32_t shift)
{
    char text[OPCHECK_TEXT_MAX], reason[OPCHECK_TEXT_MAX];
    struct check_case check;
    struct case_data data;
    const int32_t index = totals->cases++;
    const bool inferred = case_of(recipe, dtype, index, &check);
    if (!case_begin(totals, inferred, &check, text))
        return;
    const struct setting setting = {.device = CARD,
                                    .order = orders[check.index % ORDERS],
                                    .multiprocessors = recipe->multiprocessors,
                                    .shift = shift,
                                    .alias = -1,
                                    .input = -1};
    struct verdict verdict = {.passed = false};
    case_values_make(&check, &data);
    if (case_run(&setting, &check, &data, NULL, reason)) {
        judge(&check, &data, data.after, &verdict);
        memcpy(reason, verdict.reason, OPCHECK_TEXT_MAX);
    }
    count_report(totals, verdict.passed, text, &setting, reason);
    images_free(&data);
    case_data_free(&data);
}

#define LN_ALL (1u << LAYERNORM_BACKWARD_DX | 1u << LAYERNORM_BACKWARD_DGAIN | 1u << LAYERNORM_BACKWARD_DBIAS)
#define RN_ALL (1u << RMSNORM_BACKWARD_DX | 1u << RMSNORM_BACKWARD_DGAIN)

/* Every op at an aligned and an unaligned size, as operands and as views, on a small and a large card. */
static void ops_check(struct totals *totals)
{
    static const struct recipe recipes[] = {
        {OP_EMBED_FORWARD, "iVTs", 300, 40, 0, 1},
        {OP_EMBED_FORWARD, "iV-s", 300, 40, 0, 1},
        {OP_EMBED_FORWARD, "iVTs-i", 300, 40, 0, 1},
        {OP_EMBED_BACKWARD, "Miigvt", 300, 40, 1u << EMBED_BACKWARD_DWPE, 1},
        {OP_EMBED_BACKWARD, "Miigv", 300, 40, 0, 1},
        {OP_EMBED_BACKWARD, "Miigvti", 300, 40, 0, 28},
        {OP_LAYERNORM_FORWARD, "Mc--c", 300, 40, 0, 1},
        {OP_LAYERNORM_BACKWARD, "MMcr---r", 300, 40, LN_ALL, 1},
        {OP_RMSNORM_FORWARD, "Mc", 300, 40, 0, 1},
        {OP_RMSNORM_BACKWARD, "MMcr-c", 300, 40, RN_ALL, 1},
        {OP_RMSNORM_BACKWARD, "MM-r", 300, 40, 0, 1},
        {OP_BIAS_BACKWARD, "M", 300, 40, 1u << BIAS_BACKWARD_DBIAS, 1},
        {OP_ROPE_FORWARD, "Hhs", 300, 48, 0, 1},
        {OP_ROPE_FORWARD, "Hhsp", 300, 48, 0, 1},
        {OP_ROPE_FORWARD, "Hhsq", 300, 48, 0, 1},
        {OP_ROPE_BACKWARD, "Hhs", 300, 48, 0, 1},
        {OP_ROPE_BACKWARD, "Hhsp-Hp", 300, 48, 0, 1},
        {OP_ROPE_BACKWARD, "Hhsq-Hq", 300, 48, 1u << ROPE_BACKWARD_DGAIN, 1},
        {OP_GELU_FORWARD, "M", 1500, 48, 0, 1},
        {OP_GELU_BACKWARD, "MM", 1500, 48, 0, 1},
        {OP_SWIGLU_FORWARD, "W", 1500, 48, 0, 1},
        {OP_SWIGLU_BACKWARD, "MW", 1500, 48, 0, 1},
        {OP_DROPOUT, "Ms", 4500, 48, 0, 1},
        {OP_RESIDUAL, "MM", 1500, 48, 0, 1},
        {OP_CROSS_ENTROPY, "isM", 9, 4800, 0, 1},
        {OP_LOSS_SUM, "rs", 5000, 1, 0, 1},
        {OP_SUM_OF_SQUARES, "M", 1500, 48, 0, 1},
        {OP_CLIP_FACTOR, "rs", 700, 1, 0, 1},
        {OP_ADAMW, "MskMmmm", 1500, 48, 0, 1},
        {OP_ADAMW, "MskMMM", 1500, 48, 0, 28},
        {OP_FILL, "M", 1500, 48, 0, 1},
        {OP_COPY, "M", 1500, 48, 0, 1},
        {OP_COPY, "M", 1500, 48, 1u << COPY_Y, 28},
        {OP_ADAMW_LEAN, "bskbuue", 1500, 48, 0, 1},
        {OP_ADAMW_LEAN, "mskbbb", 1500, 48, 0, 1},
        {OP_ADAMW_LEAN, "bskbmm", 1500, 48, 0, 28},
        {OP_GRADIENT_ROUND, "ms", 1500, 48, 1u << GRADIENT_ROUND_Y, 1},
        {OP_BLEND, "MM", 1500, 48, 0, 1},
        {OP_MUON_MOMENTUM, "bsb", 1500, 48, 0, 1},
        {OP_MUON_NORMALIZE, "m1", 1500, 48, 0, 1},
        {OP_MUON_STEP, "Msb", 1500, 48, 0, 1},
        {OP_MUON_STEP, "MsMm", 1500, 48, 0, 28},
    };
    for (int32_t i = 0; i < (int32_t)(sizeof recipes / sizeof recipes[0]); i++) {
        for (int32_t variant = 0; variant < 3; variant++) {
            struct recipe recipe = recipes[i];
            if (variant == 2 && recipe.columns > 1)
                recipe.columns += 3;
            recipe_check(totals, &recipe, dtypes[(i + variant) % 3], variant == 1 ? 1 + i % (SHIFTS - 1) : 0);
        }
    }
}

/* Rows longer than registers, shared memory or one pass of a block can hold; many parts. */
static void shapes_check(struct totals *totals)
{
    static const struct recipe recipes[] = {
        {OP_LAYERNORM_FORWARD, "Mc--c", 5, 1024, 0, 28},
        {OP_LAYERNORM_FORWARD, "Mc--c", 5, 1032, 0, 28},
        {OP_LAYERNORM_FORWARD, "Mc", 5, 1600, 0, 28},
        {OP_LAYERNORM_BACKWARD, "MMcr---r", 33, 1024, 0, 28},
        {OP_LAYERNORM_BACKWARD, "MMcr---r", 33, 1032, 1u << LAYERNORM_BACKWARD_DGAIN, 28},
        {OP_LAYERNORM_BACKWARD, "MMcr---r", 33, 1600, LN_ALL, 28},
        {OP_LAYERNORM_BACKWARD, "MMcr---r", 20, 6144, 0, 28},
        {OP_LAYERNORM_BACKWARD, "MMcr---r", 20, 6152, 1u << LAYERNORM_BACKWARD_DBIAS, 28},
        {OP_LAYERNORM_BACKWARD, "MMcr---r", 20, 6145, 0, 28},
        {OP_LAYERNORM_BACKWARD, "MMcr---r", 5000, 16, 0, 28},
        {OP_RMSNORM_FORWARD, "M", 5, 1600, 0, 28},
        {OP_RMSNORM_BACKWARD, "MMcr-c", 20, 6145, 0, 28},
        {OP_RMSNORM_BACKWARD, "MMcr-c", 20, 12289, RN_ALL, 28},
        {OP_ROPE_BACKWARD, "Hhsq-Hq", 20, 3104, 0, 28},
        {OP_BIAS_BACKWARD, "M", 5000, 264, 0, 28},
        {OP_BIAS_BACKWARD, "M", 5000, 24, 1u << BIAS_BACKWARD_DBIAS, 28},
        {OP_EMBED_BACKWARD, "Miigvt", 600, 520, 0, 28},
        {OP_CROSS_ENTROPY, "isM", 3, 9000, 0, 28},
        {OP_CROSS_ENTROPY, "isM", 3, 9001, 0, 28},
        {OP_SUM_OF_SQUARES, "M", 4200, 1000, 0, 28},
        {OP_SUM_OF_SQUARES, "M", 16, 1024, 0, 28},
        {OP_SUM_OF_SQUARES, "M", 5, 3277, 0, 28},
    };
    for (int32_t i = 0; i < (int32_t)(sizeof recipes / sizeof recipes[0]); i++) {
        for (int32_t d = 0; d < 2; d++)
            recipe_check(totals, &recipes[i], dtypes[(i + d) % 3], 0);
    }
}

/* ---- outputs that overwrite inputs ---- */

/* Output `alias` has the same bits whether it overwrites `input` or not. */
static void alias_check(struct totals *totals, const struct recipe *recipe, int32_t alias, int32_t input)
{
    char text[OPCHECK_TEXT_MAX], reason[OPCHECK_TEXT_MAX];
    struct check_case check;
    struct case_data data;
    const int32_t index = totals->cases++;
    const bool inferred = case_of(recipe, dtypes[index % 3], index, &check);
    if (!case_begin(totals, inferred, &check, text))
        return;
    struct setting setting = {.device = CARD,
                              .order = "asc",
                              .multiprocessors = 1,
                              .shift = check.index % 2 * 3,
                              .alias = alias,
                              .input = -1};
    case_values_make(&check, &data);
    const size_t bytes = operand_bytes(&check.call.operand[alias]);
    uint8_t *expected = malloc(bytes);
    bool passed = false;
    if (expected != NULL && case_run(&setting, &check, &data, NULL, reason)) {
        memcpy(expected, data.after + check.call.operand[alias].at.offset_bytes, bytes);
        case_images_free(&data);
        setting.order = orders[check.index % ORDERS];
        setting.input = input;
        if (case_run(&setting, &check, &data, NULL, reason)) {
            passed = memcmp(expected, data.after + check.call.operand[alias].at.offset_bytes, bytes) == 0;
            snprintf(reason, sizeof reason, "other bits in the place of an input");
        }
    }
    count_report(totals, passed, text, &setting, reason);
    free(expected);
    images_free(&data);
    case_data_free(&data);
}

static void aliases_check(struct totals *totals)
{
    static const struct {
        struct recipe recipe;
        int32_t alias, input;
    } table[] = {
        {{OP_GELU_FORWARD, "M", 1500, 49, 0, 1}, GELU_FORWARD_Y, GELU_FORWARD_X},
        {{OP_GELU_BACKWARD, "MM", 1500, 49, 0, 1}, GELU_BACKWARD_DX, GELU_BACKWARD_DY},
        {{OP_GELU_BACKWARD, "MM", 1500, 49, 0, 1}, GELU_BACKWARD_DX, GELU_BACKWARD_X},
        {{OP_DROPOUT, "Ms", 1500, 49, 0, 1}, DROPOUT_Y, DROPOUT_X},
        {{OP_ROPE_FORWARD, "Hhsp", 1500, 24, 0, 1}, ROPE_FORWARD_Y, ROPE_FORWARD_X},
        {{OP_ROPE_BACKWARD, "Hhs", 1500, 24, 0, 1}, ROPE_BACKWARD_DX, ROPE_BACKWARD_DY},
        {{OP_RESIDUAL, "MM", 1500, 49, 0, 1}, RESIDUAL_R, RESIDUAL_X},
        {{OP_RESIDUAL, "MM", 1500, 49, 0, 1}, RESIDUAL_R, RESIDUAL_Y},
        {{OP_BLEND, "MM", 1500, 49, 0, 1}, BLEND_Y, BLEND_X},
        {{OP_BLEND, "MM", 1500, 49, 0, 1}, BLEND_Y, BLEND_Z},
        {{OP_COPY, "M", 1500, 49, 0, 1}, COPY_Y, COPY_X},
    };
    for (int32_t i = 0; i < (int32_t)(sizeof table / sizeof table[0]); i++) {
        alias_check(totals, &table[i].recipe, table[i].alias, table[i].input);
        alias_check(totals, &table[i].recipe, table[i].alias, table[i].input);
    }
}

/* ---- several tensors in one launch ---- */

#define TENSORS 27 /* more than one launch takes */
#define TENSORS_BYTES ((size_t)16 << 20)

/* Makes a call for each tensor, one behind the other in one segment.  Returns false when op_infer() rejects one. */
static bool tensors_make(const struct recipe *recipe, struct op_call calls[static TENSORS], uint8_t *image)
{
    size_t at = 0;
    for (int32_t i = 0; i < TENSORS; i++) {
        struct recipe one = *recipe;
        struct check_case check;
        one.rows = 1 + i % 5 * 97; /* some have several parts, and some a single row */
        if (!case_of(&one, DTYPE_BF16, i, &check))
            return false;
        for (int32_t slot = 0; slot < op_declaration(recipe->kind)->operands; slot++) {
            struct operand *operand = &check.call.operand[slot];
            operand->at = (struct address){.space = SPACE_DEVICE, .offset_bytes = at};
            at += operand->present ? size_ceil_div(operand_bytes(operand), ALIGNMENT_BYTES) * ALIGNMENT_BYTES : 0;
            if (operand->present && operand->dtype == DTYPE_I32)
                memset(image + operand->at.offset_bytes, 0, operand_bytes(operand)); /* FOUND_INF */
        }
        check.call.workspace = (struct address){.space = SPACE_DEVICE, .offset_bytes = TENSORS_BYTES};
        check.call.workspace_bytes = OP_SQUARES_WORDS * sizeof(float);
        calls[i] = check.call;
    }
    return at <= TENSORS_BYTES;
}

/* A launch for several tensors gives the bits of a launch for each. */
static void tensors_check(struct totals *totals, const struct recipe *recipe)
{
    static uint8_t image[3][TENSORS_BYTES];
    static struct op_call calls[TENSORS];
    const struct backend_segment segment = {SPACE_DEVICE, TENSORS_BYTES + OP_SQUARES_WORDS * sizeof(float)};
    const struct backend_open_options options = {.device = 0};
    const struct address start = {.space = SPACE_DEVICE};
    struct backend *backend = NULL;
    const char *name = op_declaration(recipe->kind)->name;
    if (!is_wanted(totals, name))
        return;
    for (size_t i = 0; i < TENSORS_BYTES / 2; i++) /* numbers of about 0.01, as words of 16 and of 32 bits */
        ((uint16_t *)(void *)image[0])[i] = (uint16_t)(0x3c00u + i % 61 * (1 + i % 2));
    bool right = tensors_make(recipe, calls, image[0]) && fake_cuda_devices_set(CARD) &&
                 emulator_order_set("random:3") && cuda_backend_ops.open(&options, &backend) == GT_OK &&
                 cuda_backend_ops.arena(backend, &segment, 1) == GT_OK;
    for (int32_t together = 0; together < 2 && right; together++) {
        right = cuda_backend_ops.upload(backend, start, image[0], TENSORS_BYTES) == GT_OK;
        for (int32_t i = 0; i < TENSORS && right; i += together ? TENSORS : 1)
            right = cuda_backend_ops.run(backend, &calls[i], together ? TENSORS : 1) == GT_OK;
        right = right && cuda_backend_ops.download(backend, image[1 + together], start, TENSORS_BYTES) == GT_OK;
    }
    cuda_backend_ops.close(backend);
    right = right && memcmp(image[1], image[2], TENSORS_BYTES) == 0 && memcmp(image[0], image[1], TENSORS_BYTES) != 0;
    if (!right)
        printf("FAIL %s of %d tensors: other bits than one by one\n", name, TENSORS);
    count(totals, right);
}

static void updates_check(struct totals *totals)
{
    static const struct recipe recipes[] = {{OP_SUM_OF_SQUARES, "M", 0, 100, 0, 0},
                                            {OP_ADAMW, "MskMmmm", 0, 100, 0, 0},
                                            {OP_ADAMW_LEAN, "bskbuue", 0, 100, 0, 0}};
    for (int32_t i = 0; i < 3; i++)
        tensors_check(totals, &recipes[i]);
}

/* ---- graphs ---- */

/* A program beyond those that are kept as graphs is noted, and runs. */
static void graphs_check(struct totals *totals)
{
    static const struct recipe recipe = {OP_FILL, "M", 8, 8, 0, 0};
    const struct setting setting = {.input = -1};
    const struct backend_open_options options = {.device = 0};
    struct backend_segment segment[BACKEND_SEGMENTS_MAX];
    struct op_call calls[CUDA_GRAPHS_MAX + 1][8];
    struct check_case check;
    struct backend *backend = NULL;
    float filled[64] = {0.0f};
    if (!is_wanted(totals, "graphs") || !case_of(&recipe, DTYPE_F32, 0, &check))
        return;
    bool right = cuda_backend_ops.open(&options, &backend) == GT_OK &&
                 cuda_backend_ops.arena(backend, segment, segments_make(&check.call, &setting, segment)) == GT_OK;
    for (int32_t i = 0; i <= CUDA_GRAPHS_MAX && right; i++) {
        for (int32_t k = 0; k < 8; k++)
            calls[i][k] = check.call;
        right = !cuda_from(backend)->graphs_off && cuda_backend_ops.bind(backend, calls[i], 8) == GT_OK;
    }
    right = right && cuda_from(backend)->graphs_off && cuda_from(backend)->graphs == CUDA_GRAPHS_MAX &&
            cuda_backend_ops.run(backend, calls[CUDA_GRAPHS_MAX], 8) == GT_OK &&
            cuda_backend_ops.download(backend, filled, check.call.operand[FILL_Y].at, sizeof filled) == GT_OK &&
            filled[63] == check.call.attrs.value;
    cuda_backend_ops.close(backend);
    if (!right)
        printf("FAIL graphs: %d programs are not kept, or one more does not run\n", CUDA_GRAPHS_MAX);
    count(totals, right);
}

/* ---- products ---- */

#define MLP 1536 /* a result of 9 MiB: more than the workspace of earlier releases */

/* Computes the product on a card, with the choices of a checkpoint, and returns the choice that a new checkpoint names.
 * Its call is 0 on failure, or if the product was timed although the checkpoint names its algorithm. */
static struct backend_choice product_choice(const struct cuda_gemm_key *key, const struct backend_choice *stored)
{
    static float a[MLP * 512], b[MLP * 512], d[MLP * MLP], workspace[MLP * MLP * 2];
    const struct cuda_gemm_operands operands = {.a = a, .b = b, .d = d, .workspace = workspace};
    const struct backend_open_options options = {.device = 0};
    struct backend_choice choice = {.call = 0};
    struct backend *backend = NULL;
    size_t count = 0;
    if (cuda_backend_ops.open(&options, &backend) != GT_OK)
        return choice;
    struct cuda_backend *cuda = cuda_own(backend);
    cuda->binding = true;
    cuda->tuning->on = stored->call != 0;
    const bool right = cuda_backend_ops.choose(backend, stored, stored->call != 0) == GT_OK &&
                       cuda_gemm_enqueue(cuda, key, &operands) == GT_OK && cuda->tuning->products.timed == 0;
    const struct backend_choice *choices = cuda_backend_ops.choices(backend, &count);
    if (right && count == 1)
        choice = choices[0];
    cuda_backend_ops.close(backend);
    return choice;
}

/* A checkpoint of a release that gave products 8 MiB of workspace keeps its algorithm, and the next checkpoint too. */
static void products_check(struct totals *totals)
{
    const struct backend_choice none = {.call = 0};
    struct cuda_gemm_key key = {.m = MLP,
                                .n = MLP,
                                .k = 512,
                                .lda = MLP,
                                .workspace_bytes = sizeof(float) * MLP * MLP * 2,
                                .alignment_a = 256,
                                .alignment_b = 256,
                                .alignment_d = 256,
                                .transpose_a = true};
    if (!is_wanted(totals, "gemm of an earlier release"))
        return;
    const struct backend_choice now = product_choice(&key, &none);
    struct cuda_gemm_key narrow = key;
    narrow.workspace_bytes = (uint64_t)8 << 20;
    const struct backend_choice earlier = product_choice(&narrow, &none), kept = product_choice(&key, &earlier);
    const bool right = now.call != 0 && earlier.call != 0 && now.algorithm != earlier.algorithm &&
                       memcmp(&kept, &earlier, sizeof kept) == 0;
    if (!right)
        printf("FAIL gemm of an earlier release: another algorithm than its checkpoint names\n");
    count(totals, right);
}

/* ---- NaN ---- */

static bool is_done(cuda_launch *launch, const struct cuda_args *args)
{
    return launch(NULL, args) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
}

/* Rounding preserves every NaN, whatever its bits are.  Adding random bits would turn some into infinities or zeros. */
static void nan_check(struct totals *totals)
{
    static const uint32_t bits[8] = {0x7f800001u, 0x7fffffffu, 0xffffffffu, 0xff800001u,
                                     0x7f80ffffu, 0x7fc00000u, 0xff80ffffu, 0x7fbfffffu};
    union scalar_word scalars[SCALAR_WORDS] = {[SCALAR_SEED_LO] = {.u = 5u}, [SCALAR_STEP] = {.i = 7}};
    float x[8];
    uint16_t y[8] = {0};
    const struct cuda_args args = {.operand = {[GRADIENT_ROUND_X] = {x, DTYPE_F32},
                                               [GRADIENT_ROUND_Y] = {y, DTYPE_BF16},
                                               [GRADIENT_ROUND_SCALARS] = {scalars, DTYPE_I32}},
                                   .walk = {.elements = 8, .blocks = 1}};
    if (!is_wanted(totals, "gradient_round of NaN"))
        return;
    memcpy(x, bits, sizeof x);
    bool right = is_done(cuda_launch_gradient_round, &args);
    for (int32_t i = 0; i < 8; i++)
        right = right && isnan(bf16_to_f32(y[i]));
    if (!right)
        printf("FAIL gradient_round of NaN: what comes out is not NaN\n");
    count(totals, right);
}

/* ---- unaligned rows ---- */

#define BIASED_ROWS 3
#define BIASED_COLUMNS 16

/* An fp32 bias and a 16-bit result that starts at an unaligned address. */
static void sums_add_check(struct totals *totals)
{
    static _Alignas(16) float sums[BIASED_ROWS * BIASED_COLUMNS];
    static _Alignas(16) uint16_t d[BIASED_ROWS * BIASED_COLUMNS + SHIFTS];
    static _Alignas(16) float bias[BIASED_COLUMNS];
    if (!is_wanted(totals, "gemm sums_add"))
        return;
    for (int32_t i = 0; i < BIASED_ROWS * BIASED_COLUMNS; i++)
        sums[i] = (float)i;
    for (int32_t i = 0; i < BIASED_COLUMNS; i++)
        bias[i] = 0.5f * (float)i;
    for (int32_t shift = 0; shift < SHIFTS; shift++) {
        const struct cuda_sums_add_args args = {.sums = {sums, DTYPE_F32},
                                                .addend = {bias, DTYPE_F32},
                                                .d = {d + shift, DTYPE_BF16},
                                                .rows = BIASED_ROWS,
                                                .columns = BIASED_COLUMNS};
        bool right = cuda_launch_sums_add(NULL, &args) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
        for (int32_t i = 0; i < BIASED_ROWS * BIASED_COLUMNS; i++)
            right = right && d[shift + i] == bf16_from_f32((float)i + 0.5f * (float)(i % BIASED_COLUMNS));
        if (!right)
            printf("FAIL gemm sums_add: shifted by %" PRId32 "\n", shift);
        count(totals, right);
    }
}

/* Element i of a matrix of small integers, whose sums of 32 products are exact in fp16, and its bits. */
static int32_t factor(int64_t i)
{
    return (int32_t)(i * 7 % 11 % 5) - 2;
}

static void *factors_make(int64_t count)
{
    static const uint16_t halves[] = {0xc000, 0xbc00, 0, 0x3c00, 0x4000};
    uint16_t *factors = aligned_alloc(16, (size_t)count * sizeof *factors);
    for (int64_t i = 0; factors != NULL && i < count; i++)
        factors[i] = halves[factor(i) + 2];
    return factors;
}

/* A product with fp16 sums, in at most three parts of K, plus what d has; each operand in memory of its size. */
static bool half_sums_right(bool transpose_a, bool transpose_b, int32_t m, int32_t n, int32_t k)
{
    const size_t bytes = (size_t)m * (size_t)n * sizeof(float);
    void *a = factors_make((int64_t)m * k), *b = factors_make((int64_t)n * k);
    float *d = aligned_alloc(16, bytes), *sums = aligned_alloc(16, 3 * bytes);
    for (int32_t i = 0; i < m * n; i++)
        d[i] = (float)i;
    const struct cuda_half_sums_args args = {.a = a,
                                             .b = b,
                                             .end = {.sums = {sums, DTYPE_F32},
                                                     .addend = {d, DTYPE_F32},
                                                     .d = {d, DTYPE_F32},
                                                     .addend_is_matrix = true,
                                                     .rows = m,
                                                     .columns = n},
                                             .sums_bytes = 3 * bytes,
                                             .k = k,
                                             .transpose_a = transpose_a,
                                             .transpose_b = transpose_b};
    bool right = cuda_launch_half_sums(NULL, &args) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
    for (int32_t i = 0; right && i < m * n; i++) {
        int32_t sum = i;
        for (int32_t at = 0; at < k; at++)
            sum += factor(transpose_a ? at * m + i / n : i / n * k + at) *
                   factor(transpose_b ? i % n * k + at : at * n + i % n);
        right = d[i] == (float)sum;
    }
    free(a);
    free(b);
    free(d);
    free(sums);
    return right;
}

static void half_sums_check(struct totals *totals)
{
    static const int32_t sizes[][3] = {{136, 136, 72}, {72, 264, 8}, {8, 8, 8216}, {1096, 8, 40}};
    if (!is_wanted(totals, "gemm half_sums"))
        return;
    for (int32_t i = 0; i < (int32_t)(sizeof sizes / sizeof sizes[0]); i++) {
        const int32_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
        for (int32_t way = 0; way < 3; way++) {
            emulator_order_set(orders[way]);
            const bool right = half_sums_right(way == 1, way == 2, m, n, k);
            if (!right)
                printf("FAIL gemm half_sums: %" PRId32 " x %" PRId32 " x %" PRId32 ", way %" PRId32 "\n", m, n, k, way);
            count(totals, right);
        }
    }
}

/* ---- more elements than 32 bits can count ---- */

#define FAR_CHANNELS 1024
#define FAR_ROWS ((int64_t)3 << 20)
#define FAR_BYTES ((size_t)FAR_ROWS * FAR_CHANNELS * sizeof(uint16_t))

/* Maps memory of which only touched pages exist.  Returns NULL when the system refuses. */
static uint16_t *far_map(void)
{
    void *memory = mmap(NULL, FAR_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Looks up a table row far beyond 2^31 elements, and computes its gradient. */
static bool far_embed(uint16_t *table)
{
    static uint16_t place[FAR_CHANNELS], y[FAR_CHANNELS];
    static float gradient[FAR_CHANNELS];
    union scalar_word scalars[SCALAR_WORDS] = {{.f = 0.0f}};
    int32_t id = (int32_t)(FAR_ROWS - 2), order = 0, starts[3] = {1, 0, 1};
    uint16_t *row = table + (int64_t)id * FAR_CHANNELS;
    for (int32_t c = 0; c < FAR_CHANNELS; c++)
        row[c] = bf16_from_f32((float)(c % 100));
    struct cuda_args args = {.operand = {[EMBED_FORWARD_IDS] = {&id, DTYPE_I32},
                                         [EMBED_FORWARD_WTE] = {table, DTYPE_BF16},
                                         [EMBED_FORWARD_WPE] = {place, DTYPE_BF16},
                                         [EMBED_FORWARD_SCALARS] = {scalars, DTYPE_I32},
                                         [EMBED_FORWARD_Y] = {y, DTYPE_BF16}},
                             .attrs = {.time = 1},
                             .rows = 1,
                             .columns = FAR_CHANNELS,
                             .strip_floats = FAR_CHANNELS,
                             .walk = {.blocks = 1}};
    bool right = is_done(cuda_launch_embed_forward, &args) && memcmp(y, row, sizeof y) == 0;
    const struct cuda_floats of_backward[] = {
        [EMBED_BACKWARD_DY] = {y, DTYPE_BF16},        [EMBED_BACKWARD_IDS] = {&id, DTYPE_I32},
        [EMBED_BACKWARD_ORDER] = {&order, DTYPE_I32}, [EMBED_BACKWARD_STARTS] = {starts, DTYPE_I32},
        [EMBED_BACKWARD_DWTE] = {table, DTYPE_BF16},  [EMBED_BACKWARD_DWPE] = {gradient, DTYPE_F32}};
    memcpy(args.operand, of_backward, sizeof of_backward);
    right = right && is_done(cuda_launch_embed_backward_tokens, &args) &&
            is_done(cuda_launch_embed_backward_positions, &args);
    for (int32_t c = 0; c < FAR_CHANNELS; c++)
        right = right && bf16_to_f32(row[c]) == (float)(c % 100 * 2) && gradient[c] == (float)(c % 100);
    return right;
}

/* Only the last of 4096 rows has a target; with equal logits its loss is log(V). */
static bool far_cross_entropy(uint16_t *logits)
{
    const int64_t rows = (int64_t)1 << 12, width = FAR_ROWS * FAR_CHANNELS / rows;
    int32_t *targets = malloc((size_t)rows * sizeof *targets);
    float *losses = malloc((size_t)rows * sizeof *losses);
    bool right = targets != NULL && losses != NULL;
    for (int64_t n = 0; right && n < rows; n++)
        targets[n] = n == rows - 1 ? 5 : -1;
    const struct cuda_args args = {.operand = {[CROSS_ENTROPY_TARGETS] = {targets, DTYPE_I32},
                                               [CROSS_ENTROPY_LOGITS] = {logits, DTYPE_BF16},
                                               [CROSS_ENTROPY_LOSSES] = {losses, DTYPE_F32}},
                                   .attrs = {.vocab = 100},
                                   .rows = rows,
                                   .columns = width,
                                   .threads = 32};
    for (int64_t c = 0; right && c < 200; c++)
        logits[(rows - 1) * width + c] = bf16_from_f32(c < 100 ? 3.0f : 1000.0f);
    right = right && is_done(cuda_launch_cross_entropy, &args);
    right = right && losses[0] == 0.0f && fabsf(losses[rows - 1] - logf(100.0f)) < ldexpf(1.0f, -20);
    free(targets);
    free(losses);
    return right;
}

static void far_check(struct totals *totals)
{
    if (!is_wanted(totals, "far embed_forward embed_backward cross_entropy"))
        return;
    uint16_t *memory = far_map();
    if (memory == NULL) {
        printf("SKIP far: no address space for %zu bytes\n", FAR_BYTES);
        totals->skipped += 2;
        return;
    }
    const bool embed = far_embed(memory), loss = far_cross_entropy(memory);
    if (!embed || !loss)
        printf("FAIL far: %s beyond 2^31 elements\n", embed ? "cross_entropy" : "embed");
    totals->passed += embed + loss;
    totals->failed += !embed + !loss;
    munmap(memory, FAR_BYTES);
}

int main(int argc, char **argv)
{
    struct totals totals = {.passed = 0};
    if (!arguments_read(&totals, argc, argv))
        return 2;
    ops_check(&totals);
    shapes_check(&totals);
    aliases_check(&totals);
    updates_check(&totals);
    graphs_check(&totals);
    products_check(&totals);
    nan_check(&totals);
    sums_add_check(&totals);
    half_sums_check(&totals);
    far_check(&totals);
    return finish(&totals);
}
