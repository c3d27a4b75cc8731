/* The token and position embeddings, forward and backward. */
#include <math.h>

#include "tests/ops/op_test.h"

/* Does not use order and starts, which only list the contents of ids. */
static void embed_backward_tokens(const struct op_call *call, const struct ref_tensors *t)
{
    int64_t rows = call->operand[EMBED_BACKWARD_DY].dims[0],
            channels = call->operand[EMBED_BACKWARD_DY].dims[1];
    int64_t ids = call->operand[EMBED_BACKWARD_DWTE].dims[0];
    for (int64_t id = 0; id < ids; id++) {
        int64_t count = 0;
        for (int64_t n = 0; n < rows; n++)
            count += (int64_t)t->value[EMBED_BACKWARD_IDS][n] == id;
        for (int64_t c = 0; c < channels; c++) {
            double *sum = &t->value[EMBED_BACKWARD_DWTE][id * channels + c], m = fabs(*sum);
            for (int64_t n = 0; n < rows && count > 0; n++) {
                if ((int64_t)t->value[EMBED_BACKWARD_IDS][n] != id)
                    continue;
                *sum += t->value[EMBED_BACKWARD_DY][n * channels + c];
                m += fabs(t->value[EMBED_BACKWARD_DY][n * channels + c]);
            }
            t->term[EMBED_BACKWARD_DWTE][id * channels + c] =
                count > 0 ? sqrt((double)count) * m : REF_EXACT;
        }
    }
}

static void ref_embed_forward(const struct op_call *call, const struct ref_tensors *t)
{
    int64_t rows = call->operand[EMBED_FORWARD_Y].dims[0],
            channels = call->operand[EMBED_FORWARD_Y].dims[1];
    int64_t position = (int64_t)t->value[EMBED_FORWARD_SCALARS][SCALAR_POSITION];
    for (int64_t n = 0; n < rows; n++) {
        const double *token =
            t->value[EMBED_FORWARD_WTE] + (int64_t)t->value[EMBED_FORWARD_IDS][n] * channels;
        int64_t begin =
            t->value[EMBED_FORWARD_FIRST] != NULL ? (int64_t)t->value[EMBED_FORWARD_FIRST][n] : 0;
        int64_t place = (position + n % call->attrs.time - begin) * channels;
        for (int64_t c = 0; c < channels; c++) {
            double at_place =
                t->value[EMBED_FORWARD_WPE] != NULL ? t->value[EMBED_FORWARD_WPE][place + c] : 0.0;
            t->value[EMBED_FORWARD_Y][n * channels + c] = token[c] + at_place;
            t->term[EMBED_FORWARD_Y][n * channels + c] = 0.0;
        }
    }
}

static void ref_embed_backward(const struct op_call *call, const struct ref_tensors *t)
{
    int64_t rows = call->operand[EMBED_BACKWARD_DY].dims[0],
            channels = call->operand[EMBED_BACKWARD_DY].dims[1];
    const double *first = t->value[EMBED_BACKWARD_FIRST];
    embed_backward_tokens(call, t);
    for (int64_t i = 0; i < op_elements(call, EMBED_BACKWARD_DWPE); i++) {
        double sum = ref_before(call, t, EMBED_BACKWARD_DWPE, i), m = fabs(sum);
        int64_t count = 0;
        for (int64_t n = 0; n < rows; n++) {
            if (n % call->attrs.time - (first != NULL ? (int64_t)first[n] : 0) != i / channels)
                continue;
            sum += t->value[EMBED_BACKWARD_DY][n * channels + i % channels];
            m += fabs(t->value[EMBED_BACKWARD_DY][n * channels + i % channels]);
            count++;
        }
        t->value[EMBED_BACKWARD_DWPE][i] = sum;
        t->term[EMBED_BACKWARD_DWPE][i] = count > 0 ? sqrt((double)count) * m : REF_EXACT;
    }
}

static void make_embed_forward(struct maker *maker)
{
    int64_t time = case_size(maker, 65), channels = case_any_size(maker, 129),
            samples = 1 + random_below(&maker->random, 3);
    int64_t vocab = maker->index == 30 ? 50257 : maker->index == 31 ? 50304 : 65;
    channels = vocab > 65 ? 17 : maker->index % 50 == 49 ? 768 : channels;
    case_attrs(maker)->time = (int32_t)time;
    case_tensor(maker, EMBED_FORWARD_IDS, DTYPE_I32, samples * time, 0);
    case_tensor(maker, EMBED_FORWARD_WTE, maker->dtype, vocab, channels);
    if (maker->index % 6 != 5)
        case_tensor(maker, EMBED_FORWARD_WPE, maker->index % 5 == 4 ? DTYPE_F32 : maker->dtype,
                    time + random_below(&maker->random, 9), channels);
    case_documents(maker, EMBED_FORWARD_FIRST, samples * time);
    case_scalars(maker, EMBED_FORWARD_SCALARS);
}

