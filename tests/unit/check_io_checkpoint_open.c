/* Tests of recognising and opening: the kinds of folder, the refusals, and their words. */
#include "io/checkpoint_open.h"
#include "io/checkpoint_save.h"
#include "tests/unit/io_case.h"

static struct io_model model;

static void setup(void)
{
    io_setup();
    const struct model_config config = io_config(1, 4, 2, false);
    io_model_init(&model, &config, 1);
}

static void touch(const char *name, const char *text)
{
    io_path(path, folder, name);
    scratch_write(path, text, strlen(text));
}

static enum gt_status open_and_close(bool with_optimizer)
{
    struct checkpoint *checkpoint;
    enum gt_status status = checkpoint_open(mem, folder, with_optimizer, &checkpoint);
    if (status == GT_OK)
        hostmem_free(checkpoint);
    return status;
}

TEST_FIXTURE(setup, io_teardown)

TEST(probes_by_name)
{
    enum checkpoint_kind kind;
    ck_assert_int_eq(checkpoint_probe(io_at(folder, "none"), &kind), GT_OK);
    ck_assert_int_eq(kind, CHECKPOINT_NONE);
    ck_assert_int_eq(checkpoint_probe(folder, &kind), GT_OK);
    ck_assert_int_eq(kind, CHECKPOINT_NONE);
    touch("config.json", "{}");
    ck_assert_int_eq(checkpoint_probe(folder, &kind), GT_OK);
    ck_assert_int_eq(kind, CHECKPOINT_NONE);
    touch("model.safetensors", "");
    touch("pytorch_model.bin", "PK\3\4"); /* ignored next to a readable file */
    ck_assert_int_eq(checkpoint_probe(folder, &kind), GT_OK);
    ck_assert_int_eq(kind, CHECKPOINT_HF);
    touch(CHECKPOINT_RECORD_NAME, "{}");
    ck_assert_int_eq(checkpoint_probe(folder, &kind), GT_OK);
    ck_assert_int_eq(kind, CHECKPOINT_OURS);
    ck_assert_int_eq(capture.lines, 0);
}

TEST(probes_other_trainers)
{
    enum checkpoint_kind kind;
    touch("ckpt.pt", "anything");
    ck_assert_int_eq(checkpoint_probe(folder, &kind), GT_OK);
    ck_assert_int_eq(kind, CHECKPOINT_NANOGPT);
    touch("config.json", "{}");
    touch("model.safetensors.index.json", "{}");
    ck_assert_int_eq(checkpoint_probe(folder, &kind), GT_OK);
    ck_assert_int_eq(kind, CHECKPOINT_HF);
    touch("weights", "PK\3\4.....");
    ck_assert_int_eq(checkpoint_probe(path, &kind), GT_OK);
    ck_assert_int_eq(kind, CHECKPOINT_NANOGPT);
    touch("weights", "\xc6\xd7\x34\x01...");
    ck_assert_int_eq(checkpoint_probe(path, &kind), GT_OK);
    ck_assert_int_eq(kind, CHECKPOINT_LLMC);
    ck_assert_int_eq(capture.lines, 0);
}

TEST(refuses_pickles_with_a_way_out)
{
    static const char *const names[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};
    enum checkpoint_kind kind;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        io_folder_empty(folder);
        touch(names[i], "anything");
        ck_assert_int_eq(checkpoint_probe(folder, &kind), GT_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(capture.text, names[i]));
        log_capture_one_error(&capture, "safe_serialization=True");
    }
    touch("weights", "\x80\2.");
    log_capture_refused(&capture, checkpoint_probe(path, &kind), GT_UNSUPPORTED, "pickle");
    touch("weights", "text");
    log_capture_refused(&capture, checkpoint_probe(path, &kind), GT_DATA, "is a file");
    touch("weights", "");
    log_capture_refused(&capture, checkpoint_probe(path, &kind), GT_DATA, "the file is empty");
    touch("weights", "version https://git-lfs.github.com/spec/v1\n");
    log_capture_refused(&capture, checkpoint_probe(path, &kind), GT_DATA, "git lfs pull");
}

