/* Encodes and decodes ggml's blocks.
 *
 * The simple types choose their scale to represent the value of the largest magnitude, or the
 * largest and the smallest value.  A part of a K block is fitted: for each of several candidate
 * scales the codes are rounded, and weighted least squares give the scale (and minimum) that fits
 * those codes best; the candidate with the smallest error wins.  The scales of the parts are then
 * rounded to 6 or 8 bits, and the codes are rounded once more, to the scales as they will be read.
 * Candidates, weights and the order of the sums are the reference's, so that files have its bytes
 * where the compiler keeps the order.  All arithmetic is fp32; codes are rounded to even by adding
 * 1.5 * 2^23.
 */
#include "io/ggml_block.h"

#include <math.h>
#include <string.h>

#include "base/size.h"
#include "base/thread.h"

#define VALUES 32    /* of a simple block, and of a part of Q4_K and Q5_K */
#define K_VALUES 256 /* of a K block */
#define K_SUBBLOCKS 8
#define Q6_PARTS 16
#define Q6_VALUES 16 /* of a part of Q6_K */
#define SCALE_MAX 63 /* of a part of Q4_K and Q5_K */
#define PACKED_SCALES 12
#define TINY 1e-15f /* a part without a larger value, or scale, is stored as zero */
/* About what the largest scales can represent; sums of larger values might overflow. */
#define VALUE_MAX 0x1p22f
#define JOB_VALUES 8192 /* encoded by a thread at a time */

static float f16_get(const unsigned char *bytes)
{
    uint16_t bits;
    memcpy(&bits, bytes, sizeof bits);
    return f16_to_f32(bits);
}

/* Stores a number, and returns what will be read. */
static float f16_put(unsigned char *bytes, float value)
{
    const uint16_t bits = f16_from_f32(value);
    memcpy(bytes, &bits, sizeof bits);
    return f16_to_f32(bits);
}

static int nearest(float value)
{
    const float magic = 0x1.8p23f; /* its last bit is worth 1 */
    return (int)((value + magic) - magic);
}

static int clamp(int value, int least, int most)
{
    return value < least ? least : value > most ? most : value;
}

/* ---- blocks of 32 ---- */
static float largest(const float *values, size_t count)
{
    float result = 0.0f;
    for (size_t i = 0; i < count; i++)
        if (fabsf(values[i]) > fabsf(result))
            result = values[i];
    return result;
}

static float inverse(float value)
{
    return value != 0.0f ? 1.0f / value : 0.0f;
}

static void q8_0_encode(const float *values, unsigned char *block)
{
    const float scale = fabsf(largest(values, VALUES)) / 127.0f, by = inverse(scale);
    (void)f16_put(block, scale);
    for (size_t i = 0; i < VALUES; i++)
        block[2 + i] = (unsigned char)(int8_t)roundf(values[i] * by);
}

static void q8_0_decode(const unsigned char *block, float *values)
{
    const float scale = f16_get(block);
    for (size_t i = 0; i < VALUES; i++)
        values[i] = scale * (float)(int8_t)block[2 + i];
}

/* Rounds values to codes 0 ... most. */
static void codes_round(const float *values, float by, float shift, int most,
                        uint8_t codes[static VALUES])
{
    for (size_t i = 0; i < VALUES; i++)
        codes[i] = (uint8_t)clamp((int)(values[i] * by + shift), 0, most);
}

/* Packs the low 4 bits of codes i and i + 16 into byte i. */
static void nibbles_put(const uint8_t codes[static VALUES], unsigned char *out)
{
    for (size_t i = 0; i < VALUES / 2; i++)
        out[i] = (unsigned char)((codes[i] & 15) | (codes[i + VALUES / 2] & 15) << 4);
}

static int nibble_get(const unsigned char *in, size_t i)
{
    return i < VALUES / 2 ? in[i] & 15 : in[i - VALUES / 2] >> 4;
}

/* Packs the fifth bits, one bit a code. */
static void fifths_put(const uint8_t codes[static VALUES], unsigned char *out)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < VALUES; i++)
        bits |= (uint32_t)(codes[i] >> 4) << i;
    memcpy(out, &bits, sizeof bits);
}

