/* The configuration of a run: one table of keys (keys.def), and everything that is made from it.
 *
 * Order of use: config_defaults(), config_parse_args() (which reads the files that it names), then, at a resume,
 * config_from_json() for the keys that this invocation left alone, and config_check() again.  Nothing is allocated in
 * the struct, nothing that is read is executed, and every problem of a run is reported before the first failing status.
 */
#ifndef GPT_TRAIN_CONFIG_CONFIG_H
#define GPT_TRAIN_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"

/* The programs that read a configuration; a key belongs to one or both. */
enum config_program { CONFIG_TRAIN = 1, CONFIG_SAMPLE = 2, CONFIG_BOTH = 3 };

/* Properties of a key. */
enum config_flag {
    CONFIG_INVOCATION = 1,     /* said for this invocation only: never stored in a checkpoint */
    CONFIG_FLAG_ONLY = 2,      /* belongs to the command line: an error in a file */
    CONFIG_BARE = 4,           /* choice: `--key` alone means the second word, and a value stands only after '=' */
    CONFIG_MIN_OPEN = 8,       /* the minimum itself is out of range */
    CONFIG_MAX_OPEN = 16,      /* the maximum itself is out of range */
    CONFIG_FIXED = 32,         /* part of the model's shape: a checkpoint's value cannot be changed at a resume */
    CONFIG_AUTO = 64,          /* the default leaves the choice open; a checkpoint fills it in */
    CONFIG_NONE_IS_ZERO = 128, /* int: None is accepted and means 0 */
    CONFIG_PATH = 256,         /* string: a path, for --help */
    CONFIG_NEEDED = 512,       /* string: may not be empty */
    CONFIG_COMMON = 2048,      /* --help shows it, not only --help=all */
    CONFIG_RESULTS = 1024, /* what training computes depends on it, beside the model's shape, the plan and the data */
};

/* enum config_sampler, config_gelu, ...: the words of each choice, in the order of the table. */
/* clang-format off */
#define CONFIG_WORDS_BEGIN(name) enum config_##name {
#define CONFIG_WORD(enumerator, word) enumerator,
#define CONFIG_WORDS_END(name) config_##name##_count };
/* clang-format on */
#include "config/keys.def"

/* CONFIG_KEY_n_layer and so on: spelled as the key, so that one name finds every use. */
enum config_key {
#define CONFIG_INT(name, group, value, min, max, programs, flags, help) CONFIG_KEY_##name,
#define CONFIG_REAL(name, group, value, min, max, programs, flags, help) CONFIG_KEY_##name,
#define CONFIG_BOOL(name, group, value, programs, flags, help) CONFIG_KEY_##name,
#define CONFIG_STRING(name, group, value, capacity, programs, flags, help) CONFIG_KEY_##name,
#define CONFIG_CHOICE(name, group, value, programs, flags, help) CONFIG_KEY_##name,
#include "config/keys.def"
    CONFIG_KEY_COUNT
};

/* Where a value was said.  `source` is borrowed (an argument or a path) and must outlive the config. */
struct config_origin {
    const char *source; /* NULL: the default */
    int32_t line;       /* 1-based; 0 when the source is no text file */
    int32_t column;     /* 1-based, in bytes */
    bool checkpoint;    /* filled in by config_from_json() */
    bool bad;           /* a value was refused, so that checks of this key would mislead */
};

struct config {
#define CONFIG_INT(name, group, value, min, max, programs, flags, help) int64_t name;
#define CONFIG_REAL(name, group, value, min, max, programs, flags, help) double name;
#define CONFIG_BOOL(name, group, value, programs, flags, help) bool name;
#define CONFIG_STRING(name, group, value, capacity, programs, flags, help) char name[capacity];
#define CONFIG_CHOICE(name, group, value, programs, flags, help) int name; /* enum config_##name */
#include "config/keys.def"
    enum config_program program;
    int64_t wall_s;          /* what time.time() gives in a file; tests set their own */
    uint32_t backends_built; /* bit per enum config_backend, from config_backend_add(); cpu is always there */
    struct config_origin origin[CONFIG_KEY_COUNT];
};

