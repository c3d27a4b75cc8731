/* Tests of trainer_state.json: the round trip, the check of each field, and file names that must
 * not contain a path. */
#include "io/checkpoint.h"
#include "io/checkpoint_record.h"
#include "tests/unit/io_case.h"

/* Returns a complete record; release it with json_decref(). */
static json_t *record_make(double best_val_loss)
{
    json_t *sums = json_pack("{s:s}", "a", "0123abcd"),
           *hf = json_pack("{s:s}", "model_type", "gpt2");
    json_t *plan = json_pack("{s:i}", "micro_batch", 4), *root;
    struct checkpoint_record record = {
        .state = {.iter = 40,
                  .adam_step = 39,
                  .seed = INT64_MAX,
                  .samples_seen = 480,
                  .tokens_seen = 30720,
                  .evaluations = 3,
                  .best_val_loss = best_val_loss,
                  .plan = plan},
        .hf_config = hf,
        .files = {{.size_bytes = 123456789012,
                   .crc32c = 0xfedcba98u,
                   .header_crc32c = 7,
                   .tensors = sums},
                  {.size_bytes = 5, .tensors = sums}},
    };
    checkpoint_file_name(record.files[0].name, CHECKPOINT_FILE_MODEL, 40, 1);
    checkpoint_file_name(record.files[1].name, CHECKPOINT_FILE_OPTIMIZER, 40, 2);
    ck_assert_int_eq(checkpoint_record_make(&record, &root), GT_OK);
    json_decref(sums);
    json_decref(hf);
    json_decref(plan);
    return root;
}

TEST_FIXTURE(io_setup, io_teardown)

TEST(comes_back_through_text)
{
    static const double losses[] = {0.1, 1e9, 4.9406564584124654e-324, 2.0 / 3.0};
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        json_t *made = record_make(losses[i]), *root;
        char *text;
        struct checkpoint_record record;
        uint32_t crc;
        ck_assert_int_eq(json_text(made, 2, "", &text), GT_OK);
        ck_assert_int_eq(json_parse(text, strlen(text), "x", &root), GT_OK);
        ck_assert_int_eq(checkpoint_record_parse(root, "x", &record), GT_OK);
        ck_assert_int_eq(record.state.iter, 40);
        ck_assert_int_eq(record.state.adam_step, 39);
        ck_assert_int_eq(record.state.seed, INT64_MAX);
        ck_assert_int_eq(record.state.samples_seen, 480);
        ck_assert_int_eq(record.state.tokens_seen, 30720);
        ck_assert_int_eq(record.state.evaluations, 3);
        ck_assert(record.state.best_val_loss == losses[i]);
        ck_assert_ptr_null(record.state.data);
        ck_assert_ptr_null(record.state.loss_scaler);
        ck_assert_int_eq(json_integer_value(json_object_get(record.state.plan, "micro_batch")), 4);
        ck_assert_str_eq(record.files[0].name, "model-000040.safetensors");
        ck_assert_str_eq(record.files[1].name, "optimizer-000040-2.safetensors");
        ck_assert_uint_eq(record.files[0].size_bytes, 123456789012);
        ck_assert_uint_eq(record.files[0].crc32c, 0xfedcba98u);
        ck_assert_uint_eq(record.files[0].header_crc32c, 7);
        ck_assert_int_eq(checkpoint_record_tensor_crc(&record.files[0], "x", "a", &crc), GT_OK);
        ck_assert_uint_eq(crc, 0x0123abcdu);
        log_capture_refused(&capture,
                            checkpoint_record_tensor_crc(&record.files[0], "x", "b", &crc), GT_DATA,
                            "tensor b");
        checkpoint_record_release(&record);
        json_decref(made);
        free(text);
    }
}

TEST(keeps_no_loss_as_null)
{
    json_t *root = record_make((double)NAN);
    struct checkpoint_record record;
    ck_assert(json_is_null(json_object_get(root, "best_val_loss")));
    ck_assert_int_eq(checkpoint_record_parse(root, "x", &record), GT_OK);
    ck_assert(isinf(record.state.best_val_loss) && record.state.best_val_loss > 0);
    checkpoint_record_release(&record);
}

/* Removes every field, and gives every field another type. */
TEST(needs_every_field)
{
    json_t *good = record_make(1.0);
    const char *name;
    json_t *value;
    int fields = 0;
    json_object_foreach(good, name, value)
    {
        /* Old records have no checksum. */
        for (int variant = strcmp(name, CHECKPOINT_RECORD_CRC) == 0; variant < 2; variant++) {
            struct checkpoint_record record;
            json_t *bad = json_deep_copy(good);
            if (variant == 0)
                ck_assert_int_eq(json_object_del(bad, name), 0);
            else
                ck_assert_int_eq(json_object_set_new(bad, name, json_true()), 0);
            ck_assert_msg(checkpoint_record_parse(bad, "state.json", &record) == GT_DATA, "%s",
                          name);
            ck_assert_ptr_nonnull(strstr(capture.text, "state.json"));
            log_capture_one_error(&capture, name);
            json_decref(bad);
        }
        fields++;
    }
    ck_assert_int_eq(fields, 16);
    json_decref(good);
}

TEST(refuses_other_formats_and_versions)
{
    struct checkpoint_record record;
    json_t *root = record_make(1.0);
    ck_assert_int_eq(json_object_set_new(root, "version", json_integer(2)), 0);
    log_capture_refused(&capture, checkpoint_record_parse(root, "x", &record), GT_UNSUPPORTED,
                        "version");
    ck_assert_int_eq(json_object_set_new(root, "format", json_string("other")), 0);
    log_capture_refused(&capture, checkpoint_record_parse(root, "x", &record), GT_DATA,
                        "\"other\"");
    ck_assert_int_eq(json_object_clear(root),
                     0); /* what transformers' own trainer writes under this name */
    ck_assert_int_eq(json_object_set_new(root, "global_step", json_integer(3)), 0);
    log_capture_refused(&capture, checkpoint_record_parse(root, "x", &record), GT_DATA, "format");
    json_decref(root);
}

TEST(reads_a_folder)
{
    struct checkpoint_record record;
    io_path(path, folder, CHECKPOINT_RECORD_NAME);
    log_capture_refused(&capture, checkpoint_record_read(folder, &record), GT_IO, path);
    json_t *root = record_make(1.0);
    ck_assert_int_eq(json_replace_file(path, root, 2), GT_OK);
    json_decref(root);
    ck_assert_int_eq(checkpoint_record_read(folder, &record), GT_OK);
    checkpoint_record_release(&record);
    size_t count;
    char *bytes = io_file_read(path, &count);
    for (size_t kept = 0; kept + 2 < count; kept++) { /* all but the final newline and brace */
        scratch_write(path, bytes, kept);
        log_capture_refused(&capture, checkpoint_record_read(folder, &record), GT_DATA, path);
    }
    free(bytes);
}
