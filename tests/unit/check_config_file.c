/* Tests of src/config/config_file.c: the syntax, the values, every refusal with its position.
 * fuzz_config reads mutated files. */
#include <unistd.h>

#include "config/config_file.h"
#include "config/config_key.h"
#include "tests/unit/config_fixture.h"
#include "tests/unit/scratch.h"

/* A file in the manner of nanoGPT's config/ folder, with each idiom that its files use. */
static const char finetune[] = "import time\n"
                               "\n"
                               "out_dir = 'out-play'\n"
                               "eval_interval = 5\n"
                               "eval_iters = 40\n"
                               "wandb_log = False # switch on if you like\n"
                               "wandb_project = 'play'\n"
                               "wandb_run_name = 'ft-' + str(time.time())\n"
                               "\n"
                               "dataset = 'shakespeare'\n"
                               "init_from = 'gpt2-xl' # the largest one\n"
                               "# 1 sequence x 32 steps\n"
                               "always_save_checkpoint = False\n"
                               "batch_size = 1\n"
                               "gradient_accumulation_steps = 32\n"
                               "max_iters = 20\n"
                               "learning_rate = 3e-5\n"
                               "decay_lr = False\n";

static const char pretrain[] = "'''a docstring\n over two lines'''\n"
                               "wandb_log = True\n"
                               "wandb_run_name='gpt2-124M'\n"
                               "batch_size = 12\n"
                               "block_size = 1024\n"
                               "gradient_accumulation_steps = 5 * 8\n"
                               "max_iters = 600000\n"
                               "lr_decay_iters = 600000\n"
                               "eval_interval = 1000; eval_iters = 200\n"
                               "weight_decay = 1e-1\n"
                               "device = 'cpu'  # run on cpu only\n"
                               "compile = False # do not torch compile\n";

TEST(file_nanogpt_idioms)
{
    const struct config *config = &fixture.config;
    ASSERT_READS(finetune);
    ck_assert_str_eq(config->out_dir, "out-play");
    ck_assert_str_eq(config->wandb_run_name, "ft-1700000000.0");
    ck_assert_str_eq(config->init_from, "gpt2-xl");
    ck_assert(!config->always_save_checkpoint && !config->decay_lr && !config->wandb_log);
    ck_assert(config->learning_rate == 3e-5);
    ck_assert_int_eq(config->eval_iters, 40);
    ck_assert(config_key_was_set(config, CONFIG_KEY_max_iters));
    ck_assert(!config_key_was_set(config, CONFIG_KEY_n_layer));
    ck_assert_int_eq(config->origin[CONFIG_KEY_decay_lr].line, 18);
    ck_assert_str_eq(config->origin[CONFIG_KEY_decay_lr].source, "x.py");
    ASSERT_READS(pretrain);
    ck_assert_int_eq(config->gradient_accumulation_steps, 40);
    ck_assert_int_eq(config->eval_iters, 200);
    ck_assert(config->wandb_log && !config->compile);
    ck_assert_str_eq(config->wandb_run_name, "gpt2-124M");
    ck_assert(config->weight_decay == 0.1);
}

TEST(file_integer_expressions)
{
    static const struct {
        const char *expression;
        int64_t value;
    } cases[] = {{"5 * 8", 40},
                 {"2 + 3 * 4", 14},
                 {"(2 + 3) * 4", 20},
                 {"20 - 5 - 5", 10},
                 {"100 // 7 // 2", 7},
                 {"100 % 7", 2},
                 {"2 ** 3 ** 2", 512},
                 {"-2 ** 2 + 10", 6},
                 {"(-2) ** 2", 4},
                 {"- -5", 5},
                 {"+7", 7},
                 {"2 * -3 + 10", 4},
                 {"7 // -2 + 10", 6},
                 {"1_000", 1000},
                 {"0x10", 16},
                 {"(1 +\n   # inside\n   2)", 3},
                 {"1 + \\\n 2", 3},
                 {"batch_size * 2", 24},
                 {"True + 1", 2},
                 {"((((((3))))))", 3}};
    char text[128];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, "max_iters = %s\n", cases[i].expression);
        ASSERT_READS(text);
        ck_assert_msg(fixture.config.max_iters == cases[i].value, "%s gave %lld",
                      cases[i].expression, (long long)fixture.config.max_iters);
    }
}