TEST(opens_another_programs_tokens)
{
    struct checkpoint *checkpoint;
    json_t *config;
    ck_assert_int_eq(io_save(&model, folder, 1), GT_OK);
    ck_assert_int_eq(unlink(io_at(folder, CHECKPOINT_RECORD_NAME)), 0);
    ck_assert_int_eq(json_parse_file(io_at(folder, "config.json"), 1 << 16, &config), GT_OK);
    ck_assert_int_eq(json_object_set_new(config, "bos_token_id", json_integer(3)), 0);
    ck_assert_int_eq(json_replace_file(io_at(folder, "config.json"), config, 2), GT_OK);
    json_decref(config);
    ck_assert_int_eq(checkpoint_open(mem, folder, false, &checkpoint), GT_OK);
    ck_assert_int_eq(checkpoint->rest.bos_token, 3);
    ck_assert_int_eq(checkpoint->rest.eos_token, -1);
    hostmem_free(checkpoint);
}

#define BEGINS "copy all of it again, or begin a new run from its weights: --init_from="
#define COPIES "copy all of it again"

/* Fails unless opening logs one error with `words` and then a note that ends in `cure`. */
static void broken(bool with_optimizer, enum gt_status status, const char *words, const char *cure)
{
    ck_assert_int_eq(open_and_close(with_optimizer), status);
    ck_assert_int_eq(capture.lines, 2);
    ck_assert_int_eq(capture.level, LOG_NOTE);
    ck_assert_msg(strstr(capture.before, words) != NULL, "%s", capture.before);
    const char *found = strstr(capture.text, cure);
    ck_assert_msg(found != NULL && (strcmp(cure, COPIES) != 0 || strcmp(found, COPIES) == 0), "%s",
                  capture.text);
    capture.lines = 0;
}

TEST(says_what_is_missing)
{
    ck_assert_int_eq(rmdir(folder), 0);
    log_capture_refused(&capture, open_and_close(false), GT_DATA,
                        "no such file or folder; init_from is scratch, resume, ");
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    log_capture_refused(&capture, open_and_close(false), GT_DATA,
                        "neither trainer_state.json nor both config.json and model.safetensors");
    touch("config.json", "{}");
    log_capture_refused(&capture, open_and_close(false), GT_DATA,
                        "has config.json, but neither model.safetensors nor the index");
    io_folder_empty(folder);
    touch("model.safetensors", "");
    log_capture_refused(&capture, open_and_close(false), GT_DATA,
                        "has model.safetensors without its config.json");
    io_folder_empty(folder);
    ck_assert_int_eq(io_save(&model, folder, 1), GT_OK);
    io_path(path, folder, "optimizer-000001.safetensors");
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(open_and_close(false), GT_OK); /* sampling needs no optimizer */
    broken(true, GT_IO, path, BEGINS);
    ck_assert_int_eq(truncate(io_at(folder, "model-000001.safetensors"), 100), 0);
    broken(true, GT_DATA, "model-000001.safetensors: ", COPIES);
    broken(false, GT_DATA, "model-000001.safetensors: ", COPIES);
    io_folder_empty(folder);
    ck_assert_int_eq(io_save(&model, folder, 1), GT_OK);
    ck_assert_int_eq(unlink(io_at(folder, CHECKPOINT_RECORD_NAME)), 0);
    ck_assert_int_eq(open_and_close(false), GT_OK);
    log_capture_refused(&capture, open_and_close(true), GT_DATA,
                        "trainer_state.json is not there; --init_from=");
}

TEST(refuses_files_of_another_generation)
{
    char other[FILE_PATH_MAX];
    ck_assert_int_eq(io_save(&model, folder, 1), GT_OK);
    io_path(path, folder, "model-000001.safetensors");
    io_path(other, folder, "optimizer-000001.safetensors");
    size_t count, other_count;
    char *model_bytes = io_file_read(path, &count),
         *optimizer_bytes = io_file_read(other, &other_count);
    scratch_write(path, optimizer_bytes, other_count);
    broken(true, GT_DATA, "bytes long, but trainer_state.json says", COPIES);
    scratch_write(path, model_bytes, count);
    model_bytes[count - 1] ^= 1;
    scratch_write(other, optimizer_bytes, other_count - 1);
    broken(true, GT_DATA, other, BEGINS);
    optimizer_bytes[0] = (char)(optimizer_bytes[0] - 8); /* a shorter header and more data */
    scratch_write(other, optimizer_bytes, other_count);
    broken(true, GT_DATA, other, BEGINS);
    free(model_bytes);
    free(optimizer_bytes);
}
