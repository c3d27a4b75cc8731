/* Tests of saving: the contents of the folder afterwards, and that a kill, a full disk or a failing device at any point
 * leaves the old checkpoint or the new one. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "io/checkpoint.h"
#include "io/checkpoint_folder.h"
#include "io/checkpoint_save.h"
#include "io/hf_config.h"
#include "io/safetensors_table.h"
#include "tests/unit/io_case.h"

#define OLD_SALT 1
#define NEW_SALT 2
#define OLD_ITER 10
#define NEW_ITER 20

static char copy[FILE_PATH_MAX];
static struct io_model model, reader;
static struct model_config config;

static void setup(void)
{
    io_setup();
    io_folder_make(copy);
    config = io_config(1, 4, 2, false);
    io_model_init(&model, &config, OLD_SALT);
    io_model_init(&reader, &config, 0);
}

static void teardown(void)
{
    io_folder_remove(copy);
    io_teardown();
}

/* Expects that the folder opens as the old or as the new checkpoint, complete; returns true for the new one. */
static bool opens_as_new(const char *where)
{
    int64_t iter = -1;
    memset(reader.loaded, 0, sizeof reader.loaded);
    ck_assert_msg(io_open_load(&reader, where, true, &iter) == GT_OK, "%s", capture.text);
    ck_assert(iter == OLD_ITER || iter == NEW_ITER);
    ck_assert(io_loaded_is(&reader, iter == NEW_ITER ? NEW_SALT : OLD_SALT, true));
    return iter == NEW_ITER;
}

/* After the repair there is one generation, which the public names show. */
static void repairs_to_one_generation(const char *where, bool is_new)
{
    int64_t iter;
    ck_assert_int_eq(checkpoint_repair(where), GT_OK);
    ck_assert(opens_as_new(where) == is_new);
    ck_assert_int_eq(io_folder_count(where, ""), 5);
    ck_assert_int_eq(io_folder_count(where, ".tmp-"), 0);
    io_path(path, where, CHECKPOINT_RECORD_NAME);
    ck_assert_int_eq(unlink(path), 0); /* leaves a folder in Hugging Face's layout */
    memset(reader.loaded, 0, sizeof reader.loaded);
    ck_assert_int_eq(io_open_load(&reader, where, false, &iter), GT_OK);
    ck_assert(io_loaded_is(&reader, is_new ? NEW_SALT : OLD_SALT, false));
}

TEST_FIXTURE(setup, teardown)

TEST(saves_a_folder_of_five_files)
{
    static const char *const names[] = {"config.json", "model.safetensors", "trainer_state.json",
                                        "model-000010.safetensors", "optimizer-000010.safetensors"};
    ck_assert_int_eq(io_save(&model, folder, OLD_ITER), GT_OK);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ck_assert_msg(file_exists(io_at(folder, names[i])), "%s", names[i]);
    }
    ck_assert_int_eq(io_folder_count(folder, ""), 5);
    ck_assert(checkpoint_publish_is_link(folder, "model-000010.safetensors"));
    ck_assert(!opens_as_new(folder));
    ck_assert_int_eq(capture.lines, 0);
}

TEST(equal_runs_save_equal_bytes)
{
    static const char *const names[] = {"config.json", "trainer_state.json", "model-000010.safetensors",
                                        "optimizer-000010.safetensors"};
    ck_assert_int_eq(io_save(&model, folder, 3), GT_OK); /* one of the runs saved earlier */
    ck_assert_int_eq(io_save(&model, folder, OLD_ITER), GT_OK);
    ck_assert_int_eq(io_save(&model, copy, OLD_ITER), GT_OK);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t count_a, count_b;
        char *a = io_file_read(io_at(folder, names[i]), &count_a);
        char *b = io_file_read(io_at(copy, names[i]), &count_b);
        ck_assert_uint_eq(count_a, count_b);
        ck_assert_mem_eq(a, b, count_a);
        free(a);
        free(b);
    }
}

