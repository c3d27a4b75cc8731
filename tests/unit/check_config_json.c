/* Tests of src/config/config_json.c: the round trip, the stored keys, resuming, and untrusted objects. */
#include "config/config_json.h"
#include "config/config_key.h"
#include "config/config_value.h"
#include "tests/unit/config_fixture.h"

static struct config other;

/* Returns the object of the fixture's configuration. */
static json_t *stored(void)
{
    json_t *object = NULL;
    ck_assert_int_eq(config_to_json(&fixture.config, &object), GT_OK);
    return object;
}

/* Reads JSON text into new defaults, on top of a file with `own`. */
static enum gt_status resume(const char *own, const char *text)
{
    json_t *object = NULL;
    enum gt_status status = GT_OK;
    ck_assert_int_eq(fixture_read(own), GT_OK);
    ck_assert_int_eq(json_parse(text, strlen(text), "state.json", &object), GT_OK);
    status = config_from_json(&fixture.config, object, "state.json");
    json_decref(object);
    return status;
}

TEST(json_round_trip)
{
    char own[CONFIG_VALUE_TEXT_MAX];
    char read[CONFIG_VALUE_TEXT_MAX];
    char *text = NULL;
    json_t *object = NULL;
    json_t *again = NULL;
    ck_assert_int_eq(
        fixture_read("n_layer = 3; learning_rate = 0.1 + 0.2; bias = True; gelu = 'tanh'; dropout = 1 / 3\n"
                     "dataset = 'caf\xC3\xA9 \"x\"'; seed = 9223372036854775807; wandb_run_name = None\n"),
        GT_OK);
    object = stored();
    ck_assert_int_eq(json_text(object, 1, "", &text), GT_OK);
    ck_assert_int_eq(json_parse(text, strlen(text), "state.json", &again), GT_OK);
    config_defaults(&other, CONFIG_TRAIN);
    ck_assert_int_eq(config_from_json(&other, again, "state.json"), GT_OK);
    for (int i = 0; i < CONFIG_KEY_COUNT; i++) {
        enum config_key key = (enum config_key)i;
        config_key_text(own, &fixture.config, key);
        ck_assert_msg(strcmp(own, config_key_text(read, &other, key)) == 0, "%s: %s became %s",
                      config_key_info_get(key)->name, own, read);
        ck_assert(!config_key_was_set(&other, key));
    }
    ck_assert(other.learning_rate == 0.1 + 0.2 && other.dropout == 1.0 / 3.0);
    free(text);
    json_decref(object);
    json_decref(again);
}

TEST(json_holds_no_invocation)
{
    static const char *const absent[] = {"out_dir",      "init_from",     "backend",   "device", "threads",
                                         "plan",         "print_program", "eval_only", "help",   "version",
                                         "list_devices", "compile",       "start",     "top_k"};
    static const char *const present[] = {"n_layer", "batch_size",     "micro_batch", "loss_chunk",
                                          "dtype",   "seed",           "dataset",     "learning_rate",
                                          "sampler", "wandb_run_name", "gelu",        "n_kv_head"};
    fixture_open(CONFIG_TRAIN);
    json_t *object = stored();
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
        ck_assert_msg(json_object_get(object, absent[i]) == NULL, "%s", absent[i]);
    for (size_t i = 0; i < sizeof present / sizeof present[0]; i++)
        ck_assert_msg(json_object_get(object, present[i]) != NULL, "%s", present[i]);
    json_decref(object);
}