TEST(file_real_expressions)
{
    static const struct {
        const char *expression;
        double value;
    } cases[] = {{"6e-4", 6e-4},
                 {"6e-4 / 10", 6e-4 / 10},
                 {"1", 1.0},
                 {"1 / 4", 0.25},
                 {"2 ** -1", 0.5},
                 {"2 ** -1 * 3", 1.5},
                 {"learning_rate / 10", 6e-4 / 10},
                 {"1.", 1.0},
                 {".5", 0.5},
                 {"10 // 4.0", 2.0}};
    char text[128];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, "min_lr = %s", cases[i].expression);
        ASSERT_READS(text);
        ck_assert_msg(fixture.config.min_lr == cases[i].value, "%s gave %.17g", cases[i].expression,
                      fixture.config.min_lr);
    }
}

TEST(file_string_expressions)
{
    static const struct {
        const char *expression, *value;
    } cases[] = {{"'a' \"b\"", "ab"},
                 {"'a' 'b' + 'c'", "abc"},
                 {"('a'\n 'b')", "ab"},
                 {"str(5) + str(1e-05)", "51e-05"},
                 {"str(600.0)", "600.0"},
                 {"str(True) + str(None)", "TrueNone"},
                 {"str('x' + str(2 * 3))", "x6"},
                 {"str(int(7.9)) + str(int(-7.9)) + str(float(3))", "7-73.0"},
                 {"f'gpt-L{n_layer}'", "gpt-L12"},
                 {"f'{n_layer}{n_head}'", "1212"},
                 {"F\"{ n_layer }x{dataset}y\" 'z' + f''", "12xopenwebtextyz"},
                 {"f'{{{n_layer}}}' f'{bias}{learning_rate}'", "{12}False0.0006"},
                 {"f'''a\n{n_layer}'b'\\n'''", "a\n12'b'\n"},
                 {"('a' f'{n_layer}'\n 'b')", "a12b"},
                 {"'-'", "-"},
                 {"'run' + '-' + str(n_layer)", "run-12"},
                 {"gelu", "auto"},
                 {"'\\x41\\n'", "A\n"}};
    char text[128];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, "wandb_run_name = %s\n", cases[i].expression);
        ASSERT_READS(text);
        ck_assert_str_eq(fixture.config.wandb_run_name, cases[i].value);
    }
    ASSERT_READS("wandb_run_name = None");
    ck_assert_str_eq(fixture.config.wandb_run_name, "");
}

TEST(file_names)
{
    ASSERT_READS(
        "_scale = 2\n_name = 'a'\nn_layer = 3 * _scale\n_scale = 5\nn_head = _scale\nn_embd = n_head * n_layer\n"
        "dataset = _name + _name; _name = 'b'; out_dir = _name + dataset\n");
    ck_assert_int_eq(fixture.config.n_layer, 6);
    ck_assert_int_eq(fixture.config.n_embd, 30);
    ck_assert_str_eq(fixture.config.dataset, "aa");
    ck_assert_str_eq(fixture.config.out_dir, "baa");
    ASSERT_READS("dataset = dataset + dataset");
    ck_assert_str_eq(fixture.config.dataset, "openwebtextopenwebtext");
    ASSERT_READS("n_layer = 1\nn_layer = 2");
    ck_assert_int_eq(fixture.config.n_layer, 2);
}

