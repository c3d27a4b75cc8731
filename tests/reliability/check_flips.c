/* Flips single bits in a checkpoint's files and truncates them: all damage is detected, and none
 * crashes the reader.
 *
 * A checkpoint with all its parts is saved, a bit of one of the files that a resume reads (weights,
 * moments, record) is inverted in place, and everything is opened and loaded as in a resume.  This
 * must fail with one line, or else have read exactly what was saved: the bit was in white space
 * between two fields of the record.  `make check` tries FLIPS bits, CHECK_LONG=1 FLIPS_LONG; and
 * truncates each file at every 7th length and the last 64 (CHECK_LONG=1: at every length).
 */
#include <inttypes.h>

#include "io/checkpoint.h"
#include "tests/unit/io_fixture.h"

#define FLIPS 4000
#define FLIPS_LONG 12000
#define ITER 17
#define FILES 3
#define RECORD 2

static const char *const names[FILES] = {"model-000017.safetensors", "optimizer-000017.safetensors",
                                         CHECKPOINT_RECORD_NAME};
static char folder[FILE_PATH_MAX], path[FILES][FILE_PATH_MAX];
static size_t bytes[FILES];
static struct io_model model;
static struct log_capture capture;

static void setup(void)
{
    struct model_config config = io_config(2, 8, 2, true);
    scratch_make(folder);
    log_capture_begin(&capture);
    io_model_init(&model, &config, 5);
    ck_assert_int_eq(io_save(&model, folder, ITER), GT_OK);
    for (int i = 0; i < FILES; i++) {
        io_path(path[i], folder, names[i]);
        free(io_file_read(path[i], &bytes[i]));
    }
}

static void teardown(void)
{
    log_capture_end();
    scratch_remove(folder);
}

/* splitmix64, so that a seed gives the same flips on every machine. */
static uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static json_t *record_read(void)
{
    json_t *root;
    ck_assert_int_eq(json_parse_file(path[RECORD], CHECKPOINT_RECORD_BYTES_MAX, &root), GT_OK);
    return root;
}

/* Returns true when the file has every field of `good` unchanged, except for the checksum, whose
 * name the flip may have hit. */
static bool record_is(const json_t *good)
{
    json_t *now = record_read();
    const char *name;
    json_t *value;
    bool same = true;
    json_object_foreach((json_t *)(uintptr_t)good, name, value)
    {
        if (strcmp(name, CHECKPOINT_RECORD_CRC) != 0)
            same = same && json_equal(value, json_object_get(now, name));
    }
    json_decref(now);
    return same;
}

/* Returns true when the damage was detected, false when it is harmless. */
static bool damage_noticed(int file, const char *what, size_t at, const json_t *good)
{
    int64_t iter = -1;
    memset(model.loaded, 0, sizeof model.loaded);
    capture.lines = 0;
    const enum gt_status status = io_open_load(&model, folder, true, &iter);
    if (status != GT_OK) {
        ck_assert_msg(status == GT_DATA || status == GT_UNSUPPORTED, "%s %zu of %s: %s", what, at,
                      names[file], status_name(status));
        /* One error; where a file is missing or cut, a note says what to do. */
        ck_assert_msg(capture.lines == 1 + (capture.level == LOG_NOTE), "%s %zu of %s: %d lines",
                      what, at, names[file], capture.lines);
        return true;
    }
    ck_assert_msg(file == RECORD, "%s %zu of %s was not noticed", what, at, names[file]);
    ck_assert_msg(iter == ITER && io_loaded_is(&model, model.salt, true) && record_is(good),
                  "%s %zu of %s was not noticed, and matters", what, at, names[file]);
    return false;
}

static bool is_long(void)
{
    const char *wanted = getenv("CHECK_LONG");
    return wanted != NULL && wanted[0] != '\0' && wanted[0] != '0';
}

TEST_FIXTURE(setup, teardown)
TEST(every_flip_is_noticed)
{
    const int count = is_long() ? FLIPS_LONG : FLIPS;
    uint64_t state = unit_seed();
    int tried[FILES] = {0}, harmless = 0;
    json_t *good = record_read();
    for (int n = 0; n < count; n++) {
        uint64_t bit = random_next(&state) % (8 * (bytes[0] + bytes[1] + bytes[2]));
        int file = 0;
        while (bit >= 8 * bytes[file])
            bit -= 8 * bytes[file++];
        io_file_flip(path[file], bit);
        harmless += !damage_noticed(file, "bit", bit, good);
        io_file_flip(path[file], bit);
        tried[file]++;
    }
    json_decref(good);
    ck_assert_int_ge(tried[RECORD], count / 20);
    printf(
        "%d bits flipped (%d of weights, %d of moments, %d of the record): all noticed but %d between fields\n",
        count, tried[0], tried[1], tried[2], harmless);
    ck_assert_int_le(harmless, tried[RECORD] / 10);
}

TEST(every_cut_is_noticed)
{
    json_t *good = record_read();
    size_t cuts = 0;
    for (int file = 0; file < FILES; file++) {
        size_t count;
        char *whole = io_file_read(path[file], &count);
        const size_t step = is_long() ? 1 : 7;
        for (size_t kept = 0; kept < count; kept += kept + 64 < count ? step : 1, cuts++) {
            scratch_write(path[file], whole, kept);
            const bool noticed = damage_noticed(file, "cut at", kept, good);
            ck_assert_msg(noticed || kept + 2 > count, "%s cut at %zu was read", names[file], kept);
        }
        scratch_write(path[file], whole, count);
        free(whole);
    }
    json_decref(good);
    printf("%zu cuts, all noticed\n", cuts);
}
