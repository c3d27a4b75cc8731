/* Tests of the public names in a checkpoint's folder, and of their repair at start-up. */
#include <sys/syscall.h>

#include "io/checkpoint.h"
#include "io/checkpoint_folder.h"
#include "tests/unit/io_case.h"

static struct io_model model;

static void setup(void)
{
    io_setup();
    const struct model_config config = io_config(1, 4, 2, false);
    io_model_init(&model, &config, 1);
}

/* Whether the folder's state was the wanted one when it was synced last: a power cut keeps that state. */
static bool (*is_wanted)(void);
static bool was_wanted;

/* Replaces the C library's function in this program. */
int fsync(int fd)
{
    struct stat synced, info;
    if (fstat(fd, &synced) == 0 && stat(folder, &info) == 0 && synced.st_ino == info.st_ino && is_wanted != NULL)
        was_wanted = is_wanted();
    return (int)syscall(SYS_fsync, fd);
}

static bool shows_generation_2(void)
{
    return checkpoint_publish_is_link(folder, "model-000002.safetensors");
}

static bool has_no_config(void)
{
    return !file_exists(io_at(folder, CHECKPOINT_CONFIG_NAME));
}

TEST_FIXTURE(setup, io_teardown)

TEST(what_is_published_survives_a_power_cut)
{
    json_t *config = json_pack("{s:i}", "n_layer", 1);
    io_file_write(io_at(folder, "model-000002.safetensors"), "two", 3);
    io_file_write(io_at(folder, CHECKPOINT_CONFIG_NAME), "{}", 2);
    is_wanted = has_no_config;
    ck_assert_int_eq(checkpoint_publish_retract(folder, config), GT_OK);
    ck_assert(was_wanted);
    is_wanted = shows_generation_2;
    was_wanted = false;
    ck_assert_int_eq(checkpoint_publish_model(folder, "model-000002.safetensors", true), GT_OK);
    ck_assert(was_wanted);
    is_wanted = NULL;
    json_decref(config);
}

static bool same_bytes(const char *a, const char *b)
{
    size_t count_a, count_b;
    char *bytes_a = io_file_read(io_at(folder, a), &count_a), *bytes_b = io_file_read(io_at(folder, b), &count_b);
    const bool same = count_a == count_b && memcmp(bytes_a, bytes_b, count_a) == 0;
    free(bytes_a);
    free(bytes_b);
    return same;
}

TEST(links_or_copies)
{
    io_file_write(io_at(folder, "model-000001.safetensors"), "one", 3);
    io_file_write(io_at(folder, "model-000002.safetensors"), "three", 5);
    ck_assert_int_eq(checkpoint_publish_model(folder, "model-000001.safetensors", true), GT_OK);
    ck_assert(checkpoint_publish_is_link(folder, "model-000001.safetensors"));
    ck_assert_int_eq(checkpoint_publish_model(folder, "model-000001.safetensors", true), GT_OK); /* again */
    ck_assert_int_eq(checkpoint_publish_model(folder, "model-000002.safetensors", true), GT_OK);
    ck_assert(checkpoint_publish_is_link(folder, "model-000002.safetensors"));
    ck_assert(!checkpoint_publish_is_link(folder, "model-000001.safetensors"));
    ck_assert_int_eq(checkpoint_publish_model(folder, "model-000001.safetensors", false), GT_OK);
    ck_assert(!checkpoint_publish_is_link(folder, "model-000001.safetensors"));
    ck_assert(same_bytes("model-000001.safetensors", "model.safetensors"));
    ck_assert_int_eq(io_folder_count(folder, ""), 3);
    ck_assert_int_eq(capture.lines, 0);
    log_capture_refused(&capture, checkpoint_publish_model(folder, "model-000009.safetensors", true), GT_IO,
                        "model-000009.safetensors");
    ck_assert(same_bytes("model-000001.safetensors", "model.safetensors"));
}

/* The name belongs to a writer with the same process id in another container. */
TEST(leaves_the_names_of_others)
{
    char name[64];
    (void)snprintf(name, sizeof name, "model.safetensors.tmp-%ld", (long)getpid());
    io_file_write(io_at(folder, name), "other", 5);
    io_file_write(io_at(folder, "model-000001.safetensors"), "one", 3);
    ck_assert_int_eq(checkpoint_publish_model(folder, "model-000001.safetensors", true), GT_OK);
    ck_assert(checkpoint_publish_is_link(folder, "model-000001.safetensors"));
    ck_assert(file_exists(io_at(folder, name)));
    ck_assert_int_eq(io_folder_count(folder, ""), 3);
}

TEST(rewrites_config_only_when_it_differs)
{
    json_t *config = json_pack("{s:i}", "n_layer", 1);
    bool changed = false;
    struct stat first, second;
    io_path(path, folder, "config.json");
    ck_assert_int_eq(checkpoint_publish_config(folder, config, &changed), GT_OK);
    ck_assert(changed);
    ck_assert_int_eq(stat(path, &first), 0);
    ck_assert_int_eq(checkpoint_publish_config(folder, config, &changed), GT_OK);
    ck_assert(!changed);
    ck_assert_int_eq(stat(path, &second), 0);
    ck_assert(first.st_ino == second.st_ino);
    ck_assert_int_eq(json_object_set_new(config, "n_layer", json_integer(2)), 0);
    ck_assert_int_eq(checkpoint_publish_config(folder, config, &changed), GT_OK);
    ck_assert(changed);
    json_t *found;
    ck_assert_int_eq(json_parse_file(path, 1 << 16, &found), GT_OK);
    ck_assert(json_equal(found, config));
    json_decref(found);
    json_decref(config);
}