static int fifth_get(const unsigned char *in, size_t i)
{
    return (in[i / 8] >> i % 8 & 1) << 4;
}

static void q4_0_encode(const float *values, unsigned char *block)
{
    uint8_t codes[VALUES];
    const float scale = largest(values, VALUES) / -8.0f;
    (void)f16_put(block, scale);
    codes_round(values, inverse(scale), 8.5f, 15, codes);
    nibbles_put(codes, block + 2);
}

static void q4_0_decode(const unsigned char *block, float *values)
{
    const float scale = f16_get(block);
    for (size_t i = 0; i < VALUES; i++)
        values[i] = scale * (float)(nibble_get(block + 2, i) - 8);
}

static void q5_0_encode(const float *values, unsigned char *block)
{
    uint8_t codes[VALUES];
    const float scale = largest(values, VALUES) / -16.0f;
    (void)f16_put(block, scale);
    codes_round(values, inverse(scale), 16.5f, 31, codes);
    fifths_put(codes, block + 2);
    nibbles_put(codes, block + 6);
}

static void q5_0_decode(const unsigned char *block, float *values)
{
    const float scale = f16_get(block);
    for (size_t i = 0; i < VALUES; i++)
        values[i] = scale * (float)((nibble_get(block + 6, i) | fifth_get(block + 2, i)) - 16);
}

static void q5_1_encode(const float *values, unsigned char *block)
{
    uint8_t codes[VALUES];
    float least = values[0], most = values[0];
    for (size_t i = 1; i < VALUES; i++) {
        least = fminf(least, values[i]);
        most = fmaxf(most, values[i]);
    }
    const float scale = (most - least) / 31.0f, by = inverse(scale);
    (void)f16_put(block, scale);
    (void)f16_put(block + 2, least);
    for (size_t i = 0; i < VALUES; i++)
        codes[i] = (uint8_t)((values[i] - least) * by + 0.5f);
    fifths_put(codes, block + 4);
    nibbles_put(codes, block + 8);
}

static void q5_1_decode(const unsigned char *block, float *values)
{
    const float scale = f16_get(block), least = f16_get(block + 2);
    for (size_t i = 0; i < VALUES; i++)
        values[i] = scale * (float)(nibble_get(block + 8, i) | fifth_get(block + 4, i)) + least;
}

/* ---- Q4_K and Q5_K: value = scale * code - minimum, both with 6 bits for each part of 32 ---- */
/* How candidates are tried: codes 0 ... most, and inverse scales (first + i * step + most) / range.
 */
struct search {
    int most, steps;
    float first, step;
};

struct part {
    float scale, minimum; /* value = scale * code - minimum */
    uint8_t codes[VALUES];
};

/* The sums of weighted least squares of the values over their codes. */
struct sums {
    float weight, value, code, code_code, code_value;
};

static void candidate_round(const float *values, float by, float least, int most,
                            uint8_t codes[static VALUES])
{
    for (size_t i = 0; i < VALUES; i++)
        codes[i] = (uint8_t)clamp(nearest(by * (values[i] - least)), 0, most);
}

static float error_of(const float *values, const float *weights, const uint8_t *codes, float scale,
                      float least)
{
    float error = 0.0f;
    for (size_t i = 0; i < VALUES; i++) {
        const float difference = scale * (float)codes[i] + least - values[i];
        error += weights[i] * (difference * difference);
    }
    return error;
}

static void codes_sum(const float *values, const float *weights, const uint8_t *codes,
                      struct sums *sums)
{
    sums->code = sums->code_code = sums->code_value = 0.0f;
    for (size_t i = 0; i < VALUES; i++) {
        const float code = (float)codes[i];
        sums->code += weights[i] * code;
        sums->code_code += weights[i] * code * code;
        sums->code_value += weights[i] * code * values[i];
    }
}

/* Sets scale and least value to the best ones for the codes; the least is not positive.  Returns
 * false when the codes do not determine them. */
