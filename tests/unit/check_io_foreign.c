/* Tests of other trainers' files, from the seeds of the fuzzing targets: nanoGPT's checkpoints (and the zip archive
 * around them), llm.c's models, questions.  They are read whole, cut short at every length, with any byte changed, and
 * with failing allocations.
 */
#include "data/choices.h"
#include "io/checkpoint_load.h"
#include "io/checkpoint_open.h"
#include "io/llmc_model.h"
#include "io/nanogpt.h"
#include "io/safetensors_table.h"
#include "io/zip_stored.h"
#include "model/parameters.h"
#include "tests/unit/io_case.h"

static char *bytes;
static size_t count;

static void setup(void)
{
    io_setup();
    bytes = NULL;
}

static void teardown(void)
{
    free(bytes);
    io_teardown();
}

/* Reads the seed into memory and writes it to `path`. */
static void seed_take(const char *name)
{
    const char *top = getenv("top_srcdir");
    char from[FILE_PATH_MAX];
    (void)snprintf(from, sizeof from, "%s/tests/fuzz/corpus/%s", top != NULL ? top : ".", name);
    free(bytes);
    bytes = io_file_read(from, &count);
    io_file_write(path, bytes, count);
}

static enum gt_status nanogpt_use(void)
{
    struct checkpoint *checkpoint;
    TRY(checkpoint_open(mem, path, true, &checkpoint));
    hostmem_free(checkpoint);
    return GT_OK;
}

static enum gt_status llmc_use(void)
{
    struct model_config config;
    struct safetensors *file;
    TRY(llmc_model_open(mem, path, &config, &file));
    hostmem_free(file);
    return GT_OK;
}

static enum gt_status choices_use(void)
{
    struct choices *choices;
    struct choices_question question;
    enum gt_status status = GT_OK;
    TRY(choices_open(mem, path, 10, &choices));
    for (int64_t i = 0; i < choices_count(choices) && status == GT_OK; i++)
        status = choices_next(choices, &question);
    hostmem_free(choices);
    return status;
}

static const struct {
    const char *seed;
    enum gt_status (*use)(void);
} readers[] = {{"nanogpt/bias.pt", nanogpt_use},
               {"nanogpt/plain.pt", nanogpt_use},
               {"llmc_model/f32.bin", llmc_use},
               {"llmc_model/bf16.bin", llmc_use},
               {"choices/two.bin", choices_use}};
#define READERS ((int)(sizeof readers / sizeof readers[0]))

TEST_FIXTURE(setup, teardown)
TEST_LIMIT(60)

TEST_LOOP(cut_short_at_every_length, READERS)
{
    seed_take(readers[_i].seed);
    ck_assert_int_eq(readers[_i].use(), GT_OK);
    for (size_t length = count; length-- > 0;) {
        ck_assert_int_eq(truncate(path, (off_t)length), 0);
        ck_assert_msg(readers[_i].use() == GT_DATA, "%s: %zu bytes", readers[_i].seed, length);
        log_capture_one_error(&capture, path);
    }
}

/* llm.c's formats have no checksum, so that changed numbers are not detected; a refusal must give one line. */
TEST_LOOP(any_byte_changed, READERS)
{
    size_t refused = 0;
    seed_take(readers[_i].seed);
    for (size_t at = 0; at < count; at++) {
        io_file_flip(path, 8 * at + at % 8);
        if (readers[_i].use() != GT_OK) {
            log_capture_one_error(&capture, "");
            refused++;
        }
        io_file_flip(path, 8 * at + at % 8);
    }
    ck_assert_uint_gt(refused, 20);
    ck_assert_int_eq(readers[_i].use(), GT_OK);
}

TEST_LOOP(refused_memory_is_passed_on, READERS)
{
    size_t n = 1;
    seed_take(readers[_i].seed);
    for (;; n++) {
        hostmem_fail_at(mem, n);
        enum gt_status status = readers[_i].use();
        hostmem_fail_at(mem, 0);
        if (status == GT_OK)
            break;
        log_capture_refused(&capture, status, GT_NO_MEMORY, "");
    }
    ck_assert_uint_gt(n, 1);
}

TEST(nanogpt_fields)
{
    struct checkpoint *checkpoint;
    size_t index;
    float values[8];
    seed_take("nanogpt/plain.pt");
    ck_assert_int_eq(checkpoint_open(mem, path, true, &checkpoint), GT_OK);
    ck_assert(checkpoint->config.n_layer == 1 && checkpoint->config.n_head == 1 && checkpoint->config.n_embd == 2);
    ck_assert(checkpoint->config.block_size == 2 && checkpoint->config.vocab_size == 3 && !checkpoint->config.bias);
    const struct checkpoint_state *state = &checkpoint->record.state;
    ck_assert(state->iter == 5 && state->adam_step == 5 && state->best_val_loss == 3.5);
    ck_assert_int_eq(json_integer_value(json_object_get(state->configuration, "batch_size")), 1);
    ck_assert_ptr_null(json_object_get(state->configuration, "device"));
    /* The seed's elements are k / 8 in [in, out], for weights and moments alike. */
    ck_assert(safetensors_find(checkpoint->optimizer, "v.transformer.h.0.mlp.c_fc.weight", &index));
    ck_assert_int_eq(checkpoint->optimizer->tensors[index].dims[1], 8);
    ck_assert_int_eq(safetensors_read(checkpoint->optimizer, index, 5, 8, values, DTYPE_F32, NULL), GT_OK);
    for (int i = 0; i < 8; i++)
        ck_assert_float_eq(values[i], (float)(5 + i) / 8.0f);
    ck_assert(safetensors_find(checkpoint->model, "transformer.h.0.ln_1.bias", &index));
    ck_assert_int_eq(safetensors_read(checkpoint->model, index, 0, 2, values, DTYPE_F32, NULL), GT_OK);
    ck_assert(values[0] == 0.0f && values[1] == 0.0f);
    ck_assert_int_eq(hf_layout_check(checkpoint->model, &checkpoint->config), GT_OK);
    hostmem_free(checkpoint);
}

