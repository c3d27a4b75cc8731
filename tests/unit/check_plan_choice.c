/* Tests of model/plan_choice: the round trip of a record, in the form of this release and of 0.2.0.
 */
#include "io/checkpoint_record.h"

#include <string.h>

#include "tests/unit/log_capture.h"
#include "tests/unit/unit_main.h"

#define LAYERS 12

static json_t *parse(const char *text)
{
    json_t *value = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(value);
    return value;
}

TEST(a_choice_comes_back)
{
    struct plan_choice choice = {.micro_batch = 8, .loss_chunk_rows = 512, .evaluate_batch = 6},
                       read;
    char text[PLAN_CHOICE_TEXT_MAX];
    json_t *object = json_object();
    choice.recompute.blocks[RECOMPUTE_FULL] = 2;
    choice.recompute.blocks[RECOMPUTE_MLP] = 3;
    ck_assert(plan_choice_write(object, &choice, LAYERS));
    ck_assert_str_eq(json_string_value(json_object_get(object, "recompute")),
                     "full:2,mlp:3,none:7");
    ck_assert_int_eq(plan_choice_read(object, "record", LAYERS, &read), GT_OK);
    ck_assert(plan_choice_equal(&choice, &read));
    ck_assert_str_eq(
        plan_choice_text(text, &choice, LAYERS, false),
        "micro-batch 8, recompute full in 2 of 12 blocks, mlp in 3 of 12 blocks, none in the others, loss in "
        "chunks of 512 rows");
    read.recompute.blocks[RECOMPUTE_GELU]++;
    ck_assert(!plan_choice_equal(&choice, &read));
    json_decref(object);
}

TEST(records_of_0_2_0_number_the_levels)
{
    static const struct {
        const char *recompute, *text;
    } records[] = {
        {"{\"first_layers\": 0, \"first\": 0, \"rest\": 4}", "full"},
        {"{\"first_layers\": 5, \"first\": 3, \"rest\": 2}", "mlp:5,layernorm:7"},
        {"{\"first_layers\": 4, \"first\": 1, \"rest\": 0}", "gelu:4,none:8"},
    };
    for (size_t i = 0; i < sizeof records / sizeof records[0]; i++) {
        char record[256], text[RECOMPUTE_TEXT_MAX];
        struct plan_choice choice;
        snprintf(
            record, sizeof record,
            "{\"micro_batch\": 3, \"loss_chunk_rows\": 16, \"evaluate_batch\": 2, \"recompute\": %s}",
            records[i].recompute);
        json_t *object = parse(record);
        ck_assert_int_eq(plan_choice_read(object, "record", LAYERS, &choice), GT_OK);
        ck_assert_str_eq(recompute_text(text, &choice.recompute, LAYERS, ":", ","),
                         records[i].text);
        json_decref(object);
    }
}

TEST(other_values_are_refused)
{
    static const char *const bad[] = {"7",
                                      "\"most\"",
                                      "\"full:13,none\"",
                                      "\"offload:13\"",
                                      "\"offload:-1,full\"",
                                      "{\"first_layers\": 13, \"first\": 0, \"rest\": 0}",
                                      "{\"first_layers\": 1, \"first\": 5, \"rest\": 0}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char record[256];
        struct plan_choice choice;
        struct log_capture capture;
        snprintf(
            record, sizeof record,
            "{\"micro_batch\": 3, \"loss_chunk_rows\": 16, \"evaluate_batch\": 2, \"recompute\": %s}",
            bad[i]);
        json_t *object = parse(record);
        log_capture_begin(&capture);
        log_capture_refused(&capture,
                            plan_choice_read(object, "out/trainer_state.json", LAYERS, &choice),
                            GT_DATA, "out/trainer_state.json");
        log_capture_end();
        json_decref(object);
    }
}