TEST(removes_generations_and_nothing_else)
{
    static const char *const kept[] = {"model.safetensors",
                                       "model-000002.safetensors",
                                       "optimizer-000002.safetensors",
                                       "model-00001-of-00002.safetensors",
                                       "model-abc.safetensors",
                                       "model-000001.safetensors.bak",
                                       "tokenizer.json",
                                       "metrics.jsonl"};
    static const char *const removed[] = {"model-000001.safetensors", "model-000002-2.safetensors",
                                          "optimizer-000001.safetensors", "optimizer-1234567.safetensors"};
    enum { KEPT = sizeof kept / sizeof kept[0], REMOVED = sizeof removed / sizeof removed[0] };
    for (int i = 0; i < KEPT; i++) {
        io_file_write(io_at(folder, kept[i]), "x", 1);
    }
    for (int i = 0; i < REMOVED; i++) {
        io_file_write(io_at(folder, removed[i]), "x", 1);
    }
    char inside[FILE_PATH_MAX];
    io_path(inside, folder, "model-000007.safetensors"); /* a folder with such a name stays */
    ck_assert_int_eq(mkdir(inside, 0777), 0);
    checkpoint_publish_clean(folder, kept[1], kept[2]);
    for (int i = 0; i < REMOVED; i++) {
        ck_assert_msg(!file_exists(io_at(folder, removed[i])), "%s", removed[i]);
    }
    ck_assert_int_eq(rmdir(inside), 0);
    for (int i = 0; i < KEPT; i++) {
        ck_assert_msg(file_exists(io_at(folder, kept[i])), "%s", kept[i]);
    }
    ck_assert_int_eq(io_folder_count(folder, ""), KEPT);
}

/* Ways other than a kill to damage a folder: each is repaired, with a note, and the run still loads. */
TEST(repair_restores_the_public_face)
{
    int64_t iter;
    ck_assert_int_eq(io_save(&model, folder, 3), GT_OK);
    ck_assert_int_eq(checkpoint_repair(folder), GT_OK);
    ck_assert_int_eq(capture.lines, 0); /* nothing to do */
    for (int damage = 0; damage < 5; damage++) {
        io_path(path, folder, damage < 3 ? "model.safetensors" : "config.json");
        ck_assert_int_eq(unlink(path), 0);
        if (damage == 1)
            io_file_write(path, "stale", 5);
        if (damage == 2)
            ck_assert_int_eq(symlink("elsewhere", path), 0);
        if (damage == 4)
            io_file_write(path, "{}", 2);
        ck_assert_int_eq(checkpoint_repair(folder), GT_OK);
        ck_assert_msg(capture.lines == 1 && capture.level == LOG_NOTE, "damage %d", damage);
        ck_assert_ptr_nonnull(strstr(capture.text, path));
        capture.lines = 0;
        ck_assert(checkpoint_publish_is_link(folder, "model-000003.safetensors"));
        ck_assert_int_eq(io_open_load(&model, folder, true, &iter), GT_OK);
        ck_assert(io_loaded_is(&model, 1, true));
    }
    ck_assert_int_eq(io_folder_count(folder, ""), 5);
}

TEST(repair_accepts_a_copy)
{
    struct stat first, second;
    ck_assert_int_eq(io_save(&model, folder, 3), GT_OK);
    io_path(path, folder, "model.safetensors");
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(checkpoint_publish_model(folder, "model-000003.safetensors", false), GT_OK);
    ck_assert_int_eq(stat(path, &first), 0);
    ck_assert_int_eq(checkpoint_repair(folder), GT_OK);
    ck_assert_int_eq(stat(path, &second), 0);
    ck_assert(first.st_ino == second.st_ino);
    ck_assert_int_eq(capture.lines, 0);
    io_file_flip(path, 8 * 2000); /* the same length, but other contents */
    ck_assert_int_eq(checkpoint_repair(folder), GT_OK);
    ck_assert_int_eq(capture.lines, 1);
    ck_assert(same_bytes("model-000003.safetensors", "model.safetensors"));
}

TEST(repair_removes_leftovers)
{
    static const char *const names[] = {"model-000009.safetensors", "optimizer-000003-2.safetensors",
                                        "model-000009.safetensors.tmp-4711", "trainer_state.json.tmp-1"};
    for (int with_record = 0; with_record < 2; with_record++) {
        if (with_record == 1)
            ck_assert_int_eq(io_save(&model, folder, 3), GT_OK);
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            io_file_write(io_at(folder, names[i]), "x", 1);
        }
        ck_assert_int_eq(checkpoint_repair(folder), GT_OK);
        ck_assert_int_eq(io_folder_count(folder, ""), with_record == 1 ? 5 : 0);
    }
    ck_assert_int_eq(capture.lines, 0);
}

TEST(repair_keeps_its_hands_off_damage)
{
    ck_assert_int_eq(io_save(&model, folder, 3), GT_OK);
    io_path(path, folder, CHECKPOINT_RECORD_NAME);
    ck_assert_int_eq(truncate(path, 20), 0);
    log_capture_refused(&capture, checkpoint_repair(folder), GT_DATA, path);
    ck_assert_int_eq(io_folder_count(folder, ""), 5);
    ck_assert_int_eq(io_save(&model, folder, 3), GT_OK); /* a new run in this folder */
    io_path(path, folder, "model-000003-2.safetensors");
    ck_assert(file_exists(path));
    ck_assert_int_eq(io_folder_count(folder, ""), 5);
    ck_assert_int_eq(unlink(path), 0); /* the link stays: a missing file cannot be published */
    ck_assert_int_eq(checkpoint_repair(folder), GT_OK);
    ck_assert(file_exists(io_at(folder, "model.safetensors")));
}