TEST(llmc_fields)
{
    static const char *const seeds[] = {"llmc_model/f32.bin", "llmc_model/bf16.bin"};
    for (int s = 0; s < 2; s++) {
        struct model_config config;
        struct safetensors *file;
        size_t index;
        float values[16];
        seed_take(seeds[s]);
        ck_assert_int_eq(llmc_model_open(mem, path, &config, &file), GT_OK);
        ck_assert(config.vocab_size == 3 && config.bias && config.gelu == GELU_TANH);
        for (size_t i = 0; i < parameters_count(&config); i++) {
            struct parameter_shape tensor;
            parameters_shape(&config, i, &tensor);
            ck_assert_int_eq(hf_layout_find(file, &tensor, &index), GT_OK);
            ck_assert_int_eq(safetensors_read(file, index, 0, parameter_elements(&tensor), values, DTYPE_F32, NULL),
                             GT_OK);
            for (size_t k = 0; k < parameter_elements(&tensor); k++)
                ck_assert_float_eq(values[k], (float)k / 8.0f);
        }
        hostmem_free(file);
    }
}

/* A header may claim any number of layers: it is compared with the file's length before they are allocated. */
TEST(llmc_layers_that_are_not_there)
{
    static const int32_t layers[] = {2, 511, 4096};
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        struct model_config config;
        struct safetensors *file;
        struct hostmem_counters counters;
        seed_take("llmc_model/f32.bin");
        memcpy(bytes + 16, &layers[i], sizeof layers[i]);
        io_file_write(path, bytes, count);
        log_capture_refused(&capture, llmc_model_open(mem, path, &config, &file), GT_DATA,
                            "bytes long, but its header says");
        hostmem_counters_get(mem, &counters);
        ck_assert_uint_eq(counters.live_bytes, 0);
        ck_assert_uint_lt(counters.live_bytes_max, 65536);
    }
}

/* Every member that is read; "version" is not. */
TEST(a_members_bits_are_compared_with_its_checksum)
{
    struct zip zip;
    char member[32];
    seed_take("nanogpt/bias.pt");
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(zip_open(mem, fileno(file), path, count, &zip), GT_OK);
    for (size_t i = 0; i < zip.count; i++) {
        struct zip_entry *entry = &zip.entries[i];
        (void)snprintf(member, sizeof member, "%.*s", (int)entry->name_bytes, entry->name);
        for (size_t bit = 0; strcmp(member, "ckpt/version") != 0 && bit < 8 * entry->size_bytes; bit += 1 + bit / 24) {
            io_file_flip(path, 8 * entry->offset_bytes + bit);
            ck_assert_msg(nanogpt_use() == GT_DATA, "%s, bit %zu", member, bit);
            log_capture_one_error(&capture, member);
            ck_assert_ptr_nonnull(strstr(capture.text, "the file is damaged"));
            io_file_flip(path, 8 * entry->offset_bytes + bit);
        }
    }
    hostmem_free(zip.entries);
    hostmem_free(zip.directory);
    (void)fclose(file);
}

/* torch.save() has an option to write no checksums. */
TEST(a_member_without_checksum_is_read)
{
    static const char numbers[] = "ckpt/data/0", mark[] = "PK\1\2";
    char *at = NULL;
    seed_take("nanogpt/plain.pt");
    for (size_t i = 0; i + 46 + sizeof numbers < count; i++) {
        if (memcmp(bytes + i, mark, 4) == 0 && memcmp(bytes + i + 46, numbers, sizeof numbers - 1) == 0)
            at = bytes + i + 16;
    }
    ck_assert_ptr_nonnull(at);
    memset(at, 0, 4);
    io_file_write(path, bytes, count);
    ck_assert_int_eq(nanogpt_use(), GT_OK);
    at[0] = 1;
    io_file_write(path, bytes, count);
    log_capture_refused(&capture, nanogpt_use(), GT_DATA, "ckpt/data/0 has checksum");
}

TEST(zip_members)
{
    struct zip zip;
    seed_take("nanogpt/plain.pt");
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(zip_open(mem, fileno(file), path, count, &zip), GT_OK);
    struct zip_entry *entry = zip_find(&zip, "ckpt/version");
    ck_assert_ptr_nonnull(entry);
    ck_assert_uint_eq(entry->size_bytes, 2);
    ck_assert_mem_eq(bytes + entry->offset_bytes, "3\n", 2);
    ck_assert_ptr_null(zip_find(&zip, "ckpt/versio"));
    ck_assert_ptr_null(zip_find(&zip, "ckpt/version2"));
    hostmem_free(zip.entries);
    hostmem_free(zip.directory);
    (void)fclose(file);
}