TEST(json_resume)
{
    ck_assert_int_eq(
        resume("max_iters = 40", "{\"max_iters\": 20, \"n_layer\": 3, \"learning_rate\": 1, \"gelu\": \"erf\"}"),
        GT_OK);
    ck_assert_int_eq(fixture.config.max_iters, 40); /* this invocation's value stays */
    ck_assert_int_eq(fixture.config.n_layer, 3);
    ck_assert(fixture.config.learning_rate == 1.0);
    ck_assert_int_eq(fixture.config.gelu, 1 + GELU_ERF);
    ck_assert(!config_key_was_set(&fixture.config, CONFIG_KEY_n_layer));
    ck_assert(config_key_was_set(&fixture.config, CONFIG_KEY_max_iters));
    /* Repeating the same shape is allowed, and an open choice follows the checkpoint. */
    ck_assert_int_eq(resume("n_layer = 3; gelu = 'auto'; vocab_size = 0",
                            "{\"n_layer\": 3, \"gelu\": \"tanh\", \"vocab_size\": 65}"),
                     GT_OK);
    ck_assert_int_eq(fixture.config.gelu, 1 + GELU_TANH);
    ck_assert_int_eq(fixture.config.vocab_size, 65);
    ck_assert_int_eq(fixture.count, 0);
    /* Another shape is refused. */
    ck_assert_int_eq(resume("n_layer = 6", "{\"n_layer\": 3, \"max_iters\": 20}"), GT_USAGE);
    ck_assert_int_eq(fixture.errors, 1);
    ASSERT_SAID("x.py:1:1: n_layer = 6 cannot be resumed from state.json, whose model has 3");
    ck_assert_int_eq(fixture.config.max_iters, 600000); /* nothing is written on failure */
}

TEST(json_untrusted)
{
    static const struct {
        const char *text, *words;
    } cases[] = {{"[]", "state.json: configuration: expected an object"},
                 {"{\"n_layer\": \"3\"}", "state.json: n_layer: expected an int, found str '3'"},
                 {"{\"n_layer\": 3.0}", "n_layer: expected an int, found float 3.0"},
                 {"{\"n_layer\": 0}", "n_layer = 0 is out of range"},
                 {"{\"n_layer\": null}", "n_layer is neither a number, a string nor a boolean"},
                 {"{\"n_layer\": [1]}", "n_layer is neither a number, a string nor a boolean"},
                 {"{\"n_layer\": true}", "expected an int, found bool True"},
                 {"{\"n_layers\": 3}", "unknown key \"n_layers\""},
                 {"{\"n-layer\": 3}", "unknown key \"n-layer\""},
                 {"{\"out_dir\": \"/etc\"}", "unknown key \"out_dir\""},
                 {"{\"norm\": \"batchnorm\"}", "norm = 'batchnorm' is none of"},
                 {"{\"dropout\": 1e300}", "dropout = 1e+300 is out of range"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_msg(resume("", cases[i].text) == GT_DATA, "%s", cases[i].text);
        ck_assert_int_eq(fixture.count, 1);
        ASSERT_SAID(cases[i].words);
    }
    /* A bad value is reported even when this invocation's own would replace it, and several are reported at once. */
    ck_assert_int_eq(resume("max_iters = 4", "{\"max_iters\": -1, \"n_layer\": 0, \"x\": 1}"), GT_DATA);
    ck_assert_int_eq(fixture.errors, 3);
    ck_assert_int_eq(fixture.config.max_iters, 4);
}

/* A change is a key that this invocation set to another value, where results depend on the key. */
TEST(json_changes)
{
    static const char text[] =
        "{\"learning_rate\": 1, \"seed\": 7, \"log_interval\": 5, \"max_iters\": 9, \"beta1\": 0.5}";
    struct config_change change = {0};
    json_t *object = NULL;
    ck_assert_int_eq(json_parse(text, strlen(text), "state.json", &object), GT_OK);
    ck_assert_int_eq(resume("learning_rate = 1.0; seed = 8; log_interval = 6; max_iters = 10; dropout = 0.5", text),
                     GT_OK);
    for (int i = 0; i < CONFIG_KEY_COUNT; i++)
        ck_assert_int_eq(config_key_change(&fixture.config, (enum config_key)i, object, &change), i == CONFIG_KEY_seed);
    ck_assert_str_eq(change.name, "seed");
    ck_assert_str_eq(change.was, "7");
    ck_assert_str_eq(change.is, "8");
    json_decref(object);
}