TEST(zero_biases_stand_in_the_file)
{
    struct safetensors *file;
    float values[16];
    size_t index;
    ck_assert_int_eq(io_save(&model, folder, OLD_ITER), GT_OK);
    ck_assert_int_eq(safetensors_open(mem, io_at(folder, "model.safetensors"), true, &file), GT_OK);
    ck_assert_uint_eq(file->count, 16);
    ck_assert(safetensors_find(file, "transformer.h.0.mlp.c_fc.bias", &index));
    ck_assert_int_eq(safetensors_read(file, index, 0, 16, values, DTYPE_F32, NULL), GT_OK);
    for (int i = 0; i < 16; i++)
        ck_assert(values[i] == 0.0f);
    hostmem_free(file);
    ck_assert_int_eq(safetensors_open(mem, io_at(folder, "optimizer-000010.safetensors"), true, &file), GT_OK);
    ck_assert_uint_eq(file->count, 2 * model.tensor_count);
    ck_assert_str_eq(file->tensors[0].name, "m.transformer.wte.weight"); /* first moments come first */
    ck_assert_str_eq(file->tensors[model.tensor_count].name, "v.transformer.wte.weight");
    ck_assert(safetensors_find(file, "v.transformer.ln_f.weight", &index));
    ck_assert(!safetensors_find(file, "m.transformer.ln_f.bias", &index));
    hostmem_free(file);
}

TEST(models_with_biases_too)
{
    int64_t iter;
    config.bias = true;
    io_model_init(&model, &config, OLD_SALT);
    ck_assert_uint_eq(model.tensor_count, 16);
    ck_assert_int_eq(io_save(&model, folder, OLD_ITER), GT_OK);
    ck_assert_int_eq(io_open_load(&model, folder, true, &iter), GT_OK);
    ck_assert(io_loaded_is(&model, OLD_SALT, true));
}

struct kill {
    size_t calls, kill_at;
};
static struct kill *read_kill;

/* Kills a child with a real kill -9, at each call for data. */
static enum gt_status read_and_die(void *context, enum checkpoint_part part, int32_t index, size_t first, size_t count,
                                   void *out)
{
    if (++read_kill->calls == read_kill->kill_at)
        (void)raise(SIGKILL);
    return io_read(context, part, index, first, count, out);
}

/* Returns true when the child was killed at this point, false when the save ended earlier. */
static bool save_killed_at(size_t kill_at)
{
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct kill kill = {.kill_at = kill_at};
        model.salt = NEW_SALT;
        read_kill = &kill;
        struct checkpoint_save_options options = io_save_options(&model, folder, NEW_ITER);
        options.read = read_and_die;
        _exit(checkpoint_save(&options) == GT_OK ? 0 : 1);
    }
    int wait_status = 0;
    ck_assert_int_eq(waitpid(pid, &wait_status, 0), pid);
    if (WIFSIGNALED(wait_status)) {
        ck_assert_int_eq(WTERMSIG(wait_status), SIGKILL);
        return true;
    }
    ck_assert_int_eq(WEXITSTATUS(wait_status), 0);
    return false;
}

TEST(kill_9_during_a_save)
{
    int kills = 0;
    for (size_t kill_at = 1;; kill_at++) {
        io_folder_empty(folder);
        ck_assert_int_eq(io_save(&model, folder, OLD_ITER), GT_OK);
        if (!save_killed_at(kill_at))
            break;
        kills++;
        ck_assert(!opens_as_new(folder));
        repairs_to_one_generation(folder, false);
    }
    ck_assert_int_gt(kills, 40);
}

/* Stale files of a killed save do not stop the next one, even under its own names. */
TEST(saving_twice_at_one_iter_overwrites_nothing)
{
    ck_assert_int_eq(io_save(&model, folder, NEW_ITER), GT_OK);
    model.salt = NEW_SALT;
    ck_assert_int_eq(io_save(&model, folder, NEW_ITER), GT_OK);
    ck_assert(file_exists(io_at(folder, "model-000020-2.safetensors")));
    ck_assert_int_eq(io_folder_count(folder, ""), 5);
    ck_assert(opens_as_new(folder));
    ck_assert_int_eq(io_save(&model, folder, NEW_ITER), GT_OK);
    ck_assert(file_exists(io_at(folder, "model-000020.safetensors")));
    ck_assert_int_eq(io_folder_count(folder, ""), 5);
}

