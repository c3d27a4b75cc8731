/* Fuzzes an existing metrics.jsonl, for a resumed and a new run.
 *
 * A resume keeps whole lines from the start, as long as their iterations will not run again; a second resume at the
 * same iteration cuts off what the first one wrote.  A new run keeps the whole old file under another name.
 */
#include "io/checkpoint.h"
#include "report/run_record.h"
#include "tests/fuzz/fuzz_folder.h"
#include "train/metrics.h"

static char path[FILE_PATH_MAX], record_path[FILE_PATH_MAX];

static void open_folder(void)
{
    fuzz_folder_make("");
    fuzz_path(path, METRICS_NAME);
    fuzz_path(record_path, CHECKPOINT_RECORD_NAME);
}

static void check_content(const char *name, const uint8_t *data, size_t size)
{
    char *text = NULL;
    size_t count = 0;
    FUZZ_CHECK(file_read_all(name, 1 << 20, &text, &count) == GT_OK);
    FUZZ_CHECK(count == size && memcmp(text, data, size) == 0);
    free(text);
}

/* Checks that the kept part is whole lines whose numbers are below the iteration, or equal to it if it was
 * evaluated. */
static size_t check_kept(const uint8_t *data, size_t size, int64_t iter, bool evaluated)
{
    char *text = NULL;
    size_t count = 0;
    FUZZ_CHECK(file_read_all(path, 1 << 20, &text, &count) == GT_OK);
    FUZZ_CHECK(count <= size && memcmp(text, data, count) == 0 && (count == 0 || text[count - 1] == '\n'));
    for (const char *line = text; line < text + count; line = strchr(line, '\n') + 1) {
        long long number = -1;
        FUZZ_CHECK(sscanf(line, "{\"iter\":%lld", &number) <= 1);
        FUZZ_CHECK(number <= iter - !evaluated);
    }
    free(text);
    return count;
}

static void resume(const uint8_t *data, size_t size, int64_t iter, bool evaluated)
{
    struct metrics metrics;
    fuzz_file_put(path, data, size);
    FUZZ_CHECK(metrics_open(&metrics, fuzz_place.folder, iter, evaluated, false) == GT_OK);
    const size_t kept = check_kept(data, size, iter, evaluated);
    json_put(metrics_line(&metrics, iter, NULL), "loss:f", 1.5);
    FUZZ_CHECK(metrics_line_write(&metrics) == GT_OK);
    metrics_close(&metrics);
    FUZZ_CHECK(metrics_open(&metrics, fuzz_place.folder, iter, evaluated, false) == GT_OK);
    metrics_close(&metrics);
    check_content(path, data, kept);
}

/* Starts a new run in a folder without a checkpoint, or with the checkpoint that these lines belong to. */
static void begin_anew(const uint8_t *data, size_t size, bool has_record)
{
    struct metrics metrics;
    char kept_path[FILE_PATH_MAX];
    fuzz_folder_empty();
    fuzz_file_put(path, data, size);
    if (has_record)
        fuzz_file_put(record_path, data, size);
    FUZZ_CHECK(metrics_open(&metrics, fuzz_place.folder, 0, false, true) == GT_OK);
    check_content(path, data, 0);
    FUZZ_CHECK((metrics.kept[0] != '\0') == has_record);
    fuzz_path(kept_path, has_record ? metrics.kept : METRICS_OLD_NAME);
    if (size > 0)
        check_content(kept_path, data, size);
    metrics_close(&metrics);
    if (has_record) { /* a resume from an earlier checkpoint starts with the lines up to its iteration */
        FUZZ_CHECK(metrics_open(&metrics, fuzz_place.folder, 3, true, true) == GT_OK);
        (void)check_kept(data, size, 3, true);
        metrics_close(&metrics);
    }
    metrics_saved(&metrics);
    FUZZ_CHECK(!has_record || !file_exists(kept_path));
    fuzz_folder_empty();
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    (void)mem;
    open_folder();
    resume(data, size, 1 + (int64_t)(size % 16), size % 2 == 0);
    begin_anew(data, size, size % 3 == 0);
    fuzz_folder_check();
}
