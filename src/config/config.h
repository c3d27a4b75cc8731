/* The configuration of a run: one table of keys (keys.def), and everything that is generated from it.
 *
 * Order of use: config_defaults(), then config_parse_args(), which also reads the files named on the command line.  A
 * resumed run then calls config_from_json(), which fills in the keys that this invocation did not set, and
 * config_check() again.  The struct owns no memory, and input is never executed.  Each function logs every problem that
 * it finds before it returns an error.
 */
#ifndef GPT_TRAIN_CONFIG_CONFIG_H
#define GPT_TRAIN_CONFIG_CONFIG_H

#include "base/file.h"
#include "base/shape.h"

struct json_t; /* jansson's */

/* The programs that read a configuration.  Each key belongs to one of them or to both. */
enum config_program { CONFIG_TRAIN = 1, CONFIG_SAMPLE = 2, CONFIG_BOTH = 3 };

enum config_flag {
    CONFIG_INVOCATION = 1,     /* applies to this invocation only: never stored in a checkpoint */
    CONFIG_FLAG_ONLY = 2,      /* command line only: an error in a file */
    CONFIG_BARE = 4,           /* choice: a bare `--key` selects the second word; a value must follow '=' */
    CONFIG_MIN_OPEN = 8,       /* the minimum itself is out of range */
    CONFIG_MAX_OPEN = 16,      /* the maximum itself is out of range */
    CONFIG_FIXED = 32,         /* part of the model's shape: a resumed run cannot change it */
    CONFIG_AUTO = 64,          /* the default leaves the value open; a checkpoint fills it in */
    CONFIG_NONE_IS_ZERO = 128, /* int: None is accepted and means 0 */
    CONFIG_PATH = 256,         /* string: a path, for --help; "~/" at its beginning is the home folder */
    CONFIG_NEEDED = 512,       /* string: must not be empty */
    CONFIG_COMMON = 2048,      /* listed by plain --help, not only by --help=all */
    CONFIG_HOME = 4096,        /* string: may be a path that begins with "~/" */
    CONFIG_WHOLE = 8192,       /* int: a float without fraction is accepted, as nanoGPT does where it only compares */
    CONFIG_RESULTS = 1024,     /* affects training results (the shape, the plan and the data do so without this flag) */
};

/* enum config_sampler, config_gelu, ...: the words of each choice, in table order. */
#define CONFIG_LIST(...) __VA_ARGS__
#define CONFIG_WORDS(name, enumerators, words) enum config_##name{CONFIG_LIST enumerators, config_##name##_count};
#include "config/keys.def"

/* CONFIG_KEY_n_layer and so on.  They use the key's own spelling, so that a search for the key finds every use. */
enum config_key {
#define CONFIG_KEY(name) CONFIG_KEY_##name,
#include "config/keys.def"
    CONFIG_KEY_COUNT
};

/* Where a value was set.  `source` (an argument or a path) is borrowed and must outlive the config. */
struct config_origin {
    const char *source; /* NULL: the default */
    int32_t line;       /* 1-based; 0 when the source is not a text file */
    int32_t column;     /* 1-based, in bytes */
    bool checkpoint;    /* filled in by config_from_json() */
    bool bad;           /* the value was rejected; later checks skip this key */
};

struct config {
#define CONFIG_INT(name, value, min, max, programs, flags, help) int64_t name;
#define CONFIG_REAL(name, value, min, max, programs, flags, help) double name;
#define CONFIG_BOOL(name, value, programs, flags, help) bool name;
#define CONFIG_STRING(name, value, capacity, programs, flags, help) char name[capacity];
#define CONFIG_CHOICE(name, value, programs, flags, help) int name; /* enum config_##name */
#include "config/keys.def"
    enum config_program program;
    int64_t wall_s;          /* the value of time.time() in a file */
    uint32_t backends_built; /* bit per enum config_backend, set by config_backend_add(); cpu is always set */
    struct config_origin origin[CONFIG_KEY_COUNT];
    int32_t local_rank, local_ranks; /* this process among the ranks of its machine */
};

/* Returns the bytes per second each way of a `link` such as "10GbE" or "12GB/s"; 0 for any other text. */
double config_link(const char *link);
/* Makes the item of `devices` for a local rank the `device`.  Returns false if there are not that many. */
bool config_device_take(struct config *config, int32_t rank);
/* Returns how many tasks MPI's launcher started, or 1 without one; sets *first to true in one of them. */
int64_t config_tasks(bool *first);
/* Sets every key to `program`'s default, and clears the origins. */
void config_defaults(struct config *config, enum config_program program);

/* Records that this build includes the backend `name`.  Call it for each backend before the arguments are parsed.
 * Names that are not words of the key `backend` are ignored. */
