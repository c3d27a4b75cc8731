/* Tests of ggml's blocks: the bytes of the reference, bounds of the error, extremes; and of the
 * mixtures.
 *
 * The checksums are those of the bytes that ggml_quantize_chunk() of ggml 0.20.2 (the wheel
 * libggml-python) writes for the same values, and of the numbers that gguf.quants.dequantize() of
 * gguf 0.19 reads from them.  The values are multiples of powers of two, so that every machine
 * makes the same ones.
 */
#include "io/ggml_block.h"

#include <math.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "io/gguf_mixture.h"
#include "tests/unit/unit_main.h"

#define COUNT ((size_t)64 * GGML_BLOCK_VALUES_MAX)
#define THREADS 3

static float values[COUNT], decoded[COUNT];
static unsigned char bytes[COUNT * sizeof(float)], others[COUNT * sizeof(float)];

/* Eight kinds of blocks: about normal; sparse; positive; tiny; with an outlier; zeros; one value;
 * halves of a step. */
static void values_make(void)
{
    uint32_t state = 12345;
    for (size_t i = 0; i < COUNT; i++) {
        int32_t sum = 0;
        for (int k = 0; k < 4; k++) {
            state = state * 1664525u + 1013904223u;
            sum += (int32_t)(state >> 20) - 2048;
        }
        const size_t kind = i / GGML_BLOCK_VALUES_MAX % 8;
        const float normal = (float)sum / 8192.0f;
        values[i] = kind == 0   ? normal
                    : kind == 1 ? (state >> 8 & 15) == 0 ? normal : 0.0f
                    : kind == 2 ? fabsf(normal)
                    : kind == 3 ? normal / 65536.0f
                    : kind == 4 ? i % GGML_BLOCK_VALUES_MAX == 77 ? -96.0f : normal
                    : kind == 5 ? 0.0f
                    : kind == 6 ? 0.375f
                                : (float)(sum / 256) / 16.0f;
    }
}

static void decode(enum ggml_type type, const unsigned char *in, size_t count, float *out)
{
    const struct ggml_block *block = &ggml_blocks[type];
    for (size_t i = 0; i < count / block->values; i++)
        block->decode(in + i * block->bytes, out + i * block->values);
}

TEST(has_the_bytes_and_numbers_of_the_reference)
{
    static const struct {
        uint32_t bytes, numbers;
    } wanted[GGML_TYPES] = {
        [GGML_Q4_0] = {0x49887716, 0x08b3fb9b}, [GGML_Q5_0] = {0xcaff6a53, 0xbb8cd46c},
        [GGML_Q5_1] = {0x73257313, 0xda238b9a}, [GGML_Q8_0] = {0x6a8df50e, 0xc04c8e9f},
        [GGML_Q4_K] = {0xed61e0b3, 0xe4d6b082}, [GGML_Q5_K] = {0xdb652ea2, 0x113cf622},
        [GGML_Q6_K] = {0xd0a4fae4, 0xa569f54d},
    };
    values_make();
    for (int type = GGML_Q4_0; type < GGML_TYPES; type++) {
        ck_assert(ggml_encode((enum ggml_type)type, values, COUNT, bytes));
        const size_t count = ggml_bytes((enum ggml_type)type, COUNT);
        ck_assert_msg(file_crc32c(0, bytes, count) == wanted[type].bytes, "%s: %08" PRIx32,
                      ggml_blocks[type].name, file_crc32c(0, bytes, count));
        ck_assert(ggml_encode_parallel((enum ggml_type)type, values, COUNT, others, THREADS));
        ck_assert(memcmp(bytes, others, count) == 0);
        decode((enum ggml_type)type, bytes, COUNT, decoded);
        ck_assert_msg(file_crc32c(0, decoded, sizeof decoded) == wanted[type].numbers, "%s",
                      ggml_blocks[type].name);
    }
}

TEST(decodes_near_the_values)
{
    values_make();
    for (int type = GGML_Q4_0; type < GGML_TYPES; type++) {
        ck_assert(ggml_encode((enum ggml_type)type, values, COUNT, bytes));
        decode((enum ggml_type)type, bytes, COUNT, decoded);
        ck_assert_msg(ggml_is_near((enum ggml_type)type, values, decoded, COUNT), "%s",
                      ggml_blocks[type].name);
        decoded[COUNT - 1] = NAN;
        ck_assert(!ggml_is_near((enum ggml_type)type, values, decoded, COUNT));
    }
}