static bool line_fit(const struct sums *sums, float *scale, float *least)
{
    const float determinant = sums->weight * sums->code_code - sums->code * sums->code;
    if (!(determinant > 0.0f))
        return false;
    *scale = (sums->weight * sums->code_value - sums->value * sums->code) / determinant;
    *least = (sums->code_code * sums->value - sums->code * sums->code_value) / determinant;
    if (*least > 0.0f) {
        *least = 0.0f;
        *scale = sums->code_value / sums->code_code;
    }
    return true;
}

/* Weighs each value by its magnitude and the part's root mean square. */
static void weights_set(const float *values, float weights[static VALUES], struct sums *sums)
{
    float squares = 0.0f;
    for (size_t i = 0; i < VALUES; i++)
        squares += values[i] * values[i];
    const float mean = sqrtf(squares / VALUES);
    for (size_t i = 0; i < VALUES; i++)
        weights[i] = mean + fabsf(values[i]);
    sums->weight = weights[0];
    sums->value = weights[0] * values[0];
    for (size_t i = 1; i < VALUES; i++) {
        sums->weight += weights[i];
        sums->value += weights[i] * values[i];
    }
}

/* Each candidate is measured from the least value of the best one so far. */
static void subblock_fit(const float *values, const struct search *search, struct part *out)
{
    float weights[VALUES], least = values[0], most = values[0], scale, fitted;
    uint8_t codes[VALUES];
    struct sums sums;
    weights_set(values, weights, &sums);
    for (size_t i = 1; i < VALUES; i++) {
        least = values[i] < least ? values[i] : least;
        most = values[i] > most ? values[i] : most;
    }
    least = least > 0.0f ? 0.0f : least;
    *out = (struct part){.scale = 0.0f, .minimum = -least};
    if (most == least)
        return;
    const float by = (float)search->most / (most - least);
    out->scale = 1.0f / by;
    candidate_round(values, by, least, search->most, out->codes);
    float error = error_of(values, weights, out->codes, out->scale, least);
    for (int i = 0; i <= search->steps; i++) {
        const float tried =
            (search->first + search->step * (float)i + (float)search->most) / (most - least);
        candidate_round(values, tried, least, search->most, codes);
        codes_sum(values, weights, codes, &sums);
        if (!line_fit(&sums, &scale, &fitted))
            continue;
        const float now = error_of(values, weights, codes, scale, fitted);
        if (!(now < error))
            continue;
        error = now;
        least = fitted;
        *out = (struct part){.scale = scale, .minimum = -fitted};
        memcpy(out->codes, codes, sizeof codes);
    }
}

/* Packs the 6-bit scales and minimums of 8 parts into 12 bytes.  Those of the first four parts are
 * in the low 6 bits of bytes 0 to 3 and 4 to 7.  The others have their low 4 bits in bytes 8 to 11,
 * and their high 2 bits above those of the first four. */
static void scales_pack(const uint8_t scales[static K_SUBBLOCKS],
                        const uint8_t minimums[static K_SUBBLOCKS], unsigned char *out)
{
    for (size_t i = 0; i < K_SUBBLOCKS / 2; i++) {
        const uint8_t scale = scales[i + 4], minimum = minimums[i + 4];
        out[i] = (unsigned char)(scales[i] | (scale >> 4) << 6);
        out[i + 4] = (unsigned char)(minimums[i] | (minimum >> 4) << 6);
        out[i + 8] = (unsigned char)((scale & 15) | (minimum & 15) << 4);
    }
}

static void scale_unpack(const unsigned char *in, size_t part, int *scale, int *minimum)
{
    if (part < 4) {
        *scale = in[part] & 63;
        *minimum = in[part + 4] & 63;
        return;
    }
    *scale = (in[part + 4] & 15) | (in[part - 4] >> 6) << 4;
    *minimum = in[part + 4] >> 4 | (in[part] >> 6) << 4;
}

