/* Tests the emulation of AMX instructions that check_cpu_gemm multiplies with: what a processor refuses ends the program,
 * and a product is summed in the documented order.
 */
#include <check.h>
#include <signal.h>

#include "tests/unit/amx_emulation.h"
#include "tests/unit/unit_main.h"

static struct amx_config config_of(int tiles, uint8_t rows, uint16_t row_bytes)
{
    struct amx_config config = {.palette = 1};
    for (int i = 0; i < tiles; i++) {
        config.rows[i] = rows;
        config.row_bytes[i] = row_bytes;
    }
    return config;
}

static void configure(int tiles, uint8_t rows, uint16_t row_bytes)
{
    const struct amx_config config = config_of(tiles, rows, row_bytes);
    _tile_loadconfig(&config);
}

static void no_configuration(void)
{
    _tile_zero(0);
}

static void released(void)
{
    configure(8, 16, 64);
    _tile_release();
    _tile_zero(0);
}

static void configured_twice(void)
{
    configure(8, 16, 64);
    configure(8, 16, 64);
}

static void no_palette(void)
{
    const struct amx_config config = {.palette = 0};
    _tile_loadconfig(&config);
}

static void reserved_byte(void)
{
    struct amx_config config = config_of(8, 16, 64);
    config.reserved[13] = 1;
    _tile_loadconfig(&config);
}

static void ninth_tile(void)
{
    configure(9, 16, 64);
}

static void seventeen_rows(void)
{
    configure(8, 17, 64);
}

static void wide_rows(void)
{
    configure(8, 16, 68);
}

static void rows_without_bytes(void)
{
    configure(8, 16, 0);
}

static void tile_left_out(void)
{
    static const float memory[AMX_ROWS * AMX_WORDS];
    configure(7, 16, 64);
    _tile_loadd(7, memory, AMX_ROW_BYTES);
}

static void tile_8(void)
{
    float memory[AMX_ROWS * AMX_WORDS];
    configure(8, 16, 64);
    _tile_stored(8, memory, AMX_ROW_BYTES);
}

static void one_tile_twice(void)
{
    configure(8, 16, 64);
    _tile_dpbf16ps(0, 1, 1);
}

static void half_a_pair(void)
{
    configure(8, 16, 62);
    _tile_dpbf16ps(0, 1, 2);
}

static void shapes_that_do_not_fit(void)
{
    configure(8, 15, 64);
    _tile_dpbf16ps(0, 1, 2);
}

static void (*const mistakes[])(void) = {no_configuration,
                                         released,
                                         configured_twice,
                                         no_palette,
                                         reserved_byte,
                                         ninth_tile,
                                         seventeen_rows,
                                         wide_rows,
                                         rows_without_bytes,
                                         tile_left_out,
                                         tile_8,
                                         one_tile_twice,
                                         half_a_pair,
                                         shapes_that_do_not_fit};

TEST_SIGNAL(a_mistake_ends_the_program, sizeof mistakes / sizeof mistakes[0], SIGABRT)
{
    mistakes[_i]();
}

/* Four values of k times a column, added to an old value; bf16 values, as fp32. */
static const struct {
    const char *what;
    float a[4], b[4], old, wanted;
} sums[] = {
    {"even and odd k apart", {0x1p24f, -0x1p24f, 1, 1}, {1, 1, 1, 1}, 0, 1},
    {"their sum before the old value", {1, 1, 0, 0}, {1, 1, 0, 0}, 0x1p24f, 0x1p24f + 2},
    {"rounded to even", {3, 0, 0, 0}, {1, 0, 0, 0}, 0x1p24f, 0x1p24f + 4},
    {"one rounding of product and sum", {0x1p-126f, 0, 0x1p-64f, 0}, {1, 0, 0x1p-63f, 0}, 0, 0x1.8p-126f},
    {"a subnormal input is zero", {0x1p-127f, 0, 0, 0}, {0x1p100f, 0, 0, 0}, 0, 0},
    {"a subnormal product is zero", {0x1p-64f, 0, 0, 0}, {0x1p-63f, 0, 0, 0}, 0x1p-126f, 0x1p-126f},
    {"a subnormal sum is zero", {0x1p-126f, -0x1.8p-126f, 0, 0}, {1, 1, 0, 0}, 0, 0},
    {"a subnormal old value is zero", {0x1p-126f, 0, 0, 0}, {1, 0, 0, 0}, 0x1p-127f, 0x1p-126f},
};

static uint16_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* The values are in row 2 of a and column 3 of b. */
TEST_ROWS(products_are_summed_as_documented, sums)
{
    uint16_t a[AMX_ROWS][2 * AMX_WORDS] = {{0}}, b[AMX_ROWS][2 * AMX_WORDS] = {{0}};
    float d[AMX_ROWS][AMX_WORDS] = {{0.0f}};
    for (int k = 0; k < 4; k++) {
        a[2][k] = bf16_of(sums[_i].a[k]);
        b[k / 2][2 * 3 + k % 2] = bf16_of(sums[_i].b[k]);
    }
    d[2][3] = sums[_i].old;
    configure(8, 16, 64);
    _tile_loadd(7, d, AMX_ROW_BYTES);
    _tile_loadd(1, a, AMX_ROW_BYTES);
    _tile_loadd(2, b, AMX_ROW_BYTES);
    _tile_dpbf16ps(7, 1, 2);
    _tile_stored(7, d, AMX_ROW_BYTES);
    for (int i = 0; i < AMX_ROWS * AMX_WORDS; i++) {
        const float wanted = i == 2 * AMX_WORDS + 3 ? sums[_i].wanted : 0.0f;
        ck_assert_msg(d[i / AMX_WORDS][i % AMX_WORDS] == wanted, "%s, [%d,%d]: %a, expected %a", sums[_i].what,
                      i / AMX_WORDS, i % AMX_WORDS, (double)d[i / AMX_WORDS][i % AMX_WORDS], (double)wanted);
    }
    _tile_release();
}