void config_backend_add(struct config *config, const char *name);
/* What `device` and `backend` mean together. */
struct config_device {
    int backend;      /* enum config_backend */
    const char *word; /* of the backend: "auto", "cpu" */
    int32_t index;    /* of the device; -1: none is given */
    const char *name; /* a part of the card's name, borrowed from the configuration; NULL: none is given */
};
struct config_device config_device(const struct config *config);

/* Reads argv[1..] from left to right into `config`, which must hold the defaults, then calls config_check() and
 * config_notes().  An argument without dashes is a file; `--key=value` and `--key value` set a key; the last setting
 * wins.  If --help, -h or --version occurs anywhere, the function sets that field, ignores everything else and returns
 * GT_OK, so that help is available even when other arguments are wrong.  argv must outlive `config`.
 * Errors: GT_USAGE, after every problem has been logged, one line each. */
enum gt_status config_parse_args(struct config *config, int argc, char *const argv[]);

/* Reads a file in nanoGPT's syntax, which config_file.c describes; time.time() is the current time.  `path` must
 * outlive `config`.
 * Errors: GT_USAGE after every problem of the file has been logged as "PATH:LINE:COLUMN: ...". */
enum gt_status config_parse_file(struct config *config, const char *path);
/* Parses text[count] in the same way; `name` replaces the path. */
enum gt_status config_parse_text(struct config *config, const char *name, const char *text, size_t count);

/* Reads the file that `compare` names; the flags of `config` apply to it too.  `config` must outlive `out`.
 * Errors: as config_parse_file() and config_check(). */
enum gt_status config_compared(const struct config *config, struct config *out);

/* Sets each key of a new model's shape that the user left open to the default of its `arch`.  Leaves vocab_size open:
 * it depends on the data. */
void config_arch_resolve(struct config *config);
/* Returns the shape that the keys give; none may be open. */
struct shape config_shape(const struct config *config);

/* Checks combinations of keys, and sets the keys for which others are another name (grad_checkpoint, explain_oom).
 * Skips the keys that a checkpoint is still to fill in (init_from other than scratch); call it again after
 * config_from_json(), which is the last that sets keys.
 * Errors: GT_USAGE, after every problem has been logged. */
enum gt_status config_check(struct config *config);

/* Warns about schedules that nanoGPT accepts silently, and logs one line for each nanoGPT setting that has no effect
 * here (a PyTorch device, compile, wandb_log).  config_parse_args() calls it once. */
void config_notes(const struct config *config);

/* Converts memory_budget to bytes; 0 when the key is empty.  The value is a number with a unit (B, KB, MB, GB, KiB,
 * MiB, GiB; K, M and G mean KiB, MiB and GiB), a number of bytes without a unit, at least 1 MiB, or a percentage of
 * total_bytes.
 * Errors: GT_USAGE, logged, for an invalid amount. */
enum gt_status config_memory_budget(const struct config *config, uint64_t total_bytes, uint64_t *out);
/* The same for host_budget, which may be 0. */
enum gt_status config_host_budget(const struct config *config, uint64_t total_bytes, uint64_t *out);

/* Looks up the range of validation losses that expected_losses gives for iteration `iter`.  Returns false if it gives
 * none or is malformed (its form is ITER:LOW-HIGH, separated by blanks).  With iter = -1, checks the form only. */
struct config_band {
    double low, high;
};
bool config_expected_losses(const struct config *config, int64_t iter, struct config_band *out);
/* Returns the file or argument that set expected_losses, borrowed.  Returns NULL if they are not set, or if the run
 * differs from that file in a setting that affects results. */
const char *config_expected_source(const struct config *config);

/* Returns true if a file or a flag of this invocation set the key. */
bool config_key_was_set(const struct config *config, enum config_key key);

/* Returns the configuration without CONFIG_INVOCATION keys as one flat object, in table order, owned by the caller.
 * Errors: GT_NO_MEMORY. */
enum gt_status config_to_json(const struct config *config, struct json_t **out);
/* Fills in the keys that this invocation did not set from `object`.  `source` (the checkpoint's path) must outlive
 * `config`.  Absent keys keep their value: an older release may have written the checkpoint.
 * Errors: GT_DATA for an unknown key, a wrong type or a value out of range; GT_USAGE when this invocation set a key of
 * the model's shape to something else.  All are logged. */
enum gt_status config_from_json(struct config *config, const struct json_t *object, const char *source);

/* A changed key: its old and its new value as Python literals. */
struct config_change {
    const char *name;
    char was[80], is[80];
};
/* Returns true if `key` affects training results and this invocation set it to another value than `object` has.
 * `object` must have passed config_from_json(). */
bool config_key_change(const struct config *config, enum config_key key, const struct json_t *object,
                       struct config_change *out);

/* Prints --help: the common keys, or all of them, grouped, with defaults, in 80 columns.  doc/man_page.sh turns the
 * second form into the man pages' lists. */
void config_print_help(FILE *stream, enum config_program program, bool all);

#endif
