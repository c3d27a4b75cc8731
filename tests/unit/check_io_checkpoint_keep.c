/* Tests of checkpoints that are kept: those of an earlier run, and those of the same run. */
#include "io/checkpoint_folder.h"

#include "base/crc32c.h"
#include "io/checkpoint_save.h"
#include "tests/unit/io_case.h"

static char found[FILE_PATH_MAX];
static struct io_model model;

static void setup(void)
{
    io_setup();
    const struct model_config config = io_config(1, 4, 2, false);
    io_model_init(&model, &config, 1);
}

static void subfolders_remove(const char *in)
{
    static const char *const names[] = {"earlier-001", "earlier-002", "checkpoint-000001", "checkpoint-000002",
                                        "checkpoint-000003"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char inner[FILE_PATH_MAX];
        io_path(inner, in, names[i]);
        if (file_is_folder(inner))
            io_folder_remove(inner);
    }
}

static void teardown(void)
{
    subfolders_remove(io_at(folder, "earlier-001"));
    subfolders_remove(folder);
    io_teardown();
}

static bool has(const char *name)
{
    return file_exists(io_at(folder, name));
}

static void text_write(const char *name, const char *text)
{
    io_file_write(io_at(folder, name), text, strlen(text));
}

/* Saves as the trainer does; the record contains this validation loss as the least so far. */
static void save_next(int64_t iter, int64_t keep, double loss)
{
    struct checkpoint_save_options options = io_save_options(&model, folder, iter);
    options.state.best_val_loss = loss;
    ck_assert_int_eq(checkpoint_keep_last(folder, keep), GT_OK);
    ck_assert_int_eq(checkpoint_save(&options), GT_OK);
}

TEST_FIXTURE(setup, teardown)

TEST(an_earlier_run_is_kept_once)
{
    int64_t iter = -1;
    ck_assert_int_eq(checkpoint_keep_earlier(folder, -1, ""), GT_OK);
    ck_assert_int_eq(io_folder_count(folder, ""), 0); /* the folder is empty */
    save_next(1, 2, 2.5);
    save_next(2, 2, 2.5);
    text_write("waiting", "lines\n");
    text_write("notes.txt", "mine\n");
    text_write("tokenizer.json", "{}\n");
    text_write("tokenizer_config.json", "{}\n");
    for (int turn = 0; turn < 2; turn++) /* as after a kill before the save */
        ck_assert_int_eq(checkpoint_keep_earlier(folder, -1, "waiting"), GT_OK);
    ck_assert(!has("earlier-002") && !has("checkpoint.tmp") && !has("checkpoint-000001"));
    ck_assert(has("earlier-001/metrics.jsonl") && has("earlier-001/checkpoint-000001/trainer_state.json"));
    ck_assert(has("earlier-001/tokenizer.json") && has("earlier-001/tokenizer_config.json"));
    ck_assert(!has("earlier-001/notes.txt") && has("notes.txt") && has("trainer_state.json"));
    save_next(9, 1, 2.5);
    ck_assert_int_eq(io_open_load(&model, io_at(folder, "earlier-001"), true, &iter), GT_OK);
    ck_assert_int_eq(iter, 2);
    ck_assert_int_eq(checkpoint_keep_earlier(folder, -1, "absent"), GT_OK);
    ck_assert(has("earlier-002/trainer_state.json") && !has("earlier-002/metrics.jsonl"));
    ck_assert(checkpoint_keep_earlier_last(folder, found));
    ck_assert_str_eq(strrchr(found, '/'), "/earlier-002");
}

TEST(what_is_behind_a_link_is_copied)
{
    text_write("blob", "weights");
    ck_assert_int_eq(symlink("blob", io_at(folder, "model.safetensors")), 0);
    ck_assert_int_eq(checkpoint_keep_earlier(folder, -1, ""), GT_OK);
    ck_assert(file_matches(io_at(folder, "earlier-001/model.safetensors"), 7, file_crc32c(0, "weights", 7)));
}

TEST(the_last_and_the_best_stay)
{
    int64_t iter = -1;
    save_next(1, 2, 1.5);
    save_next(2, 2, 1.5);
    save_next(3, 2, 1.5);
    save_next(4, 2, 1.5);
    ck_assert_int_eq((int)checkpoint_keep_count(folder), 2);
    ck_assert(has("checkpoint-000001") && !has("checkpoint-000002") && has("checkpoint-000003"));
    ck_assert_int_eq(checkpoint_keep_find(folder, "best", found), GT_OK);
    ck_assert_str_eq(strrchr(found, '/'), "/checkpoint-000001");
    ck_assert_int_eq(io_open_load(&model, found, true, &iter), GT_OK);
    ck_assert_int_eq(iter, 1);
    ck_assert_int_eq(checkpoint_keep_find(folder, "4", found), GT_OK);
    ck_assert_str_eq(found, folder);
    ck_assert_int_eq(capture.lines, 0);
    log_capture_refused(&capture, checkpoint_keep_find(folder, "2", found), GT_DATA, "iterations 4, 3, 1");
    /* A better one, and only the last: except for a folder that is locked. */
    text_write("checkpoint-000003/lock", "1\n");
    save_next(5, 2, 1.0);
    save_next(6, 2, 1.0);
    ck_assert(!has("checkpoint-000001") && has("checkpoint-000003"));
    ck_assert_int_eq(checkpoint_keep_find(folder, "best", found), GT_OK);
    ck_assert_str_eq(strrchr(found, '/'), "/checkpoint-000005");
    save_next(7, 1, 1.0);
    ck_assert(!has("checkpoint-000005") && !has("checkpoint-000006") && has("checkpoint-000003/trainer_state.json"));
}

TEST(a_kill_leaves_nothing_for_good)
{
    ck_assert_int_eq(mkdir(io_at(folder, "checkpoint.tmp"), 0700), 0);
    text_write("checkpoint.tmp/model.safetensors", "half");
    ck_assert_int_eq(checkpoint_repair(folder), GT_OK);
    ck_assert(!has("checkpoint.tmp"));
}