static void make_embed_backward(struct maker *maker)
{
    int64_t time = case_size(maker, 65), channels = case_any_size(maker, 65),
            samples = 1 + random_below(&maker->random, 4);
    int64_t vocab = maker->index == 30 ? 50257 : 33, rows = samples * time;
    channels = vocab > 65 ? 7 : maker->index % 50 == 49 ? 768 : channels;
    case_attrs(maker)->time = (int32_t)time;
    case_tensor(maker, EMBED_BACKWARD_DY, maker->dtype, rows, channels);
    case_tensor(maker, EMBED_BACKWARD_IDS, DTYPE_I32, rows, 0);
    case_tensor(maker, EMBED_BACKWARD_ORDER, DTYPE_I32, rows, 0);
    case_tensor(maker, EMBED_BACKWARD_STARTS, DTYPE_I32, (rows < vocab ? rows : vocab) + 2, 0);
    case_tensor(maker, EMBED_BACKWARD_DWTE, maker->kept, vocab, channels);
    if (maker->index % 6 != 5)
        case_tensor(maker, EMBED_BACKWARD_DWPE, maker->kept, time + random_below(&maker->random, 4),
                    channels);
    case_documents(maker, EMBED_BACKWARD_FIRST, rows);
    case_accumulate(
        maker, maker->index % 6 == 1 || maker->index % 6 == 3 ? 1u << EMBED_BACKWARD_DWPE : 0u);
}

static void inputs_embed_forward(const struct check_case *check, double *const *value,
                                 struct random *random)
{
    const struct operand *wpe = case_operand(check, EMBED_FORWARD_WPE);
    for (int64_t n = 0; n < case_operand(check, EMBED_FORWARD_IDS)->dims[0]; n++)
        value[EMBED_FORWARD_IDS][n] =
            (double)random_below(random, case_operand(check, EMBED_FORWARD_WTE)->dims[0]);
    inputs_documents(check, value[EMBED_FORWARD_FIRST], random);
    int64_t positions = wpe->present ? wpe->dims[0] - check->call.attrs.time + 1 : 1000;
    value[EMBED_FORWARD_SCALARS][SCALAR_POSITION] = (double)random_below(random, positions);
    inputs_huge(check, EMBED_FORWARD_WTE, value, HUGE_SCALE);
    inputs_huge(check, EMBED_FORWARD_WPE, value, HUGE_SCALE);
}

/* Draws few distinct ids, so that groups are long; rows are listed by rising id, and within an id
 * by rising row. */
static void inputs_embed_backward(const struct check_case *check, double *const *value,
                                  struct random *random)
{
    int64_t rows = case_operand(check, EMBED_BACKWARD_IDS)->dims[0],
            vocab = case_operand(check, EMBED_BACKWARD_DWTE)->dims[0];
    int64_t groups = 0, listed = 0, capacity = case_operand(check, EMBED_BACKWARD_STARTS)->dims[0];
    inputs_documents(check, value[EMBED_BACKWARD_FIRST], random);
    for (int64_t n = 0; n < rows; n++)
        value[EMBED_BACKWARD_IDS][n] =
            (double)(n % 3 == 0 ? vocab - 1 : random_below(random, vocab));
    for (int64_t i = 0; i < capacity; i++)
        value[EMBED_BACKWARD_STARTS][i] = 0.0;
    for (int64_t id = 0; id < vocab && listed < rows; id++) {
        int64_t first = listed;
        for (int64_t n = 0; n < rows; n++) {
            if ((int64_t)value[EMBED_BACKWARD_IDS][n] == id)
                value[EMBED_BACKWARD_ORDER][listed++] = (double)n;
        }
        if (listed > first)
            value[EMBED_BACKWARD_STARTS][1 + ++groups] = (double)listed;
    }
    value[EMBED_BACKWARD_STARTS][0] = (double)groups;
    inputs_huge(check, EMBED_BACKWARD_DY, value, HUGE_SCALE);
}

const struct op_test test_embed_forward = {
    .shape = make_embed_forward,
    .bench = bench_plain, /* of wte, only the rows that are read */
    .bench_dims = {{EMBED_FORWARD_IDS, {BENCH_ROWS}},
                   {EMBED_FORWARD_WPE, {BENCH_TIME, BENCH_CHANNELS}}},
    .inputs = inputs_embed_forward,
    .ref = ref_embed_forward,
    .is_sum_of_products = true,
};

const struct op_test test_embed_backward = {
    .shape = make_embed_backward,
    .bench = bench_plain,
    .bench_dims = {{EMBED_BACKWARD_IDS, {BENCH_ROWS}},
                   {EMBED_BACKWARD_ORDER, {BENCH_ROWS}},
                   {EMBED_BACKWARD_STARTS, {BENCH_ROWS + 2}},
                   {EMBED_BACKWARD_DWPE, {BENCH_TIME, BENCH_CHANNELS}}},
    .inputs = inputs_embed_backward,
    .ref = ref_embed_backward,
    .is_sum_of_products = true,
};