/* Fits the parts, stores their scales in the 16 bytes at `head`, and rounds the codes to these. */
static void subblocks_encode(const float *values, const struct search *search, unsigned char *head,
                             uint8_t codes[static K_VALUES])
{
    struct part parts[K_SUBBLOCKS];
    uint8_t scales[K_SUBBLOCKS], minimums[K_SUBBLOCKS];
    float scale_most = 0.0f, minimum_most = 0.0f;
    for (size_t i = 0; i < K_SUBBLOCKS; i++) {
        subblock_fit(values + i * VALUES, search, &parts[i]);
        scale_most = parts[i].scale > scale_most ? parts[i].scale : scale_most;
        minimum_most = parts[i].minimum > minimum_most ? parts[i].minimum : minimum_most;
    }
    const float by_scale = scale_most > 0.0f ? (float)SCALE_MAX / scale_most : 0.0f;
    const float by_minimum = minimum_most > 0.0f ? (float)SCALE_MAX / minimum_most : 0.0f;
    const float scale = f16_put(head, scale_most / (float)SCALE_MAX);
    const float minimum = f16_put(head + 2, minimum_most / (float)SCALE_MAX);
    for (size_t i = 0; i < K_SUBBLOCKS; i++) {
        scales[i] = (uint8_t)clamp(nearest(by_scale * parts[i].scale), 0, SCALE_MAX);
        minimums[i] = (uint8_t)clamp(nearest(by_minimum * parts[i].minimum), 0, SCALE_MAX);
        const float unit = scale * (float)scales[i], offset = minimum * (float)minimums[i];
        memcpy(codes + i * VALUES, parts[i].codes, VALUES);
        for (size_t k = i * VALUES; unit != 0.0f && k < (i + 1) * VALUES; k++)
            codes[k] = (uint8_t)clamp(nearest((values[k] + offset) / unit), 0, search->most);
    }
    scales_pack(scales, minimums, head + 4);
}

/* Packs the low 4 bits of the codes.  Parts 2 k and 2 k + 1 share bytes. */
static void k_nibbles_put(const uint8_t codes[static K_VALUES], unsigned char *out)
{
    for (size_t pair = 0; pair < K_SUBBLOCKS / 2; pair++)
        for (size_t i = 0; i < VALUES; i++)
            out[pair * VALUES + i] =
                (unsigned char)((codes[2 * pair * VALUES + i] & 15) |
                                (codes[(2 * pair + 1) * VALUES + i] & 15) << 4);
}

/* `fifths` has bit p of byte i for value i of part p, or is NULL. */
static void k_decode(const unsigned char *block, const unsigned char *fifths,
                     const unsigned char *nibbles, float *values)
{
    const float scale = f16_get(block), minimum = f16_get(block + 2);
    for (size_t part = 0; part < K_SUBBLOCKS; part++) {
        int units, offsets;
        scale_unpack(block + 4, part, &units, &offsets);
        const float unit = scale * (float)units, offset = minimum * (float)offsets;
        for (size_t i = 0; i < VALUES; i++) {
            const int low = nibbles[part / 2 * VALUES + i] >> part % 2 * 4 & 15;
            const int high = fifths != NULL ? (fifths[i] >> part & 1) << 4 : 0;
            values[part * VALUES + i] = unit * (float)(low | high) - offset;
        }
    }
}

static void q4_k_encode(const float *values, unsigned char *block)
{
    static const struct search search = {.most = 15, .steps = 20, .first = -1.0f, .step = 0.1f};
    uint8_t codes[K_VALUES];
    subblocks_encode(values, &search, block, codes);
    k_nibbles_put(codes, block + 4 + PACKED_SCALES);
}

static void q4_k_decode(const unsigned char *block, float *values)
{
    k_decode(block, NULL, block + 4 + PACKED_SCALES, values);
}

static void q5_k_encode(const float *values, unsigned char *block)
{
    static const struct search search = {.most = 31, .steps = 15, .first = -0.5f, .step = 0.1f};
    uint8_t codes[K_VALUES];
    unsigned char *fifths = block + 4 + PACKED_SCALES;
    subblocks_encode(values, &search, block, codes);
    memset(fifths, 0, VALUES);
    for (size_t i = 0; i < K_VALUES; i++)
        fifths[i % VALUES] |= (unsigned char)((codes[i] >> 4) << i / VALUES);
    k_nibbles_put(codes, fifths + VALUES);
}