/* Every key at `program`'s default, with no origin; wall_s is now. */
void config_defaults(struct config *config, enum config_program program);

/* This build has the backend `name`: said before the arguments are read, for each; a name without a word is passed over. */
void config_backend_add(struct config *config, const char *name);
/* The index in device ("cuda:1", "1"); -1 where it has none. */
int32_t config_device_index(const struct config *config);
/* The part of a name in device ("cuda:3060"), which is borrowed; NULL where it has none. */
const char *config_device_name(const struct config *config);

/* Reads argv[1..] from left to right into `config`, which holds defaults: an argument without dashes is a file,
 * `--key=value` and `--key value` set a key, the last word wins.  Then config_check() and config_notes().  --help, -h
 * and --version anywhere end the reading with GT_OK and the field set, so that they answer even beside mistakes.
 * argv must outlive `config`.  Errors: GT_USAGE, after every problem has been logged, one line each. */
enum gt_status config_parse_args(struct config *config, int argc, char *const argv[]);

/* Reads a file in nanoGPT's syntax; `path` must outlive `config`.  The syntax is described in config_file.c.
 * Errors: GT_USAGE after every problem of the file has been logged as "PATH:LINE:COLUMN: ...". */
enum gt_status config_parse_file(struct config *config, const char *path);
/* The same from memory; `name` takes the place of the path. */
enum gt_status config_parse_text(struct config *config, const char *name, const char *text, size_t count);

/* Checks what concerns several keys and maps nanoGPT's devices to backends (backend is written).  What a checkpoint
 * will decide (init_from other than scratch) is left alone until config_from_json() has read it; check again then.
 * Errors: GT_USAGE, after every problem has been logged. */
enum gt_status config_check(struct config *config);

/* Warns about schedules that nanoGPT accepts in silence, and says in one line each what was asked for by nanoGPT's
 * name and does not happen here (device='cuda', compile, wandb_log).  config_parse_args() calls it once. */
void config_notes(const struct config *config);

/* memory_budget in bytes: a number with a unit (B, KB, MB, GB, KiB, MiB, GiB; none is bytes, of which 1 MiB is the least) or a percentage
 * of total_bytes; 0 where the key is empty.  Errors: GT_USAGE, logged, for what is no amount. */
enum gt_status config_memory_budget(const struct config *config, uint64_t total_bytes, uint64_t *out);

/* expected_losses' validation loss after `iter` iterations.  False where it states none, or is not of its form:
 * ITER:LOW-HIGH, separated by blanks; -1 asks for the form alone. */
struct config_band {
    double low, high;
};
bool config_expected_losses(const struct config *config, int64_t iter, struct config_band *out);
/* What states them: a file or an argument, borrowed.  NULL where nothing does, or where a setting of the run on which results
 * depend is not that of the file. */
const char *config_expected_source(const struct config *config);

/* True when a file or a flag of this invocation set the key. */
bool config_key_was_set(const struct config *config, enum config_key key);

/* The configuration less what only this invocation said, as one flat object in the table's order.  Owned by the
 * caller.  Errors: GT_NO_MEMORY. */
enum gt_status config_to_json(const struct config *config, json_t **out);
/* Fills the keys that this invocation did not set from `object`; `source` (the checkpoint's path) must outlive
 * `config`.  Keys that are absent keep their value (an older release wrote the checkpoint).
 * Errors: GT_DATA for an unknown key, a wrong type or a value out of range; GT_USAGE when this invocation set a key of
 * the model's shape to something else.  All are logged. */
enum gt_status config_from_json(struct config *config, const json_t *object, const char *source);

/* A key that was changed, as Python literals. */
struct config_change {
    const char *name;
    char was[80], is[80];
};
/* Whether what training computes depends on `key`, and `object`, which config_from_json() has read, has another value. */
bool config_key_change(const struct config *config, enum config_key key, const json_t *object,
                       struct config_change *out);

/* The text of --help: the common keys or all, grouped, with defaults, in 80 columns. */
void config_print_help(FILE *stream, enum config_program program, bool all);
/* The whole list as roff for the man page (man(7) macros .SS and .TP). */
void config_print_man(FILE *stream, enum config_program program);

#endif
