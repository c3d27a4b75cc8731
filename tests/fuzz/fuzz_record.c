/* Fuzzes trainer_state.json, the record of a checkpoint, with the configuration and the model's
 * shape that it contains.
 *
 * A wrong checksum makes the reader reject the record before it reads the rest, so a rejected
 * record is tried again without one, as in the first release.  An accepted record can be written,
 * and the result is accepted as the same record.
 */
#include <string.h>

#include "config/config.h"
#include "config/config_check.h"
#include "config/config_json.h"
#include "config/config_key.h"
#include "io/checkpoint.h"
#include "io/checkpoint_record.h"
#include "io/hf_config.h"
#include "model/parameters.h"
#include "tests/fuzz/fuzz_common.h"

static void check_written(const struct checkpoint_record *record)
{
    struct checkpoint_record back;
    json_t *root = NULL;
    FUZZ_CHECK(checkpoint_record_make(record, &root) == GT_OK);
    FUZZ_CHECK(checkpoint_record_parse(root, "written", &back) == GT_OK);
    FUZZ_CHECK(back.state.iter == record->state.iter && back.state.seed == record->state.seed);
    FUZZ_CHECK(back.state.samples_seen == record->state.samples_seen &&
               json_equal(back.hf_config, record->hf_config));
    FUZZ_CHECK((back.state.configuration == NULL) == (record->state.configuration == NULL));
    for (int i = 0; i < CHECKPOINT_FILES; i++) {
        FUZZ_CHECK(strcmp(back.files[i].name, record->files[i].name) == 0);
        FUZZ_CHECK(back.files[i].size_bytes == record->files[i].size_bytes);
        FUZZ_CHECK(back.files[i].crc32c == record->files[i].crc32c);
        FUZZ_CHECK(json_equal(back.files[i].tensors, record->files[i].tensors));
    }
    checkpoint_record_release(&back);
}

static void look(const struct checkpoint_record *record)
{
    struct config config;
    struct model_config shape;
    struct hf_config_rest rest;
    uint32_t crc = 0;
    config_defaults(&config, CONFIG_TRAIN);
    config.wall_s = 1;
    if (record->state.configuration != NULL &&
        config_from_json(&config, record->state.configuration, "input") == GT_OK)
        (void)config_check(&config);
    if (hf_config_parse(record->hf_config, "input", &shape, &rest) == GT_OK)
        FUZZ_CHECK(shape.n_head > 0 && model_head_dim(&shape) > 0 && shape.n_layer > 0 &&
                   rest.eos_token >= -1);
    for (int i = 0; i < CHECKPOINT_FILES; i++) {
        FUZZ_CHECK(checkpoint_file_name_valid(record->files[i].name, (enum checkpoint_file)i));
        FUZZ_CHECK(strchr(record->files[i].name, '/') == NULL);
        (void)checkpoint_record_tensor_crc(&record->files[i], "input", "transformer.wte.weight",
                                           &crc);
    }
}

void fuzz_one(struct hostmem *mem, const uint8_t *data, size_t size)
{
    (void)mem;
    struct checkpoint_record record;
    json_t *root = NULL;
    if (json_parse((const char *)data, size, "input", &root) != GT_OK)
        return;
    enum gt_status status = checkpoint_record_parse(root, "input", &record);
    if (status != GT_OK && json_is_object(root) &&
        json_object_del(root, CHECKPOINT_RECORD_CRC) == 0)
        status = checkpoint_record_parse(root, "input", &record);
    if (status != GT_OK) {
        json_decref(root);
        return;
    }
    look(&record);
    check_written(&record);
    checkpoint_record_release(&record);
}