TEST(a_failing_device_leaves_the_old_checkpoint)
{
    ck_assert_int_eq(io_save(&model, folder, OLD_ITER), GT_OK);
    model.salt = NEW_SALT;
    int n = 1;
    for (;; n++) {
        model.fail_after = n;
        enum gt_status status = io_save(&model, folder, NEW_ITER);
        if (status == GT_OK)
            break;
        log_capture_refused(&capture, status, GT_DEVICE, "device");
        ck_assert(!opens_as_new(folder));
        ck_assert_int_eq(io_folder_count(folder, ""), 5);
    }
    ck_assert_int_gt(n, 40);
    ck_assert(opens_as_new(folder));
}

TEST(values_that_are_not_finite_are_not_saved)
{
    ck_assert_int_eq(io_save(&model, folder, OLD_ITER), GT_OK);
    model.poison = (float)NAN;
    log_capture_refused(&capture, io_save(&model, folder, NEW_ITER), GT_DIVERGED, "second moment of wte.weight");
    model.poison = (float)INFINITY;
    log_capture_refused(&capture, io_save(&model, folder, NEW_ITER), GT_DIVERGED, "not finite");
    ck_assert(!opens_as_new(folder));
    ck_assert_int_eq(io_folder_count(folder, ""), 5);
}

static void expect_mode(const char *name, mode_t mode)
{
    struct stat info;
    ck_assert_int_eq(stat(io_at(folder, name), &info), 0);
    ck_assert_msg((info.st_mode & 0777) == mode, "%s: %o", name, (unsigned)info.st_mode & 0777);
}

static off_t size_of(const char *where, const char *name)
{
    struct stat info;
    ck_assert_int_eq(stat(io_at(where, name), &info), 0);
    return info.st_size;
}

/* Expects that a reader of Hugging Face's layout finds no config.json in `where`, or that of the model next to it. */
static void expect_a_pair_or_none(const char *where)
{
    struct model_config shape;
    struct hf_config_rest rest;
    json_t *root;
    io_path(path, where, CHECKPOINT_CONFIG_NAME);
    if (!file_exists(path))
        return;
    ck_assert_int_eq(json_parse_file(path, 1 << 16, &root), GT_OK);
    ck_assert_int_eq(hf_config_parse(root, path, &shape, &rest), GT_OK);
    json_decref(root);
    const bool is_new = size_of(where, "model.safetensors") == size_of(where, "model-000020.safetensors");
    ck_assert_int_eq(shape.n_layer, is_new ? 2 : 1);
}

/* Checks a start after a kill between the record and model.safetensors, when config.json cannot be written. */
static void expect_a_repair(void)
{
    struct rlimit room;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &room), 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = room.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
    ck_assert_int_eq(checkpoint_repair(copy), GT_IO);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &room), 0);
    ck_assert_int_eq(size_of(copy, "model.safetensors"), size_of(copy, "model-000020.safetensors"));
    expect_a_pair_or_none(copy);
    ck_assert_int_eq(checkpoint_repair(copy), GT_OK);
    ck_assert(file_exists(io_at(copy, CHECKPOINT_CONFIG_NAME)));
    expect_a_pair_or_none(copy);
}

TEST(another_shape_is_never_beside_these_weights)
{
    static const char *const made[] = {"model-000020.safetensors", "optimizer-000020.safetensors",
                                       CHECKPOINT_RECORD_NAME};
    char from[FILE_PATH_MAX], to[FILE_PATH_MAX];
    struct io_model larger;
    struct model_config two = io_config(2, 4, 2, false);
    io_model_init(&larger, &two, NEW_SALT);
    ck_assert_int_eq(io_save(&model, folder, OLD_ITER), GT_OK);
    ck_assert_int_eq(chmod(io_at(folder, "model.safetensors"), 0600), 0);
    io_folder_copy(folder, copy);
    ck_assert_int_eq(io_save(&larger, folder, NEW_ITER), GT_OK);
    ck_assert(file_exists(io_at(folder, CHECKPOINT_CONFIG_NAME)));
    expect_a_pair_or_none(folder);
    expect_mode(CHECKPOINT_CONFIG_NAME, 0600);
    for (int i = 0; i < 3; i++) {
        io_path(from, folder, made[i]);
        io_path(to, copy, made[i]);
        ck_assert_int_eq(file_copy(from, to, UINT64_MAX), GT_OK);
    }
    expect_a_repair();
}