static void q5_k_decode(const unsigned char *block, float *values)
{
    k_decode(block, block + 4 + PACKED_SCALES, block + 4 + PACKED_SCALES + VALUES, values);
}

/* ---- Q6_K: value = scale * code, codes -32 ... 31, a scale of 8 bits for each part of 16 ---- */
struct q6_sums {
    float code_value, code_code;
};

static struct q6_sums q6_round(const float *values, float by, int8_t codes[static Q6_VALUES])
{
    struct q6_sums sums = {0.0f, 0.0f};
    for (size_t i = 0; i < Q6_VALUES; i++) {
        const int code = clamp(nearest(by * values[i]), -32, 31);
        const float weight = values[i] * values[i];
        sums.code_value += weight * values[i] * (float)code;
        sums.code_code += weight * (float)code * (float)code;
        codes[i] = (int8_t)code;
    }
    return sums;
}

/* Returns the scale of a part; the codes of a part of zeros do not matter.  Minimizing the error,
 * weighted by the values' squares, maximizes code_value^2 / code_code. */
static float q6_fit(const float *values, int8_t codes[static Q6_VALUES])
{
    int8_t tried[Q6_VALUES];
    const float most = largest(values, Q6_VALUES);
    memset(codes, -32, Q6_VALUES);
    if (fabsf(most) < TINY)
        return 0.0f;
    struct q6_sums sums = q6_round(values, -32.0f / most, codes);
    float scale = sums.code_code != 0.0f ? sums.code_value / sums.code_code : 0.0f;
    float best = scale * sums.code_value;
    for (int i = -9; i <= 9; i++) {
        sums = q6_round(values, -(32.0f + 0.1f * (float)i) / most, tried);
        if (i == 0 || !(sums.code_code > 0.0f) ||
            !(sums.code_value * sums.code_value > best * sums.code_code))
            continue;
        scale = sums.code_value / sums.code_code;
        best = scale * sums.code_value;
        memcpy(codes, tried, sizeof tried);
    }
    return scale;
}

/* Codes + 32, 6 bits each.  Half a block has 64 bytes of low bits, which codes l and l + 64 share,
 * and 32 bytes of high bits, which codes l, l + 32, l + 64 and l + 96 share. */
static void q6_pack(const int8_t codes[static K_VALUES], unsigned char *low, unsigned char *high)
{
    memset(low, 0, K_VALUES / 2);
    memset(high, 0, K_VALUES / 4);
    for (size_t i = 0; i < K_VALUES; i++) {
        const size_t half = i / 128, at = i % 128;
        const int code = codes[i] + 32;
        low[half * 64 + at % 64] |= (unsigned char)((code & 15) << at / 64 * 4);
        high[half * 32 + at % 32] |= (unsigned char)((code >> 4) << at / 32 * 2);
    }
}

static void q6_k_encode(const float *values, unsigned char *block)
{
    int8_t codes[K_VALUES];
    float scales[Q6_PARTS];
    unsigned char *low = block, *high = low + K_VALUES / 2, *parts = high + K_VALUES / 4,
                  *at = parts + Q6_PARTS;
    for (size_t i = 0; i < Q6_PARTS; i++)
        scales[i] = q6_fit(values + i * Q6_VALUES, codes + i * Q6_VALUES);
    const float most = largest(scales, Q6_PARTS);
    if (fabsf(most) < TINY) {
        memset(block, 0, ggml_blocks[GGML_Q6_K].bytes);
        return;
    }
    const float by = -128.0f / most, scale = f16_put(at, 1.0f / by);
    for (size_t i = 0; i < Q6_PARTS; i++) {
        const int part = clamp(nearest(by * scales[i]), -128, 127);
        const float unit = scale * (float)part;
        parts[i] = (unsigned char)(int8_t)part;
        for (size_t k = i * Q6_VALUES; unit != 0.0f && k < (i + 1) * Q6_VALUES; k++)
            codes[k] = (int8_t)clamp(nearest(values[k] / unit), -32, 31);
    }
    q6_pack(codes, low, high);
}

