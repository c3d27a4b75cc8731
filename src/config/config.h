/* The configuration of a run: one table of keys (keys.def), and everything that is generated from
 * it.
 *
 * Order of use: config_defaults(), then config_parse_args(), which also reads the files named on
 * the command line.  A resumed run then calls config_from_json(), which fills in the keys that this
 * invocation did not set, and config_check() again.  The struct owns no memory, and input is never
 * executed.  Each function logs every problem that it finds before it returns an error.
 */
#ifndef GPT_TRAIN_CONFIG_CONFIG_H
#define GPT_TRAIN_CONFIG_CONFIG_H

#include "base/file.h"
#include "base/shape.h"

struct json_t; /* jansson's */

/* The programs that read a configuration.  Each key belongs to one of them or to both. */
enum config_program { CONFIG_TRAIN = 1, CONFIG_SAMPLE = 2, CONFIG_BOTH = 3 };

enum config_flag {
    CONFIG_INVOCATION = 1, /* applies to this invocation only: never stored in a checkpoint */
    CONFIG_FLAG_ONLY = 2,  /* command line only: an error in a file */
    CONFIG_BARE = 4, /* choice: a bare `--key` selects the second word; a value must follow '=' */
    CONFIG_MIN_OPEN = 8,       /* the minimum itself is out of range */
    CONFIG_MAX_OPEN = 16,      /* the maximum itself is out of range */
    CONFIG_FIXED = 32,         /* part of the model's shape: a resumed run cannot change it */
    CONFIG_AUTO = 64,          /* the default leaves the value open; a checkpoint fills it in */
    CONFIG_NONE_IS_ZERO = 128, /* int: None is accepted and means 0 */
    CONFIG_PATH = 256,    /* string: a path, for --help; "~/" at its beginning is the home folder */
    CONFIG_NEEDED = 512,  /* string: must not be empty */
    CONFIG_COMMON = 2048, /* listed by plain --help, not only by --help=all */
    CONFIG_HOME = 4096,   /* string: may be a path that begins with "~/" */
    CONFIG_WHOLE = 8192, /* int: a float without fraction is accepted, as nanoGPT does where it only
                            compares */
    CONFIG_RESULTS = 1024, /* affects training results (the shape, the plan and the data do so
                              without this flag) */
};

/* enum config_sampler, config_gelu, ...: the words of each choice, in table order. */
#define CONFIG_LIST(...) __VA_ARGS__
#define CONFIG_WORDS(name, enumerators, words) \
    enum config_##name{CONFIG_LIST enumerators, config_##name##_count};
#include "config/keys.def"

/* CONFIG_KEY_n_layer and so on.  They use the key's own spelling, so that a search for the key
 * finds every use. */
enum config_key {
#define CONFIG_KEY(name) CONFIG_KEY_##name,
#include "config/keys.def"
    CONFIG_KEY_COUNT
};

/* Where a value was set.  `source` (an argument or a path) is borrowed and must outlive the config.
 */
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
#define CONFIG_WORD(name, value, programs, flags, help) int name; /* enum config_##name */
#include "config/keys.def"
    enum config_program program;
    int64_t wall_s;          /* the value of time.time() in a file */
    uint32_t backends_built; /* bit per enum config_backend, set by config_backend_add(); cpu is
                                always set */
    struct config_origin origin[CONFIG_KEY_COUNT];
    int32_t local_rank, local_ranks; /* this process among the ranks of its machine */
};

#endif
