/* The angles of rotary position embeddings, in double precision: kernels get their sines and
 * cosines from a table, so that every backend rotates by the same angles.
 */
#include "base/rope_angles.h"

#include <math.h>

#define TWO_PI 6.283185307179586
#define MOST 1e9
#define BETA_FAST 32.0
#define BETA_SLOW 1.0
#define NUMBERS_MAX (2 + 2 * ROPE_PAIRS_MAX)

static double llama3(const struct rope_config *rope, double frequency)
{
    const double waves = rope->original_context * frequency / TWO_PI; /* in the original context */
    if (waves > rope->high_freq_factor)
        return frequency;
    if (waves < rope->low_freq_factor)
        return frequency / rope->factor;
    const double share =
        (waves - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    return (1.0 - share) * frequency / rope->factor + share * frequency;
}

/* Returns the pair that rotates `turns` times in the original context. */
static double pair_of_turns(const struct rope_config *rope, int32_t size, double turns)
{
    return size * log(rope->original_context / (turns * TWO_PI)) / (2.0 * log(rope->theta));
}

static double yarn(const struct rope_config *rope, int32_t size, int32_t i, double frequency)
{
    double low = pair_of_turns(rope, size, rope->beta_fast),
           high = pair_of_turns(rope, size, rope->beta_slow);
    low = fmax(rope->whole_pairs ? floor(low) : low, 0.0);
    high = fmin(rope->whole_pairs ? ceil(high) : high, size - 1.0);
    high += low == high ? 0.001 : 0.0; /* as transformers does */
    const double share = fmin(fmax((i - low) / (high - low), 0.0), 1.0);
    return share * frequency / rope->factor + (1.0 - share) * frequency;
}

/* Returns the frequency for a theta that grows with the ratio of `block` to the original context.
 */
static double dynamic(const struct rope_config *rope, int32_t size, int32_t block, int32_t i)
{
    const double longer = fmax((double)block / rope->original_context, 1.0);
    const double theta =
        rope->theta * pow(rope->factor * longer - (rope->factor - 1.0), size / (size - 2.0));
    return pow(theta, -2.0 * i / size);
}

double rope_frequency(const struct rope_config *rope, int32_t size, int32_t block, int32_t i)
{
    const double frequency = pow(rope->theta, -2.0 * i / size);
    switch (rope->scaling) {
    case ROPE_SCALING_LINEAR:
        return frequency / rope->factor;
    case ROPE_SCALING_LLAMA3:
        return llama3(rope, frequency);
    case ROPE_SCALING_YARN:
        return yarn(rope, size, i, frequency);
    case ROPE_SCALING_LONGROPE:
        return frequency / (double)rope->divisors[block > rope->original_context][i];
    case ROPE_SCALING_DYNAMIC:
        return size > 2 && block > rope->original_context ? dynamic(rope, size, block, i)
                                                          : frequency;
    default:
        return frequency;
    }
}

double rope_attention(const struct rope_config *rope)
{
    const bool has_factor =
        rope->scaling == ROPE_SCALING_YARN || rope->scaling == ROPE_SCALING_LONGROPE;
    return has_factor ? rope->attention_factor : 1.0;
}

bool rope_depends_on_block(const struct rope_config *rope)
{
    return rope->scaling == ROPE_SCALING_LONGROPE || rope->scaling == ROPE_SCALING_DYNAMIC;
}

double rope_yarn_attention(double factor)
{
    return factor <= 1.0 ? 1.0 : 0.1 * log(factor) + 1.0;
}

/* ---- the text ---- */

static bool is_context(double value)
{
    return value >= 1.0 && value <= INT32_MAX && value == floor(value);
}

static bool linear_read(struct rope_config *out, const double *number, int count)
{
    out->factor = number[0];
    return count == 1 && out->factor >= 1.0 && out->factor <= MOST;
}

static bool llama3_read(struct rope_config *out, const double *number, int count)
{
    if (count != 4 || !is_context(number[3]))
        return false;
    out->factor = number[0];
    out->low_freq_factor = number[1];
    out->high_freq_factor = number[2];
    out->original_context = (int32_t)number[3];
    return out->factor >= 1.0 && out->factor <= MOST && out->low_freq_factor > 0.0 &&
           out->high_freq_factor > out->low_freq_factor && out->high_freq_factor <= MOST;
}

static bool dynamic_read(struct rope_config *out, const double *number, int count)
{
    if (count != 2 || !is_context(number[1]))
        return false;
    out->factor = number[0];
    out->original_context = (int32_t)number[1];
    return out->factor >= 1.0 && out->factor <= MOST;
}

static bool yarn_read(struct rope_config *out, const double *number, int count)
{
    if (count > 6 || !dynamic_read(out, number, count < 2 ? count : 2))
        return false;
    out->beta_fast = count > 2 ? number[2] : BETA_FAST;
    out->beta_slow = count > 3 ? number[3] : BETA_SLOW;
    out->attention_factor = count > 4 ? number[4] : rope_yarn_attention(out->factor);
    out->whole_pairs = count < 6 || number[5] != 0.0;
    return out->beta_slow > 0.0 && out->beta_fast >= out->beta_slow && out->beta_fast <= MOST &&
           out->attention_factor > 0.0 && out->attention_factor <= MOST;
}

static bool longrope_read(struct rope_config *out, const double *number, int count)
{
    if (count < 4 || count % 2 != 0 || !is_context(number[0]))
        return false;
    out->original_context = (int32_t)number[0];
    out->attention_factor = number[1];
    out->pairs = (count - 2) / 2;
    bool good = out->attention_factor > 0.0 && out->attention_factor <= MOST;
    for (int i = 0; i < count - 2; i++) {
        out->divisors[i / out->pairs][i % out->pairs] = (float)number[2 + i];
        good = good && number[2 + i] > 1e-9 && number[2 + i] <= MOST;
    }
    return good;
}

static const struct {
    const char *name;
    bool (*read)(struct rope_config *out, const double *number, int count);
} kinds[] = {
    [ROPE_SCALING_NONE] = {"", NULL},
    [ROPE_SCALING_LINEAR] = {"linear:", linear_read},
    [ROPE_SCALING_LLAMA3] = {"llama3:", llama3_read},
    [ROPE_SCALING_YARN] = {"yarn:", yarn_read},
    [ROPE_SCALING_LONGROPE] = {"longrope:", longrope_read},
    [ROPE_SCALING_DYNAMIC] = {"dynamic:", dynamic_read},
};

bool rope_scaling_read(const char *text, struct rope_config *out)
{
    double number[NUMBERS_MAX];
    size_t kind = ROPE_SCALING_LINEAR;
    const size_t last = sizeof kinds / sizeof kinds[0] - 1;
    out->scaling = ROPE_SCALING_NONE;
    if (text[0] == '\0')
        return true;
    while (kind < last && strncmp(text, kinds[kind].name, strlen(kinds[kind].name)) != 0)
        kind++;
    if (strncmp(text, kinds[kind].name, strlen(kinds[kind].name)) != 0)
        return false;
    const char *at = text + strlen(kinds[kind].name);
    int count = 0;
    for (;;) {
        char *end;
        if (count == NUMBERS_MAX)
            return false;
        number[count] = strtod(at, &end);
        if (end == at || !isfinite(number[count]))
            return false;
        count++;
        if (*end == '\0')
            break;
        if (*end != ',')
            return false;
        at = end + 1;
    }
    out->scaling = (enum rope_scaling)kind;
    return kinds[kind].read(out, number, count);
}

/* Appends ",%.*g", without the comma after a colon. */
static void number_put(char *text, int digits, double value)
{
    const size_t used = strlen(text);
    (void)snprintf(text + used, ROPE_SCALING_TEXT_MAX - used, "%s%.*g",
                   text[used - 1] == ':' ? "" : ",", digits, value);
}

static void yarn_put(char *text, const struct rope_config *rope)
{
    const bool truncates = rope->whole_pairs,
               pays = truncates && rope->attention_factor == rope_yarn_attention(rope->factor);
    if (pays && rope->beta_fast == BETA_FAST && rope->beta_slow == BETA_SLOW)
        return;
    number_put(text, 15, rope->beta_fast);
    number_put(text, 15, rope->beta_slow);
    if (pays)
        return;
    number_put(text, 17, rope->attention_factor);
    if (!truncates)
        number_put(text, 1, 0.0);
}

char *rope_scaling_text(char text[static ROPE_SCALING_TEXT_MAX], const struct rope_config *rope)
{
    (void)snprintf(text, ROPE_SCALING_TEXT_MAX, "%s", kinds[rope->scaling].name);
    if (rope->scaling == ROPE_SCALING_NONE)
        return text;
    if (rope->scaling == ROPE_SCALING_LONGROPE) {
        number_put(text, 15, rope->original_context);
        number_put(text, 17, rope->attention_factor);
        for (int i = 0; i < 2 * rope->pairs; i++)
            number_put(text, 9, (double)rope->divisors[i / rope->pairs][i % rope->pairs]);
        return text;
    }
    number_put(text, 15, rope->factor);
    if (rope->scaling == ROPE_SCALING_LLAMA3) {
        number_put(text, 15, rope->low_freq_factor);
        number_put(text, 15, rope->high_freq_factor);
    }
    if (rope->scaling != ROPE_SCALING_LINEAR)
        number_put(text, 15, rope->original_context);
    if (rope->scaling == ROPE_SCALING_YARN)
        yarn_put(text, rope);
    return text;
}