/* Names of the file's own, as in forks of nanoGPT. */
TEST(file_own_names)
{
    ASSERT_READS("num_gpus = 8\nepochs = 3\nbatch_size = 12\nblock_size = 256\n"
                 "gradient_accumulation_steps = 5 * num_gpus\n"
                 "max_iters = epochs * 300000 // (batch_size * block_size)\n");
    ck_assert_int_eq(fixture.config.gradient_accumulation_steps, 40);
    ck_assert_int_eq(fixture.config.max_iters, 292);
    ck_assert_int_eq(fixture.count, 0);
    ASSERT_READS(
        "n_layers = 3; n_layer = n_layers\nlr = 1e-3\nlearning_rate = lr\nname = 'a'\nname = name + 'b'\n"
        "dataset = f'{name}'");
    ck_assert_int_eq(fixture.config.n_layer, 3);
    ck_assert(fixture.config.learning_rate == 1e-3);
    ck_assert_str_eq(fixture.config.dataset, "ab");
    ck_assert_int_eq(fixture.count, 0);
    /* A number that only a text shows may be another program's key. */
    ck_assert_int_eq(fixture_read("depth = 20\nwandb_run_name = f'd{depth}'"), GT_OK);
    ck_assert_str_eq(fixture.config.wandb_run_name, "d20");
    ck_assert_int_eq(fixture.notes, 1);
    ASSERT_SAID("x.py:1:1: depth is not a key: only a text uses it");
    ASSERT_READS(
        "wandb_entity = 'team'\nwandb_tags = ['a',\n 'b']\nwandb_id = None\nwandb_config = {'a': 1}; n_layer = 3");
    ck_assert_int_eq(fixture.count, 0);
    ck_assert_int_eq(fixture.config.n_layer, 3);
}

TEST(file_whole_numbers)
{
    ASSERT_READS(
        "max_iters = 6e5\nlr_decay_iters = 1e6 / 2\nwarmup_iters = 2e3\neval_interval = 250.0\nlog_interval = 1e1");
    ck_assert_int_eq(fixture.config.max_iters, 600000);
    ck_assert_int_eq(fixture.config.lr_decay_iters, 500000);
    ck_assert_int_eq(fixture.config.warmup_iters, 2000);
    ck_assert_int_eq(fixture.config.eval_interval, 250);
    ck_assert_int_eq(fixture.config.log_interval, 10);
    ASSERT_REFUSED("max_iters = -1e3", "max_iters = -1000.0 is out of range");
}

