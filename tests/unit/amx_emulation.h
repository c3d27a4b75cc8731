/* The AMX instructions that cpu_gemm_amx.c uses, in plain C.  Included after <immintrin.h>, this
 * header replaces their intrinsics.
 *
 * State and checks follow Intel's description of the instructions, with palette 1: eight tiles of
 * at most 16 rows of 64 bytes, which belong to a thread.  What the processor would answer with an
 * exception ends the program, as does a second configuration without a release.  TDPBF16PS sums the
 * products of even and of odd k separately, in fp32 with one rounding per product, then adds the
 * two sums, and their sum to the tile; inputs and results below 2^-126 count as zero.  A result
 * that only rounding lifts to 2^-126 may differ from a processor's.
 *                                Intel SDM vol. 2: LDTILECFG, TILELOADD, TILESTORED, TILEZERO,
 *                                TILERELEASE, TDPBF16PS
 */
#ifndef GPT_TRAIN_UNIT_AMX_EMULATION_H
#define GPT_TRAIN_UNIT_AMX_EMULATION_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig amx_loadconfig
#define _tile_release amx_release
#define _tile_zero amx_zero
#define _tile_loadd amx_loadd
#define _tile_stored amx_stored
#define _tile_dpbf16ps amx_dpbf16ps

enum {
    AMX_TILES = 8,
    AMX_ROWS = 16,
    AMX_ROW_BYTES = 64,
    AMX_WORDS = AMX_ROW_BYTES / 4,
    AMX_CONFIG_BYTES = 64
};

struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static _Thread_local struct {
    struct amx_config config;
    unsigned char tile[AMX_TILES][AMX_ROWS][AMX_ROW_BYTES];
} amx;

static inline void amx_expect(bool right, const char *rule)
{
    if (right)
        return;
    fprintf(stderr, "AMX emulation: %s\n", rule);
    abort();
}

static inline void amx_release(void)
{
    memset(&amx, 0, sizeof amx);
}

static inline void amx_loadconfig(const void *memory)
{
    static const struct amx_config none;
    struct amx_config config;
    memcpy(&config, memory, sizeof config);
    amx_expect(amx.config.palette == 0, "tiles are released before they are configured again");
    amx_expect(config.palette == 1, "the palette is 1");
    amx_expect(config.start_row == 0 &&
                   memcmp(config.reserved, none.reserved, sizeof none.reserved) == 0,
               "the start row and reserved bytes are 0");
    for (int i = 0; i < 16; i++) {
        amx_expect(i < AMX_TILES || (config.rows[i] == 0 && config.row_bytes[i] == 0),
                   "there are 8 tiles");
        amx_expect(config.rows[i] <= AMX_ROWS && config.row_bytes[i] <= AMX_ROW_BYTES,
                   "a tile is at most 16 x 64 bytes");
        amx_expect((config.rows[i] == 0) == (config.row_bytes[i] == 0),
                   "a tile has both rows and bytes, or neither");
    }
    amx_release();
    amx.config = config;
}

static inline void amx_expect_tile(int tile)
{
    amx_expect(tile >= 0 && tile < AMX_TILES && amx.config.rows[tile] > 0,
               "a tile is configured before it is used");
}

static inline void amx_zero(int tile)
{
    amx_expect_tile(tile);
    memset(amx.tile[tile], 0, sizeof amx.tile[tile]);
}

static inline void amx_loadd(int tile, const void *memory, int64_t stride)
{
    amx_zero(tile);
    for (int r = 0; r < amx.config.rows[tile]; r++)
        memcpy(amx.tile[tile][r], (const char *)memory + r * stride, amx.config.row_bytes[tile]);
}

static inline void amx_stored(int tile, void *memory, int64_t stride)
{
    amx_expect_tile(tile);
    for (int r = 0; r < amx.config.rows[tile]; r++)
        memcpy((char *)memory + r * stride, amx.tile[tile][r], amx.config.row_bytes[tile]);
}

static inline float amx_flush(float value)
{
    return fabsf(value) < FLT_MIN ? copysignf(0.0f, value) : value;
}

/* Splits the pairs of bf16 of a tile into fp32 values of even and of odd k. */
static inline void amx_widen(int tile, int odd, float out[AMX_ROWS][AMX_WORDS])
{
    uint32_t words[AMX_ROWS][AMX_WORDS];
    memcpy(words, amx.tile[tile], sizeof words);
    for (int r = 0; r < AMX_ROWS; r++) {
        for (int i = 0; i < AMX_WORDS; i++)
            words[r][i] = odd != 0 ? words[r][i] & 0xffff0000u : words[r][i] << 16;
    }
    memcpy(out, words, sizeof words);
    for (int r = 0; r < AMX_ROWS; r++) {
        for (int i = 0; i < AMX_WORDS; i++)
            out[r][i] = amx_flush(out[r][i]);
    }
}

static inline void amx_dpbf16ps(int d, int a, int b)
{
    const struct amx_config *config = &amx.config;
    amx_expect_tile(d);
    amx_expect_tile(a);
    amx_expect_tile(b);
    amx_expect(d != a && d != b && a != b, "a product is of three different tiles");
    amx_expect(config->row_bytes[d] % 4 == 0 && config->row_bytes[a] % 4 == 0,
               "rows of factors are whole pairs");
    amx_expect(config->rows[d] == config->rows[a] && config->row_bytes[d] == config->row_bytes[b] &&
                   config->row_bytes[a] == 4 * config->rows[b],
               "the shapes of a product's tiles fit together");
    float factor[2][AMX_ROWS][AMX_WORDS], line[2][AMX_ROWS][AMX_WORDS], old[AMX_ROWS][AMX_WORDS];
    memcpy(old, amx.tile[d], sizeof old);
    for (int odd = 0; odd < 2; odd++) {
        amx_widen(a, odd, factor[odd]);
        amx_widen(b, odd, line[odd]);
    }
    for (int m = 0; m < config->rows[d]; m++) {
        float sum[2][AMX_WORDS] = {{0.0f}};
        for (int k = 0; k < config->rows[b]; k++) {
            for (int odd = 0; odd < 2; odd++) {
                for (int n = 0; n < AMX_WORDS; n++)
                    sum[odd][n] = amx_flush(fmaf(factor[odd][m][k], line[odd][k][n], sum[odd][n]));
            }
        }
        for (int n = 0; n < AMX_WORDS; n++)
            old[m][n] = amx_flush(amx_flush(old[m][n]) + amx_flush(sum[0][n] + sum[1][n]));
    }
    memcpy(amx.tile[d], old, sizeof old);
}

#endif