TEST(refuses_a_scale_beyond_fp16)
{
    for (int type = GGML_Q4_0; type < GGML_TYPES; type++) {
        for (size_t i = 0; i < GGML_BLOCK_VALUES_MAX; i++)
            values[i] = i == 40 ? 1e30f : 0.5f;
        ck_assert(!ggml_encode((enum ggml_type)type, values, GGML_BLOCK_VALUES_MAX, bytes));
        ck_assert(!ggml_encode_parallel((enum ggml_type)type, values, GGML_BLOCK_VALUES_MAX, bytes,
                                        THREADS));
    }
}

TEST(finds_types_by_number)
{
    enum ggml_type type = GGML_TYPES;
    ck_assert(ggml_type_find(14, &type) && type == GGML_Q6_K && ggml_type_find(30, &type) &&
              type == GGML_BF16);
    ck_assert(!ggml_type_find(4, &type) && !ggml_type_find(UINT32_MAX, &type) && type == GGML_BF16);
    ck_assert_uint_eq(ggml_bytes(GGML_Q4_K, 512), 288);
    for (int i = 0; i < GGML_TYPES; i++)
        ck_assert(ggml_blocks[i].bytes <= GGML_BLOCK_BYTES_MAX &&
                  ggml_blocks[i].values <= GGML_BLOCK_VALUES_MAX);
}

static enum ggml_type chosen(enum gguf_mixture mixture, const char *name, int32_t block,
                             size_t columns)
{
    enum ggml_type wanted;
    const bool output = strcmp(name, "output.weight") == 0;
    const struct gguf_matrix matrix = {name, block, 16, columns, output};
    return gguf_mixture_type(mixture, &matrix, &wanted);
}

/* llama.cpp's rules for 16 blocks: more bits for 0, 1, 4, 7, 10, 13, 14 and 15. */
TEST(mixes_types)
{
    for (int32_t block = 0; block < 16; block++) {
        const bool more = block < 2 || block >= 14 || block % 3 == 1;
        const enum ggml_type wanted = more ? GGML_Q6_K : GGML_Q4_K;
        ck_assert_int_eq(chosen(GGUF_MIXTURE_Q4_K_M, "blk.0.attn_v.weight", block, 512), wanted);
        ck_assert_int_eq(chosen(GGUF_MIXTURE_Q4_K_M, "blk.0.ffn_down.weight", block, 512), wanted);
        ck_assert_int_eq(chosen(GGUF_MIXTURE_Q4_K_M, "blk.0.attn_k.weight", block, 512), GGML_Q4_K);
        ck_assert_int_eq(chosen(GGUF_MIXTURE_Q4_K_M, "blk.0.attn_qkv.weight", block, 512),
                         GGML_Q5_K);
        ck_assert_int_eq(chosen(GGUF_MIXTURE_Q8_0, "blk.0.attn_v.weight", block, 512), GGML_Q8_0);
    }
    ck_assert_int_eq(chosen(GGUF_MIXTURE_Q4_K_M, "output.weight", 0, 512), GGML_Q6_K);
    ck_assert_int_eq(chosen(GGUF_MIXTURE_Q4_0, "output.weight", 0, 512), GGML_Q6_K);
    ck_assert_int_eq(chosen(GGUF_MIXTURE_Q8_0, "output.weight", 0, 512), GGML_Q8_0);
    ck_assert_int_eq(chosen(GGUF_MIXTURE_Q4_K_M, "output.weight", 0, 96), GGML_Q8_0);
    ck_assert_int_eq(chosen(GGUF_MIXTURE_Q4_K_M, "blk.0.attn_k.weight", 0, 96), GGML_Q5_0);
    ck_assert_int_eq(chosen(GGUF_MIXTURE_Q5_K_M, "blk.0.attn_k.weight", 0, 96), GGML_Q5_1);
    ck_assert_int_eq(chosen(GGUF_MIXTURE_Q4_0, "blk.0.attn_k.weight", 0, 40), GGML_F16);
}