static void q6_k_decode(const unsigned char *block, float *values)
{
    const unsigned char *low = block, *high = low + K_VALUES / 2, *parts = high + K_VALUES / 4;
    const float scale = f16_get(parts + Q6_PARTS);
    for (size_t i = 0; i < K_VALUES; i++) {
        const size_t half = i / 128, at = i % 128;
        const int code = (low[half * 64 + at % 64] >> at / 64 * 4 & 15) |
                         (high[half * 32 + at % 32] >> at / 32 * 2 & 3) << 4;
        values[i] = scale * (float)(int8_t)parts[i / Q6_VALUES] * (float)(code - 32);
    }
}

/* ---- the types ---- */
/* The errors of a sound encoder, with M for a block's largest magnitude; a scale or minimum that is
 * rounded to fp16 adds 2^-11 of what it scales.
 *
 * Simple types.  Numbers are rounded to nearest: half of the last place.  Q8_0 has steps of M /
 * 127. Q4_0 and Q5_0 have steps of M / 8 and M / 16 and lack the last code on one side: a whole
 * step. Q5_1 has 31 steps in the range R <= 2 M.
 *
 * Q4_K, Q5_K.  With steps of R / n, n = 15 or 31, the plain candidate of a part is wrong by at most
 * half of one, so the sum of w e^2 of the best is at most (R / 2 n)^2 times the sum of w.  Weights
 * w are root mean square + |x|: each is at least the former and their sum at most twice that, so
 * the root mean square of e is at most sqrt(2) R / 2 n, and no e exceeds 8 times R / 2 n.  A fitted
 * scale s spans n - 1 codes with the range and two such errors, s <= 1.54 R / 14 or 1.26 R / 30,
 * and a minimum is at most M + 8 R / 2 n.  Rounding them to 6 bits moves a value by n s / 126 and
 * by the minimum / 126; codes are then rounded again, to the nearest, which errs no more than the
 * old ones. With R = 2 M: (0.0943 + 0.0262 + 0.0122) M and (0.0456 + 0.0207 + 0.0101) M.
 *
 * Q6_K.  A part with 32 steps of M / 32 is wrong by one at most.  With weights x^2 the best
 * candidate's error at the largest of the 16 values is at most 4 steps, M / 8, so its scale is
 * between 0.875 / 32 and 1.125 / 31 of M.  Codes were rounded with 31.1 / M to 32.9 / M: the others
 * are wrong by 0.194 |x| and half of such a scale, 0.018 M.  8 bits of scale: 32 s / 256 <= 0.0046
 * M.
 */
#define F16_SHARE 0x1p-11
#define K_CODES(most) (SCALE_MAX * ((most) + 1.0)) /* and the minimum */
const struct ggml_block ggml_blocks[GGML_TYPES] = {
    [GGML_F32] = {.name = "F32", .number = 0, .values = 1, .bytes = 4, .dtype = DTYPE_F32},
    [GGML_F16] = {.name = "F16",
                  .number = 1,
                  .values = 1,
                  .bytes = 2,
                  .dtype = DTYPE_F16,
                  .share = F16_SHARE,
                  .codes = 1.0},
    [GGML_BF16] = {.name = "BF16",
                   .number = 30,
                   .values = 1,
                   .bytes = 2,
                   .dtype = DTYPE_BF16,
                   .share = 0x1p-8,
                   .codes = 1.0},
    [GGML_Q4_0] = {"Q4_0", 2, VALUES, 18, DTYPE_COUNT, 1, 0, 1.0 / 8 + F16_SHARE, 8.0, q4_0_encode,
                   q4_0_decode},
    [GGML_Q5_0] = {"Q5_0", 6, VALUES, 22, DTYPE_COUNT, 1, 0, 1.0 / 16 + F16_SHARE, 16.0,
                   q5_0_encode, q5_0_decode},
    [GGML_Q5_1] = {"Q5_1", 7, VALUES, 24, DTYPE_COUNT, 2, 0, 1.0 / 31 + 3 * F16_SHARE, 32.0,
                   q5_1_encode, q5_1_decode},
    [GGML_Q8_0] = {"Q8_0", 8, VALUES, 34, DTYPE_COUNT, 1, 0, 1.0 / 254 + F16_SHARE, 127.0,
                   q8_0_encode, q8_0_decode},
    [GGML_Q4_K] = {"Q4_K", 12, K_VALUES, 144, DTYPE_COUNT, 2, 0, 0.133 + 5 * F16_SHARE, K_CODES(15),
                   q4_k_encode, q4_k_decode},
    [GGML_Q5_K] = {"Q5_K", 13, K_VALUES, 176, DTYPE_COUNT, 2, 0, 0.077 + 5 * F16_SHARE, K_CODES(31),
                   q5_k_encode, q5_k_decode},
    [GGML_Q6_K] = {"Q6_K", 14, K_VALUES, 210, DTYPE_COUNT, 1, 208, 0.217 + 2 * F16_SHARE,
                   128.0 * 32, q6_k_encode, q6_k_decode},
};