/* Each text has one mistake, and gives one line that begins with its position. */
TEST(file_refusals)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"n_layers = 3", "x.py:1:1: unknown key n_layers (did you mean n_layer?)"},
        {"\n  n_layer = 3", "x.py:2:3: indented line"},
        {"n_layer = 8.0", "x.py:1:1: n_layer: expected an int, found float 8.0"},
        {"n_layer = 1e3", "expected an int, found float 1000.0"},
        {"n_layer = 0", "x.py:1:1: n_layer = 0 is out of range: [1, 4096]"},
        {"n_layer = ", "x.py:1:11: expected a value, found the end of the file"},
        {"n_layer = \n", "found the end of the line"},
        {"n_layer 3", "x.py:1:9: expected '='"},
        {"n_layer += 3",
         "x.py:1:9: expected '=' (a configuration holds assignments only), found +="},
        {"n_layer: int = 3", "found :"},
        {"n_layer = n_head = 3", "expected the end of the statement, found ="},
        {"n_layer = 3 4", "x.py:1:13: expected the end of the statement, found 4"},
        {"n_layer = (3", "x.py:1:11: this bracket is never closed"},
        {"n_layer = (3\nn_head = 4",
         "x.py:2:1: expected an operator, or ')' for line 1, column 11, found n_head"},
        {"n_layer = 3)", "unmatched ')'"},
        {"n_layer = ()", "expected a value, found )"},
        {"n_layer = 3 +", "expected a value"},
        {"n_layer = * 3", "x.py:1:11: expected a value, found *"},
        {"n_layer = 3 < 4", "found <"},
        {"n_layer = [3]", "expected a value, found ["},
        {"n_layer = (3, 4)", "found ,"},
        {"n_layer = 3 if True else 4",
         "x.py:1:13: a condition is not evaluated here; write the value"},
        {"n_layer = (3 if True else 4)", "x.py:1:14: a condition is not evaluated here"},
        {"n_layer = 3 if torch.cuda.is_available() else 4",
         "x.py:1:13: a condition is not evaluated here"},
        {"gelu = 'erf' if torch.x else 'tanh'", "x.py:1:14: a condition is not evaluated here"},
        {"dtype = 'float16' if fast else 'float32'",
         "x.py:1:19: a condition is not evaluated here"},
        {"dtype = 'float16' if torch.x", "expected 'else'"},
        {"compile = not bias", "x.py:1:11: a condition is not evaluated here"},
        {"compile = bias and True", "x.py:1:16: a condition is not evaluated here"},
        {"compile = ('a' in 'b')", "x.py:1:16: a condition is not evaluated here"},
        {"n_layer = 1 / 0", "x.py:1:13: int / int: division by zero"},
        {"n_layer = 2 ** 64", "int ** int: the result does not fit a 64-bit integer"},
        {"n_layer = 99999999999999999999", "this integer does not fit 64 bits"},
        {"learning_rate = 1e999", "too large for a float"},
        {"learning_rate = 1e300 * 1e300", "float * float: the result is not a finite number"},
        {"n_layer = 'a' * 3", "str * int: arithmetic is for numbers only"},
        {"n_layer = -'a'", "x.py:1:11: - str"},
        {"dataset = 'a' + 3", "str + int"},
        {"dataset = 'a", "x.py:1:11: this string is never closed"},
        {"dataset = b'a'", "x.py:1:11: a string with this prefix is not supported"},
        {"dataset = f'{n_layer:02}'",
         "x.py:1:14: only a name is evaluated in an f-string's braces"},
        {"dataset = f'{}'", "only a name is evaluated in an f-string's braces"},
        {"dataset = f'{n_layer'", "only a name is evaluated in an f-string's braces"},
        {"dataset = f'{n_layer\nn_head = 3", "only a name is evaluated in an f-string's braces"},
        {"dataset = f'{n_laier}'", "the name n_laier has no value (did you mean n_layer?)"},
        {"dataset = f'{f\"a\"}'", "only a name is evaluated"},
        {"dataset = f'{time.time()}'",
         "the name time has no value: functions and modules are not evaluated here"},
        {"dataset = f'a}'", "x.py:1:11: a brace in an f-string is written twice"},
        {"dataset = f'{n_layer}", "this string is never closed"},
        {"dataset = 3", "dataset: expected a str, found int 3"},
        {"dataset = open('x')", "the name open has no value"},
        {"dataset = __import__('os').system('x')", "the name __import__ has no value"},
        {"dataset = n_layer.__class__", "found ."},
        {"dataset = str(1, 2)", "found ,"},
        {"dataset = str", "expected '('"},
        {"dataset = str()", "expected a value, found )"},
        {"dataset = time.time()", "write `import time` before this use of time"},
        {"import", "x.py:1:7: expected a module, found the end of the file"},
        {"import os 3", "x.py:1:11: expected the end of the statement, found 3"},
        {"import os\ndataset = os.path.join('a', 'b')",
         "x.py:2:11: the name os has no value: functions and modules"},
        {"from time import time\nseed = time.time()",
         "write `import time` before this use of time"},
        {"import x.time\nseed = time.time()", "write `import time` before this use of time"},
        {"import time\nseed = time.clock()", "expected 'time', found clock"},
        {"n_layer = int('3')", "x.py:1:11: int('3') is not evaluated here; write its value"},
        {"n_layer = int(1e300)", "int(1e+300) is not evaluated here"},
        {"n_layer = float(None)", "float(None) is not evaluated here"},
        {"max_iters = 8.5",
         "max_iters: expected an int, found float 8.5; // divides without a fraction"},
        {"batch_size = 1e1", "batch_size: expected an int, found float 10.0; write 10"},
        {"max_iters = 1e30", "max_iters: expected an int, found float 1e+30"},
        /* Names that nothing uses; a mistyped key is one even where something else uses it. */
        {"learing_rate = 3e-4", "x.py:1:1: unknown key learing_rate (did you mean learning_rate?)"},
        {"max_iter = 9\nlr_decay_iters = max_iter",
         "x.py:1:1: unknown key max_iter (did you mean max_iters?)"},
        {"n_layers = 9\ndataset = f'{n_layers}'",
         "x.py:1:1: unknown key n_layers (did you mean n_layer?)"},
        {"lr = 3e-4\ndataset = f'{lr}'", "x.py:1:1: unknown key lr (did you mean learning_rate?)"},
        {"train_data_path = 'x'",
         "unknown key train_data_path, which nothing below uses; for a name of your own write "
         "_train_data_path"},
        {"n_layer = num\nnum = 3", "x.py:1:11: the name num has no value"},
        {"num = 3\nnum = 4", "x.py:1:1: unknown key num"},
        /* What could not be read makes no second line. */
        {"num = len(x)\nn_layer = num * 2\nn_head = n_layer + num\n_x = num\nn_embd = _x",
         "x.py:1:7: the name len"},
        {"num = [1,\n 2]", "unknown key num"},
        {"if True:\n    n_layer = 3\n    n_head = 3", "x.py:1:1: if is not supported"},
        {"def f(x):\n\n  return x\n", "def is not supported"},
        {"print('x')", "print is not supported"},
        {"n_layer = x", "x.py:1:11: the name x has no value"},
        {"n_layer = n_laier", "has no value (did you mean n_layer?)"},
        {"n_layer = _x", "the name _x has no value"},
        {"True = 3", "unknown key True"},
        {"3 = n_layer", "expected the name of a key, found 3"},
        {"; n_layer = 3", "expected the name of a key, found ;"},
        {"n_layer = 3 $ 4", "x.py:1:13: this character has no meaning here: $"},
        {"compile = 1", "compile: expected True or False, found int 1"},
        {"help = True", "help belongs to the command line"},
        {"gelu = 'relu'", "gelu = 'relu' is none of auto, erf, tanh"},
        {"out_dir = ''", "out_dir = '' is empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ASSERT_REFUSED(cases[i].text, cases[i].words);
}