TEST(a_mode_outlives_its_generation)
{
    (void)umask(022);
    ck_assert_int_eq(io_save(&model, folder, OLD_ITER), GT_OK);
    expect_mode("model.safetensors", 0644);
    expect_mode("optimizer-000010.safetensors", 0644);
    ck_assert_int_eq(chmod(io_at(folder, "model.safetensors"), 0600), 0);
    ck_assert_int_eq(io_save(&model, folder, NEW_ITER), GT_OK);
    expect_mode("model.safetensors", 0600);
    expect_mode("model-000020.safetensors", 0600);
    expect_mode("optimizer-000020.safetensors", 0644);
    ck_assert_int_eq(chmod(io_at(folder, "optimizer-000020.safetensors"), 0640), 0);
    io_path(path, folder, "model-000020.safetensors");
    ck_assert_int_eq(unlink(path), 0); /* only the public name is left, as for a model put there by hand */
    ck_assert_int_eq(io_save(&model, folder, OLD_ITER), GT_OK);
    expect_mode("model-000010.safetensors", 0600);
    expect_mode("optimizer-000010.safetensors", 0640);
    ck_assert_int_eq(capture.lines, 0);
}

/* Tries every size at which the disk may be full: in the model, the optimizer and the record. */
TEST(a_full_disk_leaves_the_old_checkpoint)
{
    int failures = 0;
    (void)signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(io_save(&model, folder, OLD_ITER), GT_OK);
    model.salt = NEW_SALT;
    for (rlim_t limit = 0;; limit += 97) {
        const struct rlimit small = {limit, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
        enum gt_status status = io_save(&model, folder, NEW_ITER);
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &all), 0);
        if (status == GT_OK)
            break;
        log_capture_refused(&capture, status, GT_IO, "cannot write");
        ck_assert(!opens_as_new(folder));
        ck_assert_int_eq(io_folder_count(folder, ""), 5);
        failures++;
    }
    ck_assert_int_gt(failures, 20);
    ck_assert(opens_as_new(folder));
}

TEST(a_missing_folder_is_an_error)
{
    char missing[FILE_PATH_MAX];
    io_path(missing, folder, "none");
    log_capture_refused(&capture, io_save(&model, missing, OLD_ITER), GT_IO, missing);
    io_file_write(missing, "x", 1);
    log_capture_refused(&capture, io_save(&model, missing, OLD_ITER), GT_IO, missing);
}

/* Puts an obstacle in place of a rename's target: the record or the public name cannot be made. */
TEST(an_obstacle_at_a_name)
{
    ck_assert_int_eq(io_save(&model, folder, OLD_ITER), GT_OK);
    model.salt = NEW_SALT;
    io_path(path, folder, "config.json");
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0777), 0);
    ck_assert_int_eq(io_save(&model, folder, NEW_ITER), GT_IO); /* committed, but not completely published */
    ck_assert(opens_as_new(folder));
    ck_assert_int_eq(rmdir(path), 0);
    io_folder_copy(folder, copy);
    repairs_to_one_generation(copy, true);
    io_path(path, folder, CHECKPOINT_RECORD_NAME);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0777), 0);
    capture.lines = 0;
    log_capture_refused(&capture, io_save(&model, folder, OLD_ITER), GT_IO, path);
    ck_assert(!file_exists(io_at(folder, "model-000010.safetensors")));
    ck_assert(file_exists(io_at(folder, "model-000020.safetensors")));
    ck_assert_int_eq(rmdir(io_at(folder, CHECKPOINT_RECORD_NAME)), 0);
}

TEST(knows_the_deepest_model)
{
    config.n_layer = 170;
    ck_assert_int_eq(checkpoint_config_check(&config), GT_OK);
    config.n_layer = 171;
    log_capture_refused(&capture, checkpoint_config_check(&config), GT_UNSUPPORTED, "n_layer");
}