bool ggml_type_find(uint32_t number, enum ggml_type *out)
{
    for (int type = 0; type < GGML_TYPES; type++) {
        if (ggml_blocks[type].number == number) {
            *out = (enum ggml_type)type;
            return true;
        }
    }
    return false;
}

enum ggml_type ggml_type_of(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? GGML_F32 : dtype == DTYPE_F16 ? GGML_F16 : GGML_BF16;
}

size_t ggml_bytes(enum ggml_type type, size_t count)
{
    return count / ggml_blocks[type].values * ggml_blocks[type].bytes;
}

bool ggml_encode(enum ggml_type type, const float *values, size_t count, unsigned char *out)
{
    const struct ggml_block *block = &ggml_blocks[type];
    bool finite = true;
    assert(block->encode != NULL && count % block->values == 0);
    for (size_t i = 0; i < count / block->values; i++) {
        unsigned char *bytes = out + i * block->bytes;
        finite = finite && fabsf(largest(values + i * block->values, block->values)) <= VALUE_MAX;
        block->encode(values + i * block->values, bytes);
        for (size_t k = 0; k < block->scales; k++)
            finite = finite && isfinite(f16_get(bytes + block->at + 2 * k));
    }
    return finite;
}

bool ggml_is_near(enum ggml_type type, const float *values, const float *decoded, size_t count)
{
    const struct ggml_block *block = &ggml_blocks[type];
    const double slack = 1.0 + 1e-5; /* fp32 arithmetic */
    for (size_t first = 0; first < count; first += block->values) {
        const size_t size = size_min(count - first, block->values);
        const double most = fabs((double)largest(values + first, size)),
                     bound = slack * (block->share * most + block->codes * 0x1p-25);
        double squares = 0.0;
        for (size_t i = first; i < first + size; i++) {
            const double error = (double)decoded[i] - (double)values[i];
            squares += error * error;
        }
        if (!(squares <= (double)size * bound * bound)) /* or is NaN */
            return false;
    }
    return true;
}

struct encoding {
    enum ggml_type type;
    const float *values;
    size_t count;
    unsigned char *out;
    bool failed[(size_t)1 << 10]; /* of each job */
    size_t job_values;
};

static void job_encode(void *context, size_t index, int thread)
{
    struct encoding *encoding = context;
    const size_t first = index * encoding->job_values;
    const size_t count = size_min(encoding->count - first, encoding->job_values);
    (void)thread;
    encoding->failed[index] = !ggml_encode(encoding->type, encoding->values + first, count,
                                           encoding->out + ggml_bytes(encoding->type, first));
}

bool ggml_encode_parallel(enum ggml_type type, const float *values, size_t count,
                          unsigned char *out, int threads)
{
    struct encoding encoding = {
        .type = type, .values = values, .count = count, .out = out, .job_values = JOB_VALUES};
    const size_t jobs_max = sizeof encoding.failed / sizeof encoding.failed[0];
    while (encoding.job_values * jobs_max < count)
        encoding.job_values *= 2;
    const size_t jobs = (count + encoding.job_values - 1) / encoding.job_values;
    thread_for_each(threads, jobs, job_encode, &encoding);
    for (size_t i = 0; i < jobs; i++)
        if (encoding.failed[i])
            return false;
    return true;
}