TEST(file_not_a_text)
{
    fixture_open(CONFIG_TRAIN);
    ck_assert_int_eq(config_parse_text(&fixture.config, "x.bin", "n_layer\0=3", 10), GT_USAGE);
    ck_assert_int_eq(fixture.errors, 1);
    ASSERT_SAID("x.bin: not a configuration: it holds a zero byte; data is named by --dataset=");
}

TEST(file_limits_of_values)
{
    char text[5000];
    ASSERT_REFUSED("dropout = 1.0", "dropout = 1.0 is out of range: [0.0, 0.99]");
    ASSERT_REFUSED("beta1 = 1.0", "beta1 = 1.0 is out of range: [0.0, 1.0)");
    ASSERT_REFUSED("dataset = '\xff'", "is not UTF-8 text");
    snprintf(text, sizeof text, "dataset = '%04097d'", 0);
    ASSERT_REFUSED(text, "is too long: 4097 bytes, at most 4096");
}

TEST(file_from_disk)
{
    char path[] = "/tmp/gpt-train-config-XXXXXX";
    int fd = mkstemp(path);
    fixture_open(CONFIG_TRAIN);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "n_layer = 3\nx = 1\n", 18), 18);
    close(fd);
    ck_assert_int_eq(config_parse_file(&fixture.config, path), GT_USAGE);
    ck_assert_int_eq(fixture.config.n_layer, 3);
    ASSERT_SAID(path);
    ASSERT_SAID(":2:1: unknown key x");
    unlink(path);
    fixture_open(CONFIG_TRAIN);
    ck_assert_int_ne(config_parse_file(&fixture.config, path), GT_OK);
    ck_assert_int_eq(fixture.errors, 1);
    ck_assert_int_ne(config_parse_file(&fixture.config, "/tmp"), GT_OK);
    ck_assert_int_eq(fixture.errors, 2);
}

TEST(file_installed)
{
    char folder[FILE_PATH_MAX];
    scratch_make(folder);
    scratch_put(folder, "installed.py", "n_layer = 3\n");
    setenv("GPT_TRAIN_CONFIG_DIR", folder, 1);
    fixture_open(CONFIG_TRAIN);
    ck_assert_int_eq(config_parse_file(&fixture.config, "installed.py"), GT_OK);
    ck_assert_int_eq(fixture.config.n_layer, 3);
    ck_assert_int_ne(config_parse_file(&fixture.config, "./installed.py"),
                     GT_OK); /* a path is a path */
    ck_assert_int_ne(config_parse_file(&fixture.config, "absent.py"), GT_OK);
    ASSERT_SAID("absent.py");
    unsetenv("GPT_TRAIN_CONFIG_DIR");
    scratch_remove(folder);
}
